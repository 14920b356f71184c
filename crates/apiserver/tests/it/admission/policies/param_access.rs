//! Who writes a policy or a binding has to be allowed to read the parameters that it names.

use serde_json::{Value, json};

use konverge_apiserver::{AuthorizationMode, Options};

use crate::cluster::{Cluster, ask_as as ask};

use super::rule;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const ADMIN: &str = "root@system:masters";

/// Gives a user rights everywhere.
async fn grant(cluster: &Cluster, user: &str, rules: Value) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": user}, "rules": rules});
    assert_eq!(ask(cluster, ADMIN, "POST", &format!("{rbac}/clusterroles"), &role).await.0, 201);
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    assert_eq!(ask(cluster, ADMIN, "POST", &format!("{rbac}/clusterrolebindings"), &binding).await.0, 201);
}

fn policies() -> Value {
    json!({"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]})
}

fn reads(resources: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [""], "resources": [resources], "verbs": verbs})
}

fn validating(kind: &Value) -> Value {
    json!({
        "paramKind": kind,
        "matchConstraints": {"resourceRules": [rule("", "configmaps", &["CREATE"])]},
        "validations": [{"expression": "false", "messageExpression": "string(params.data.k)"}],
    })
}

fn mutating(kind: &Value) -> Value {
    let expression = "Object{metadata: Object.metadata{labels: {'k': string(params.data.k)}}}";
    json!({
        "paramKind": kind,
        "matchConstraints": {"resourceRules": [rule("", "configmaps", &["CREATE"])]},
        "reinvocationPolicy": "Never",
        "failurePolicy": "Fail",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    })
}

#[tokio::test]
async fn parameters_are_for_those_who_may_read_them() {
    let cluster = Cluster::with(|options| Options { authorization: vec![AuthorizationMode::Rbac], ..options }).await;
    grant(&cluster, "bob", json!([policies()])).await;
    grant(&cluster, "getter", json!([policies(), reads("secrets", &["get"])])).await;
    grant(&cluster, "lister", json!([policies(), reads("secrets", &["list"])])).await;
    let (secret, unknown) =
        (json!({"apiVersion": "v1", "kind": "Secret"}), json!({"apiVersion": "v1", "kind": "None"}));
    let named = json!({"name": "s", "namespace": "kube-system", "parameterNotFoundAction": "Deny"});
    let selected = json!({"selector": {}, "namespace": "kube-system", "parameterNotFoundAction": "Deny"});
    let told = async |who: &str, method: &str, path: &str, body: &Value| {
        let (code, answer) = ask(&cluster, who, method, &format!("{GROUP}/{path}"), body).await;
        (code, answer["message"].as_str().filter(|_| code >= 300).unwrap_or_default().to_owned())
    };
    let object = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let no_kind = |user: &str, kind: &str| {
        format!(
            "spec.paramKind: Forbidden: user &{{{user}  [] map[]}} must have \"get\" permission on all objects of the \
             referenced paramKind (kind={kind}, apiVersion=v1)"
        )
    };
    for (what, spec) in [("validating", validating as fn(&Value) -> Value), ("mutating", mutating)] {
        let (policies, bindings) = (format!("{what}admissionpolicies"), format!("{what}admissionpolicybindings"));
        let check = async |who: &str, kind: &Value, expect: Option<String>| {
            let (code, message) = told(who, "POST", &format!("{policies}?dryRun=All"), &object("p", spec(kind))).await;
            assert_eq!(code, if expect.is_some() { 422 } else { 201 }, "{who}: {message}");
            assert!(message.ends_with(&expect.unwrap_or_default()), "{who}: {message}");
        };
        check("bob", &secret, Some(no_kind("bob", "Secret"))).await;
        check("lister", &secret, Some(no_kind("lister", "Secret"))).await;
        check("getter", &secret, None).await;
        check(ADMIN, &secret, None).await;
        // A kind that is not there yet may be any.
        check("getter", &unknown, Some(no_kind("getter", "None"))).await;

        // Neither does an update name a kind, but one that leaves it alone passes.
        assert_eq!(told(ADMIN, "POST", &policies, &object("p", spec(&secret))).await.0, 201);
        let labels = json!({"metadata": {"labels": {"a": "b"}}});
        assert_eq!(told("bob", "PATCH", &format!("{policies}/p"), &labels).await.0, 200);
        let other = json!({"spec": {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}});
        let (code, message) = told("bob", "PATCH", &format!("{policies}/p"), &other).await;
        assert_eq!(code, 422);
        assert!(message.contains(&no_kind("bob", "ConfigMap")), "{message}");

        let bind = |policy: &str, reference: &Value| {
            let mut spec = json!({"policyName": policy, "paramRef": reference});
            if what == "validating" {
                spec["validationActions"] = json!(["Deny"]);
            }
            object("b", spec)
        };
        let no_object = |user: &str, verb: &str| {
            format!(
                "spec.paramRef: Forbidden: user &{{{user}  [] map[]}} does not have \"{verb}\" permission on the object \
                 referenced by paramRef"
            )
        };
        let no_policy = "spec.paramRef: Forbidden: unable to get policy none to determine minimum required permissions and \
                         user &{getter  [] map[]} does not have \"get\" permission for all groups, versions and resources";
        for (who, policy, reference, expect) in [
            ("bob", "p", &named, Some(no_object("bob", "get"))),
            ("bob", "p", &selected, Some(no_object("bob", "list"))),
            ("getter", "p", &named, None),
            ("getter", "p", &selected, Some(no_object("getter", "list"))),
            ("lister", "p", &selected, None),
            ("lister", "p", &named, Some(no_object("lister", "get"))),
            ("getter", "none", &named, Some(no_policy.to_owned())),
            (ADMIN, "none", &named, None),
        ] {
            let (code, message) = told(who, "POST", &format!("{bindings}?dryRun=All"), &bind(policy, reference)).await;
            assert_eq!(code, if expect.is_some() { 422 } else { 201 }, "{who} {policy}: {message}");
            assert!(message.ends_with(&expect.unwrap_or_default()), "{who} {policy}: {message}");
        }
        assert_eq!(told(ADMIN, "POST", &bindings, &bind("p", &named)).await.0, 201);
        assert_eq!(told("bob", "PATCH", &format!("{bindings}/b"), &labels).await.0, 200);
        let other = json!({"spec": {"paramRef": {"name": "other"}}});
        assert_eq!(told("bob", "PATCH", &format!("{bindings}/b"), &other).await.0, 422);
    }
}
