//! The report: for people, for programs, and for CI systems that read JUnit. In: checks with their verdicts. Out: text. Pure.

use serde_json::{Value, json};

use super::check::{Group, HIGHEST, Outcome, Scored, level_of};
use crate::counted::counted;

/// A scorecard that is filled in.
pub(super) struct Report<'a> {
    pub operator: &'a str,
    pub version: &'a str,
    pub scored: &'a [Scored],
    /// Whether these are all checks; a level follows from all of them only.
    pub is_whole: bool,
}

/// How a line looks on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    Coloured,
}

impl Look {
    fn mark(self, outcome: Outcome) -> String {
        let (mark, colour) = match outcome {
            Outcome::Passed => ("pass", "32"),
            Outcome::Failed => ("MISS", "31"),
            Outcome::NotMeasured => ("  ? ", "33"),
            Outcome::Skipped => ("skip", "90"),
        };
        match self {
            Look::Plain => mark.to_owned(),
            Look::Coloured => format!("\x1b[{colour}m{mark}\x1b[0m"),
        }
    }

    fn title(self, text: &str) -> String {
        match self {
            Look::Plain => text.to_owned(),
            Look::Coloured => format!("\x1b[1m{text}\x1b[0m"),
        }
    }
}

impl Report<'_> {
    /// For people: each group with its checks, what was seen, and what to do about a miss. The last line says the level.
    pub(super) fn text(&self, look: Look) -> String {
        let mut text = String::new();
        for group in Group::ALL {
            let of_group: Vec<&Scored> = self.scored.iter().filter(|one| one.check.group == group).collect();
            if of_group.is_empty() {
                continue;
            }
            text += &format!("{}\n", look.title(group.title()));
            for Scored { check, verdict } in of_group {
                let optional = if !check.required && group != Group::Practice { " (not required)" } else { "" };
                text += &format!("  {}  {}{optional}\n", look.mark(verdict.outcome), check.name);
                for line in verdict.found.iter().flat_map(|found| found.lines()) {
                    text += &format!("        {line}\n");
                }
                if !verdict.advice.is_empty() {
                    text += &format!("        → {}\n", verdict.advice);
                }
            }
            text += "\n";
        }
        text + &format!("{}\n", look.title(&self.summary()))
    }

    /// `shop 1.2.0 is at level 1 of 5 (basic install); level 2 lacks upgrade, version-skew`
    pub(super) fn summary(&self) -> String {
        if !self.is_whole {
            let passed = self.scored.iter().filter(|one| one.verdict.outcome == Outcome::Passed).count();
            let all = counted(self.scored.len(), "check");
            return format!("{} {}: {passed} of {all} passed; a level needs them all", self.operator, self.version);
        }
        let level = level_of(self.scored);
        let name = |level: u8| Group::Level(level).title().split_once(": ").map_or("", |(_, name)| name);
        let at = match level {
            0 => format!("below level 1 of {HIGHEST}"),
            level => format!("at level {level} of {HIGHEST} ({})", name(level)),
        };
        let next = level + 1;
        let lacks = |one: &&Scored| {
            one.check.group == Group::Level(next) && one.check.required && one.verdict.outcome != Outcome::Passed
        };
        let lacking: Vec<&str> = self.scored.iter().filter(lacks).map(|one| one.check.name).collect();
        let missing = match next > HIGHEST {
            true => String::new(),
            false => format!("; level {next} lacks {}", lacking.join(", ")),
        };
        format!("{} {} is {at}{missing}", self.operator, self.version)
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let shown = |Scored { check, verdict }: &Scored| {
            let level = match check.group {
                Group::Level(level) => json!(level),
                Group::Practice => Value::Null,
            };
            json!({
                "name": check.name, "level": level, "required": check.required, "outcome": verdict.outcome.word(),
                "found": verdict.found, "advice": verdict.advice,
            })
        };
        let checks: Vec<Value> = self.scored.iter().map(shown).collect();
        let count = |outcome: Outcome| self.scored.iter().filter(|one| one.verdict.outcome == outcome).count();
        json!({
            "operator": self.operator, "version": self.version, "level": self.is_whole.then(|| level_of(self.scored)), "summary": self.summary(),
            "passed": count(Outcome::Passed), "failed": count(Outcome::Failed), "notMeasured": count(Outcome::NotMeasured),
            "skipped": count(Outcome::Skipped), "checks": checks,
        })
    }

    /// For CI systems: a suite for each group. What was not measured is skipped there, which is what JUnit has for it.
    pub(super) fn junit(&self) -> String {
        let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
        let count = |scored: &[&Scored], outcome: &[Outcome]| {
            scored.iter().filter(|one| outcome.contains(&one.verdict.outcome)).count()
        };
        let (failed, skipped) = ([Outcome::Failed], [Outcome::NotMeasured, Outcome::Skipped]);
        let all: Vec<&Scored> = self.scored.iter().collect();
        text += &format!(
            "<testsuites name=\"{}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n",
            escaped(&format!("konverge scorecard of {} {}", self.operator, self.version)),
            all.len(),
            count(&all, &failed),
            count(&all, &skipped)
        );
        for group in Group::ALL {
            let of_group: Vec<&Scored> = all.iter().copied().filter(|one| one.check.group == group).collect();
            if of_group.is_empty() {
                continue;
            }
            let (title, tests) = (escaped(group.title()), of_group.len());
            let (failures, skips) = (count(&of_group, &failed), count(&of_group, &skipped));
            text += &format!(
                "  <testsuite name=\"{title}\" tests=\"{tests}\" failures=\"{failures}\" skipped=\"{skips}\">\n"
            );
            for Scored { check, verdict } in of_group {
                let found = escaped(&verdict.found.join("\n"));
                let advice = escaped(&verdict.advice);
                let inner = match verdict.outcome {
                    Outcome::Passed => format!("<system-out>{found}</system-out>"),
                    Outcome::Failed => format!("<failure message=\"{advice}\">{found}</failure>"),
                    Outcome::NotMeasured | Outcome::Skipped => format!("<skipped message=\"{found} {advice}\"/>"),
                };
                let class = if group == Group::Practice {
                    "scorecard.practice".to_owned()
                } else {
                    format!("scorecard.{}", title.split(':').next().unwrap_or_default().to_lowercase().replace(' ', ""))
                };
                text += &format!("    <testcase classname=\"{class}\" name=\"{}\">{inner}</testcase>\n", check.name);
            }
            text += "  </testsuite>\n";
        }
        text + "</testsuites>\n"
    }
}

/// Text as XML has it. Characters that XML cannot have are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' => escaped += "&#10;",
            '\t' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'.. => escaped.push(character),
            _ => escaped.push('\u{fffd}'),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scorecard::check::{CHECKS, Check, Verdict};

    fn scored() -> Vec<Scored> {
        let verdict = |check: &Check| match check.name {
            "upgrade" => Verdict::failed(vec!["Shop <a> is gone".into()], "keep \"it\""),
            "version-skew" => Verdict::not_measured("no previous version", "--previous"),
            _ => Verdict::passed("fine"),
        };
        CHECKS
            .iter()
            .map(|check| Scored { verdict: verdict(check), check: Check::named(check.name).expect("it is one") })
            .collect()
    }

    #[test]
    fn what_people_read() {
        let scored = scored();
        let report = Report { operator: "shop", version: "1.2.0", scored: &scored, is_whole: true };
        let text = report.text(Look::Plain);
        for part in [
            "Level 1: basic install\n  pass  install\n        fine\n",
            "  MISS  upgrade\n        Shop <a> is gone\n        → keep \"it\"\n",
            "    ?   version-skew\n",
            "predictive-scaling (not required)",
            "Best practices\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains('\x1b') && report.text(Look::Coloured).contains("\x1b[31mMISS\x1b[0m"));
        assert_eq!(
            text.lines().last(),
            Some("shop 1.2.0 is at level 1 of 5 (basic install); level 2 lacks upgrade, version-skew")
        );
        let some = Report { operator: "shop", version: "1", scored: &scored[..1], is_whole: false };
        assert_eq!(some.summary(), "shop 1: 1 of 1 check passed; a level needs them all");
        assert_eq!(some.json()["level"], Value::Null);
    }

    #[test]
    fn what_programs_read() {
        let scored = scored();
        let report = Report { operator: "shop", version: "1.2.0", scored: &scored, is_whole: true };
        let json = report.json();
        assert_eq!((&json["level"], &json["failed"], &json["notMeasured"]), (&json!(1), &json!(1), &json!(1)));
        let upgrade = json["checks"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|one| one["name"] == "upgrade")
            .expect("it is there");
        assert_eq!(
            (&upgrade["outcome"], &upgrade["level"], &upgrade["required"]),
            (&json!("failed"), &json!(2), &json!(true))
        );
        let junit = report.junit();
        for part in [
            "failures=\"1\" skipped=\"1\"",
            "<testsuite name=\"Level 2: seamless upgrades\" tests=\"3\" failures=\"1\" skipped=\"1\">",
            "<testcase classname=\"scorecard.level2\" name=\"upgrade\"><failure message=\"keep &quot;it&quot;\">Shop &lt;a&gt; is gone</failure>",
            "<skipped message=\"no previous version --previous\"/>",
        ] {
            assert!(junit.contains(part), "{part} is not in\n{junit}");
        }
        assert_eq!(escaped("a\u{1}\nb"), "a\u{fffd}&#10;b");
    }
}
