//! Admission policies, through requests. The answers are those of kube-apiserver.

mod mutating;
mod param_access;
mod validation;

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Value, json};

use konverge_apiserver::{Attributes, AuthorizationMode, Authorizer, Decision, Options};

use crate::cluster::{Answer, CRDS, Cluster, MERGE, NAMESPACES, config_map, deployment, pod, widget, widgets};

pub(super) const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
pub(super) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A resource rule.
pub(super) fn rule(group: &str, resources: &str, operations: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["v1"], "resources": [resources], "operations": operations})
}

/// An object with the fields of another one over its own.
pub(super) fn with(mut object: Value, more: &Value) -> Value {
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

/// A policy about config maps, unless `spec` says something else.
pub(super) fn policy(name: &str, spec: &Value) -> Value {
    let constraints = json!({"resourceRules": [rule("", "configmaps", &["CREATE", "UPDATE", "DELETE"])]});
    let spec = with(json!({"matchConstraints": constraints}), spec);
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Binds a policy, with other actions than to deny if `spec` says so.
pub(super) fn binding(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": with(json!({"policyName": name, "validationActions": ["Deny"]}), spec)})
}

async fn enforce(cluster: &Cluster, name: &str, spec: &Value, bound: &Value) {
    cluster.post(POLICIES, &policy(name, spec)).await.expect(201);
    cluster.post(BINDINGS, &binding(name, bound)).await.expect(201);
}

async fn lift(cluster: &Cluster, name: &str) {
    cluster.delete(&format!("{BINDINGS}/{name}")).await.expect(200);
    cluster.delete(&format!("{POLICIES}/{name}")).await.expect(200);
}

/// A config map with this data.
pub(super) fn map_of(name: &str, data: Value) -> Value {
    with(config_map(name), &json!({"data": data}))
}

/// The code and the words of an answer.
fn said(answer: &Answer) -> (u16, String) {
    let json = answer.json();
    match answer.code {
        200..=299 => (answer.code, String::new()),
        code => (code, json["message"].as_str().unwrap_or_default().to_owned()),
    }
}

const DENIED: &str = "configmaps \"m\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: ";

#[tokio::test]
async fn expressions_decide() {
    let cluster = Cluster::new().await;
    let limits = map_of("limits", json!({"most": "2"}));
    cluster.post(MAPS, &limits).await.expect(201);
    let check = async |spec: Value, bound: Value, expect: (u16, &str)| {
        enforce(&cluster, "p", &spec, &bound).await;
        let answer = cluster.post(&format!("{MAPS}?dryRun=All"), &map_of("m", json!({"a": "1", "b": "2"}))).await;
        let message = if expect.1.is_empty() { String::new() } else { format!("{DENIED}{}", expect.1) };
        assert_eq!(said(&answer), (expect.0, message), "{spec}");
        lift(&cluster, "p").await;
    };
    let one = |validation: Value| json!({"validations": [validation]});
    let none = json!({});
    let by_param = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [
        {"expression": "object.data.size() < int(params.data.most)", "messageExpression": "'at most ' + params.data.most"}
    ]});
    let param = |reference: Value| json!({"paramRef": with(json!({"parameterNotFoundAction": "Deny"}), &reference)});
    let loops = "range.all(a, range.all(b, range.all(c, a + b + c >= 0)))";
    let loops = loops.replace("range", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63,64,65,66,67,68,69,70,71,72,73,74,75,76,77,78,79,80,81,82,83,84,85,86,87,88,89,90,91,92,93,94,95,96,97,98,99,100]");
    for (spec, bound, expect) in [
        (one(json!({"expression": "object.data.size() == 2"})), &none, (201, "")),
        (
            one(json!({"expression": " object.data.size() < 2 "})),
            &none,
            (422, "failed expression: object.data.size() < 2"),
        ),
        (one(json!({"expression": "false", "message": " too much "})), &none, (422, "too much")),
        (
            one(
                json!({"expression": "false", "message": "no", "messageExpression": "'%d entries'.format([object.data.size()])"}),
            ),
            &none,
            (422, "2 entries"),
        ),
        // A message expression that fails, or gives nothing to show, is as if it were not there.
        (
            one(json!({"expression": "false", "message": "no", "messageExpression": "string(object.data.c)"})),
            &none,
            (422, "no"),
        ),
        (one(json!({"expression": "false", "message": "no", "messageExpression": "'a\\nb'"})), &none, (422, "no")),
        (one(json!({"expression": "false", "reason": "Forbidden"})), &none, (403, "failed expression: false")),
        (
            one(json!({"expression": "false", "reason": "RequestEntityTooLarge"})),
            &none,
            (413, "failed expression: false"),
        ),
        // Errors follow the failure policy.
        (
            one(json!({"expression": "object.data.c == '1'"})),
            &none,
            (422, "expression 'object.data.c == '1'' resulted in error: no such key: c"),
        ),
        (json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.data.c == '1'"}]}), &none, (201, "")),
        (
            json!({"failurePolicy": "Ignore", "validations": [{"expression": "false"}]}),
            &none,
            (422, "failed expression: false"),
        ),
        // Variables are evaluated when they are used.
        (
            json!({
                "variables": [
                    {"name": "missing", "expression": "object.data.c"},
                    {"name": "count", "expression": "object.data.size()"},
                    {"name": "few", "expression": "variables.count < 3"},
                ],
                "validations": [{"expression": "variables.few"}],
            }),
            &none,
            (201, ""),
        ),
        (
            json!({
                "variables": [{"name": "missing", "expression": "object.data.c"}],
                "validations": [{"expression": "variables.missing == ''"}],
            }),
            &none,
            (
                422,
                "expression 'variables.missing == ''' resulted in error: composited variable \"missing\" fails to \
                 evaluate: no such key: c",
            ),
        ),
        // What is known of the request.
        (
            one(
                json!({"expression": "request.operation == 'CREATE' && request.name == 'm' && request.namespace == 'default' \
                && request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps' && request.dryRun \
                && request.options.kind == 'CreateOptions' && request.userInfo.username == 'system:anonymous' \
                && !has(request.subResource) && oldObject == null && object.apiVersion == 'v1'"}),
            ),
            &none,
            (201, ""),
        ),
        (
            one(json!({"expression": "namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == 'default' \
                && namespaceObject.status.phase == 'Active'"})),
            &none,
            (201, ""),
        ),
        // Parameters.
        (by_param.clone(), &param(json!({"name": "limits"})), (422, "at most 2")),
        (by_param.clone(), &param(json!({"name": "limits", "namespace": "default"})), (422, "at most 2")),
        (by_param.clone(), &param(json!({"selector": {}})), (422, "at most 2")),
        (
            by_param.clone(),
            &param(json!({"name": "nothing"})),
            (
                422,
                "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
            ),
        ),
        (by_param.clone(), &json!({"paramRef": {"name": "nothing", "parameterNotFoundAction": "Allow"}}), (201, "")),
        (
            by_param.clone(),
            &none,
            (422, "expression 'object.data.size() < int(params.data.most)' resulted in error: no such key: data"),
        ),
        // Match conditions.
        (
            json!({"matchConditions": [{"name": "c", "expression": "request.name != 'm'"}], "validations": [{"expression": "false"}]}),
            &none,
            (201, ""),
        ),
        (
            json!({
                "matchConditions": [
                    {"name": "a", "expression": "object.data.c == ''"}, {"name": "b", "expression": "object.data.d == ''"},
                ],
                "validations": [{"expression": "false"}],
            }),
            &none,
            (
                422,
                "[expression 'object.data.c == ''' resulted in error: no such key: c, expression 'object.data.d == ''' \
                 resulted in error: no such key: d]",
            ),
        ),
        (
            json!({
                "matchConditions": [
                    {"name": "a", "expression": "object.data.c == ''"}, {"name": "b", "expression": "request.name != 'm'"},
                ],
                "validations": [{"expression": "false"}],
            }),
            &none,
            (201, ""),
        ),
        // What the binding leaves out.
        (
            one(json!({"expression": "false"})),
            &json!({"matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}}),
            (201, ""),
        ),
        (
            one(json!({"expression": "false"})),
            &json!({"matchResources": {"objectSelector": {"matchLabels": {"app": "web"}}}}),
            (201, ""),
        ),
        (
            one(json!({"expression": "false"})),
            &json!({"matchResources": {"excludeResourceRules": [rule("", "configmaps", &["*"])]}}),
            (201, ""),
        ),
        (one(json!({"expression": "false"})), &json!({"validationActions": ["Audit"]}), (201, "")),
        // Audit annotations that fail refuse the request, whatever the actions are.
        (
            json!({"auditAnnotations": [{"key": "k", "valueExpression": "object.data.c"}]}),
            &json!({"validationActions": ["Audit"]}),
            (201, ""),
        ),
        (
            json!({"auditAnnotations": [{"key": "k", "valueExpression": "string(object.data.c)"}]}),
            &json!({"validationActions": ["Audit"]}),
            (422, "expression 'string(object.data.c)' resulted in error: no such key: c"),
        ),
        (
            json!({"auditAnnotations": [{"key": "k", "valueExpression": "'size ' + string(object.data.size())"}]}),
            &json!({"validationActions": ["Audit"]}),
            (201, ""),
        ),
        // One expression may cost a million.
        (
            one(json!({"expression": loops})),
            &none,
            (422, &*format!("expression '{loops}' resulted in error: operation cancelled: actual cost limit exceeded")),
        ),
    ] {
        // An annotation has to be a text, which is known only of some expressions.
        if spec.pointer("/auditAnnotations/0/valueExpression") == Some(&json!("object.data.c")) {
            assert_eq!(
                cluster.post(POLICIES, &policy("p", &spec)).await.fails(422, "Invalid"),
                "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: \
                 spec.auditAnnotations[0].valueExpression: Invalid value: \"object.data.c\": must evaluate to one of \
                 [string null_type] but got dyn"
            );
            continue;
        }
        check(spec, bound.clone(), expect).await;
    }
}

#[tokio::test]
async fn a_refusal_names_its_cause() {
    let cluster = Cluster::new().await;
    enforce(&cluster, "p", &json!({"validations": [{"expression": "false", "message": "no"}]}), &json!({})).await;
    let refused = cluster.post(MAPS, &config_map("m")).await.expect(422);
    let why = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no";
    assert_eq!(refused["reason"], "Invalid");
    assert_eq!(refused["details"], json!({"name": "m", "kind": "configmaps", "causes": [{"message": why}]}));
    assert_eq!(refused["message"], format!("configmaps \"m\" is forbidden: {why}"));
    // Warnings come with a write that succeeds.
    cluster
        .patch(&format!("{BINDINGS}/p"), MERGE, &json!({"spec": {"validationActions": ["Warn", "Audit"]}}))
        .await
        .expect(200);
    let warned = cluster.post(MAPS, &config_map("m")).await;
    warned.expect(201);
    assert_eq!(warned.warnings(), ["\"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': no\""]);
    // A policy without a binding, or a binding without a policy, has no effect.
    cluster.delete(&format!("{POLICIES}/p")).await.expect(200);
    assert!(cluster.post(MAPS, &config_map("n")).await.warnings().is_empty());
}

#[tokio::test]
async fn operations_and_subresources_have_their_own_objects() {
    let cluster = Cluster::new().await;
    let about = |rules: Value, expression: &str| json!({"matchConstraints": {"resourceRules": [rules]}, "validations": [{"expression": expression}]});
    cluster.post(MAPS, &map_of("m", json!({"a": "1"}))).await.expect(201);
    let frozen = "object == null ? oldObject.data.a != '1' : object.data == oldObject.data";
    enforce(&cluster, "frozen", &about(rule("", "configmaps", &["UPDATE", "DELETE"]), frozen), &json!({})).await;
    let denied = |kind: &str, name: &str, policy: &str, why: &str| {
        format!(
            "{kind} \"{name}\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {why}"
        )
    };
    let refused = denied("configmaps", "m", "frozen", &format!("failed expression: {frozen}"));
    let map = format!("{MAPS}/m");
    cluster.patch(&map, MERGE, &json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    assert_eq!(cluster.patch(&map, MERGE, &json!({"data": {"a": "2"}})).await.fails(422, "Invalid"), refused);
    assert_eq!(cluster.delete(&map).await.fails(422, "Invalid"), refused);
    // The request for a collection names no object.
    assert_eq!(cluster.delete(MAPS).await.fails(422, "Invalid"), refused.replace("\"m\"", "\"Unknown\""));
    lift(&cluster, "frozen").await;
    cluster.delete(&map).await.expect(200);

    // Of a scale, expressions see the scale.
    cluster.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    let few = "object.kind == 'Scale' && object.spec.replicas <= 5 && request.subResource == 'scale'";
    enforce(&cluster, "few", &about(rule("apps", "deployments/scale", &["*"]), few), &json!({})).await;
    let scale = format!("{DEPLOYMENTS}/web/scale");
    cluster.patch(&scale, MERGE, &json!({"spec": {"replicas": 5}})).await.expect(200);
    assert_eq!(
        cluster.patch(&scale, MERGE, &json!({"spec": {"replicas": 6}})).await.fails(422, "Invalid"),
        denied("deployments.apps", "web", "few", &format!("failed expression: {few}"))
    );
    // The object itself is not a scale.
    cluster.patch(&format!("{DEPLOYMENTS}/web"), MERGE, &json!({"spec": {"replicas": 7}})).await.expect(200);

    // A namespace is in itself, and its labels are those that are written.
    let labelled = json!({
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"team": "a"}},
            "resourceRules": [{"apiGroups": [""], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"], "scope": "Cluster"}],
        },
        "validations": [{"expression": "request.namespace != request.name"}],
    });
    enforce(&cluster, "own", &labelled, &json!({})).await;
    let namespace = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    cluster.post(NAMESPACES, &namespace("b", json!({}))).await.expect(201);
    assert_eq!(
        cluster.post(NAMESPACES, &namespace("a", json!({"team": "a"}))).await.fails(422, "Invalid"),
        denied("namespaces", "a", "own", "failed expression: request.namespace != request.name")
    );

    // Of a connection, expressions see what its query asks for.
    let pods = "/api/v1/namespaces/default/pods";
    cluster.post(pods, &pod("exec")).await.expect(201);
    let harmless = "object.kind == 'PodExecOptions' && object.command[0] != 'rm' && request.subResource == 'exec'";
    enforce(&cluster, "exec", &about(rule("", "pods/exec", &["CONNECT"]), harmless), &json!({})).await;
    assert_eq!(
        cluster.get(&format!("{pods}/exec/exec?command=rm&command=-r&stdout=true")).await.fails(422, "Invalid"),
        denied("pods", "exec", "exec", &format!("failed expression: {harmless}"))
    );
    let other = cluster.get(&format!("{pods}/exec/exec?command=ls&stdout=true")).await;
    assert_ne!(other.code, 422, "{}", other.what);

    // A binding and an eviction are created.
    cluster.post(pods, &pod("web")).await.expect(201);
    let bound = "request.operation == 'CREATE' && object.target.name == 'n1'";
    enforce(&cluster, "bind", &about(rule("", "pods/binding", &["*"]), bound), &json!({})).await;
    let bind = |node: &str| json!({"metadata": {"name": "web"}, "target": {"kind": "Node", "name": node}});
    assert_eq!(
        cluster.post(&format!("{pods}/web/binding"), &bind("n2")).await.fails(422, "Invalid"),
        denied("pods", "web", "bind", &format!("failed expression: {bound}"))
    );
    cluster.post(&format!("{pods}/web/binding"), &bind("n1")).await.expect(201);
    enforce(&cluster, "evict", &about(rule("", "pods/eviction", &["CREATE"]), "object.kind != 'Eviction'"), &json!({}))
        .await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}});
    assert_eq!(
        cluster.post(&format!("{pods}/web/eviction"), &eviction).await.fails(422, "Invalid"),
        denied("pods", "web", "evict", "failed expression: object.kind != 'Eviction'")
    );
}

#[tokio::test]
async fn custom_resources_match_in_every_version() {
    let cluster = Cluster::new().await;
    let mut definition = widgets();
    let mut older = definition["spec"]["versions"][0].clone();
    older["name"] = "v1alpha1".into();
    older["storage"] = false.into();
    definition["spec"]["versions"].as_array_mut().unwrap().push(older);
    cluster.post(CRDS, &definition).await.expect(201);
    let about = |policy: &str| {
        json!({
            "matchConstraints": {"matchPolicy": policy, "resourceRules": [rule("example.com", "widgets", &["CREATE"])]},
            "validations": [{"expression": "object.metadata.name == ''", "messageExpression": "object.apiVersion + ' ' + \
                request.resource.version + ' ' + request.requestResource.version"}],
        })
    };
    let older = "/apis/example.com/v1alpha1/namespaces/default/widgets";
    let mut object = widget("w");
    object["apiVersion"] = "example.com/v1alpha1".into();
    enforce(&cluster, "p", &about("Exact"), &json!({})).await;
    cluster.post(&format!("{older}?dryRun=All"), &object).await.expect(201);
    lift(&cluster, "p").await;
    enforce(&cluster, "p", &about("Equivalent"), &json!({})).await;
    assert_eq!(
        cluster.post(older, &object).await.fails(422, "Invalid"),
        "widgets.example.com \"w\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: \
         example.com/v1 v1 v1alpha1"
    );
    // Parameters of a kind that is not served.
    lift(&cluster, "p").await;
    let missing = with(about("Exact"), &json!({"paramKind": {"apiVersion": "example.com/v3", "kind": "Widget"}}));
    let missing = with(missing, &json!({"matchConstraints": {"resourceRules": [rule("", "configmaps", &["*"])]}}));
    enforce(&cluster, "p", &missing, &json!({})).await;
    assert_eq!(
        cluster.post(MAPS, &config_map("m")).await.fails(422, "Invalid"),
        "configmaps \"m\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed \
         to find resource referenced by paramKind: 'example.com/v3, Kind=Widget'"
    );
}

/// Allows nothing about secrets, except to service accounts.
struct NoSecrets;

impl Authorizer for NoSecrets {
    fn authorize<'a>(&'a self, asked: Attributes<'a>) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        let secret = asked.resource.is_some_and(|resource| resource.resource == "secrets");
        let refused = secret && !asked.user.name.starts_with("system:serviceaccount:") || asked.path == "/secret";
        let reason = format!("{} {}", asked.verb, asked.resource.map_or(asked.path, |resource| resource.namespace));
        Box::pin(ready(match refused {
            true => Decision::NoOpinion { reason },
            false => Decision::Allow { reason: String::new() },
        }))
    }
}

#[tokio::test]
async fn expressions_ask_the_authorizer() {
    let cluster = Cluster::with(|options| Options {
        authorization: vec![AuthorizationMode::Other(Arc::new(NoSecrets))],
        ..options
    })
    .await;
    let secrets = "authorizer.group('').resource('secrets').namespace('x').check('get')";
    for (expression, expect) in [
        ("authorizer.requestResource.check('custom').allowed()".to_owned(), None),
        (format!("{secrets}.allowed()"), Some(format!("failed expression: {secrets}.allowed()"))),
        (format!("{secrets}.reason() == 'get x' && !{secrets}.errored()"), None),
        (
            "authorizer.serviceAccount('default', 'a').group('').resource('secrets').check('get').allowed()".to_owned(),
            None,
        ),
        ("!authorizer.path('/secret').check('get').allowed()".to_owned(), None),
        // Asking costs so much that one expression can ask twice.
        (
            format!("!{secrets}.allowed() && !{secrets}.allowed() && !{secrets}.allowed()"),
            Some(format!(
                "expression '!{secrets}.allowed() && !{secrets}.allowed() && !{secrets}.allowed()' resulted in error: \
                 operation cancelled: actual cost limit exceeded"
            )),
        ),
    ] {
        enforce(&cluster, "p", &json!({"validations": [{"expression": expression}]}), &json!({})).await;
        let answer = cluster.post(&format!("{MAPS}?dryRun=All"), &config_map("m")).await;
        let message = expect.map(|why| format!("{DENIED}{why}")).unwrap_or_default();
        assert_eq!(said(&answer).1, message, "{expression}");
        lift(&cluster, "p").await;
    }
}
