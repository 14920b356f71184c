//! A small linearizability check: concurrent writers on a few keys, which record their requests and answers. Every acknowledged
//! write has a version of its own, in an order that fits what the writers saw, and a watch from the start sees exactly that
//! history.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::cluster::{Answer, CONFIG_MAPS, Cluster, MERGE, config_map, version};

const WRITERS: u64 = 4;
const WRITES: u64 = 150;
const KEYS: u64 = 3;

/// One request of a writer, and its answer.
#[derive(Clone, Debug)]
struct Noted {
    name: String,
    what: &'static str,
    /// The newest revision before the request, and after the answer.
    before: u64,
    after: u64,
    /// The version and the value in the answer, if the request succeeded.
    told: Option<(u64, Option<Value>)>,
}

async fn write(cluster: &Cluster, writer: u64, at: u64) -> Noted {
    let roll = (writer * 7919 + at * 104_729) % 1_000;
    let name = format!("k{}", roll % KEYS);
    let path = format!("{CONFIG_MAPS}/{name}");
    let value = format!("{writer}-{at}");
    let before = cluster.revision();
    let (what, answer): (&str, Answer) = match roll % 5 {
        0 => {
            let mut object = config_map(&name);
            object["data"]["k"] = value.into();
            ("create", cluster.post(CONFIG_MAPS, &object).await)
        }
        1 => ("delete", cluster.delete(&path).await),
        2 => {
            let current = cluster.get(&path).await;
            if current.code != 200 {
                return Noted { name, what: "none", before, after: cluster.revision(), told: None };
            }
            let mut object = current.json();
            object["data"]["k"] = value.into();
            ("replace", cluster.put(&path, &object).await)
        }
        _ => ("patch", cluster.patch(&path, MERGE, &json!({"data": {"k": value}})).await),
    };
    let after = cluster.revision();
    let told = match (what, answer.code) {
        (_, 409) | ("delete" | "patch" | "replace", 404) => None,
        // Gone without a version of its own: what is known is that it lies between the two.
        ("delete", 200) => Some((0, None)),
        (_, 200 | 201) => {
            let object = answer.json();
            Some((version(&object), Some(object["data"].clone())))
        }
        _ => panic!("{what} {name}: {answer:?}"),
    };
    Noted { name, what, before, after, told }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_are_the_history() {
    let cluster = Arc::new(Cluster::new().await);
    let begin = cluster.revision();
    let mut lines = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={begin}")).await;
    let writing = (0..WRITERS).map(|writer| {
        let cluster = cluster.clone();
        tokio::spawn(async move {
            let mut notes = Vec::new();
            for at in 0..WRITES {
                notes.push(write(&cluster, writer, at).await);
            }
            notes
        })
    });
    let mut notes: Vec<Vec<Noted>> = Vec::new();
    for writer in writing.collect::<Vec<_>>() {
        notes.push(writer.await.unwrap());
    }
    let end = cluster.revision();

    // The history, as a watch from the start sees it.
    let mut history: BTreeMap<u64, (String, String, Option<Value>)> = BTreeMap::new();
    let mut present: BTreeSet<String> = BTreeSet::new();
    while history.last_key_value().is_none_or(|(newest, _)| *newest < end) {
        let event = lines.next().await;
        let (kind, object) = (event["type"].as_str().unwrap().to_owned(), &event["object"]);
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let revision = version(object);
        assert!(history.last_key_value().is_none_or(|(newest, _)| *newest < revision), "in order, each once");
        match kind.as_str() {
            "ADDED" => assert!(present.insert(name.clone()), "{event}"),
            "MODIFIED" => assert!(present.contains(&name), "{event}"),
            "DELETED" => assert!(present.remove(&name), "{event}"),
            _ => panic!("{event}"),
        }
        let data = (kind != "DELETED").then(|| object["data"].clone());
        history.insert(revision, (kind, name, data));
    }
    assert_eq!(history.len() as u64, end - begin, "every revision is somebody's change");

    // Each acknowledged write is in it, at the version in its answer, within the time it took.
    let mut accounted = BTreeSet::new();
    for note in notes.iter().flatten() {
        if let Some((revision, Some(data))) = &note.told {
            let (kind, name, kept) = &history[revision];
            assert_eq!((name, kept.as_ref()), (&note.name, Some(data)), "{note:?}");
            assert_eq!(kind == "ADDED", note.what == "create", "{note:?} was {kind}");
            assert!(note.before < *revision && *revision <= note.after, "{note:?}");
            assert!(accounted.insert(*revision), "two writes have one version: {note:?}");
        }
    }
    // And each deletion that was acknowledged is one of the history's, within the time it took: matched greedily by the
    // end of the time, which finds a matching if there is one.
    let mut deletions: Vec<&Noted> =
        notes.iter().flatten().filter(|note| matches!(note.told, Some((_, None)))).collect();
    deletions.sort_by_key(|note| note.after);
    for note in deletions {
        let found = history.range(note.before + 1..=note.after).find(|(revision, (kind, name, _))| {
            kind == "DELETED" && *name == note.name && !accounted.contains(*revision)
        });
        let (revision, _) = found.unwrap_or_else(|| panic!("no such deletion: {note:?}"));
        accounted.insert(*revision);
    }
    assert_eq!(accounted, history.keys().copied().collect(), "nothing is in the history that nobody was told");

    // The versions in the answers to one writer only grow.
    for notes in &notes {
        let versions: Vec<u64> =
            notes.iter().filter_map(|note| note.told.as_ref()).map(|told| told.0).filter(|it| *it > 0).collect();
        assert!(versions.is_sorted_by(|a, b| a < b));
    }
    // A watch from anywhere sees the rest of the same history.
    for start in [begin, begin + 1, (begin + end) / 2, end - 1] {
        let mut lines = cluster.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={start}")).await;
        for (revision, (kind, _, _)) in history.range(start + 1..) {
            let event = lines.next().await;
            assert_eq!((version(&event["object"]), event["type"].as_str()), (*revision, Some(kind.as_str())));
        }
    }
    // And a list as of any version is what the history makes of it.
    for at in [begin + 5, (begin + end) / 2, end] {
        let list =
            cluster.get(&format!("{CONFIG_MAPS}?resourceVersion={at}&resourceVersionMatch=Exact")).await.expect(200);
        let mut state: BTreeMap<&str, (u64, &Value)> = BTreeMap::new();
        for (revision, (_, name, data)) in history.range(..=at) {
            match data {
                Some(data) => state.insert(name, (*revision, data)),
                None => state.remove(name.as_str()),
            };
        }
        let listed: BTreeMap<&str, (u64, &Value)> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| (item["metadata"]["name"].as_str().unwrap(), (version(item), &item["data"])))
            .collect();
        assert_eq!(listed, state, "as of {at}");
    }
}
