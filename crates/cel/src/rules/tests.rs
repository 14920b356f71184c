//! Rules, judged as Kubernetes judges them. The answers beside the cases are those of Kubernetes itself; `cargo xtask cel`
//! asks it again.

use konverge_core::{FieldError, FieldPath};
use konverge_schema::Budget;
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
