//! Custom resources through prune, default and validate, case by case. `cases/custom.jsonl` has a line with a schema and
//! below it, indented, the objects written against it: `given`, `then` if the object changes, `unknown` fields and
//! `errors`, each as `reason|text`. The expectations are what Kubernetes 1.36 says.

use konverge_schema::{
    Arena, Budget, Field, Node, NullRules, OBJECT_META, Scalar, Shape, TypeId, compile, default, prune, validate,
};
use serde_json::Value;

/// Enough of ObjectMeta for the cases.
fn object_meta(arena: &mut Arena) -> TypeId {
    let string = arena.add(Node { shape: Shape::Scalar(Scalar::String), ..Node::default() });
    let labels = arena.add(Node { shape: Shape::Map { value: string, atomic: false }, ..Node::default() });
    let field = |name: &str, ty| Field { name: name.into(), ty, required: false };
    let fields = Box::new([field("labels", labels), field("name", string)]);
    let meta = arena.add(Node { shape: Shape::Struct { fields, open: false, atomic: false }, ..Node::default() });
    arena.name(OBJECT_META, meta);
    meta
}

fn check(name: &str, schema: &Value, case: &Value) -> Result<(), String> {
    let mut arena = Arena::default();
    object_meta(&mut arena);
    let root = compile(&mut arena, Some(schema)).map_err(|why| format!("{name}: {why}"))?;
    let mut object = case["given"].clone();
    let unknown = prune(&arena, root, &mut object, NullRules::Custom);
    let budget = Budget::new(10_000, 10_000);
    default(&arena, root, &mut object, &budget).map_err(|why| format!("{name}: {why}"))?;
    let errors = validate(&arena, root, &object, &budget).map_err(|why| format!("{name}: {why}"))?;
    let mut errors: Vec<String> = errors.iter().map(|error| format!("{}|{error}", error.kind.reason())).collect();
    errors.sort();
    let texts = |key: &str| -> Vec<String> {
        case[key].as_array().into_iter().flatten().map(|text| text.as_str().expect("a text").to_owned()).collect()
    };
    let then = case.get("then").unwrap_or(&case["given"]);
    let same = &object == then && unknown == texts("unknown") && errors == texts("errors");
    same.then_some(())
        .ok_or_else(|| format!("{name}: {case}\n  is {object}\n  unknown {unknown:#?}\n  errors {errors:#?}"))
}

#[test]
fn custom_resources() {
    let mut wrong = Vec::new();
    let mut schema = Value::Null;
    let mut checked = 0;
    for line in include_str!("cases/custom.jsonl").lines() {
        let value: Value = serde_json::from_str(line).expect("a case is JSON");
        if line.starts_with(' ') {
            let name = schema["name"].as_str().expect("a schema has a name");
            wrong.extend(check(name, &schema["schema"], &value).err());
            checked += 1;
        } else {
            schema = value;
        }
    }
    assert!(checked > 400, "only {checked} cases were read");
    assert!(wrong.is_empty(), "{} of {checked}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn without_a_schema_everything_is_kept() {
    let mut arena = Arena::default();
    object_meta(&mut arena);
    let root = compile(&mut arena, None).expect("nothing to refuse");
    let given =
        serde_json::json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a", "odd": 1}, "x": {"y": null}});
    let mut object = given.clone();
    assert_eq!(prune(&arena, root, &mut object, NullRules::Custom), ["metadata.odd"]);
    assert_eq!(object["x"], given["x"]);
    assert_eq!(validate(&arena, root, &object, Budget::unlimited()), Ok(Vec::new()));
}

#[test]
fn rules_are_kept_as_data() {
    let compiled = |schema: &Value| {
        let mut arena = Arena::default();
        compile(&mut arena, Some(schema)).expect("a good schema");
        arena.has_rules()
    };
    let rule = serde_json::json!([{"rule": "self.size() > 0"}]);
    let string = serde_json::json!({"type": "string", "x-kubernetes-validations": rule});
    assert!(compiled(&serde_json::json!({"type": "object", "properties": {"a": string}})));
    assert!(!compiled(&serde_json::json!({"type": "object", "properties": {"a": {"type": "string"}}})));
}
