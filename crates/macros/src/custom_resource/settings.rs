//! The settings of a custom resource. In: the `#[kube(..)]` attributes of a spec. Out: the settings, or an error that says
//! what to write.

use proc_macro2::Span;
use serde_json::Value;
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Expr, ExprLit, Lit, LitBool, LitStr, Meta, Path, Result, Token, parenthesized};

/// The settings in `#[kube(..)]`.
#[derive(Default)]
pub(super) struct Settings {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: Option<String>,
    pub singular: Option<String>,
    pub root: Option<LitStr>,
    pub namespaced: bool,
    pub default: bool,
    pub doc: Option<String>,
    pub status: Option<Path>,
    pub derives: Vec<Path>,
    pub attributes: Vec<Meta>,
    pub schema: SchemaMode,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub columns: Vec<Column>,
    pub selectable: Vec<String>,
    pub scale: Option<Scale>,
    pub validations: Vec<Expr>,
    pub annotations: Vec<(String, String)>,
    pub labels: Vec<(String, String)>,
    pub not_served: bool,
    pub not_stored: bool,
    pub deprecated: Option<String>,
}

/// Where the schema of the CRD comes from.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum SchemaMode {
    /// From the types.
    #[default]
    Derived,
    /// From the user's own `JsonSchema` for the object.
    Manual,
    /// The CRD has no schema here, because somebody else installs it.
    Disabled,
}

/// A column of `kubectl get`.
#[derive(Default)]
pub(super) struct Column {
    pub name: String,
    pub type_: String,
    pub json_path: String,
    pub description: Option<String>,
    pub format: Option<String>,
    pub priority: Option<i32>,
}

/// The paths of the scale subresource.
#[derive(Default)]
pub(super) struct Scale {
    pub spec_replicas_path: String,
    pub status_replicas_path: String,
    pub label_selector_path: Option<String>,
}

const KEYS: &str = "group, version, kind, plural, singular, root, namespaced, default, doc, status, derive, attr, \
                     schema, shortname, category, printcolumn, selectable, scale, validation, annotation, label, \
                     served, storage, deprecated";

impl Settings {
    /// Reads all `#[kube(..)]` of `attributes`.
    pub(super) fn read(attributes: &[Attribute]) -> Result<Self> {
        let mut settings = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("kube")) {
            attribute.parse_nested_meta(|meta| settings.set(&meta))?;
        }
        let required = [
            (&settings.group, "group", "example.com"),
            (&settings.version, "version", "v1"),
            (&settings.kind, "kind", "WebApp"),
        ];
        for (value, key, example) in required {
            if value.is_empty() {
                let message = format!("the `{key}` of the kind is missing: add `#[kube({key} = \"{example}\")]`");
                return Err(Error::new(Span::call_site(), message));
            }
        }
        Ok(settings)
    }

    fn set(&mut self, meta: &ParseNestedMeta) -> Result<()> {
        let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        match key.as_str() {
            "group" => self.group = text(meta)?,
            "version" => self.version = text(meta)?,
            "kind" => self.kind = text(meta)?,
            "plural" => self.plural = Some(text(meta)?),
            "singular" => self.singular = Some(text(meta)?),
            "root" => self.root = Some(meta.value()?.parse()?),
            "namespaced" => self.namespaced = true,
            "default" => self.default = true,
            "doc" => self.doc = Some(text(meta)?),
            "status" => self.status = Some(path(meta)?),
            "derive" => self.derives.push(path(meta)?),
            "attr" => self.attributes.push(attr(meta)?),
            "schema" => self.schema = schema_mode(meta)?,
            "shortname" => self.short_names.push(text(meta)?),
            "category" => self.categories.push(text(meta)?),
            "printcolumn" => self.columns.push(Column::read(meta)?),
            "selectable" => self.selectable.push(text(meta)?),
            "scale" => self.scale = Some(Scale::read(meta)?),
            "validation" => self.validations.push(meta.value()?.parse()?),
            "annotation" => self.annotations.push(pair(meta)?),
            "label" => self.labels.push(pair(meta)?),
            "served" => self.not_served = !switch(meta)?,
            "storage" => self.not_stored = !switch(meta)?,
            // For an empty text Kubernetes writes a warning of its own.
            "deprecated" => {
                self.deprecated = Some(if meta.input.peek(Token![=]) { text(meta)? } else { String::new() })
            }
            "crates" => return Err(meta.error("`crates` is not needed: konverge's derive knows where its crates are")),
            _ => {
                let path = quote::ToTokens::to_token_stream(&meta.path);
                return Err(meta.error(format!("unknown setting `{path}`; `kube` takes {KEYS}")));
            }
        }
        Ok(())
    }
}

impl Column {
    fn read(meta: &ParseNestedMeta) -> Result<Self> {
        let mut column = Self::default();
        each_entry(meta, |key, value, span| {
            match key {
                "name" => column.name = string(value, span)?,
                "type" | "type_" => column.type_ = string(value, span)?,
                "json_path" | "jsonPath" => column.json_path = string(value, span)?,
                "description" => column.description = Some(string(value, span)?),
                "format" => column.format = Some(string(value, span)?),
                "priority" => column.priority = Some(number(value, span)?),
                _ => return unknown(key, "printcolumn", "name, type_, json_path, description, format, priority", span),
            }
            Ok(())
        })?;
        let required = [(&column.name, "name"), (&column.type_, "type_"), (&column.json_path, "json_path")];
        require(meta, "printcolumn", &required)?;
        Ok(column)
    }
}

impl Scale {
    fn read(meta: &ParseNestedMeta) -> Result<Self> {
        let mut scale = Self::default();
        each_entry(meta, |key, value, span| {
            match key {
                "spec_replicas_path" | "specReplicasPath" => scale.spec_replicas_path = string(value, span)?,
                "status_replicas_path" | "statusReplicasPath" => scale.status_replicas_path = string(value, span)?,
                "label_selector_path" | "labelSelectorPath" => scale.label_selector_path = Some(string(value, span)?),
                _ => {
                    let known = "spec_replicas_path, status_replicas_path, label_selector_path";
                    return unknown(key, "scale", known, span);
                }
            }
            Ok(())
        })?;
        let required =
            [(&scale.spec_replicas_path, "spec_replicas_path"), (&scale.status_replicas_path, "status_replicas_path")];
        require(meta, "scale", &required)?;
        Ok(scale)
    }
}

/// The entries of `key(name = value, ..)`, or of `key = "{ JSON }"`.
fn each_entry(meta: &ParseNestedMeta, mut entry: impl FnMut(&str, &Value, Span) -> Result<()>) -> Result<()> {
    if meta.input.peek(Token![=]) {
        let text: LitStr = meta.value()?.parse()?;
        let object: serde_json::Map<String, Value> =
            serde_json::from_str(&text.value()).map_err(|error| Error::new(text.span(), error))?;
        return object.iter().try_for_each(|(key, value)| entry(key, value, text.span()));
    }
    meta.parse_nested_meta(|meta| {
        let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        let literal: Lit = meta.value()?.parse()?;
        let value = match &literal {
            Lit::Str(text) => Value::String(text.value()),
            Lit::Int(number) => Value::from(number.base10_parse::<i32>()?),
            other => return Err(Error::new(other.span(), "expected a string or a number")),
        };
        entry(&key, &value, literal.span())
    })
}

fn require(meta: &ParseNestedMeta, setting: &str, required: &[(&String, &str)]) -> Result<()> {
    match required.iter().find(|(value, _)| value.is_empty()) {
        Some((_, key)) => Err(Error::new(meta.path.span(), format!("`{setting}` needs `{key}`"))),
        None => Ok(()),
    }
}

fn unknown(key: &str, setting: &str, known: &str, span: Span) -> Result<()> {
    Err(Error::new(span, format!("unknown `{key}`; `{setting}` takes {known}")))
}

fn text(meta: &ParseNestedMeta) -> Result<String> {
    Ok(meta.value()?.parse::<LitStr>()?.value())
}

/// A path, with quotes as kube expects it, or without.
fn path(meta: &ParseNestedMeta) -> Result<Path> {
    let value = meta.value()?;
    if value.peek(LitStr) { value.parse::<LitStr>()?.parse() } else { value.parse() }
}

fn attr(meta: &ParseNestedMeta) -> Result<Meta> {
    let text: LitStr = meta.value()?.parse()?;
    let attribute: Meta = text.parse()?;
    let is_reserved = ["derive", "serde", "schemars"].iter().any(|name| attribute.path().is_ident(name));
    if is_reserved {
        return Err(Error::new(
            text.span(),
            "konverge writes this attribute itself; for a derive write `#[kube(derive = \"PartialEq\")]`",
        ));
    }
    Ok(attribute)
}

fn schema_mode(meta: &ParseNestedMeta) -> Result<SchemaMode> {
    let mode: LitStr = meta.value()?.parse()?;
    match mode.value().as_str() {
        "derived" => Ok(SchemaMode::Derived),
        "manual" => Ok(SchemaMode::Manual),
        "disabled" => Ok(SchemaMode::Disabled),
        _ => Err(Error::new(mode.span(), "`schema` is \"derived\", \"manual\" or \"disabled\"")),
    }
}

fn pair(meta: &ParseNestedMeta) -> Result<(String, String)> {
    let content;
    parenthesized!(content in meta.input);
    let words: Vec<_> = Punctuated::<LitStr, Token![,]>::parse_terminated(&content)?.into_iter().collect();
    match words.as_slice() {
        [key, value] => Ok((key.value(), value.value())),
        _ => Err(meta.error("expected a key and a value: `(\"key\", \"value\")`")),
    }
}

fn switch(meta: &ParseNestedMeta) -> Result<bool> {
    match meta.value()?.parse()? {
        Expr::Lit(ExprLit { lit: Lit::Bool(LitBool { value, .. }), .. }) => Ok(value),
        other => Err(Error::new_spanned(other, "expected `true` or `false`")),
    }
}

fn string(value: &Value, span: Span) -> Result<String> {
    value.as_str().map(str::to_owned).ok_or_else(|| Error::new(span, "expected a string"))
}

fn number(value: &Value, span: Span) -> Result<i32> {
    let number = match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64().and_then(|number| i32::try_from(number).ok()),
    };
    number.ok_or_else(|| Error::new(span, "expected a number"))
}
