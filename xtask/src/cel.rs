//! In: rules in CEL, and objects to judge by them. Out: what Kubernetes says of them, beside the tests of `konverge-cel`. Asks a
//! program in Go (`xtask/oracle/cel`) that is built from the published modules of Kubernetes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::{Value, json};

/// Asks Kubernetes again what it says of the rules that konverge-cel is tested with
#[derive(Args, Debug)]
pub(crate) struct Cel {
    /// Only say whether the stored answers are current
    #[arg(long)]
    check: bool,
}

/// Stores the answers, or compares them.
pub(crate) fn run(options: &Cel, root: &Path) -> Result<(), String> {
    let data = root.join("crates/cel/data");
    let read = |name: &str| {
        let path = data.join(name);
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let fixture: Value = serde_json::from_str(&read("fixture.json")?).map_err(|error| error.to_string())?;
    let rules = read("expressions.txt")?;
    let rules: Vec<&str> = rules.lines().filter(|line| !line.trim().is_empty()).collect();
    let with_rule = |rule: &&str| {
        let mut schema = fixture["schema"].clone();
        schema["x-kubernetes-validations"] = json!([{"rule": rule, "message": "m"}]);
        json!({"schema": schema, "objects": [{"new": fixture["object"]}]}).to_string()
    };
    let answers = ask(root, rules.iter().map(with_rule).collect())?;
    let expressions = rules.iter().zip(answers).map(|(rule, answer)| brief(rule, &answer));
    store(options, &data.join("expressions.jsonl"), expressions.collect())?;
    let cases = read("cases.jsonl")?;
    let answers = ask(root, cases.lines().map(str::to_owned).collect())?;
    store(options, &data.join("cases.jsonl"), answers)
}

/// The answers of Kubernetes to these cases.
fn ask(root: &Path, cases: Vec<String>) -> Result<Vec<Value>, String> {
    let failed = |error: std::io::Error| format!("go: {error}");
    let mut command = Command::new("go");
    command.args(["run", "."]).current_dir(root.join("xtask/oracle/cel"));
    let mut oracle = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut input = oracle.stdin.take().expect("it was piped");
    // It answers while it reads, so that both sides must not wait for each other.
    let writer = std::thread::spawn(move || cases.iter().try_for_each(|case| writeln!(input, "{case}")));
    let output = oracle.wait_with_output().map_err(failed)?;
    let written = writer.join().map_err(|_| "the cases could not be sent".to_owned())?;
    if !output.status.success() {
        return Err(format!("the program in xtask/oracle/cel failed: {}", output.status));
    }
    written.map_err(failed)?;
    let text = String::from_utf8(output.stdout).map_err(|error| error.to_string())?;
    text.lines().map(|line| serde_json::from_str(&without_counter(line)).map_err(|error| error.to_string())).collect()
}

/// Kubernetes numbers the types of rules by the clock; ours all have the number 1.
fn without_counter(line: &str) -> String {
    let mut parts = line.split("selfType");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("selfType1");
        out.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    out
}

/// The answers to a rule of the fixture. A rule that does not compile says nothing of objects; one that only could be too
/// expensive does.
fn brief(rule: &str, answer: &Value) -> Value {
    let mut brief = json!({"rule": rule});
    let errors = answer["definition"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !errors.is_empty() {
        brief["definition"] = answer["definition"].clone();
    }
    if let Some(estimate) = answer["estimates"].get(0) {
        brief["estimate"] = estimate.clone();
    }
    let expensive =
        |error: &Value| error.as_str().is_some_and(|text| text.contains("Forbidden: ") && text.contains("cost"));
    if errors.iter().all(expensive) {
        for field in ["errors", "cost"] {
            if let Some(value) = answer["objects"][0].get(field) {
                brief[field] = value.clone();
            }
        }
    }
    brief
}

fn store(options: &Cel, path: &Path, answers: Vec<Value>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let text: String = answers.iter().map(|answer| format!("{answer}\n")).collect();
    if !options.check {
        return std::fs::write(path, text).map_err(failed);
    }
    let stored = std::fs::read_to_string(path).map_err(failed)?;
    let differs = stored.lines().zip(text.lines()).find(|(stored, now)| stored != now);
    match differs {
        Some((stored, now)) => Err(format!("{}:\nstored {stored}\nnow    {now}", path.display())),
        None if stored.len() != text.len() => Err(format!("{}: answers are missing", path.display())),
        None => Ok(()),
    }
}
