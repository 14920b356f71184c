//! The `konverge` command. Arguments come in; each subcommand is one call. What goes wrong is printed as one line
//! with its causes, and the exit code is 1 (2 for arguments that make no sense).

mod access;
mod args;
mod backup;
mod control;
mod control_plane;
mod data_dir;
mod definitions;
mod dev;
mod frontend;
mod huge_pages;
mod kubeconfig;
mod log;
mod open_files;
mod operators;
mod port_holder;
mod project;
mod run;
mod variables;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use konverge_core::ErrorChain;

use args::{Args, Command};

/// What a load took is given back when the load is over. The system's own allocator kept three hundred megabytes after
/// five hundred stalled readers were cut; this one keeps fifteen.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    log::start(args.log_format, args.verbose);
    if matches!(args.command, Command::Apiserver(_) | Command::Dev(_)) {
        huge_pages::avoid();
    }
    if !matches!(args.command, Command::Supervise(_)) {
        variables::warn_about_unknown();
    }
    let result: Result<(), Box<dyn Error>> = match args.command {
        Command::Apiserver(options) => run::apiserver(options).map_err(Into::into),
        Command::Dev(options) => dev::dev(options).map_err(Into::into),
        Command::Backup(options) => backup::backup(&options).map_err(Into::into),
        Command::Restore(options) => backup::restore(&options).map_err(Into::into),
        Command::Version => {
            println!("konverge {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Command::Supervise(options) => match project::supervise(&options) {
            Ok(never) => match never {},
            Err(error) => Err(format!("{} cannot be started: {error}", options.executable().display()).into()),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", ErrorChain(&*error));
            ExitCode::FAILURE
        }
    }
}
