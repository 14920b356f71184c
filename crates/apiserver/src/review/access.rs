//! Reviews of what somebody may do: the three that ask about one action, and the one that lists rules.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use konverge_core::{FieldError, FieldPath, FieldSelector, LabelSelector, Status, check_label_key, check_label_value};

use crate::authorize::{Attributes, Authorizer, Decision, ResourceAttributes};
use crate::meta;
use crate::user::UserInfo;
use crate::write::WriteRequest;

/// What is asked, and about whom.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    resource_attributes: Option<Resource>,
    non_resource_attributes: Option<Path>,
    user: String,
    uid: String,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Resource {
    namespace: String,
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    name: String,
    field_selector: Option<Selector>,
    label_selector: Option<Selector>,
}

/// Which objects of a list are meant.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Selector {
    raw_selector: String,
    requirements: Vec<Requirement>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl Requirement {
    /// Operators that are not known are left to newer clients.
    fn check(&self, label: bool, at: &FieldPath, errors: &mut Vec<FieldError>) {
        if !label && self.key.is_empty() {
            errors.push(FieldError::required(at.child("key"), "must be specified"));
        }
        match self.operator.as_str() {
            "In" | "NotIn" if self.values.is_empty() => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(at.child("values"), why));
            }
            "Exists" | "DoesNotExist" if !self.values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(at.child("values"), why));
            }
            _ => {}
        }
        if label {
            let wrong = |why: String| FieldError::invalid(at.child("key"), self.key.as_str().into(), why);
            errors.extend(check_label_key(&self.key).into_iter().map(wrong));
            for (index, value) in self.values.iter().enumerate() {
                let wrong =
                    |why: String| FieldError::invalid(at.child("values").index(index), value.as_str().into(), why);
                errors.extend(check_label_value(value).into_iter().map(wrong));
            }
        }
    }
}

impl Selector {
    /// The same as a list has it; none if it cannot be understood, and what cannot be a field selector is left out. And how much of
    /// it was understood.
    fn fields(&self) -> (Option<FieldSelector>, Understood) {
        if !self.raw_selector.is_empty() {
            let parsed = FieldSelector::parse(&self.raw_selector).ok();
            let understood = if parsed.is_some() { Understood::All } else { Understood::Nothing };
            return (parsed, understood);
        }
        let mut selector = FieldSelector::default();
        let mut known = 0;
        for Requirement { key, operator, values } in &self.requirements {
            if let ("In" | "NotIn", [value]) = (operator.as_str(), values.as_slice()) {
                selector = selector.and(key, operator == "In", value);
                known += 1;
            }
        }
        let understood = Understood::some_of(known, self.requirements.len());
        ((!selector.is_everything()).then_some(selector), understood)
    }

    /// How much of a label selector was understood. No authorizer of this server looks at labels.
    fn labels(&self) -> Understood {
        if !self.raw_selector.is_empty() {
            let parsed = LabelSelector::parse(&self.raw_selector);
            return if parsed.is_ok() { Understood::All } else { Understood::Nothing };
        }
        let is_known = |operator: &str| matches!(operator, "In" | "NotIn" | "Exists" | "DoesNotExist");
        let known = self.requirements.iter().filter(|requirement| is_known(&requirement.operator)).count();
        Understood::some_of(known, self.requirements.len())
    }
}

/// How much of a selector was understood. The rest is ignored, so that more is asked for than meant.
#[derive(Clone, Copy)]
enum Understood {
    All,
    Part,
    Nothing,
}

impl Understood {
    fn some_of(known: usize, all: usize) -> Self {
        match known {
            known if known == all => Self::All,
            0 => Self::Nothing,
            _ => Self::Part,
        }
    }

    /// What the answer says of it.
    fn problem(self, field: &str) -> Option<String> {
        let how = match self {
            Self::All => return None,
            Self::Part => "partially ignored",
            Self::Nothing => "ignored",
        };
        Some(format!("spec.resourceAttributes.{field} {how} due to parse error"))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Path {
    path: String,
    verb: String,
}

/// Whether a user may do something.
pub(super) async fn review(write: &WriteRequest<'_>, mut review: Value) -> Result<Value, Status> {
    let spec = Spec::deserialize(&review["spec"]).unwrap_or_default();
    let errors = errors(write, &spec, &review);
    if !errors.is_empty() {
        // kube-apiserver names no kind here.
        return Err(Status::invalid(&write.resource.group, "", "", &errors));
    }
    let own = is_about_oneself(write);
    let named;
    let user = if own {
        &*write.context.user
    } else {
        let (groups, extra) = (spec.groups.clone().unwrap_or_default(), spec.extra.clone().unwrap_or_default());
        named = UserInfo { name: spec.user.clone(), uid: spec.uid.clone(), groups, extra };
        &named
    };
    let selector = spec.resource_attributes.as_ref().and_then(|asked| asked.field_selector.as_ref());
    let (fields, understood) = selector.map_or((None, Understood::All), Selector::fields);
    let labels = spec.resource_attributes.as_ref().and_then(|asked| asked.label_selector.as_ref());
    let labels = labels.map_or(Understood::All, Selector::labels);
    let problems = [understood.problem("fieldSelector"), labels.problem("labelSelector")];
    let attributes = match (&spec.resource_attributes, &spec.non_resource_attributes) {
        (Some(asked), _) => {
            let resource = ResourceAttributes {
                group: &asked.group,
                version: if asked.version.is_empty() { "*" } else { &asked.version },
                resource: &asked.resource,
                subresource: &asked.subresource,
                namespace: &asked.namespace,
                name: &asked.name,
                fields: fields.as_ref(),
            };
            Attributes { user, verb: &asked.verb, path: "", resource: Some(resource) }
        }
        (None, asked) => {
            let (verb, path) = asked.as_ref().map_or(("", ""), |asked| (&*asked.verb, &*asked.path));
            Attributes { user, verb, path, resource: None }
        }
    };
    let (allowed, denied, reason) = match write.server.authorizer.authorize(attributes).await {
        Decision::Allow { reason } => (true, false, reason),
        Decision::Deny { reason } => (false, true, reason),
        Decision::NoOpinion { reason } => (false, false, reason),
    };
    review["status"] = json!({"allowed": allowed});
    if denied {
        review["status"]["denied"] = true.into();
    }
    if !reason.is_empty() {
        review["status"]["reason"] = reason.into();
    }
    let problems: Vec<String> = problems.into_iter().flatten().collect();
    if !problems.is_empty() {
        review["status"]["evaluationError"] = problems.join("; ").into();
    }
    Ok(review)
}

/// What the user may do in a namespace.
pub(super) fn rules_review(write: &WriteRequest<'_>, review: &Value) -> Result<Value, Status> {
    let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let found = write.server.authorizer.rules_of(&write.context.user, namespace);
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in &found.rules {
        if !rule.resources.is_empty() {
            let mut shown = json!(rule);
            shown.as_object_mut().map(|fields| fields.remove("nonResourceURLs"));
            resources.push(shown);
        }
        if !rule.non_resource_urls.is_empty() {
            paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
        }
    }
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": found.incomplete});
    if let Some(error) = found.error {
        status["evaluationError"] = error.into();
    }
    let (api_version, kind) = (write.resource.api_version(), &*write.resource.kind);
    Ok(json!({"apiVersion": api_version, "kind": kind, "metadata": {}, "spec": {}, "status": status}))
}

fn is_about_oneself(write: &WriteRequest<'_>) -> bool {
    write.resource.plural.starts_with("self")
}

fn errors(write: &WriteRequest<'_>, spec: &Spec, review: &Value) -> Vec<FieldError> {
    let path = |field: &str| FieldPath::new("spec").child(field);
    let (resource, other) = (&spec.resource_attributes, &spec.non_resource_attributes);
    let mut errors = Vec::new();
    // Errors show the Go struct, whose fields are not those of the JSON.
    let sent = other.as_ref().map_or(Value::Null, |asked| json!({"Path": asked.path, "Verb": asked.verb}));
    if resource.is_some() && other.is_some() {
        let why = "cannot be specified in combination with resourceAttributes";
        errors.push(FieldError::invalid(path("nonResourceAttributes"), sent.clone(), why));
    }
    if resource.is_none() && other.is_none() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid(path("resourceAttributes"), Value::Null, why));
    }
    if !is_about_oneself(write) && spec.user.is_empty() && spec.groups.as_ref().is_none_or(Vec::is_empty) {
        errors.push(FieldError::invalid(path("user"), "".into(), "at least one of user or group must be specified"));
    }
    for selector in ["fieldSelector", "labelSelector"] {
        let given = &review["spec"]["resourceAttributes"][selector];
        if !given.is_object() {
            continue;
        }
        let at = FieldPath::new("spec.resourceAttributes").child(selector);
        let raw = given["rawSelector"].as_str().unwrap_or_default();
        let requirements = given["requirements"].as_array().is_some_and(|list| !list.is_empty());
        if !raw.is_empty() && requirements {
            let why = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(at.clone().child("rawSelector"), raw.into(), why));
        }
        if raw.is_empty() && !requirements {
            let why = format!("when {at} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(at.clone().child("requirements"), why));
        }
        let given = Vec::<Requirement>::deserialize(&given["requirements"]).unwrap_or_default();
        for (index, requirement) in given.iter().enumerate() {
            requirement.check(selector == "labelSelector", &at.clone().child("requirements").index(index), &mut errors);
        }
    }
    let local = write.namespace.is_some();
    let mut metadata = meta::of(review).clone();
    metadata.remove("managedFields");
    if local {
        metadata.remove("namespace");
    }
    if !metadata.is_empty() {
        let why = if local { "must be empty except for namespace" } else { "must be empty" };
        errors.push(FieldError::invalid(FieldPath::new("metadata"), review["metadata"].clone(), why));
    }
    if local {
        if let Some(asked) = resource.as_ref().filter(|asked| Some(&*asked.namespace) != write.namespace) {
            let at = FieldPath::new("spec.resourceAttributes.namespace");
            errors.push(FieldError::invalid(at, asked.namespace.clone().into(), "must match metadata.namespace"));
        }
        if other.is_some() {
            let at = FieldPath::new("spec.nonResourceAttributes");
            errors.push(FieldError::invalid(at, sent, "disallowed on this kind of request"));
        }
    }
    errors
}
