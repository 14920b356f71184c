//! The first stage of a write: turns what the client sent into an object of the kind. In: decoded JSON. Out: an object with
//! known fields, the right types and the name and namespace of the request, or the `Status` that says why not.

use serde_json::{Value, json};

use konverge_core::{FieldError, FieldPath, GroupVersion, Status};
use konverge_schema::{NullRules, check_restorable, check_types, kubernetes, prune};

use super::WriteRequest;
use crate::crd::check_embedded_types;
use crate::decode::Decoded;
use crate::defaults;
use crate::meta;
use crate::request::FieldValidation;
use crate::resource::Resource;

/// How many unknown or duplicate fields are reported: as many as kube-apiserver reports.
const MAX_STRICT_ERRORS: usize = 100;

/// What Go's decoder says of a kind that it does not know.
pub(crate) fn unregistered(kind: &str, version: &str) -> String {
    format!("no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\"")
}

/// Refuses an object that does not say its name.
pub(super) fn check_name_given(name: &str, given: &str) -> Result<(), Status> {
    if given.is_empty() {
        let why = format!("the name of the object ({name} based on URL) was undeterminable: name must be provided");
        return Err(Status::bad_request(why));
    }
    Ok(())
}

/// 400: the object says that it belongs to another namespace.
pub(crate) fn foreign_namespace() -> Status {
    Status::bad_request("the namespace of the provided object does not match the namespace sent on the request")
}

/// What strict decoding says of fields that were given more than once.
pub(super) fn duplicate_fields(paths: &[String]) -> impl Iterator<Item = String> {
    paths.iter().map(|path| format!("duplicate field \"{path}\""))
}

/// 400: the body is a list, a text or a number.
pub(super) fn not_an_object() -> Status {
    Status::bad_request("the request body must be a JSON object: an API object")
}

/// Writes `3.0` as `3`: kube-apiserver reads a configuration as YAML, which does not tell them apart.
pub(super) fn whole_numbers(config: &mut Value) {
    /// Above this one, not every integer is a float.
    const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    match config {
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|float| number.is_f64() && float.abs() <= EXACT)
                && float.fract() == 0.0
            {
                *number = (float as i64).into();
            }
        }
        _ => {}
    }
}

impl WriteRequest<'_> {
    /// Turns what the client sent into an object of this kind: the right type, known fields, well-formed metadata.
    pub(super) fn receive(&self, sent: Decoded, warnings: &mut Vec<String>) -> Result<Value, Status> {
        self.receive_value(sent.value, duplicate_fields(&sent.duplicates), warnings)
    }

    /// The same of a value, with what strict decoding has found already.
    pub(super) fn receive_value(
        &self,
        mut object: Value,
        found: impl Iterator<Item = String>,
        warnings: &mut Vec<String>,
    ) -> Result<Value, Status> {
        if let Some((GroupVersion { version, .. }, kind, why)) = self.foreign(&object) {
            let expect = &self.resource.kind;
            let message = format!("{kind} in version {version:?} cannot be handled as a {expect}: {why}");
            return Err(Status::bad_request(message));
        }
        self.identify(&mut object)?;
        if object["metadata"].is_null() {
            object["metadata"] = json!({});
        }
        let schema = &self.resource.schema;
        let typed = if self.resource.custom {
            schema.arena.field(schema.root, "metadata").map(|metadata| (metadata, &object["metadata"]))
        } else {
            Some((schema.root, &object))
        };
        if let Some((root, value)) = typed
            && let Err(problem) = check_types(&schema.arena, root, value)
        {
            return Err(self.undecodable(&problem.to_string()));
        }
        if self.resource.custom {
            check_embedded_types(schema, &object).map_err(|problem| self.undecodable(&problem.to_string()))?;
        }
        let unknown = self.prune(&mut object).into_iter().map(|path| format!("unknown field \"{path}\""));
        self.report(found.chain(unknown), warnings).map_err(|why| self.undecodable(&why))?;
        Ok(object)
    }

    /// Refuses what server-side apply made of an object of a built-in kind if a value does not fit its type. The merge knows texts and
    /// numbers, but neither base64, times and quantities nor how large a number may be. Custom resources are validated later.
    pub(super) fn check_merged(&self, config: &Value, merged: &Value) -> Result<(), Status> {
        let Resource { group, version, kind, schema, custom, .. } = &**self.resource;
        if *custom {
            return Ok(());
        }
        check_restorable(&schema.arena, schema.root, merged).map_err(|why| {
            let text = |field: &str| config["metadata"][field].as_str().unwrap_or_default();
            let (namespace, name, gvk) = (text("namespace"), text("name"), format!("{group}/{version}, Kind={kind}"));
            let message = format!(
                "failed to convert new object ({namespace}/{name}; {gvk}) to proper version: unable to convert unstructured \
                 object to {gvk}: {why}"
            );
            Status::failure(500, "", message)
        })
    }

    /// Refuses a new object with a resource version. It is the store that refuses this, and a dry run does not get that far.
    pub(super) fn check_unversioned(&self, object: &Value) -> Result<(), Status> {
        if self.context.dry_run || meta::text(object, "resourceVersion").is_empty() {
            return Ok(());
        }
        Err(Status::failure(500, "", "resourceVersion should not be set on objects to be created"))
    }

    /// Tells the audit log what the client sent: the object with its defaults, as kube-apiserver has it after decoding.
    pub(super) fn note_sent(&self, object: &Value) {
        let Some(audit) = &self.context.audit else { return };
        audit.sent(object, || {
            let mut shown = object.clone();
            // Over its budget the request runs again, and tells this once more.
            defaults::fill(self.resource, &mut shown, self.budget).ok()?;
            serde_json::to_vec(&shown).ok()
        });
    }

    /// Checks that apiVersion and kind are those that this endpoint serves.
    pub(super) fn identify(&self, object: &mut Value) -> Result<(), Status> {
        let Some(fields) = object.as_object_mut() else {
            return Err(not_an_object());
        };
        let (expect_version, expect_kind) = (self.resource.api_version(), &*self.resource.kind);
        for (field, expect) in [("apiVersion", expect_version.as_str()), ("kind", expect_kind)] {
            match fields.get(field) {
                Some(Value::String(given)) if given == expect => {}
                // An object of a built-in kind may leave them out; a custom resource has to have them.
                None | Some(Value::Null) if !self.resource.custom => {
                    fields.insert(field.into(), expect.into());
                }
                Some(Value::String(given)) if field == "apiVersion" && GroupVersion::parse(given).is_some() => {
                    return Err(Status::bad_request(format!(
                        "the API version in the data ({given}) does not match the expected API version ({expect})"
                    )));
                }
                Some(Value::String(given)) if field == "kind" && !given.is_empty() => {
                    return Err(Status::bad_request(format!(
                        "the kind in the data ({given}) does not match the expected kind ({expect})"
                    )));
                }
                _ => {
                    let missing = if field == "kind" { "Kind" } else { "apiVersion" };
                    return Err(Status::bad_request(format!(
                        "Object '{missing}' is missing in the request body; set {field}: {expect}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Why an object of another kind than that of a built-in resource is refused: nobody knows it, or it is not what this endpoint
    /// takes. An object of the same kind in another version is known.
    pub(super) fn foreign(&self, object: &Value) -> Option<(GroupVersion, String, String)> {
        let expect = &self.resource;
        let text = |field: &str| object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let (given, kind) = (text("apiVersion")?, text("kind").unwrap_or(&expect.kind));
        let of = GroupVersion::parse(given).filter(|_| !expect.custom)?;
        let why = if !self.server.registry.builds_kind(&of, kind) {
            unregistered(kind, given)
        } else if *kind == *expect.kind {
            return None;
        } else {
            let package = expect.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
            format!("converting ({}.{kind}) to ({package}.{}): unknown conversion", of.version, expect.kind)
        };
        Some((of, kind.to_owned(), why))
    }

    /// Removes fields that the schema does not know, and names them.
    pub(super) fn prune(&self, object: &mut Value) -> Vec<String> {
        let schema = &self.resource.schema;
        prune(&schema.arena, schema.root, object, self.resource.null_rules())
    }

    /// Reads an object of a built-in type that is acted on instead of being stored: refuses values of the wrong types, removes fields
    /// that the type does not know, and reports them and those that were given more than once. Errors are those of decoding.
    pub(crate) fn receive_typed(&self, ty: &str, sent: Decoded, warnings: &mut Vec<String>) -> Result<Value, String> {
        let Decoded { mut value, duplicates } = sent;
        let types = kubernetes();
        let root = types.named(ty).expect("the table has the types of what subresources take");
        check_types(types, root, &value).map_err(|why| why.to_string())?;
        let unknown = prune(types, root, &mut value, NullRules::BuiltIn).into_iter();
        let unknown = unknown.map(|path| format!("unknown field \"{path}\""));
        self.report(duplicate_fields(&duplicates).chain(unknown), warnings)?;
        Ok(value)
    }

    /// Refuses, warns about or ignores what strict decoding found, by the request's `fieldValidation`.
    pub(super) fn report(&self, found: impl Iterator<Item = String>, warnings: &mut Vec<String>) -> Result<(), String> {
        let found: Vec<String> = found.take(MAX_STRICT_ERRORS).collect();
        match self.validation {
            _ if found.is_empty() => Ok(()),
            FieldValidation::Ignore => Ok(()),
            FieldValidation::Warn => {
                warnings.extend(found);
                Ok(())
            }
            FieldValidation::Strict => Err(format!("strict decoding error: {}", found.join(", "))),
        }
    }

    pub(super) fn undecodable(&self, why: &str) -> Status {
        let Resource { kind, version, .. } = &**self.resource;
        Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
    }

    /// Makes sure that the object has the namespace of the request.
    pub(super) fn set_namespace(&self, object: &mut Value) -> Result<(), Status> {
        let given = meta::text(object, "namespace").to_owned();
        match self.namespace {
            Some(namespace) if given.is_empty() => {
                meta::of_mut(object).insert("namespace".into(), namespace.into());
            }
            Some(namespace) if given != namespace => {
                return Err(foreign_namespace());
            }
            None => {
                meta::of_mut(object).remove("namespace");
            }
            _ => {}
        }
        Ok(())
    }

    /// Refuses to change an object without the version that the change is for, if its kind asks for it.
    pub(super) fn check_versioned(&self, name: &str, new: &Value) -> Result<(), Status> {
        let unconditional = !self.resource.behaviour.update_needs_version || self.server.lenient_updates;
        if unconditional || !meta::text(new, "resourceVersion").is_empty() {
            return Ok(());
        }
        let path = FieldPath::new("metadata").child("resourceVersion");
        let error = FieldError::invalid(path, 0.into(), "must be specified for an update");
        // kube-apiserver names the resource in this error, and the kind in others.
        Err(Status::invalid(&self.resource.group, &self.resource.plural, name, &[error]))
    }

    /// Refuses a write whose resourceVersion is not the current one.
    pub(super) fn same_version(&self, name: &str, old: &Value, new: &Value) -> Result<(), Status> {
        let version = meta::text(new, "resourceVersion");
        if !version.is_empty() && version.parse::<u64>().is_err() {
            // The store of kube-apiserver refuses this, and no 4xx is made of it.
            return Err(Status::failure(500, "", format!("strconv.ParseUint: parsing {version:?}: invalid syntax")));
        }
        if !version.is_empty() && version != "0" && version != meta::text(old, "resourceVersion") {
            return Err(self.modified(name));
        }
        Ok(())
    }

    /// Refuses to replace another object of the same name.
    pub(super) fn same_uid(&self, name: &str, uid: &str, new: &Value) -> Result<(), Status> {
        let given = meta::text(new, "uid");
        if !given.is_empty() && given != uid {
            let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {uid}");
            return Err(Status::conflict(&self.resource.group, &self.resource.plural, name, &why));
        }
        Ok(())
    }

    /// Makes sure that the object has the name of the request.
    pub(super) fn same_name(&self, name: &str, object: &Value) -> Result<(), Status> {
        match meta::text(object, "name") {
            "" => check_name_given(name, ""),
            given if given != name => Err(Status::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            ))),
            _ => Ok(()),
        }
    }
}
