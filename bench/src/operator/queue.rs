//! The queue alone (B6). Builds and runs the benchmark of the crate `konverge-runtime`, and adds its figures to the report.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::invalid_run::InvalidRun;
use crate::report::{Figure, Figures};

/// The lines that have an aim, and the aim in ns.
const AIMS: [(&str, f64); 4] = [
    ("add, get, done: 100 keys", 250.0),
    ("add after: new keys", 300.0),
    ("4 producers, 8 consumers: one add", 200.0),
    ("8 producers, 8 consumers: one add", 200.0),
];

/// Runs the stage.
pub(super) fn measure() -> Result<Figures, InvalidRun> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut bench = Command::new(cargo);
    bench.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
    bench.args(["bench", "--profile", "dist", "-p", "konverge-runtime", "--bench", "queue"]).stderr(Stdio::null());
    let output = bench.output()?;
    if !output.status.success() {
        return Err(InvalidRun::new("the benchmark of the queue does not run"));
    }
    let mut figures = Figures::default();
    for (what, nanos) in String::from_utf8_lossy(&output.stdout).lines().filter_map(figure) {
        let aim = AIMS.iter().find(|(name, _)| *name == what).map(|(_, aim)| *aim);
        let figure = Figure::cost(what, nanos, "ns of CPU");
        figures.add(aim.into_iter().fold(figure, Figure::with_aim));
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
