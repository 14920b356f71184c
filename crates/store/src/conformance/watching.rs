//! Watches: ordered, unique, reliable, resumable, atomic, filtered, bookmarkable, cancel-safe.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use super::{Case, commit, put, show_changes};
use crate::{Commit, ReadError, Revision, Store, Watch};

pub(super) const CASES: &[Case] = &[
    ("a watch shows every change once, in order", |store| Box::pin(everything(store))),
    ("a watch shows only its prefix", |store| Box::pin(filter(store))),
    ("a watch resumes from any position", |store| Box::pin(resume(store))),
    ("a commit comes whole", |store| Box::pin(atomic(store))),
    ("a watch cannot begin in the future", |store| Box::pin(future(store))),
    ("a waiting watch is woken", |store| Box::pin(woken(store))),
    ("a call that is dropped took nothing", |store| Box::pin(cancelled(store))),
    ("the position moves on a quiet prefix and waits for pending changes", |store| Box::pin(bookmarks(store))),
    ("watchers under load see the same history", |store| Box::pin(crowd(store))),
];

async fn drain(watch: &mut Watch) -> Vec<String> {
    show_changes(&watch.take(1000).expect("nothing is compacted"))
}

async fn everything(store: &dyn Store) {
    let mut early = store.watch("", Revision(0)).expect("can begin");
    put(store, "/a", "1").await;
    put(store, "/a", "2").await;
    commit(store, Commit::default().delete("/a").put("/b", "3")).await;
    commit(store, Commit::default().delete("/a").absent("/a")).await;
    put(store, "/a", "4").await;
    let expect = ["1:/a ->1@1", "2:/a 1@1>2@2", "3:/a 2@2>-", "3:/b ->3@3", "4:/a ->4@4"];
    assert_eq!(drain(&mut early).await, expect);
    assert_eq!(drain(&mut early).await, [""; 0]);
    let mut late = store.watch("", Revision(0)).expect("can begin");
    let mut one_by_one = Vec::new();
    while one_by_one.len() < expect.len() {
        one_by_one.extend(show_changes(&late.next(1).await.expect("nothing is compacted")));
    }
    assert_eq!(one_by_one, expect);
}

async fn filter(store: &dyn Store) {
    let mut watches: Vec<(&str, Watch)> = ["/a/", "/a", "", "/a/1", "/z"]
        .map(|prefix| (prefix, store.watch(prefix, Revision(0)).expect("can begin")))
        .into();
    for key in ["/a", "/a/1", "/b", "/a/10", "/a0"] {
        put(store, key, "x").await;
    }
    for (prefix, watch) in &mut watches {
        let changes = watch.take(1000).expect("nothing is compacted");
        let keys: Vec<&str> = changes.iter().map(|change| &*change.key).collect();
        let expect: Vec<&str> =
            ["/a", "/a/1", "/b", "/a/10", "/a0"].into_iter().filter(|key| key.starts_with(*prefix)).collect();
        assert_eq!(keys, expect, "{prefix}");
    }
}

async fn resume(store: &dyn Store) {
    for round in 0..10 {
        commit(store, Commit::default().put("/a/x", "1").put("/b/x", "1")).await;
        put(store, if round % 2 == 0 { "/a/y" } else { "/b/y" }, "1").await;
    }
    let whole = drain(&mut store.watch("/a/", Revision(0)).expect("can begin")).await;
    for max in 1..7 {
        let (mut position, mut pieces) = (Revision(0), Vec::new());
        while position < store.revision() {
            let mut watch = store.watch("/a/", position).expect("can begin");
            pieces.extend(show_changes(&watch.take(max).expect("nothing is compacted")));
            assert!(watch.position() > position, "a watch that took something has moved");
            position = watch.position();
        }
        assert_eq!(pieces, whole, "in pieces of {max}");
    }
}

async fn atomic(store: &dyn Store) {
    for _ in 0..3 {
        commit(store, ["/1", "/2", "/3"].iter().fold(Commit::default(), |all, key| all.put(*key, "x"))).await;
    }
    put(store, "/1", "x").await;
    let check = |max: usize, expect: &[usize]| {
        let mut watch = store.watch("", Revision(0)).expect("can begin");
        let sizes = expect.iter().map(|_| watch.take(max).expect("nothing is compacted").len());
        assert_eq!(sizes.collect::<Vec<_>>(), expect, "at most {max}");
    };
    check(0, &[3, 3, 3, 1, 0]);
    check(1, &[3, 3, 3, 1, 0]);
    check(3, &[3, 3, 3, 1, 0]);
    check(4, &[3, 3, 4, 0]);
    check(5, &[3, 3, 4, 0]);
    check(6, &[6, 4, 0]);
    check(9, &[9, 1, 0]);
    check(10, &[10, 0]);
}

async fn future(store: &dyn Store) {
    put(store, "/a", "1").await;
    let refused = store.watch("", Revision(2)).err();
    assert_eq!(refused, Some(ReadError::Future { asked: Revision(2), newest: Revision(1) }));
    assert!(store.watch("", Revision(1)).is_ok());
}

async fn woken(store: &dyn Store) {
    let mut watch = store.watch("/a", Revision(0)).expect("can begin");
    for round in 1..=20 {
        let (changes, _) = tokio::join!(watch.next(10), async {
            put(store, "/b", "x").await;
            put(store, "/a", "x").await
        });
        let changes = changes.expect("nothing is compacted");
        assert_eq!((changes.len(), changes[0].revision), (1, Revision(2 * round)));
    }
}

async fn cancelled(store: &dyn Store) {
    let mut watch = store.watch("/a", Revision(0)).expect("can begin");
    let mut seen = Vec::new();
    for round in 0..20 {
        let waits = {
            let mut next = pin!(watch.next(1));
            match next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(changes) => {
                    seen.extend(changes.expect("nothing is compacted"));
                    false
                }
                Poll::Pending => true,
            }
        };
        assert!(waits || seen.last().is_some_and(|change| &*change.key == "/a"));
        put(store, if round % 3 == 0 { "/a" } else { "/b" }, "x").await;
    }
    seen.extend(watch.take(1000).expect("nothing is compacted"));
    let revisions: Vec<u64> = seen.iter().map(|change| change.revision.0).collect();
    assert_eq!(revisions, [1, 4, 7, 10, 13, 16, 19]);
}

async fn bookmarks(store: &dyn Store) {
    let mut watch = store.watch("/a", Revision(0)).expect("can begin");
    assert_eq!(watch.position(), Revision(0));
    put(store, "/b", "x").await;
    put(store, "/b", "x").await;
    assert_eq!(watch.position(), Revision(2));
    put(store, "/a", "x").await;
    put(store, "/b", "x").await;
    let promised = watch.position();
    assert!(promised < Revision(3), "revision 3 was not handed out yet, but {promised} was promised");
    assert_eq!(drain(&mut watch).await, ["3:/a ->x@3"]);
    assert_eq!(watch.position(), Revision(4));
    put(store, "/b", "x").await;
    assert_eq!(watch.position(), Revision(5));
}

/// Many watchers at different speeds while many commits run: all get the same history, whole.
async fn crowd(store: &dyn Store) {
    const COMMITS: u64 = 200;
    let watchers = (0..8usize).map(async |number| {
        let mut watch = store.watch(if number % 2 == 0 { "" } else { "/even/" }, Revision(0)).expect("can begin");
        let mut seen: Vec<(u64, String)> = Vec::new();
        while watch.position() < Revision(COMMITS) || seen.last().is_none_or(|(last, _)| *last < COMMITS) {
            let changes = watch.next(number + 1).await.expect("nothing is compacted");
            seen.extend(changes.iter().map(|change| (change.revision.0, change.key.to_string())));
            for _ in 0..number {
                tokio::task::yield_now().await;
            }
        }
        seen
    });
    let writer = async {
        for number in 1..=COMMITS {
            let side = if number % 2 == 0 { "even" } else { "odd" };
            put(store, &format!("/{side}/{}", number % 7), "x").await;
            tokio::task::yield_now().await;
        }
    };
    let (histories, ()) = tokio::join!(join_all(watchers), writer);
    for (number, seen) in histories.into_iter().enumerate() {
        let step = if number % 2 == 0 { 1 } else { 2 };
        let expect = (1..=COMMITS).filter(|revision| revision % step == 0).map(|revision| {
            (revision, format!("/{}/{}", if revision % 2 == 0 { "even" } else { "odd" }, revision % 7))
        });
        assert_eq!(seen, expect.collect::<Vec<_>>(), "watcher {number}");
    }
}

/// All of them at once, on this task.
async fn join_all<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = futures.map(Box::pin).collect();
    let mut done: Vec<Option<T>> = running.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, result) in running.iter_mut().zip(&mut done) {
            if result.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *result = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}
