//! Discovery: `/api`, `/apis` and below, in the legacy and the aggregated form. In: the registry. Out: JSON documents. Groups
//! stay in the order of the registry, built-in ones first, then those of definitions, by name; versions go from the most to the
//! least stable.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::digest::Digest;
use crate::negotiate::DiscoveryVersion;
use crate::partial;
use crate::resource::{Resource, SubresourceInfo};
use crate::verb::Verbs;

/// A document and the short name of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    /// JSON.
    pub body: Bytes,
    /// The same for equal content; quoted it is an `ETag`.
    pub hash: String,
}

/// The two roots of discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Root {
    /// `/api`: the core group.
    Api,
    /// `/apis`: all others.
    Apis,
}

/// All resources, in the order of discovery.
#[derive(Clone, Debug)]
pub(crate) struct Catalog<'a> {
    groups: Vec<Group<'a>>,
}

#[derive(Clone, Debug)]
struct Group<'a> {
    name: &'a str,
    versions: Vec<Version<'a>>,
}

#[derive(Clone, Debug)]
struct Version<'a> {
    name: &'a str,
    resources: Vec<&'a Resource>,
}

impl<'a> Catalog<'a> {
    /// Sorts resources.
    pub(crate) fn of(table: &'a [Arc<Resource>]) -> Self {
        let mut groups: Vec<Group<'a>> = Vec::new();
        let (builtin, mut custom): (Vec<&Resource>, Vec<&Resource>) =
            table.iter().map(|resource| &**resource).partition(|resource| !resource.custom);
        custom.sort_by(|a, b| a.group.cmp(&b.group));
        for resource in builtin.into_iter().chain(custom) {
            let group = find_or_push(
                &mut groups,
                |group| group.name == &*resource.group,
                || Group { name: &resource.group, versions: Vec::new() },
            );
            let version = find_or_push(
                &mut group.versions,
                |version| version.name == &*resource.version,
                || Version { name: &resource.version, resources: Vec::new() },
            );
            version.resources.push(resource);
        }
        for group in &mut groups {
            group.versions.sort_by(|a, b| compare_versions(a.name, b.name));
            for version in &mut group.versions {
                version.resources.sort_by(|a, b| a.plural.cmp(&b.plural));
            }
        }
        Self { groups }
    }

    /// `/api`
    pub(crate) fn api_versions(&self, server_address: &str) -> Value {
        let core = self.group("");
        let versions: Vec<&str> = core.into_iter().flat_map(|group| &group.versions).map(|v| v.name).collect();
        json!({
            "kind": "APIVersions",
            "versions": versions,
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
        })
    }

    /// `/apis`
    pub(crate) fn api_group_list(&self) -> Value {
        let groups = self.groups.iter().filter(|group| !group.name.is_empty());
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups.map(Group::summary).collect::<Vec<_>>()})
    }

    /// `/apis/GROUP`
    pub(crate) fn api_group(&self, name: &str) -> Option<Value> {
        let mut document = self.group(name).filter(|group| !group.name.is_empty())?.summary();
        document["kind"] = "APIGroup".into();
        document["apiVersion"] = "v1".into();
        Some(document)
    }

    /// `/api/v1` with an empty group, and `/apis/GROUP/VERSION`
    pub(crate) fn api_resource_list(&self, group: &str, version: &str) -> Option<Value> {
        let found = self.group(group)?.versions.iter().find(|known| known.name == version)?;
        let rows: Vec<Value> = found.resources.iter().flat_map(|resource| legacy_rows(resource)).collect();
        let mut document = json!({
            "kind": "APIResourceList",
            "groupVersion": group_version(group, version),
            "resources": rows,
        });
        if !group.is_empty() {
            document["apiVersion"] = "v1".into();
        }
        Some(document)
    }

    /// `APIGroupDiscoveryList` of `/api` or `/apis`
    pub(crate) fn aggregated(&self, root: Root, version: DiscoveryVersion) -> Document {
        let here = |group: &&Group<'_>| group.name.is_empty() == (root == Root::Api);
        let items: Vec<Value> = self.groups.iter().filter(here).map(Group::aggregated).collect();
        Document::of(&json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": format!("apidiscovery.k8s.io/{}", version.as_str()),
            "metadata": {},
            "items": items,
        }))
    }

    /// Every group and version with its resources, in the order of discovery.
    pub(crate) fn group_versions(&self) -> impl Iterator<Item = (&'a str, &'a str, &[&'a Resource])> {
        self.groups.iter().flat_map(|group| {
            group.versions.iter().map(|version| (group.name, version.name, version.resources.as_slice()))
        })
    }

    fn group(&self, name: &str) -> Option<&Group<'a>> {
        self.groups.iter().find(|group| group.name == name)
    }
}

impl Document {
    pub(crate) fn of(value: &Value) -> Self {
        let mut body = Vec::new();
        partial::write(&mut body, value);
        let hash = Digest::of(&body).to_string();
        Self { body: body.into(), hash }
    }
}

impl Group<'_> {
    fn summary(&self) -> Value {
        let one = |version: &Version<'_>| json!({"groupVersion": group_version(self.name, version.name), "version": version.name});
        json!({
            "name": self.name,
            "versions": self.versions.iter().map(one).collect::<Vec<_>>(),
            "preferredVersion": self.versions.first().map(one),
        })
    }

    fn aggregated(&self) -> Value {
        let one = |version: &Version<'_>| {
            let resources: Vec<Value> = version.resources.iter().map(|resource| aggregated_row(resource)).collect();
            json!({"version": version.name, "resources": resources, "freshness": "Current"})
        };
        let metadata = if self.name.is_empty() { json!({}) } else { json!({"name": self.name}) };
        json!({"metadata": metadata, "versions": self.versions.iter().map(one).collect::<Vec<_>>()})
    }
}

/// Which version is offered first: `v2` before `v1`, then betas, then alphas, then other words by name.
pub(crate) fn compare_versions(a: &str, b: &str) -> Ordering {
    match (stability(a), stability(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Stability, major and minor number; greater is better. Nothing for versions of another scheme.
fn stability(version: &str) -> Option<(u8, u32, u32)> {
    let number = |text: &str| match text.as_bytes() {
        [b'1'..=b'9', ..] if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse::<u32>().ok(),
        _ => None,
    };
    let rest = version.strip_prefix('v')?;
    for (word, level) in [("alpha", 0), ("beta", 1)] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((level, number(major)?, number(minor)?));
        }
    }
    Some((2, number(rest)?, 0))
}

fn legacy_rows(resource: &Resource) -> Vec<Value> {
    let mut main = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs(resource.verbs),
    });
    add_names(&mut main, resource);
    let mut rows = vec![main];
    for sub in sorted(&resource.subresources) {
        let mut row = json!({
            "name": format!("{}/{}", resource.plural, sub.name),
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": sub.gvk.kind,
            "verbs": verbs(sub.verbs),
        });
        if is_foreign(resource, sub) {
            row["group"] = sub.gvk.group.as_str().into();
            row["version"] = sub.gvk.version.as_str().into();
        }
        rows.push(row);
    }
    rows
}

fn aggregated_row(resource: &Resource) -> Value {
    // What is left empty is that of the list, except that CRDs always spell it out.
    let own = |kind: &str| match resource.custom {
        true => json!({"group": resource.group, "version": resource.version, "kind": kind}),
        false => json!({"group": "", "version": "", "kind": kind}),
    };
    let mut row = json!({
        "resource": resource.plural,
        "responseKind": own(&resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(resource.verbs),
    });
    add_names(&mut row, resource);
    let one = |sub: &SubresourceInfo| {
        let kind = match is_foreign(resource, sub) {
            true => json!({"group": sub.gvk.group, "version": sub.gvk.version, "kind": sub.gvk.kind}),
            false => own(&sub.gvk.kind),
        };
        json!({"subresource": sub.name, "responseKind": kind, "verbs": verbs(sub.verbs)})
    };
    if !resource.subresources.is_empty() {
        row["subresources"] = sorted(&resource.subresources).into_iter().map(one).collect();
    }
    row
}

fn add_names(row: &mut Value, resource: &Resource) {
    for (key, names) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !names.is_empty() {
            row[key] = json!(names);
        }
    }
}

fn is_foreign(resource: &Resource, sub: &SubresourceInfo) -> bool {
    sub.gvk.group != *resource.group || sub.gvk.version != *resource.version
}

fn sorted(subresources: &[SubresourceInfo]) -> Vec<&SubresourceInfo> {
    let mut sorted: Vec<&SubresourceInfo> = subresources.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    sorted
}

fn verbs(verbs: Verbs) -> Vec<&'static str> {
    verbs.iter().map(|verb| verb.as_str()).collect()
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn find_or_push<T>(items: &mut Vec<T>, known: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let at = items.iter().position(known).unwrap_or_else(|| {
        items.push(new());
        items.len() - 1
    });
    &mut items[at]
}

#[cfg(test)]
mod tests;
