//! `konverge completion` and `konverge man`. In: the description of the command line. Out: what a shell completes, and manual pages. Nothing
//! is said here that the command line does not say itself.

use std::io;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;

/// Arguments of `konverge completion`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `konverge man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this directory, instead of printing that of the program
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DocsError {
    #[error("cannot print")]
    Print(#[source] io::Error),
    #[error("cannot write manual pages into {}", directory.display())]
    Write { directory: PathBuf, source: io::Error },
}

/// `konverge completion`
pub(crate) fn completion(args: &CompletionArgs) -> Result<(), DocsError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "konverge", &mut text);
    print!("{}", String::from_utf8_lossy(&text));
    Ok(())
}

/// `konverge man`
pub(crate) fn man(args: &ManArgs) -> Result<(), DocsError> {
    let Some(directory) = &args.directory else {
        let mut text = Vec::new();
        clap_mangen::Man::new(Args::command()).render(&mut text).map_err(DocsError::Print)?;
        print!("{}", String::from_utf8_lossy(&text));
        return Ok(());
    };
    let written =
        std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(Args::command(), directory));
    written.map_err(|source| DocsError::Write { directory: directory.clone(), source })?;
    println!("wrote manual pages into {}: man -l {}", directory.display(), directory.join("konverge.1").display());
    Ok(())
}
