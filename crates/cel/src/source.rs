//! The text of an expression, and what is wrong with it. In: problems, each at a position. Out: the text that cel-go shows
//! for them: a line for each, the line of the source, and a caret below the position.

use std::fmt::Write;

/// cel-go shows no more problems than this.
const SHOWN: usize = 100;

/// A line of the source that is longer is not shown.
const LONGEST_SNIPPET: usize = 16_384;

/// The offset of problems that have no position.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// One problem.
#[derive(Clone, Debug)]
pub(crate) struct Issue {
    /// In characters from the start; [`NOWHERE`] if the problem is about the expression as a whole.
    pub offset: u32,
    pub message: String,
}

/// Everything that is wrong with an expression.
#[derive(Clone, Debug, Default)]
pub(crate) struct Issues {
    found: Vec<Issue>,
    count: usize,
}

impl Issues {
    pub(crate) fn report(&mut self, offset: u32, message: impl Into<String>) {
        self.count += 1;
        if self.count <= SHOWN {
            self.found.push(Issue { offset, message: message.into() });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The text that is shown to the author of `source`.
    pub(crate) fn show(mut self, source: &str) -> String {
        let lines: Vec<&str> = source.split('\n').collect();
        let place = |offset: u32| -> (i64, usize) {
            if offset == NOWHERE {
                return (-1, 0);
            }
            let mut left = offset as usize;
            for (at, line) in lines.iter().enumerate() {
                let length = line.chars().count();
                if left <= length {
                    return (at as i64 + 1, left);
                }
                left -= length + 1;
            }
            (lines.len() as i64, lines.last().map_or(0, |line| line.chars().count()))
        };
        self.found.sort_by_key(|issue| place(issue.offset));
        let mut texts = Vec::new();
        for issue in &self.found {
            let (line, column) = place(issue.offset);
            let shown = if issue.offset == NOWHERE { 0 } else { column + 1 };
            let mut text = format!("ERROR: <input>:{line}:{shown}: {}", issue.message);
            let snippet = usize::try_from(line - 1).ok().and_then(|at| lines.get(at));
            if let Some(snippet) = snippet.filter(|snippet| snippet.len() <= LONGEST_SNIPPET) {
                let snippet = snippet.replace('\t', " ");
                let _ = write!(text, "\n | {snippet}\n | ");
                let mut characters = snippet.chars();
                text.extend(characters.by_ref().take(column).map(|c| if c.len_utf8() > 1 { '．' } else { '.' }));
                let wide = characters.next().is_some_and(|c| c.len_utf8() > 1);
                text.push(if wide { '＾' } else { '^' });
            }
            texts.push(text);
        }
        if self.count > SHOWN {
            texts.push(format!("{} more errors were truncated", self.count - SHOWN));
        }
        texts.join("\n")
    }
}
