//! String formats, case by case. A line of `cases/formats.jsonl` has a format, strings that have it and strings that do
//! not. The expectations are what Kubernetes 1.36 says.

use konverge_schema::Format;
use serde_json::Value;

fn check(case: &Value) -> Vec<String> {
    let name = case["format"].as_str().expect("a format");
    let format = Format::new(name, &["string"]).expect("a known format");
    let texts = |key: &str| case[key].as_array().into_iter().flatten().filter_map(Value::as_str);
    let refused = texts("good").filter(|text| !format.accepts(text)).map(|text| format!("{name} refuses {text:?}"));
    let accepted = texts("bad").filter(|text| format.accepts(text)).map(|text| format!("{name} accepts {text:?}"));
    refused.chain(accepted).collect()
}

#[test]
fn formats() {
    let cases: Vec<Value> = include_str!("cases/formats.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a case is JSON"))
        .collect();
    assert_eq!(cases.len(), 26, "every format has a line");
    let wrong: Vec<String> = cases.iter().flat_map(check).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_format_belongs_to_a_type() {
    let known = |name: &str, types: &[&str]| Format::new(name, types).is_some();
    assert!(known("int32", &["integer"]) && known("int64", &["integer"]));
    assert!(known("float", &["number"]) && known("double", &["number"]));
    assert!(known("date-time", &["string"]) && known("date", &[]) && known("date", &["integer", "string"]));
    assert!(!known("int32", &["number"]) && !known("date", &["integer"]) && !known("uint32", &["integer"]));
    assert!(!known("date", &["object"]) && !known("", &["string"]));
}
