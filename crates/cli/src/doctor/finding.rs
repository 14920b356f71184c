//! What the doctor says: findings, and a report of them. In: what checks found. Out: text grouped by area, JSON, and an exit code. Nothing is looked at here.

use std::fmt::Write;

use clap::ValueEnum;
use serde_json::{Value, json};

use super::checks::Check;

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Area {
    /// Programs, limits and the clock of this machine
    Machine,
    /// The operator's project in this directory
    Project,
    /// How the cluster is reached, and as whom
    Kubeconfig,
    /// The cluster: CRDs, webhooks, rights
    Cluster,
    /// The deployed operator and its objects
    Operator,
}

impl Area {
    pub(crate) const ALL: [Area; 5] = [Area::Machine, Area::Project, Area::Kubeconfig, Area::Cluster, Area::Operator];

    /// As it is written on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Area::Machine => "machine",
            Area::Project => "project",
            Area::Kubeconfig => "kubeconfig",
            Area::Cluster => "cluster",
            Area::Operator => "operator",
        }
    }
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    /// It works, and somebody should look at it.
    Warning,
    /// Something does not work, or will not.
    Problem,
    /// It could not be looked at.
    NotChecked,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Warning => "warning",
            Outcome::Problem => "problem",
            Outcome::NotChecked => "not checked",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Outcome::Ok => "32",
            Outcome::Warning => "33",
            Outcome::Problem => "31",
            Outcome::NotChecked => "2",
        }
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub check: &'static Check,
    pub outcome: Outcome,
    /// A sentence about what was seen.
    pub what: String,
    /// Which objects or files, if there are several.
    pub details: Vec<String>,
    /// What to do about it: commands, each with a word on it where needed.
    pub mend: Vec<String>,
}

impl Finding {
    /// The same with the objects or files that it is about, of which the first are shown.
    pub(crate) fn with(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }
}

impl Check {
    pub(crate) fn ok(&'static self, what: impl Into<String>) -> Finding {
        self.found(Outcome::Ok, what, &[])
    }

    pub(crate) fn warning(&'static self, what: impl Into<String>, mend: &[&str]) -> Finding {
        self.found(Outcome::Warning, what, mend)
    }

    pub(crate) fn problem(&'static self, what: impl Into<String>, mend: &[&str]) -> Finding {
        self.found(Outcome::Problem, what, mend)
    }

    pub(crate) fn not_checked(&'static self, why: impl Into<String>) -> Finding {
        self.found(Outcome::NotChecked, why, &[])
    }

    pub(crate) fn found(&'static self, outcome: Outcome, what: impl Into<String>, mend: &[&str]) -> Finding {
        let mend = mend.iter().map(|line| (*line).to_owned()).collect();
        Finding { check: self, outcome, what: what.into(), details: Vec::new(), mend }
    }
}

/// Everything that was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub findings: Vec<Finding>,
}

/// How many details of a finding the text shows; JSON has all of them.
const SHOWN: usize = 8;

impl Report {
    pub(crate) fn count(&self, outcome: Outcome) -> usize {
        self.findings.iter().filter(|finding| finding.outcome == outcome).count()
    }

    /// 1 if there is a problem. Warnings are for people: a script that stops at each of them would stop too often.
    pub(crate) fn exit_code(&self) -> u8 {
        u8::from(self.count(Outcome::Problem) > 0)
    }

    /// For people.
    pub(crate) fn text(&self, coloured: bool) -> String {
        let mut text = String::new();
        for area in Area::ALL {
            let of_area: Vec<&Finding> = self.findings.iter().filter(|finding| finding.check.area == area).collect();
            if of_area.is_empty() {
                continue;
            }
            let _ = writeln!(text, "{}", paint(area.word(), "1", coloured));
            for finding in of_area {
                finding.write(&mut text, coloured);
            }
        }
        text + &self.summary() + "\n"
    }

    fn summary(&self) -> String {
        let counted = |outcome: Outcome, word: &str| match self.count(outcome) {
            1 => format!("1 {word}"),
            count => format!("{count} {word}s"),
        };
        let (problems, warnings) = (counted(Outcome::Problem, "problem"), counted(Outcome::Warning, "warning"));
        let (fine, skipped) = (self.count(Outcome::Ok), self.count(Outcome::NotChecked));
        format!("{problems}, {warnings}, {fine} ok, {skipped} not checked")
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let shown = |finding: &Finding| {
            json!({
                "area": finding.check.area.word(), "check": finding.check.name, "outcome": finding.outcome.word(),
                "what": finding.what, "details": finding.details, "do": finding.mend,
            })
        };
        json!({
            "konverge": env!("CARGO_PKG_VERSION"),
            "problems": self.count(Outcome::Problem), "warnings": self.count(Outcome::Warning),
            "ok": self.count(Outcome::Ok), "notChecked": self.count(Outcome::NotChecked),
            "findings": self.findings.iter().map(shown).collect::<Vec<_>>(),
        })
    }
}

impl Finding {
    fn write(&self, text: &mut String, coloured: bool) {
        let word = paint(&format!("{:11}", self.outcome.word()), self.outcome.colour(), coloured);
        // A server's message may have several lines.
        let what = self.what.trim().replace('\n', "\n               ");
        let _ = writeln!(text, "  {word}  {}: {what}", self.check.name);
        for detail in self.details.iter().take(SHOWN) {
            let _ = writeln!(text, "               - {detail}");
        }
        if self.details.len() > SHOWN {
            let _ = writeln!(text, "               - and {} more", self.details.len() - SHOWN);
        }
        for line in &self.mend {
            let _ = writeln!(text, "               → {line}");
        }
    }
}

fn paint(text: &str, colour: &str, coloured: bool) -> String {
    if coloured { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::checks;

    #[test]
    fn text_json_and_exit_codes() {
        let check = |findings: &[Finding], code: u8, expect: &str| {
            let report = Report { findings: findings.to_vec() };
            assert_eq!((report.exit_code(), report.text(false).as_str()), (code, expect));
            assert_eq!(report.json()["findings"].as_array().map(Vec::len), Some(findings.len()));
        };
        check(&[], 0, "0 problems, 0 warnings, 0 ok, 0 not checked\n");
        check(
            &[checks::CONTEXT.ok("it is there"), checks::RUST.warning("old", &["rustup update"])],
            0,
            "machine\n  warning      rust: old\n               → rustup update\nkubeconfig\n  ok           context: it is there\n\
             0 problems, 1 warning, 1 ok, 0 not checked\n",
        );
        let many = (1..=10).map(|number| format!("file {number}"));
        let problem = checks::GENERATED.problem("stale", &[]).with(many);
        let report = Report { findings: vec![problem, checks::SERVER.not_checked("no context")] };
        let text = report.text(false);
        assert!(text.contains("- file 8\n               - and 2 more\n") && !text.contains("file 9"), "{text}");
        assert_eq!(
            (report.exit_code(), report.json()["findings"][0]["details"].as_array().map(Vec::len)),
            (1, Some(10))
        );
        assert!(report.text(true).contains("\x1b[31mproblem    \x1b[0m"));
    }
}
