//! Projected volumes: files of several sources in one folder. Trust bundles and pod certificates are no sources of a cluster
//! with the default feature gates.

use std::collections::HashSet;

use serde_json::Value;

use konverge_core::{FieldError, FieldPath};

use super::super::format;
use super::super::place::Place;
use super::super::walk::{Frame, Target, Walk};
use super::container::check_file;
use super::{Function, field, has, list, number, text};

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "projected-sources" => sources,
        _ => return None,
    })
}

fn local_path(walk: &mut Walk<'_>, value: &str, path: &FieldPath) {
    for why in format::named("local-path").map(|check| check(value)).unwrap_or_default() {
        walk.push(FieldError::invalid(path.clone(), value.into(), why));
    }
}

fn sources(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let mut paths: HashSet<String> = HashSet::new();
    let whole = at.place.path();
    let list_place = Place::Field(at.place, "sources");
    for (index, source) in list(at.value, "sources").iter().enumerate() {
        if !walk.budget.spend(1) {
            return;
        }
        let place = Place::Index(&list_place, index);
        let mut count = 0;
        for kind in ["secret", "configMap"].into_iter().filter(|kind| has(source, kind)) {
            count += 1;
            keys(walk, field(source, kind), &place.child(kind), &whole, &mut paths);
        }
        if has(source, "downwardAPI") {
            count += 1;
            let files = Place::Field(&place, "downwardAPI");
            for file in list(field(source, "downwardAPI"), "items") {
                check_file(walk, file, &files);
                let path = text(file, "path");
                if !path.is_empty() && !paths.insert(path.to_owned()) {
                    walk.push(FieldError::invalid(whole.clone(), path.into(), "conflicting duplicate paths"));
                }
            }
        }
        if has(source, "serviceAccountToken") {
            count += 1;
            token(walk, field(source, "serviceAccountToken"), &place.child("serviceAccountToken"), &whole);
        }
        if count > 1 {
            walk.push(FieldError::forbidden(place.path(), "may not specify more than 1 volume type per source"));
        }
    }
}

fn keys(walk: &mut Walk<'_>, source: &Value, path: &FieldPath, whole: &FieldPath, paths: &mut HashSet<String>) {
    let name = text(source, "name");
    if name.is_empty() {
        walk.push(FieldError::required(path.child("name"), ""));
    }
    for (index, item) in list(source, "items").iter().enumerate() {
        let path = path.child("items").index(index);
        let file = text(item, "path");
        if text(item, "key").is_empty() {
            walk.push(FieldError::required(path.child("key"), ""));
        }
        if file.is_empty() {
            walk.push(FieldError::required(path.child("path"), ""));
        }
        local_path(walk, file, &path.child("path"));
        mode(walk, item, &path);
        if !file.is_empty() && !paths.insert(file.to_owned()) {
            walk.push(FieldError::invalid(whole.clone(), name.into(), "conflicting duplicate paths"));
        }
    }
}

fn mode(walk: &mut Walk<'_>, item: &Value, path: &FieldPath) {
    if has(item, "mode") && !(0..=0o777).contains(&number(item, "mode")) {
        let why = "must be a number between 0 and 0777 (octal), both inclusive";
        walk.push(FieldError::invalid(path.child("mode"), number(item, "mode").into(), why));
    }
}

fn token(walk: &mut Walk<'_>, token: &Value, path: &FieldPath, whole: &FieldPath) {
    let seconds = number(token, "expirationSeconds");
    let at = path.child("expirationSeconds");
    if seconds < 600 {
        let why = "may not specify a duration less than 10 minutes";
        walk.push(FieldError::invalid(at.clone(), seconds.into(), why));
    }
    if seconds > 1 << 32 {
        let why = "may not specify a duration larger than 2^32 seconds";
        walk.push(FieldError::invalid(at, seconds.into(), why));
    }
    // The path stands beside the sources, in a cluster as well.
    let file = text(token, "path");
    if file.is_empty() {
        walk.push(FieldError::required(whole.child("path"), ""));
    } else {
        local_path(walk, file, &whole.child("path"));
    }
}
