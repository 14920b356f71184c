//! Starts a subject as a process of its own and hears what it says. In: a job. Out: its answer, and when it came. A
//! subject that takes too long is killed, and the run is void.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::job::{Answer, Job, Line};
use crate::cores::Cores;
use crate::process::Process;
use crate::void::Void;

/// How long a subject may take in all.
const PATIENCE: Duration = Duration::from_secs(120);

/// A subject at work.
pub struct Launched {
    child: Child,
    lines: mpsc::Receiver<(Instant, Line)>,
    who: &'static str,
    /// When it was started.
    pub begun: Instant,
}

/// Starts it: on a core of its own, or on all of them if it has several threads.
pub fn launch(cores: Cores, job: &Job) -> Result<Launched, Void> {
    let mut command = Command::new(std::env::current_exe()?);
    let text = serde_json::to_string(job).map_err(|error| Void::new(error.to_string()))?;
    command.arg("perform").arg(text).stdin(Stdio::piped()).stdout(Stdio::piped());
    let spawn = || (Instant::now(), command.spawn());
    let (begun, child) = if job.threads > 1 { cores.for_all(spawn) } else { cores.for_server(spawn) };
    let mut child = child?;
    let stdout = child.stdout.take().ok_or_else(|| Void::new("the subject's output is not piped"))?;
    let (tell, lines) = mpsc::channel();
    // Ends with the child's output.
    std::thread::spawn(move || hear(stdout, &tell));
    Ok(Launched { child, lines, who: job.who.name(), begun })
}

/// Starts a subject and waits for its answer.
pub fn ask(cores: Cores, job: &Job) -> Result<Answer, Void> {
    launch(cores, job)?.answer().map(|(_, answer)| answer)
}

impl Launched {
    /// Waits until it says that it is ready.
    pub fn ready(&mut self) -> Result<(), Void> {
        match self.next()? {
            (_, Line::Ready) => Ok(()),
            (_, other) => Err(Void::new(format!("{}: said {other:?} before it was ready", self.who))),
        }
    }

    /// Waits for its answer, and says when it came.
    pub fn answer(mut self) -> Result<(Instant, Answer), Void> {
        match self.next()? {
            (at, Line::Done(answer)) => Ok((at, answer)),
            (_, other) => Err(Void::new(format!("{}: said {other:?} instead of an answer", self.who))),
        }
    }

    /// Tells it to stop.
    pub fn stop(&mut self) {
        drop(self.child.stdin.take());
    }

    /// What to measure.
    pub fn process(&self) -> Process {
        Process(self.child.id())
    }

    fn next(&mut self) -> Result<(Instant, Line), Void> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok((_, Line::Failed(why))) => Err(Void::new(format!("{}: {why}", self.who))),
            Ok(line) => Ok(line),
            Err(error) => Err(Void::new(format!("{}: no answer: {error}", self.who))),
        }
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn hear(stdout: ChildStdout, tell: &mpsc::Sender<(Instant, Line)>) {
    for text in BufReader::new(stdout).lines().map_while(Result::ok) {
        let at = Instant::now();
        let line = serde_json::from_str(&text).unwrap_or_else(|error| Line::Failed(format!("{error}: {text}")));
        if tell.send((at, line)).is_err() {
            return;
        }
    }
}
