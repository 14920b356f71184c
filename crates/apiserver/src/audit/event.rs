//! One event of the audit log. In: what is known of a request at one stage. Out: a line, as kube-apiserver writes it: an `Event` of
//! `audit.k8s.io/v1` as JSON, or the older text. Fields that are unknown are left out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use konverge_core::{Status, StatusDetails};
use konverge_schema::go_quote;

use super::policy::{Level, Stage};
use crate::admission::items_mut;
use crate::authorize::ResourceAttributes;
use crate::user::UserInfo;

/// The annotation of an event whose objects were left out because they are too large.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// About what an event takes besides its texts, in bytes.
const BARE_BYTES: usize = 2 * 1024;

/// What is known of a request before it is processed.
#[derive(Debug)]
pub(crate) struct Head {
    pub level: Level,
    pub omit_managed_fields: bool,
    pub audit_id: Arc<str>,
    pub uri: String,
    pub verb: String,
    /// None if the credential of the request is not believed.
    pub user: Option<Arc<UserInfo>>,
    pub source_ips: Vec<IpAddr>,
    pub user_agent: String,
    pub received: Timestamp,
}

/// What becomes known of a request while it is processed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub impersonated: Option<Impersonated>,
    pub object: Option<ObjectReference>,
    pub status: Option<ResponseStatus>,
    pub request: Option<SentObject>,
    /// The answer, as JSON.
    pub response: Option<Bytes>,
    pub annotations: BTreeMap<String, String>,
}

/// The user that a request was made as.
#[derive(Clone, Debug)]
pub(crate) struct Impersonated {
    pub user: Arc<UserInfo>,
    /// The verb of the mode that allowed it; empty for the verb `impersonate`.
    pub constraint: String,
}

/// What a client sent, as JSON.
#[derive(Clone, Debug)]
pub(crate) enum SentObject {
    Object(Bytes),
    /// As it was sent, so that it may be anything.
    Patch(Bytes),
}

/// The object that a request is about. What is not known is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

impl ObjectReference {
    pub(crate) fn of(asked: &ResourceAttributes<'_>) -> Self {
        Self {
            resource: asked.resource.to_owned(),
            namespace: asked.namespace.to_owned(),
            name: asked.name.to_owned(),
            api_group: asked.group.to_owned(),
            api_version: asked.version.to_owned(),
            subresource: asked.subresource.to_owned(),
            ..Self::default()
        }
    }
}

impl ObjectReference {
    fn bytes(&self) -> usize {
        let Self { resource, namespace, name, uid, api_group, api_version, resource_version, subresource } = self;
        let texts = [resource, namespace, name, uid, api_group, api_version, resource_version, subresource];
        texts.iter().map(|text| text.len()).sum()
    }
}

/// How a request was answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResponseStatus {
    metadata: NoMetadata,
    #[serde(skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Box<StatusDetails>>,
    code: u16,
}

/// A `Status` always has this.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct NoMetadata {}

impl ResponseStatus {
    /// Of an answer that is no `Status`.
    pub(crate) fn code(code: u16) -> Self {
        Self { code, ..Self::default() }
    }

    pub(crate) fn of(status: Status, code: u16) -> Self {
        let Status { status, message, reason, details, .. } = status;
        Self { metadata: NoMetadata {}, status, message, reason, details, code }
    }

    fn bytes(&self) -> usize {
        let details = self.details.as_ref().map_or(0, |details| {
            let StatusDetails { name, group, kind, uid, causes, .. } = &**details;
            let causes = causes.iter().map(|cause| cause.field.len() + cause.message.len() + cause.reason.len());
            name.len() + group.len() + kind.len() + uid.len() + causes.sum::<usize>()
        });
        self.message.len() + details
    }
}

/// An event, before it is written.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub head: Arc<Head>,
    pub stage: Stage,
    pub at: Timestamp,
    pub facts: Facts,
}

/// The fields in the order of Go's struct.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    stage: &'static str,
    #[serde(rename = "requestURI")]
    request_uri: &'a str,
    verb: &'a str,
    user: User<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<User<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authentication_metadata: Option<AuthenticationMetadata<'a>>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[IpAddr]>::is_empty")]
    source_ips: &'a [IpAddr],
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<&'a ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<&'a ResponseStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_object: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_object: Option<Box<RawValue>>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
}

#[derive(Default, Serialize)]
struct User<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<&'a BTreeMap<String, Vec<String>>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AuthenticationMetadata<'a> {
    impersonation_constraint: &'a str,
}

impl<'a> User<'a> {
    fn of(user: &'a UserInfo) -> Self {
        let UserInfo { name, uid, groups, extra } = user;
        Self { username: name, uid, groups, extra: (!extra.is_empty()).then_some(extra) }
    }
}

impl Event {
    /// About how many bytes of memory the event holds. Every text whose length a client chooses is counted.
    pub(crate) fn bytes(&self) -> usize {
        let Facts { impersonated, object, status, request, response, annotations } = &self.facts;
        let request = match request {
            Some(SentObject::Object(json) | SentObject::Patch(json)) => json.len(),
            None => 0,
        };
        let Head { audit_id, uri, verb, user, user_agent, .. } = &*self.head;
        let head = audit_id.len() + uri.len() + verb.len() + user_agent.len() + user.as_deref().map_or(0, user_bytes);
        let impersonated = impersonated.as_ref().map_or(0, |it| user_bytes(&it.user) + it.constraint.len());
        let annotations: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        BARE_BYTES
            + head
            + impersonated
            + object.as_ref().map_or(0, ObjectReference::bytes)
            + status.as_ref().map_or(0, ResponseStatus::bytes)
            + annotations
            + request
            + response.as_ref().map_or(0, Bytes::len)
    }

    /// Whether leaving out the objects can make the event smaller.
    pub(crate) fn may_have_objects(&self) -> bool {
        self.head.level >= Level::Request
    }

    /// The same event without what was sent and answered.
    pub(crate) fn truncated(mut self) -> Self {
        (self.facts.request, self.facts.response) = (None, None);
        self.facts.annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
        self
    }

    /// The line of the event as JSON.
    pub(crate) fn json(&self) -> Vec<u8> {
        let Self { head, stage, at, facts } = self;
        let strip = head.omit_managed_fields;
        let request_object = match &facts.request {
            Some(SentObject::Object(json)) => raw(json, strip),
            // A patch that is no JSON was refused, and what was sent cannot be shown.
            Some(SentObject::Patch(json)) => raw(json, false),
            None => None,
        };
        let constraint = facts.impersonated.as_ref().map(|impersonated| impersonated.constraint.as_str());
        let fields = Fields {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: head.level.name(),
            audit_id: &head.audit_id,
            stage: stage.name(),
            request_uri: &head.uri,
            verb: &head.verb,
            user: head.user.as_deref().map(User::of).unwrap_or_default(),
            impersonated_user: facts.impersonated.as_ref().map(|impersonated| User::of(&impersonated.user)),
            authentication_metadata: constraint
                .filter(|constraint| !constraint.is_empty())
                .map(|impersonation_constraint| AuthenticationMetadata { impersonation_constraint }),
            source_ips: &head.source_ips,
            user_agent: &head.user_agent,
            object_ref: facts.object.as_ref(),
            response_status: facts.status.as_ref(),
            request_object,
            response_object: facts.response.as_ref().and_then(|json| raw(json, strip)),
            request_received_timestamp: micro_time(head.received),
            stage_timestamp: micro_time(*at),
            annotations: &facts.annotations,
        };
        let mut line = compact(&serde_json::to_vec(&fields).expect("writing to memory does not fail"));
        line.push(b'\n');
        line
    }

    /// The line of the event as text.
    pub(crate) fn legacy(&self) -> Vec<u8> {
        let Self { head, stage, facts, .. } = self;
        let list = |groups: &[String]| groups.iter().map(|group| go_quote(group)).collect::<Vec<_>>().join(",");
        let known = |text: &str, without: &str| go_quote(if text.is_empty() { without } else { text });
        let (user, groups) = match head.user.as_deref().filter(|user| !user.name.is_empty()) {
            Some(user) => (user.name.as_str(), list(&user.groups)),
            None => ("", String::new()),
        };
        let (as_user, as_groups) = match &facts.impersonated {
            Some(Impersonated { user, .. }) => (user.name.clone(), list(&user.groups)),
            None => ("<self>".to_owned(), "<lookup>".to_owned()),
        };
        let namespace = facts.object.as_ref().map_or("", |object| &object.namespace);
        let response = facts.status.as_ref().map_or_else(|| "<deferred>".to_owned(), |status| status.code.to_string());
        let ip = head.source_ips.first().map(ToString::to_string).unwrap_or_default();
        let line = format!(
            "{} AUDIT: id={} stage={} ip={} method={} user={} groups={} as={} asgroups={} user-agent={} namespace={} uri={} \
             response=\"{response}\"\n",
            head.received,
            go_quote(&head.audit_id),
            go_quote(stage.name()),
            known(&ip, "<unknown>"),
            go_quote(&head.verb),
            known(user, "<none>"),
            known(&groups, "<none>"),
            go_quote(&as_user),
            go_quote(&as_groups),
            go_quote(&head.user_agent),
            known(namespace, "<none>"),
            go_quote(&head.uri),
        );
        line.into_bytes()
    }
}

/// The texts of a user, in bytes.
fn user_bytes(user: &UserInfo) -> usize {
    let UserInfo { name, uid, groups, extra } = user;
    let extra = extra.iter().map(|(key, values)| key.len() + values.iter().map(String::len).sum::<usize>());
    name.len() + uid.len() + groups.iter().map(String::len).sum::<usize>() + extra.sum::<usize>()
}

/// A time as Kubernetes writes a `MicroTime`.
fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// JSON as it is, or without managed fields. None if it is no JSON.
fn raw(json: &[u8], strip: bool) -> Option<Box<RawValue>> {
    if !strip {
        return serde_json::from_slice(json).ok();
    }
    let mut object: Value = serde_json::from_slice(json).ok()?;
    remove_managed_fields(&mut object);
    for item in items_mut(&mut object, "items") {
        remove_managed_fields(item);
    }
    for row in items_mut(&mut object, "rows") {
        row.get_mut("object").into_iter().for_each(remove_managed_fields);
    }
    serde_json::value::to_raw_value(&object).ok()
}

fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// JSON on one line, with the characters escaped that Go's encoder escapes.
fn compact(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() + json.len() / 16);
    let (mut in_text, mut escaped) = (false, false);
    let mut bytes = json.iter().copied().enumerate();
    while let Some((at, byte)) = bytes.next() {
        if !in_text {
            in_text = byte == b'"';
            if !byte.is_ascii_whitespace() {
                out.push(byte);
            }
            continue;
        }
        match byte {
            b'<' => out.extend_from_slice(b"\\u003c"),
            b'>' => out.extend_from_slice(b"\\u003e"),
            b'&' => out.extend_from_slice(b"\\u0026"),
            // The line separators U+2028 and U+2029, which old JavaScript does not take in a text.
            0xe2 if matches!(json.get(at + 1..at + 3), Some([0x80, 0xa8 | 0xa9])) => {
                out.extend_from_slice(if json[at + 2] == 0xa8 { b"\\u2028" } else { b"\\u2029" });
                bytes.nth(1);
            }
            byte => out.push(byte),
        }
        in_text = byte != b'"' || escaped;
        escaped = byte == b'\\' && !escaped;
    }
    out
}

#[cfg(test)]
mod tests;
