//! Rules in CEL: definitions whose rules are refused, and what rules say of objects when they are created, updated and when
//! only their status is. `konverge-cel` has the language itself.

use serde_json::{Value, json};

use crate::cluster::{CRDS, Cluster, MERGE, WIDGETS, widgets};

/// Widgets with this schema of their spec, and a status with a count that never shrinks.
fn widgets_with(spec: &Value) -> Value {
    let mut definition = widgets();
    let version = &mut definition["spec"]["versions"][0];
    let count = json!({
        "type": "integer",
        "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "the count never shrinks"}],
    });
    version["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {
        "spec": spec,
        "status": {"type": "object", "properties": {"count": count}},
    }});
    version["subresources"] = json!({"status": {}});
    version["additionalPrinterColumns"] = json!([]);
    version["selectableFields"] = json!([]);
    definition
}

fn limits() -> Value {
    json!({
        "type": "object",
        "properties": {
            "min": {"type": "integer"},
            "max": {"type": "integer"},
            "zone": {"type": "string", "maxLength": 20},
            "mode": {"type": "string", "enum": ["on", "off"]},
            "ports": {
                "type": "array",
                "maxItems": 10,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string", "maxLength": 10}, "number": {"type": "integer"}},
                    "x-kubernetes-validations": [
                        {"rule": "self.number == oldSelf.number", "message": "a port keeps its number"},
                    ],
                },
            },
        },
        "x-kubernetes-validations": [
            {"rule": "self.min <= self.max", "messageExpression": "'%d is above %d'.format([self.min, self.max])"},
            {
                "rule": "has(self.zone) == has(oldSelf.zone) && (!has(self.zone) || self.zone == oldSelf.zone)",
                "message": "the zone is immutable",
                "reason": "FieldValueForbidden",
                "fieldPath": ".zone",
            },
        ],
    })
}

fn widget(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

#[tokio::test]
async fn definitions_whose_rules_are_refused() {
    let cluster = Cluster::new().await;
    let path = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]";
    for (rule, field, text) in [
        (json!({"rule": "self.size > 1"}), ".rule", "compilation failed: ERROR: <input>:1:5: undefined field 'size'"),
        (json!({"rule": "self.min"}), ".rule", "cel expression must evaluate to a bool"),
        (json!({"rule": "self.min ="}), ".rule", "Syntax error: token recognition error at: '='"),
        (
            json!({"rule": "self.min == 'a'"}),
            ".rule",
            "found no matching overload for '_==_' applied to '(int, string)'",
        ),
        (json!({"rule": "true", "messageExpression": "1"}), ".messageExpression", "must evaluate to a string"),
        (json!({"rule": "true", "fieldPath": ".nothing"}), ".fieldPath", "must be a valid path"),
        (json!({"rule": "true", "optionalOldSelf": true}), ".optionalOldSelf", "may not be set if oldSelf is not used"),
        (
            json!({"rule": "self.names.all(a, self.names.all(b, a == b))"}),
            ".rule",
            "estimated rule cost exceeds budget by factor of more than 100x",
        ),
    ] {
        let spec = json!({
            "type": "object",
            "properties": {
                "min": {"type": "integer"},
                "names": {"type": "array", "items": {"type": "string"}},
            },
            "x-kubernetes-validations": [rule],
        });
        let refused = cluster.post(CRDS, &widgets_with(&spec)).await;
        let message = refused.fails(422, "Invalid");
        let causes = refused.json()["details"]["causes"].clone();
        assert_eq!(causes[0]["field"], format!("{path}{field}"), "{rule}: {message}");
        assert!(causes[0]["message"].as_str().unwrap().contains(text), "{rule}: {message}");
    }
    assert!(cluster.post(CRDS, &widgets_with(&limits())).await.warnings().is_empty());
}

#[tokio::test]
async fn objects_that_rules_refuse() {
    let cluster = Cluster::new().await;
    cluster.post(CRDS, &widgets_with(&limits())).await.expect(201);
    let refused = cluster.post(WIDGETS, &widget(&json!({"min": 3, "max": 2}))).await;
    assert_eq!(refused.fails(422, "Invalid"), "Widget.example.com \"w\" is invalid: spec: Invalid value: 3 is above 2");
    let blind = cluster.post(WIDGETS, &widget(&json!({"min": 3, "max": 2, "mode": "odd"}))).await;
    let text = "some validation rules were not checked because the object was invalid";
    assert!(blind.fails(422, "Invalid").contains(text), "{blind:?}");
    let absent = cluster.post(WIDGETS, &widget(&json!({"min": 3}))).await;
    assert!(absent.fails(422, "Invalid").contains("no such key: max evaluating rule"), "{absent:?}");
    cluster.post(WIDGETS, &widget(&json!({"min": 1, "max": 2, "zone": "a"}))).await.expect(201);
}

#[tokio::test]
async fn rules_that_compare_with_the_object_before() {
    let cluster = Cluster::new().await;
    cluster.post(CRDS, &widgets_with(&limits())).await.expect(201);
    let spec =
        json!({"min": 1, "max": 2, "zone": "a", "ports": [{"name": "x", "number": 1}, {"name": "y", "number": 2}]});
    cluster.post(WIDGETS, &widget(&spec)).await.expect(201);
    let path = format!("{WIDGETS}/w");
    for (change, error) in [
        (json!({"zone": "b"}), Some("spec.zone: Forbidden: the zone is immutable")),
        (json!({"zone": null}), Some("spec.zone: Forbidden: the zone is immutable")),
        (
            json!({"ports": [{"name": "y", "number": 3}, {"name": "x", "number": 1}]}),
            Some("spec.ports[0]: Invalid value: a port keeps its number"),
        ),
        (json!({"ports": [{"name": "z", "number": 9}, {"name": "y", "number": 2}]}), None),
        (json!({"max": 5}), None),
    ] {
        let answer = cluster.patch(&path, MERGE, &json!({"spec": change})).await;
        match error {
            Some(error) => assert_eq!(
                answer.fails(422, "Invalid"),
                format!("Widget.example.com \"w\" is invalid: {error}"),
                "{change}"
            ),
            None => drop(answer.expect(200)),
        }
    }
    let status = format!("{path}/status");
    for (count, code) in [(3, 200), (2, 422), (4, 200)] {
        cluster.patch(&status, MERGE, &json!({"status": {"count": count}})).await.expect(code);
    }
}

#[tokio::test]
async fn what_was_wrong_before_stays_accepted() {
    let cluster = Cluster::new().await;
    let mut loose = limits();
    loose["x-kubernetes-validations"] = json!([]);
    cluster.post(CRDS, &widgets_with(&loose)).await.expect(201);
    cluster.post(WIDGETS, &widget(&json!({"min": 3, "max": 2}))).await.expect(201);
    let definition = format!("{CRDS}/widgets.example.com");
    let strict = json!({"spec": {"versions": widgets_with(&limits())["spec"]["versions"]}});
    cluster.patch(&definition, MERGE, &strict).await.expect(200);
    let path = format!("{WIDGETS}/w");
    let labelled = cluster.patch(&path, MERGE, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    labelled.expect(200);
    assert_eq!(labelled.warnings(), ["\"spec: Invalid value: 3 is above 2\""]);
    let changed = cluster.patch(&path, MERGE, &json!({"spec": {"min": 4}})).await;
    assert!(changed.fails(422, "Invalid").ends_with("spec: Invalid value: 4 is above 2"), "{changed:?}");
}

#[tokio::test]
async fn values_that_the_schema_refuses_stay_accepted_until_they_change() {
    let cluster = Cluster::new().await;
    let ports = |most: i64| {
        let number = json!({"type": "integer", "maximum": most});
        let port = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "number": number}});
        let list = json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": port,
        });
        let spec =
            json!({"type": "object", "properties": {"size": {"type": "integer", "maximum": most}, "ports": list}});
        widgets_with(&spec)
    };
    cluster.post(CRDS, &ports(100)).await.expect(201);
    let spec = json!({"size": 50, "ports": [{"name": "a", "number": 50}, {"name": "b", "number": 5}]});
    cluster.post(WIDGETS, &widget(&spec)).await.expect(201);
    let strict = json!({"spec": {"versions": ports(10)["spec"]["versions"]}});
    cluster.patch(&format!("{CRDS}/widgets.example.com"), MERGE, &strict).await.expect(200);
    let path = format!("{WIDGETS}/w");
    for (change, code) in [
        (json!({"metadata": {"labels": {"a": "b"}}}), 200),
        (json!({"spec": {"ports": [{"name": "b", "number": 6}, {"name": "a", "number": 50}]}}), 200),
        (json!({"spec": {"ports": [{"name": "b", "number": 6}, {"name": "a", "number": 51}]}}), 422),
        (json!({"spec": {"ports": [{"name": "c", "number": 50}]}}), 422),
        (json!({"spec": {"size": 49}}), 422),
        (json!({"spec": {"size": 9}}), 200),
        (json!({"spec": {"size": 50}}), 422),
    ] {
        cluster.patch(&path, MERGE, &change).await.expect(code);
    }
    cluster.post(WIDGETS, &json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "new"}, "spec": {"size": 50}})).await.expect(422);
}
