//! Commits: revisions, conditions, all or nothing.

use super::{Case, commit, delete, put, show_commit, show_get};
use crate::{Commit, CommitError, Range, Revision, Store};

pub(super) const CASES: &[Case] = &[
    ("an empty store is at revision zero", |store| Box::pin(empty(store))),
    ("each commit that changes something takes the next revision", |store| Box::pin(revisions(store))),
    ("conditions are checked against the newest state", |store| Box::pin(conditions(store))),
    ("a commit happens whole or not at all", |store| Box::pin(all_or_nothing(store))),
    ("a key is created anew after a deletion", |store| Box::pin(created(store))),
    ("dropping the future does not undo the commit", |store| Box::pin(dropped(store))),
    ("of racing updates at one version exactly one wins", |store| Box::pin(races(store))),
    ("keys and values are any text and any bytes", |store| Box::pin(odd_content(store))),
];

async fn empty(store: &dyn Store) {
    assert_eq!((store.revision(), store.oldest()), (Revision(0), Revision(0)));
    assert_eq!(show_get(store, "/a", None), "absent");
    assert_eq!(show_get(store, "/a", Some(0)), "absent");
    assert_eq!(store.range(Range::default()).expect("readable").entries, []);
}

async fn revisions(store: &dyn Store) {
    let check = async |given: Commit, expect: &str| {
        assert_eq!(show_commit(store.commit(given).await), expect);
    };
    check(Commit::default(), "revision 0").await;
    check(Commit::default().put("/a", "1"), "revision 1").await;
    check(Commit::default().put("/a", "1"), "revision 2").await;
    check(Commit::default().put("/b", "1").put("/c", "1").delete("/a"), "revision 3").await;
    check(Commit::default().delete("/a"), "revision 3").await;
    check(Commit::default().delete("/a").put("/d", "1"), "revision 4").await;
    check(Commit::default().absent("/a"), "revision 4").await;
    check(Commit::default().put("/e", "1").delete("/e"), "a commit may write a key once, but this one writes /e twice")
        .await;
    assert_eq!(store.revision(), Revision(4));
    assert_eq!(show_get(store, "/b", None), "/b=1@3<3");
    assert_eq!(show_get(store, "/c", None), "/c=1@3<3");
}

async fn conditions(store: &dyn Store) {
    put(store, "/a", "1").await;
    put(store, "/a", "2").await;
    put(store, "/gone", "1").await;
    delete(store, "/gone").await;
    let check = async |given: Commit, expect: &str| {
        assert_eq!(show_commit(store.commit(given).await), expect);
    };
    check(Commit::default().absent("/b"), "revision 4").await;
    check(Commit::default().absent("/gone"), "revision 4").await;
    check(Commit::default().absent("/a").put("/a", "x"), "conflict /a /a=2@2<1").await;
    check(Commit::default().unchanged("/a", Revision(1)).put("/a", "x"), "conflict /a /a=2@2<1").await;
    check(Commit::default().unchanged("/a", Revision(3)), "conflict /a /a=2@2<1").await;
    check(Commit::default().unchanged("/b", Revision(1)), "conflict /b absent").await;
    check(Commit::default().unchanged("/gone", Revision(3)).put("/gone", "x"), "conflict /gone absent").await;
    check(Commit::default().unchanged("/gone", Revision(4)).put("/gone", "x"), "conflict /gone absent").await;
    check(Commit::default().unchanged("/a", Revision(2)).absent("/b"), "revision 4").await;
    check(Commit::default().unchanged("/a", Revision(2)).delete("/a"), "revision 5").await;
    check(Commit::default().absent("/a").put("/a", "3"), "revision 6").await;
}

async fn all_or_nothing(store: &dyn Store) {
    put(store, "/a", "1").await;
    let given = Commit::default().put("/b", "1").delete("/a").absent("/nothing").unchanged("/a", Revision(9));
    assert!(matches!(store.commit(given).await, Err(CommitError::Conflict { .. })));
    assert_eq!(store.revision(), Revision(1));
    assert_eq!(show_get(store, "/a", None), "/a=1@1<1");
    assert_eq!(show_get(store, "/b", None), "absent");
}

async fn created(store: &dyn Store) {
    put(store, "/a", "1").await;
    put(store, "/a", "2").await;
    delete(store, "/a").await;
    put(store, "/a", "3").await;
    put(store, "/a", "4").await;
    let shown: Vec<String> = (0..=5).map(|at| show_get(store, "/a", Some(at))).collect();
    assert_eq!(shown, ["absent", "/a=1@1<1", "/a=2@2<1", "absent", "/a=3@4<4", "/a=4@5<4"]);
}

async fn dropped(store: &dyn Store) {
    drop(store.commit(Commit::default().put("/a", "1")));
    assert_eq!(put(store, "/b", "1").await, Revision(2));
    assert_eq!(show_get(store, "/a", None), "/a=1@1<1");
}

async fn races(store: &dyn Store) {
    let mut newest = put(store, "/a", "0").await;
    for round in 1..=10 {
        // Built before any is awaited, so that a backend with a queue has all of them at once.
        let racers: Vec<_> = (0..16)
            .map(|racer| store.commit(Commit::default().unchanged("/a", newest).put("/a", format!("{round}-{racer}"))))
            .collect();
        let mut won = Vec::new();
        for racer in racers {
            match racer.await {
                Ok(revision) => won.push(revision),
                Err(CommitError::Conflict { found: Some(found), .. }) => assert_eq!(found.revision, newest.next()),
                Err(other) => panic!("racing is no reason for {other}"),
            }
        }
        assert_eq!(won, [newest.next()]);
        newest = newest.next();
    }
}

async fn odd_content(store: &dyn Store) {
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    commit(store, Commit::default().put("", "empty key").put("/empty", "").put("/käse/🧀", bytes.clone())).await;
    assert_eq!(show_get(store, "", None), "=empty key@1<1");
    assert_eq!(show_get(store, "/empty", None), "/empty=@1<1");
    assert_eq!(store.get("/käse/🧀", None).expect("readable").expect("there").value, bytes);
    assert_eq!(store.count(Range::default()), Ok(3));
}
