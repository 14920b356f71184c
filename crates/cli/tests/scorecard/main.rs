//! `konverge scorecard` over real operators: one that is right, and some that are wrong. Cargo is a script, and the operators are this very program: it runs
//! one of them if the environment names it, and otherwise the tests.

#![cfg(unix)]

mod operators;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The variable that names the operator to run.
const OPERATOR: &str = "SCORECARD_TEST_OPERATOR";

type Test = (&'static str, fn());

const TESTS: [Test; 7] = [
    ("an_operator_that_is_right", an_operator_that_is_right),
    ("one_that_converts_between_versions", one_that_converts_between_versions),
    ("one_that_writes_in_every_reconcile", one_that_writes_in_every_reconcile),
    ("one_that_lacks_a_right", one_that_lacks_a_right),
    ("one_that_is_killed_and_forgets", one_that_is_killed_and_forgets),
    ("one_that_ends_at_once", one_that_ends_at_once),
    ("what_cannot_be_measured_is_said", what_cannot_be_measured_is_said),
];

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(OPERATOR) {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        return match runtime.block_on(operators::run(&name)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_list = arguments.iter().any(|argument| argument == "--list");
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    for (name, test) in TESTS {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        if is_list {
            println!("{name}: test");
            continue;
        }
        // A panic ends the program with its message and a code that is not 0.
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

/// Builds by writing a script that runs this program as an operator.
const CARGO: &str = r#"#!/bin/sh
home=$(dirname "$0")
case "$1" in
metadata) cat "$home/metadata.json" ;;
build) printf '{"reason":"compiler-artifact","target":{"name":"shop"},"executable":"%s"}\n' "$home/right" ;;
esac
"#;

const SAMPLE: &str = "apiVersion: example.com/v1
kind: Shop
metadata: {name: web, namespace: shops}
spec: {replicas: 2}
";

/// How a backup is asked for, and how success is told.
const DECLARED: &str = "backup:
  apply:
  - {apiVersion: example.com/v1, kind: Shop, metadata: {name: web, namespace: shops}, spec: {backup: true, replicas: 2}}
  until: {object: {apiVersion: v1, kind: ConfigMap, name: web-backup, namespace: shops}, field: .data.done, equals: 'yes'}
";

/// A project with an operator.
struct Shop {
    _folder: TempDir,
    home: PathBuf,
}

impl Shop {
    fn new(operator: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = fs::canonicalize(folder.path()).expect("it is there");
        let shop = Self { _folder: folder, home };
        let metadata = json!({"workspace_root": shop.home, "packages": [{
            "id": "shop", "name": "shop", "version": "1.2.3", "description": "Shops", "license": "MIT",
            "manifest_path": shop.home.join("Cargo.toml"), "targets": [{"name": "shop", "kind": ["bin"]}], "default_run": null,
            "dependencies": [{"name": "konverge", "kind": null}], "metadata": null, "authors": ["Ann <ann@example.com>"],
        }]});
        shop.write("metadata.json", &metadata.to_string());
        shop.write("Cargo.toml", "[dependencies]\nkonverge = '1'\n");
        shop.write("config/samples/shop.yaml", SAMPLE);
        shop.script("cargo", CARGO);
        shop.executable("right", operator);
        shop
    }

    /// Writes an executable that is the operator of a name.
    fn executable(&self, file: &str, operator: &str) {
        let this = std::env::current_exe().expect("it runs");
        self.script(file, &format!("#!/bin/sh\nexport {OPERATOR}={operator}\nexec '{}' \"$@\"\n", this.display()));
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.home.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    fn script(&self, name: &str, text: &str) {
        self.write(name, text);
        fs::set_permissions(self.home.join(name), fs::Permissions::from_mode(0o755)).expect("it is ours");
    }

    /// The exit code, and what it said on both ways.
    fn scorecard(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_konverge"));
        command.arg("scorecard").args(arguments).current_dir(&self.home).env("CARGO", self.home.join("cargo"));
        command.env_remove("RUST_LOG").env("KUBECONFIG", "/nonexistent").stdin(Stdio::null());
        let output = command.output().expect("it starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// The report as JSON, and the exit code.
    #[track_caller]
    fn report(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let (code, said, complained) = self.scorecard(&[arguments, &["-o", "json"]].concat());
        let report = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}{complained}"));
        (code, report)
    }
}

/// How the check of a name ended, and what was said about it.
#[track_caller]
fn check(report: &Value, name: &str, outcome: &str, expect: &str) {
    let all = report["checks"].as_array().expect("a list");
    let found = all.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name} is not in {report:#}"));
    assert!(found["outcome"] == outcome && found.to_string().contains(expect), "{found:#}");
}

fn an_operator_that_is_right() {
    let shop = Shop::new("right");
    shop.write("scorecard.yaml", DECLARED);
    let previous = shop.home.join("right").display().to_string();
    let (code, report) = shop.report(&["--level", "2", "--previous", &previous]);
    for (name, expect) in [
        ("install", "Pods of the operator are ready"),
        ("start", "under the rights"),
        ("samples", "1 sample,"),
        ("basic-check-spec", ""),
        ("crd-compatible", ""),
        ("upgrade", "kept: 2 objects"),
        ("version-skew", ""),
        ("update", "1 sample scaled"),
        ("cleanup", ""),
        ("failure-recovery", "it comes to the same end"),
        ("backup", "web-backup"),
        ("metrics", "reconciles are counted"),
        ("events", "Shop shops/web"),
        ("logs", "JSON"),
        ("healing", "1 were deleted and 1 changed"),
        ("idempotent", "wrote nothing"),
        ("status-conditions", ""),
        ("owner-references", ""),
        ("finalizers", ""),
        ("resource-limits", "2 containers"),
        ("security-context", "2 containers"),
        ("crd-structural", ""),
        ("crd-documented", ""),
        ("survives-restart", "killed at "),
        ("olm-bundle-validation", ""),
        ("olm-crds-have-resources", ""),
        ("olm-crds-have-validation", ""),
        ("olm-spec-descriptors", ""),
        ("olm-status-descriptors", ""),
    ] {
        check(&report, name, "passed", expect);
    }
    // The sample asks for no backup, so the right to write ConfigMaps is not used: it needs another sample.
    check(&report, "least-privilege", "failed", "configmaps");
    check(&report, "alerts", "failed", "konverge generate monitoring");
    check(&report, "usage", "failed", "register metrics");
    check(&report, "restore", "notMeasured", "scorecard.yaml");
    check(&report, "autoscaling", "notMeasured", "scorecard.yaml");
    assert_eq!((code, &report["level"]), (Some(0), &json!(2)), "{report:#}");
    assert!(
        report["summary"].as_str().is_some_and(|text| text.starts_with("shop 1.2.3 is at level 2 of 5")),
        "{report:#}"
    );
}

fn one_that_converts_between_versions() {
    let shop = Shop::new("converting");
    // A sample in the version that is not stored is converted with each write.
    let old = "apiVersion: example.com/v1beta1\nkind: Shop\nmetadata: {name: old, namespace: shops}\nspec: {size: 1}\n";
    shop.write("config/samples/old.yaml", old);
    let previous = shop.home.join("right").display().to_string();
    let (code, report) = shop.report(&["--only", "version-skew,upgrade", "--previous", &previous]);
    check(&report, "version-skew", "passed", "");
    check(&report, "upgrade", "passed", "kept: 4 objects");
    assert_eq!(code, Some(0), "{report:#}");

    // The previous version knows nothing of conversions, and its objects are stored in another version with its next write.
    shop.executable("older", "older");
    let previous = shop.home.join("older").display().to_string();
    let only = ["--only", "version-skew,upgrade", "--samples", "config/samples/old.yaml", "--previous", &previous];
    let (code, report) = shop.report(&only);
    check(&report, "version-skew", "passed", "");
    check(&report, "upgrade", "passed", "kept: 2 objects");
    assert_eq!(code, Some(0), "{report:#}");
}

fn one_that_writes_in_every_reconcile() {
    let (code, report) = Shop::new("chatty").report(&["--only", "idempotent,owner-references"]);
    check(&report, "idempotent", "failed", "after a restart: ");
    check(&report, "owner-references", "passed", "");
    assert_eq!(code, Some(1));
}

fn one_that_lacks_a_right() {
    let (code, report) = Shop::new("forbidden").report(&["--only", "samples,least-privilege"]);
    check(&report, "samples", "failed", "this operator may not watch Secret");
    check(&report, "least-privilege", "failed", "lacking: ");
    assert_eq!(code, Some(1));
}

fn one_that_is_killed_and_forgets() {
    let (code, report) = Shop::new("forgetful").report(&["--only", "survives-restart,idempotent"]);
    check(&report, "survives-restart", "failed", "ConfigMap shops/web is missing");
    // Nobody who only looks at a second reconcile would have found it.
    check(&report, "idempotent", "passed", "");
    assert_eq!(code, Some(1));
}

fn one_that_ends_at_once() {
    let (code, report) = Shop::new("crashing").report(&["--only", "start,samples,idempotent"]);
    check(&report, "start", "failed", "no luck today");
    check(&report, "samples", "notMeasured", "did not start");
    check(&report, "idempotent", "notMeasured", "did not start");
    assert_eq!(code, Some(1));
    let (code, said, _) = Shop::new("crashing").scorecard(&["--level", "1", "--skip", "olm-bundle-validation"]);
    assert_eq!(code, Some(1));
    assert!(said.trim_end().ends_with("is below level 1 of 5; level 1 lacks start, samples"), "{said}");
}

fn what_cannot_be_measured_is_said() {
    let shop = Shop::new("right");
    for (arguments, expect) in [
        (&["--only", "nonsense"][..], "there is no check \"nonsense\"; `konverge scorecard --list`"),
        (&["--previous", "v0.0.1"], "there is no such file, and git does not know such a revision"),
        (&["--samples", "nowhere"], "the samples cannot be read"),
        (&["--settle", "1m"], "nothing would ever come to rest"),
        (&["--level", "6"], "6 is not in 1..=5"),
        (&["--level", "1", "--only", "start"], "cannot be used with"),
    ] {
        let (code, said, complained) = shop.scorecard(arguments);
        assert_eq!((code, said.as_str()), (Some(2), ""), "{arguments:?}: {complained}");
        assert!(complained.contains(expect), "{arguments:?}: {complained}");
    }
    shop.write("scorecard.yaml", "backups: {}\n");
    assert_eq!(shop.scorecard(&[]).0, Some(2));
    fs::remove_file(shop.home.join("scorecard.yaml")).expect("it is there");
    fs::remove_dir_all(shop.home.join("config")).expect("it is there");
    let (code, said, _) = shop.scorecard(&["--only", "samples,basic-check-spec"]);
    assert!(code == Some(1) && said.contains("write an object of each kind to config/samples"), "{said}");
    let (code, said, _) = shop.scorecard(&["--list"]);
    assert!(code == Some(0) && said.contains("olm-status-descriptors"), "{said}");
    fs::remove_file(shop.home.join("Cargo.toml")).expect("it is there");
    let (code, _, complained) = shop.scorecard(&[]);
    assert!(code == Some(2) && complained.contains("konverge init"), "{complained}");
}
