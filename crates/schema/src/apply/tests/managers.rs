//! Who owns what: conflicts, updates, and the list of managers itself.

use super::*;

#[test]
fn applying_the_same_again_changes_nothing() {
    let mut s = story();
    let config = json!({"text": "x", "items": [{"name": "1"}], "map": {"a": "1"}});
    s.apply("a", config.clone());
    s.update("u", json!({"text": "x", "items": [{"name": "1", "value": "v"}], "map": {"a": "1"}}));
    let before = s.live().clone();
    s.apply("a", config.clone());
    assert_eq!(s.live(), &before);
    s.force("a", config);
    assert_eq!(s.live(), &before);
}

#[test]
fn updating_nothing_changes_nothing() {
    let mut s = story();
    s.apply("a", json!({"text": "x"}));
    let before = s.live().clone();
    s.update("u", json!({"text": "x"}));
    assert_eq!(s.live(), &before);
    // What the server decides over is no change.
    s.write("u", |writer, live| {
        let mut object = live.expect("written before").clone();
        object["metadata"]["resourceVersion"] = "7".into();
        object["metadata"]["generation"] = 3.into();
        writer.update(live, &mut object);
        Ok(object)
    })
    .owners(&["a Apply@1: .spec.text"]);
}

#[test]
fn conflicts_name_every_manager_and_field() {
    let mut s = story();
    s.apply("b", json!({"text": "x", "number": 1}));
    s.update("a", json!({"text": "x", "number": 1, "map": {"k": "1"}}));
    s.subresource = "status";
    s.update("c", json!({"metadata": {}, "spec": {"text": "x", "number": 1, "map": {"k": "1"}, "set": ["s"], "pair": {"x": "1"}}}));
    s.subresource = "";
    let told = s.apply("z", json!({"text": "y", "number": 2, "map": {"k": "2"}, "pair": {"x": "2"}}));
    let status = told.refused.as_ref().expect("refused").status();
    told.refused(
        "Apply failed with 4 conflicts: conflicts with \"a\" using x.io/v1:\n- .spec.map.k\n\
         conflicts with \"b\":\n- .spec.number\n- .spec.text\n\
         conflicts with \"c\" with subresource \"status\" using x.io/v1:\n- .spec.pair.x",
    );
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    let causes = status.details.expect("has causes").causes;
    let causes: Vec<_> =
        causes.iter().map(|cause| (cause.reason.as_str(), cause.message.as_str(), cause.field.as_str())).collect();
    let reason = "FieldManagerConflict";
    assert_eq!(
        causes,
        [
            (reason, "conflict with \"a\" using x.io/v1", ".spec.map.k"),
            (reason, "conflict with \"b\"", ".spec.number"),
            (reason, "conflict with \"b\"", ".spec.text"),
            (reason, "conflict with \"c\" with subresource \"status\" using x.io/v1", ".spec.pair.x"),
        ]
    );
}

#[test]
fn force_takes_the_field_over() {
    let mut s = story();
    s.apply("a", json!({"text": "x", "number": 1}));
    s.force("b", json!({"text": "y"}))
        .spec(json!({"text": "y", "number": 1}))
        .owners(&["a Apply@1: .spec.number", "b Apply@2: .spec.text"]);
    // The one it was taken from does not notice, until it wants another value.
    s.apply("a", json!({"number": 1})).owners(&["a Apply@1: .spec.number", "b Apply@2: .spec.text"]);
    s.apply("a", json!({"number": 1, "text": "x"}))
        .refused("Apply failed with 1 conflict: conflict with \"b\": .spec.text");
    s.force("a", json!({"number": 1, "text": "x"})).owners(&["a Apply@5: .spec.number .spec.text"]);
}

#[test]
fn an_applier_and_an_updater_of_one_name_are_two() {
    let mut s = story();
    s.update("m", json!({"text": "x"})).owners(&["m Update@1: .spec .spec.text"]);
    s.apply("m", json!({"text": "y"}))
        .refused("Apply failed with 1 conflict: conflict with \"m\" using x.io/v1: .spec.text");
    s.apply("m", json!({"text": "x"})).owners(&["m Apply@never: .spec.text", "m Update@1: .spec .spec.text"]);
}

#[test]
fn updates_move_and_drop_ownership() {
    let mut s = story();
    s.update("a", json!({"text": "x", "map": {"k": "1"}, "number": 1}))
        .owners(&["a Update@1: .spec .spec.map .spec.number .spec.text .spec.map.k"]);
    s.update("b", json!({"text": "y", "map": {"k": "1", "l": "2"}}))
        .owners(&["a Update@1: .spec .spec.map .spec.map.k", "b Update@2: .spec.text .spec.map.l"]);
    // Removing only is no gain, so there is nothing to date.
    s.update("c", json!({"text": "y"})).owners(&["a Update@1: .spec", "b Update@2: .spec.text"]);
    s.update("b", json!({"text": "z", "number": 3}))
        .owners(&["a Update@1: .spec", "b Update@4: .spec.number .spec.text"]);
    s.update("", json!({"text": "z", "number": 4})).owners(&[
        "a Update@1: .spec",
        "b Update@4: .spec.text",
        "unknown Update@5: .spec.number",
    ]);
}

#[test]
fn each_subresource_has_its_own_managers_and_fields() {
    let mut s = story();
    s.reset = FieldSet::of_fields([&["status"][..]]);
    s.apply("a", json!({"metadata": {}, "spec": {"text": "x"}, "status": {"phase": "Lost"}}))
        .owners(&["a Apply@1: .spec.text"]);
    s.subresource = "status";
    s.reset = FieldSet::of_fields([&["spec"][..]]);
    s.apply("a", json!({"metadata": {}, "spec": {"text": "y"}, "status": {"phase": "Ready"}}))
        .owners(&["a Apply@1: .spec.text", "a/status Apply@2: .status.phase"]);
    s.update("u", json!({"metadata": {}, "spec": {"text": "z"}, "status": {"phase": "Gone"}}))
        .owners(&["a Apply@1: .spec.text", "u/status Update@3: .status.phase"]);
    // Managers cannot be set through a subresource.
    s.update("u", json!({"metadata": {"managedFields": []}, "spec": {"text": "z"}, "status": {"phase": "Gone"}}))
        .owners(&["a Apply@1: .spec.text", "u/status Update@3: .status.phase"]);
}

#[test]
fn what_was_there_before_the_first_apply() {
    let mut s = story();
    s.live = Some(s.object(json!({"metadata": {"uid": "u"}, "spec": {"text": "x", "number": 1}})));
    // Nobody is tracked until someone applies.
    s.update("u", json!({"text": "x", "number": 2})).owners(&[]);
    s.apply("a", json!({"number": 3}))
        .refused("Apply failed with 1 conflict: conflict with \"before-first-apply\" using x.io/v1: .spec.number");
    s.apply("a", json!({"number": 2, "set": ["s"]})).owners(&[
        "a Apply@3: .spec.number .spec.set[=\"s\"]",
        "before-first-apply Update@3: .spec .spec.number .spec.text",
    ]);
}

#[test]
fn clients_may_set_the_managers() {
    let entry = |manager: &str, fields: Value| {
        json!({"manager": manager, "operation": "Apply", "apiVersion": "x.io/v1", "fieldsType": "FieldsV1",
            "fieldsV1": fields, "time": T1})
    };
    let given = |managers: Value| json!({"metadata": {"managedFields": managers}, "spec": {"text": "x"}});
    #[track_caller]
    fn check(given: Value, expect: &[&str]) {
        let mut s = story();
        s.apply("a", json!({"text": "x"}));
        s.update("u", given).owners(expect);
    }
    let kept = &["a Apply@1: .spec.text"][..];
    check(given(json!([entry("b", json!({"f:spec": {"f:text": {}}}))])), &["b Apply@1: .spec.text"]);
    check(given(json!([])), &[]);
    check(given(json!([{}])), &[]);
    // Those who cannot read them must not lose them.
    check(given(json!(null)), kept);
    check(given(json!([{}, {}])), kept);
    check(given(json!([entry("b", json!({"f:spec": {"f": {}}}))])), kept);
    check(given(json!([{"manager": "b", "operation": "Create", "apiVersion": "v1", "fieldsType": "FieldsV1"}])), kept);
    check(given(json!("b")), kept);
}

#[test]
fn broken_managers_are_named() {
    #[track_caller]
    fn check(list: Value, expect: &str) {
        assert_eq!(ManagedFields::decode(&list).expect_err("broken").to_string(), expect);
        // An apply cannot go on without them.
        let mut s = story();
        s.live = Some(s.object(json!({"metadata": {"managedFields": list}})));
        s.apply("a", json!({})).refused(&format!("failed to decode managed fields: {expect}"));
    }
    let with = |name: &str, value: Value| {
        let mut entry = json!({"manager": "b", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"});
        entry[name] = value;
        json!([entry])
    };
    check(with("operation", json!("")), "operation must be `Apply` or `Update`");
    check(with("apiVersion", json!("")), "apiVersion must not be empty");
    check(with("fieldsType", json!("")), "missing fieldsType in managed fields entry 0");
    check(with("fieldsType", json!("FieldsV2")), "invalid fieldsType \"FieldsV2\" in managed fields entry 0");
    check(
        with("fieldsV1", json!({"f:a": 1})),
        "error decoding versioned set of \"b\": error decoding set: fieldsV1 at \"f:a\": expected an object",
    );
    check(json!(["b"]), "managedFields must be a list of objects");
}

#[test]
fn a_configuration_brings_no_managers_and_the_right_kind() {
    let mut s = story();
    for list in [json!([]), json!([{}])] {
        let told = s.apply("a", json!({"metadata": {"managedFields": list}}));
        assert_eq!(told.refused.as_ref().map(|error| error.status().code), Some(400));
        told.refused("metadata.managedFields must be nil");
    }
    s.apply("a", json!({"metadata": {"managedFields": null, "labels": {"l": "1"}}}))
        .owners(&["a Apply@3: .metadata.labels.l"]);
    let refused = |writer: FieldManager<'_>, config: Value| writer.apply(None, &config, false);
    s.write("a", |writer, _| refused(writer, json!({"apiVersion": "x.io/v2", "kind": "Thing"})))
        .refused("invalid object type: x.io/v2, Kind=Thing");
    s.write("a", |writer, _| refused(writer, json!({"apiVersion": "v1", "kind": "Other"})))
        .refused("invalid object type: /v1, Kind=Other");
}

#[test]
fn managers_of_another_version_own_the_same_fields() {
    let mut s = story();
    s.apply("a", json!({"text": "x", "number": 1}));
    s.update("u", json!({"text": "x", "number": 2}));
    s.version = "x.io/v2";
    s.apply("b", json!({"text": "y"})).refused("Apply failed with 1 conflict: conflict with \"a\": .spec.text");
    // An applier is the same in every version; an updater is another one.
    s.apply("a", json!({"text": "y"})).owners(&["a Apply x.io/v2@4: .spec.text", "u Update@2: .spec.number"]);
    s.update("u", json!({"text": "y", "number": 3}))
        .owners(&["a Apply x.io/v2@4: .spec.text", "u Update x.io/v2@5: .spec.number"]);
}

#[test]
fn many_updaters_are_merged_oldest_first() {
    let mut s = story();
    for at in 0..9 {
        let map: Map<String, Value> = (0..=at).map(|at| (format!("k{at}"), "v".into())).collect();
        s.update(&format!("m{at}"), json!({"map": map, "text": "x"}));
    }
    assert_eq!(s.owners().len(), 9);
    let survivors = ["m0 Update@1: .spec", "m9 Update@0: .spec.text"];
    s.update("m9", json!({"text": "y"})).owners(&survivors);

    let mut managed = ManagedFields::default();
    let entry = |name: &str, second: u32, version: &str| ManagedEntry {
        manager: name.into(),
        operation: Operation::Update,
        api_version: version.into(),
        subresource: "".into(),
        time: Some(format!("2026-01-01T00:00:{second:02}Z").into()),
        fields: FieldSet::of_fields([&["spec", name][..]]),
    };
    for at in 0..11 {
        managed.entries.push(entry(&format!("m{at:02}"), at, if at == 1 { "x.io/v2" } else { "x.io/v1" }));
    }
    managed.cap_updaters();
    let lines = |managed: &ManagedFields| -> Vec<String> {
        let entries = managed.encode().expect("has managers");
        let entries = entries.as_array().expect("a list").clone();
        let line =
            |entry: &Value| format!("{} {} {}", entry["manager"], entry["time"], entry["fieldsV1"]).replace('"', "");
        entries.iter().take(3).map(line).collect()
    };
    assert_eq!(managed.entries.len(), 10);
    assert_eq!(
        lines(&managed),
        [
            "m01 2026-01-01T00:00:01Z {f:spec:{f:m01:{}}}",
            "ancient-changes 2026-01-01T00:00:02Z {f:spec:{f:m00:{},f:m02:{}}}",
            "m03 2026-01-01T00:00:03Z {f:spec:{f:m03:{}}}",
        ]
    );
    managed.entries.push(entry("m11", 11, "x.io/v1"));
    managed.cap_updaters();
    assert_eq!(managed.entries.len(), 10);
    assert_eq!(
        lines(&managed),
        [
            "m01 2026-01-01T00:00:01Z {f:spec:{f:m01:{}}}",
            "ancient-changes 2026-01-01T00:00:03Z {f:spec:{f:m00:{},f:m02:{},f:m03:{}}}",
            "m04 2026-01-01T00:00:04Z {f:spec:{f:m04:{}}}",
        ]
    );
}

#[test]
fn kubectl_takes_over_what_it_applied_from_the_client() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let applied = |text: &str| {
        let last = json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "it", "namespace": "ns"},
            "spec": {"text": text, "number": 1}});
        json!({"metadata": {"annotations": {annotation: last.to_string()}}, "spec": {"text": text, "number": 1}})
    };
    // As it was applied: no conflict, and the annotation follows.
    let mut s = story();
    s.update("kubectl-client-side-apply", applied("x"));
    s.apply("kubectl", json!({"text": "<y>", "number": 1})).spec(json!({"text": "<y>", "number": 1})).owners(&[
        "kubectl Apply@2: .spec.number .spec.text",
        "kubectl-client-side-apply Update@1: .spec .metadata.annotations \
         .metadata.annotations.kubectl.kubernetes.io/last-applied-configuration .spec.number",
    ]);
    assert_eq!(
        s.live()["metadata"]["annotations"][annotation],
        "{\"apiVersion\":\"x.io/v1\",\"kind\":\"Thing\",\"metadata\":{\"name\":\"it\",\"namespace\":\"ns\"},\
         \"spec\":{\"number\":1,\"text\":\"\\u003cy\\u003e\"}}\n"
    );
    // Someone else changed it since: a conflict after all.
    let mut s = story();
    s.update("kubectl-client-side-apply", applied("x"));
    let mut changed = applied("x");
    changed["spec"]["text"] = "z".into();
    s.update("u", changed);
    s.apply("kubectl", json!({"text": "y", "number": 2}))
        .refused("Apply failed with 1 conflict: conflict with \"u\" using x.io/v1: .spec.text");
    // Only for kubectl.
    let mut s = story();
    s.update("kubectl-client-side-apply", applied("x"));
    s.apply("flux", json!({"text": "y"}))
        .refused("Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using x.io/v1: .spec.text");
}

#[test]
fn sets_written_before_a_type_became_atomic() {
    let mut s = story();
    let managers = json!([{"manager": "a", "operation": "Apply", "apiVersion": "x.io/v1", "fieldsType": "FieldsV1",
        "time": T1, "fieldsV1": {"f:spec": {"f:whole": {".": {}, "f:a": {}}, "f:texts": {"v:\"1\"": {}}, "f:text": {}}}}]);
    let spec = json!({"whole": {"a": "1"}, "texts": ["1"], "text": "x"});
    s.live = Some(s.object(json!({"metadata": {"uid": "u", "managedFields": managers}, "spec": spec})));
    s.apply("b", json!({"whole": {"b": "2"}}))
        .refused("Apply failed with 1 conflict: conflict with \"a\": .spec.whole");
    s.update("u", json!({"whole": {"a": "1"}, "texts": ["1"], "text": "y"}))
        .owners(&["a Apply@1: .spec.texts .spec.whole", "u Update@2: .spec.text"]);
}
