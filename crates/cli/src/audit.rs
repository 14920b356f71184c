//! The audit log of a server that the program runs. In: flags, by their names in kube-apiserver, and the policy file. Out: options of
//! the API server, or what is wrong with them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use konverge_apiserver::{
    AuditFormat, AuditLogOptions, AuditMode, AuditOptions, AuditOutput, AuditPolicy, AuditPolicyError,
};

/// Where and how requests are audited. Without a policy and a path there is no audit log.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AuditArgs {
    /// Which requests are audited: a file with a Policy of audit.k8s.io/v1. There is no audit log without it
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    pub audit_policy_file: Option<PathBuf>,
    /// Where audit events go, a line each; `-` is standard output
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub audit_log_path: Option<PathBuf>,
    /// How audit events look: json, or the text of old releases
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Json)]
    pub audit_log_format: Format,
    /// Whether requests wait until their audit events are written: blocking, blocking-strict (a request whose first event cannot be
    /// written is refused), or batch (nobody waits, and events for which there is no room are lost)
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Mode::Blocking)]
    pub audit_log_mode: Mode,
    /// How many audit events may wait in the mode batch
    #[arg(long, value_name = "NUMBER", default_value_t = DEFAULTS.buffer, value_parser = at_least_one)]
    pub audit_log_batch_buffer_size: usize,
    /// Megabytes after which a new file of the audit log begins; 0: never
    #[arg(long, value_name = "MEGABYTES", default_value_t = DEFAULTS.max_size)]
    pub audit_log_maxsize: u64,
    /// Days after which old files of the audit log are removed; 0: never
    #[arg(long, value_name = "DAYS", default_value_t = DEFAULTS.max_age)]
    pub audit_log_maxage: u64,
    /// How many old files of the audit log are kept; 0: all
    #[arg(long, value_name = "NUMBER", default_value_t = DEFAULTS.max_backups)]
    pub audit_log_maxbackup: usize,
    /// Compress old files of the audit log
    #[arg(long)]
    pub audit_log_compress: bool,
    /// Leave objects out of audit events that are too large
    #[arg(long)]
    pub audit_log_truncate_enabled: bool,
    /// How large an audit event may be, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULTS.max_event_size, value_parser = at_least_one)]
    pub audit_log_truncate_max_event_size: usize,
}

/// What kube-apiserver does without flags.
pub(crate) struct Defaults {
    pub buffer: usize,
    pub max_size: u64,
    pub max_age: u64,
    pub max_backups: usize,
    pub max_event_size: usize,
    pub max_batch_size: usize,
}

pub(crate) const DEFAULTS: Defaults = Defaults {
    buffer: 10_000,
    max_size: 100,
    max_age: 366,
    max_backups: 100,
    max_event_size: 100 * 1024,
    max_batch_size: 10 * 1024 * 1024,
};

/// How audit events look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Json,
    Legacy,
}

/// Whether requests wait for their audit events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Blocking,
    BlockingStrict,
    Batch,
}

/// Why the policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuditError {
    #[error("loading audit policy file: failed to read file path {path:?}")]
    Read { path: PathBuf, source: io::Error },
    // The cause is in the middle of kube-apiserver's words.
    #[error("loading audit policy file: {why}: from file {}", path.display())]
    Policy { path: PathBuf, why: AuditPolicyError },
}

impl AuditArgs {
    /// The audit log that the flags ask for.
    pub(crate) fn load(&self) -> Result<Option<AuditOptions>, AuditError> {
        let (Some(policy), Some(path)) = (&self.audit_policy_file, &self.audit_log_path) else { return Ok(None) };
        let mut log = AuditLogOptions::new(output(path));
        log.format = match self.audit_log_format {
            Format::Json => AuditFormat::Json,
            Format::Legacy => AuditFormat::Legacy,
        };
        log.mode = match self.audit_log_mode {
            Mode::Blocking => AuditMode::Blocking,
            Mode::BlockingStrict => AuditMode::BlockingStrict,
            Mode::Batch => AuditMode::Batch,
        };
        log.buffer = self.audit_log_batch_buffer_size;
        log.max_size = self.audit_log_maxsize;
        log.max_age = self.audit_log_maxage;
        log.max_backups = self.audit_log_maxbackup;
        log.compress = self.audit_log_compress;
        log.max_event_bytes = self.audit_log_truncate_enabled.then_some(self.audit_log_truncate_max_event_size);
        Ok(Some(AuditOptions { policy: read_policy(policy)?, log }))
    }
}

/// What a path means; `-` is standard output.
pub(crate) fn output(path: &Path) -> AuditOutput {
    if path == Path::new("-") { AuditOutput::Stdout } else { AuditOutput::File(path.to_owned()) }
}

/// Reads a policy file.
pub(crate) fn read_policy(path: &Path) -> Result<AuditPolicy, AuditError> {
    let text = fs::read_to_string(path).map_err(|source| AuditError::Read { path: path.to_owned(), source })?;
    AuditPolicy::parse(&text).map_err(|why| AuditError::Policy { path: path.to_owned(), why })
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().map_err(|why| format!("{why}"))?;
    if number > 0 { Ok(number) } else { Err("must be a positive number".to_owned()) }
}
