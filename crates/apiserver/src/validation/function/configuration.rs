//! ConfigMaps and Secrets: their keys, the size of their values, and what the type of a Secret needs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use konverge_core::{FieldError, FieldPath};

use super::super::format;
use super::super::walk::{Frame, Target, Walk};
use super::{Function, entries, field, has, text};

/// The most that the values of a ConfigMap or a Secret may take together.
const MAX_BYTES: usize = 1024 * 1024;
const ACCOUNT: &str = "kubernetes.io/service-account.name";

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "config-map" => config_map,
        "secret" => secret,
        _ => return None,
    })
}

fn check_keys(walk: &mut Walk<'_>, object: &Value, name: &str) -> usize {
    let Some(check) = format::named("config-key") else { return 0 };
    let mut size = 0;
    for (key, value) in entries(object, name) {
        let path = FieldPath::new(name).key(key);
        for why in check(key) {
            walk.push(FieldError::invalid(path.clone(), key.as_str().into(), why));
        }
        if name == "data" && has(field(object, "binaryData"), key) {
            let why = "duplicate of key present in binaryData";
            walk.push(FieldError::invalid(path, key.as_str().into(), why));
        }
        size += value.as_str().map_or(0, str::len);
    }
    size
}

/// The bytes that base64 of so many characters stands for, as far as its length tells.
fn decoded_size(object: &Value, name: &str) -> usize {
    let texts = entries(object, name).filter_map(|(_, value)| value.as_str());
    texts.map(|text| text.trim_end_matches('=').len() * 3 / 4).sum()
}

fn config_map(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let plain = check_keys(walk, at.value, "data");
    check_keys(walk, at.value, "binaryData");
    if plain + decoded_size(at.value, "binaryData") > MAX_BYTES {
        // A cluster names the whole object like this.
        walk.push(FieldError::too_long(FieldPath::new("[]"), MAX_BYTES));
    }
}

fn secret(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    check_keys(walk, at.value, "data");
    let path = FieldPath::new("data");
    if decoded_size(at.value, "data") > MAX_BYTES {
        walk.push(FieldError::too_long(path.clone(), MAX_BYTES));
    }
    let data = field(at.value, "data");
    let mut need = |key: &str| {
        let missing = data.get(key).is_none();
        if missing {
            walk.push(FieldError::required(path.key(key), ""));
        }
        !missing
    };
    match text(at.value, "type") {
        "kubernetes.io/service-account-token" => {
            let annotations = field(field(at.value, "metadata"), "annotations");
            if text(annotations, ACCOUNT).is_empty() {
                let path = FieldPath::new("metadata").child("annotations").key(ACCOUNT);
                walk.push(FieldError::required(path, ""));
            }
        }
        kind @ ("kubernetes.io/dockercfg" | "kubernetes.io/dockerconfigjson") => {
            let key = if kind.ends_with("json") { ".dockerconfigjson" } else { ".dockercfg" };
            if need(key)
                && let Some(why) = not_json(text(data, key))
            {
                walk.push(FieldError::invalid(path.key(key), "<secret contents redacted>".into(), why));
            }
        }
        "kubernetes.io/basic-auth" if data.get("username").is_none() && data.get("password").is_none() => {
            need("username");
            need("password");
        }
        "kubernetes.io/ssh-auth" if text(data, "ssh-privatekey").is_empty() => {
            walk.push(FieldError::required(path.key("ssh-privatekey"), ""));
        }
        "kubernetes.io/tls" => {
            need("tls.crt");
            need("tls.key");
        }
        _ => {}
    }
}

/// Why a value is no JSON object, in the words of Go's decoder for what is sent most.
fn not_json(text: &str) -> Option<String> {
    let bytes = STANDARD.decode(text).unwrap_or_default();
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Some("unexpected end of JSON input".to_owned());
    }
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => None,
        Ok(other) => {
            let kind = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            Some(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"))
        }
        Err(error) if error.is_eof() => Some("unexpected end of JSON input".to_owned()),
        Err(_) => {
            let first = String::from_utf8_lossy(&bytes).trim_start().chars().next().unwrap_or_default();
            Some(format!("invalid character '{first}' looking for beginning of value"))
        }
    }
}
