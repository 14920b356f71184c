//! The paths of a group-version. In: a resource. Out: `paths`: for every resource its collection,
//! its items and their subresources, with the operations that its verbs allow. `kubectl` finds here which kind a
//! path speaks and whether a PATCH knows `fieldValidation`.

use konverge_core::GroupVersionKind;
use serde_json::{Map, Value, json};

use super::schema::list_name;
use crate::resource::{Resource, SubresourceInfo};
use crate::verb::Verb;

const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// Types that operations of every resource refer to.
pub(super) const SHARED: [&str; 5] = [
    PATCH,
    STATUS,
    DELETE_OPTIONS,
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
];

const WRITE: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];
const APPLY: [&str; 4] = ["dryRun", "fieldManager", "fieldValidation", "force"];
const LIST: [&str; 10] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
const DELETE: [&str; 4] = ["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"];
const DELETE_MANY: [&str; 11] = [
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
];

/// The paths of a resource. Refers only to schemas that are `known`.
pub(super) fn paths(resource: &Resource, known: impl Fn(&str) -> bool) -> Map<String, Value> {
    let mut paths = Map::new();
    let writer = PathWriter { resource, known: &known };
    let root = match &*resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    let collection = if resource.namespaced {
        if resource.verbs.contains(Verb::List) {
            let all = writer.list("ForAllNamespaces", "");
            paths.insert(format!("{root}/{}", resource.plural), path([("get", all)], &["pretty"]));
        }
        format!("{root}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        format!("{root}/{}", resource.plural)
    };
    let item = format!("{collection}/{{name}}");
    let space: &[&str] = if resource.namespaced { &["namespace", "pretty"] } else { &["pretty"] };
    let named = [&["name"], space].concat();
    for (at, operations, parameters) in
        [(&collection, writer.collection(), space), (&item, writer.item(), named.as_slice())]
    {
        if !operations.is_empty() {
            paths.insert(at.clone(), path(operations, parameters));
        }
    }
    for sub in &resource.subresources {
        paths.insert(format!("{item}/{}", sub.name), path(writer.subresource(sub), &named));
    }
    paths
}

/// The name of the type that a subresource speaks.
pub(super) fn type_name(resource: &Resource, sub: &SubresourceInfo) -> String {
    if sub.gvk == resource.gvk() {
        return resource.schema.name.to_string();
    }
    let group = match sub.gvk.group.split('.').next() {
        None | Some("") => "core",
        Some(first) => first,
    };
    format!("io.k8s.api.{group}.{}.{}", sub.gvk.version, sub.gvk.kind)
}

struct PathWriter<'a, K> {
    resource: &'a Resource,
    known: &'a K,
}

impl<K: Fn(&str) -> bool> PathWriter<'_, K> {
    fn collection(&self) -> Vec<(&'static str, Value)> {
        let mut operations = Vec::new();
        for (verb, method) in [(Verb::List, "get"), (Verb::Create, "post"), (Verb::DeleteCollection, "delete")] {
            if self.resource.verbs.contains(verb) {
                let operation = match verb {
                    Verb::List => self.list("", self.scope()),
                    Verb::Create => self.create(&self.resource.gvk(), &self.resource.schema.name, ""),
                    _ => self.delete("deletecollection", "Collection", "", &DELETE_MANY),
                };
                operations.push((method, operation));
            }
        }
        operations
    }

    fn item(&self) -> Vec<(&'static str, Value)> {
        let (gvk, ty) = (self.resource.gvk(), &self.resource.schema.name);
        let mut operations = Vec::new();
        for (verb, method) in
            [(Verb::Get, "get"), (Verb::Update, "put"), (Verb::Patch, "patch"), (Verb::Delete, "delete")]
        {
            if self.resource.verbs.contains(verb) {
                let operation = match verb {
                    Verb::Get => self.read(&gvk, ty, ""),
                    Verb::Update => self.replace(&gvk, ty, ""),
                    Verb::Patch => self.patch(&gvk, ty, ""),
                    _ => self.delete("delete", "", "", &DELETE),
                };
                operations.push((method, operation));
            }
        }
        operations
    }

    fn subresource(&self, sub: &SubresourceInfo) -> Vec<(&'static str, Value)> {
        let (ty, suffix) = (type_name(self.resource, sub), camel(&sub.name));
        let mut operations = Vec::new();
        // A kind of options says that the connection itself is the point: exec, attach, proxy.
        let connects = sub.gvk.kind.ends_with("Options");
        for verb in sub.verbs.iter() {
            let method = match verb {
                Verb::Get => "get",
                Verb::Update => "put",
                Verb::Patch => "patch",
                Verb::Create => "post",
                Verb::Delete => "delete",
                Verb::DeleteCollection | Verb::List | Verb::Watch => continue,
            };
            let operation = match verb {
                _ if connects => self.connect(method, &sub.gvk, &suffix),
                Verb::Get => self.read(&sub.gvk, &ty, &suffix),
                Verb::Update => self.replace(&sub.gvk, &ty, &suffix),
                Verb::Patch => self.patch(&sub.gvk, &ty, &suffix),
                Verb::Create => self.create(&sub.gvk, &ty, &suffix),
                _ => self.delete("delete", "", &suffix, &DELETE),
            };
            operations.push((method, operation));
        }
        operations
    }

    fn connect(&self, method: &str, gvk: &GroupVersionKind, suffix: &str) -> Value {
        let id = self.id("connect", &format!("{}{}", camel(method), self.scope()), suffix);
        let mut operation = self.operation(&id, "connect", gvk, &[]);
        let ok = json!({"description": "OK", "content": {"*/*": {"schema": {"type": "string"}}}});
        operation["responses"] = responses([("200", ok)]);
        operation
    }

    fn list(&self, suffix: &str, scope: &str) -> Value {
        let id = self.id("list", scope, suffix);
        let mut operation = self.operation(&id, "list", &self.resource.gvk(), &LIST);
        let list = list_name(self.resource);
        let mut ok = self.answer(&list);
        if self.resource.verbs.contains(Verb::Watch) {
            ok["content"]["application/json;stream=watch"] = json!({"schema": self.reference(&list)});
        }
        operation["responses"] = responses([("200", ok)]);
        operation
    }

    fn create(&self, gvk: &GroupVersionKind, ty: &str, suffix: &str) -> Value {
        let mut operation = self.operation(&self.id("create", self.scope(), suffix), "post", gvk, &WRITE);
        operation["requestBody"] = self.body(ty);
        let answer = |code| (code, self.answer(ty));
        operation["responses"] = responses([answer("200"), answer("201"), answer("202")]);
        operation
    }

    fn read(&self, gvk: &GroupVersionKind, ty: &str, suffix: &str) -> Value {
        let mut operation = self.operation(&self.id("read", self.scope(), suffix), "get", gvk, &[]);
        operation["responses"] = responses([("200", self.answer(ty))]);
        operation
    }

    fn replace(&self, gvk: &GroupVersionKind, ty: &str, suffix: &str) -> Value {
        let mut operation = self.operation(&self.id("replace", self.scope(), suffix), "put", gvk, &WRITE);
        operation["requestBody"] = self.body(ty);
        operation["responses"] = responses([("200", self.answer(ty)), ("201", self.answer(ty))]);
        operation
    }

    fn patch(&self, gvk: &GroupVersionKind, ty: &str, suffix: &str) -> Value {
        let mut operation = self.operation(&self.id("patch", self.scope(), suffix), "patch", gvk, &APPLY);
        let mut content = Map::new();
        for kind in ["apply-patch+yaml", "json-patch+json", "merge-patch+json", "strategic-merge-patch+json"] {
            // Custom resources have no strategies to merge by.
            if !self.resource.custom || kind != "strategic-merge-patch+json" {
                content.insert(format!("application/{kind}"), json!({"schema": self.reference(PATCH)}));
            }
        }
        operation["requestBody"] = json!({"content": content, "required": true});
        operation["responses"] = responses([("200", self.answer(ty)), ("201", self.answer(ty))]);
        operation
    }

    fn delete(&self, action: &str, before: &str, suffix: &str, parameters: &[&str]) -> Value {
        let id = self.id("delete", &format!("{before}{}", self.scope()), suffix);
        let mut operation = self.operation(&id, action, &self.resource.gvk(), parameters);
        operation["requestBody"] = json!({"content": {"*/*": {"schema": self.reference(DELETE_OPTIONS)}}});
        operation["responses"] = responses([("200", self.answer(STATUS)), ("202", self.answer(STATUS))]);
        operation
    }

    fn operation(&self, id: &str, action: &str, gvk: &GroupVersionKind, parameters: &[&str]) -> Value {
        let mut operation = json!({
            "operationId": id,
            "tags": [self.tag()],
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": gvk.group, "version": gvk.version, "kind": gvk.kind},
        });
        if !parameters.is_empty() {
            operation["parameters"] = parameters.iter().map(|name| parameter(name)).collect();
        }
        operation
    }

    fn body(&self, ty: &str) -> Value {
        json!({"content": {"*/*": {"schema": self.reference(ty)}}, "required": true})
    }

    fn answer(&self, ty: &str) -> Value {
        let schema = self.reference(ty);
        json!({"description": "OK", "content": {
            "application/json": {"schema": schema},
            "application/yaml": {"schema": schema},
        }})
    }

    fn reference(&self, ty: &str) -> Value {
        if (self.known)(ty) { json!({"$ref": format!("#/components/schemas/{ty}")}) } else { json!({"type": "object"}) }
    }

    fn scope(&self) -> &'static str {
        if self.resource.namespaced { "Namespaced" } else { "" }
    }

    /// `patchAppsV1NamespacedDeploymentScale`
    fn id(&self, verb: &str, scope: &str, suffix: &str) -> String {
        format!("{verb}{}{}{scope}{}{suffix}", self.group(), camel(&self.resource.version), self.resource.kind)
    }

    /// `rbacAuthorization_v1`
    fn tag(&self) -> String {
        let group = self.group();
        let (first, rest) = group.split_at(group.chars().next().map_or(0, char::len_utf8));
        format!("{}{rest}_{}", first.to_lowercase(), self.resource.version)
    }

    fn group(&self) -> String {
        match &*self.resource.group {
            "" => "Core".into(),
            group => camel(group.strip_suffix(".k8s.io").unwrap_or(group)),
        }
    }
}

fn path<O: IntoIterator<Item = (&'static str, Value)>>(operations: O, parameters: &[&str]) -> Value {
    let mut path: Map<String, Value> =
        operations.into_iter().map(|(method, operation)| (method.to_owned(), operation)).collect();
    path.insert("parameters".into(), parameters.iter().map(|name| parameter(name)).collect());
    Value::Object(path)
}

fn responses<const N: usize>(answers: [(&str, Value); N]) -> Value {
    let mut responses: Map<String, Value> =
        answers.into_iter().map(|(code, answer)| (code.to_owned(), answer)).collect();
    responses.insert("401".into(), json!({"description": "Unauthorized"}));
    Value::Object(responses)
}

fn parameter(name: &str) -> Value {
    let ty = match name {
        "allowWatchBookmarks" | "force" | "orphanDependents" | "sendInitialEvents" | "watch" => "boolean",
        "gracePeriodSeconds" | "limit" | "timeoutSeconds" => "integer",
        _ => "string",
    };
    let schema = json!({"type": ty, "uniqueItems": true});
    match name {
        "name" | "namespace" => json!({"name": name, "in": "path", "required": true, "schema": schema}),
        _ => json!({"name": name, "in": "query", "schema": schema}),
    }
}

/// `rbac.authorization` is `RbacAuthorization`.
fn camel(text: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    };
    text.split(['.', '-']).map(word).collect()
}
