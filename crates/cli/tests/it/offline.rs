//! Commands that need no server: `konverge validate` and `konverge crd diff`, with their exit codes.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: shops, kind: Shop}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, maximum: 10, default: 3}
            x-kubernetes-validations:
            - {rule: self.size != 7, message: not seven}
";

fn shop(size: &str) -> String {
    format!("apiVersion: example.com/v1\nkind: Shop\nmetadata: {{name: a}}\nspec: {{{size}}}\n")
}

/// The exit code, and what was printed to both ends.
fn konverge(directory: &Path, arguments: &[&str], input: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_konverge"));
    command.args(arguments).current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("it starts");
    process.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    let output = process.wait_with_output().expect("it ends");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.code(), text)
}

#[test]
fn objects_are_judged_without_a_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("a file");
    fs::create_dir(directory.path().join("crds")).expect("a directory");
    write("crds/shop.yaml", CRD);
    write("good.yaml", &shop(""));
    write("bad.yaml", &format!("{}---\n{}---\n{}", shop("size: 1"), shop("size: 11"), shop("size: 7")));
    write("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: []}\n");
    let with = |file: &'static str| vec!["validate", "-f", file, "--crds", "crds"];
    let table: [(Vec<&str>, &str, i32, &[&str]); 10] = [
        (with("good.yaml"), "", 0, &["good.yaml: Shop a is valid", "1 valid, 0 not valid"]),
        (
            with("bad.yaml"),
            "",
            1,
            &[
                "bad.yaml document 1: Shop a is valid",
                "bad.yaml document 2: Shop a is not valid\n  spec.size: Invalid value: 11",
                "  spec: Invalid value: not seven",
                "1 valid, 2 not valid",
            ],
        ),
        (with("-"), &shop("size: 11"), 1, &["standard input: Shop a is not valid"]),
        (with("pod.yaml"), "", 1, &["spec.containers: Required value"]),
        (
            vec!["validate", "-f", "good.yaml"],
            "",
            1,
            &["no matches for kind \"Shop\" in version \"example.com/v1\"; name the file", "with --crds"],
        ),
        // CRDs among the objects are used, too.
        (
            vec!["validate", "-f", "good.yaml", "-f", "crds"],
            "",
            0,
            &["CustomResourceDefinition shops.example.com is valid"],
        ),
        (vec!["validate", "-f", "good.yaml", "--crds", "crds", "-o", "yaml"], "", 0, &["size: 3"]),
        (
            vec!["validate", "-f", "bad.yaml", "--crds", "crds", "-o", "json"],
            "",
            1,
            &["\"valid\": false", "\"field\": \"spec.size\""],
        ),
        (with("none.yaml"), "", 2, &["error: cannot read none.yaml"]),
        (vec!["validate"], "", 2, &["--filename <PATH>"]),
    ];
    for (arguments, input, code, expect) in table {
        let (found, text) = konverge(directory.path(), &arguments, input);
        assert_eq!(found, Some(code), "{arguments:?}: {text}");
        for part in expect {
            assert!(text.contains(part), "{arguments:?}: {part:?} is not in {text}");
        }
    }
}

#[test]
fn a_new_definition_is_compared_with_the_old_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("a file");
    write("old.yaml", CRD);
    write("looser.yaml", &CRD.replace("maximum: 10", "maximum: 20"));
    write("tighter.yaml", &CRD.replace("maximum: 10", "maximum: 5"));
    write("none.yaml", &shop(""));
    for (new, output, code, expect) in [
        ("old.yaml", "text", 0, "nothing that anybody notices"),
        ("looser.yaml", "text", 0, "fine    versions[v1].spec.size: maximum raised from 10 to 20"),
        ("tighter.yaml", "text", 1, "BREAKS  versions[v1].spec.size: maximum lowered from 10 to 5"),
        ("tighter.yaml", "json", 1, "\"path\": \"versions[v1].spec.size\""),
        ("none.yaml", "text", 2, "error: there is no CustomResourceDefinition in none.yaml"),
        ("missing.yaml", "text", 2, "error: cannot read missing.yaml"),
    ] {
        let (found, text) = konverge(directory.path(), &["crd", "diff", "old.yaml", new, "-o", output], "");
        assert_eq!(found, Some(code), "{new}: {text}");
        assert!(text.contains(expect), "{new}: {text}");
    }
}
