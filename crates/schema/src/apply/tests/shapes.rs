//! How values of each shape merge, are owned and go.

use super::*;

#[test]
fn a_field_no_longer_applied_goes() {
    let mut s = story();
    s.apply("a", json!({"text": "x", "number": 1})).owners(&["a Apply@1: .spec.number .spec.text"]);
    s.apply("a", json!({"text": "x"})).spec(json!({"text": "x"})).owners(&["a Apply@2: .spec.text"]);
    s.apply("a", json!({"pair": {"x": "1"}})).spec(json!({"pair": {"x": "1"}}));
    // Nothing is left of the struct, so the struct goes, too.
    s.apply("a", json!({"metadata": {"labels": {"l": "1"}}}))
        .spec(json!(null))
        .owners(&["a Apply@4: .metadata.labels.l"]);
    assert_eq!(s.live()["metadata"]["labels"], json!({"l": "1"}));
}

#[test]
fn a_shared_field_stays_until_its_last_owner_leaves() {
    let mut s = story();
    s.apply("a", json!({"text": "x", "number": 1}));
    s.apply("b", json!({"text": "x"})).owners(&["b Apply@never: .spec.text", "a Apply@1: .spec.number .spec.text"]);
    s.apply("a", json!({"number": 1})).spec(json!({"number": 1, "text": "x"}));
    s.apply("b", json!({"number": 1}))
        .spec(json!({"number": 1}))
        .owners(&["a Apply@1: .spec.number", "b Apply@4: .spec.number"]);
}

#[test]
fn an_update_keeps_what_an_applier_drops() {
    let mut s = story();
    s.apply("a", json!({"text": "x", "number": 1}));
    s.update("u", json!({"text": "y", "number": 1})).owners(&["a Apply@1: .spec.number", "u Update@2: .spec.text"]);
    s.apply("a", json!({"number": 1})).spec(json!({"text": "y", "number": 1}));
    s.apply("a", json!({"number": 1, "text": "z"}))
        .refused("Apply failed with 1 conflict: conflict with \"u\" using x.io/v1: .spec.text");
    s.apply("a", json!({"number": 1, "text": "y"}))
        .owners(&["a Apply@1: .spec.number .spec.text", "u Update@2: .spec.text"]);
}

#[test]
fn items_told_apart_by_key() {
    let mut s = story();
    s.apply("a", json!({"items": [{"name": "1", "value": "x"}, {"name": "2"}]}))
        .owners(&["a Apply@1: .spec.items[name=\"1\"] .spec.items[name=\"2\"] .spec.items[name=\"1\"].name \
         .spec.items[name=\"1\"].value .spec.items[name=\"2\"].name"]);
    // Another manager adds its own, and may add to one that is there.
    s.apply("b", json!({"items": [{"name": "3", "value": "y"}]}))
        .spec(json!({"items": [{"name": "1", "value": "x"}, {"name": "2"}, {"name": "3", "value": "y"}]}));
    s.apply("b", json!({"items": [{"name": "2", "value": "z"}, {"name": "3", "value": "y"}]})).spec(
        json!({"items": [{"name": "1", "value": "x"}, {"name": "2", "value": "z"}, {"name": "3", "value": "y"}]}),
    );
    s.apply("b", json!({"items": [{"name": "1", "value": "y"}]}))
        .refused("Apply failed with 1 conflict: conflict with \"a\": .spec.items[name=\"1\"].value");
    // What is removed is the item and all of it, but for what another owns.
    s.apply("a", json!({"items": [{"name": "1", "value": "x"}]})).spec(
        json!({"items": [{"name": "1", "value": "x"}, {"name": "2", "value": "z"}, {"name": "3", "value": "y"}]}),
    );
    s.apply("b", json!({})).spec(json!({"items": [{"name": "1", "value": "x"}]}));
    s.apply("a", json!({})).spec(json!(null));
}

#[test]
fn nested_items_and_defaulted_keys() {
    let mut s = story();
    s.apply("a", json!({"items": [{"name": "1", "ports": [{"port": 80, "name": "web"}]}]})).owners(&[
        "a Apply@1: .spec.items[name=\"1\"] .spec.items[name=\"1\"].name \
         .spec.items[name=\"1\"].ports[port=80,protocol=\"TCP\"] \
         .spec.items[name=\"1\"].ports[port=80,protocol=\"TCP\"].name \
         .spec.items[name=\"1\"].ports[port=80,protocol=\"TCP\"].port",
    ]);
    // With the default written out it is the same port; with another protocol it is another one.
    s.apply("b", json!({"items": [{"name": "1", "ports": [{"port": 80, "protocol": "TCP", "name": "x"}]}]})).refused(
        "Apply failed with 1 conflict: conflict with \"a\": \
         .spec.items[name=\"1\"].ports[port=80,protocol=\"TCP\"].name",
    );
    s.apply("b", json!({"items": [{"name": "1", "ports": [{"port": 80, "protocol": "UDP", "name": "x"}]}]})).spec(
        json!({"items": [{"name": "1", "ports": [{"port": 80, "name": "web"}, {"port": 80, "protocol": "UDP", "name": "x"}]}]}),
    );
    s.apply("a", json!({"items": [{"name": "1"}]}))
        .spec(json!({"items": [{"name": "1", "ports": [{"port": 80, "protocol": "UDP", "name": "x"}]}]}));
}

#[test]
fn sets() {
    let mut s = story();
    s.apply("a", json!({"set": ["x", "y"]})).owners(&["a Apply@1: .spec.set[=\"x\"] .spec.set[=\"y\"]"]);
    s.apply("b", json!({"set": ["y", "z"]})).spec(json!({"set": ["x", "y", "z"]}));
    s.apply("a", json!({"set": ["x"]})).spec(json!({"set": ["x", "y", "z"]}));
    s.apply("b", json!({"set": ["z"]})).spec(json!({"set": ["x", "z"]}));
    s.apply("b", json!({"set": ["z", "z"]})).refused(
        "failed to create typed patch object (ns/it; x.io/v1, Kind=Thing): \
         .spec.set: duplicate entries for key [=\"z\"]",
    );
    // An update may hold duplicates; they are owned as one.
    s.update("u", json!({"set": ["z", "z"]})).owners(&["u Update@6: .spec.set[=\"z\"]"]);
}

#[test]
fn merged_lists_keep_both_orders() {
    #[track_caller]
    fn check(live: &[&str], config: &[&str], expect: &[&str]) {
        let mut s = story();
        s.update("u", json!({"set": live}));
        s.apply("a", json!({"set": config})).spec(json!({"set": expect}));
    }
    check(&["a", "b", "c"], &["b"], &["a", "b", "c"]);
    check(&["a", "b", "c"], &["d"], &["a", "b", "c", "d"]);
    check(&["a", "b", "c"], &["c", "a"], &["b", "c", "a"]);
    check(&["a", "b", "c"], &["c", "b", "a"], &["c", "b", "a"]);
    check(&["a", "x", "b", "y"], &["b", "c", "a"], &["x", "b", "y", "c", "a"]);
    check(&["a", "b"], &["c", "a"], &["c", "a", "b"]);
    check(&["a", "b", "c", "d"], &["b", "x", "d"], &["a", "b", "c", "x", "d"]);
}

#[test]
fn what_is_atomic_is_replaced_and_owned_whole() {
    let mut s = story();
    s.apply("a", json!({"texts": ["1", "2"], "whole": {"a": "1"}, "wholePair": {"x": "1"}, "opaque": {"a": {"b": 1}}}))
        .owners(&["a Apply@1: .spec.opaque .spec.texts .spec.whole .spec.wholePair"]);
    s.force("b", json!({"texts": ["3"], "whole": {"b": "2"}, "wholePair": {"y": "2"}, "opaque": [1]}))
        .spec(json!({"texts": ["3"], "whole": {"b": "2"}, "wholePair": {"y": "2"}, "opaque": [1]}))
        .owners(&["b Apply@2: .spec.opaque .spec.texts .spec.whole .spec.wholePair"]);
    s.apply("a", json!({"texts": ["3", "4"]}))
        .refused("Apply failed with 1 conflict: conflict with \"b\": .spec.texts");
}

#[test]
fn maps() {
    let mut s = story();
    s.apply("a", json!({"map": {"a": "1", "b": "2"}, "pairs": {"p": {"x": "1"}}}))
        .owners(&["a Apply@1: .spec.map.a .spec.map.b .spec.pairs.p .spec.pairs.p.x"]);
    s.apply("b", json!({"map": {"c": "3"}, "pairs": {"p": {"y": "2"}, "q": {}}}))
        .spec(json!({"map": {"a": "1", "b": "2", "c": "3"}, "pairs": {"p": {"x": "1", "y": "2"}, "q": {}}}));
    s.apply("a", json!({"map": {"b": "2"}}))
        .spec(json!({"map": {"b": "2", "c": "3"}, "pairs": {"p": {"y": "2"}, "q": {}}}));
    s.apply("b", json!({})).spec(json!({"map": {"b": "2"}}));
}

#[test]
fn deduced_values() {
    let mut s = story();
    s.apply("a", json!({"any": {"o": {"x": 1}, "l": [1, 2], "s": "t"}, "open": {"x": "1", "more": {"z": 1}}})).owners(&[
        "a Apply@1: .spec.any.l .spec.any.o .spec.any.s .spec.any.o.x .spec.open.more .spec.open.x .spec.open.more.z",
    ]);
    s.apply("b", json!({"any": {"o": {"y": 2}}, "open": {"more": {"w": 1}}})).spec(
        json!({"any": {"o": {"x": 1, "y": 2}, "l": [1, 2], "s": "t"}, "open": {"x": "1", "more": {"z": 1, "w": 1}}}),
    );
    s.apply("b", json!({"any": {"l": [3]}})).refused("Apply failed with 1 conflict: conflict with \"a\": .spec.any.l");
    // A value may change its kind.
    s.force("b", json!({"any": {"s": {"k": 1}, "o": "text"}}))
        .spec(json!({"any": {"o": "text", "l": [1, 2], "s": {"k": 1}}, "open": {"x": "1", "more": {"z": 1}}}));
}

#[test]
fn nulls_and_emptiness() {
    let mut s = story();
    s.apply("a", json!({"map": {}, "text": null, "items": [], "set": null, "pair": {}, "any": null}))
        .spec(json!({"map": {}, "text": null, "items": [], "set": null, "pair": {}, "any": null}))
        .owners(&["a Apply@1: .spec.any .spec.map .spec.pair .spec.set .spec.text"]);
    // Emptiness does not take away what is there.
    let mut s = story();
    s.update("u", json!({"map": {"a": "1"}, "items": [{"name": "1"}], "texts": ["1"]}));
    s.apply("a", json!({"map": {}, "items": []}))
        .spec(json!({"map": {"a": "1"}, "items": [{"name": "1"}], "texts": ["1"]}));
    s.apply("a", json!({"map": null, "items": null}))
        .spec(json!({"map": {"a": "1"}, "items": [{"name": "1"}], "texts": ["1"]}));
    s.apply("a", json!({"texts": []}))
        .refused("Apply failed with 1 conflict: conflict with \"u\" using x.io/v1: .spec.texts");
    // An owner of the map itself keeps it when its last entry goes.
    let mut s = story();
    s.apply("a", json!({"map": {"a": "1"}, "text": "x"}));
    s.apply("b", json!({"map": {}}));
    s.apply("a", json!({"text": "x"})).spec(json!({"map": null, "text": "x"}));
}

#[test]
fn numbers_that_are_equal_are_no_change() {
    let mut s = story();
    s.apply("a", json!({"number": 1, "any": {"n": 2}}));
    s.apply("b", json!({"number": 1.0, "any": {"n": 2.0}}))
        .owners(&["b Apply@never: .spec.number .spec.any.n", "a Apply@1: .spec.number .spec.any.n"]);
}

#[test]
fn what_does_not_fit_the_type_is_named() {
    #[track_caller]
    fn check(config: Value, expect: &str) {
        let mut s = story();
        let told = s.apply("a", config);
        let expect = format!("failed to create typed patch object (ns/it; x.io/v1, Kind=Thing): {expect}");
        assert_eq!(told.refused.as_ref().map(|error| error.status().code), Some(500));
        told.refused(&expect);
    }
    check(json!({"foo": 1}), ".spec.foo: field not declared in schema");
    check(json!({"items": [{"name": "a", "foo": 1}]}), ".spec.items[name=\"a\"].foo: field not declared in schema");
    check(json!({"number": "1"}), ".spec.number: expected numeric (int or float), got string");
    check(json!({"text": 1}), ".spec.text: expected string, got &value.valueUnstructured{Value:1}");
    check(json!({"map": "a"}), ".spec.map: expected map, got &{a}");
    check(json!({"items": {"a": "b"}}), ".spec.items: expected list, got &{map[a:b]}");
    check(json!({"texts": ["a", 1]}), ".spec.texts[1]: expected string, got &value.valueUnstructured{Value:1}");
    check(json!({"items": ["a"]}), ".spec.items: element 0: associative list with keys may not have non-map elements");
    check(json!({"items": [null]}), ".spec.items: element 0: associative list with keys may not have a null element");
    check(
        json!({"items": [{"value": "a"}]}),
        ".spec.items: element 0: associative list with keys has an element that omits all key fields [\"name\"] \
         (and doesn't have default values for any key fields)",
    );
    check(json!({"set": [{}]}), ".spec.set: element 0: associative list without keys has an element that's a map type");
    check(
        json!({"items": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}),
        ".spec.items: duplicate entries for key [name=\"a\"]",
    );
    check(
        json!({"items": [{"name": "a", "ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]}]}),
        ".spec.items[name=\"a\"].ports: duplicate entries for key [port=1,protocol=\"TCP\"]",
    );
    check(
        json!({"number": "1", "text": 1}),
        "errors:\n  .spec.number: expected numeric (int or float), got string\n  \
         .spec.text: expected string, got &value.valueUnstructured{Value:1}",
    );
}
