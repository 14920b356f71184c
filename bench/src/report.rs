//! What was measured, to be read. In: sections of figures, each with its anchor and its aim if it has them. Out: a table
//! as text, and JSON for programs. It judges nothing: a missed aim is a figure like any other.

use std::fmt;

use serde::Serialize;

use crate::anchor::Anchor;
use crate::compare::Interval;
use crate::machine::Machine;
use crate::meter::Spent;
use crate::void::Void;

/// All of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where it was run.
    pub machine: Machine,
    /// More facts a figure depends on, as `name: value`.
    pub facts: Vec<(String, String)>,
    /// What was measured.
    pub sections: Vec<Section>,
}

/// Figures that belong together.
#[derive(Debug, Serialize)]
pub struct Section {
    /// What they are about.
    pub title: String,
    /// Why they do not count.
    pub void: Option<String>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// The largest share of all cores that other processes took meanwhile: walls are not to be believed if it is high.
    pub others: f64,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    what: String,
    value: f64,
    unit: &'static str,
    better: Better,
    anchor: Option<Anchor>,
    beside: Option<Beside>,
    aim: Option<f64>,
    note: String,
}

/// The same of another subject, measured in turn with ours in this run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// Its figure.
    pub other: f64,
    /// How many times better ours is.
    pub ratio: Interval,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Better {
    /// Costs.
    Lower,
    /// Rates.
    Higher,
}

impl Figure {
    /// A cost.
    pub fn cost(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            what: what.into(),
            value,
            unit,
            better: Better::Lower,
            anchor: None,
            beside: None,
            aim: None,
            note: String::new(),
        }
    }

    /// A rate.
    pub fn rate(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { better: Better::Higher, ..Self::cost(what, value, unit) }
    }

    /// What kube-apiserver and etcd were measured to need.
    pub fn anchored(mut self, anchor: Anchor) -> Self {
        self.anchor = Some(anchor);
        self
    }

    /// What another subject needed in the same run.
    pub fn beside(mut self, beside: Option<Beside>) -> Self {
        self.beside = beside;
        self
    }

    /// What we want it to be at most, or at least for a rate.
    pub fn aiming(mut self, aim: f64) -> Self {
        self.aim = Some(aim);
        self
    }

    /// More to know about it.
    pub fn noting(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// How many times better than the anchor: at its best and at its worst.
    fn ratio(&self) -> Option<(f64, f64)> {
        let Anchor { low, high } = self.anchor?;
        Some(match self.better {
            Better::Lower => (low / self.value, high / self.value),
            Better::Higher => (self.value / high, self.value / low),
        })
    }

    fn anchor_cell(&self) -> String {
        if let Some(Beside { other, ratio: Interval { middle, low, high } }) = self.beside {
            return format!("{} ({}x, {})", number(other), number(middle), span(low, high));
        }
        let (Some(anchor), Some((least, most))) = (self.anchor, self.ratio()) else { return String::new() };
        format!("{} ({}x)", span(anchor.low, anchor.high), span(least, most))
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
    /// The outcome of a stage.
    pub fn of(title: impl Into<String>, outcome: Result<Figures, Void>) -> Self {
        let title = title.into();
        match outcome {
            Ok(Figures { figures, others }) => Self { title, void: None, figures, others },
            Err(void) => Self { title, void: Some(void.to_string()), figures: Vec::new(), others: 0.0 },
        }
    }
}

/// The figures of one stage, while they come in.
#[derive(Debug, Default)]
pub struct Figures {
    figures: Vec<Figure>,
    others: f64,
}

impl Figures {
    /// Adds one.
    pub fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// Notes how disturbed the machine was.
    pub fn disturbed(&mut self, spent: &Spent) {
        self.others = self.others.max(spent.others);
    }
}

impl Report {
    /// Whether anything of it does not count.
    pub fn is_void(&self) -> bool {
        self.sections.iter().any(|section| section.void.is_some())
    }

    /// The same for programs.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data") + "\n"
    }
}

const HEADINGS: [&str; 5] = ["figure", "value", "aim", "anchor (ratio)", "note"];

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
            if let Some(why) = &section.void {
                writeln!(f, "  VOID: {why}")?;
                continue;
            }
            for row in [&headings].into_iter().chain(rows) {
                let [what, value, aim, anchor, note] = row;
                let [w0, w1, w2, w3, _] = widths;
                let line = format!("  {what:<w0$}  {value:>w1$}  {aim:<w2$}  {anchor:<w3$}  {note}");
                writeln!(f, "{}", line.trim_end())?;
            }
        }
        Ok(())
    }
}

fn cells(figures: &[Figure]) -> Vec<[String; 5]> {
    let row = |figure: &Figure| {
        let value = format!("{} {}", number(figure.value), figure.unit);
        [figure.what.clone(), value, figure.aim_cell(), figure.anchor_cell(), figure.note.clone()]
    };
    figures.iter().map(row).collect()
}

fn span(low: f64, high: f64) -> String {
    let (low, high) = (number(low), number(high));
    if low == high { low } else { format!("{low}–{high}") }
}

/// A number with as many digits as mean something.
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
    fn ratios_say_how_many_times_better() {
        let anchor = Anchor { low: 100.0, high: 200.0 };
        for (figure, cells) in [
            (Figure::cost("a", 10.0, "µs").anchored(anchor).aiming(10.0), ["<= 10.0 met", "100–200 (10.0–20.0x)"]),
            (Figure::cost("a", 400.0, "µs").anchored(anchor).aiming(10.0), ["<= 10.0 missed", "100–200 (0.25–0.50x)"]),
            (Figure::rate("a", 400.0, "/s").anchored(anchor).aiming(10.0), [">= 10.0 met", "100–200 (2.00–4.00x)"]),
            (Figure::rate("a", 400.0, "/s"), ["", ""]),
        ] {
            assert_eq!([figure.aim_cell(), figure.anchor_cell()], cells, "{figure:?}");
        }
    }
}
