//! Names as an attacker writes them: in paths, in bodies, in both and not the same. A name is taken as it is or refused;
//! it never leads anywhere else.

use serde_json::json;

use super::{check_keys, check_sane, keys};
use crate::cluster::{CONFIG_MAPS, Cluster, MERGE, NAMESPACES, WIDGETS, config_map};

/// Names that are bad, odd, or good but easily mistaken for another.
fn names() -> Vec<String> {
    let mut names: Vec<String> = [
        ".",
        "..",
        "...",
        "a/b",
        "/",
        "//",
        "/etc/passwd",
        "../a",
        "../../a",
        "a/../b",
        "./a",
        "a/.",
        "..a",
        "a..",
        ".a",
        "a.",
        "%",
        "%2e%2e",
        "%2E",
        "%2f",
        "%00",
        "a%2fb",
        "a%b",
        "\0",
        "a\0b",
        "\r\n",
        "a\r\nb",
        "\n",
        "\t",
        " ",
        " a",
        "a ",
        "a b",
        "A",
        "Aa",
        "_",
        "a_b",
        "-",
        "-a",
        "a-",
        "--",
        "a--b",
        "*",
        "?",
        "a?b",
        "#",
        "a#b",
        "&",
        "a&b",
        "=",
        "a=b",
        ";",
        ":",
        "a:b",
        "system:admin",
        "@",
        "~",
        "$HOME",
        "${x}",
        "`ls`",
        "|",
        "\\",
        "a\\b",
        "\"",
        "'",
        "<script>",
        "{}",
        "[]",
        "(",
        "null",
        "true",
        "0",
        "-1",
        "é",
        "ä",
        "ｅ",
        "а",
        "аdmin",
        "a\u{200b}b",
        "a\u{200d}",
        "\u{feff}a",
        "a\u{202e}b",
        "\u{fffd}",
        "☃",
        "😀",
        "ﬀ",
        "İ",
        "ß",
        "registry",
        "namespaces",
        "default",
        "status",
        "scale",
        "configmaps",
        "watch",
        "proxy",
        "con",
        "nul",
        "aux",
    ]
    .map(str::to_owned)
    .into();
    for length in [63, 64, 253, 254, 255, 1_000, 5_000] {
        names.push("a".repeat(length));
        names.push("é".repeat(length));
    }
    // Every printable and unprintable byte, alone and inside a good name.
    for byte in (0..=255_u8).filter(|byte| !byte.is_ascii_alphanumeric()) {
        let text = char::from(byte);
        names.extend([text.to_string(), format!("a{text}b")]);
    }
    names
}

/// How a client could put a name into a path: escaped as it should be, escaped entirely, escaped twice.
fn paths(name: &str) -> [String; 3] {
    let careful = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~:@!$'()*,".contains(&byte);
    let usual: String = name
        .bytes()
        .map(|byte| if careful(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    let all: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let twice = all.replace('%', "%25");
    [usual, all, twice]
}

#[tokio::test]
async fn a_name_leads_nowhere_else() {
    let cluster = Cluster::with_widgets().await;
    cluster.post(CONFIG_MAPS, &config_map("present")).await.expect(201);
    let before = keys(&cluster);
    let mut asked = 0;
    for name in names() {
        for path in paths(&name) {
            for target in [
                format!("{CONFIG_MAPS}/{path}"),
                format!("{NAMESPACES}/{path}"),
                format!("{NAMESPACES}/{path}/configmaps"),
                format!("/apis/{path}/v1/widgets"),
                format!("{WIDGETS}/{path}/status"),
            ] {
                let answer = cluster.get(&target).await;
                check_sane(&answer);
                asked += 1;
            }
            let one = format!("{CONFIG_MAPS}/{path}");
            for answer in [
                cluster.put(&one, &config_map(&name)).await,
                cluster.patch(&one, MERGE, &json!({})).await,
                cluster.delete(&one).await,
            ] {
                check_sane(&answer);
                assert!((400..500).contains(&answer.code), "{}: {}", answer.what, answer.code);
                asked += 1;
            }
        }
    }
    assert_eq!(keys(&cluster), before);
    assert!(asked > 8_000, "{asked}");
}

/// Made by POST, an object has exactly the name it was given, or it is not made.
#[tokio::test]
async fn a_name_is_kept_or_refused() {
    let cluster = Cluster::new().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let mut made = 0;
    for (path, free) in [(CONFIG_MAPS, false), (roles, true)] {
        for name in names() {
            let answer = cluster.post(path, &json!({"metadata": {"name": name}})).await;
            check_sane(&answer);
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
            if answer.code == 201 {
                made += 1;
                assert_eq!(answer.json()["metadata"]["name"], name);
                let [usual, all, _] = paths(&name);
                for way in [usual, all] {
                    assert_eq!(cluster.get(&format!("{path}/{way}")).await.json(), answer.json(), "{name:?}");
                }
                assert!(free || (name.len() <= 253 && name.bytes().all(plain)), "{name:?}");
                cluster.delete(&format!("{path}/{}", paths(&name)[0])).await.expect(200);
            } else {
                answer.fails(422, "Invalid");
                assert!(!free || matches!(name.as_str(), "." | "..") || name.contains(['/', '%']), "{name:?}");
            }
            check_keys(&cluster);
        }
    }
    assert!(made > 150, "{made}");
}

/// In a namespace, in a label, as a generated name: the same.
#[tokio::test]
async fn bad_names_in_other_places() {
    let cluster = Cluster::new().await;
    for name in names() {
        let object = json!({"metadata": {"name": "a", "namespace": name}});
        let answer = cluster.post(CONFIG_MAPS, &object).await;
        check_sane(&answer);
        assert_eq!(answer.code == 201, name == "default", "{name:?}");
        for metadata in [
            json!({"generateName": name}),
            json!({"name": "b", "labels": {"k": name}}),
            json!({"name": "c", "labels": {name.as_str(): "v"}}),
            json!({"name": "d", "annotations": {name.as_str(): name}}),
            json!({"name": "e", "finalizers": [name]}),
            json!({"name": "f", "ownerReferences": [{"apiVersion": name, "kind": name, "name": name, "uid": name}]}),
        ] {
            check_sane(&cluster.post(&format!("{CONFIG_MAPS}?dryRun=All"), &json!({"metadata": metadata})).await);
        }
        cluster.delete(&format!("{CONFIG_MAPS}/a")).await;
    }
    check_keys(&cluster);
}

/// A URL and a body that do not agree.
#[tokio::test]
async fn mismatches() {
    let cluster = Cluster::new().await;
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    for (name, namespace) in [
        ("b", "default"),
        ("a", "kube-system"),
        ("A", "default"),
        ("a ", "default"),
        ("../a", "default"),
        ("а", "default"),
    ] {
        let object = json!({"metadata": {"name": name, "namespace": namespace}, "data": {"k": "stolen"}});
        for answer in [
            cluster.put(&format!("{CONFIG_MAPS}/a"), &object).await,
            cluster.patch(&format!("{CONFIG_MAPS}/a"), MERGE, &object).await,
            cluster.patch(&format!("{CONFIG_MAPS}/a?fieldManager=me"), crate::cluster::APPLY, &object).await,
        ] {
            answer.fails(400, "BadRequest");
        }
    }
    assert_eq!(cluster.get(&format!("{CONFIG_MAPS}/a")).await.json()["data"]["k"], "v");
}
