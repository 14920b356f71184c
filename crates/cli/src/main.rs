//! The `konverge` command. Arguments come in; each subcommand is one call. Under the names `kube-apiserver` and `etcd` it stands
//! in for those programs. What goes wrong is printed as one line
//! with its causes, and the exit code is 1 (2 for arguments that make no sense).

// First, because its macros are for all modules after it.
#[macro_use]
mod stdout;

mod access;
mod admission;
mod args;
mod audit;
mod authentication;
mod backup;
mod bundle;
mod chart;
mod command_docs;
mod confirm;
mod control_plane;
mod control_socket;
mod counted;
mod crd;
mod data_dir;
mod deploy;
mod description;
mod dev;
mod doctor;
mod documents;
mod envtest;
mod etcd;
mod file_size_limit;
mod frontend;
mod generate;
mod generated_files;
mod huge_pages;
mod image;
mod image_reference;
mod in_flight;
mod install;
mod issuers;
mod kube_apiserver;
mod kubeconfig;
mod kustomize;
mod left_webhooks;
mod log;
mod manifests;
mod observer;
mod open_files;
mod operator_account;
mod operator_crds;
mod operator_logs;
mod operators;
mod own_authority;
mod own_service;
mod permissions;
mod port_holder;
mod project;
mod remote_cluster;
mod run;
mod run_operator;
mod samples;
mod scaffold;
mod scorecard;
mod support;
mod tar;
mod upgrade;
mod users;
mod validate;
mod variables;
mod whole_file;
mod yaml;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use konverge_core::ErrorChain;

use args::{Args, Command, CreateCommand};

/// What a load took is given back when the load is over. The system's own allocator kept three hundred megabytes after
/// five hundred stalled readers were cut; this one keeps fifteen.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    stdout::finish(run_command())
}

fn run_command() -> ExitCode {
    file_size_limit::report_by_error();
    if let Some(code) = as_another_program() {
        return code;
    }
    let args = Args::parse();
    let unless_told = match args.command {
        // The scorecard makes things fail, and reports what came of it.
        Command::Scorecard(_) => "error",
        // They report failed requests themselves.
        Command::Doctor(_)
        | Command::Support(_)
        | Command::Install(_)
        | Command::Uninstall(_)
        | Command::Run(_)
        | Command::Deploy(_)
        | Command::Undeploy(_)
        | Command::Logs(_) => "warn,kube_client=off",
        _ => log::WARN,
    };
    log::start(args.log_format, args.verbose, unless_told);
    if !matches!(args.command, Command::Supervise(_)) {
        variables::warn_about_unknown();
    }
    let result: Result<(), Box<dyn Error>> = match args.command {
        Command::Init(options) => scaffold::init(&options).map_err(Into::into),
        Command::Create(options) => match &options.command {
            CreateCommand::Api(options) => scaffold::create_api(options).map_err(Into::into),
            CreateCommand::Webhook(options) => scaffold::create_webhook(options).map_err(Into::into),
        },
        Command::Update(options) => scaffold::update(&options).map_err(Into::into),
        Command::Apiserver(options) => run::apiserver(options).map_err(Into::into),
        Command::Dev(options) => dev::dev(options).map_err(Into::into),
        Command::Envtest(options) => envtest::envtest(&options).map_err(Into::into),
        Command::Backup(options) => backup::backup(&options).map_err(Into::into),
        Command::Restore(options) => backup::restore(&options).map_err(Into::into),
        Command::Validate(options) => return validate::validate(&options),
        Command::Crd(options) => return crd::crd(&options),
        Command::Permissions(options) => return permissions::permissions(&options),
        Command::Completion(options) => command_docs::completion(&options).map_err(Into::into),
        Command::Man(options) => command_docs::man(&options).map_err(Into::into),
        Command::Generate(options) => return generate::generate(&options),
        Command::Bundle(options) => return bundle::bundle(&options),
        Command::Install(options) => return install::install(&options),
        Command::Uninstall(options) => return install::uninstall(&options),
        Command::Run(options) => return run_operator::run(&options),
        Command::Build(options) => return image::build(&options),
        Command::Deploy(options) => return deploy::deploy(&options),
        Command::Undeploy(options) => return deploy::undeploy(&options),
        Command::Logs(options) => return operator_logs::logs(&options),
        Command::Doctor(options) => return doctor::doctor(&options),
        Command::Support(options) => return support::support(&options),
        Command::Scorecard(options) => return scorecard::scorecard(&options),
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

/// What this program does under the name of another one, as in the directory that `konverge envtest` writes. Nothing under
/// its own name.
fn as_another_program() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    let started_as = arguments.next()?;
    let outcome: Result<(), Box<dyn Error>> = match Path::new(&started_as).file_stem()?.to_str()? {
        "kube-apiserver" => kube_apiserver::run(arguments).map_err(Into::into),
        "etcd" => etcd::run(arguments).map_err(Into::into),
        _ => return None,
    };
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {}", ErrorChain(&*error));
            ExitCode::FAILURE
        }
    })
}
