//! Built-in resources. In: the table that `cargo xtask codegen` derives from discovery. Out: one [`Resource`] for each line, in
//! the order clients prefer. How kinds behave differently is in `behaviour.rs`.

use std::sync::{Arc, OnceLock};

use konverge_core::GroupVersionKind;
use konverge_schema::{Arena, empty_object, kubernetes};
use konverge_store::Revision;

use crate::behaviour::{StorageRule, behaviour};
use crate::conversion::Converter;
use crate::conversion::autoscaling::Autoscalers;
use crate::resource::{Resource, ResourceSchema, ResourceStorage, ScalePaths, SubresourceInfo};
use crate::review;
use crate::subresource::Subresource;
use crate::verb::{Verb, Verbs};

/// Every built-in resource of Kubernetes in its stable version, the core group first.
pub(crate) fn builtin() -> Vec<Arc<Resource>> {
    let resources = parse(include_str!("../data/kubernetes.resources"), kubernetes());
    let resources = resources.expect("the committed table is what the generator wrote, and a test reads it");
    resources.into_iter().map(Arc::new).collect()
}

/// Every built-in resource whose objects this server stores or answers, with the subresources it serves.
pub(crate) fn served() -> Vec<Arc<Resource>> {
    let mut resources = builtin();
    resources.retain(|resource| {
        let answered = review::answers(&resource.group, &resource.plural)
            || (resource.group.is_empty() && matches!(&*resource.plural, "bindings" | "componentstatuses"));
        resource.behaviour.storage != StorageRule::Nowhere || answered
    });
    for resource in &mut resources {
        let resource = Arc::make_mut(resource);
        resource.subresources.retain(|sub| Subresource::named(&sub.name).is_some());
        resource.scale = resource.subresource("scale").map(|_| ScalePaths {
            spec_replicas: ".spec.replicas".into(),
            status_replicas: ".status.replicas".into(),
            selector: Some(".spec.selector".into()),
        });
    }
    resources
}

fn parse(text: &str, types: &Arc<Arena>) -> Result<Vec<Resource>, String> {
    let mut resources = Vec::new();
    let mut group_version = None;
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fields = line.trim_start_matches(' ');
        let outcome = match line.len() - fields.len() {
            0 => line.split_once('/').map(|found| group_version = Some(found)),
            2 => group_version
                .and_then(|group_version| resource(group_version, fields, types))
                .map(|resource| resources.push(resource)),
            4 => resources.last_mut().zip(subresource(fields)).map(|(resource, sub)| resource.subresources.push(sub)),
            _ => None,
        };
        outcome.ok_or_else(|| format!("line {}: {line:?}", at + 1))?;
    }
    Ok(resources)
}

fn resource((group, version): (&str, &str), line: &str, types: &Arc<Arena>) -> Option<Resource> {
    let (fields, words) = line.split_once("; ").unwrap_or((line, ""));
    let [plural, singular, kind, scope, ty] = split(fields)?;
    let root = types.named(ty)?;
    let mut resource = Resource {
        group: group.into(),
        version: version.into(),
        plural: plural.into(),
        singular: singular.into(),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: match scope {
            "namespaced" => true,
            "cluster" => false,
            _ => return None,
        },
        verbs: Verbs::ALL,
        subresources: Vec::new(),
        schema: ResourceSchema { arena: Arc::clone(types), root, name: ty.into(), rules: None },
        columns: Arc::from([]),
        custom: false,
        lifetime: None,
        storage: storage(group, version, plural),
        selectable: Vec::new(),
        scale: None,
        behaviour: behaviour(group, plural),
        empty_object: empty_object(types, root),
        deprecation: deprecation(kind),
        descriptions: None,
        published: OnceLock::new(),
    };
    for word in words.split("; ").filter(|word| !word.is_empty()) {
        match word.split_once(' ')? {
            ("verbs", names) => resource.verbs = verbs(names)?,
            ("short", names) => resource.short_names = names.split(',').map(Box::from).collect(),
            ("in", names) => resource.categories = names.split(',').map(Box::from).collect(),
            _ => return None,
        }
    }
    Some(resource)
}

/// Where the objects of a built-in kind are stored.
fn storage(group: &str, version: &str, plural: &str) -> ResourceStorage {
    // Only autoscalers have two versions whose fields differ.
    let older = (group, version) == ("autoscaling", "v1");
    let converter: Option<Arc<dyn Converter>> = if older { Some(Arc::new(Autoscalers)) } else { None };
    let version = if older { "v2" } else { version };
    let (group, version, plural, renames) = match behaviour(group, plural).storage {
        // Only the events of `events.k8s.io` are stored as another kind.
        StorageRule::With { group, plural } => (group, "v1", plural, EVENT_FIELDS),
        StorageRule::Own | StorageRule::Nowhere => (group, version, plural, &[][..]),
    };
    let (folder, api_version) = match group {
        "" => ("core", version.to_owned()),
        group => (group, format!("{group}/{version}")),
    };
    ResourceStorage {
        prefix: format!("/registry/{folder}/{plural}/").into(),
        api_version: api_version.into(),
        since: Revision(0),
        renames,
        types: None,
        converter,
    }
}

/// The warning for requests to a version that Kubernetes has deprecated.
fn deprecation(kind: &str) -> Option<Box<str>> {
    let text = match kind {
        "ComponentStatus" => "v1 ComponentStatus is deprecated in v1.19+",
        "Endpoints" => "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        _ => return None,
    };
    Some(text.into())
}

/// The names of an event's fields in `v1` and in `events.k8s.io/v1`, where they differ.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("involvedObject", "regarding"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
];

fn subresource(line: &str) -> Option<SubresourceInfo> {
    let [name, group_version, kind, names] = split(line)?;
    let (group, version) = group_version.split_once('/')?;
    let gvk = GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() };
    Some(SubresourceInfo { name: name.into(), gvk, verbs: verbs(names)? })
}

fn verbs(names: &str) -> Option<Verbs> {
    names.split(',').map(|name| Verb::ALL.into_iter().find(|verb| verb.as_str() == name)).collect()
}

/// Exactly as many words as there are names for them.
fn split<const N: usize>(line: &str) -> Option<[&str; N]> {
    line.split(' ').collect::<Vec<_>>().try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use konverge_schema::Shape;

    use super::*;

    /// A resource as the generator writes it, without the type.
    fn describe(resource: &Resource) -> String {
        let list = |names: &[Box<str>]| names.join(",");
        let verbs = |set: Verbs| set.iter().map(Verb::as_str).collect::<Vec<_>>().join(",");
        let subs = resource.subresources.iter().map(|sub| format!(" /{}({})={}", sub.name, sub.gvk, verbs(sub.verbs)));
        let scope = if resource.namespaced { "namespaced" } else { "cluster" };
        let verbs = if resource.verbs == Verbs::ALL { "all".to_owned() } else { verbs(resource.verbs) };
        format!(
            "{} {} {} {} {scope} {verbs} [{}] [{}]{}",
            resource.api_version(),
            resource.plural,
            resource.singular,
            resource.kind,
            list(&resource.short_names),
            list(&resource.categories),
            subs.collect::<String>()
        )
    }

    #[test]
    fn rows_say_what_discovery_says() {
        let resources = builtin();
        let cases = [
            ("", "configmaps", "v1 configmaps configmap ConfigMap namespaced all [cm] []"),
            ("", "bindings", "v1 bindings binding Binding namespaced create [] []"),
            (
                "",
                "namespaces",
                "v1 namespaces namespace Namespace cluster create,delete,get,list,patch,update,watch [ns] [] \
                 /finalize(v1, Kind=Namespace)=update /status(v1, Kind=Namespace)=get,patch,update",
            ),
            (
                "apps",
                "deployments",
                "apps/v1 deployments deployment Deployment namespaced all [deploy] [all] \
                 /scale(autoscaling/v1, Kind=Scale)=get,patch,update /status(apps/v1, Kind=Deployment)=get,patch,update",
            ),
            (
                "apiextensions.k8s.io",
                "customresourcedefinitions",
                "apiextensions.k8s.io/v1 customresourcedefinitions customresourcedefinition CustomResourceDefinition \
                 cluster all [crd,crds] [api-extensions] \
                 /status(apiextensions.k8s.io/v1, Kind=CustomResourceDefinition)=get,patch,update",
            ),
        ];
        for (group, plural, expect) in cases {
            let resource = resources
                .iter()
                .find(|resource| &*resource.group == group && &*resource.plural == plural)
                .expect(plural);
            assert_eq!(describe(resource), expect);
        }
        let pods = resources.iter().find(|resource| &*resource.plural == "pods").unwrap();
        assert_eq!(pods.subresource("eviction").unwrap().gvk.to_string(), "policy/v1, Kind=Eviction");
    }

    #[test]
    fn every_row_has_the_type_of_an_object() {
        let resources = builtin();
        for resource in &resources {
            let node = resource.schema.arena.node(resource.schema.root);
            assert!(matches!(node.shape, Shape::Struct { .. }), "{}", resource.plural);
            for field in ["apiVersion", "kind", "metadata"] {
                assert!(
                    resource.schema.arena.field(resource.schema.root, field).is_some(),
                    "{}.{field}",
                    resource.plural
                );
            }
            assert!(resource.schema.name.ends_with(&format!(".{}", resource.kind)), "{}", resource.schema.name);
        }
    }

    #[test]
    fn groups_keep_the_order_of_discovery() {
        let resources = builtin();
        let mut groups: Vec<&str> = resources.iter().map(|resource| &*resource.group).collect();
        groups.dedup();
        assert_eq!(groups[..4], ["", "apiregistration.k8s.io", "apps", "events.k8s.io"]);
        let unique: BTreeSet<_> =
            resources.iter().map(|resource| (&resource.group, &resource.version, &resource.plural)).collect();
        assert_eq!((resources.len(), unique.len(), groups.len()), (68, 68, 21));
    }

    #[test]
    fn broken_tables_name_the_line() {
        let cases = [
            "v1\n",
            "  pods pod Pod namespaced io.k8s.api.core.v1.Pod\n",
            "/v1\n  pods pod Pod namespaced\n",
            "/v1\n  pods pod Pod nowhere io.k8s.api.core.v1.Pod\n",
            "/v1\n  pods pod Pod namespaced io.k8s.api.core.v1.Pot\n",
            "/v1\n  pods pod Pod namespaced io.k8s.api.core.v1.Pod; verbs eat\n",
            "/v1\n  pods pod Pod namespaced io.k8s.api.core.v1.Pod; tall\n",
            "/v1\n    status /v1 Pod get\n",
            "/v1\n  pods pod Pod namespaced io.k8s.api.core.v1.Pod\n    status Pod get\n",
        ];
        for text in cases {
            let (last, line) = (text.lines().count(), text.lines().last().unwrap());
            assert_eq!(parse(text, kubernetes()).unwrap_err(), format!("line {last}: {line:?}"));
        }
    }
}
