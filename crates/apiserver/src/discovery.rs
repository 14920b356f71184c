//! Discovery: `/api`, `/apis` and below, in the legacy and the aggregated form. In: the registry. Out: JSON documents. Groups
//! stay in the order of the registry, built-in ones first, then those of definitions, by name; versions go from the most to the
//! least stable.

mod form;

use std::cmp::Ordering;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;

use crate::behaviour::StorageRule;
use crate::digest::Digest;
use crate::negotiate::DiscoveryVersion;
use crate::partial;
use crate::resource::{Resource, SubresourceInfo};
use crate::verb::Verbs;
use form::{
    ApiGroup, ApiGroupDiscovery, ApiGroupDiscoveryList, ApiGroupList, ApiResource, ApiResourceDiscovery,
    ApiResourceList, ApiSubresourceDiscovery, ApiVersionDiscovery, ApiVersions, GroupVersionForDiscovery, Metadata,
    ResponseKind, ServerAddress,
};

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
    pub(crate) fn api_versions<'s>(&'s self, server_address: &'s str) -> ApiVersions<'s> {
        let core = self.group("");
        ApiVersions {
            versions: core.into_iter().flat_map(|group| &group.versions).map(|version| version.name).collect(),
            server_addresses: [ServerAddress { client_cidr: "0.0.0.0/0", server_address }],
        }
    }

    /// `/apis`
    pub(crate) fn api_group_list(&self) -> ApiGroupList<'_> {
        let groups = self.groups.iter().filter(|group| !group.name.is_empty());
        ApiGroupList { api_version: "v1", groups: groups.map(Group::summary).collect() }
    }

    /// `/apis/GROUP`
    pub(crate) fn api_group(&self, name: &str) -> Option<ApiGroup<'_>> {
        let group = self.group(name).filter(|group| !group.name.is_empty())?;
        Some(ApiGroup { kind: Some("APIGroup"), api_version: Some("v1"), ..group.summary() })
    }

    /// `/api/v1` with an empty group, and `/apis/GROUP/VERSION`
    pub(crate) fn api_resource_list(&self, group: &str, version: &str) -> Option<ApiResourceList<'_>> {
        let found = self.group(group)?.versions.iter().find(|known| known.name == version)?;
        Some(ApiResourceList {
            api_version: (!group.is_empty()).then_some("v1"),
            group_version: group_version(group, version),
            resources: found.resources.iter().flat_map(|resource| legacy_rows(resource)).collect(),
        })
    }

    /// `APIGroupDiscoveryList` of `/api` or `/apis`
    pub(crate) fn aggregated(&self, root: Root, version: DiscoveryVersion) -> Document {
        let here = |group: &&Group<'_>| group.name.is_empty() == (root == Root::Api);
        Document::of(&ApiGroupDiscoveryList {
            api_version: format!("apidiscovery.k8s.io/{}", version.as_str()),
            metadata: Metadata { name: "" },
            items: self.groups.iter().filter(here).map(Group::aggregated).collect(),
        })
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
    pub(crate) fn of(value: &impl Serialize) -> Self {
        let mut body = Vec::new();
        partial::write(&mut body, value);
        let hash = Digest::of(&body).to_string();
        Self { body: body.into(), hash }
    }
}

impl<'a> Group<'a> {
    fn summary(&self) -> ApiGroup<'a> {
        ApiGroup {
            kind: None,
            api_version: None,
            name: self.name,
            versions: self.versions.iter().map(|version| self.version(version.name)).collect(),
            preferred_version: self.versions.first().map(|version| self.version(version.name)),
        }
    }

    fn version(&self, version: &'a str) -> GroupVersionForDiscovery<'a> {
        GroupVersionForDiscovery { group_version: group_version(self.name, version), version }
    }

    fn aggregated(&self) -> ApiGroupDiscovery<'a> {
        let versions = self.versions.iter().map(Version::aggregated).collect();
        ApiGroupDiscovery { metadata: Metadata { name: self.name }, versions }
    }
}

impl<'a> Version<'a> {
    fn aggregated(&self) -> ApiVersionDiscovery<'a> {
        let resources = self.resources.iter().map(|resource| aggregated_row(resource)).collect();
        ApiVersionDiscovery { version: self.name, resources, freshness: "Current" }
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

fn legacy_rows(resource: &Resource) -> Vec<ApiResource<'_>> {
    let mut rows = vec![ApiResource {
        name: resource.plural.to_string(),
        singular_name: &resource.singular,
        namespaced: resource.namespaced,
        group: None,
        version: None,
        kind: &resource.kind,
        verbs: verbs(resource.verbs),
        short_names: &resource.short_names,
        categories: &resource.categories,
        storage_version_hash: storage_version_hash(resource),
    }];
    for sub in sorted(&resource.subresources) {
        let foreign = is_foreign(resource, sub);
        rows.push(ApiResource {
            name: format!("{}/{}", resource.plural, sub.name),
            singular_name: "",
            namespaced: resource.namespaced,
            group: foreign.then_some(&sub.gvk.group),
            version: foreign.then_some(&sub.gvk.version),
            kind: &sub.gvk.kind,
            verbs: verbs(sub.verbs),
            short_names: &[],
            categories: &[],
            storage_version_hash: String::new(),
        });
    }
    rows
}

/// What tells clients that objects are stored in another version now: eight bytes of a SHA-256.
fn storage_version_hash(resource: &Resource) -> String {
    if resource.behaviour.storage == StorageRule::Nowhere {
        return String::new();
    }
    let api_version = &*resource.storage.api_version;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let text = format!("{group}/{version}/{}", resource.kind);
    let hash = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    STANDARD.encode(&hash.as_ref()[..8])
}

fn aggregated_row(resource: &Resource) -> ApiResourceDiscovery<'_> {
    let subresources = sorted(&resource.subresources).into_iter().map(|sub| ApiSubresourceDiscovery {
        subresource: &sub.name,
        response_kind: match is_foreign(resource, sub) {
            true => ResponseKind { group: &sub.gvk.group, version: &sub.gvk.version, kind: &sub.gvk.kind },
            false => own_kind(resource, &sub.gvk.kind),
        },
        verbs: verbs(sub.verbs),
    });
    ApiResourceDiscovery {
        resource: &resource.plural,
        response_kind: own_kind(resource, &resource.kind),
        scope: if resource.namespaced { "Namespaced" } else { "Cluster" },
        singular_resource: &resource.singular,
        verbs: verbs(resource.verbs),
        short_names: &resource.short_names,
        categories: &resource.categories,
        subresources: subresources.collect(),
    }
}

/// A kind of the same group and version. What is left empty is that of the list, except that CRDs always spell it out.
fn own_kind<'a>(resource: &'a Resource, kind: &'a str) -> ResponseKind<'a> {
    match resource.custom {
        true => ResponseKind { group: &resource.group, version: &resource.version, kind },
        false => ResponseKind { group: "", version: "", kind },
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
