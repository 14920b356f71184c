//! The measured process: this program, started by itself. In: where to listen, and a directory of certificates. It answers
//! reviews until it is killed.

use std::path::PathBuf;

use kube::{Client, Config};

use super::{bare, framework};
use crate::invalid_run::InvalidRun;

/// Where and how to serve. A server in another language takes the port and the directory as the same options.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SubjectOptions {
    /// Which server.
    #[arg(value_enum)]
    pub implementation: Implementation,
    /// The port of 127.0.0.1.
    #[arg(long)]
    pub port: u16,
    /// The directory with `tls.crt` and `tls.key`.
    #[arg(long)]
    pub cert_dir: PathBuf,
    /// The URL of the API server that is told of the webhooks.
    #[arg(long)]
    pub server: String,
}

/// The servers that this program can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Implementation {
    /// The framework's.
    Konverge,
    /// A bare one.
    Bare,
}

/// Serves until the process is killed.
pub(crate) fn run_subject(options: &SubjectOptions) -> Result<(), InvalidRun> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = async {
        match options.implementation {
            Implementation::Konverge => {
                let uri = options.server.parse();
                let uri = uri.map_err(|_| InvalidRun::new(format!("{} is not an address", options.server)))?;
                let client = Client::try_from(Config::new(uri)).map_err(|error| InvalidRun::new(error.to_string()))?;
                framework::serve(client, options.port, &options.cert_dir).await
            }
            Implementation::Bare => bare::serve(options.port, &options.cert_dir).await,
        }
    };
    runtime.block_on(ended)
}
