//! Rules, judged as Kubernetes judges them. The answers beside the cases are those of Kubernetes itself; `cargo xtask cel`
//! asks it again.

use konverge_core::{FieldError, FieldPath};
use konverge_schema::{Budget, OverBudget};
use serde_json::{Value as Json, json};

use super::{RuleSet, RuleTree, check_rules};

/// Everything that differs is listed, because one mistake often explains many differences.
fn report(differences: Vec<String>) {
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.sort();
    texts
}

fn expected(answer: &Json) -> Vec<String> {
    answer.as_array().into_iter().flatten().filter_map(Json::as_str).map(str::to_owned).collect()
}

/// What each rule can cost, in the order in which the answers have it.
fn estimates(tree: &RuleTree, found: &mut Vec<u64>) {
    for rule in &tree.rules {
        found.push(rule.max_cost);
        if rule.message.is_some() {
            found.push(rule.message_max_cost);
        }
    }
    let below = tree.items.iter().chain(&tree.additional).map(|inner| &**inner);
    for inner in below.chain(tree.properties.iter().map(|(_, inner)| inner)) {
        estimates(inner, found);
    }
}

fn path() -> FieldPath {
    FieldPath::new("spec.validation.openAPIV3Schema")
}

#[test]
fn expressions() {
    let fixture: Json = serde_json::from_str(include_str!("../../data/fixture.json")).expect("JSON");
    let mut differences = Vec::new();
    for line in include_str!("../../data/expressions.jsonl").lines() {
        let case: Json = serde_json::from_str(line).expect(line);
        let mut schema = fixture["schema"].clone();
        schema["x-kubernetes-validations"] = json!([{"rule": case["rule"], "message": "m"}]);
        let mut differ = |what: &str, ours: String, theirs: String| {
            if ours != theirs {
                differences.push(format!("{}\n  {what}: {ours}\n    expected: {theirs}", case["rule"]));
            }
        };
        let errors = check_rules(&schema, &path(), Budget::unlimited()).expect("there is no limit");
        differ("definition", format!("{:#?}", texts(&errors)), format!("{:#?}", expected(&case["definition"])));
        let Some(rules) = RuleSet::compile(&schema) else { continue };
        let mut costs = Vec::new();
        estimates(&rules.rules, &mut costs);
        differ("estimate", costs[0].to_string(), case["estimate"].to_string());
        if case.get("cost").is_none() && case.get("errors").is_none() {
            continue;
        }
        let outcome = rules.validate(&fixture["object"], None, Budget::unlimited()).expect("there is no limit");
        differ("errors", format!("{:#?}", texts(&outcome.errors)), format!("{:#?}", expected(&case["errors"])));
        differ("cost", json!(outcome.cost).to_string(), case["cost"].to_string());
    }
    report(differences);
}

#[test]
fn definitions_and_objects() {
    let mut differences = Vec::new();
    for line in include_str!("../../data/cases.jsonl").lines() {
        let case: Json = serde_json::from_str(line).expect(line);
        let mut differ = |what: &str, ours: String, theirs: String| {
            if ours != theirs {
                differences.push(format!("{}\n  {what}: {ours}\n    expected: {theirs}", case["name"]));
            }
        };
        let schema = &case["schema"];
        let errors = check_rules(schema, &path(), Budget::unlimited()).expect("there is no limit");
        differ("definition", format!("{:#?}", texts(&errors)), format!("{:#?}", expected(&case["definition"])));
        let Some(rules) = RuleSet::compile(schema) else { continue };
        let mut costs = Vec::new();
        estimates(&rules.rules, &mut costs);
        differ("estimates", json!(costs).to_string(), case["estimates"].to_string());
        for object in case["objects"].as_array().into_iter().flatten() {
            let outcome =
                rules.validate(&object["new"], object.get("old"), Budget::unlimited()).expect("there is no limit");
            let theirs = expected(&object["errors"]);
            differ("errors", format!("{:#?}", texts(&outcome.errors)), format!("{theirs:#?}"));
            let mut warnings = outcome.warnings;
            warnings.sort();
            differ("warnings", format!("{warnings:#?}"), format!("{:#?}", expected(&object["warnings"])));
            differ("cost", json!(outcome.cost).to_string(), object["cost"].to_string());
        }
    }
    report(differences);
}

/// What an expression does to a value, many times: `[[VALUE].map(a, STEP)[0]].map(a, STEP)[0]`.
fn repeated(value: &str, step: &str, times: usize) -> String {
    (0..times).fold(value.to_owned(), |value, _| format!("[{value}].map(a, {step})[0]"))
}

/// What one request may compute.
fn request() -> Budget {
    Budget::new(20_000_000, 16 << 20)
}

#[test]
fn what_grows_beyond_its_cost_is_paid_for() {
    let check = |rule: String| {
        let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]});
        let rules = RuleSet::compile(&schema).expect("it has a rule");
        let outcome = rules.validate(&json!({}), None, &Budget::new(1_000_000, 1 << 20));
        assert_eq!(outcome, Err(OverBudget::Steps), "{rule}");
    };
    check(repeated("[1]", "a + a", 30) + ".size() > 0");
    check(repeated("[1]", "[a, a].flatten()", 30) + ".size() > 0");
    check(repeated("'aaaaaaaaaa'", "a.replace('a', a)", 6) + ".size() > 0");
    check(repeated("'aaaaaaaaaa'", "'%s%s'.format([a, a])", 30) + " != ''");
    let deep = repeated("[[dyn(1)]]", "[dyn(a), dyn(a)]", 40);
    check(format!("[{deep}].all(x, x == x)"));
    check(format!("[{deep}].all(x, x in [x])"));
    check(format!("'%s'.format([{deep}]) != ''"));
}

#[test]
fn long_lists_take_as_long_as_they_are() {
    let rules = [("map", "self.v > 0"), ("atomic", "self.v > 0"), ("map", "self.v >= oldSelf.v")];
    for (list_type, rule) in rules {
        let item = json!({
            "type": "object",
            "properties": {"name": {"type": "string"}, "v": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": rule, "message": "m"}],
        });
        let mut list = json!({"type": "array", "items": item, "x-kubernetes-list-type": list_type});
        if list_type == "map" {
            list["x-kubernetes-list-map-keys"] = json!(["name"]);
        }
        let schema = json!({"type": "object", "properties": {"list": list}});
        let rules = RuleSet::compile(&schema).expect("it has a rule");
        let items: Vec<Json> = (0..10_000).map(|at| json!({"name": format!("n{at}"), "v": 0})).collect();
        let object = json!({"list": items});
        let budget = request();
        let outcome = rules.validate(&object, Some(&object), &budget).expect("it is within its budget");
        assert!(outcome.errors.is_empty(), "{list_type} {rule}");
        let spent = request().steps_left() - budget.steps_left();
        assert!(spent < 100 * 10_000, "{list_type} {rule}: {spent} steps");
    }
}
