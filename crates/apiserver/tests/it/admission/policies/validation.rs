//! Policies and bindings that are refused when they are written.

use serde_json::{Value, json};

use super::{POLICIES, binding, policy, rule, with};
use crate::cluster::Cluster;

const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";

/// The errors of an object that is refused, each on its own; none if it is accepted.
async fn errors(cluster: &Cluster, path: &str, object: &Value) -> Vec<String> {
    let answer = cluster.post(&format!("{path}?dryRun=All"), object).await;
    if answer.code == 201 {
        return Vec::new();
    }
    let refused = answer.expect(422);
    let causes = refused["details"]["causes"].as_array().unwrap();
    let text = |cause: &Value, field: &str| cause[field].as_str().unwrap().to_owned();
    causes.iter().map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect()
}

#[tokio::test]
async fn policies_are_checked_when_they_are_written() {
    let cluster = Cluster::new().await;
    let one = |validation: Value| json!({"validations": [validation]});
    let constraints = |more: Value| {
        json!({
            "matchConstraints": {"resourceRules": [with(rule("", "configmaps", &["CREATE"]), &more)]},
            "validations": [{"expression": "true"}],
        })
    };
    for (spec, expect) in [
        (one(json!({"expression": "true"})), &[][..]),
        (
            json!({}),
            &[
                "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
                "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
            ],
        ),
        (
            one(json!({"expression": "object.x +"})),
            &[
                "spec.validations[0].expression: Invalid value: \"object.x +\": compilation failed: ERROR: <input>:1:11: \
               Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', \
               NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | object.x +\n | ..........^",
            ],
        ),
        (
            one(json!({"expression": "object.x"})),
            &["spec.validations[0].expression: Invalid value: \"object.x\": must evaluate to bool but got dyn"],
        ),
        (
            one(json!({"expression": "params.x == 1 || variables.y"})),
            &["spec.validations[0].expression: Invalid value: \"params.x == 1 || variables.y\": compilation failed: \
               ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.x == 1 || variables.y\n \
               | ^\nERROR: <input>:1:18: undeclared reference to 'variables' (in container '')\n | params.x == 1 || \
               variables.y\n | .................^"],
        ),
        (
            one(json!({"expression": "request.nothing == 1"})),
            &["spec.validations[0].expression: Invalid value: \"request.nothing == 1\": compilation failed: ERROR: \
               <input>:1:8: undefined field 'nothing'\n | request.nothing == 1\n | .......^"],
        ),
        (
            json!({
                "variables": [{"name": "a", "expression": "1"}, {"name": "b", "expression": "variables.a + 'x'"}, {"name": "in", "expression": " "}],
                "validations": [{"expression": "variables.a == 'x' || variables.c"}],
            }),
            &[
                "spec.variables[1].expression: Invalid value: \"variables.a + 'x'\": compilation failed: ERROR: \
                 <input>:1:13: found no matching overload for '_+_' applied to '(int, string)'\n | variables.a + 'x'\n | \
                 ............^",
                "spec.variables[2].name: Invalid value: \"in\": must be a valid CEL identifier",
                "spec.variables[2].expression: Required value: expression is not specified",
                "spec.validations[0].expression: Invalid value: \"variables.a == 'x' || variables.c\": compilation \
                 failed: ERROR: <input>:1:13: found no matching overload for '_==_' applied to '(int, string)'\n | \
                 variables.a == 'x' || variables.c\n | ............^\nERROR: <input>:1:32: undefined field 'c'\n | \
                 variables.a == 'x' || variables.c\n | ...............................^",
            ],
        ),
        (
            one(json!({"expression": " ", "message": "a\nb", "messageExpression": "1", "reason": "Unauthorized"})),
            &[
                "spec.validations[0].expression: Required value: expression is not specified",
                "spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int",
                "spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
                "spec.validations[0].reason: Unsupported value: \"Unauthorized\": supported values: \"Forbidden\", \
                 \"Invalid\", \"RequestEntityTooLarge\"",
            ],
        ),
        // Messages cannot ask the authorizer.
        (
            one(json!({"expression": "true", "messageExpression": "authorizer.path('/').check('get').reason()"})),
            &["spec.validations[0].messageExpression: Invalid value: \"authorizer.path('/').check('get').reason()\": \
               compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer' (in container '')\n | \
               authorizer.path('/').check('get').reason()\n | ^"],
        ),
        (
            json!({"validations": [{"expression": "true"}], "matchConditions": [
                {"name": "a", "expression": "variables.x"}, {"name": "a", "expression": ""}, {"name": "-", "expression": "1"},
            ]}),
            &[
                "spec.matchConditions[0].expression: Invalid value: \"variables.x\": compilation failed: ERROR: \
                 <input>:1:1: undeclared reference to 'variables' (in container '')\n | variables.x\n | ^",
                "spec.matchConditions[1].expression: Required value",
                "spec.matchConditions[1].name: Duplicate value: \"a\"",
                "spec.matchConditions[2].expression: Invalid value: \"1\": must evaluate to bool but got int",
                "spec.matchConditions[2].name: Invalid value: \"-\": name part must consist of alphanumeric characters, \
                 '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  \
                 or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ],
        ),
        (
            json!({"auditAnnotations": [
                {"key": "a", "valueExpression": "'x'"}, {"key": "a", "valueExpression": "1"}, {"key": "", "valueExpression": " "},
            ]}),
            &[
                "spec.auditAnnotations[1].valueExpression: Invalid value: \"1\": must evaluate to one of [string \
                 null_type] but got int",
                "spec.auditAnnotations[1].key: Duplicate value: \"a\"",
                "spec.auditAnnotations[2].key: Invalid value: \"p/\": name part must be non-empty",
                "spec.auditAnnotations[2].key: Invalid value: \"p/\": name part must consist of alphanumeric characters, \
                 '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  \
                 or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                "spec.auditAnnotations[2].valueExpression: Required value: valueExpression is not specified",
            ],
        ),
        (
            json!({"paramKind": {"apiVersion": "a/b/c", "kind": "-"}, "validations": [{"expression": "params == null"}]}),
            &[
                "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
                "spec.paramKind.kind: Invalid value: \"-\": may have mixed case, but should otherwise match: a DNS-1035 \
                 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and \
                 end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
                 '[a-z]([-a-z0-9]*[a-z0-9])?')",
            ],
        ),
        (
            constraints(
                json!({"operations": ["CREATE", "*", "READ"], "apiGroups": [], "apiVersions": ["", "*"], "scope": "x"}),
            ),
            &[
                "spec.matchConstraints.resourceRules[0].operations: Invalid value: [\"CREATE\",\"*\",\"READ\"]: if '*' is \
                 present, must not specify other operations",
                "spec.matchConstraints.resourceRules[0].operations[2]: Unsupported value: \"READ\": supported values: \
                 \"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\"",
                "spec.matchConstraints.resourceRules[0].apiGroups: Required value",
                "spec.matchConstraints.resourceRules[0].apiVersions: Invalid value: [\"\",\"*\"]: if '*' is present, must \
                 not specify other API versions",
                "spec.matchConstraints.resourceRules[0].apiVersions[0]: Required value",
                "spec.matchConstraints.resourceRules[0].scope: Unsupported value: \"x\": supported values: \"*\", \
                 \"Cluster\", \"Namespaced\"",
            ],
        ),
        (
            constraints(json!({"resources": ["pods/*", "pods/log", "*", "a"], "resourceNames": ["a", "a", "."]})),
            &[
                "spec.matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value: \"a\"",
                "spec.matchConstraints.resourceRules[0].resourceNames[2]: Invalid value: \".\": may not be '.'",
                "spec.matchConstraints.resourceRules[0].resources[1]: Invalid value: \"pods/log\": if 'pods/*' is \
                 present, must not specify pods/log",
                "spec.matchConstraints.resourceRules[0].resources: Invalid value: [\"pods/*\",\"pods/log\",\"*\",\"a\"]: \
                 if '*' is present, must not specify other resources without subresources",
            ],
        ),
        (
            json!({"matchConstraints": {"matchPolicy": "x"}, "failurePolicy": "x", "validations": [{"expression": "true"}]}),
            &[
                "spec.failurePolicy: Unsupported value: \"x\": supported values: \"Fail\", \"Ignore\"",
                "spec.matchConstraints.matchPolicy: Unsupported value: \"x\": supported values: \"Equivalent\", \"Exact\"",
                "spec.matchConstraints.resourceRules: Required value",
            ],
        ),
    ] {
        assert_eq!(errors(&cluster, POLICIES, &policy("p", &spec)).await, expect, "{spec}");
    }
}

#[tokio::test]
async fn bindings_are_checked_when_they_are_written() {
    let cluster = Cluster::new().await;
    for (spec, expect) in [
        (json!({}), &[][..]),
        (
            json!({"policyName": "", "validationActions": []}),
            &[
                "spec.policyName: Required value",
                "spec.validationActions: Required value: at least one validation action is required",
            ],
        ),
        (
            json!({"validationActions": ["Deny", "Warn", "Deny", "x"]}),
            &[
                "spec.validationActions[2]: Duplicate value: \"Deny\"",
                "spec.validationActions[3]: Unsupported value: \"x\": supported values: \"Audit\", \"Deny\", \"Warn\"",
                "spec.validationActions: Invalid value: [\"Deny\",\"Warn\",\"Deny\",\"x\"]: must not contain both Deny \
                 and Warn (repeating the same validation failure information in the API response and headers serves no \
                 purpose)",
            ],
        ),
        (
            json!({"paramRef": {"name": "a/b", "selector": {}}}),
            &[
                "spec.paramRef.name: Invalid value: \"a/b\": may not contain '/'",
                "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.parameterNotFoundAction: Required value",
            ],
        ),
        (
            json!({"paramRef": {"parameterNotFoundAction": "x"}}),
            &[
                "spec.paramRef: Required value: one of name or selector must be specified",
                "spec.paramRef.parameterNotFoundAction: Unsupported value: \"x\": supported values: \"Deny\", \"Allow\"",
            ],
        ),
    ] {
        assert_eq!(errors(&cluster, BINDINGS, &binding("p", &spec)).await, expect, "{spec}");
    }
}

#[tokio::test]
async fn mutating_policies_are_checked_when_they_are_written() {
    let cluster = Cluster::new().await;
    let constraints = json!({"resourceRules": [rule("", "configmaps", &["CREATE"])]});
    let apply = |expression: &str| json!({"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]});
    let patch =
        |expression: &str| json!({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]});
    for (spec, expect) in [
        (apply("Object{data: {'a': 'b'}}"), &[][..]),
        (apply("Object{?data: optional.of({'a': jsonpatch.escapeKey('b')})}"), &[]),
        (patch("[JSONPatch{op: 'remove', path: '/data'}]"), &[]),
        (
            apply("Object.data{}"),
            &[
                "spec.mutations[0].applyConfiguration.expression: Invalid value: \"Object.data{}\": must evaluate to Object \
               but got Object.data",
            ],
        ),
        (
            patch("[JSONPatch{op: 1, path: '/data'}]"),
            &[
                "spec.mutations[0].jsonPatch.expression: Invalid value: \"[JSONPatch{op: 1, path: '/data'}]\": compilation \
               failed: ERROR: <input>:1:14: expected type of field 'op' is 'string' but provided type is 'int'\n | \
               [JSONPatch{op: 1, path: '/data'}]\n | .............^",
            ],
        ),
        (
            patch("JSONPatch{op: 'remove', path: '/data'}"),
            &[
                "spec.mutations[0].jsonPatch.expression: Invalid value: \"JSONPatch{op: 'remove', path: '/data'}\": must \
               evaluate to list(JSONPatch) but got JSONPatch",
            ],
        ),
        (json!({"mutations": []}), &["spec.mutations: Required value: mutations must contain at least one item"]),
        (
            json!({"mutations": [
                {"patchType": "JSONPatch", "applyConfiguration": {"expression": "Object{}"}}, {"patchType": "x"}, {},
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": " "}},
            ]}),
            &[
                "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
                "spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified \
                 when patchType is JSONPatch",
                "spec.mutations[1].patchType: Unsupported value: \"x\": supported values: \"ApplyConfiguration\", \
                 \"JSONPatch\"",
                "spec.mutations[2].patchType: Required value",
                "spec.mutations[3].applyConfiguration.expression: Required value",
            ],
        ),
        (
            with(
                apply("Object{}"),
                &json!({
                    "reinvocationPolicy": "x", "matchConstraints": {"resourceRules": [rule("", "configmaps", &["DELETE"])]},
                }),
            ),
            &[
                "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \
                 \"CONNECT\", \"CREATE\", \"UPDATE\"",
                "spec.reinvocationPolicy: Unsupported value: \"x\": supported values: \"IfNeeded\", \"Never\"",
            ],
        ),
        // A validation cannot make objects.
        (
            with(apply("Object{}"), &json!({"matchConditions": [{"name": "a", "expression": "Object{} == null"}]})),
            &["spec.matchConditions[0].expression: Invalid value: \"Object{} == null\": compilation failed: ERROR: \
               <input>:1:7: undeclared reference to 'Object' (in container '')\n | Object{} == null\n | ......^"],
        ),
    ] {
        let spec = with(json!({"matchConstraints": constraints, "reinvocationPolicy": "Never"}), &spec);
        let object = json!({"metadata": {"name": "p"}, "spec": spec});
        assert_eq!(errors(&cluster, MUTATING, &object).await, expect, "{spec}");
    }
}

/// The warnings of the type check, once the server has written them.
async fn checked(cluster: &Cluster, policy: &Value) -> Vec<String> {
    let mut changes = cluster.watch(&format!("{POLICIES}?watch=true")).await;
    cluster.post(POLICIES, policy).await.expect(201);
    loop {
        let status = changes.next().await["object"]["status"].clone();
        if status["observedGeneration"] == 1 {
            let warnings = status["typeChecking"]["expressionWarnings"].as_array().cloned().unwrap_or_default();
            let text = |warning: &Value, field: &str| warning[field].as_str().unwrap().to_owned();
            return warnings.iter().map(|one| format!("{}: {}", text(one, "fieldRef"), text(one, "warning"))).collect();
        }
    }
}

#[tokio::test]
async fn the_status_has_what_types_say() {
    for (rules, validations, expect) in [
        (
            rule("apps", "deployments", &["CREATE"]),
            json!([
                {"expression": "object.spec.replicas > 1"},
                {"expression": "object.nothing == 1", "messageExpression": "'x' + object.foo"},
                {"expression": "object.spec.template.spec.volumes.exists(v, v.emptyDir.sizeLimit == '1')"},
                {"expression": "object.spec.strategy.rollingUpdate.maxSurge == 'x'"},
            ]),
            &[
                "spec.validations[1].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field \
                 'nothing'\n | object.nothing == 1\n | ......^\n",
                "spec.validations[1].messageExpression: apps/v1, Kind=Deployment: ERROR: <input>:1:13: undefined field \
                 'foo'\n | 'x' + object.foo\n | ............^\n",
                // A quantity is a text or a number, so that it has no type.
                "spec.validations[2].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:55: undefined field \
                 'sizeLimit'\n | object.spec.template.spec.volumes.exists(v, v.emptyDir.sizeLimit == '1')\n | \
                 ......................................................^\n",
            ][..],
        ),
        (
            rule("", "events", &["CREATE"]),
            json!([{"expression": "object.reason == 1"}]),
            &["spec.validations[0].expression: /v1, Kind=Event: ERROR: <input>:1:15: found no matching overload for \
               '_==_' applied to '(string, int)'\n | object.reason == 1\n | ..............^\n\nevents.k8s.io/v1, \
               Kind=Event: ERROR: <input>:1:15: found no matching overload for '_==_' applied to '(string, int)'\n | \
               object.reason == 1\n | ..............^\n"],
        ),
        (
            rule("", "pods", &["CREATE"]),
            json!([
                {"expression": "object.metadata.labels.x == 'y' && object.metadata.creationTimestamp < 5"},
                {"expression": "authorizer.requestResource.check('x').allowed()"},
                {"expression": "variables.v == 1 && variables.o.foo == 1"},
                {"expression": "params.data.x == 1"},
            ]),
            &[
                "spec.validations[0].expression: /v1, Kind=Pod: ERROR: <input>:1:70: found no matching overload for \
                 '_<_' applied to '(timestamp, int)'\n | object.metadata.labels.x == 'y' && \
                 object.metadata.creationTimestamp < 5\n | \
                 .....................................................................^\n",
                "spec.validations[1].expression: /v1, Kind=Pod: ERROR: <input>:1:11: unexpected failed resolution of \
                 'kubernetes.authorization.Authorizer'\n | authorizer.requestResource.check('x').allowed()\n | \
                 ..........^\n",
                "spec.validations[2].expression: /v1, Kind=Pod: ERROR: <input>:1:13: found no matching overload for \
                 '_==_' applied to '(string, int)'\n | variables.v == 1 && variables.o.foo == 1\n | ............^\n",
                "spec.validations[3].expression: /v1, Kind=Pod: ERROR: <input>:1:15: found no matching overload for \
                 '_==_' applied to '(string, int)'\n | params.data.x == 1\n | ..............^\n",
            ],
        ),
        (rule("*", "*", &["*"]), json!([{"expression": "object.foo == 1"}]), &[]),
        (rule("", "pods/status", &["*"]), json!([{"expression": "object.foo == 1"}]), &[]),
    ] {
        let cluster = Cluster::new().await;
        let spec = json!({
            "matchConstraints": {"resourceRules": [rules]}, "validations": validations,
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "variables": [
                {"name": "v", "expression": "object.metadata.name"}, {"name": "o", "expression": "object.metadata"},
            ],
        });
        assert_eq!(checked(&cluster, &policy("p", &spec)).await, expect);
    }
}
