//! Removes secrets. In: objects and texts, and the secrets that are known. Out: the same without them, and how many were removed. Pure. It works by three rules, so that
//! what one of them misses another finds: the shape of objects (Secrets, variables of containers, fields by their names), the form of texts (tokens, keys, `password=…`),
//! and the very values of the Secrets and the kubeconfig, wherever they are. It rather removes too much.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use regex::{Captures, Regex};
use serde_json::{Map, Value};

use super::known::Known;
use super::sensitive::{is_reference, is_sensitive};
use crate::description::text;

/// What stands where something was removed.
pub(crate) const REMOVED: &str = "<removed>";

/// What stands for a known secret while patterns are searched for. It is a word, so that it belongs to whatever stands around it.
const KNOWN: &str = "qremovedbyknownvalueq";

/// Annotations that have the whole object again.
const COPIES: [&str; 2] = ["kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/last-applied"];

/// Keys of Secrets whose values are public.
const PUBLIC_KEYS: [&str; 3] = ["namespace", "ca.crt", "tls.crt"];

/// What stands behind a sensitive name and is no secret: flags, and the beginning of what follows.
const PLAIN: [&str; 11] = ["true", "false", "null", "{", "[", "\"\"", "''", "|", "|-", ">", ">-"];

/// Removes secrets.
#[derive(Debug)]
pub(crate) struct Redactor {
    known: Known,
    patterns: Vec<(&'static Pattern, Regex)>,
    private_key: Regex,
    encoded: Regex,
    removed: usize,
}

/// How a secret looks in a line of text.
#[derive(Debug)]
struct Pattern {
    /// One of these is in every line that has it, in lower case. Most lines have none, and need no search.
    needles: &'static [&'static str],
    pattern: &'static str,
    /// What stays of it.
    kept: &'static str,
}

const NAMES: &[&str] = &["pass", "pwd", "token", "secret", "credential", "key"];

static PATTERNS: [Pattern; 8] = [
    Pattern {
        needles: &["authorization"],
        pattern: r#"(?i)((?:proxy-)?authorization\\*["']?\s*[:=]\s*\\*["'\[]*)(?:[a-z]+\s+)?[^\s"',}\]\\]+"#,
        kept: "${1}<removed>",
    },
    Pattern {
        needles: &["bearer", "basic", "digest"],
        pattern: r"(?i)\b(bearer|basic|digest)\s+[a-z0-9._~+/=-]{6,}",
        kept: "${1} <removed>",
    },
    Pattern {
        needles: &["cookie"],
        pattern: r#"(?i)((?:set-)?cookie\\*["']?\s*[:=]\s*\\*["']?)[^\r\n"']+"#,
        kept: "${1}<removed>",
    },
    // JSON web tokens, and tokens of services that are known by their beginning.
    Pattern { needles: &["eyj"], pattern: r"\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*\.?[A-Za-z0-9_-]*", kept: REMOVED },
    Pattern {
        needles: &["akia", "asia", "gh", "glpat-", "xox", "sk-"],
        pattern: r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}|\bglpat-[A-Za-z0-9_-]{16,}|\bxox[a-z]-[A-Za-z0-9-]{8,}|\bsk-[A-Za-z0-9_-]{16,}",
        kept: REMOVED,
    },
    // Users and passwords in URLs. A password may have a slash that nobody has encoded.
    Pattern { needles: &["://"], pattern: r#"(://)[^\s/:@"'<>]*:[^\s@"'<>]+@"#, kept: "${1}<removed>@" },
    // `password=…`, `"token": "…"`, also in JSON within JSON.
    Pattern {
        needles: NAMES,
        pattern: r#"(?i)((?:pass(?:word|wd|phrase)|pwd|token|secret|credential|(?:api|access|private|signing|encryption|client|ssh|account|secret)[-_.]?key)[\w.-]*\\*["']?\s*(?:=>|[:=])\s*)(\\+"[^"\\]*|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;&}"'\]]+)"#,
        kept: "${1}<removed>",
    },
    // `--api-key …`
    Pattern {
        needles: NAMES,
        pattern: r#"(?i)(--?[\w.-]*(?:pass(?:word|wd|phrase)|token|secret|credential|api-?key|access-?key|private-?key)[\w.-]*\s+)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'-][^\s"']*)"#,
        kept: "${1}<removed>",
    },
];

/// A key, also one whose end was cut off.
const PRIVATE_KEY: &str = r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)";

/// What PEM begins with, in base64.
const ENCODED_PEM: &str = "LS0tLS1CRUdJTi";

impl Redactor {
    /// Removes what looks secret, and these values wherever they are.
    pub(crate) fn new(known: impl IntoIterator<Item = String>) -> Self {
        let compiled = |pattern: &str| Regex::new(pattern).expect("the pattern is a constant that a test compiles");
        Self {
            known: Known::new(known),
            patterns: PATTERNS.iter().map(|pattern| (pattern, compiled(pattern.pattern))).collect(),
            private_key: compiled(PRIVATE_KEY),
            encoded: compiled(&format!("{ENCODED_PEM}[A-Za-z0-9+/=_-]{{8,}}")),
            removed: 0,
        }
    }

    /// How many secrets were removed since this was asked last.
    pub(crate) fn take_count(&mut self) -> usize {
        std::mem::take(&mut self.removed)
    }

    /// Which known secrets are not searched for; nothing if all are.
    pub(crate) fn left_out(&self) -> Option<&str> {
        self.known.left_out()
    }

    /// A text without secrets.
    pub(crate) fn text(&mut self, text: &str) -> String {
        // A pattern may see the end of a value where there is none, so what is known is found before.
        let (text, _) = self.known.replace(text, KNOWN);
        let mut text = self.blocks(&text);
        if text.contains("PRIVATE KEY") {
            self.removed += self.private_key.find_iter(&text).count();
            text = self.private_key.replace_all(&text, REMOVED).into_owned();
        }
        let text: String = text.split_inclusive('\n').map(|line| self.line(line)).collect();
        self.removed += text.matches(KNOWN).count();
        self.exact(&text.replace(KNOWN, REMOVED))
    }

    /// A line without what looks secret.
    fn line(&mut self, line: &str) -> String {
        let lower = line.to_lowercase();
        let mut line = line.to_owned();
        for (Pattern { needles, kept, .. }, pattern) in &self.patterns {
            if !needles.iter().any(|needle| lower.contains(needle)) {
                continue;
            }
            let mut removed = 0;
            let replaced = pattern.replace_all(&line, |found: &Captures<'_>| {
                let before = found.get(1).map_or("", |before| before.as_str());
                // The value is the last group; what was removed already, and flags, are no secrets.
                let value = found.get(2).map_or("", |value| value.as_str());
                if PLAIN.contains(&value) || value.trim_matches(['\\', '"', '\'']) == REMOVED {
                    return found[0].to_owned();
                }
                removed += 1;
                kept.replace("${1}", before)
            });
            line = replaced.into_owned();
            self.removed += removed;
        }
        if !line.contains(ENCODED_PEM) {
            return line;
        }
        let mut removed = 0;
        let without_encoded = self.encoded.replace_all(&line, |found: &Captures<'_>| {
            let bytes = STANDARD.decode(&found[0]).or_else(|_| URL_SAFE_NO_PAD.decode(&found[0]));
            // What is cut off cannot be decoded, and may be a key.
            let is_public = bytes.is_ok_and(|bytes| !String::from_utf8_lossy(&bytes).contains("PRIVATE KEY"));
            removed += usize::from(!is_public);
            if is_public { found[0].to_owned() } else { REMOVED.to_owned() }
        });
        self.removed += removed;
        without_encoded.into_owned()
    }

    /// A text without the known secrets.
    pub(crate) fn exact(&mut self, text: &str) -> String {
        let (text, removed) = self.known.replace(text, REMOVED);
        self.removed += removed;
        text
    }

    /// YAML blocks below a sensitive name: `password: |` and the lines that belong to it.
    fn blocks(&mut self, text: &str) -> String {
        if !text.contains(": |") && !text.contains(": >") {
            return text.to_owned();
        }
        let (mut kept, mut inside) = (String::with_capacity(text.len()), None);
        for line in text.split_inclusive('\n') {
            let indent = line.len() - line.trim_start().len();
            if let Some(outer) = inside
                && (indent > outer || line.trim().is_empty())
            {
                continue;
            }
            inside = None;
            let words = line.trim();
            let name = words.split_once(':').filter(|(_, rest)| {
                let rest = rest.trim();
                rest.starts_with(['|', '>']) && rest.len() <= 3
            });
            kept.push_str(line);
            if name.is_some_and(|(name, _)| is_sensitive(name.trim_matches(['"', '\'', '-', ' ']))) {
                kept.push_str(&format!("{}  {REMOVED}\n", " ".repeat(indent)));
                self.removed += 1;
                inside = Some(indent);
            }
        }
        kept
    }

    /// An object without secrets.
    pub(crate) fn object(&mut self, object: &mut Value) {
        let is_secret = object["kind"] == "Secret";
        let is_schema = object["kind"] == "CustomResourceDefinition";
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            self.metadata(metadata);
        }
        for field in ["data", "stringData", "binaryData"] {
            let fields = object.get_mut(field).and_then(Value::as_object_mut);
            for value in fields.into_iter().flat_map(Map::values_mut).filter(|_| is_secret || field == "binaryData") {
                self.remove(value);
            }
        }
        self.walk(object, Walk { name: "", inherited: false, is_schema });
    }

    fn metadata(&mut self, metadata: &mut Map<String, Value>) {
        for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(fields) = entry.as_object_mut().and_then(|entry| entry.get_mut("fieldsV1")) {
                // Names of fields. They are left out because a key of a map may be secret, and are counted as no secret: every object has them.
                *fields = REMOVED.into();
            }
        }
        let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
        for (_, value) in annotations.into_iter().flatten().filter(|(name, _)| COPIES.contains(&name.as_str())) {
            self.remove(value);
        }
    }

    fn walk(&mut self, value: &mut Value, walk: Walk<'_>) {
        match value {
            Value::Object(fields) => self.fields(fields, walk),
            Value::Array(items) => self.items(items, walk),
            Value::String(found) if walk.is_removed() && found != REMOVED => self.remove(value),
            Value::String(found) => *found = self.text(found),
            Value::Number(_) if walk.is_removed() => self.remove(value),
            _ => {}
        }
    }

    fn fields(&mut self, fields: &mut Map<String, Value>, walk: Walk<'_>) {
        // `{name: PASSWORD, value: …}`, as variables and headers have it.
        let named = ["name", "key"].iter().filter_map(|name| fields.get(*name)).any(|name| is_sensitive(&text(name)));
        // `key` is a name beside these: tolerations, selectors, references to a key of a Secret.
        let has_names = ["operator", "effect", "values", "name", "path", "optional", "topologyKey"]
            .iter()
            .any(|name| fields.contains_key(*name));
        // A name may be a secret: that of a label, or the key of a map.
        let names: Vec<String> = fields.keys().cloned().collect();
        for name in names {
            let shown = self.exact(&name);
            if let Some(value) = fields.remove(&name) {
                fields.insert(shown, value);
            }
        }
        for (name, value) in fields.iter_mut() {
            let is_secret_key = name == "key" && !has_names && !walk.is_schema;
            let is_value = name == "value" && named;
            let is_name = is_reference(name) || name == "key" && has_names;
            let inherited = (walk.inherited || is_sensitive(name) || is_secret_key || is_value) && !is_name;
            self.walk(value, Walk { name, inherited, is_schema: walk.is_schema });
        }
    }

    fn items(&mut self, items: &mut [Value], walk: Walk<'_>) {
        let mut is_next = false;
        for item in items {
            // `["--password", "…"]`
            let flag =
                item.as_str().filter(|word| word.starts_with('-') && !word.contains(['=', ' '])).map(is_sensitive);
            if is_next && flag.is_none() && item.is_string() {
                self.remove(item);
            } else {
                self.walk(item, walk);
            }
            is_next = flag.unwrap_or(false);
        }
    }

    fn remove(&mut self, value: &mut Value) {
        if value.as_str() != Some(REMOVED) {
            self.removed += 1;
            *value = REMOVED.into();
        }
    }
}

/// Where a walk through an object is.
#[derive(Clone, Copy)]
struct Walk<'a> {
    name: &'a str,
    /// Whether a field above has a sensitive name.
    inherited: bool,
    /// Schemas have sensitive names, and values only where they give defaults and examples.
    is_schema: bool,
}

impl Walk<'_> {
    fn is_removed(self) -> bool {
        self.inherited && (!self.is_schema || ["default", "example", "enum"].contains(&self.name))
    }
}

/// The values of a Secret, to be searched for elsewhere. Of those that are no texts it is their base64.
pub(crate) fn values(secret: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in secret["data"].as_object().into_iter().flatten() {
        let bytes = value.as_str().and_then(|value| STANDARD.decode(value).ok()).unwrap_or_default();
        if PUBLIC_KEYS.contains(&key.as_str()) {
            continue;
        }
        match String::from_utf8(bytes) {
            Ok(text) => found.push(text),
            Err(error) => {
                found.push(STANDARD.encode(error.as_bytes()));
                found.push(URL_SAFE_NO_PAD.encode(error.as_bytes()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
