//! Whether the writer of a policy or binding may read its parameters. In: a write of one. Out: nothing, or the error of the field that
//! names the parameters. Expressions see whole parameters and their messages can show them, so without this check whoever may
//! write policies could read every Secret. Members of `system:masters` may name any.

use serde_json::Value;

use konverge_core::{FieldError, FieldPath, GroupVersion, Status};

use super::params::ParamKind;
use super::{Kind, mutating, validating};
use crate::admission::{GROUP, lookup};
use crate::authorize::{Attributes, Authorizer, Decision, ResourceAttributes};
use crate::user::{MASTERS, UserInfo};
use crate::write::WriteRequest;

/// The bindings, and the policies that they bind.
const BINDINGS: [(&str, &str); 2] = [
    (validating::Rules::BINDINGS, validating::Rules::POLICIES),
    (mutating::Rules::BINDINGS, mutating::Rules::POLICIES),
];

/// The error of a policy or binding whose writer may not read the parameters that it names, if they were not named before.
pub(crate) async fn check_param_access(
    write: &WriteRequest<'_>,
    old: Option<&Value>,
    object: &Value,
) -> Result<Option<FieldError>, Status> {
    let (plural, user) = (&*write.resource.plural, &*write.context.user);
    if &*write.resource.group != GROUP || user.groups.iter().any(|group| group == MASTERS) {
        return Ok(None);
    }
    let (spec, before) = (&object["spec"], old.map(|old| &old["spec"]));
    let is_as_before = |field: &str| before.is_some_and(|before| before[field] == spec[field]);
    let (field, refused) = match BINDINGS.iter().find(|(bindings, policies)| [*bindings, *policies].contains(&plural)) {
        None => return Ok(None),
        Some((bindings, policies)) if *bindings == plural => {
            if !spec["paramRef"].is_object() || is_as_before("paramRef") && is_as_before("policyName") {
                return Ok(None);
            }
            ("paramRef", may_use(write, user, policies, spec).await?)
        }
        Some(_) => {
            if !spec["paramKind"].is_object() || is_as_before("paramKind") {
                return Ok(None);
            }
            ("paramKind", may_name(write, user, &spec["paramKind"]).await)
        }
    };
    Ok(refused.err().map(|why| FieldError::forbidden(FieldPath::new("spec").child(field), why)))
}

/// Whether the writer of a policy may read all objects of its parameters' kind.
async fn may_name(write: &WriteRequest<'_>, user: &UserInfo, kind: &Value) -> Result<(), String> {
    let asked = Asked::of(write, kind);
    if asked.is_allowed(write, "get", "*", "*").await {
        return Ok(());
    }
    Err(format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        shown(user),
        text(kind, "kind"),
        text(kind, "apiVersion"),
    ))
}

/// Whether the writer of a binding may read the objects that it refers to. The outer error is of the store.
async fn may_use(
    write: &WriteRequest<'_>,
    user: &UserInfo,
    policies: &'static str,
    spec: &Value,
) -> Result<Result<(), String>, Status> {
    let (policy, reference) = (text(spec, "policyName"), &spec["paramRef"]);
    let found = lookup::get::<Value>(write.server, (GROUP, policies), None, policy)?;
    let kind = found.as_ref().map(|(_, policy)| &policy["spec"]["paramKind"]).filter(|kind| kind.is_object());
    let asked = kind.map_or_else(Asked::everything, |kind| Asked::of(write, kind));
    let name = text(reference, "name");
    let verb = if name.is_empty() { "list" } else { "get" };
    if asked.is_allowed(write, verb, text(reference, "namespace"), name).await {
        return Ok(Ok(()));
    }
    let user = shown(user);
    let of_all = format!(
        "to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, \
         versions and resources"
    );
    Ok(Err(match (found.is_some(), kind) {
        (false, _) => format!("unable to get policy {policy} {of_all}"),
        (true, Some(kind)) if asked.resource == "*" => {
            format!("unable to resolve paramKind &{{{} {}}} {of_all}", text(kind, "apiVersion"), text(kind, "kind"))
        }
        (true, _) => format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef"),
    }))
}

/// What has to be readable: all that is not known is `*`.
struct Asked {
    group: String,
    version: String,
    resource: String,
}

impl Asked {
    fn everything() -> Self {
        let all = || "*".to_owned();
        Self { group: all(), version: all(), resource: all() }
    }

    /// The resource of a kind of parameters.
    fn of(write: &WriteRequest<'_>, kind: &Value) -> Self {
        let Some(GroupVersion { group, version }) = GroupVersion::parse(text(kind, "apiVersion")) else {
            return Self::everything();
        };
        let found = ParamKind::read(kind).and_then(|kind| kind.resource(write.server).ok());
        Self { group, version, resource: found.map_or_else(|| "*".to_owned(), |found| found.plural.to_string()) }
    }

    async fn is_allowed(&self, write: &WriteRequest<'_>, verb: &str, namespace: &str, name: &str) -> bool {
        let Self { group, version, resource } = self;
        let resource = ResourceAttributes { group, version, resource, namespace, name, ..Default::default() };
        let attributes = Attributes { user: &write.context.user, verb, path: "", resource: Some(resource) };
        matches!(write.server.authorizer.authorize(attributes).await, Decision::Allow { .. })
    }
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

/// A user as Go prints one: `&{alice  [developers] map[]}`.
fn shown(user: &UserInfo) -> String {
    let extra: Vec<String> = user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}
