//! Scenarios of server-side apply: each is a list of writes, with what the object and its managers are
//! after each of them.

mod kinds;
mod managers;
mod shapes;

use serde_json::json;

use super::*;
use crate::arena::{Field, ListKind, Node, Scalar, Shape};

const T1: &str = "2026-01-01T00:00:01Z";

/// Types of a kind with every shape in its `spec`.
struct Types {
    arena: Arena,
    thing: TypeId,
}

fn node(arena: &mut Arena, shape: Shape) -> TypeId {
    arena.add(Node { shape, ..Node::default() })
}

fn fields(arena: &mut Arena, fields: &[(&str, TypeId)], open: bool, atomic: bool) -> TypeId {
    let mut fields: Vec<_> =
        fields.iter().map(|(name, ty)| Field { name: (*name).into(), ty: *ty, required: false }).collect();
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    node(arena, Shape::Struct { fields: fields.into(), open, atomic })
}

fn list(arena: &mut Arena, item: TypeId, kind: ListKind) -> TypeId {
    node(arena, Shape::List { item, kind })
}

fn by(keys: &[&str]) -> ListKind {
    ListKind::Map(keys.iter().map(|key| (*key).into()).collect())
}

fn types() -> Types {
    let mut arena = Arena::default();
    let a = &mut arena;
    let text = node(a, Shape::Scalar(Scalar::String));
    let number = node(a, Shape::Scalar(Scalar::Int64));
    let any = node(a, Shape::Any);
    let opaque = node(a, Shape::Opaque);
    let tcp =
        a.add(Node { shape: Shape::Scalar(Scalar::String), default: Some(Box::new("TCP".into())), ..Node::default() });
    let texts = list(a, text, ListKind::Atomic);
    let set = list(a, text, ListKind::Set);
    let map = node(a, Shape::Map { value: text, atomic: false });
    let whole = node(a, Shape::Map { value: text, atomic: true });
    let port = fields(a, &[("port", number), ("protocol", tcp), ("name", text)], false, false);
    let ports = list(a, port, by(&["port", "protocol"]));
    let item = fields(a, &[("name", text), ("value", text), ("ports", ports), ("args", texts)], false, false);
    let items = list(a, item, by(&["name"]));
    let pair = fields(a, &[("x", text), ("y", text)], false, false);
    let whole_pair = fields(a, &[("x", text), ("y", text)], false, true);
    let open = fields(a, &[("x", text)], true, false);
    let pairs = node(a, Shape::Map { value: pair, atomic: false });
    let spec = [
        ("text", text),
        ("number", number),
        ("any", any),
        ("opaque", opaque),
        ("texts", texts),
        ("set", set),
        ("map", map),
        ("whole", whole),
        ("ports", ports),
        ("items", items),
        ("pair", pair),
        ("wholePair", whole_pair),
        ("open", open),
        ("pairs", pairs),
    ];
    let spec = fields(a, &spec, false, false);
    let status = fields(a, &[("phase", text), ("items", items)], false, false);
    let metadata =
        [("name", text), ("namespace", text), ("uid", text), ("resourceVersion", text), ("generation", number)];
    let metadata =
        [&metadata[..], &[("labels", map), ("annotations", map), ("finalizers", set), ("managedFields", opaque)]];
    let metadata = fields(a, &metadata.concat(), false, false);
    let top = [("apiVersion", text), ("kind", text), ("metadata", metadata), ("spec", spec), ("status", status)];
    let thing = fields(a, &top, false, false);
    Types { arena, thing }
}

/// One object under a sequence of writes, each a second after the other.
struct Story {
    types: Types,
    live: Option<Value>,
    seconds: u32,
    version: &'static str,
    subresource: &'static str,
    reset: FieldSet,
}

/// What a write said, to be checked.
struct Told<'s> {
    story: &'s mut Story,
    refused: Option<ApplyError>,
}

fn story() -> Story {
    Story { types: types(), live: None, seconds: 0, version: "x.io/v1", subresource: "", reset: FieldSet::default() }
}

impl Story {
    fn write(
        &mut self,
        manager: &str,
        write: impl FnOnce(FieldManager<'_>, Option<&Value>) -> Result<Value, ApplyError>,
    ) -> Told<'_> {
        self.seconds += 1;
        let now = format!("2026-01-01T00:00:{:02}Z", self.seconds);
        let writer = FieldManager {
            arena: &self.types.arena,
            ty: self.types.thing,
            api_version: self.version,
            kind: "Thing",
            subresource: self.subresource,
            manager,
            reset: &self.reset,
            empty_object: &json!({}),
            now: &now,
        };
        match write(writer, self.live.as_ref()) {
            Ok(mut object) => {
                object["metadata"]["uid"] = "u".into();
                self.live = Some(object);
                Told { story: self, refused: None }
            }
            Err(error) => Told { story: self, refused: Some(error) },
        }
    }

    /// Applies a `spec`, or a whole object if it has `metadata`.
    fn apply(&mut self, manager: &str, config: Value) -> Told<'_> {
        let config = self.object(config);
        self.write(manager, |writer, live| writer.apply(live, &config, false))
    }

    fn force(&mut self, manager: &str, config: Value) -> Told<'_> {
        let config = self.object(config);
        self.write(manager, |writer, live| writer.apply(live, &config, true))
    }

    /// Replaces the object by one with this `spec`.
    fn update(&mut self, manager: &str, object: Value) -> Told<'_> {
        let mut object = self.object(object);
        object["metadata"]["uid"] = "u".into();
        self.write(manager, |writer, live| {
            writer.update(live, &mut object);
            Ok(object)
        })
    }

    fn object(&self, content: Value) -> Value {
        let mut object = match content.get("metadata") {
            Some(_) => content,
            None => json!({"metadata": {}, "spec": content}),
        };
        object["apiVersion"] = self.version.into();
        object["kind"] = "Thing".into();
        object["metadata"]["name"] = "it".into();
        object["metadata"]["namespace"] = "ns".into();
        object
    }

    fn live(&self) -> &Value {
        self.live.as_ref().expect("written before")
    }

    /// The managers, one a line: `name Operation@second: paths`.
    fn owners(&self) -> Vec<String> {
        let list = self.live().pointer("/metadata/managedFields").cloned().unwrap_or_default();
        let entries = list.as_array().cloned().unwrap_or_default();
        let line = |entry: &Value| {
            let one = ManagedFields::decode(&json!([entry])).expect("what we write is valid").entries.remove(0);
            let subresource = if one.subresource.is_empty() { String::new() } else { format!("/{}", one.subresource) };
            let version = if &*one.api_version == "x.io/v1" { String::new() } else { format!(" {}", one.api_version) };
            let second = one.time.map_or("never".into(), |time| time[18..19].to_owned());
            let paths = one.fields.to_string().replace('\n', " ");
            format!("{}{subresource} {}{version}@{second}: {paths}", one.manager, one.operation.as_str())
        };
        entries.iter().map(line).collect()
    }
}

impl<'s> Told<'s> {
    #[track_caller]
    fn spec(self, expect: Value) -> Self {
        assert_eq!(self.refused, None);
        assert_eq!(self.story.live().get("spec").unwrap_or(&Value::Null), &expect);
        self
    }

    #[track_caller]
    fn owners(self, expect: &[&str]) -> Self {
        assert_eq!(self.refused, None);
        assert_eq!(self.story.owners(), expect);
        self
    }

    #[track_caller]
    fn refused(self, expect: &str) -> Self {
        assert_eq!(self.refused.as_ref().map(ToString::to_string), Some(expect.to_owned()));
        self
    }
}
