//! The newest lines that watches sent, so that a change which a hundred clients watch is put into words once. In: which
//! line is wanted, and how to write it. Out: bytes that all share. Forgetting one costs time, never a wrong answer.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use konverge_store::Revision;

use crate::resource::Resource;

/// Who watches the same objects is woken together, so that a few lines serve them all. When there are more, the oldest
/// goes.
const MOST: usize = 16;

/// Longer lines are not kept: all together then take at most a MiB.
const LONGEST: usize = 64 * 1024;

/// Which line: the same for everyone who watches whole objects through the same row.
pub(crate) struct LineOf {
    /// Held, so that no other row can be taken for it.
    pub row: Arc<Resource>,
    pub key: Arc<str>,
    pub revision: Revision,
    pub kind: &'static str,
}

/// The newest lines.
#[derive(Default)]
pub(crate) struct Lines(Mutex<VecDeque<(LineOf, Bytes)>>);

impl Lines {
    /// The line, which is written only if it is not there.
    pub fn line(&self, of: LineOf, write: impl FnOnce() -> Vec<u8>) -> Bytes {
        if let Some(known) = self.find(&of) {
            return known;
        }
        // Not under the lock: two that write the same line at the same time do no harm.
        let line = Bytes::from(write());
        if line.len() <= LONGEST {
            let mut lines = self.0.lock();
            if lines.len() == MOST {
                lines.pop_front();
            }
            lines.push_back((of, line.clone()));
        }
        line
    }

    fn find(&self, of: &LineOf) -> Option<Bytes> {
        let lines = self.0.lock();
        lines.iter().rev().find(|(known, _)| known == of).map(|(_, line)| line.clone())
    }
}

impl PartialEq for LineOf {
    fn eq(&self, other: &Self) -> bool {
        self.revision == other.revision
            && self.kind == other.kind
            && Arc::ptr_eq(&self.row, &other.row)
            && self.key == other.key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;

    #[test]
    fn a_line_is_written_once_for_all_who_want_the_same() {
        let rows = builtin::served();
        let lines = Lines::default();
        let of = |row: usize, key: &str, revision, kind| LineOf {
            row: rows[row].clone(),
            key: key.into(),
            revision: Revision(revision),
            kind,
        };
        let get = |of: LineOf, text: &str| lines.line(of, || text.into());
        assert_eq!(get(of(0, "/a", 1, "ADDED"), "first"), "first");
        for (same, expect) in [
            (of(0, "/a", 1, "ADDED"), "first"),
            (of(1, "/a", 1, "ADDED"), "other row"),
            (of(0, "/b", 1, "ADDED"), "other key"),
            (of(0, "/a", 2, "ADDED"), "other revision"),
            (of(0, "/a", 1, "DELETED"), "other kind"),
        ] {
            assert_eq!(get(same, expect), expect);
        }
        assert_eq!(get(of(0, "/a", 1, "ADDED"), "written again"), "first");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let row = &builtin::served()[0];
        let lines = Lines::default();
        let of = |revision| LineOf { row: row.clone(), key: "/a".into(), revision: Revision(revision), kind: "ADDED" };
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(lines.line(of(0), || long.clone().into()), long);
        assert_eq!(lines.0.lock().len(), 0);
        for revision in 0..100 {
            lines.line(of(revision), || revision.to_string().into());
        }
        assert_eq!(lines.0.lock().len(), MOST);
        assert_eq!(lines.line(of(99), || "written again".into()), "99");
        assert_eq!(lines.line(of(0), || "written again".into()), "written again");
    }
}
