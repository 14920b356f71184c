//! One resource: everything the server knows about a kind in one version. Built-in kinds and custom resource definitions have
//! the same type of resource; there is no code per kind.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use konverge_cel::RuleSet;
use konverge_core::GroupVersionKind;
use konverge_schema::{Arena, TypeId};
use konverge_store::Revision;

use crate::behaviour::Behaviour;
use crate::conversion::Converter;
use crate::digest::Digest;
use crate::lifetime::Lifetime;
use crate::verb::Verbs;

/// A resource in one version, as discovery lists it and requests name it.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    /// The API group; empty for core.
    pub group: Box<str>,
    /// The version served here.
    pub version: Box<str>,
    /// The name in paths: `deployments`.
    pub plural: Box<str>,
    /// `deployment`
    pub singular: Box<str>,
    /// `Deployment`
    pub kind: Box<str>,
    /// `DeploymentList`
    pub list_kind: Box<str>,
    /// `deploy`
    pub short_names: Vec<Box<str>>,
    /// `all`
    pub categories: Vec<Box<str>>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// What may be done with it.
    pub verbs: Verbs,
    /// `status`, `scale`, …
    pub subresources: Vec<SubresourceInfo>,
    /// The type of its objects.
    pub schema: ResourceSchema,
    /// Columns of a CRD's `additionalPrinterColumns`, or of a built-in kind people look at.
    /// Empty: name and age.
    pub columns: Arc<[Column]>,
    /// Whether a custom resource definition stands for this resource.
    pub custom: bool,
    /// How long a custom resource is valid, once it is in the registry.
    pub lifetime: Option<Lifetime>,
    /// Where its objects are stored, and in which version.
    pub storage: ResourceStorage,
    /// Fields that a CRD lets its objects be selected by: `spec.color`.
    pub selectable: Vec<Box<str>>,
    /// Where the scale subresource finds its numbers.
    pub scale: Option<ScalePaths>,
    /// How this kind behaves differently from others.
    pub behaviour: &'static Behaviour,
    /// An object with nothing in it but the fields that are always there: what a new object is compared with.
    pub empty_object: Value,
    /// The warning for requests to a deprecated version.
    pub deprecation: Option<Box<str>>,
    /// What a CRD says about its fields, for people: its schema with nothing but descriptions left.
    pub descriptions: Option<Arc<Value>>,
    /// The digest of a custom resource's OpenAPI schemas, once it was needed.
    pub(crate) published: OnceLock<Digest>,
}

/// Where and how the objects of a resource are stored. All versions of a kind share this.
#[derive(Clone, Debug)]
pub(crate) struct ResourceStorage {
    /// What every key starts with: `/registry/apps/deployments/`.
    pub prefix: Box<str>,
    /// The apiVersion that objects are stored in.
    pub api_version: Box<str>,
    /// The revision at which the schema last changed. Older records are brought up to it when read.
    pub since: Revision,
    /// Top-level fields that are stored under another name than this version shows: (stored, shown).
    pub renames: &'static [(&'static str, &'static str)],
    /// The types of the version that custom resources are stored in. Every stored object has its defaults and only its fields,
    /// whichever version it was written through.
    pub types: Option<(Arc<Arena>, TypeId)>,
    /// What converts objects between the versions of the kind, where more than `apiVersion` differs.
    pub(crate) converter: Option<Arc<dyn Converter>>,
}

/// The paths of a scale subresource, as a CRD writes them: `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    /// The wanted number.
    pub spec_replicas: Box<str>,
    /// The observed number.
    pub status_replicas: Box<str>,
    /// The selector, as text or as a LabelSelector object.
    pub selector: Option<Box<str>>,
}

/// Where the type of a resource's objects is.
#[derive(Clone, Debug)]
pub(crate) struct ResourceSchema {
    /// All built-in kinds share one arena; each version of a CRD has its own.
    pub arena: Arc<Arena>,
    /// The type of a whole object.
    pub root: TypeId,
    /// Its name in OpenAPI documents: `io.k8s.api.apps.v1.Deployment`, `com.example.v1.Widget`.
    pub name: Box<str>,
    /// The rules in CEL of a custom resource, if it has any.
    pub rules: Option<Arc<RuleSet>>,
}

/// A subresource, as discovery lists it.
#[derive(Clone, Debug)]
pub(crate) struct SubresourceInfo {
    /// `status`
    pub name: Box<str>,
    /// The kind its endpoint speaks, which may be of another group: `autoscaling/v1, Kind=Scale`.
    pub gvk: GroupVersionKind,
    /// What may be done with it.
    pub verbs: Verbs,
}

/// One column of `kubectl get`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    /// The heading.
    pub name: Box<str>,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub ty: Box<str>,
    /// `name`, `password`, …; usually empty.
    pub format: Box<str>,
    /// Shown in the heading's help.
    pub description: Box<str>,
    /// 0 is always shown; more only with `-o wide`.
    pub priority: i32,
    /// Where the value is: the JSONPath subset of CRDs.
    pub json_path: Box<str>,
}

impl Resource {
    /// The group, version and kind of its objects.
    pub(crate) fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.to_string(),
            version: self.version.to_string(),
            kind: self.kind.to_string(),
        }
    }

    /// The `apiVersion` of its objects.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { [&*self.group, "/", &*self.version].concat() }
    }

    /// Whether this is the `apiVersion` of its objects.
    pub(crate) fn is_api_version(&self, text: &str) -> bool {
        let (group, version) = text.split_once('/').unwrap_or(("", text));
        *self.group == *group && *self.version == *version
    }

    /// The key of an object.
    pub(crate) fn key(&self, namespace: Option<&str>, name: &str) -> String {
        match namespace {
            Some(namespace) => [&*self.storage.prefix, namespace, "/", name].concat(),
            None => [&*self.storage.prefix, name].concat(),
        }
    }

    /// What comes before the names of all objects, or of those in one namespace.
    pub(crate) fn prefix(&self, namespace: Option<&str>) -> String {
        self.key(namespace, "")
    }

    /// Namespace and name of the object under `key`.
    pub(crate) fn identity<'k>(&self, key: &'k str) -> (Option<&'k str>, &'k str) {
        let rest = key.strip_prefix(&*self.storage.prefix).unwrap_or(key);
        match rest.split_once('/') {
            Some((namespace, name)) if self.namespaced => (Some(namespace), name),
            _ => (None, rest),
        }
    }

    /// The subresource of this name.
    pub(crate) fn subresource(&self, name: &str) -> Option<&SubresourceInfo> {
        self.subresources.iter().find(|sub| &*sub.name == name)
    }
}

#[cfg(test)]
impl Resource {
    /// A namespaced resource with all verbs and nothing else, for tests to fill in.
    pub(crate) fn plain(group: &str, version: &str, kind: &str) -> Self {
        let mut arena = Arena::default();
        let root = arena.add(konverge_schema::Node::default());
        let singular = kind.to_lowercase();
        let plural = format!("{singular}s");
        Self {
            group: group.into(),
            version: version.into(),
            plural: plural.as_str().into(),
            singular: singular.into(),
            kind: kind.into(),
            list_kind: format!("{kind}List").into(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
            verbs: Verbs::ALL,
            subresources: Vec::new(),
            schema: ResourceSchema { arena: Arc::new(arena), root, name: kind.into(), rules: None },
            columns: [].into(),
            custom: false,
            lifetime: None,
            storage: ResourceStorage {
                prefix: format!("/registry/{group}/{plural}/").into(),
                api_version: format!("{group}/{version}").into(),
                since: Revision(0),
                renames: &[],
                types: None,
                converter: None,
            },
            selectable: Vec::new(),
            scale: None,
            behaviour: crate::behaviour::behaviour(group, &plural),
            empty_object: Value::Object(serde_json::Map::new()),
            deprecation: None,
            descriptions: None,
            published: OnceLock::new(),
        }
    }
}
