//! What a cluster refuses in objects of built-in kinds. In: a table of rules by type, which is written by hand, an object and
//! the one before it. Out: field errors in the words and the order of Kubernetes. Metadata is checked in `meta`; what no
//! table can say is in `validation/function`, a file for each kind.

mod address;
mod cron;
mod format;
mod function;
mod place;
mod quantity;
mod rule;
#[cfg(test)]
mod tests;
mod walk;

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use serde_json::Value;

use konverge_core::FieldError;
use konverge_schema::{Arena, Budget, OverBudget, Shape, TypeId, check_types, kubernetes, prune};

use crate::conversion::autoscaling;
use crate::resource::Resource;
use crate::subresource::Subresource;
use crate::{assign, builtin, defaults, meta, namespace, write_only};
pub(crate) use address::parse_sloppy;
pub(crate) use cron::is_duration;
pub(crate) use function::{check_client_config, check_review_versions, is_extended_resource};
use place::Place;
use rule::{CheckKind, Into, Rule, Step};
use walk::{Target, Walk};

/// Whether containers may be privileged: `--allow-privileged` of kube-apiserver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrivilegedContainers {
    /// As in nearly every cluster.
    #[default]
    Allowed,
    /// Pods and templates of pods with a privileged container are refused.
    Refused,
}

/// The errors of an object of a built-in kind, except those of its metadata. `None` says that the table does not have the kind.
pub(crate) fn check(
    resource: &Resource,
    subresource: Subresource,
    old: Option<&Value>,
    object: &Value,
    privileged: PrivilegedContainers,
    budget: &Budget,
) -> Result<Option<Vec<FieldError>>, OverBudget> {
    if resource.custom {
        return Ok(None);
    }
    let table = ValidationTable::committed();
    if resource.is_api_version(autoscaling::V1) && *resource.plural == *"horizontalpodautoscalers" {
        // Kubernetes checks what it stores.
        let newest =
            served().iter().find(|newest| newest.kind == resource.kind && newest.is_api_version(autoscaling::V2));
        let (old, new) = (old.map(autoscaling::to_v2), autoscaling::to_v2(object));
        return newest.map_or(Ok(None), |newest| check(newest, subresource, old.as_ref(), &new, privileged, budget));
    }
    let root = resource.schema.root;
    let set = |variant: &str| table.index.get(&root).and_then(|variants| variants.get(variant)).copied();
    let set = match (subresource, old) {
        (Subresource::Status, _) => set("status"),
        (Subresource::Approval, _) => set("approval"),
        (Subresource::Finalize, _) => set("finalize"),
        (Subresource::EphemeralContainers, _) => set("ephemeralcontainers"),
        (Subresource::Resize, _) => set("resize"),
        (Subresource::Main | Subresource::Scale, Some(_)) => set("update").or_else(|| set("")),
        (Subresource::Main | Subresource::Scale, None) => set("create").or_else(|| set("")),
        // A binding is written by the server itself.
        _ => None,
    };
    // A kind of the table without rules for this write has no errors; a kind that is not in the table is not known.
    let Some(set) = set else { return Ok(table.index.contains_key(&root).then(Vec::new)) };
    let mut errors = table.errors(set, object, old, privileged, budget);
    // A pod that cannot be resized at all is refused for what it was before, too.
    if let Some(old) = old.filter(|_| !errors.is_empty() && subresource != Subresource::Resize) {
        // An object that was stored before there was a rule can still be scaled, labelled and deleted: what was wrong
        // with it before is not told again.
        let known = table.errors(set, old, Some(old), privileged, budget);
        errors.retain(|error| !known.contains(error));
    }
    budget.check()?;
    Ok(Some(errors))
}

/// Why an object cannot be checked at all.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// There is no built-in kind of this name and version.
    #[error("{0} is no built-in kind")]
    UnknownKind(String),
    /// The object does not have the types of its kind.
    #[error("{0}")]
    Undecodable(String),
}

/// Checks an object of a built-in kind as a create or an update would, without a server. Returns what a cluster would refuse.
///
/// ```
/// use konverge_apiserver::check_object;
/// use serde_json::json;
/// let service = json!({
///     "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
///     "spec": {"ports": [{"port": 800000}]},
/// });
/// let errors = check_object(&service, None).unwrap();
/// assert_eq!(
///     errors[0].to_string(),
///     "spec.ports[0].port: Invalid value: 800000: must be between 1 and 65535, inclusive"
/// );
/// ```
pub fn check_object(object: &Value, old: Option<&Value>) -> Result<Vec<FieldError>, CheckError> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let resource = served().iter().find(|resource| *resource.kind == *kind && resource.is_api_version(version));
    let resource = resource.ok_or_else(|| CheckError::UnknownKind(format!("{version} {kind}")))?;
    let old = old.map(|old| prepared(resource, old, None)).transpose()?;
    let new = prepared(resource, object, old.as_ref())?;
    let mut errors = match &old {
        None => meta::check_create(&new, resource),
        Some(old) => meta::check_update(old, &new, resource),
    };
    let unlimited = Budget::unlimited();
    let privileged = PrivilegedContainers::default();
    let found = check(resource, Subresource::Main, old.as_ref(), &new, privileged, unlimited);
    errors.extend(found.ok().flatten().unwrap_or_default());
    Ok(errors)
}

/// The built-in kinds, which are read once.
fn served() -> &'static [Arc<Resource>] {
    static RESOURCES: OnceLock<Vec<Arc<Resource>>> = OnceLock::new();
    RESOURCES.get_or_init(builtin::served)
}

/// An object as it is before it is checked: with its defaults, and with what the server gives it.
fn prepared(resource: &Resource, object: &Value, old: Option<&Value>) -> Result<Value, CheckError> {
    let undecodable = |why: String| CheckError::Undecodable(why);
    let schema = &resource.schema;
    let mut object = object.clone();
    check_types(&schema.arena, schema.root, &object).map_err(|error| undecodable(error.to_string()))?;
    prune(&schema.arena, schema.root, &mut object, resource.null_rules());
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(serde_json::Map::new());
    }
    match old {
        Some(old) => {
            resource.isolate(Subresource::Main, old, &mut object);
            meta::carry_over(old, &mut object);
        }
        None => {
            resource.initial_status(&mut object);
            // Any identity will do: nothing is stored.
            meta::of_mut(&mut object).insert("uid".into(), "u".into());
        }
    }
    meta::drop_empty(&mut object);
    write_only::merge(resource.behaviour, &mut object);
    namespace::prepare(resource, old, &mut object);
    defaults::fill(resource, &mut object, Budget::unlimited()).map_err(|error| undecodable(error.to_string()))?;
    assign::assign_alone(resource, old, &mut object);
    Ok(object)
}

/// The rules of every type that has some.
struct ValidationTable {
    types: &'static Arena,
    sets: Vec<TypeRules>,
    /// The number of a set, by type and variant.
    index: HashMap<TypeId, HashMap<&'static str, usize>>,
}

/// The rules of one type in one variant. They are parsed when a write first needs them: a server sees objects of a few kinds.
struct TypeRules {
    kind: TypeId,
    /// With their numbers.
    lines: Vec<(usize, &'static str)>,
    rules: OnceLock<Vec<Rule>>,
}

impl ValidationTable {
    /// The table of the release, which is read at the first write. A test parses all of it.
    fn committed() -> &'static Self {
        static TABLE: OnceLock<ValidationTable> = OnceLock::new();
        TABLE.get_or_init(|| {
            let table = Self::read(include_str!("../data/kubernetes.validation"), kubernetes());
            table.expect("a test reads the committed table")
        })
    }

    /// What the rules of one set say about an object. Whoever calls this looks whether the budget was enough.
    fn errors(
        &self,
        set: usize,
        object: &Value,
        old: Option<&Value>,
        privileged: PrivilegedContainers,
        budget: &Budget,
    ) -> Vec<FieldError> {
        let mut walk = Walk { table: self, budget, privileged, object, before: old, errors: Vec::new() };
        walk.rules(set, Target { value: object, old, place: &Place::Root }, None);
        walk.errors
    }

    /// The rules of one set.
    fn rules(&self, set: usize) -> &[Rule] {
        let set = &self.sets[set];
        set.rules.get_or_init(|| self.parse(set).expect("a test parses the committed table"))
    }

    fn parse(&self, set: &TypeRules) -> Result<Vec<Rule>, String> {
        let parse = |(number, line): &(usize, &'static str)| {
            let rule = line.strip_prefix("  ").and_then(|rule| Rule::read(rule, *number));
            let mut rule = rule.ok_or_else(|| format!("line {number}: {line:?} is not understood"))?;
            link(&mut rule, set.kind, self.types, &self.index).map_err(|why| format!("line {number}: {why}"))?;
            Ok(rule)
        };
        set.lines.iter().map(parse).collect()
    }

    fn read(text: &'static str, types: &'static Arena) -> Result<Self, String> {
        let mut aliases = HashMap::new();
        let mut table = Self { types, sets: Vec::new(), index: HashMap::new() };
        for (at, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || format!("line {}: {line:?} is not understood", at + 1);
            if let Some(alias) = line.strip_prefix('@') {
                let (alias, package) = alias.split_once(' ').ok_or_else(wrong)?;
                aliases.insert(alias, package);
            } else if line.starts_with("  ") {
                table.sets.last_mut().ok_or_else(wrong)?.lines.push((at + 1, line));
            } else {
                let (name, variant) = line.split_once(' ').unwrap_or((line, ""));
                let (alias, name) = name.split_once('.').ok_or_else(wrong)?;
                let id = aliases.get(alias).and_then(|package| types.named(&format!("{package}.{name}")));
                let id = id.ok_or_else(wrong)?;
                let taken = table.index.entry(id).or_default().insert(variant, table.sets.len());
                if taken.is_some() {
                    return Err(format!("line {}: {line} is here twice", at + 1));
                }
                table.sets.push(TypeRules { kind: id, lines: Vec::new(), rules: OnceLock::new() });
            }
        }
        Ok(table)
    }
}

/// Finds the sets that a rule goes on with.
fn link(
    rule: &mut Rule,
    kind: TypeId,
    types: &Arena,
    index: &HashMap<TypeId, HashMap<&'static str, usize>>,
) -> Result<(), String> {
    let find = |ty: TypeId, variant: &str| {
        let named = index.get(&ty).or_else(|| {
            // A use of a type with directives of its own is another node with the same fields.
            let alike = index.iter().find(|(known, _)| same_fields(types, **known, ty));
            alike.map(|(_, variants)| variants)
        });
        named.and_then(|variants| variants.get(variant)).copied()
    };
    let mut ty = Some(kind);
    for step in &rule.path {
        let found = ty.ok_or_else(|| format!("nothing is below {}", step.name))?;
        ty = descend(types, found, step)?;
    }
    for check in &mut rule.checks {
        match &mut check.kind {
            CheckKind::Rules { variant, set } => {
                let ty = ty.ok_or("keys have no rules")?;
                *set = Some(find(ty, variant).ok_or_else(|| format!("there are no rules {variant:?} of this type"))?);
            }
            CheckKind::Union { members, .. } => {
                for member in members {
                    let ty = descend(types, ty.ok_or("keys have no members")?, &member.step)?;
                    member.set = ty.and_then(|ty| find(ty, ""));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether two nodes are uses of the same struct.
fn same_fields(types: &Arena, one: TypeId, other: TypeId) -> bool {
    match (&types.node(one).shape, &types.node(other).shape) {
        (Shape::Struct { fields: a, .. }, Shape::Struct { fields: b, .. }) => {
            !a.is_empty() && a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.name == b.name && a.ty == b.ty)
        }
        _ => false,
    }
}

/// The type that a step leads to; none for the keys of a map.
fn descend(types: &Arena, ty: TypeId, step: &Step) -> Result<Option<TypeId>, String> {
    let field = types.field(ty, step.name).ok_or_else(|| format!("there is no field {}", step.name))?;
    let shape = &types.node(field).shape;
    match (step.into, shape) {
        (Into::Field, _) => Ok(Some(field)),
        (Into::Items | Into::Unnumbered, Shape::List { item, .. }) => Ok(Some(*item)),
        (Into::Values | Into::Entry(_), Shape::Map { value, .. }) => Ok(Some(*value)),
        (Into::Keys | Into::Unkeyed, Shape::Map { .. }) => Ok(None),
        _ => Err(format!("{} is no list or map", step.name)),
    }
}
