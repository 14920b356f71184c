//! Expressions of policies about one config map. The answers are those of Kubernetes 1.36.

use konverge_schema::Budget;
use serde_json::json;

use super::*;
use crate::library::{About, Permission};

/// What an expression says of the config map: `true`, `false`, or why there is no answer.
fn judged(composer: &Composer, expressions: &[&str]) -> Vec<String> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "default"},
        "data": {"a": "1", "b": "2"},
    });
    let request = json!({
        "name": "m", "namespace": "default", "operation": "CREATE", "dryRun": true,
        "userInfo": {"username": "system:anonymous", "groups": ["system:unauthenticated"]},
        "options": {"kind": "CreateOptions"},
    });
    let namespace = json!({"metadata": {"labels": {"kubernetes.io/metadata.name": "default"}}});
    let check = ResourceCheck { resource: "configmaps".to_owned(), ..ResourceCheck::default() };
    let inputs =
        Inputs { object: Some(&object), namespace: Some(&namespace), authorizer: Some(&check), ..Inputs::of(&request) };
    let declared = Declared { params: true, authorizer: true, patches: false };
    let compiled: Vec<Compiled> =
        expressions.iter().map(|expression| composer.compile(expression, Returns::Bool, declared)).collect();
    let mut permissions = Permissions::default();
    loop {
        let mut evaluation = Evaluation::new(composer, &inputs, &permissions, Budget::unlimited());
        let results: Result<Vec<_>, Stop> = compiled.iter().map(|compiled| evaluation.evaluate(compiled)).collect();
        match results {
            Ok(results) => return results.into_iter().map(shown).collect(),
            Err(Stop::Ask(question)) => {
                let secret = matches!(&question.about, About::Resource(check) if check.resource == "secrets");
                let reason = if secret { format!("{} x", question.verb) } else { String::new() };
                permissions.insert(*question, Permission { allowed: !secret, reason, error: None });
            }
            Err(stop) => return vec![stop.to_string()],
        }
    }
}

fn shown(result: Result<Output, String>) -> String {
    match result {
        Ok(Output::Bool(value)) => value.to_string(),
        Ok(other) => format!("{other:?}"),
        Err(why) => why.rsplit_once("resulted in error: ").map_or(why.clone(), |(_, why)| why.to_owned()),
    }
}

#[test]
fn expressions_see_objects_without_types() {
    let secrets = "authorizer.group('').resource('secrets').namespace('x').check('get')";
    let (refused, reason) = (format!("{secrets}.allowed()"), format!("{secrets}.reason() == 'get x'"));
    for (expression, expect) in [
        ("object.data.a > 5", "no such overload"),
        ("object.nothing.x == 1", "no such key: nothing"),
        ("oldObject.x == 1", "no such key: x"),
        ("request.subResource == ''", "no such key: subResource"),
        ("object.data.a + 1 == 2", "no such overload"),
        ("object.data['a'].x == 1", "no such key: x"),
        ("object.data.a in ['1']", "true"),
        ("dyn(object).data.a == '1'", "true"),
        ("object.data == {'a':'1','b':'2'}", "true"),
        ("object.metadata.labels.x == ''", "no such key: labels"),
        ("object.data.map(k, k).size() == 2", "true"),
        ("object.data.exists(k, object.data[k] == '2')", "true"),
        ("int(object.data.a) == 1", "true"),
        ("object.data.a.matches(object.data.b)", "false"),
        ("namespaceObject.metadata.labels.x == 'y'", "no such key: x"),
        ("namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == 'default'", "true"),
        ("request.userInfo.groups == ['system:unauthenticated']", "true"),
        ("request.userInfo.extra.size() == 0", "no such key: extra"),
        ("has(request.namespace) && request.namespace == 'default'", "true"),
        ("request.options.kind == 'CreateOptions'", "true"),
        ("has(object.metadata.foo)", "false"),
        ("object.?metadata.?foo.orValue('x') == 'x'", "true"),
        ("type(object) == map", "true"),
        ("object.data.a == 1", "false"),
        ("object.data.a != 1", "true"),
        ("object[1] == 2", "no such key: 1"),
        ("object.data.a[0] == 'x'", "no such key: 0"),
        ("size(object.kind) == 9", "true"),
        ("variables == variables", "true"),
        ("object.metadata == null", "false"),
        ("params == null", "true"),
        ("params.data.most == ''", "no such key: data"),
        ("quantity(object.data.a).isLessThan(quantity('2'))", "true"),
        (&refused, "false"),
        (&reason, "true"),
        ("authorizer.requestResource.check('create').allowed()", "true"),
        ("authorizer.serviceAccount('default','_').path('/').check('get').allowed()", "Invalid service account name"),
        ("authorizer.path('').check('get').allowed()", "path must not be empty"),
        ("authorizer == authorizer", "no such overload"),
        ("string(request.dryRun) == 'true'", "true"),
        ("sets.contains(object.data.map(k, k), ['a'])", "true"),
        ("object.data.transformList(k, v, v) == ['1','2']", "true"),
    ] {
        assert_eq!(judged(&Composer::default(), &[expression]), [expect], "{expression}");
    }
}

#[test]
fn variables_are_evaluated_once_and_cost_once() {
    let declared = Declared { params: true, authorizer: true, patches: false };
    let twenty = "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]";
    let expensive =
        format!("{twenty}.all(a, {twenty}.all(b, {twenty}.all(c, [1,2,3,4,5,6,7,8,9,10].all(d, a+b+c+d > 0))))");
    let mut composer = Composer::default();
    composer.define("missing", "object.data.c", declared).unwrap();
    composer.define("expensive", &expensive, declared).unwrap();
    let failed = "composited variable \"missing\" fails to evaluate: no such key: c";
    for (expression, expect) in [
        ("variables.missing == ''", failed),
        ("has(variables.missing)", failed),
        ("variables.?missing.hasValue()", failed),
    ] {
        assert_eq!(judged(&composer, &[expression]), [expect], "{expression}");
    }
    assert_eq!(judged(&composer, &["variables.expensive"; 14]), ["true"; 14]);
    let out = "validation failed due to running out of cost budget, no further validation rules will be run";
    assert_eq!(judged(&composer, &[expensive.as_str(); 14]), [out]);
}
