//! In: the text table of protobuf messages that `cargo xtask codegen` derives. Out: messages with their fields, each parsed at
//! its first use. Never reads a file: the table is part of the program, and names point into it.
//!
//! The head of `data/kubernetes.protobuf` states the format.

use std::cmp::Ordering;
use std::sync::OnceLock;

use hashbrown::HashMap;
use serde_json::Value;

use crate::builtin_types::lines;

/// All messages.
#[derive(Debug)]
pub(crate) struct Table {
    names: Names,
    messages: Vec<Declared>,
    /// apiVersion and kind to message; `*` for kinds of every version.
    kinds: HashMap<(&'static str, &'static str), MessageId>,
}

/// The place of a message in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageId(u16);

/// A message as the table has it. Its fields are parsed when somebody asks for it: most servers see a few kinds.
#[derive(Debug)]
struct Declared {
    package: &'static str,
    name: &'static str,
    transparent: bool,
    /// With the numbers of their lines.
    fields: Vec<(usize, &'static str)>,
    message: OnceLock<Message>,
}

/// A message.
#[derive(Debug)]
pub(crate) struct Message {
    /// Without its package, as Go's errors have it.
    pub(crate) name: &'static str,
    /// Whether its JSON is that of the last field which is set.
    pub(crate) transparent: bool,
    /// In the order of numbers.
    pub(crate) fields: Box<[Field]>,
    /// The same fields by name: their indexes.
    by_name: Box<[u16]>,
}

impl Message {
    fn new(name: &'static str, transparent: bool, fields: Vec<Field>) -> Self {
        let mut by_name: Box<[u16]> = (0..fields.len() as u16).collect();
        by_name.sort_by_key(|at| fields[usize::from(*at)].name);
        Self { name, transparent, fields: fields.into(), by_name }
    }

    /// The index of the field of this name. Whoever asks for names in their order passes the same hint each time, and then
    /// finding all of them takes a single walk over the fields.
    pub(crate) fn find(&self, name: &[u8], hint: &mut usize) -> Option<u16> {
        let of = |at: u16| self.fields[usize::from(at)].name.as_bytes();
        if *hint > 0 && of(self.by_name[*hint - 1]) >= name {
            *hint = self.by_name.partition_point(|at| of(*at) < name);
        }
        while let Some(at) = self.by_name.get(*hint) {
            match of(*at).cmp(name) {
                Ordering::Less => *hint += 1,
                Ordering::Equal => {
                    *hint += 1;
                    return Some(*at);
                }
                Ordering::Greater => return None,
            }
        }
        None
    }
}

/// A field of a message.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    /// The field's name in JSON.
    pub(crate) name: &'static str,
    pub(crate) omit: Omit,
    /// Whether Go's field is a pointer, which tells a value that was sent from one that was not.
    pub(crate) pointer: bool,
    pub(crate) shape: Shape,
}

/// When a field is left out of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Omit {
    /// Never.
    Never,
    /// `omitempty`: when it is an empty string, list or map, 0, false, or a pointer to nothing.
    Empty,
    /// `omitzero`: when it is a time that is not set.
    Zero,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    One(Item),
    List(Item),
    /// With strings for keys.
    Map(Item),
    /// A message whose fields are written as fields of the message around it.
    Inline(MessageId),
}

/// A single value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    Json,
    Message(MessageId),
}

/// The messages of every built-in kind of Kubernetes.
pub(crate) fn kubernetes() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let table = Table::parse(include_str!("../../data/kubernetes.protobuf"));
        table.expect("the committed table is what the generator wrote, and a test reads it")
    })
}

impl Table {
    /// The message of a kind.
    pub(crate) fn kind(&self, api_version: &str, kind: &str) -> Option<MessageId> {
        self.kinds.get(&(api_version, kind)).or_else(|| self.kinds.get(&("*", kind))).copied()
    }

    pub(crate) fn message(&self, id: MessageId) -> &Message {
        let declared = &self.messages[usize::from(id.0)];
        declared.message.get_or_init(|| self.read(declared).expect("a test reads all of the committed table"))
    }

    fn read(&self, declared: &Declared) -> Result<Message, String> {
        let Declared { package, name, transparent, fields, .. } = declared;
        let field = |(line, text): &(usize, &'static str)| {
            self.names.field(package, text).map_err(|problem| format!("line {line}: {problem}"))
        };
        let fields = fields.iter().map(field).collect::<Result<_, _>>()?;
        Ok(Message::new(name, *transparent, fields))
    }

    pub(crate) fn parse(text: &'static str) -> Result<Self, String> {
        let mut table = Self { names: Names::default(), kinds: HashMap::new(), messages: Vec::new() };
        for (line, text) in lines(text) {
            if let Some(field) = text.strip_prefix("  ") {
                let open = table.messages.last_mut().ok_or_else(|| format!("line {line}: a field of no message"))?;
                open.fields.push((line, field));
            } else if let Some(alias) = text.strip_prefix('@') {
                let alias = alias.split_once(' ').ok_or_else(|| format!("line {line}: an alias without a package"))?;
                table.names.aliases.insert(alias.0, alias.1);
            } else {
                table.declare(text).map_err(|problem| format!("line {line}: {problem}"))?;
            }
        }
        Ok(table)
    }

    fn declare(&mut self, text: &'static str) -> Result<(), String> {
        let (full, word) = text.split_once(' ').unwrap_or((text, ""));
        let (package, name) = full.rsplit_once('.').ok_or("a message without a package")?;
        let id = MessageId(u16::try_from(self.messages.len()).map_err(|_| "too many messages")?);
        if self.names.messages.insert((package, name), id).is_some() {
            return Err(format!("{full} is there twice"));
        }
        let transparent = word == TRANSPARENT;
        if !transparent && !word.is_empty() {
            self.kinds.insert((word, name), id);
        }
        self.messages.push(Declared { package, name, transparent, fields: Vec::new(), message: OnceLock::new() });
        Ok(())
    }

    /// What the decoder relies on: fields are found by binary search, and a message never holds itself by value, so
    /// that its zero value has an end.
    #[cfg(test)]
    fn check(&self) -> Result<(), String> {
        self.messages.iter().try_for_each(|declared| self.read(declared).map(drop))?;
        for id in (0..self.messages.len() as u16).map(MessageId) {
            let message = self.message(id);
            if !message.fields.is_sorted_by(|a, b| a.number < b.number) {
                return Err(format!("{}: fields are not in the order of numbers", message.name));
            }
            if self.depth(id, self.messages.len()).is_none() {
                return Err(format!("{} holds itself", message.name));
            }
        }
        Ok(())
    }

    /// How deep the zero value of a message is nested, if that is less than so much.
    #[cfg(test)]
    fn depth(&self, message: MessageId, most: usize) -> Option<usize> {
        let most = most.checked_sub(1)?;
        let mut deepest = 0;
        for field in &self.message(message).fields {
            if let Shape::One(Item::Message(id)) | Shape::Inline(id) = field.shape
                && !field.pointer
            {
                deepest = deepest.max(1 + self.depth(id, most)?);
            }
        }
        Some(deepest)
    }
}

const TRANSPARENT: &str = "transparent";

/// The names that fields use.
#[derive(Debug, Default)]
struct Names {
    /// Alias to package.
    aliases: HashMap<&'static str, &'static str>,
    /// Package and name to message.
    messages: HashMap<(&'static str, &'static str), MessageId>,
}

impl Names {
    fn field(&self, package: &'static str, text: &'static str) -> Result<Field, String> {
        let mut words = text.split(' ');
        let (Some(number), Some(name), Some(shape), None) = (words.next(), words.next(), words.next(), words.next())
        else {
            return Err("a field is a number, a name and a shape".into());
        };
        let number = number.parse().map_err(|_| format!("{number} is no number"))?;
        let (name, omit) = match (name.strip_suffix('?'), name.strip_suffix('~')) {
            (Some(name), _) => (name, Omit::Empty),
            (_, Some(name)) => (name, Omit::Zero),
            (None, None) => (name, Omit::Never),
        };
        let (pointer, item) = shape.strip_prefix('*').map_or((false, shape), |item| (true, item));
        let shape = match (name, item.split_at_checked(1)) {
            (".", _) => match self.item(package, item)? {
                Item::Message(id) if !pointer => Shape::Inline(id),
                _ => return Err(format!("{shape} has no fields to write")),
            },
            (_, Some(("[", item))) => Shape::List(self.item(package, item)?),
            (_, Some(("{", item))) => Shape::Map(self.item(package, item)?),
            _ => Shape::One(self.item(package, item)?),
        };
        if pointer && !matches!(shape, Shape::One(_)) {
            return Err(format!("{name} is a pointer to a list"));
        }
        Ok(Field { number, name, omit, pointer, shape })
    }

    fn item(&self, package: &'static str, text: &'static str) -> Result<Item, String> {
        Ok(match text {
            "string" => Item::String,
            "bytes" => Item::Bytes,
            "bool" => Item::Bool,
            "int32" => Item::Int32,
            "int64" => Item::Int64,
            "double" => Item::Double,
            "time" => Item::Time,
            "micro-time" => Item::MicroTime,
            "quantity" => Item::Quantity,
            "int-or-string" => Item::IntOrString,
            "json" => Item::Json,
            _ => {
                let key = match text.split_once('.') {
                    Some((alias, name)) => (*self.aliases.get(alias).ok_or_else(|| format!("no alias {alias}"))?, name),
                    None => (package, text),
                };
                Item::Message(*self.messages.get(&key).ok_or_else(|| format!("no message {text}"))?)
            }
        })
    }
}

/// What `omitempty` leaves out. A struct is never empty, whatever it holds.
pub(crate) fn is_empty(item: Item, value: &Value) -> bool {
    match item {
        Item::String | Item::Bytes => value == "",
        Item::Bool => *value == false,
        Item::Int32 | Item::Int64 | Item::Double => value.as_f64() == Some(0.0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_table_is_readable() {
        let table = kubernetes();
        assert_eq!(table.check(), Ok(()));
        let pod = table.message(table.kind("v1", "Pod").unwrap());
        let fields: Vec<_> = pod.fields.iter().map(|field| (field.number, field.name)).collect();
        assert_eq!((pod.name, fields), ("Pod", vec![(1, "metadata"), (2, "spec"), (3, "status")]));
        assert_eq!(table.kind("apps/v1", "DeleteOptions"), table.kind("v1", "DeleteOptions"));
        assert!(table.kind("apps/v1", "Pod").is_none() && table.kind("v1", "PodSpec").is_none());
    }

    #[test]
    fn refuses_tables_that_make_no_sense() {
        for (text, expect) in [
            ("  1 a string", "line 1: a field of no message"),
            ("T", "line 1: a message without a package"),
            ("@a", "line 1: an alias without a package"),
            ("p.T\np.T", "line 2: p.T is there twice"),
            ("p.T\n  1 a", "line 2: a field is a number, a name and a shape"),
            ("p.T\n  x a string", "line 2: x is no number"),
            ("p.T\n  1 a U", "line 2: no message U"),
            ("p.T\n  1 a q/v1.U", "line 2: no alias q/v1"),
            ("p.T\n  1 . string", "line 2: string has no fields to write"),
            ("p.T\n  1 a *[string", "line 2: a is a pointer to a list"),
            ("p.T\n  2 a string\n  1 b string", "T: fields are not in the order of numbers"),
            ("p.T\n  1 u U\n\np.U\n  1 t T", "T holds itself"),
        ] {
            assert_eq!(Table::parse(text).and_then(|table| table.check()).unwrap_err(), expect, "{text}");
        }
        let table = Table::parse("p.T\n  1 u? *U\n  2 us [U\n\np.U\n  1 t *T").unwrap();
        assert_eq!(table.check(), Ok(()));
    }
}
