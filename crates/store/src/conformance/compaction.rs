//! Compaction: what is forgotten cannot be read, and nothing else is touched.

use super::{Case, delete, put, show_changes, show_get, show_range};
use crate::{Range, ReadError, Revision, Store};

pub(super) const CASES: &[Case] = &[
    ("compaction forgets history and keeps the newest", |store| Box::pin(forgets(store))),
    ("compaction never goes back nor ahead", |store| Box::pin(bounded(store))),
    ("a watch that lost something is told, every time", |store| Box::pin(too_slow(store))),
    ("a watch that lost nothing goes on", |store| Box::pin(quiet(store))),
];

async fn forgets(store: &dyn Store) {
    put(store, "/a", "1").await;
    put(store, "/a", "2").await;
    put(store, "/gone", "3").await;
    delete(store, "/gone").await;
    put(store, "/a", "5").await;
    put(store, "/b", "6").await;
    store.compact(Revision(4));
    assert_eq!((store.oldest(), store.revision()), (Revision(4), Revision(6)));
    let compacted = "revision 3 is compacted: the oldest that can be read is 4";
    assert_eq!(show_get(store, "/a", Some(3)), compacted);
    assert_eq!(show_range(store, Range { at: Some(Revision(3)), ..Range::default() }), compacted);
    assert_eq!(store.watch("", Revision(3)).err().map(|error| error.to_string()), Some(compacted.into()));
    assert_eq!(show_get(store, "/a", Some(4)), "/a=2@2<1");
    assert_eq!(show_get(store, "/a", Some(5)), "/a=5@5<1");
    assert_eq!(show_get(store, "/gone", Some(4)), "absent");
    let mut watch = store.watch("", Revision(4)).expect("can begin");
    let changes = watch.take(10).expect("nothing after 4 is compacted");
    assert_eq!(show_changes(&changes), ["5:/a 2@2>5@5", "6:/b ->6@6"]);
    store.compact(Revision(6));
    assert_eq!(show_range(store, Range::default()), "/a /b");
    assert_eq!(show_get(store, "/a", None), "/a=5@5<1");
    put(store, "/gone", "7").await;
    assert_eq!(show_get(store, "/gone", None), "/gone=7@7<7");
}

async fn bounded(store: &dyn Store) {
    store.compact(Revision(9));
    assert_eq!(store.oldest(), Revision(0));
    for _ in 0..3 {
        put(store, "/a", "x").await;
    }
    let check = |before, expect| {
        store.compact(Revision(before));
        assert_eq!(store.oldest(), Revision(expect));
    };
    check(0, 0);
    check(2, 2);
    check(1, 2);
    check(2, 2);
    check(99, 3);
    assert_eq!(put(store, "/a", "x").await, Revision(4));
    assert_eq!(show_get(store, "/a", Some(3)), "/a=x@3<1");
}

async fn too_slow(store: &dyn Store) {
    let mut stalled = store.watch("/a", Revision(0)).expect("can begin");
    let mut reading = store.watch("/a", Revision(0)).expect("can begin");
    for _ in 0..5 {
        put(store, "/a", "x").await;
        assert_eq!(reading.next(10).await.map(|changes| changes.len()), Ok(1));
    }
    store.compact(Revision(3));
    for _ in 0..2 {
        let expected = ReadError::Compacted { asked: Revision(0), oldest: Revision(3) };
        assert_eq!(stalled.next(10).await, Err(expected));
        assert_eq!(stalled.position(), Revision(0));
    }
    put(store, "/a", "x").await;
    assert_eq!(reading.next(10).await.map(|changes| changes.len()), Ok(1));
}

async fn quiet(store: &dyn Store) {
    let mut watch = store.watch("/quiet", Revision(0)).expect("can begin");
    for _ in 0..5 {
        put(store, "/busy", "x").await;
    }
    store.compact(Revision(5));
    assert_eq!(watch.position(), Revision(5));
    put(store, "/busy", "x").await;
    store.compact(Revision(6));
    put(store, "/quiet", "7").await;
    let changes = watch.next(10).await.expect("what was compacted did not concern this watch");
    assert_eq!(show_changes(&changes), ["7:/quiet ->7@7"]);
    assert_eq!(watch.position(), Revision(7));
}
