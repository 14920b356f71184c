//! Runs one target for a while. In: the target, a time and a seed. Out: how many inputs it took, or the first finding.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::corpus::Corpus;
use crate::mutate::mutate;
use crate::random::Random;
use crate::target::Target;

/// An input that takes longer hangs. Everything that is fuzzed ends within a budget of some seconds, also in a debug build on a
/// machine that does ten other things.
const HANG: Duration = Duration::from_secs(60);

/// How many inputs with new outcomes are mutated further; when there are more, one of them goes.
const MAX_BEGINNINGS: usize = 2_000;

/// The input that runs now, and since when.
static RUNNING: Mutex<Option<(&'static str, Vec<u8>, Instant)>> = Mutex::new(None);

/// A run of one target.
pub(crate) struct Run {
    pub target: &'static Target,
    pub seed: u64,
    pub time: Duration,
    pub corpus: Corpus,
}

impl Run {
    /// Runs until the time is over, or until the target fails.
    pub(crate) fn run(&self) -> Result<(), String> {
        let (target, mut random) = (self.target, Random(self.seed));
        let mut run = (target.make)();
        let mut beginnings = (target.seeds)();
        let kept = self.corpus.inputs().map_err(|error| format!("fuzz: the corpus cannot be read: {error}"))?;
        beginnings.extend(kept.into_iter().map(|(_, input)| input));
        let mut outcomes = HashSet::new();
        for input in &beginnings {
            outcomes.insert(gist(&self.one(&mut run, input)?));
        }
        let (began, mut count) = (Instant::now(), 0_u64);
        while began.elapsed() < self.time {
            let mut input = random.pick(&beginnings).cloned().unwrap_or_default();
            let other = random.pick(&beginnings).cloned().unwrap_or_default();
            mutate(&mut random, &mut input, &other, target.words);
            count += 1;
            if outcomes.insert(gist(&self.one(&mut run, &input)?)) {
                if beginnings.len() >= MAX_BEGINNINGS {
                    beginnings.swap_remove(random.below(MAX_BEGINNINGS));
                }
                beginnings.push(input);
            }
        }
        println!("{:<12} {count:>9} inputs, {:>5} outcomes, seed {}", target.name, outcomes.len(), self.seed);
        Ok(())
    }

    fn one(&self, run: &mut dyn FnMut(&[u8]) -> String, input: &[u8]) -> Result<String, String> {
        *RUNNING.lock().expect("nobody panics while holding it") =
            Some((self.target.name, input.to_vec(), Instant::now()));
        let outcome = catch_unwind(AssertUnwindSafe(|| run(input)));
        *RUNNING.lock().expect("nobody panics while holding it") = None;
        outcome.map_err(|_| {
            let name = self.target.name;
            format!("fuzz: {name} failed with {} (seed {})", kept(name, self.corpus.keep(input)), self.seed)
        })
    }
}

/// Ends the process when an input hangs, after keeping that input.
pub(crate) fn watch_for_hangs() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let running = RUNNING.lock().expect("nobody panics while holding it");
            if let Some((name, input, since)) = &*running
                && since.elapsed() > HANG
            {
                eprintln!("fuzz: {name} hangs with {}", kept(name, Corpus::of(name).keep(input)));
                std::process::exit(1);
            }
        }
    });
}

/// Where an input was kept, and how to run it again.
fn kept(name: &str, path: std::io::Result<PathBuf>) -> String {
    match path {
        Ok(path) => format!(
            "an input that is kept now; run it again:\n  cargo run -p konverge-fuzz -- {name} --replay {}",
            path.display()
        ),
        Err(error) => format!("an input that cannot be kept: {error}"),
    }
}

/// An outcome without what differs from input to input: numbers, and what is in quotes.
fn gist(outcome: &str) -> String {
    let mut gist = String::new();
    let mut quoted = false;
    for c in outcome.chars() {
        match c {
            '"' | '`' => quoted = !quoted,
            _ if quoted => continue,
            c if c.is_ascii_digit() => continue,
            _ => {}
        }
        gist.push(c);
        if gist.len() > 120 {
            break;
        }
    }
    gist
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gist_of_outcomes() {
        for (outcome, expect) in [
            ("expected 5 fields, found 17", "expected  fields, found "),
            (r#"no kind "Pod" is known"#, r#"no kind "" is known"#),
            ("fine", "fine"),
        ] {
            assert_eq!(gist(outcome), expect);
        }
    }
}
