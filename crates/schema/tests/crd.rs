//! Schemas of CRDs, judged when the CRD is written, case by case. A line of `cases/crd.jsonl` has a schema, whether the
//! status subresource is on, and the errors, each as `reason|text`. The expectations are what Kubernetes 1.36 says.

use konverge_core::FieldPath;
use konverge_schema::{Budget, check_schema};
use serde_json::Value;

fn check(case: &Value) -> Result<(), String> {
    let path = FieldPath::new("spec.validation.openAPIV3Schema");
    let errors = check_schema(&case["schema"], case["status"] == true, &path, &Budget::new(10_000, 10_000));
    let errors = errors.map_err(|why| format!("{case}\n  {why}"))?;
    let mut errors: Vec<String> = errors.iter().map(|error| format!("{}|{error}", error.kind.reason())).collect();
    errors.sort();
    let expect: Vec<&str> = case["errors"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    (errors == expect).then_some(()).ok_or_else(|| format!("{case}\n  has {errors:#?}\n  not {expect:#?}"))
}

#[test]
fn crd_schemas() {
    let cases: Vec<Value> = include_str!("cases/crd.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a case is JSON"))
        .collect();
    assert!(cases.len() > 100, "only {} cases were read", cases.len());
    let wrong: Vec<String> = cases.iter().filter_map(|case| check(case).err()).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
