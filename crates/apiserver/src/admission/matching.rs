//! Which requests a policy, a binding or a webhook is about. In: resource rules, selectors, and a request. Out: whether they
//! match, and through which resource: a rule for `apps/v1` also matches the same objects in another version, if its match
//! policy is `Equivalent`. What is wrong with a selector or a namespace is an error only if everything else matches.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use konverge_core::{LabelSelector, Status};

use super::{Attributes, Operation, lookup};
use crate::resource::Resource;

const NAMESPACES: lookup::Kind = ("", "namespaces");

/// Resource rules and selectors, as `matchConstraints`, `matchResources` and webhooks have them.
#[derive(Debug)]
pub(crate) struct MatchResources {
    namespaces: Result<LabelSelector, Status>,
    objects: Result<LabelSelector, Status>,
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    /// Whether rules also match other versions of the resources that they name.
    equivalent: bool,
}

/// One resource rule.
#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// With their subresources.
    resources: Vec<(String, String)>,
    scope: Scope,
    /// Empty for all.
    names: Vec<String>,
}

#[derive(Debug)]
enum Scope {
    All,
    Cluster,
    Namespaced,
}

/// The resource that a request was matched through.
#[derive(Clone, Debug)]
pub(crate) enum Through {
    /// Its own.
    Same,
    /// Another version of it, which the object has to be converted to.
    Equivalent(Arc<Resource>),
}

impl MatchResources {
    /// Reads `MatchResources`.
    pub(crate) fn read(json: &Value) -> Self {
        Self::with_rules(json, "resourceRules")
    }

    /// Reads the same of a webhook.
    pub(crate) fn of_webhook(json: &Value) -> Self {
        Self::with_rules(json, "rules")
    }

    fn with_rules(json: &Value, rules_field: &str) -> Self {
        let wrong = |error: &dyn std::fmt::Display| Status::failure(500, "InternalError", error.to_string());
        let selector = |field: &str| LabelSelector::from_object(&json[field]).map_err(|error| wrong(&error));
        let rules = |field: &str| json[field].as_array().into_iter().flatten().map(Rule::read).collect();
        Self {
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            rules: rules(rules_field),
            excluded: rules("excludeResourceRules"),
            equivalent: json["matchPolicy"] != "Exact",
        }
    }

    /// Whether a request matches, and through which resource.
    pub(crate) fn matches(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<Option<Through>, Status> {
        let namespace = self.matches_namespace(attributes, object);
        let selected = self.matches_object(attributes, object);
        if matches!(namespace, Ok(false)) || matches!(selected, Ok(false)) {
            return Ok(None);
        }
        if self.through(&self.excluded, attributes).is_some() {
            return Ok(None);
        }
        let through = if self.rules.is_empty() { Some(Through::Same) } else { self.through(&self.rules, attributes) };
        if through.is_some() {
            namespace?;
            selected?;
        }
        Ok(through)
    }

    fn matches_namespace(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<bool, Status> {
        let namespace = attributes.request_namespace();
        if namespace.is_empty() && !attributes.is_namespace() {
            return Ok(true);
        }
        let selector = self.namespaces.as_ref().map_err(Clone::clone)?;
        if selector.is_everything() {
            return Ok(true);
        }
        // The store does not have the namespace yet that is being created or updated.
        let written = attributes.is_about("", "namespaces")
            && matches!(attributes.operation, Operation::Create | Operation::Update);
        if written {
            return Ok(has_labels(object, selector));
        }
        let found = lookup::get::<Value>(attributes.server, NAMESPACES, None, namespace);
        match found? {
            Some((_, found)) => Ok(has_labels(Some(&found), selector)),
            None => Err(Status::not_found("", "namespaces", namespace)),
        }
    }

    fn matches_object(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<bool, Status> {
        let selector = self.objects.as_ref().map_err(Clone::clone)?;
        let selects = |object: Option<&Value>| object.is_some() && has_labels(object, selector);
        Ok(selector.is_everything() || selects(object) || selects(attributes.old))
    }

    /// The resource through which one of the rules matches: that of the request, or an equivalent one.
    fn through(&self, rules: &[Rule], attributes: &Attributes<'_>) -> Option<Through> {
        if rules.iter().any(|rule| rule.matches(attributes, attributes.resource)) {
            return Some(Through::Same);
        }
        if !self.equivalent || rules.is_empty() {
            return None;
        }
        let own = attributes.resource;
        let others = attributes.server.registry.sharing_storage(own);
        let matching = |rule: &Rule| others.iter().find(|other| rule.matches(attributes, other));
        rules.iter().find_map(matching).cloned().map(Through::Equivalent)
    }
}

pub(super) fn has_labels(object: Option<&Value>, selector: &LabelSelector) -> bool {
    let labels = object.and_then(|object| object["metadata"]["labels"].as_object());
    selector.matches_with(|key| labels?.get(key)?.as_str().map(Cow::Borrowed))
}

impl Rule {
    fn read(json: &Value) -> Self {
        let texts = |field: &str| -> Vec<String> {
            json[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let split = |text: String| match text.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), subresource.to_owned()),
            None => (text, String::new()),
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources").into_iter().map(split).collect(),
            scope: match json["scope"].as_str() {
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                _ => Scope::All,
            },
            names: texts("resourceNames"),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>, resource: &Resource) -> bool {
        let one_of = |known: &[String], asked: &str| known.iter().any(|item| item == "*" || item == asked);
        let is_in_namespace = !attributes.is_namespace() && !attributes.request_namespace().is_empty();
        let scoped = match self.scope {
            Scope::All => true,
            Scope::Namespaced => is_in_namespace,
            Scope::Cluster => !is_in_namespace,
        };
        let subresource = attributes.subresource.name();
        let names = |(plural, below): &(String, String)| {
            (plural == "*" || **plural == *resource.plural) && (below == "*" || below == subresource)
        };
        scoped
            && one_of(&self.operations, attributes.operation.name())
            && one_of(&self.groups, &resource.group)
            && one_of(&self.versions, &resource.version)
            && self.resources.iter().any(names)
            && (self.names.is_empty() || self.names.iter().any(|name| name == attributes.name))
    }
}
