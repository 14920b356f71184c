//! Tests what we make of objects before we store them. In: the types of every kind. Out: whether Go's types make the same of
//! objects in which one field has an odd value: null, empty, zero, a quantity or a time in another spelling. Go's types are asked
//! through a program of ours (`xtask/oracle/canonical`), which is built from the published modules of Kubernetes.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::{Value, json};

use konverge_schema::{
    Arena, Budget, EmptyLists, NullRules, Scalar, Shape, TypeId, canonicalize, check_types, kubernetes, prune,
};

/// Where the cases for the tests are.
const CASES: &str = "crates/schema/src/canonical/cases.jsonl";

/// How deep fields are looked at: a field of a container of a template is the fifth.
const DEPTH: usize = 7;

/// Longer cases are not for the tests.
const CASE_BYTES: usize = 430;

/// How many cases of one sort the tests get.
const CASES_OF_A_SORT: usize = 2;

/// Compares what we store of odd objects with what Go's types make of them
#[derive(Args, Debug)]
pub(crate) struct Canonical {
    /// Prints so many differences
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    show: usize,
    /// Only objects of this kind
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Writes some of the cases that agree for the tests, which need no Go
    #[arg(long)]
    write_cases: bool,
}

/// Compares every object.
pub(crate) fn run(options: &Canonical, root: &Path) -> Result<(), String> {
    let types = kubernetes();
    let mut objects = Vec::new();
    for (api_version, kind, name) in kinds(types) {
        let Some(ty) = types.named(&name) else { continue };
        if options.kind.as_ref().is_none_or(|wanted| *wanted == kind) {
            let mut samples = Vec::new();
            fields(types, ty, DEPTH, &mut samples);
            objects.extend(samples.into_iter().map(|(sort, mut object)| {
                object["apiVersion"] = api_version.as_str().into();
                object["kind"] = kind.as_str().into();
                (sort, name.clone(), ty, object)
            }));
        }
    }
    let answers = ask(root, objects.iter().map(|(.., object)| object.to_string()).collect())?;
    let (mut agreed, mut refused, mut differed) = (0, 0, Vec::new());
    let mut cases: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for ((sort, name, ty, object), answer) in objects.iter().zip(&answers) {
        let theirs = answer.get("object");
        let ours = ours(types, *ty, object);
        match (ours.as_ref().ok(), theirs) {
            (None, None) => refused += 1,
            (Some(ours), Some(theirs)) if ours == theirs => {
                agreed += 1;
                let of_sort = cases.entry(sort.clone()).or_default();
                if of_sort.len() < CASES_OF_A_SORT {
                    of_sort.push(json!({"type": name, "given": object, "expect": theirs}));
                }
            }
            _ => differed.push((sort, object, ours, answer)),
        }
    }
    println!("{agreed} objects are the same, {refused} are refused by both, {} differ", differed.len());
    let mut shown: HashMap<&String, usize> = HashMap::new();
    for (sort, object, ours, theirs) in &differed {
        let count = shown.entry(sort).or_default();
        *count += 1;
        if *count == 1 && shown.len() <= options.show {
            println!("{sort}\n  given  {object}\n  ours   {}\n  theirs {theirs}", text(ours));
        }
    }
    if options.write_cases {
        let lines = cases.values().flatten().map(|case| format!("{case}\n"));
        let lines: String = lines.filter(|line| line.len() <= CASE_BYTES).collect();
        std::fs::write(root.join(CASES), lines).map_err(|error| format!("{CASES}: {error}"))?;
    }
    Ok(())
}

fn text(ours: &Result<Value, String>) -> String {
    ours.as_ref().map_or_else(Clone::clone, Value::to_string)
}

/// What the server makes of an object before it fills in defaults.
fn ours(types: &Arena, ty: TypeId, object: &Value) -> Result<Value, String> {
    check_types(types, ty, object).map_err(|error| error.to_string())?;
    let mut object = object.clone();
    prune(types, ty, &mut object, NullRules::BuiltIn);
    let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    canonicalize(&api_version, &kind, &mut object, EmptyLists::Dropped, Budget::unlimited())
        .map_err(|error| error.to_string())?;
    Ok(object)
}

/// The kinds that have metadata: apiVersion, kind and the name of the type.
fn kinds(types: &Arena) -> Vec<(String, String, String)> {
    let mut kinds: Vec<_> = types
        .names()
        .filter(|(_, ty)| ["apiVersion", "kind", "metadata"].iter().all(|field| types.field(*ty, field).is_some()))
        .filter_map(|(name, _)| {
            let (package, kind) = name.rsplit_once('.')?;
            let group = match package.strip_prefix("io.k8s.api.").and_then(|package| package.rsplit_once('.')) {
                Some((group, version)) => api_version(group, version)?,
                None if package.ends_with("apiextensions.v1") => "apiextensions.k8s.io/v1".to_owned(),
                None => return None,
            };
            (!kind.ends_with("List")).then(|| (group, kind.to_owned(), name.to_owned()))
        })
        .collect();
    kinds.sort();
    kinds
}

fn api_version(package: &str, version: &str) -> Option<String> {
    let group = match package {
        "core" => return Some(version.to_owned()),
        "apps" | "autoscaling" | "batch" | "policy" => package.to_owned(),
        "flowcontrol" => "flowcontrol.apiserver.k8s.io".to_owned(),
        "rbac" => "rbac.authorization.k8s.io".to_owned(),
        other => format!("{other}.k8s.io"),
    };
    Some(format!("{group}/{version}"))
}

/// Objects of a type in which one field somewhere has an odd value, each with the sort of its oddity.
fn fields(types: &Arena, ty: TypeId, depth: usize, out: &mut Vec<(String, Value)>) {
    let Shape::Struct { fields: declared, .. } = &types.node(ty).shape else { return };
    for field in declared {
        if matches!(&*field.name, "apiVersion" | "kind" | "managedFields") {
            continue;
        }
        let mut values = Vec::new();
        self::values(types, field.ty, depth, &mut values);
        out.extend(values.into_iter().map(|(sort, value)| (sort, json!({&*field.name: value}))));
    }
}

fn values(types: &Arena, ty: TypeId, depth: usize, out: &mut Vec<(String, Value)>) {
    let node = types.node(ty);
    let mut add = |sort: &str, values: Vec<Value>| {
        out.extend(values.into_iter().map(|value| (format!("{sort} {value}"), value)));
    };
    match &node.shape {
        Shape::Scalar(Scalar::String) => add("string", vec![json!(""), json!("x"), Value::Null]),
        Shape::Scalar(Scalar::Bytes) => add("bytes", vec![json!(""), json!("eA=="), json!("eHh4\neA=="), Value::Null]),
        Shape::Scalar(Scalar::Int32 | Scalar::Int64) => add("integer", vec![json!(0), json!(7), Value::Null]),
        Shape::Scalar(Scalar::Number) => add("number", vec![json!(0), json!(1.0), json!(1.5), Value::Null]),
        Shape::Scalar(Scalar::Boolean) => add("boolean", vec![json!(false), json!(true), Value::Null]),
        Shape::Scalar(Scalar::IntOrString) => add("int-or-string", vec![json!(0), json!(5), json!(""), json!("10%")]),
        Shape::Scalar(Scalar::Time) => add(
            "time",
            [
                "2024-01-02T03:04:05Z",
                "2024-01-02T03:04:05.123456+02:00",
                "2024-01-02T03:04:05.999999999Z",
                "0001-01-01T00:00:00Z",
            ]
            .iter()
            .map(|text| json!(text))
            .chain([Value::Null])
            .collect(),
        ),
        Shape::Scalar(Scalar::MicroTime) => add(
            "micro-time",
            vec![json!("2024-01-02T03:04:05.123456+02:00"), json!("0001-01-01T00:00:00.000000Z"), Value::Null],
        ),
        Shape::Scalar(Scalar::Quantity) => add(
            "quantity",
            [
                "0",
                "0.5",
                "1024Mi",
                "1000",
                "1e3",
                "1.5Gi",
                "100000000n",
                "+1",
                "01",
                "1.50",
                "0.0001",
                "1Ei",
                "12e-3",
                "-2k",
                "1048576",
                "0Gi",
                "3.0",
                "1000Ki",
                "1e10",
                "500000u",
            ]
            .iter()
            .map(|text| json!(text))
            .chain([json!(2), json!(0.25), Value::Null])
            .collect(),
        ),
        Shape::Struct { .. } => {
            add("struct", vec![json!({}), Value::Null]);
            if depth > 0 {
                fields(types, ty, depth - 1, out);
            }
        }
        Shape::List { item, .. } => {
            add("list", vec![json!([]), Value::Null]);
            nested(types, *item, depth, out, |value| json!([value]));
        }
        Shape::Map { value, .. } => {
            add("map", vec![json!({}), Value::Null]);
            nested(types, *value, depth, out, |value| json!({"k": value}));
        }
        Shape::Any | Shape::Opaque => add("json", vec![json!({}), json!({"a": null, "b": ""})]),
    }
}

fn nested(types: &Arena, ty: TypeId, depth: usize, out: &mut Vec<(String, Value)>, around: impl Fn(Value) -> Value) {
    let mut inner = Vec::new();
    values(types, ty, depth, &mut inner);
    out.extend(inner.into_iter().map(|(sort, value)| (format!("in {sort}"), around(value))));
}

/// What Go's types make of these objects.
fn ask(root: &Path, objects: Vec<String>) -> Result<Vec<Value>, String> {
    let failed = |error: std::io::Error| format!("go: {error}");
    let mut command = Command::new("go");
    command.args(["run", "."]).current_dir(root.join("xtask/oracle/canonical"));
    let mut oracle = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut input = oracle.stdin.take().expect("it was piped");
    // It answers while it reads, so that both sides must not wait for each other.
    let writer = std::thread::spawn(move || objects.iter().try_for_each(|object| writeln!(input, "{object}")));
    let output = oracle.wait_with_output().map_err(failed)?;
    let written = writer.join().map_err(|_| "the objects could not be sent".to_owned())?;
    if !output.status.success() {
        return Err(format!("the program in xtask/oracle/canonical failed: {}", output.status));
    }
    written.map_err(failed)?;
    let text = String::from_utf8(output.stdout).map_err(|error| error.to_string())?;
    text.lines().map(|line| serde_json::from_str(line).map_err(|error| error.to_string())).collect()
}
