//! Being asked to stop, in a real process whose threads are all busy. The test runs its own program again, as the one
//! that is asked.

#![cfg(unix)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use konverge_serve::StopSignals;

/// Says which program to be; without it the test of that name has nothing to do.
const PROGRAM: &str = "KONVERGE_TEST_STOP_SIGNALS";

/// What the process logs when it takes a signal for part of the first request, and when that is over.
const SAME_REQUEST: &str = "part of the same request to stop";
const NEXT_SIGNAL_ENDS_IT: &str = "the next signal ends the process at once";

/// Not a test of its own: what the tests below start.
#[test]
fn the_program() {
    let Ok(kind) = std::env::var(PROGRAM) else { return };
    tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_ansi(false).init();
    let within = if kind == "impatient" { Duration::from_millis(300) } else { Duration::from_secs(3600) };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut stop = StopSignals::listen(within).expect("signals");
        if kind != "idle" {
            let (busy, both) = std::sync::mpsc::channel();
            for _ in 0..2 {
                let busy = busy.clone();
                tokio::spawn(async move {
                    busy.send(()).expect("somebody counts");
                    loop {
                        std::thread::sleep(Duration::from_secs(3600));
                    }
                });
            }
            both.recv().expect("one worker is busy");
            both.recv().expect("the other one, too");
        }
        tell("ready");
        stop.asked().await;
        tell("asked");
        if kind == "idle" {
            std::process::exit(7);
        }
        std::future::pending::<()>().await;
    });
}

/// Past the capture of the test's output.
fn tell(word: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word}").and_then(|()| out.flush()).expect("somebody reads");
}

struct Program(Child, std::io::Lines<BufReader<std::process::ChildStdout>>);

impl Program {
    fn start(kind: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "stop_signals::the_program", "--nocapture", "--test-threads=1"])
            .env(PROGRAM, kind)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut program = Program(child, lines);
        program.says(&["ready"]);
        program
    }

    /// Waits until it has said all of this, in any order.
    fn says(&mut self, expect: &[&str]) {
        let mut missing = expect.to_vec();
        for line in self.1.by_ref().map_while(Result::ok) {
            missing.retain(|words| !line.ends_with(words));
            if missing.is_empty() {
                return;
            }
        }
        panic!("it ended before it said {missing:?}");
    }

    fn ask(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    }

    fn ends_with(&mut self, code: i32) {
        assert_eq!(self.0.wait().expect("it ends").code(), Some(code));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_first_request_is_heard_whatever_computes() {
    for (kind, signal) in [("busy", "-TERM"), ("busy", "-INT")] {
        let mut program = Program::start(kind);
        program.ask(signal);
        // The second one ends it, though nothing in it gets a turn. What comes sooner counts as the first one.
        program.says(&["asked", NEXT_SIGNAL_ENDS_IT]);
        program.ask("-TERM");
        program.ends_with(1);
    }
}

/// As `timeout` sends them. The process stands still meanwhile, so that it gets both in the same moment.
#[test]
fn two_at_once_are_one_request() {
    let mut program = Program::start("busy");
    ["-STOP", "-TERM", "-INT", "-CONT"].iter().for_each(|signal| program.ask(signal));
    program.says(&["asked", SAME_REQUEST, NEXT_SIGNAL_ENDS_IT]);
    program.ask("-TERM");
    program.ends_with(1);
}

#[test]
fn a_stop_that_takes_too_long_is_cut() {
    let mut program = Program::start("impatient");
    program.ask("-TERM");
    program.ends_with(1);
}

#[test]
fn who_stops_in_order_says_how_it_ends() {
    let mut program = Program::start("idle");
    program.ask("-INT");
    program.says(&["asked"]);
    program.ends_with(7);
}
