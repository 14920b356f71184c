//! The queue alone (B6). It has a benchmark of its own beside its code; here that is built, run, and shown among the rest.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::report::{Figure, Figures};
use crate::void::Void;

/// The line whose figure has an aim, and that aim in ns.
const AIMS: [(&str, f64); 4] = [
    ("add, get, done: 100 keys", 250.0),
    ("add after: new keys", 300.0),
    ("4 producers, 8 consumers: one add", 200.0),
    ("8 producers, 8 consumers: one add", 200.0),
];

/// Runs it.
pub fn measure() -> Result<Figures, Void> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut bench = Command::new(cargo);
    bench.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
    bench.args(["bench", "--profile", "dist", "-p", "konverge-runtime", "--bench", "queue"]).stderr(Stdio::null());
    let done = bench.output()?;
    if !done.status.success() {
        return Err(Void::new("the benchmark of the queue does not run"));
    }
    let mut figures = Figures::default();
    for (what, nanos) in String::from_utf8_lossy(&done.stdout).lines().filter_map(figure) {
        let aim = AIMS.iter().find(|(name, _)| *name == what).map(|(_, aim)| *aim);
        let figure = Figure::cost(what, nanos, "ns of CPU");
        figures.add(aim.into_iter().fold(figure, Figure::aiming));
    }
    Ok(figures)
}

/// `add: new keys      cpu    63.1 ns, best    61.0   wall …`: the name and the median.
fn figure(line: &str) -> Option<(String, f64)> {
    let (name, rest) = line.split_once("   cpu ").or_else(|| line.split_once("   wall "))?;
    Some((name.trim().to_owned(), rest.trim_start().split(' ').next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_lines() {
        for (line, expect) in [
            (
                "add: new keys, all          cpu    63.1 ns, best    61.0   wall 70.0 ns",
                Some(("add: new keys, all", 63.1)),
            ),
            ("only the wall         wall    5.0 ns, best    4.0", Some(("only the wall", 5.0))),
            ("running 0 tests", None),
        ] {
            assert_eq!(figure(line), expect.map(|(name, nanos)| (name.to_owned(), nanos)), "{line}");
        }
    }
}
