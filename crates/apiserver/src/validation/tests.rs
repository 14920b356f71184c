//! Tests of `validation`, as tables. `objects.jsonl` has good objects, and `cases.jsonl` has mutations of them with the errors
//! that the registries of Kubernetes 1.36.4 report; `cargo xtask validation --write-cases` writes the latter.

use konverge_core::FieldError;

use super::*;

const OBJECTS: &str = include_str!("objects.jsonl");
const CASES: &str = include_str!("cases.jsonl");

#[test]
fn the_table_is_read() {
    let table = ValidationTable::read(include_str!("../../data/kubernetes.validation"), kubernetes());
    assert!(table.is_ok(), "{:?}", table.err());
}

#[test]
fn broken_tables_name_the_line() {
    let core = "@core io.k8s.api.core.v1\n";
    for (text, expect) in [
        ("  name required\n", "line 2: \"  name required\" is not understood"),
        ("core.Pad\n", "line 2: \"core.Pad\" is not understood"),
        ("core.Pod\n  spec strange\n", "line 3: \"  spec strange\" is not understood"),
        ("core.Pod\n  spec.host required\n", "line 3: there is no field host"),
        ("core.Pod\n  spec\n", "line 3: there are no rules \"\" of this type"),
        ("core.Pod\n  spec[] required\n", "line 3: spec is no list or map"),
        ("core.Pod\n  spec call nobody\n", "line 3: \"  spec call nobody\" is not understood"),
        ("core.Pod\ncore.Pod\n", "line 3: core.Pod is here twice"),
    ] {
        let text: &'static str = format!("{core}{text}").leak();
        assert_eq!(ValidationTable::read(text, kubernetes()).err().unwrap(), expect, "{text}");
    }
}

fn shown(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(|error| format!("{}: {}", error.cause().field, error.cause().message)).collect()
}

fn objects() -> Vec<Value> {
    OBJECTS.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn good_objects_have_no_errors() {
    for object in objects() {
        assert_eq!(shown(&check_object(&object, None).unwrap()), Vec::<String>::new(), "{object}");
        // As a client reads it, and sends it back.
        let version = object["apiVersion"].as_str().unwrap();
        let is_kind = |resource: &&Arc<Resource>| object["kind"] == *resource.kind && resource.is_api_version(version);
        let resource = served().iter().find(is_kind).unwrap();
        let stored = prepared(resource, &object, None).unwrap();
        assert_eq!(shown(&check_object(&stored, Some(&object)).unwrap()), Vec::<String>::new(), "{object}");
    }
}

/// An object with another value at a pointer; without a value, with nothing there.
fn mutated(object: &Value, at: &str, value: Option<&Value>) -> Value {
    let mut object = object.clone();
    let (parent, name) = at.rsplit_once('/').unwrap();
    let name = name.replace("~1", "/").replace("~0", "~");
    match (object.pointer_mut(parent).unwrap(), value) {
        (Value::Object(fields), Some(value)) => drop(fields.insert(name, value.clone())),
        (Value::Object(fields), None) => drop(fields.remove(&name)),
        (Value::Array(items), value) => {
            let index: usize = name.parse().unwrap();
            match value {
                Some(value) if index < items.len() => items[index] = value.clone(),
                Some(value) => items.push(value.clone()),
                None => drop(items.remove(index)),
            }
        }
        _ => panic!("{at}"),
    }
    object
}

#[test]
fn bad_objects_have_the_errors_of_a_cluster() {
    let objects = objects();
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let good = &objects[case["object"].as_u64().unwrap() as usize];
        let bad = mutated(good, case["at"].as_str().unwrap(), case.get("value"));
        let old = (case["update"] == true).then_some(good);
        let errors = shown(&check_object(&bad, old).unwrap());
        let expect: Vec<&str> = case["errors"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
        assert_eq!(errors, expect, "{} {line}", good["kind"]);
    }
}

#[test]
fn a_walk_pays_for_its_work() {
    let resource = served().iter().find(|resource| &*resource.kind == "Pod").unwrap();
    let pod = objects().into_iter().find(|object| object["kind"] == "Pod").unwrap();
    let budget = Budget::new(50, 1000);
    let outcome = check(resource, Subresource::Main, None, &pod, &budget);
    assert_eq!(outcome.unwrap_err(), OverBudget::Steps);
}
