//! In: an authorization mode and a seed. Out: whether our decisions about random objects and requests are those of the authorizer
//! of Kubernetes. A Go program of ours (`xtask/oracle/rbac`, `xtask/oracle/node`), which is built with the sources of the release,
//! makes the cases and has the answers; a test of the API server compares.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::go_program;
use crate::source::Release;

/// Compares decisions about random objects and requests with those of Kubernetes.
#[derive(Args, Debug)]
pub(crate) struct Authorizer {
    #[command(flatten)]
    release: Release,
    /// Where the random numbers begin
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many sets of objects; each has 50 questions or more
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    worlds: usize,
    /// Folder below which the Go program is built
    #[arg(long, value_name = "DIR", default_value = "target/authorizers")]
    build: PathBuf,
    /// Keeps the cases for the tests instead of comparing
    #[arg(long)]
    keep: bool,
}

/// Makes the cases for a mode, `rbac` or `node`, and compares or keeps them.
pub(crate) fn run(mode: &str, options: &Authorizer, root: &Path) -> Result<(), String> {
    let build = options.build.join(mode);
    let program = go_program::build(&options.release, root, &format!("xtask/oracle/{mode}/main.go"), &build)?;
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
        // The cases that the test has without Go.
        let kept = format!("crates/apiserver/tests/it/{mode}/cases.jsonl.gz");
        println!("{kept}: {} bytes", bytes.len());
        return std::fs::write(root.join(&kept), bytes).map_err(|error| format!("{kept}: {error}"));
    }
    let cases = root.join(&build).join("cases.jsonl");
    std::fs::write(&cases, &output.stdout).map_err(|error| format!("{}: {error}", cases.display()))?;
    let mut test = Command::new(env!("CARGO"));
    test.args(["test", "-p", "konverge-apiserver", "--test", "it", &format!("{mode}::decisions")]).current_dir(root);
    let status = test.env("KONVERGE_AUTHORIZER_CASES", &cases).status();
    match status.map_err(|error| format!("cannot run cargo: {error}"))?.success() {
        true => Ok(()),
        false => Err(format!("decisions differ; the cases are in {}", cases.display())),
    }
}
