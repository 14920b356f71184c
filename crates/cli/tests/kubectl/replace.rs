//! `kubectl replace` and `kubectl diff`: whole objects, and what would become of them.

use serde_json::json;

use crate::cluster::Cluster;
use crate::expect;
use crate::fixtures::{WEB, WIDGETS, config_map, widget};

#[test]
fn replace() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.create(&(config_map("a", "k", "1") + &widget("w", "size: small, note: x")));
    cluster.kubectl("replace -f -").input(&config_map("a", "l", "2")).prints("configmap/a replaced");
    assert_eq!(cluster.object("cm a")["data"], json!({"l": "2"}));
    cluster.kubectl("replace -f -").input(&widget("w", "size: large")).prints("widget.example.com/w replaced");
    expect::has(
        &cluster.object("wd w"),
        &json!({"metadata": {"generation": 2}, "spec": {"size": "large", "note": null, "color": "blue"}}),
    );
    // Whoever read an older version has to read again.
    let mut stale = cluster.object("cm a");
    cluster.kubectl("label cm a x=y").succeeds();
    stale["data"]["l"] = "3".into();
    cluster.kubectl("replace -f -").input(&stale.to_string()).fails(
        "Error from server (Conflict): error when replacing \"STDIN\": Operation cannot be fulfilled on configmaps \"a\": the \
         object has been modified; please apply your changes to the latest version and try again",
    );
    assert_eq!(cluster.object("cm a")["data"], json!({"l": "2"}));
    cluster
        .kubectl("replace -f -")
        .input(&config_map("none", "k", "1"))
        .fails("Error from server (NotFound): error when replacing \"STDIN\": configmaps \"none\" not found");
    // By force: another object in the place of the old one.
    let uid = cluster.object("cm a")["metadata"]["uid"].clone();
    cluster
        .kubectl("replace --force -f -")
        .input(&config_map("a", "k", "4"))
        .prints("configmap \"a\" deleted …\nconfigmap/a replaced");
    let object = cluster.object("cm a");
    assert_ne!(object["metadata"]["uid"], uid);
    assert_eq!(object["data"], json!({"k": "4"}));
}

#[test]
fn diff() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    let objects = config_map("a", "k", "1") + &widget("w", "size: small") + WEB;
    cluster.kubectl("apply -f -").input(&objects).succeeds();
    cluster.kubectl("diff -f -").input(&objects).prints("");
    let changed = objects
        .replace("\"1\"", "\"2\"")
        .replace("size: small", "size: small, note: new")
        .replace("envoy:1.30", "envoy:1.31");
    let (said, _) = cluster.kubectl("diff -f -").input(&changed).says(1);
    for expect in
        ["-  k: \"1\"", "+  k: \"2\"", "+  note: new", "-      - image: envoy:1.30", "+      - image: envoy:1.31"]
    {
        assert!(said.contains(expect), "{expect} is not in\n{said}");
    }
    // A new object is all plus.
    let (said, _) = cluster.kubectl("diff --server-side -f -").input(&config_map("new", "k", "1")).says(1);
    assert!(said.contains("+  k: \"1\"") && !said.contains("\n-  "), "{said}");
    cluster.kubectl("get cm -o name").prints("configmap/a");
    expect::has(&cluster.object("cm a"), &json!({"data": {"k": "1"}}));
}
