//! Remarks that are kept by hand, because no program can see them. In: `xtask/data/compatibility.notes`. Out: the remark about
//! an endpoint, a plugin or a flag, and the section about differences. A remark about something that does not exist is an error,
//! so that none outlives its subject.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const FILE: &str = "xtask/data/compatibility.notes";

/// The remarks, by their subject: `endpoint pods/exec`.
#[derive(Debug)]
pub(super) struct Notes {
    remarks: BTreeMap<String, String>,
    /// Topic and text, in the order of the file.
    differences: Vec<(String, String)>,
    used: RefCell<BTreeSet<String>>,
}

impl Notes {
    /// Reads the file.
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(root.join(FILE)).map_err(|error| format!("{FILE}: {error}"))?;
        Self::parse(&text)
    }

    /// One remark a line: `endpoint NAME: TEXT`, `plugin NAME: TEXT`, `flag NAME: TEXT`, `differs TOPIC: TEXT`.
    fn parse(text: &str) -> Result<Self, String> {
        let mut notes = Self { remarks: BTreeMap::new(), differences: Vec::new(), used: RefCell::default() };
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let wrong = || format!("{FILE} line {}: not `WORD SUBJECT: TEXT`: {line}", at + 1);
            let (subject, text) = line.split_once(": ").ok_or_else(wrong)?;
            match subject.split_once(' ').ok_or_else(wrong)? {
                ("differs", topic) => notes.differences.push((topic.to_owned(), text.to_owned())),
                ("endpoint" | "plugin" | "flag", _) => {
                    if notes.remarks.insert(subject.to_owned(), text.to_owned()).is_some() {
                        return Err(format!("{FILE} line {}: a second remark about {subject}", at + 1));
                    }
                }
                _ => return Err(wrong()),
            }
        }
        Ok(notes)
    }

    pub(super) fn endpoint(&self, name: &str) -> Option<&str> {
        self.about(format!("endpoint {name}"))
    }

    pub(super) fn plugin(&self, name: &str) -> Option<&str> {
        self.about(format!("plugin {name}"))
    }

    pub(super) fn flag(&self, name: &str) -> Option<&str> {
        self.about(format!("flag {name}"))
    }

    fn about(&self, subject: String) -> Option<&str> {
        let text = self.remarks.get(&subject)?;
        self.used.borrow_mut().insert(subject);
        Some(text)
    }

    /// The section about differences.
    pub(super) fn differences(&self) -> String {
        let rows: String = self.differences.iter().map(|(topic, text)| format!("| {topic} | {text} |\n")).collect();
        format!("\n## What else is different\n\n| topic | here |\n|---|---|\n{rows}")
    }

    /// Fails if there is a remark that nobody asked for.
    pub(super) fn all_used(&self) -> Result<(), String> {
        let used = self.used.borrow();
        match self.remarks.keys().find(|subject| !used.contains(*subject)) {
            None => Ok(()),
            Some(subject) => Err(format!("{FILE}: nothing is called {subject:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_and_differences() {
        let notes = Notes::parse("# comment\n\nplugin A: is: odd\ndiffers time: runs\n").expect("notes");
        assert_eq!(notes.plugin("B"), None);
        assert_eq!(notes.all_used(), Err(format!("{FILE}: nothing is called \"plugin A\"")));
        assert_eq!(notes.plugin("A"), Some("is: odd"));
        assert_eq!(notes.all_used(), Ok(()));
        assert!(notes.differences().ends_with("| time | runs |\n"));
        for wrong in ["plugin A", "odd A: b", "plugin A: b\nplugin A: c"] {
            assert!(Notes::parse(wrong).is_err(), "{wrong}");
        }
    }
}
