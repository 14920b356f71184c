//! The scale subresource: a small object that shows and sets how many there are. In: an object and where its numbers
//! are. Out: `autoscaling/v1 Scale`, and from one the change to the object.

use serde_json::{Value, json};

use konverge_core::{FieldError, FieldPath, LabelSelector, Status};
use konverge_schema::{NullRules, check_types, go_plain, go_type_name, kubernetes, prune};

use crate::json_path::{get_simple, set_simple};
use crate::meta;
use crate::resource::{Resource, ScalePaths};
use crate::subresource::Subresource;
use crate::write::unregistered;

const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

const VERSION: &str = "autoscaling/v1";
/// Other versions that have a kind of this name.
const OLD_VERSIONS: [&str; 3] = ["extensions/v1beta1", "apps/v1beta1", "apps/v1beta2"];

/// What the scale of a custom resource without a number shows to a patch, as in kube-apiserver.
const NO_NUMBER: i64 = i32::MIN as i64;

/// The scale of an object.
pub(crate) fn of(object: &Value, paths: &ScalePaths) -> Value {
    let mut metadata = serde_json::Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta::of(object).get(field) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let number = |path: &str| get_simple(object, path).and_then(Value::as_i64);
    let mut status = json!({"replicas": number(&paths.status_replicas).unwrap_or_default()});
    if let Some(selector) = paths.selector.as_deref().and_then(|path| get_simple(object, path)) {
        status["selector"] = selector_text(selector).into();
    }
    let mut spec = json!({});
    if let Some(replicas) = number(&paths.spec_replicas).filter(|replicas| *replicas != 0) {
        spec["replicas"] = replicas.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// The scale of an object that is read. A custom resource without a number in its spec has none.
pub(crate) fn read(object: &Value, resource: &Resource, paths: &ScalePaths) -> Result<Value, Status> {
    let path = &paths.spec_replicas;
    if resource.custom && get_simple(object, path).is_none() {
        return Err(Status::internal(format!("the spec replicas field {path:?} does not exist")));
    }
    Ok(of(object, paths))
}

/// The scale of an object that is patched.
pub(crate) fn to_patch(object: &Value, resource: &Resource, paths: &ScalePaths) -> Value {
    let mut scale = of(object, paths);
    if resource.custom && get_simple(object, &paths.spec_replicas).is_none() {
        scale["spec"]["replicas"] = NO_NUMBER.into();
    }
    scale
}

/// The errors of the values of a custom resource that its scale shows. Its status endpoint does not write the spec.
pub(crate) fn check(object: &Value, paths: &ScalePaths, subresource: Subresource) -> Vec<FieldError> {
    let number = |path: &str| {
        let invalid = |value: i64, why: String| Some(FieldError::invalid(FieldPath::new(path), value.into(), why));
        match nested(object, path) {
            Err(why) => invalid(0, why),
            Ok(None) => None,
            Ok(Some(value)) => match value.as_i64() {
                None => invalid(0, of_another_type(path, value, "int64")),
                Some(replicas @ ..0) => invalid(replicas, "should be a non-negative integer".to_owned()),
                Some(replicas) if replicas > i64::from(i32::MAX) => {
                    invalid(replicas, format!("should be less than or equal to {}", i32::MAX))
                }
                Some(_) => None,
            },
        }
    };
    let text = |path: &str| {
        let why = match nested(object, path) {
            Ok(Some(value)) if !value.is_string() => of_another_type(path, value, "string"),
            Ok(_) => return None,
            Err(why) => why,
        };
        Some(FieldError::invalid(FieldPath::new(path), "".into(), why))
    };
    let spec = (subresource != Subresource::Status).then(|| number(&paths.spec_replicas)).flatten();
    let selector = paths.selector.as_deref().and_then(text);
    spec.into_iter().chain(number(&paths.status_replicas)).chain(selector).collect()
}

/// The value at a path, or why there can be none: something on the way is no object.
fn nested<'o>(object: &'o Value, path: &str) -> Result<Option<&'o Value>, String> {
    let (mut at, mut walked) = (object, String::new());
    for name in path.strip_prefix('.').unwrap_or(path).split('.') {
        walked.push('.');
        walked.push_str(name);
        match at {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(name) {
                Some(value) => at = value,
                None => return Ok(None),
            },
            other => return Err(of_another_type(&walked, other, "map[string]interface{}")),
        }
    }
    Ok(Some(at))
}

/// What Go says of a value of another type than expected.
fn of_another_type(path: &str, value: &Value, expect: &str) -> String {
    let found = go_type_name(value);
    let path = path.strip_prefix('.').unwrap_or(path);
    format!(".{path} accessor error: {} is of the type {found}, expected {expect}", go_plain(value))
}

/// The object with the number that `scale` asks for.
pub(crate) fn set(object: &Value, scale: &Value, resource: &Resource, paths: &ScalePaths) -> Result<Value, Status> {
    check_is_scale_of(object, scale)?;
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or_default();
    if resource.custom && replicas == NO_NUMBER {
        let path = &paths.spec_replicas;
        return Err(Status::bad_request(format!("the spec replicas field {path:?} cannot be empty")));
    }
    let mut errors = if scale["metadata"].is_object() { meta::check_scale(scale) } else { Vec::new() };
    if replicas < 0 {
        let path = FieldPath::new("spec").child("replicas");
        errors.push(FieldError::invalid(path, replicas.into(), "must be greater than or equal to 0"));
    }
    if !errors.is_empty() {
        return Err(Status::invalid("autoscaling", "Scale", meta::text(object, "name"), &errors));
    }
    let (uid, found) = (scale["metadata"]["uid"].as_str().unwrap_or_default(), meta::text(object, "uid"));
    if !uid.is_empty() && uid != found {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}");
        let plural = format!("{}/scale", resource.plural);
        return Err(Status::conflict(&resource.group, &plural, meta::text(object, "name"), &why));
    }
    let mut scaled = object.clone();
    set_simple(&mut scaled, &paths.spec_replicas, replicas.into()).map_err(Status::internal)?;
    let version = scale["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty());
    if version.is_some_and(|version| version != meta::text(object, "resourceVersion")) {
        return Err(Status::modified(&resource.group, &resource.plural, meta::text(object, "name")));
    }
    Ok(scaled)
}

/// An applied Scale as a configuration of the object itself: the number stands where the object has it, and nothing else is
/// applied.
pub(crate) fn configuration(
    object: &Value,
    scale: &Value,
    resource: &Resource,
    paths: &ScalePaths,
) -> Result<Value, Status> {
    // Refuses what no scale can be.
    set(object, scale, resource, paths)?;
    let mut configuration = json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "metadata": {"name": meta::text(object, "name")},
    });
    if let Some(replicas) = scale["spec"]["replicas"].as_i64() {
        set_simple(&mut configuration, &paths.spec_replicas, replicas.into()).map_err(Status::internal)?;
    }
    Ok(configuration)
}

/// The object after a Scale was applied to it. A Scale always has a number, so one that its only manager gave up is 0.
pub(crate) fn with_number(mut object: Value, paths: &ScalePaths) -> Result<Value, Status> {
    if get_simple(&object, &paths.spec_replicas).is_none() {
        set_simple(&mut object, &paths.spec_replicas, 0.into()).map_err(Status::internal)?;
    }
    Ok(object)
}

/// What strict decoding says of the fields that a Scale does not have.
pub(crate) fn unknown_fields(scale: &Value) -> impl Iterator<Item = String> {
    let types = kubernetes();
    let ty = types.named(SCALE).expect("the table has the type of scales");
    let unknown = prune(types, ty, &mut scale.clone(), NullRules::BuiltIn);
    unknown.into_iter().map(|path| format!("unknown field \"{path}\""))
}

/// 400: what was sent is no Scale.
pub(crate) fn undecodable(why: &str) -> Status {
    Status::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {why}"))
}

/// Refuses what is no Scale, or that of another object: its `spec.replicas` would say nothing about this one.
fn check_is_scale_of(object: &Value, scale: &Value) -> Result<(), Status> {
    let kind = scale["kind"].as_str().filter(|kind| !kind.is_empty() && *kind != "Scale");
    if let Some(given) = kind {
        return Err(Status::bad_request(format!(
            "the kind in the data ({given}) does not match the expected kind (Scale)"
        )));
    }
    let version = scale["apiVersion"].as_str().filter(|version| !version.is_empty() && *version != VERSION);
    if let Some(given) = version {
        if OLD_VERSIONS.contains(&given) {
            return Err(Status::bad_request(format!(
                "the API version in the data ({given}) does not match the expected API version ({VERSION})"
            )));
        }
        let version = given.rsplit('/').next().unwrap_or_default();
        return Err(Status::bad_request(format!(
            "Scale in version {version:?} cannot be handled as a Scale: {}",
            unregistered("Scale", given)
        )));
    }
    let types = kubernetes();
    let ty = types.named(SCALE).expect("the table has the type of scales");
    check_types(types, ty, scale).map_err(|why| undecodable(&why.to_string()))?;
    let other = |field| {
        let given = scale["metadata"][field].as_str().unwrap_or_default();
        let expect = meta::text(object, field);
        (!given.is_empty() && given != expect).then_some((given, expect))
    };
    if let Some((given, expect)) = other("name") {
        let message = format!("the name of the object ({given}) does not match the name on the URL ({expect})");
        return Err(Status::bad_request(message));
    }
    if other("namespace").is_some() {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    Ok(())
}

/// A selector as text, from text or from a LabelSelector object.
fn selector_text(selector: &Value) -> String {
    match selector {
        Value::String(text) => text.clone(),
        // Older kinds select by plain labels.
        Value::Object(labels) if labels.values().all(Value::is_string) => {
            let terms: Vec<String> =
                labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
            terms.join(",")
        }
        object => LabelSelector::from_object(object).map(|selector| selector.to_string()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_and_sets() {
        let paths = ScalePaths {
            spec_replicas: ".spec.replicas".into(),
            status_replicas: ".status.replicas".into(),
            selector: Some(".spec.selector".into()),
        };
        let object = json!({
            "metadata": {"name": "web", "resourceVersion": "7"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["b", "a"]}, {"key": "x", "operator": "DoesNotExist"},
            ]}},
            "status": {"replicas": 2},
        });
        let scale = of(&object, &paths);
        assert_eq!(scale["spec"], json!({"replicas": 3}));
        assert_eq!(scale["status"], json!({"replicas": 2, "selector": "app=web,tier in (a,b),!x"}));
    }
}
