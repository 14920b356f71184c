//! No space for what is to be written. A limit of file sizes stands for a full disk, which needs no rights: the writes of the store
//! fail in the same way.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::konverge::Running;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ARGUMENTS: [&str; 3] = ["apiserver", "--port", "0"];
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

fn create(server: &Running, name: &str, bytes: usize) -> (u16, Value) {
    let object = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(bytes)}});
    server.curl("POST", CONFIG_MAPS, &JSON, &object.to_string())
}

fn names(server: &Running) -> Vec<String> {
    let (code, list) = server.curl("GET", CONFIG_MAPS, &[], "");
    assert_eq!(code, 200, "{list}");
    let items = list["items"].as_array().expect("items").iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn length(directory: &Path) -> u64 {
    fs::metadata(directory.join(".konverge/data/store.redb")).expect("a store").len()
}

#[test]
fn a_server_starts_and_can_be_read_without_space_and_heals() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Running::start(directory.path(), &ARGUMENTS);
    for number in 0..4 {
        assert_eq!(create(&server, &format!("c{number}"), 900_000).0, 201);
    }
    // Killed in the middle of its work, so that the next start has something to repair.
    server.kill();

    let server = Running::start_limited(directory.path(), length(directory.path()), &ARGUMENTS);
    let mut known = vec!["c0".to_owned(), "c1".into(), "c2".into(), "c3".into()];
    assert_eq!(names(&server), known);
    let refused = (4..50).find_map(|number| {
        let name = format!("c{number:02}");
        let (code, answer) = create(&server, &name, 900_000);
        if code == 201 {
            known.push(name);
            return None;
        }
        Some((code, answer))
    });
    let (code, answer) = refused.expect("at some time there is no space");
    assert_eq!((code, &answer["reason"]), (503, &json!("ServiceUnavailable")), "{answer}");
    assert!(answer["message"].as_str().is_some_and(|why| why.contains("store.redb: ")), "{answer}");
    known.sort();
    assert_eq!(names(&server), known, "what was acknowledged can be read");
    server.kill();

    let server = Running::start_limited(directory.path(), length(directory.path()), &ARGUMENTS);
    assert_eq!(names(&server), known, "also by the next server");
    server.kill();

    let server = Running::start(directory.path(), &ARGUMENTS);
    assert_eq!(names(&server), known);
    assert_eq!(create(&server, "z", 900_000).0, 201, "there is space again");
    assert_eq!(server.curl("DELETE", &format!("{CONFIG_MAPS}/c0"), &[], "").0, 200);
}
