//! Conditions: what is true of an object, in words that every tool understands. In: the list an object has and what is
//! true now. Out: the list after it. Pure. Other writers' conditions are never touched.

use std::borrow::Cow;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The object does what it is there for.
pub const READY: &str = "Ready";
/// The object is on its way to what its spec says.
pub const PROGRESSING: &str = "Progressing";
/// The object works, but not as it should.
pub const DEGRADED: &str = "Degraded";

/// The longest message that the published schema of conditions allows.
const MOST_MESSAGE_BYTES: usize = 32_768;

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody knows.
    Unknown,
}

/// One condition. It is also what a status of one's own may have: `conditions: Vec<Condition>`. Its time and the generation
/// it was observed at are added when it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about: `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one word for programs: `ReplicasReady`.
    #[serde(default)]
    pub reason: String,
    /// Why, for people.
    #[serde(default)]
    pub message: String,
    /// When its status last changed. Read from objects; it need not be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// The generation of the object that it is about. Read from objects; it need not be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// All that a condition has on a server, also what is added when it is written.
impl JsonSchema for Condition {
    fn schema_name() -> Cow<'static, str> {
        "Condition".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let text = || json_schema!({ "type": "string" });
        json_schema!({
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": text(),
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "reason": text(),
                "message": text(),
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "observedGeneration": { "type": "integer", "format": "int64" },
            },
        })
    }
}

/// The conditions of one object.
///
/// ```
/// use jiff::Timestamp;
/// use konverge_runtime::{Condition, Conditions, READY};
/// use serde_json::json;
///
/// let object = json!({"metadata": {"generation": 2}, "status": {"conditions": []}});
/// let mut conditions = Conditions::of(&object);
/// conditions.set(&Condition::yes(READY, "ReplicasReady", "3 of 3"), Some(2), Timestamp::UNIX_EPOCH);
/// assert!(conditions.is_true(READY));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    items: Vec<Value>,
    /// How many were there already: they keep their places.
    kept: usize,
}

impl ConditionStatus {
    /// As objects spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl Condition {
    /// A condition.
    pub fn new(
        type_: impl Into<String>,
        status: impl Into<ConditionStatus>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            type_: type_.into(),
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            last_transition_time: None,
            observed_generation: None,
        }
    }

    /// A condition that holds.
    pub fn yes(type_: impl Into<String>, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(type_, true, reason, message)
    }

    /// A condition that does not hold.
    pub fn no(type_: impl Into<String>, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(type_, false, reason, message)
    }

    fn fields(&self) -> Map<String, Value> {
        // Neither may be empty in the published schema.
        let reason = if self.reason.is_empty() { &self.type_ } else { &self.reason };
        let cut = (0..=MOST_MESSAGE_BYTES.min(self.message.len())).rev().find(|at| self.message.is_char_boundary(*at));
        let message = &self.message[..cut.unwrap_or_default()];
        let fields =
            [("type", self.type_.as_str()), ("status", self.status.as_str()), ("reason", reason), ("message", message)];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
    }
}

impl Conditions {
    /// The conditions in an object's status.
    pub fn of(object: &Value) -> Self {
        Self::from_list(object.pointer("/status/conditions"))
    }

    pub(super) fn from_list(list: Option<&Value>) -> Self {
        let items = list.and_then(Value::as_array).cloned().unwrap_or_default();
        Self { kept: items.len(), items }
    }

    /// Sets one condition. Its `lastTransitionTime` moves only if its status does; `observed` is the generation of the
    /// object that was looked at. Conditions that were there keep their places, new ones follow in the order of their
    /// types. Tells whether anything changed.
    pub fn set(&mut self, condition: &Condition, observed: Option<i64>, now: Timestamp) -> bool {
        self.put(condition.fields(), observed, now)
    }

    /// Takes a condition away. Tells whether it was there.
    pub fn remove(&mut self, type_: &str) -> bool {
        let Some(at) = self.position(type_) else { return false };
        self.items.remove(at);
        self.kept -= usize::from(at < self.kept);
        true
    }

    /// One condition with all its fields.
    pub fn get(&self, type_: &str) -> Option<&Value> {
        self.position(type_).map(|at| &self.items[at])
    }

    /// Whether a condition is there and holds.
    pub fn is_true(&self, type_: &str) -> bool {
        self.get(type_).is_some_and(|condition| text(condition, "status") == "True")
    }

    /// Every condition, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Value> {
        self.items.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn into_value(self) -> Value {
        Value::Array(self.items)
    }

    /// Sets a condition from its fields; whatever else the kept one has stays.
    pub(super) fn put(&mut self, mut fields: Map<String, Value>, observed: Option<i64>, now: Timestamp) -> bool {
        let type_ = fields.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let before = self.get(&type_).and_then(Value::as_object);
        let stays = |fields: &Map<String, Value>, name| before.and_then(|before| before.get(name)) == fields.get(name);
        // Somebody read a condition and changed it: when that one came about is not when this one does.
        if !["status", "reason", "message"].into_iter().all(|name| stays(&fields, name)) {
            for name in ["lastTransitionTime", "observedGeneration"] {
                if stays(&fields, name) {
                    fields.remove(name);
                }
            }
        }
        if before.and_then(|before| before.get("status")) == fields.get("status") {
            let kept = before.and_then(|before| before.get("lastTransitionTime")).cloned();
            fields.insert("lastTransitionTime".into(), kept.unwrap_or_else(|| time(now)));
        } else {
            fields.entry("lastTransitionTime").or_insert_with(|| time(now));
        }
        if let Some(observed) = observed {
            fields.entry("observedGeneration").or_insert(observed.into());
        }
        let mut after = before.cloned().unwrap_or_default();
        after.extend(fields);
        match self.position(&type_) {
            Some(at) if self.items[at].as_object() == Some(&after) => false,
            Some(at) => {
                self.items[at] = Value::Object(after);
                true
            }
            None => {
                self.items.push(Value::Object(after));
                self.items[self.kept..].sort_by(|a, b| text(a, "type").cmp(text(b, "type")));
                true
            }
        }
    }

    fn position(&self, type_: &str) -> Option<usize> {
        self.items.iter().position(|condition| text(condition, "type") == type_)
    }
}

/// Whether an object of any kind has this condition and it holds.
///
/// ```
/// use konverge_runtime::is_true;
/// use serde_json::json;
/// let deployment = json!({"status": {"conditions": [{"type": "Available", "status": "True"}]}});
/// assert!(is_true(&deployment, "Available"));
/// assert!(!is_true(&deployment, "Progressing"));
/// ```
pub fn is_true(object: &Value, type_: &str) -> bool {
    let list = object.pointer("/status/conditions").and_then(Value::as_array);
    let found = list.into_iter().flatten().find(|condition| text(condition, "type") == type_);
    found.is_some_and(|condition| text(condition, "status") == "True")
}

fn text<'v>(condition: &'v Value, name: &str) -> &'v str {
    condition.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// As objects carry it: RFC 3339, whole seconds, UTC.
fn time(now: Timestamp) -> Value {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()
}
