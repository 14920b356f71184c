//! Policies that are refused, and what those that are not decide. The decisions were compared with those of kube-apiserver.

use super::*;

const HEAD: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";

/// What is wrong with a policy of these rules.
#[track_caller]
fn refused(rules: &str, expect: &str) {
    let why = AuditPolicy::parse(&format!("{HEAD}{rules}")).expect_err("is refused").to_string();
    assert_eq!(why, expect, "{rules}");
}

#[test]
fn what_is_wrong_with_a_policy() {
    refused("rules: []", "loaded illegal policy with 0 rules");
    refused("", "loaded illegal policy with 0 rules");
    refused("rules: [{}]", "rules[0].level: Required value");
    refused(
        "rules: [{level: Everything}]",
        r#"rules[0].level: Unsupported value: "Everything": supported values: "None", "Metadata", "Request", "RequestResponse""#,
    );
    refused(
        "rules: [{level: None}, {level: Metadata, omitStages: [Start]}]",
        r#"rules[1].omitStages[0]: Invalid value: "Start": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"#,
    );
    refused(
        "omitStages: [RequestReceived, x]\nrules: [{level: None}]",
        r#"omitStages[1]: Invalid value: "x": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"#,
    );
    refused(
        "rules: [{level: None, nonResourceURLs: ['*', metrics, '/a*b', '/a*']}]",
        r#"[rules[0].nonResourceURLs[1]: Invalid value: "metrics": non-resource URL rules must begin with a '/' character, rules[0].nonResourceURLs[2]: Invalid value: "/a*b": non-resource URL wildcards '*' must be the final character of the rule]"#,
    );
    refused(
        "rules: [{level: None, nonResourceURLs: ['/a'], namespaces: [b]}]",
        r#"rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs"#,
    );
    refused(
        "rules: [{level: None, resources: [{group: rbac.authorization.k8s.io/v1}]}]",
        r#"rules[0].resources.group: Invalid value: "rbac.authorization.k8s.io/v1": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
    );
    refused(
        "rules: [{level: None, resources: [{resourceNames: [a]}]}]",
        r#"rules[0].resources.resourceNames: Invalid value: ["a"]: using resourceNames requires at least one resource"#,
    );
}

#[test]
fn what_is_no_policy() {
    for (text, expect) in [
        ("", "failed decoding: Object 'Kind' is missing"),
        ("kind: Policy\nrules: []", "failed decoding: Object 'apiVersion' is missing"),
        (
            "apiVersion: audit.k8s.io/v1beta1\nkind: Policy",
            r#"no kind "Policy" is registered for version "audit.k8s.io/v1beta1""#,
        ),
        ("apiVersion: audit.k8s.io/v1\nkind: Event", "write apiVersion: audit.k8s.io/v1, kind: Policy"),
        ("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: {}", "failed decoding: invalid type: map"),
        (
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None, users: [1]}]",
            "failed decoding: invalid type: integer",
        ),
        ("rules: [", "failed decoding: "),
    ] {
        let why = AuditPolicy::parse(text).expect_err("is no policy").to_string();
        assert!(why.contains(expect), "{text}: {why}");
    }
    // Fields that there are not are ignored, and null is nothing.
    let lenient = "rules: [{level: None, colour: red, users: null, resources: [{x: 1}]}]\nmetadata: {name: a}\nmore: 1";
    assert!(AuditPolicy::parse(&format!("{HEAD}{lenient}")).is_ok());
    assert_eq!(
        unknown_fields(&decode::yaml(lenient.as_bytes(), &Budget::new(STEPS, BYTES)).unwrap().value),
        ["more", "rules[0].colour", "rules[0].resources[0].x"]
    );
}

/// What a policy of these rules decides about `USER[,GROUP…] VERB PATH|RESOURCE[/SUBRESOURCE][.GROUP] [NAMESPACE] [NAME]`; a
/// path begins with a slash, and `-` is nobody, or nothing.
#[track_caller]
fn decides(policy: &AuditPolicy, request: &str, expect: &str) {
    let words: Vec<&str> = request.split(' ').collect();
    let word = |at: usize| words.get(at).copied().filter(|word| *word != "-").unwrap_or_default();
    let mut names = word(0).split(',').map(str::to_owned);
    let user = names
        .next()
        .filter(|name| !name.is_empty())
        .map(|name| UserInfo { groups: names.collect(), ..UserInfo::named(name) });
    let (resource, group) = word(2).split_once('.').unwrap_or((word(2), ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let is_path = word(2).starts_with('/');
    let attributes = ResourceAttributes {
        group,
        version: "v1",
        resource,
        subresource,
        namespace: word(3),
        name: word(4),
        fields: None,
    };
    let audited =
        Audited { user: user.as_ref(), verb: word(1), path: word(2), resource: (!is_path).then_some(attributes) };
    assert_eq!(shown(policy.evaluate(&audited)), expect, "{request}");
}

/// A decision as a text: the level, the stages that are omitted, and whether managed fields are.
fn shown(config: AuditConfig) -> String {
    let omitted = Stage::ALL.into_iter().filter(|stage| config.omit_stages.contains(*stage)).map(Stage::name);
    let mut words: Vec<&str> = std::iter::once(config.level.name()).chain(omitted).collect();
    words.extend(config.omit_managed_fields.then_some("managedFields"));
    words.join(" ")
}

#[test]
fn the_first_rule_that_matches_decides() {
    let policy = AuditPolicy::parse(&format!(
        "{HEAD}omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {{level: None, users: [robot]}}
- {{level: Metadata, userGroups: [auditors], verbs: [get, list]}}
- {{level: RequestResponse, resources: [{{group: '', resources: [pods, pods/log], resourceNames: [web]}}], omitManagedFields: false}}
- {{level: Request, resources: [{{group: apps, resources: ['*/scale']}}], omitStages: [Panic]}}
- {{level: RequestResponse, resources: [{{group: '', resources: ['services/*']}}]}}
- {{level: Request, namespaces: ['']}}
- {{level: Metadata, resources: [{{group: batch}}]}}
- {{level: Metadata, resources: [{{group: '*', resources: [leases]}}], namespaces: [kube-system]}}
- {{level: Request, nonResourceURLs: ['/healthz*', '/version']}}
"
    ))
    .expect("a policy");
    let decides = |request, expect| decides(&policy, request, expect);
    let nothing = "None RequestReceived managedFields";
    decides("robot get pods a web", nothing);
    decides("alice,auditors get secrets a b", "Metadata RequestReceived managedFields");
    decides("alice,x,auditors list /version", "Metadata RequestReceived managedFields");
    decides("alice,auditors update secrets a b", nothing);
    decides("- get pods a web", "RequestResponse RequestReceived");
    decides("alice get pods/log a web", "RequestResponse RequestReceived");
    decides("alice get pods/exec a web", nothing);
    decides("alice get pods a other", nothing);
    decides("alice list pods a", nothing);
    decides("alice get deployments/scale.apps a b", "Request RequestReceived Panic managedFields");
    decides("alice get deployments.apps a b", nothing);
    decides("alice get deployments/scale.other a b", nothing);
    decides("alice get services a b", "RequestResponse RequestReceived managedFields");
    decides("alice get services/proxy a b", "RequestResponse RequestReceived managedFields");
    decides("alice get nodes - b", "Request RequestReceived managedFields");
    decides("alice get jobs/status.batch a b", "Metadata RequestReceived managedFields");
    decides("alice get leases.coordination.k8s.io kube-system b", "Metadata RequestReceived managedFields");
    decides("alice get leases.coordination.k8s.io a b", nothing);
    decides("alice get /healthz/ping", "Request RequestReceived managedFields");
    decides("alice get /versions", nothing);
    decides("alice get /version", "Request RequestReceived managedFields");
}

/// Random policies with random requests, and what kube-apiserver's package says of them: some hundred policies, of which it refuses
/// every tenth, and five thousand decisions.
#[test]
fn decisions_of_kube_apiserver() {
    use std::io::Read;
    let mut text = String::new();
    let cases = include_bytes!("cases.jsonl.gz");
    flate2::read::GzDecoder::new(&cases[..]).read_to_string(&mut text).expect("compressed text");
    let (mut policies, mut decisions) = (0, 0);
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).expect("JSON");
        let policy = AuditPolicy::parse(&case["policy"].to_string());
        if let Some(why) = case["error"].as_str() {
            assert_eq!(policy.expect_err("is refused").to_string(), why, "{}", case["policy"]);
            policies += 1;
            continue;
        }
        let policy = policy.expect("a policy");
        policies += 1;
        for request in case["requests"].as_array().into_iter().flatten() {
            let text = |field: &str| request[field].as_str().unwrap_or_default();
            let groups = request["groups"].as_array().into_iter().flatten();
            let user = UserInfo {
                groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
                ..UserInfo::named(text("user"))
            };
            let resource = ResourceAttributes {
                group: text("group"),
                version: "v1",
                resource: text("resource"),
                subresource: text("subresource"),
                namespace: text("namespace"),
                name: text("name"),
                fields: None,
            };
            let audited = Audited {
                user: request["user"].is_string().then_some(&user),
                verb: text("verb"),
                path: text("path"),
                resource: (request["path"].is_null()).then_some(resource),
            };
            assert_eq!(shown(policy.evaluate(&audited)), text("expect"), "{} {request}", case["policy"]);
            decisions += 1;
        }
    }
    assert_eq!((policies, decisions), (340, 5380));
}
