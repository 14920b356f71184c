//! In: a seed. Out: whether our decisions about random roles, bindings and requests are those of the authorizer of Kubernetes.
//! A Go program of ours (`xtask/oracle/rbac`), which is built with the sources of the release, makes the cases and has the
//! answers; a test of the API server compares.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::go_program;
use crate::source::Release;

/// The cases that the test has without Go.
const KEPT: &str = "crates/apiserver/tests/it/rbac/cases.jsonl.gz";

/// Compares decisions about random roles and bindings with those of Kubernetes.
#[derive(Args, Debug)]
pub(crate) struct Rbac {
    #[command(flatten)]
    release: Release,
    /// Where the random numbers begin
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many sets of roles and bindings; each has 50 questions
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    worlds: usize,
    /// Folder where the Go program is built
    #[arg(long, value_name = "DIR", default_value = "target/rbac-oracle")]
    build: PathBuf,
    /// Keeps the cases for the tests instead of comparing
    #[arg(long)]
    keep: bool,
}

/// Makes the cases, and compares or keeps them.
pub(crate) fn run(options: &Rbac, root: &Path) -> Result<(), String> {
    let program = go_program::build(&options.release, root, "xtask/oracle/rbac/main.go", &options.build)?;
    let arguments = [format!("-seed={}", options.seed), format!("-worlds={}", options.worlds)];
    let output = Command::new(&program).args(arguments).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    if options.keep {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&output.stdout).expect("writing to memory does not fail");
        let bytes = encoder.finish().expect("writing to memory does not fail");
        println!("{KEPT}: {} bytes", bytes.len());
        return std::fs::write(root.join(KEPT), bytes).map_err(|error| format!("{KEPT}: {error}"));
    }
    let cases = root.join(&options.build).join("cases.jsonl");
    std::fs::write(&cases, &output.stdout).map_err(|error| format!("{}: {error}", cases.display()))?;
    let mut test = Command::new(env!("CARGO"));
    test.args(["test", "-p", "konverge-apiserver", "--test", "it", "rbac::decisions"]).current_dir(root);
    let status = test.env("KONVERGE_RBAC_CASES", &cases).status();
    match status.map_err(|error| format!("cannot run cargo: {error}"))?.success() {
        true => Ok(()),
        false => Err(format!("decisions differ; the cases are in {}", cases.display())),
    }
}
