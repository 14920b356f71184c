//! Standard output that nobody reads, and one that cannot be written: commands do their whole work, and an answer that was cut off does not
//! look like a whole one.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};

const MANIFEST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

/// Each does its work in the directory that those before it left.
const COMMANDS: [&str; 9] = [
    "version",
    "completion bash",
    "man",
    "init --domain example.com --dir shop --konverge-version 0.1.0",
    "create api --group shops --version v1 --kind Shop --dry-run",
    "create api --group shops --version v1 --kind Shop",
    "create webhook --kind Shop --validation",
    "validate -f manifest.yaml",
    "scorecard --list",
];

/// Runs a command; its exit code and what it complains about.
fn run(directory: &Path, line: &str, stdout: Stdio) -> (Option<i32>, String) {
    let directory = if line.starts_with("create ") { directory.join("shop") } else { directory.to_owned() };
    let mut command = Command::new(env!("CARGO_BIN_EXE_konverge"));
    command.args(line.split(' ')).current_dir(directory).env_remove("RUST_LOG").stdin(Stdio::null()).stdout(stdout);
    let output = command.output().expect("it starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A pipe that nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// All files below a directory, with their texts.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(directory).expect("below it").display().to_string();
                found.insert(name, fs::read(&path).expect("a file"));
            }
        }
    }
    found
}

#[test]
fn commands_do_their_work_without_a_reader() {
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").expect("a device"));
    let places = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
    for place in &places {
        fs::write(place.path().join("manifest.yaml"), MANIFEST).expect("written");
    }
    let [read, unread, unwritten] = places.each_ref().map(|place| place.path());
    for line in COMMANDS {
        let (code, _) = run(read, line, Stdio::null());
        assert_eq!(code, Some(0), "{line}");
        let (code, error) = run(unread, line, closed());
        assert_eq!((code, error.contains("panicked")), (Some(0), false), "{line} | true: {error}");
        // Only Linux has a device that is always full.
        if cfg!(target_os = "linux") {
            let (code, error) = run(unwritten, line, full());
            let expect = "error: cannot write to standard output: No space left on device (os error 28)\n";
            assert_eq!(code, Some(1), "{line} > /dev/full: {error}");
            assert!(error.ends_with(expect) && !error.contains("panicked"), "{line} > /dev/full: {error}");
            assert_eq!(files(read), files(unwritten), "{line}");
        }
        assert_eq!(files(read), files(unread), "{line}");
    }
}

#[test]
fn what_goes_wrong_is_told_by_the_exit_code_if_nobody_reads_why() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_konverge"));
    command.args(["validate", "-f", "/nonexistent"]).env_remove("RUST_LOG").stdout(closed()).stderr(closed());
    assert_eq!(command.status().expect("it starts").code(), Some(2));
}
