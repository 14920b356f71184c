//! The report. In: sections of figures, some with a baseline and an aim. Out: a table as text, and JSON for programs. A missed
//! aim is not a failure.

use std::fmt;

use serde::Serialize;

use crate::baseline::Baseline;
use crate::compare::Interval;
use crate::invalid_run::InvalidRun;
use crate::machine::Machine;
use crate::meter::Spent;

/// The report of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The machine of the run.
    pub machine: Machine,
    /// Other facts that affect the figures, as `name: value`.
    pub facts: Vec<(String, String)>,
    /// The results of the stages.
    pub sections: Vec<Section>,
}

/// The figures of one stage.
#[derive(Debug, Serialize)]
pub(crate) struct Section {
    /// The name of the stage.
    pub title: String,
    /// Why the stage is invalid, if it is.
    pub invalid: Option<String>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// The largest share of all cores that other processes used meanwhile. If it is high, wall times cannot be trusted.
    pub others: f64,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    what: String,
    value: f64,
    unit: &'static str,
    better: Better,
    baseline: Option<Baseline>,
    comparison: Option<Comparison>,
    aim: Option<f64>,
    note: String,
}

/// The figure of another implementation, measured alternately with ours in the same run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// Its figure.
    pub other: f64,
    /// How many times better ours is.
    pub ratio: Interval,
}

/// Whether a lower or a higher value is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Better {
    /// For costs.
    Lower,
    /// For rates.
    Higher,
}

impl Figure {
    /// A cost.
    pub(crate) fn cost(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            what: what.into(),
            value,
            unit,
            better: Better::Lower,
            baseline: None,
            comparison: None,
            aim: None,
            note: String::new(),
        }
    }

    /// A rate.
    pub(crate) fn rate(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { better: Better::Higher, ..Self::cost(what, value, unit) }
    }

    /// Adds the figure of kube-apiserver with etcd.
    pub(crate) fn with_baseline(mut self, baseline: Baseline) -> Self {
        self.baseline = Some(baseline);
        self
    }

    /// Adds the figure of another implementation.
    pub(crate) fn compared(mut self, comparison: Option<Comparison>) -> Self {
        self.comparison = comparison;
        self
    }

    /// Adds an aim: a maximum for a cost, a minimum for a rate.
    pub(crate) fn with_aim(mut self, aim: f64) -> Self {
        self.aim = Some(aim);
        self
    }

    /// Adds a note.
    pub(crate) fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// How many times better than the baseline: compared with both ends of its range.
    fn ratio(&self) -> Option<(f64, f64)> {
        let Baseline { low, high } = self.baseline?;
        Some(match self.better {
            Better::Lower => (low / self.value, high / self.value),
            Better::Higher => (self.value / high, self.value / low),
        })
    }

    fn baseline_cell(&self) -> String {
        if let Some(Comparison { other, ratio: Interval { middle, low, high } }) = self.comparison {
            return format!("{} ({}x, {})", number(other), number(middle), span(low, high));
        }
        let (Some(baseline), Some((least, most))) = (self.baseline, self.ratio()) else { return String::new() };
        format!("{} ({}x)", span(baseline.low, baseline.high), span(least, most))
    }

    fn aim_cell(&self) -> String {
        let Some(aim) = self.aim else { return String::new() };
        let (sign, met) = match self.better {
            Better::Lower => ("<=", self.value <= aim),
            Better::Higher => (">=", self.value >= aim),
        };
        format!("{sign} {} {}", number(aim), if met { "met" } else { "missed" })
    }
}

impl Section {
    /// The section of a stage.
    pub(crate) fn of(title: impl Into<String>, outcome: Result<Figures, InvalidRun>) -> Self {
        let title = title.into();
        match outcome {
            Ok(Figures { figures, others }) => Self { title, invalid: None, figures, others },
            Err(invalid) => Self { title, invalid: Some(invalid.to_string()), figures: Vec::new(), others: 0.0 },
        }
    }
}

/// Collects the figures of one stage.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    figures: Vec<Figure>,
    others: f64,
}

impl Figures {
    /// Adds a figure.
    pub(crate) fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// Notes how busy other processes were.
    pub(crate) fn disturbed(&mut self, spent: &Spent) {
        self.others = self.others.max(spent.others);
    }
}

impl Report {
    /// Whether a stage is invalid.
    pub(crate) fn is_invalid(&self) -> bool {
        self.sections.iter().any(|section| section.invalid.is_some())
    }

    /// The report as JSON.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data") + "\n"
    }
}

const HEADINGS: [&str; 5] = ["figure", "value", "aim", "baseline (ratio)", "note"];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { kernel, cpu, cores, memory } = &self.machine;
        writeln!(f, "machine: {cores} x {cpu}, {:.0} GiB, Linux {kernel}", *memory as f64 / f64::from(1 << 30))?;
        for (name, value) in &self.facts {
            writeln!(f, "{name}: {value}")?;
        }
        let rows: Vec<Vec<[String; 5]>> = self.sections.iter().map(|section| cells(&section.figures)).collect();
        let headings = HEADINGS.map(str::to_owned);
        let all = || rows.iter().flatten().chain([&headings]);
        let widths: [usize; 5] = std::array::from_fn(|at| all().map(|row| row[at].chars().count()).max().unwrap_or(0));
        for (section, rows) in self.sections.iter().zip(&rows) {
            writeln!(f, "\n{} (others used up to {:.0} % of the machine)", section.title, section.others * 100.0)?;
            if let Some(why) = &section.invalid {
                writeln!(f, "  INVALID: {why}")?;
                continue;
            }
            for row in [&headings].into_iter().chain(rows) {
                let [what, value, aim, baseline, note] = row;
                let [w0, w1, w2, w3, _] = widths;
                let line = format!("  {what:<w0$}  {value:>w1$}  {aim:<w2$}  {baseline:<w3$}  {note}");
                writeln!(f, "{}", line.trim_end())?;
            }
        }
        Ok(())
    }
}

fn cells(figures: &[Figure]) -> Vec<[String; 5]> {
    let row = |figure: &Figure| {
        let value = format!("{} {}", number(figure.value), figure.unit);
        [figure.what.clone(), value, figure.aim_cell(), figure.baseline_cell(), figure.note.clone()]
    };
    figures.iter().map(row).collect()
}

fn span(low: f64, high: f64) -> String {
    let (low, high) = (number(low), number(high));
    if low == high { low } else { format!("{low}–{high}") }
}

/// A number with three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_factors_of_improvement() {
        let baseline = Baseline { low: 100.0, high: 200.0 };
        for (figure, cells) in [
            (
                Figure::cost("a", 10.0, "µs").with_baseline(baseline).with_aim(10.0),
                ["<= 10.0 met", "100–200 (10.0–20.0x)"],
            ),
            (
                Figure::cost("a", 400.0, "µs").with_baseline(baseline).with_aim(10.0),
                ["<= 10.0 missed", "100–200 (0.25–0.50x)"],
            ),
            (
                Figure::rate("a", 400.0, "/s").with_baseline(baseline).with_aim(10.0),
                [">= 10.0 met", "100–200 (2.00–4.00x)"],
            ),
            (Figure::rate("a", 400.0, "/s"), ["", ""]),
        ] {
            assert_eq!([figure.aim_cell(), figure.baseline_cell()], cells, "{figure:?}");
        }
    }
}
