//! What clients saw, and whether one state explains it. Every write has a version, and versions are one order of all writes; so a
//! history is linearizable if what returned before something else began comes before it in that order, and if every read saw the value
//! of its version.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct History {
    /// Moments: each begin and each end has its own.
    clock: AtomicU64,
    operations: Mutex<Vec<Operation>>,
}

#[derive(Clone, Debug)]
struct Operation {
    began: u64,
    ended: u64,
    key: String,
    /// The version that was written or read; 0 is a key that does not exist.
    version: u64,
    value: String,
    is_write: bool,
    /// The version before it, if the write was conditional.
    after: Option<u64>,
}

impl History {
    pub(crate) fn begin(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    fn record(&self, began: u64, key: &str, version: u64, value: String, is_write: bool, after: Option<u64>) {
        let ended = self.clock.fetch_add(1, SeqCst);
        let operation = Operation { began, ended, key: key.to_owned(), version, value, is_write, after };
        self.operations.lock().push(operation);
    }

    /// A write that returned this version. One that failed is found out by reads, if it happened.
    pub(crate) fn wrote(&self, began: u64, key: &str, value: &str, after: Option<u64>, version: u64) {
        self.record(began, key, version, value.to_owned(), true, after);
    }

    /// A read that found this version and value.
    pub(crate) fn read(&self, began: u64, key: &str, found: Option<(u64, &[u8])>) {
        let value = found.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
        let version = found.map_or(0, |(version, _)| version);
        self.record(began, key, version, value.unwrap_or_default(), false, None);
    }

    /// Whether enough was seen to judge by.
    pub(crate) fn is_enough(&self) -> bool {
        let operations = self.operations.lock();
        let writes = operations.iter().filter(|operation| operation.is_write).count();
        writes > 20 && operations.len() - writes > 10
    }

    /// Panics if no state explains what was seen.
    pub(crate) fn check(&self) {
        assert!(self.is_enough(), "{} operations are too few", self.operations.lock().len());
        if let Err(why) = explain(&self.operations.lock()) {
            panic!("{why}");
        }
    }
}

fn explain(operations: &[Operation]) -> Result<(), String> {
    let mut by_version: BTreeMap<u64, (&str, &str)> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.version > 0) {
        let seen = (operation.key.as_str(), operation.value.as_str());
        if *by_version.entry(operation.version).or_insert(seen) != seen {
            return Err(format!("version {} is {seen:?} and {:?}", operation.version, by_version[&operation.version]));
        }
    }
    let mut written: Vec<u64> = operations.iter().filter(|one| one.is_write).map(|one| one.version).collect();
    written.sort_unstable();
    if let Some(twice) = written.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("version {} was written twice", twice[0]));
    }
    for second in operations {
        for first in operations.iter().filter(|first| first.key == second.key && first.ended < second.began) {
            let is_ordered = first.version < second.version || first.version == second.version && !second.is_write;
            if !is_ordered {
                return Err(format!("{first:?} had returned before {second:?} began"));
            }
        }
        if let Some(after) = second.after {
            let mut between = by_version.range(after + 1..second.version).filter(|(_, (key, _))| *key == second.key);
            if let Some((version, _)) = between.next() {
                return Err(format!("{second:?} was conditional, but version {version} is between"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `began ended w|r version value after`, all of one key.
    type Given<'a> = (u64, u64, char, u64, &'a str, Option<u64>);

    fn check(given: &[Given<'_>], expect: &str) {
        let operations: Vec<Operation> = given
            .iter()
            .map(|(began, ended, kind, version, value, after)| Operation {
                began: *began,
                ended: *ended,
                key: "a".into(),
                version: *version,
                value: (*value).into(),
                is_write: *kind == 'w',
                after: *after,
            })
            .collect();
        let got = explain(&operations).err().unwrap_or_default();
        assert!(got.contains(expect) && got.is_empty() == expect.is_empty(), "{got} instead of {expect}");
    }

    #[test]
    fn histories_that_no_state_explains_are_found() {
        check(&[(0, 1, 'w', 1, "x", None), (2, 3, 'r', 1, "x", None)], "");
        check(&[(0, 3, 'w', 1, "x", None), (1, 2, 'r', 0, "", None)], "");
        check(&[(0, 1, 'w', 1, "x", None), (2, 3, 'r', 0, "", None)], "had returned before");
        check(&[(0, 1, 'r', 1, "x", None), (2, 3, 'r', 0, "", None)], "had returned before");
        check(&[(0, 1, 'w', 1, "x", None), (2, 3, 'r', 1, "y", None)], "version 1 is");
        check(&[(0, 1, 'w', 1, "x", None), (0, 1, 'w', 1, "x", None)], "written twice");
        check(&[(0, 1, 'w', 2, "x", None), (2, 3, 'w', 1, "y", None)], "had returned before");
        check(&[(0, 5, 'w', 1, "x", None), (0, 5, 'w', 2, "y", None), (0, 5, 'w', 3, "z", Some(1))], "is between");
    }
}
