//! Good requests, broken at random. The seed is printed with every failure; set `KONVERGE_SEED` to run it again.

use bytes::Bytes;

use super::{check_keys, check_sane};
use crate::cluster::{
    APPLY, AS_TABLE, CONFIG_MAPS, CRDS, Cluster, DEPLOYMENTS, JSON_PATCH, MERGE, PODS, STRATEGIC, WIDGETS, config_map,
    deployment, pod, widget, widgets,
};

const REQUESTS: usize = 4_000;

struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.roll() % end.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

type Sample = (&'static str, String, &'static str, String);

fn samples() -> Vec<Sample> {
    let json = "application/json";
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\n  labels: {a: b}\ndata:\n  k: |\n    text\n  l: &x v\n  m: *x\n";
    let operations = r#"[{"op":"test","path":"/kind","value":"ConfigMap"},{"op":"add","path":"/data/x","value":"1"},
        {"op":"copy","from":"/data","path":"/metadata/annotations"},{"op":"remove","path":"/data/k"}]"#;
    vec![
        ("POST", CONFIG_MAPS.into(), json, config_map("new").to_string()),
        ("POST", CONFIG_MAPS.into(), "application/yaml", yaml.into()),
        ("POST", PODS.into(), json, pod("p").to_string()),
        ("POST", DEPLOYMENTS.into(), json, deployment("d").to_string()),
        ("POST", WIDGETS.into(), json, widget("w").to_string()),
        ("POST", CRDS.into(), json, widgets().to_string().replace("widgets.example.com", "others.example.com")),
        ("PUT", format!("{CONFIG_MAPS}/a"), json, config_map("a").to_string()),
        ("PUT", format!("{CRDS}/widgets.example.com"), json, widgets().to_string()),
        ("PATCH", format!("{CONFIG_MAPS}/a"), MERGE, r#"{"data":{"k":null,"x":"y"},"metadata":{"labels":{"a":"b"}}}"#.into()),
        ("PATCH", format!("{CONFIG_MAPS}/a"), JSON_PATCH, operations.into()),
        ("PATCH", format!("{DEPLOYMENTS}/a"), STRATEGIC, r#"{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"x"},{"$patch":"delete","name":"side"}]}}}}"#.into()),
        ("PATCH", format!("{DEPLOYMENTS}/a/scale"), MERGE, r#"{"spec":{"replicas":3}}"#.into()),
        ("PATCH", format!("{DEPLOYMENTS}/a/status"), MERGE, r#"{"status":{"replicas":3,"conditions":[{"type":"x","status":"True"}]}}"#.into()),
        ("PATCH", format!("{WIDGETS}/a?fieldManager=me&force=true"), APPLY, widget("a").to_string()),
        ("PATCH", format!("{CONFIG_MAPS}/a?fieldManager=me"), APPLY, yaml.replace("name: y", "name: a")),
        ("DELETE", format!("{CONFIG_MAPS}/nobody"), json, r#"{"propagationPolicy":"Foreground","preconditions":{"uid":"x"},"gracePeriodSeconds":5}"#.into()),
        ("GET", format!("{CONFIG_MAPS}?limit=1&labelSelector=a+in+(b,c),!d&fieldSelector=metadata.name%3Da"), json, String::new()),
        ("GET", format!("{CONFIG_MAPS}?limit=1&continue=17%2Fm1&resourceVersion=0"), json, String::new()),
        ("GET", format!("{WIDGETS}/a"), json, String::new()),
    ]
}

/// Breaks some bytes: flips, cuts, doubles, exchanges, or puts in what parsers stumble over.
fn mutate(dice: &mut Dice, bytes: &mut Vec<u8>) {
    const TRAPS: [&[u8]; 26] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b"\"",
        b":",
        b",",
        b"null",
        b"true",
        b"-1",
        b"1e400",
        b"99999999999999999999",
        b"\\u0000",
        b"\\ud800",
        b"\0",
        b"\xff",
        b"\xc0\xaf",
        b"\xef\xbb\xbf",
        b"{}",
        b"[[[[[[",
        b"\"\"",
        b"$patch",
        b"*x",
        b"&x",
        b"<<:",
        b"%2e%2e%2f",
    ];
    for _ in 0..=dice.below(4) {
        let (at, len) = (dice.below(bytes.len() + 1), bytes.len());
        match dice.below(6) {
            0 if at < len => bytes[at] ^= 1 << dice.below(8),
            1 => bytes.truncate(at),
            2 if at < len => {
                let end = at + dice.below((len - at).min(40) + 1);
                bytes.drain(at..end);
            }
            3 if at < len => {
                let end = at + dice.below((len - at).min(60) + 1);
                let piece = bytes[at..end].to_vec();
                let to = dice.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            _ => {
                let trap = *dice.pick(&TRAPS);
                bytes.splice(at..at, trap.iter().copied());
            }
        }
    }
}

/// Whether bytes can be sent as a path at all; what cannot is stopped before it reaches a server.
fn sendable(path: &[u8]) -> Option<&str> {
    std::str::from_utf8(path).ok().filter(|path| path.starts_with('/') && path.parse::<http::Uri>().is_ok())
}

#[tokio::test]
async fn broken_requests() {
    let seed = std::env::var("KONVERGE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    println!("KONVERGE_SEED={seed}");
    let mut dice = Dice(seed);
    let cluster = Cluster::with_widgets().await;
    for (path, object) in [(CONFIG_MAPS, config_map("a")), (DEPLOYMENTS, deployment("a")), (WIDGETS, widget("a"))] {
        cluster.post(path, &object).await.expect(201);
    }
    let samples = samples();
    let mut codes = std::collections::BTreeMap::<u16, usize>::new();
    for at in 0..REQUESTS {
        let (method, path, content_type, body) = dice.pick(&samples);
        let (mut path, mut content_type, mut body) =
            (path.clone().into_bytes(), (*content_type).to_owned(), body.clone().into_bytes());
        match dice.below(8) {
            0 => mutate(&mut dice, &mut path),
            1 => {
                content_type =
                    (*dice.pick(&["", "application/json", MERGE, JSON_PATCH, STRATEGIC, APPLY, "text/plain"]))
                        .to_owned()
            }
            2 => {
                mutate(&mut dice, &mut path);
                mutate(&mut dice, &mut body);
            }
            _ => mutate(&mut dice, &mut body),
        }
        // A watch has no end to wait for.
        let Some(path) = sendable(&path).filter(|path| !path.contains("watch")) else { continue };
        let method = if dice.below(20) == 0 { *dice.pick(&["GET", "POST", "PUT", "PATCH", "DELETE"]) } else { method };
        let accept = if dice.below(10) == 0 { AS_TABLE } else { "*/*" };
        let headers = [("content-type", content_type.as_str()), ("accept", accept)];
        let answer = cluster.ask(method, path, &headers, Bytes::from(body)).await;
        check_sane(&answer);
        *codes.entry(answer.code).or_default() += 1;
        if at % 500 == 0 {
            check_keys(&cluster);
        }
    }
    check_keys(&cluster);
    assert!(codes.keys().any(|code| *code < 300) && codes.contains_key(&400) && codes.contains_key(&422), "{codes:?}");
    // Everything that is there can still be read, in every form.
    for path in ["/api/v1/configmaps", "/api/v1/pods", "/apis/apps/v1/deployments", CRDS, "/apis"] {
        cluster.get(path).await.expect(200);
        cluster.accept(path, "application/yaml").await;
    }
    for path in ["/api/v1/configmaps", "/apis/apps/v1/deployments", CRDS] {
        cluster.accept(path, AS_TABLE).await.expect(200);
        cluster.get(&format!("{path}?fieldSelector=metadata.name%3Da")).await.expect(200);
        cluster.get(&format!("{path}?labelSelector=!nothing")).await.expect(200);
    }
}
