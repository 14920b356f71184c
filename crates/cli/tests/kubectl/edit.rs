//! `kubectl edit` with a script for an editor.

use serde_json::json;

use crate::cluster::Cluster;
use crate::expect;
use crate::fixtures::{WIDGETS, config_map, widget};

#[test]
fn edit() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.create(&(config_map("a", "k", "before") + &widget("w", "size: small, note: before")));
    let edit = |what: &str, change: &str| {
        let editor = cluster.script("editor", &format!("#!/bin/sh\nsed -i '{change}' \"$1\"\n"));
        cluster.kubectl(&format!("edit {what}")).env("EDITOR", editor)
    };
    edit("cm a", "s/before/after/").prints("configmap/a edited");
    expect::has(&cluster.object("cm a"), &json!({"data": {"k": "after"}}));
    edit("cm a", "s/nothing/here/").warns("", "Edit cancelled, no changes made.");
    edit("wd w", "s/note: before/note: after/").prints("widget.example.com/w edited");
    expect::has(&cluster.object("wd w"), &json!({"spec": {"note": "after"}, "metadata": {"generation": 2}}));
    edit("wd w --subresource=status", "$a status: {phase: Edited}").prints("widget.example.com/w edited");
    expect::has(&cluster.object("wd w"), &json!({"status": {"phase": "Edited"}, "metadata": {"generation": 2}}));
    // What is refused is shown, and kept in a file for another try.
    let (_, aside) = edit("wd w", "s/size: small/size: huge/").says(1);
    let said = "error: widgets.example.com \"w\" is invalid";
    assert!(aside.contains(said), "{said} is not in\n{aside}");
    expect::has(&cluster.object("wd w"), &json!({"spec": {"size": "small"}}));
}
