//! How built-in kinds differ in what the server does. In: a table that is written by hand. Out: a [`Behaviour`] by group and
//! plural name, with one for custom resources. Only data: the stages of a request decide by it.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use konverge_core::NameRule;
use serde_json::Value;

/// What the server does with objects of one resource, where kinds differ.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Behaviour {
    /// What names must look like.
    pub names: NameRule,
    /// When `metadata.generation` grows.
    pub generation: Generation,
    /// Whether an update must carry `metadata.resourceVersion`.
    pub update_needs_version: bool,
    /// Whether PUT of an unknown name creates the object.
    pub put_creates: bool,
    /// Whether DELETE answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    /// Whether a finalizer may have no domain.
    pub any_finalizer: bool,
    /// Whether DELETE grants a grace period (pods).
    pub graceful: bool,
    /// What happens to dependents when DELETE names no propagation policy.
    pub dependents: Dependents,
    /// What create does with `status`.
    pub status_on_create: StatusOnCreate,
    /// Fields of `metadata` that a write to the status subresource cannot change. `spec` never changes there.
    pub status_holds: Vec<&'static str>,
    /// Dotted paths that an update of the whole object leaves as they are, whatever the client sent.
    pub fixed: Vec<&'static str>,
    /// The field labels that selectors may use.
    pub labels: Vec<FieldLabel>,
    /// The error for any other label: `%s` is the label, `%q` the label in quotes.
    pub unknown_label: &'static str,
    /// How old objects can become before the server deletes them.
    pub expires: Option<Duration>,
    /// Where objects are stored.
    pub storage: StorageRule,
    /// The values that only the server can give.
    pub assigns: Option<Assigns>,
    /// A write-only field of plain texts, and the field that stores them as base64.
    pub folds: Option<(&'static str, &'static str)>,
}

/// The values that only the server can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assigns {
    /// A QoS class.
    Pod,
    /// Labels for the pods of a job, and the selector that finds them.
    Job,
    /// Addresses and ports.
    Service,
    /// Where its data comes from, in both fields for that.
    Claim,
    /// How often the template has changed.
    DaemonSet,
    /// Since when a volume is in its phase.
    Volume,
    /// Who asks for the certificate, and the times of its conditions.
    CertificateSigningRequest,
}

/// When `metadata.generation` grows, besides the moment a deletion begins.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Generation {
    /// There is none.
    Untracked,
    /// With a change below one of these paths.
    Tracked {
        /// What create sets: 1, or 0 for none.
        first: i64,
        /// Dotted paths. `*` is all but `apiVersion`, `kind`, `metadata` and `status`.
        paths: Vec<&'static str>,
    },
}

/// What happens to dependents when DELETE names no propagation policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// The garbage collector deletes them afterwards.
    #[default]
    Background,
    /// They stay, without their owner.
    Orphan,
    /// The kind takes no part in garbage collection.
    Ignored,
}

/// What create does with `status`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum StatusOnCreate {
    /// It is dropped where there is a status subresource.
    #[default]
    Dropped,
    /// It becomes this, whatever the client sent.
    Set(Value),
    /// It stays as the client sent it.
    Kept,
}

/// A field label of selectors and where its value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldLabel {
    /// As selectors write it.
    pub label: &'static str,
    /// Dotted paths, in which numbers index lists. The first value that is not empty counts.
    pub paths: Vec<&'static str>,
    /// The value if none is found.
    pub absent: &'static str,
}

/// Where objects are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StorageRule {
    /// Under their own group and plural name.
    #[default]
    Own,
    /// With those of another resource, in another version of the same kind.
    With {
        /// The other resource's group.
        group: &'static str,
        /// Its plural name.
        plural: &'static str,
    },
    /// Nowhere: create returns an answer, which is not stored.
    Nowhere,
}

/// The behaviour of a built-in resource, or else that of custom resources.
pub(crate) fn behaviour(group: &str, plural: &str) -> &'static Behaviour {
    static TABLE: OnceLock<BehaviourTable> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let rows = parse(include_str!("../data/kubernetes.behaviour"));
        BehaviourTable { rows: rows.expect("a test reads the committed table"), custom: custom() }
    });
    table.rows.get(group).and_then(|rows| rows.get(plural)).unwrap_or(&table.custom)
}

impl Behaviour {
    /// The field label of this name, or the error for an unknown one.
    pub(crate) fn label(&self, label: &str) -> Result<&FieldLabel, String> {
        let found = self.labels.iter().find(|known| known.label == label);
        found.ok_or_else(|| self.unknown_label.replace("%q", &format!("{label:?}")).replace("%s", label))
    }
}

/// By group, then by plural name.
type Rows = HashMap<&'static str, HashMap<&'static str, Behaviour>>;

struct BehaviourTable {
    rows: Rows,
    custom: Behaviour,
}

const EVERY_KIND: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// What a plain built-in kind does.
fn plain() -> Behaviour {
    Behaviour {
        names: NameRule::Subdomain,
        generation: Generation::Untracked,
        update_needs_version: false,
        any_finalizer: false,
        put_creates: false,
        returns_deleted: false,
        graceful: false,
        dependents: Dependents::Background,
        status_on_create: StatusOnCreate::Dropped,
        status_holds: Vec::new(),
        fixed: Vec::new(),
        labels: EVERY_KIND.map(at_its_name).into(),
        unknown_label: r#"%q is not a known field selector: only "metadata.name", "metadata.namespace""#,
        expires: None,
        storage: StorageRule::Own,
        assigns: None,
        folds: None,
    }
}

/// What custom resources do. Their selectable fields come with the CRD.
fn custom() -> Behaviour {
    Behaviour {
        generation: Generation::Tracked { first: 1, paths: vec!["*"] },
        update_needs_version: true,
        any_finalizer: true,
        status_holds: vec!["annotations", "deletionTimestamp", "finalizers", "labels", "ownerReferences"],
        unknown_label: SELECTING,
        ..plain()
    }
}

/// The error for an unknown label of kinds that have labels of their own.
const SELECTING: &str = "field label not supported: %s";

fn at_its_name(label: &'static str) -> FieldLabel {
    FieldLabel { label, paths: vec![label], absent: "" }
}

fn parse(text: &'static str) -> Result<Rows, String> {
    let mut rows = Rows::new();
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split("; ");
        let (group, plural) = resource(words.next().unwrap_or_default());
        let mut row = plain();
        for word in words {
            read(&mut row, word).ok_or_else(|| format!("line {}: {word:?} is not understood", at + 1))?;
        }
        if rows.entry(group).or_default().insert(plural, row).is_some() {
            return Err(format!("line {}: {plural} is here twice", at + 1));
        }
    }
    Ok(rows)
}

/// `deployments.apps`, in the order of look-ups: group, plural.
fn resource(name: &str) -> (&str, &str) {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    (group, plural)
}

fn read(row: &mut Behaviour, word: &'static str) -> Option<()> {
    let (verb, rest) = word.split_once(' ').unwrap_or((word, ""));
    let list = || rest.split(',').filter(|item| !item.is_empty());
    match verb {
        "name" => {
            row.names = match rest {
                "label" => NameRule::Label,
                "label1035" => NameRule::Label1035,
                "path" => NameRule::PathSegment,
                _ => return None,
            }
        }
        "generation" => row.generation = Generation::Tracked { first: 1, paths: list().collect() },
        "late-generation" => row.generation = Generation::Tracked { first: 0, paths: list().collect() },
        "versioned" => row.update_needs_version = true,
        "put-creates" => row.put_creates = true,
        "any-finalizer" => row.any_finalizer = true,
        "returns-deleted" => row.returns_deleted = true,
        "graceful" => row.graceful = true,
        "orphans" => row.dependents = Dependents::Orphan,
        "no-gc" => row.dependents = Dependents::Ignored,
        "keeps-status" => row.status_on_create = StatusOnCreate::Kept,
        "status" => row.status_on_create = StatusOnCreate::Set(serde_json::from_str(rest).ok()?),
        "holds" => row.status_holds = list().collect(),
        "fixed" => row.fixed = list().collect(),
        "select" => {
            row.labels.extend(list().map(field_label));
            row.unknown_label = SELECTING;
        }
        "only-name" => row.labels.retain(|known| known.label != "metadata.namespace"),
        "refuse" => row.unknown_label = rest,
        "expires" => row.expires = Some(Duration::from_secs(rest.parse().ok()?)),
        "shown-from" => {
            let (group, plural) = resource(rest);
            row.storage = StorageRule::With { group, plural };
        }
        "answered" => row.storage = StorageRule::Nowhere,
        "assigns" => {
            row.assigns = Some(match rest {
                "pod" => Assigns::Pod,
                "job" => Assigns::Job,
                "service" => Assigns::Service,
                "claim" => Assigns::Claim,
                "csr" => Assigns::CertificateSigningRequest,
                "daemonset" => Assigns::DaemonSet,
                "volume" => Assigns::Volume,
                _ => return None,
            })
        }
        "folds" => row.folds = Some(rest.split_once(' ')?),
        _ => return None,
    }
    Some(())
}

/// `LABEL[=PATH[|PATH]...][?VALUE]`
fn field_label(text: &'static str) -> FieldLabel {
    let (text, absent) = text.split_once('?').unwrap_or((text, ""));
    match text.split_once('=') {
        None => FieldLabel { absent, ..at_its_name(text) },
        Some((label, paths)) => {
            FieldLabel { label, paths: paths.split('|').filter(|path| !path.is_empty()).collect(), absent }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use konverge_schema::{Arena, Shape, TypeId};

    use super::*;
    use crate::builtin::builtin;
    use crate::resource::Resource;
    use crate::verb::Verb;

    /// Everything in which a row differs from a plain kind, in words.
    fn differs(row: &Behaviour) -> Vec<String> {
        let plain = plain();
        let mut out = Vec::new();
        let mut note = |differs: bool, text: String| {
            if differs {
                out.push(text);
            }
        };
        note(row.names != plain.names, format!("{:?}", row.names));
        if let Generation::Tracked { first, paths } = &row.generation {
            note(true, format!("generation {first} {}", paths.join(",")));
        }
        note(row.update_needs_version, "versioned".into());
        note(row.put_creates, "put".into());
        note(row.any_finalizer, "any-finalizer".into());
        note(row.returns_deleted, "returns".into());
        note(row.graceful, "graceful".into());
        note(row.dependents != plain.dependents, format!("{:?}", row.dependents));
        match &row.status_on_create {
            StatusOnCreate::Dropped => {}
            StatusOnCreate::Set(status) => note(true, format!("status {status}")),
            StatusOnCreate::Kept => note(true, "keeps".into()),
        }
        note(!row.status_holds.is_empty(), format!("holds {}", row.status_holds.join(",")));
        note(!row.fixed.is_empty(), format!("fixed {}", row.fixed.join(",")));
        if let Some(assigns) = row.assigns {
            note(true, format!("assigns {assigns:?}"));
        }
        note(row.expires.is_some(), format!("{:?}", row.expires));
        note(row.storage != plain.storage, format!("{:?}", row.storage));
        out
    }

    #[test]
    fn kinds_differ_as_their_strategies_say() {
        let all = "holds annotations,deletionTimestamp,finalizers,labels,ownerReferences";
        let cases: [(&str, &str, Vec<&str>); 12] = [
            ("", "configmaps", vec![]),
            ("", "namespaces", vec!["Label", "returns", r#"status {"phase":"Active"}"#, "fixed spec.finalizers"]),
            ("", "services", vec!["Label", "put", "returns", r#"status {"loadBalancer":{}}"#, "assigns Service"]),
            (
                "",
                "pods",
                vec![
                    "generation 1 spec",
                    "returns",
                    "graceful",
                    r#"status {"phase":"Pending"}"#,
                    "holds deletionTimestamp,ownerReferences",
                    "assigns Pod",
                ],
            ),
            ("", "nodes", vec!["keeps"]),
            ("apps", "deployments", vec!["generation 1 spec,metadata.annotations", "status {}", "holds labels"]),
            ("batch", "jobs", vec!["generation 1 spec", "Orphan", "status {}", "assigns Job"]),
            ("rbac.authorization.k8s.io", "roles", vec!["PathSegment", "put"]),
            ("scheduling.k8s.io", "priorityclasses", vec!["generation 1 "]),
            ("storage.k8s.io", "csidrivers", vec!["generation 0 spec", "versioned", "returns"]),
            (
                "events.k8s.io",
                "events",
                vec!["put", "Ignored", "Some(3600s)", "With { group: \"\", plural: \"events\" }"],
            ),
            ("example.com", "widgets", vec!["generation 1 *", "versioned", "any-finalizer", all]),
        ];
        for (group, plural, expect) in cases {
            assert_eq!(differs(behaviour(group, plural)), expect, "{plural}.{group}");
        }
    }

    #[test]
    fn selectors_take_the_labels_of_their_kind() {
        let found = |label, paths: &[&'static str], absent| Ok(FieldLabel { label, paths: paths.into(), absent });
        let cases = [
            ("", "configmaps", "metadata.name", found("metadata.name", &["metadata.name"], "")),
            (
                "",
                "configmaps",
                "data.x",
                Err(r#""data.x" is not a known field selector: only "metadata.name", "metadata.namespace""#),
            ),
            ("", "pods", "spec.hostNetwork", found("spec.hostNetwork", &["spec.hostNetwork"], "false")),
            ("", "pods", "status.podIP", found("status.podIP", &["status.podIPs.0.ip", "status.podIP"], "")),
            ("", "pods", "status.podIPs", found("status.podIPs", &[], "")),
            ("", "pods", "spec.x", Err("field label not supported: spec.x")),
            ("", "nodes", "metadata.namespace", Err("field label not supported: metadata.namespace")),
            ("", "events", "source", found("source", &["source.component", "reportingComponent"], "")),
            ("batch", "jobs", "status.successful", found("status.successful", &["status.succeeded"], "0")),
            ("batch", "jobs", "spec.x", Err(r#"field label "spec.x" not supported for Job"#)),
            (
                "resource.k8s.io",
                "resourceslices",
                "spec.x",
                Err("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.x"),
            ),
            ("example.com", "widgets", "spec.x", Err("field label not supported: spec.x")),
        ];
        for (group, plural, label, expect) in cases {
            let got = behaviour(group, plural).label(label);
            assert_eq!(got.cloned(), expect.map_err(str::to_owned), "{plural}.{group} {label}");
        }
    }

    #[test]
    fn the_table_has_every_built_in_resource_and_no_other() {
        let rows = parse(include_str!("../data/kubernetes.behaviour")).unwrap();
        let builtin = builtin();
        let known: BTreeSet<_> = builtin.iter().map(|row| (&*row.group, &*row.plural)).collect();
        let rows = rows.iter().flat_map(|(group, rows)| rows.keys().map(move |plural| (*group, *plural)));
        assert_eq!(rows.collect::<BTreeSet<_>>(), known);
    }

    /// Whether a dotted path leads somewhere in objects of the row.
    fn leads(arena: &Arena, mut id: TypeId, path: &str) -> bool {
        path.split('.').all(|step| {
            let next = match &arena.node(id).shape {
                Shape::List { item, .. } => step.parse::<usize>().ok().map(|_| *item),
                _ => arena.field(id, step),
            };
            next.inspect(|next| id = *next).is_some()
        })
    }

    #[test]
    fn paths_lead_somewhere() {
        let mut checked = 0;
        for row in builtin() {
            let Resource { group, plural, schema, .. } = &*row;
            let behaviour = behaviour(group, plural);
            let mut paths: Vec<String> =
                behaviour.labels.iter().flat_map(|label| &label.paths).map(|&p| p.into()).collect();
            if let Generation::Tracked { paths: grown, .. } = &behaviour.generation {
                paths.extend(grown.iter().filter(|path| **path != "*").map(|&path| path.to_owned()));
            }
            paths.extend(behaviour.fixed.iter().map(|&path| path.to_owned()));
            paths.extend(behaviour.status_holds.iter().map(|field| format!("metadata.{field}")));
            if let StatusOnCreate::Set(Value::Object(fields)) = &behaviour.status_on_create {
                paths.extend(fields.keys().map(|field| format!("status.{field}")));
                paths.push("status".into());
            }
            for path in paths {
                assert!(leads(&schema.arena, schema.root, &path), "{plural}.{group}: {path}");
                checked += 1;
            }
            let stored = row.verbs.contains(Verb::Delete);
            assert_eq!(stored, behaviour.storage != StorageRule::Nowhere, "{plural}.{group}");
        }
        assert!(checked > 200, "{checked}");
    }

    #[test]
    fn broken_tables_name_the_line() {
        let cases = [
            ("pods; fast\n", "line 1: \"fast\" is not understood"),
            ("# a\npods; name long\n", "line 2: \"name long\" is not understood"),
            ("pods; status {\n", "line 1: \"status {\" is not understood"),
            ("pods; expires soon\n", "line 1: \"expires soon\" is not understood"),
            ("pods\npods\n", "line 2: pods is here twice"),
        ];
        for (text, expect) in cases {
            assert_eq!(parse(text).unwrap_err(), expect);
        }
    }
}
