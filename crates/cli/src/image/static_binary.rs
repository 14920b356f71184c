//! An executable that needs no file beside it, for an image without a base. In: a project. Out: its bytes, checked to be static. musl's target is taken
//! if it is installed; otherwise glibc is linked statically, which works on this machine's own architecture.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::project::{CompileError, CompileOptions, Project};

/// A static executable.
pub(super) struct StaticBinary {
    pub content: Vec<u8>,
    /// The Rust target that it was built for.
    pub triple: String,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum StaticError {
    #[error(
        "an image needs a program for Linux, and this is another system; `rustup target add {0}` with a linker for it, then `konverge build --target {0}`; \
         or use the Dockerfile with docker or podman"
    )]
    NotLinux(String),
    #[error(
        "the static build for {triple} failed; {}",
        if triple.ends_with("musl") {
            "C code of dependencies needs a compiler for musl: install musl-tools (it has musl-gcc), or set CC"
        } else {
            "glibc's static libraries may be missing (libc6-dev, glibc-static); `rustup target add ARCH-unknown-linux-musl` and musl-tools are the other way"
        }
    )]
    Compile {
        triple: String,
        #[source]
        source: CompileError,
    },
    #[error(
        "the binary for {0} is not static: it names a loader for shared libraries, and the image has none; `rustup target add {1}` and build again, or use \
         the Dockerfile with docker or podman"
    )]
    Dynamic(String, String),
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("images for {0} are not known here: x86_64 and aarch64 are")]
    Architecture(String),
}

impl StaticBinary {
    /// Builds it.
    pub(super) fn build(
        project: &Project,
        target: Option<&str>,
        profile: &str,
        is_auditable: bool,
    ) -> Result<Self, StaticError> {
        let musl = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
        let gnu = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let triple = match target {
            Some(target) => target.to_owned(),
            None if is_installed(&musl) => musl.clone(),
            None if cfg!(target_os = "linux") => gnu,
            None => return Err(StaticError::NotLinux(musl)),
        };
        architecture(&triple)?;
        let mut variables = Vec::new();
        let in_capitals = triple.to_uppercase().replace('-', "_");
        if triple.ends_with("-gnu") {
            variables
                .push((format!("CARGO_TARGET_{in_capitals}_RUSTFLAGS"), "-C target-feature=+crt-static".to_owned()));
        }
        let compiler = format!("CC_{}", triple.replace('-', "_"));
        if triple.ends_with("-musl") && std::env::var_os(&compiler).is_none() && starts("musl-gcc") {
            variables.push((compiler, "musl-gcc".to_owned()));
        }
        // With a target of their own, programs that run during the build are not linked statically, which would break procedural macros.
        let arguments = ["--profile", profile, "--target", &triple].map(str::to_owned).into();
        let subcommand = if is_auditable { &["auditable", "build"][..] } else { &["build"] };
        let options = CompileOptions { subcommand, arguments, variables };
        let executable =
            project.compile_with(&options).map_err(|source| StaticError::Compile { triple: triple.clone(), source })?;
        let content = read(&executable)?;
        match names_interpreter(&content) {
            true => Err(StaticError::Dynamic(triple, musl)),
            false => Ok(Self { content, triple }),
        }
    }

    /// As Go and images call it.
    pub(super) fn architecture(&self) -> &'static str {
        architecture(&self.triple).unwrap_or_default()
    }
}

fn architecture(triple: &str) -> Result<&'static str, StaticError> {
    match triple.split('-').next() {
        Some("x86_64") => Ok("amd64"),
        Some("aarch64") => Ok("arm64"),
        _ => Err(StaticError::Architecture(triple.to_owned())),
    }
}

/// Whether the standard library for a target is there.
fn is_installed(triple: &str) -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output =
        Command::new(rustc).args(["--print", "target-libdir", "--target", triple]).stdin(Stdio::null()).output();
    output.is_ok_and(|output| {
        output.status.success() && Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
    })
}

fn starts(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn read(executable: &Path) -> Result<Vec<u8>, StaticError> {
    std::fs::read(executable).map_err(|error| StaticError::Read(executable.to_owned(), error))
}

/// Whether a program (64-bit ELF) names a loader for shared libraries.
fn names_interpreter(program: &[u8]) -> bool {
    /// The segment with the path of the loader.
    const INTERPRETER: u32 = 3;
    let number = |at: usize, size: usize| -> Option<usize> {
        let bytes = program.get(at..at + size)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    };
    let segments = || {
        let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        Some(
            (0..count)
                .filter_map(move |segment| number(start + segment * size, 4))
                .any(|kind| kind == INTERPRETER as usize),
        )
    };
    // What is no ELF at all is not run by an image either.
    !program.starts_with(b"\x7fELF") || segments().unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(segments: &[u32]) -> Vec<u8> {
        let mut program = vec![0; 64];
        program[..4].copy_from_slice(b"\x7fELF");
        program[32] = 64;
        program[54] = 56;
        program[56] = segments.len() as u8;
        for kind in segments {
            let mut segment = [0; 56];
            segment[..4].copy_from_slice(&kind.to_le_bytes());
            program.extend(segment);
        }
        program
    }

    #[test]
    fn only_static_programs_run_alone() {
        for (program, expect) in [
            (elf(&[1, 2]), false),
            (elf(&[6, 3, 1]), true),
            (elf(&[1, 2])[..90].to_vec(), false),
            (b"#!/bin/sh\n".to_vec(), true),
            (b"\x7fELF".to_vec(), true),
        ] {
            assert_eq!(names_interpreter(&program), expect);
        }
        // This very test is linked dynamically, or else its system has no shared libraries.
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        assert!(names_interpreter(&std::fs::read(std::env::current_exe().unwrap()).unwrap()));
    }
}
