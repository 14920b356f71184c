//! A table of changes: the old value, the new one, and what is told.

use serde_json::{Value, json};

use super::crd_diff;

fn crd(schema: Value) -> Value {
    json!({
        "metadata": {"name": "shops.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "shops", "kind": "Shop", "shortNames": ["sh"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"a": schema}}}}],
        },
        "status": {"storedVersions": ["v1"]},
    })
}

/// The changes as `! path: what` or `  path: what`.
fn told(old: &Value, new: &Value) -> Vec<String> {
    let line = |breaking: bool| if breaking { "!" } else { " " };
    crd_diff(old, new).into_iter().map(|one| format!("{} {}: {}", line(one.breaking), one.path, one.what)).collect()
}

fn check(old: Value, new: Value, expect: &[&str]) {
    assert_eq!(told(&crd(old.clone()), &crd(new.clone())), expect, "{old} → {new}");
}

#[test]
fn values() {
    let at = |what: &str| format!("{} versions[v1].a: {}", &what[..1], &what[2..]);
    let integer = |more: Value| {
        let mut schema = json!({"type": "integer"});
        schema.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        schema
    };
    for (old, new, expect) in [
        (json!({}), json!({"maximum": 5}), "! maximum 5 added"),
        (json!({"maximum": 5}), json!({"maximum": 4}), "! maximum lowered from 5 to 4"),
        (json!({"maximum": 5}), json!({"maximum": 6}), "  maximum raised from 5 to 6"),
        (json!({"maximum": 5}), json!({}), "  maximum removed"),
        (json!({"minimum": 5}), json!({"minimum": 6}), "! minimum raised from 5 to 6"),
        (json!({"minimum": 5}), json!({"minimum": 4}), "  minimum lowered from 5 to 4"),
        (json!({"maximum": 5}), json!({"maximum": 5, "exclusiveMaximum": true}), "! exclusiveMaximum turned on"),
        (json!({"minLength": 1}), json!({"minLength": 2}), "! minLength raised from 1 to 2"),
        (json!({"maxLength": 2}), json!({"maxLength": 1}), "! maxLength lowered from 2 to 1"),
        (json!({"multipleOf": 2}), json!({"multipleOf": 3}), "! multipleOf changed from 2 to 3"),
        (json!({"enum": [1, 2]}), json!({"enum": [1]}), "! 2 removed from enum"),
        (json!({"enum": [1]}), json!({"enum": [1, 2]}), "  2 added to enum"),
        (json!({}), json!({"enum": [1]}), "! enum added"),
        (json!({"enum": [1]}), json!({}), "  enum removed"),
        (json!({"pattern": "a"}), json!({"pattern": "b"}), "! pattern changed from \"a\" to \"b\""),
        (json!({}), json!({"pattern": "b"}), "! pattern \"b\" added"),
        (json!({"pattern": "a"}), json!({}), "  pattern removed"),
        (json!({}), json!({"format": "int32"}), "! format \"int32\" added"),
        (json!({}), json!({"anyOf": [{"minimum": 1}]}), "! anyOf added"),
        (json!({"nullable": true}), json!({}), "! nullable turned off"),
        (json!({}), json!({"nullable": true}), "  nullable turned on"),
        (json!({"default": 1}), json!({"default": 2}), "! default changed from 1 to 2"),
        (json!({"default": 1}), json!({}), "! default 1 removed"),
        (json!({}), json!({"default": 1}), "  default 1 added"),
        (
            json!({}),
            json!({"x-kubernetes-validations": [{"rule": "self > 1", "message": "m"}]}),
            "! rule added: self > 1",
        ),
        (json!({"x-kubernetes-validations": [{"rule": "self > 1"}]}), json!({}), "  rule removed: self > 1"),
    ] {
        check(integer(old), integer(new), &[&at(expect)]);
    }
    // What people read is nobody's business.
    check(integer(json!({"description": "a"})), integer(json!({"description": "b"})), &[]);
    check(integer(json!({})), json!({"type": "string"}), &["! versions[v1].a: type changed from integer to string"]);
    check(integer(json!({})), json!({"type": "number"}), &["! versions[v1].a: type changed from integer to number"]);
}

#[test]
fn objects_and_lists() {
    let object =
        |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required});
    let text = || json!({"type": "string"});
    check(
        object(json!({"b": text()}), json!([])),
        object(json!({"c": text()}), json!([])),
        &["! versions[v1].a.b: field removed (renamed to c?)", "  versions[v1].a.c: field added"],
    );
    check(
        object(json!({}), json!([])),
        object(json!({"c": text()}), json!(["c"])),
        &["! versions[v1].a.c: required field added"],
    );
    check(
        object(json!({"c": text()}), json!([])),
        object(json!({"c": text()}), json!(["c"])),
        &["! versions[v1].a.c: newly required"],
    );
    let with_default = json!({"type": "string", "default": "x"});
    check(
        object(json!({"c": with_default}), json!([])),
        object(json!({"c": with_default}), json!(["c"])),
        &["  versions[v1].a.c: newly required"],
    );
    check(
        object(json!({"c": text()}), json!(["c"])),
        object(json!({"c": text()}), json!([])),
        &["  versions[v1].a.c: no longer required"],
    );
    let preserving = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    check(
        preserving.clone(),
        json!({"type": "object"}),
        &["! versions[v1].a: x-kubernetes-preserve-unknown-fields turned off"],
    );
    check(
        object(json!({"b": text()}), json!([])),
        preserving,
        &[
            "  versions[v1].a: x-kubernetes-preserve-unknown-fields turned on",
            "  versions[v1].a.b: field no longer described",
        ],
    );
    let map = |values: Value| json!({"type": "object", "additionalProperties": values});
    check(map(text()), map(json!({"type": "integer"})), &["! versions[v1].a.*: type changed from string to integer"]);
    check(map(text()), json!({"type": "object"}), &["! versions[v1].a: additionalProperties removed"]);

    let list = |kind: &str, keys: Value, item: Value| json!({"type": "array", "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": keys, "items": item});
    check(
        list("atomic", Value::Null, text()),
        list("set", Value::Null, text()),
        &["! versions[v1].a: x-kubernetes-list-type changed from atomic to set"],
    );
    check(
        list("map", json!(["name"]), json!({})),
        list("map", json!(["name", "port"]), json!({})),
        &["! versions[v1].a: x-kubernetes-list-map-keys changed from name to name, port"],
    );
    let ruled = || json!({"type": "string", "x-kubernetes-validations": [{"rule": "self != ''"}]});
    for (kind, expect) in [("atomic", "cannot be changed at all"), ("map", "as long as it does not change")] {
        let changes = crd_diff(&crd(list(kind, json!(["name"]), text())), &crd(list(kind, json!(["name"]), ruled())));
        assert_eq!(changes[0].path, "versions[v1].a[*]");
        assert!(changes[0].why.ends_with(expect), "{changes:?}");
    }
}

#[test]
fn definitions() {
    let base = crd(json!({"type": "string"}));
    let changed = |pointer: &str, value: Value| {
        let mut new = base.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        new.pointer_mut(parent).unwrap()[field] = value;
        new
    };
    let version = |name: &str, storage: bool, field: &str| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema":
            {"type": "object", "properties": {field: {"type": "string"}}}}})
    };
    for (new, expect) in [
        (base.clone(), &[][..]),
        (changed("/spec/scope", json!("Cluster")), &["! scope: changed from \"Namespaced\" to \"Cluster\""]),
        (changed("/spec/names/kind", json!("Store")), &["! names.kind: changed from \"Shop\" to \"Store\""]),
        (changed("/spec/names/singular", json!("shop")), &[]),
        (changed("/spec/names/shortNames", json!([])), &["! names.shortNames: sh removed"]),
        (changed("/spec/names/shortNames", json!(["sh", "s"])), &["  names.shortNames: s added"]),
        (changed("/spec/versions/0/served", json!(false)), &["! versions[v1]: no longer served"]),
        (changed("/spec/versions/0/deprecated", json!(true)), &["  versions[v1]: deprecated"]),
        (
            changed("/spec/versions/0/subresources", json!({"status": {}})),
            &["! versions[v1].subresources.status: added"],
        ),
        (changed("/spec/versions/0/subresources", json!({"scale": {}})), &["  versions[v1].subresources.scale: added"]),
        (
            changed("/spec/versions/0/additionalPrinterColumns", json!([1])),
            &["  versions[v1].additionalPrinterColumns: changed"],
        ),
        (
            changed("/spec/versions/0/selectableFields", json!([{"jsonPath": ".a"}])),
            &["  versions[v1].selectableFields: .a added"],
        ),
        (
            changed("/spec/versions", json!([version("v2", true, "a")])),
            &[
                "! versions[v1]: version removed while objects are stored in it",
                "  versions[v2]: version added",
                "  versions[v2].storage: stored instead of v1",
            ],
        ),
        (
            changed("/spec/versions", json!([version("v1", false, "a"), version("v2", true, "b")])),
            &[
                "! versions[v2].a: not there, and v1 has it",
                "  versions[v2]: version added",
                "  versions[v2].storage: stored instead of v1",
            ],
        ),
    ] {
        assert_eq!(told(&base, &new), expect);
    }
    let mut two = changed("/spec/versions", json!([version("v1", true, "a"), version("v2", false, "a")]));
    two["spec"]["conversion"] = json!({"strategy": "Webhook"});
    let mut plain = two.clone();
    plain["spec"]["conversion"] = json!({"strategy": "None"});
    assert_eq!(told(&two, &plain), ["! conversion.strategy: changed from Webhook to None"]);
    assert_eq!(told(&plain, &two), ["  conversion.strategy: changed from None to Webhook"]);
    assert_eq!(told(&plain, &base), ["! versions[v2]: version removed"]);
    // Files have no status, and what nobody is served may still be stored.
    let mut unserved = changed("/spec/versions", json!([version("v1", true, "a"), version("v2", false, "a")]));
    (unserved["spec"]["versions"][0]["served"], unserved["status"]) = (json!(false), json!({}));
    let only_second = changed("/spec/versions", json!([version("v2", true, "a")]));
    assert_eq!(told(&unserved, &only_second)[0], "! versions[v1]: version removed while objects are stored in it");
}
