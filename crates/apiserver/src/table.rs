//! `meta.k8s.io` Tables: how `kubectl get` sees objects. In: a resource, once, and its objects. Out: the bytes of
//! a Table, for a get, a list or one event of a watch. Never reads the clock: ages are relative to `now`.

use jiff::Timestamp;
use konverge_core::Status;
use serde_json::{Value, json};

use crate::json_path::JsonPath;
use crate::partial::{self, ListMeta, MetaVersion};
use crate::resource::{Column, Resource};
use builtin_columns::{Builtin, BuiltinColumn};

mod age;
mod builtin_columns;
mod cell;
mod cluster;
mod network;
mod pod;
mod workload;

/// What a row carries beside its cells: the query parameter `includeObject`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    /// Nothing.
    None,
    /// The object's metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// Whether a Table names its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Headings {
    /// In gets, lists and the first event of a watch.
    Shown,
    /// In later events of a watch.
    Left,
}

/// How the objects of one resource are shown. Made once for a resource, used for every object.
#[derive(Debug)]
pub(crate) struct TablePrinter {
    headings: Vec<u8>,
    cells: Cells,
}

enum Cells {
    Builtin(&'static Builtin),
    /// The columns of a CRD, behind the name.
    Custom(Vec<(Box<str>, JsonPath)>),
}

impl IncludeObject {
    /// Reads the query parameter; absent and empty are the default.
    pub(crate) fn parse(parameter: Option<&str>) -> Result<Self, Status> {
        match parameter.unwrap_or_default() {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: \
                 must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

impl TablePrinter {
    /// The view of a resource.
    pub(crate) fn of(resource: &Resource) -> Self {
        if resource.custom { Self::custom(&resource.columns) } else { Self::builtin(&resource.group, &resource.kind) }
    }

    /// The view of a built-in kind, also of one that only a subresource speaks: `autoscaling`, `Scale`.
    pub(crate) fn builtin(group: &str, kind: &str) -> Self {
        let builtin = builtin_columns::find(group, kind);
        let heading = |column: &BuiltinColumn| heading(column.name, column.ty, column.format, "", column.priority);
        Self { headings: bytes(&builtin.columns.iter().map(heading).collect()), cells: Cells::Builtin(builtin) }
    }

    /// The view of a CRD with these printer columns. A column whose path cannot be read ends the list, as it
    /// does upstream.
    fn custom(columns: &[Column]) -> Self {
        let age = [age_column()];
        let columns = if columns.is_empty() { &age } else { columns };
        let mut headings = vec![heading("Name", "string", "name", "", 0)];
        let mut cells = Vec::new();
        for column in columns {
            let Ok(path) = JsonPath::compile(&column.json_path) else { break };
            let described = match &*column.description {
                "" => format!("Custom resource definition column (in JSONPath format): {}", column.json_path),
                description => description.to_owned(),
            };
            headings.push(heading(&column.name, &column.ty, &column.format, &described, column.priority));
            cells.push((column.ty.clone(), path));
        }
        Self { headings: bytes(&headings.into()), cells: Cells::Custom(cells) }
    }

    /// The Table of these objects. For a single object `meta` holds its resource version.
    pub(crate) fn render<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Value>,
        meta: &ListMeta<'_>,
        options: &TableOptions,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        self.open(&mut out, meta, options);
        for (at, object) in objects.into_iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            self.row(&mut out, object, options);
        }
        out.extend_from_slice(b"]}");
        out
    }

    /// What comes before the rows of a Table.
    pub(crate) fn open(&self, out: &mut Vec<u8>, meta: &ListMeta<'_>, options: &TableOptions) {
        partial::open(out, "Table", options.version);
        out.extend_from_slice(b",\"metadata\":");
        meta.write(out);
        out.extend_from_slice(b",\"columnDefinitions\":");
        match options.headings {
            Headings::Shown => out.extend_from_slice(&self.headings),
            Headings::Left => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"rows\":[");
    }

    /// The row of one object.
    pub(crate) fn row(&self, out: &mut Vec<u8>, object: &Value, options: &TableOptions) {
        out.extend_from_slice(b"{\"cells\":");
        partial::write(out, &self.cells(object, options.now));
        if let Some(conditions) = self.conditions(object) {
            out.extend_from_slice(b",\"conditions\":");
            partial::write(out, &conditions);
        }
        out.extend_from_slice(b",\"object\":");
        match options.include {
            IncludeObject::None => out.extend_from_slice(b"null"),
            IncludeObject::Metadata => partial::write_metadata(out, object, options.version),
            IncludeObject::Object => partial::write(out, object),
        }
        out.push(b'}');
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Value {
        match &self.cells {
            Cells::Builtin(builtin) => builtin.columns.iter().map(|column| column.cell.of(object, now)).collect(),
            Cells::Custom(columns) => {
                let name = Value::from(cell::name(object));
                let others = columns.iter().map(|(ty, path)| custom_cell(ty, path.first(object), now));
                std::iter::once(name).chain(others).collect()
            }
        }
    }

    fn conditions(&self, object: &Value) -> Option<Value> {
        match &self.cells {
            Cells::Builtin(builtin) => builtin.conditions.and_then(|conditions| conditions(object)),
            Cells::Custom(_) => None,
        }
    }
}

/// How a client wants its Table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableOptions {
    /// Which `meta.k8s.io` version it speaks.
    pub version: MetaVersion,
    /// What rows carry.
    pub include: IncludeObject,
    /// Whether columns are named.
    pub headings: Headings,
    /// What ages are relative to.
    pub now: Timestamp,
}

impl std::fmt::Debug for Cells {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Builtin(builtin) => write!(f, "Builtin({} columns)", builtin.columns.len()),
            Self::Custom(columns) => f.debug_tuple("Custom").field(columns).finish(),
        }
    }
}

/// What a CRD without printer columns shows.
fn age_column() -> Column {
    Column {
        name: "Age".into(),
        ty: "date".into(),
        format: "".into(),
        description: "When the object was created.".into(),
        priority: 0,
        json_path: ".metadata.creationTimestamp".into(),
    }
}

fn heading(name: &str, ty: &str, format: &str, description: &str, priority: i32) -> Value {
    json!({"name": name, "type": ty, "format": format, "description": description, "priority": priority})
}

fn bytes(headings: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    partial::write(&mut out, headings);
    out
}

/// A value that is not of the column's type shows as nothing; a string column prints whatever there is.
fn custom_cell(ty: &str, value: Option<&Value>, now: Timestamp) -> Value {
    let Some(value) = value else { return Value::Null };
    match (ty, value) {
        ("string", Value::Null) => "<no value>".into(),
        ("string", value) => cell::print(value).into(),
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => integer.into(),
            // Truncated like the real server does.
            (None, Some(float)) => (float as i64).into(),
            (None, None) => Value::Null,
        },
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(time)) => age::since_text(Some(time), now).into(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests;
