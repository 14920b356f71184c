//! The documents of discovery, field by field in the order that Kubernetes writes them: people and scripts read them as text.

use serde::Serialize;

/// `/api`
#[derive(Serialize)]
#[serde(tag = "kind", rename = "APIVersions")]
pub(crate) struct ApiVersions<'a> {
    pub versions: Vec<&'a str>,
    #[serde(rename = "serverAddressByClientCIDRs")]
    pub server_addresses: [ServerAddress<'a>; 1],
}

/// Where clients of a network reach the server.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerAddress<'a> {
    #[serde(rename = "clientCIDR")]
    pub client_cidr: &'a str,
    pub server_address: &'a str,
}

/// `/apis`
#[derive(Serialize)]
#[serde(tag = "kind", rename = "APIGroupList", rename_all = "camelCase")]
pub(crate) struct ApiGroupList<'a> {
    pub api_version: &'a str,
    pub groups: Vec<ApiGroup<'a>>,
}

/// `/apis/GROUP`, and an item of `/apis`, which does not say what it is.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiGroup<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<&'a str>,
    pub name: &'a str,
    pub versions: Vec<GroupVersionForDiscovery<'a>>,
    pub preferred_version: Option<GroupVersionForDiscovery<'a>>,
}

/// A version of a group.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupVersionForDiscovery<'a> {
    pub group_version: String,
    pub version: &'a str,
}

/// `/api/v1` and `/apis/GROUP/VERSION`
#[derive(Serialize)]
#[serde(tag = "kind", rename = "APIResourceList", rename_all = "camelCase")]
pub(crate) struct ApiResourceList<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<&'a str>,
    pub group_version: String,
    pub resources: Vec<ApiResource<'a>>,
}

/// A resource or a subresource.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiResource<'a> {
    pub name: String,
    pub singular_name: &'a str,
    pub namespaced: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<&'a str>,
    pub kind: &'a str,
    pub verbs: Vec<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub short_names: &'a [Box<str>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub categories: &'a [Box<str>],
    #[serde(skip_serializing_if = "String::is_empty")]
    pub storage_version_hash: String,
}

/// The aggregated form of `/api` and `/apis`.
#[derive(Serialize)]
#[serde(tag = "kind", rename = "APIGroupDiscoveryList", rename_all = "camelCase")]
pub(crate) struct ApiGroupDiscoveryList<'a> {
    pub api_version: String,
    pub metadata: Metadata<'a>,
    pub items: Vec<ApiGroupDiscovery<'a>>,
}

/// The metadata of a document: the name of a group, if it has one.
#[derive(Serialize)]
pub(crate) struct Metadata<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: &'a str,
}

/// A group.
#[derive(Serialize)]
pub(crate) struct ApiGroupDiscovery<'a> {
    pub metadata: Metadata<'a>,
    pub versions: Vec<ApiVersionDiscovery<'a>>,
}

/// A version of a group.
#[derive(Serialize)]
pub(crate) struct ApiVersionDiscovery<'a> {
    pub version: &'a str,
    pub resources: Vec<ApiResourceDiscovery<'a>>,
    pub freshness: &'static str,
}

/// A resource.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiResourceDiscovery<'a> {
    pub resource: &'a str,
    pub response_kind: ResponseKind<'a>,
    pub scope: &'static str,
    pub singular_resource: &'a str,
    pub verbs: Vec<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub short_names: &'a [Box<str>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub categories: &'a [Box<str>],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subresources: Vec<ApiSubresourceDiscovery<'a>>,
}

/// A subresource.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiSubresourceDiscovery<'a> {
    pub subresource: &'a str,
    pub response_kind: ResponseKind<'a>,
    pub verbs: Vec<&'static str>,
}

/// The kind that an endpoint speaks.
#[derive(Serialize)]
pub(crate) struct ResponseKind<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
}
