//! Starts a subject as a process and reads its output. In: a job. Out: the result of its task, and when it came. A subject that
//! takes too long is killed, and the run is invalid.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::job::{Job, Line, TaskResult};
use crate::cores::Cores;
use crate::invalid_run::InvalidRun;
use crate::process::Process;

/// The longest time until the next line of a subject.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A running subject.
pub(super) struct RunningSubject {
    child: Child,
    lines: mpsc::Receiver<(Instant, Line)>,
    implementation: &'static str,
    /// It said so before it was waited for.
    is_ready: bool,
    /// When it was started.
    pub begun: Instant,
}

/// Starts a subject: on a core of its own, or on all cores if it has several threads.
pub(super) fn launch(cores: Cores, job: &Job) -> Result<RunningSubject, InvalidRun> {
    let mut command = Command::new(std::env::current_exe()?);
    let text = serde_json::to_string(job).map_err(|error| InvalidRun::new(error.to_string()))?;
    command.arg("subject").arg(text).stdin(Stdio::piped()).stdout(Stdio::piped());
    let spawn = || (Instant::now(), command.spawn());
    let (begun, child) = if job.threads > 1 { cores.for_all(spawn) } else { cores.for_server(spawn) };
    let mut child = child?;
    let stdout = child.stdout.take().ok_or_else(|| InvalidRun::new("the subject's output is not piped"))?;
    let (sender, lines) = mpsc::channel();
    // The thread ends when the child closes its output.
    std::thread::spawn(move || read_lines(stdout, &sender));
    Ok(RunningSubject { child, lines, implementation: job.implementation.name(), is_ready: false, begun })
}

/// Starts a subject and waits for its result.
pub(super) fn run_job(cores: Cores, job: &Job) -> Result<TaskResult, InvalidRun> {
    launch(cores, job)?.result().map(|(_, result)| result)
}

impl RunningSubject {
    /// Waits until it is ready.
    pub(super) fn ready(&mut self) -> Result<(), InvalidRun> {
        if std::mem::take(&mut self.is_ready) {
            return Ok(());
        }
        match self.next()? {
            (_, Line::Ready) => Ok(()),
            (_, other) => {
                Err(InvalidRun::new(format!("{}: printed {other:?} before it was ready", self.implementation)))
            }
        }
    }

    /// The term in which it has reconciled for the first time, and when it told so, if it did since it was asked last. Never waits.
    pub(super) fn led(&mut self) -> Result<Option<(Instant, u64)>, InvalidRun> {
        while let Ok(line) = self.lines.try_recv() {
            match line {
                (at, Line::Led(term)) => return Ok(Some((at, term))),
                (_, Line::Ready) => self.is_ready = true,
                (_, other) => {
                    return Err(InvalidRun::new(format!("{}: printed {other:?} as a replica", self.implementation)));
                }
            }
        }
        Ok(None)
    }

    /// Waits until it has ended by itself.
    pub(super) fn ended(&mut self) -> Result<(), InvalidRun> {
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begun.elapsed() > TIMEOUT {
                return Err(InvalidRun::new(format!("{}: does not end", self.implementation)));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Waits for its result. Returns also when it came.
    pub(super) fn result(mut self) -> Result<(Instant, TaskResult), InvalidRun> {
        match self.next()? {
            (at, Line::Done(result)) => Ok((at, result)),
            (_, other) => {
                Err(InvalidRun::new(format!("{}: printed {other:?} instead of a result", self.implementation)))
            }
        }
    }

    /// Stops the subject by closing its standard input.
    pub(super) fn stop(&mut self) {
        drop(self.child.stdin.take());
    }

    /// The process, to measure it.
    pub(super) fn process(&self) -> Process {
        Process(self.child.id())
    }

    fn next(&mut self) -> Result<(Instant, Line), InvalidRun> {
        match self.lines.recv_timeout(TIMEOUT) {
            Ok((_, Line::Failed(why))) => Err(InvalidRun::new(format!("{}: {why}", self.implementation))),
            Ok(line) => Ok(line),
            Err(error) => Err(InvalidRun::new(format!("{}: no result: {error}", self.implementation))),
        }
    }
}

impl Drop for RunningSubject {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_lines(stdout: ChildStdout, sender: &mpsc::Sender<(Instant, Line)>) {
    for text in BufReader::new(stdout).lines().map_while(Result::ok) {
        let at = Instant::now();
        let line = serde_json::from_str(&text).unwrap_or_else(|error| Line::Failed(format!("{error}: {text}")));
        if sender.send((at, line)).is_err() {
            return;
        }
    }
}
