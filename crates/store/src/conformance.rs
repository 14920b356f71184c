//! The definition of a store: what every backend must do, as tests that any of them can run. A function that makes an
//! empty store comes in; a panic that names the case comes out if that is not one. It never looks behind the trait.
//!
//! ```
//! use konverge_store::{Memory, conformance};
//! conformance::suite(Memory::default);
//! ```

mod compaction;
mod dice;
mod model;
mod reading;
mod watching;
mod writing;

pub use dice::Dice;
pub use model::random_walk;

use crate::{BoxFuture, Change, Commit, CommitError, Entry, Range, Revision, Store};

type Case = (&'static str, fn(&dyn Store) -> BoxFuture<'_, ()>);

/// Every case, each on a store of its own, and some random walks compared with a model.
pub fn suite<S: Store>(make: impl Fn() -> S) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime for the cases");
    for (name, case) in [writing::CASES, reading::CASES, watching::CASES, compaction::CASES].concat() {
        let naming = Naming(name.into());
        runtime.block_on(case(&make()));
        drop(naming);
    }
    for seed in 1..=6 {
        random_walk(&make(), seed, 150);
    }
}

/// Says which case it was if it panics.
struct Naming(String);

impl Drop for Naming {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this store does not conform: {}", self.0);
        }
    }
}

// The words the cases share.

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
fn told(entry: &Entry) -> String {
    let value = String::from_utf8_lossy(&entry.value);
    format!("{}={value}@{}<{}", entry.key, entry.revision, entry.created)
}

fn told_get(store: &dyn Store, key: &str, at: Option<u64>) -> String {
    match store.get(key, at.map(Revision)) {
        Ok(Some(entry)) => told(&entry),
        Ok(None) => "absent".into(),
        Err(error) => error.to_string(),
    }
}

/// `key key +` where `+` says that there is more.
fn told_range(store: &dyn Store, range: Range<'_>) -> String {
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
fn told_change(change: &Change) -> String {
    let value = |entry: &Option<Entry>| match entry {
        Some(entry) => {
            assert_eq!(entry.key, change.key, "a change and its entries are about one key");
            format!("{}@{}", String::from_utf8_lossy(&entry.value), entry.revision)
        }
        None => "-".into(),
    };
    format!("{}:{} {}>{}", change.revision, change.key, value(&change.before), value(&change.after))
}

fn told_changes(changes: &[Change]) -> Vec<String> {
    changes.iter().map(told_change).collect()
}

fn told_commit(result: Result<Revision, CommitError>) -> String {
    match result {
        Ok(revision) => format!("revision {revision}"),
        Err(CommitError::Conflict { key, found }) => {
            format!("conflict {key} {}", found.map_or("absent".into(), |entry| told(&entry)))
        }
        Err(error) => error.to_string(),
    }
}
