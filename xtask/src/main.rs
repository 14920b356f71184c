//! Generators and checks of this repository: `cargo xtask codegen`, `cargo xtask compatibility`, `cargo xtask round-trip`,
//! `cargo xtask canonical`, `cargo xtask cel`, `cargo xtask rbac`, `cargo xtask node`, `cargo xtask validation`, `cargo xtask tidy`;
//! and of its releases: `cargo xtask package`, `cargo xtask semver`, `cargo xtask dist`.
//! Nothing here is shipped.

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

mod authorizers;
mod canonical;
mod cel;
mod codegen;
mod compatibility;
mod dist;
mod go_program;
mod package;
mod round_trip;
mod semver;
mod source;
mod tidy;
mod validation;

/// Generators and checks of this repository
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Task {
    Canonical(canonical::Canonical),
    Cel(cel::Cel),
    Codegen(codegen::Codegen),
    Compatibility(compatibility::Compatibility),
    Dist(dist::Dist),
    Node(authorizers::Authorizer),
    Package(package::Package),
    Rbac(authorizers::Authorizer),
    RoundTrip(round_trip::RoundTrip),
    /// Compares the API of the crates with that of the newest tag, by cargo-semver-checks
    Semver,
    Validation(validation::Validation),
    /// Checks what no compiler checks: dependencies between crates, unused files, headers, ARCHITECTURE.md, unfinished code
    Tidy,
}

fn main() -> ExitCode {
    // As cargo says it now: clones that share a target directory share this program, and each means itself.
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let root = Path::new(&own).parent().expect("xtask is a folder of the workspace");
    let result = match Task::parse() {
        Task::Canonical(options) => canonical::run(&options, root),
        Task::Cel(options) => cel::run(&options, root),
        Task::Codegen(options) => codegen::run(&options, root),
        Task::Compatibility(options) => compatibility::run(&options, root),
        Task::Dist(options) => dist::run(&options, root),
        Task::Node(options) => authorizers::run("node", &options, root),
        Task::Package(options) => package::run(&options, root),
        Task::Rbac(options) => authorizers::run("rbac", &options, root),
        Task::RoundTrip(options) => round_trip::run(&options),
        Task::Semver => semver::run(root),
        Task::Validation(options) => validation::run(&options, root),
        Task::Tidy => tidy::run(root),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}
