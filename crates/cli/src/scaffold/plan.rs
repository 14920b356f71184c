//! What a command does to the files of a project. In: the scaffold as it was, the scaffold as it shall be, and the files that are there.
//! Out: a step for each file. Pure; `disk` reads and writes.

use std::collections::BTreeSet;

use super::files::Files;
use super::merge::{Sides, difference, merge};

/// What is done to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A new file.
    Create { path: String, text: String },
    /// A file that nobody else has changed, or whose changes merge.
    Write { path: String, text: String },
    /// A file with marks where a person has to choose.
    Conflict { path: String, text: String, conflicts: usize },
    /// A file that cannot be changed because a person changed the same lines; these lines are to be changed by hand.
    ByHand { path: String, lines: Vec<String> },
    /// A file that the scaffold does not have any more.
    Remove { path: String },
    /// A file that is left alone, and why.
    Leave { path: String, why: &'static str },
}

impl Step {
    /// The path that is written or removed, if one is.
    pub(crate) fn written(&self) -> Option<&str> {
        match self {
            Step::Create { path, .. }
            | Step::Write { path, .. }
            | Step::Conflict { path, .. }
            | Step::Remove { path } => Some(path),
            Step::ByHand { .. } | Step::Leave { .. } => None,
        }
    }

    /// The path that a person has to change, if one is.
    pub(crate) fn by_hand(&self) -> Option<&String> {
        match self {
            Step::ByHand { path, .. } => Some(path),
            _ => None,
        }
    }
}

/// What is done where a person has changed the same lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnConflict {
    /// Leave the file alone, and tell which lines to change: for commands that add something.
    TellLines,
    /// Leave marks in the file: for `konverge update`.
    Mark,
}

/// The steps from one scaffold to another, in the order of paths. `is` has the files of the project as they are, of those paths that
/// either scaffold has; `sides` names the three sides in marks.
pub(crate) fn plan(was: &Files, shall: &Files, is: &Files, on_conflict: OnConflict, sides: Sides<'_>) -> Vec<Step> {
    let paths: BTreeSet<&String> = was.keys().chain(shall.keys()).collect();
    let step = |path: &&String| {
        let (was, shall, is) = (was.get(*path), shall.get(*path), is.get(*path));
        step((*path).clone(), [was, shall, is].map(|text| text.map(String::as_str)), on_conflict, sides)
    };
    paths.iter().filter_map(step).collect()
}

fn step(path: String, texts: [Option<&str>; 3], on_conflict: OnConflict, sides: Sides<'_>) -> Option<Step> {
    let leave = |path, why| Some(Step::Leave { path, why });
    match texts {
        // The scaffold has nothing new to say, or the file says it already.
        [was, shall, _] if was == shall => None,
        [_, shall, is] if is == shall => None,
        [None, Some(shall), None] => Some(Step::Create { path, text: shall.to_owned() }),
        [None, Some(_), Some(_)] => leave(path, "it is new in the scaffold, and you have a file of this name"),
        [Some(_), _, None] => leave(path, "you have removed it"),
        [Some(was), None, Some(is)] if was == is => Some(Step::Remove { path }),
        [Some(_), None, Some(_)] => leave(path, "the scaffold does not have it any more, and you have changed it"),
        [Some(was), Some(shall), Some(is)] => {
            let merged = merge(was, is, shall, sides);
            Some(match (merged.conflicts, on_conflict) {
                (0, _) if merged.text == is => return None,
                (0, _) => Step::Write { path, text: merged.text },
                (conflicts, OnConflict::Mark) => Step::Conflict { path, text: merged.text, conflicts },
                (_, OnConflict::TellLines) => Step::ByHand { path, lines: difference(was, shall) },
            })
        }
        [None, None, _] => None,
    }
}

/// The paths at which new files shall be, and others are.
pub(crate) fn in_the_way<'a>(was: &'a Files, shall: &'a Files, is: &'a Files) -> impl Iterator<Item = &'a String> {
    let new = shall.iter().filter(|(path, _)| !was.contains_key(*path));
    new.filter(|(path, text)| is.get(*path).is_some_and(|is| is != *text)).map(|(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDES: Sides<'_> = Sides { ours: "yours", base: "before", theirs: "new" };

    fn files(text: Option<&str>) -> Files {
        text.map(|text| ("a".to_owned(), text.replace(' ', "\n") + "\n")).into_iter().collect()
    }

    #[track_caller]
    fn check(was: Option<&str>, shall: Option<&str>, is: Option<&str>, expect: &str) {
        let told = |on_conflict| {
            let steps = plan(&files(was), &files(shall), &files(is), on_conflict, SIDES);
            let shown = steps.iter().map(|step| match step {
                Step::Create { text, .. } => format!("create {text}"),
                Step::Write { text, .. } => format!("write {text}"),
                Step::Conflict { conflicts, .. } => format!("{conflicts} conflicts"),
                Step::ByHand { lines, .. } => format!("by hand {}", lines.join("\n")),
                Step::Remove { .. } => "remove".to_owned(),
                Step::Leave { why, .. } => (*why).to_owned(),
            });
            shown.collect::<String>().trim_end().replace('\n', " ")
        };
        let (mark, tell) = (told(OnConflict::Mark), told(OnConflict::TellLines));
        let shown = if mark == tell { mark } else { format!("{mark} | {tell}") };
        assert_eq!(shown, expect, "{was:?} {shall:?} {is:?}");
    }

    #[test]
    fn steps() {
        let (old, new, mine) = (Some("a b c d"), Some("a b c x"), Some("y b c d"));
        check(None, None, None, "");
        check(None, new, None, "create a b c x");
        check(None, new, new, "");
        check(None, new, mine, "it is new in the scaffold, and you have a file of this name");
        check(old, new, old, "write a b c x");
        check(old, new, new, "");
        check(old, new, mine, "write y b c x");
        check(old, new, Some("a b c z"), "1 conflicts | by hand   b   c - d + x");
        check(old, new, None, "you have removed it");
        check(old, old, mine, "");
        check(old, old, None, "");
        check(old, None, old, "remove");
        check(old, None, mine, "the scaffold does not have it any more, and you have changed it");
        check(old, None, None, "");
    }

    #[test]
    fn files_in_the_way() {
        let ways = |was, shall, is| in_the_way(&files(was), &files(shall), &files(is)).count();
        assert_eq!(ways(None, Some("a"), Some("b")), 1);
        assert_eq!(ways(None, Some("a"), Some("a")), 0);
        assert_eq!(ways(None, Some("a"), None), 0);
        assert_eq!(ways(Some("a"), Some("b"), Some("c")), 0);
    }
}
