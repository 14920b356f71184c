//! The process between `konverge dev` and the operator it runs. In: the operator's executable, and a pipe from `konverge
//! dev` as standard input. Out: the operator's own exit status. The operator must never outlive `konverge dev`: it would
//! hold its ports and go on writing beside its successor.
//!
//! ```text
//! konverge dev ──pipe──▶ konverge supervise ──▶ operator
//! ```
//!
//! When `konverge dev` ends, however it ends, the kernel closes the pipe, and the supervisor stops the operator. A byte on the pipe
//! makes it kill the operator at once, as the scorecard does it. The
//! supervisor leads a process group of its own, so that a Ctrl-C in the terminal reaches `konverge dev` alone, which then
//! stops things in order. So does the operator: what it has started, and left behind, ends with it. On Linux the operator also
//! ends if the supervisor itself is killed.

use std::convert::Infallible;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use konverge_serve::StopSignals;
use tokio::process::{Child, Command};

use super::child::ask_to_stop;

/// How long an operator may take to stop; a little longer than it gives its own reconciles.
pub(super) const STOP_WITHIN: Duration = Duration::from_secs(30);

/// How long processes that an operator left behind may take to stop when they are asked to.
const LEFT_BEHIND_WITHIN: Duration = Duration::from_secs(2);

/// How often is looked whether they are gone.
const LOOK: Duration = Duration::from_millis(20);

/// What is added to a signal's number to make an exit code.
pub(super) const BY_SIGNAL: i32 = 128;

/// The subcommand, which people do not need to know.
pub(super) const NAME: &str = "supervise";

/// Arguments of `konverge supervise`.
#[derive(Debug, clap::Args)]
pub(crate) struct SuperviseArgs {
    /// Become the operator, which ends with the process of this id
    #[arg(long, value_name = "PID")]
    become_child_of: Option<u32>,
    /// The operator
    executable: PathBuf,
    /// Flags of the operator
    #[arg(last = true)]
    flags: Vec<String>,
}

impl SuperviseArgs {
    /// The operator.
    pub(crate) fn executable(&self) -> &Path {
        &self.executable
    }
}

/// The command that runs an operator under supervision; its standard input must be a pipe.
pub(crate) fn command(executable: &Path, flags: &[String]) -> io::Result<Command> {
    let mut command = this_program()?;
    command.arg(NAME).arg(executable).arg("--").args(flags);
    #[cfg(unix)]
    command.process_group(0);
    Ok(command)
}

/// This very program, also when its file was replaced by a newer one since it was started.
#[cfg(target_os = "linux")]
fn this_program() -> io::Result<Command> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("konverge");
    Ok(command)
}

#[cfg(not(target_os = "linux"))]
fn this_program() -> io::Result<Command> {
    std::env::current_exe().map(Command::new)
}

/// `konverge supervise`: ends as the operator ended.
pub(crate) fn supervise(args: &SuperviseArgs) -> io::Result<Infallible> {
    if let Some(parent) = args.become_child_of {
        return become_operator(args, parent);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let status = runtime.block_on(watch_over(args))?;
    // The read of standard input may still wait.
    runtime.shutdown_background();
    end_as(status)
}

async fn watch_over(args: &SuperviseArgs) -> io::Result<ExitStatus> {
    let mut stop = StopSignals::listen(STOP_WITHIN + Duration::from_secs(5))?;
    let mut operator = spawn(args)?;
    let group = operator.id();
    let word = tokio::select! {
        status = operator.wait() => {
            end_group(group, LEFT_BEHIND_WITHIN).await;
            return status;
        }
        word = pipe_word() => word,
        () = stop.asked() => PipeWord::Stop,
    };
    if word == PipeWord::Kill {
        operator.kill().await?;
        end_group(group, Duration::ZERO).await;
        return operator.wait().await;
    }
    ask_to_stop(&operator);
    let status = match tokio::time::timeout(STOP_WITHIN, operator.wait()).await {
        Ok(status) => status,
        Err(_) => {
            operator.kill().await?;
            operator.wait().await
        }
    };
    end_group(group, LEFT_BEHIND_WITHIN).await;
    status
}

/// Ends what an operator that is gone has left in its process group.
#[cfg(unix)]
async fn end_group(group: Option<u32>, within: Duration) {
    use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
    let Some(group) = group.and_then(|id| Pid::from_raw(id.cast_signed())) else { return };
    // An error says that nobody is left.
    if kill_process_group(group, Signal::TERM).is_err() {
        return;
    }
    let deadline = tokio::time::Instant::now() + within;
    while test_kill_process_group(group).is_ok() {
        if tokio::time::Instant::now() >= deadline {
            let _ = kill_process_group(group, Signal::KILL);
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(not(unix))]
async fn end_group(_: Option<u32>, _: Duration) {}

/// The operator, by way of a process that asks the kernel to end it with this one.
#[cfg(target_os = "linux")]
fn spawn(args: &SuperviseArgs) -> io::Result<Child> {
    let mut command = this_program()?;
    command.args([NAME, "--become-child-of", &std::process::id().to_string()]).arg(&args.executable);
    command.arg("--").args(&args.flags).process_group(0);
    command.stdin(Stdio::null()).kill_on_drop(true).spawn()
}

#[cfg(not(target_os = "linux"))]
fn spawn(args: &SuperviseArgs) -> io::Result<Child> {
    let mut command = Command::new(&args.executable);
    #[cfg(unix)]
    command.process_group(0);
    command.args(&args.flags).stdin(Stdio::null()).kill_on_drop(true).spawn()
}

/// Turns this process into the operator. What the kernel was asked for survives that.
#[cfg(target_os = "linux")]
fn become_operator(args: &SuperviseArgs, parent: u32) -> io::Result<Infallible> {
    use std::os::unix::process::CommandExt;
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    // A supervisor that died before the kernel was asked is not noticed by it any more.
    if std::os::unix::process::parent_id() != parent {
        return Err(io::Error::other("the supervisor is gone"));
    }
    Err(std::process::Command::new(&args.executable).args(&args.flags).exec())
}

#[cfg(not(target_os = "linux"))]
fn become_operator(_: &SuperviseArgs, _: u32) -> io::Result<Infallible> {
    Err(io::Error::other("--become-child-of needs Linux"))
}

/// What the other end of the pipe wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PipeWord {
    /// The pipe is closed.
    Stop,
    /// Something was written to it.
    Kill,
}

/// Waits until the other end of the pipe is closed or writes something.
async fn pipe_word() -> PipeWord {
    let reading = tokio::task::spawn_blocking(|| io::stdin().read(&mut [0]));
    match reading.await {
        Ok(Ok(1..)) => PipeWord::Kill,
        // An error is an end, too.
        _ => PipeWord::Stop,
    }
}

/// Ends this process with the operator's exit code; after a signal, with 128 and its number, as shells do.
fn end_as(status: ExitStatus) -> ! {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal = None;
    std::process::exit(status.code().or(signal.map(|signal| BY_SIGNAL + signal)).unwrap_or(1))
}
