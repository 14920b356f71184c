//! Tests of `defaults`, as tables; what the Go codecs make of the same objects is in `cases.jsonl`.

use konverge_schema::{Arena, Budget};

use super::rule::{Path, Place, Source, Test};
use super::*;
use crate::builtin::builtin;

/// Objects as somebody writes them, each followed by what the codecs of Kubernetes 1.36.4 make of it, without empty
/// `metadata` and `status` and the template generation of daemon sets.
const CASES: &str = include_str!("cases.jsonl");

#[test]
fn objects_get_what_kubernetes_gives_them() {
    let resources = builtin();
    let mut lines = CASES.lines();
    while let (Some(given), Some(expect)) = (lines.next(), lines.next()) {
        let mut object: Value = serde_json::from_str(given).unwrap();
        let mut expect: Value = serde_json::from_str(expect).unwrap();
        let resource = resources.iter().find(|resource| {
            object["kind"] == *resource.kind && resource.is_api_version(object["apiVersion"].as_str().unwrap())
        });
        let resource = resource.unwrap_or_else(|| panic!("{given}"));
        fill(resource, &mut object, Budget::unlimited()).expect("no limit");
        let mut again = object.clone();
        fill(resource, &mut again, Budget::unlimited()).expect("no limit");
        assert_eq!(again, object, "filling in twice changes nothing");
        if expect.get("status").is_none() {
            object.as_object_mut().unwrap().remove("status");
        }
        drop_empty(&mut object);
        drop_empty(&mut expect);
        assert_eq!(object, expect, "{given}");
    }
}

fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_empty);
            for name in ["metadata", "status"] {
                if fields.get(name).is_some_and(|value| value.as_object().is_some_and(serde_json::Map::is_empty)) {
                    fields.remove(name);
                }
            }
        }
        // The codecs keep an empty list, and storing drops it.
        Value::Array(items) if items.is_empty() => *value = Value::Null,
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// The type at a path from `ty`, with the items of lists where the path says so.
fn walk(types: &Arena, ty: TypeId, path: &Path) -> Option<TypeId> {
    path.iter().try_fold(ty, |ty, (name, each)| {
        let ty = types.field(ty, name)?;
        match (&types.node(ty).shape, each) {
            (Shape::List { item, .. }, true) => Some(*item),
            (_, false) => Some(ty),
            _ => None,
        }
    })
}

#[test]
fn every_path_is_one_of_its_type() {
    let types = kubernetes();
    let table = DefaultsTable::read(include_str!("../../data/kubernetes.defaults"), types).unwrap();
    for (ty, rule) in table.rules.iter().flat_map(|(ty, rules)| rules.iter().map(move |rule| (*ty, rule))) {
        let place = |place: &Place| match place {
            Place::Top(path) => walk(types, ty, path),
            Place::Beside(path) => {
                let parent: Path = rule.path[..rule.path.len() - 1].into();
                walk(types, ty, &parent).and_then(|parent| walk(types, parent, path))
            }
        };
        assert!(walk(types, ty, &rule.path).is_some(), "{rule:?}");
        match &rule.value {
            Source::Same(at) | Source::Mirror(at) | Source::Entries(at) | Source::Tag(at) => {
                assert!(place(at).is_some(), "{rule:?}");
            }
            Source::Pair(one, key) => {
                let parent: Path = rule.path[..rule.path.len() - 1].into();
                let parent = walk(types, ty, &parent).unwrap();
                assert!(types.field(parent, one).is_some(), "{rule:?}");
                let items = (rule.path.last().unwrap().0, true);
                let item = walk(types, parent, &vec![items]).unwrap();
                assert!(key.is_none_or(|key| types.field(item, key).is_some()), "{rule:?}");
            }
            Source::Json(_) | Source::Call(_) | Source::Drop => {}
        }
        for test in &rule.tests {
            match test {
                Test::Is(path, _) | Test::Set(path) | Test::Unset(path) => {
                    assert!(walk(types, ty, path).is_some(), "{rule:?}");
                }
                Test::Only(names) => assert!(names.iter().all(|name| types.field(ty, name).is_some()), "{rule:?}"),
            }
        }
    }
}

#[test]
fn no_type_with_rules_is_used_under_another_number() {
    let types = kubernetes();
    let table = DefaultsTable::read(include_str!("../../data/kubernetes.defaults"), types).unwrap();
    let named: HashMap<TypeId, &str> = types.names().map(|(name, id)| (id, name)).collect();
    let fields = |id: TypeId| match &types.node(id).shape {
        Shape::Struct { fields, .. } => fields.iter().map(|field| (&*field.name, field.ty)).collect(),
        _ => Vec::new(),
    };
    for (owner, name) in &named {
        types.node(*owner).shape.each_type(|inner| {
            if matches!(types.node(inner).shape, Shape::Struct { .. }) && !named.contains_key(&inner) {
                let hidden = table.rules.keys().find(|ruled| fields(**ruled) == fields(inner));
                assert!(hidden.is_none(), "a field of {name} is a {}", named[hidden.unwrap()]);
            }
        });
    }
}

#[test]
fn broken_tables_name_the_line() {
    for (text, line) in [
        ("  replicas 1", 1),
        ("apps.DeploymentSpec", 1),
        ("@apps io.k8s.api.apps.v1\napps.Deploy", 2),
        ("@apps io.k8s.api.apps.v1\napps.DeploymentSpec\n  replicas one", 3),
        ("@apps io.k8s.api.apps.v1\napps.DeploymentSpec\n  replicas", 3),
        ("@apps io.k8s.api.apps.v1\napps.DeploymentSpec\n  replicas 1\napps.DeploymentSpec", 4),
    ] {
        let Err(why) = DefaultsTable::read(text, kubernetes()) else { panic!("{text}") };
        assert!(why.starts_with(&format!("line {line}: ")), "{why}");
    }
}
