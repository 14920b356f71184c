//! The conformance suite: what every backend of the store must do. In: a function that makes an empty store. Out: a panic
//! that names the failing case. The suite uses only the trait.
//!
//! ```
//! use konverge_store::{Memory, conformance};
//! conformance::suite(Memory::default);
//! ```

mod compaction;
mod model;
mod random;
mod reading;
mod watching;
mod writing;

pub use model::random_walk;
pub use random::Rng;

use crate::{BoxFuture, Change, Commit, CommitError, Entry, Range, Revision, Store};

type Case = (&'static str, fn(&dyn Store) -> BoxFuture<'_, ()>);

/// Runs every case on a store of its own, and compares some random walks with a model.
pub fn suite<S: Store>(make: impl Fn() -> S) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime for the cases");
    for (name, case) in [writing::CASES, reading::CASES, watching::CASES, compaction::CASES].concat() {
        let case_name = CaseName(name.into());
        runtime.block_on(case(&make()));
        drop(case_name);
    }
    for seed in 1..=6 {
        random_walk(&make(), seed, 150);
    }
}

/// Prints the name of the case if it panics.
struct CaseName(String);

impl Drop for CaseName {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this store does not conform: {}", self.0);
        }
    }
}

// Helpers of the cases.

async fn put(store: &dyn Store, key: &str, value: &'static str) -> Revision {
    commit(store, Commit::default().put(key, value)).await
}

async fn delete(store: &dyn Store, key: &str) -> Revision {
    commit(store, Commit::default().delete(key)).await
}

async fn commit(store: &dyn Store, commit: Commit) -> Revision {
    store.commit(commit).await.expect("this commit has no reason to fail")
}

/// `key=value@revision<created`
fn show(entry: &Entry) -> String {
    let value = String::from_utf8_lossy(&entry.value);
    format!("{}={value}@{}<{}", entry.key, entry.revision, entry.created)
}

fn show_get(store: &dyn Store, key: &str, at: Option<u64>) -> String {
    match store.get(key, at.map(Revision)) {
        Ok(Some(entry)) => show(&entry),
        Ok(None) => "absent".into(),
        Err(error) => error.to_string(),
    }
}

/// `key key +` where `+` says that there is more.
fn show_range(store: &dyn Store, range: Range<'_>) -> String {
    match store.range(range) {
        Ok(page) => {
            let mut words: Vec<&str> = page.entries.iter().map(|entry| &*entry.key).collect();
            words.extend(page.more.then_some("+"));
            words.join(" ")
        }
        Err(error) => error.to_string(),
    }
}

/// `revision:key before>after`
fn show_change(change: &Change) -> String {
    let value = |entry: &Option<Entry>| match entry {
        Some(entry) => {
            assert_eq!(entry.key, change.key, "a change and its entries are about one key");
            format!("{}@{}", String::from_utf8_lossy(&entry.value), entry.revision)
        }
        None => "-".into(),
    };
    format!("{}:{} {}>{}", change.revision, change.key, value(&change.before), value(&change.after))
}

fn show_changes(changes: &[Change]) -> Vec<String> {
    changes.iter().map(show_change).collect()
}

fn show_commit(result: Result<Revision, CommitError>) -> String {
    match result {
        Ok(revision) => format!("revision {revision}"),
        Err(CommitError::Conflict { key, found }) => {
            format!("conflict {key} {}", found.map_or("absent".into(), |entry| show(&entry)))
        }
        Err(error) => error.to_string(),
    }
}
