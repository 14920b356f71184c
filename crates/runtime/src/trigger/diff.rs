//! Which fields of an object changed. In: two states of it. Out: the first few paths that differ. Compares text and
//! builds nothing but the answer.

use crate::json_text::{items, members};
use crate::object::Object;

/// Fields that change with every write and tell nothing.
const NOISE: [&str; 2] = ["metadata.resourceVersion", "metadata.managedFields"];

/// The paths that differ, at most `limit` of them.
pub(crate) fn changed(before: &Object, after: &Object, limit: usize) -> Vec<String> {
    let mut diff = Diff { path: String::new(), found: Vec::new(), limit };
    diff.compare(before.json(), after.json());
    diff.found
}

struct Diff {
    path: String,
    found: Vec<String>,
    limit: usize,
}

impl Diff {
    fn compare(&mut self, before: &str, after: &str) {
        if before == after || self.found.len() >= self.limit || NOISE.contains(&self.path.as_str()) {
            return;
        }
        match (before.as_bytes().first(), after.as_bytes().first()) {
            (Some(b'{'), Some(b'{')) => self.objects(before, after),
            (Some(b'['), Some(b'[')) if items(before).count() == items(after).count() => {
                for (at, (before, after)) in items(before).zip(items(after)).enumerate() {
                    self.under(&format!("[{at}]"), |diff| diff.compare(before, after));
                }
            }
            _ => self.found.push(self.path.clone()),
        }
    }

    fn objects(&mut self, before: &str, after: &str) {
        // Both sides usually have the same names in the same order, so the next one is looked at first.
        let mut others = members(before);
        for (name, now) in members(after) {
            let was = match others.next() {
                Some((other, was)) if other == name => Some(was),
                _ => members(before).find(|(other, _)| *other == name).map(|(_, was)| was),
            };
            self.under(name, |diff| match was {
                Some(was) => diff.compare(was, now),
                None => diff.compare("", now),
            });
        }
        for (name, was) in members(before) {
            if !members(after).any(|(other, _)| other == name) {
                self.under(name, |diff| diff.compare(was, ""));
            }
        }
    }

    fn under(&mut self, step: &str, act: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 && !step.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(step);
        act(self);
        self.path.truncate(length);
    }
}
