//! Ranges: order, bounds, pages, revisions, and that a long list is of one moment.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Instant,
};

use super::{Case, commit, delete, put, show_get, show_range};
use crate::{Commit, Range, Revision, Store};

pub(super) const CASES: &[Case] = &[
    ("a range is ordered and bounded", |store| Box::pin(bounds(store))),
    ("pages make up the whole", |store| Box::pin(pages(store))),
    ("a read at a revision shows that revision", |store| Box::pin(revisions(store))),
    ("a long list is of one moment", |store| Box::pin(one_moment(store))),
];

async fn bounds(store: &dyn Store) {
    for key in ["b", "a/2", "a", "a/1", "a0", "a/", "c", "a/10", "ä"] {
        put(store, key, "x").await;
    }
    delete(store, "c").await;
    let check = |prefix, after: Option<&str>, limit: Option<usize>, expect: &str| {
        let range = Range { prefix, after, limit, at: None };
        assert_eq!(show_range(store, range), expect, "{range:?}");
        if limit.is_none() {
            let count = expect.split_whitespace().count();
            assert_eq!(store.count(Range { limit: Some(1), ..range }), Ok(count), "{range:?}");
        }
    };
    check("", None, None, "a a/ a/1 a/10 a/2 a0 b ä");
    check("a", None, None, "a a/ a/1 a/10 a/2 a0");
    check("a/", None, None, "a/ a/1 a/10 a/2");
    check("a/1", None, None, "a/1 a/10");
    check("c", None, None, "");
    check("z", None, None, "");
    check("", Some("a/10"), None, "a/2 a0 b ä");
    check("", Some("a/11"), None, "a/2 a0 b ä");
    check("a/", Some("a/10"), None, "a/2");
    check("a/", Some("a"), None, "a/ a/1 a/10 a/2");
    check("a/", Some("b"), None, "");
    check("a/", Some("a/2"), None, "");
    check("", None, Some(0), "+");
    check("c", None, Some(0), "");
    check("a/", None, Some(1), "a/ +");
    check("a/", None, Some(3), "a/ a/1 a/10 +");
    check("a/", None, Some(4), "a/ a/1 a/10 a/2");
    check("a/", Some("a/1"), Some(1), "a/10 +");
    check("", Some("b"), Some(1), "ä");
}

async fn pages(store: &dyn Store) {
    let expect: Vec<String> = (0..3000).map(|number| format!("/n/{number:05}")).collect();
    let all = expect.iter().fold(Commit::default(), |all, key| all.put(key.as_str(), "x"));
    let at = commit(store, all).await;
    for limit in [None, Some(3000), Some(2999), Some(1024), Some(700), Some(2)] {
        let mut found: Vec<String> = Vec::new();
        let mut round = 0;
        loop {
            let after = found.last().cloned();
            let range = Range { prefix: "/n/", after: after.as_deref(), limit, at: Some(at) };
            assert_eq!(store.count(range), Ok(3000 - found.len()));
            let page = store.range(range).expect("readable");
            assert_eq!(page.revision, at);
            found.extend(page.entries.iter().map(|entry| entry.key.to_string()));
            // A page at a revision does not see what happens meanwhile.
            round += 1;
            commit(
                store,
                Commit::default().delete(format!("/n/{:05}", 2999 - round % 3)).put(format!("/n/x{round}"), "x"),
            )
            .await;
            if !page.more || round == 40 {
                assert_eq!(found, expect[..found.len()]);
                assert!(page.more || found.len() == expect.len());
                break;
            }
        }
    }
}

async fn revisions(store: &dyn Store) {
    put(store, "/a", "1").await;
    put(store, "/b", "1").await;
    delete(store, "/a").await;
    put(store, "/c", "1").await;
    let at = |at| show_range(store, Range { at: Some(Revision(at)), ..Range::default() });
    assert_eq!((0..=4).map(at).collect::<Vec<_>>(), ["", "/a", "/a /b", "/b", "/b /c"]);
    let future = "revision 5 is in the future: the newest is 4";
    assert_eq!(at(5), future);
    assert_eq!(show_get(store, "/a", Some(5)), future);
    assert!(store.count(Range { at: Some(Revision(5)), ..Range::default() }).is_err());
    assert_eq!(store.range(Range::default()).expect("readable").revision, Revision(4));
    assert_eq!(
        store.range(Range { at: Some(Revision(2)), ..Range::default() }).expect("readable").revision,
        Revision(2)
    );
}

async fn one_moment(store: &dyn Store) {
    let write = |round: u32| {
        (0..2500).fold(Commit::default(), |all, number| all.put(format!("/{number:04}"), round.to_string()))
    };
    commit(store, write(0)).await;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // On a panic elsewhere the scope waits for this thread; it must not wait for ever.
            let begun = Instant::now();
            while !done.load(Relaxed) && begun.elapsed().as_secs() < 60 {
                let page = store.range(Range::default()).expect("the newest is readable");
                assert_eq!(page.entries.len(), 2500);
                let first = &page.entries[0];
                assert_eq!(first.revision, page.revision);
                assert!(page.entries.iter().all(|entry| entry.value == first.value), "of one commit");
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        scope
            .spawn(move || {
                for round in 1..=8 {
                    runtime.block_on(commit(store, write(round)));
                }
            })
            .join()
            .expect("the commits succeed");
        done.store(true, Relaxed);
    });
}
