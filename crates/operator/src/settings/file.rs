//! The settings file. In: YAML. Out: for each key its row in the table of settings and its value; or an error about the first
//! key that is not a setting. The keys are those of the table; a dot in a key is a level of nesting.

use std::path::Path;

use serde_json::Value;

use super::error::{SettingsError, nearest};
use super::table::TABLE;

/// A key of the file: its row in the table, the key as it was written, and its value in the form of a flag.
#[derive(Debug, PartialEq)]
pub(super) struct Entry {
    pub row: usize,
    pub key: String,
    pub value: String,
}

/// The largest file that is read. A settings file has about a hundred lines, so a larger file is not one.
const MAX_BYTES: u64 = 1 << 20;

pub(super) fn open(file: &Path) -> Result<Vec<Entry>, SettingsError> {
    let unreadable = |source| SettingsError::Unreadable { file: file.into(), source };
    let size = std::fs::metadata(file).map_err(unreadable)?.len();
    if size > MAX_BYTES {
        let why = format!("the file has {size} bytes, and settings have at most {MAX_BYTES}");
        return Err(SettingsError::Malformed { file: file.into(), why });
    }
    read(file, &std::fs::read_to_string(file).map_err(unreadable)?)
}

/// `file` is used in messages only.
pub(super) fn read(file: &Path, text: &str) -> Result<Vec<Entry>, SettingsError> {
    let malformed = |why: String| SettingsError::Malformed { file: file.into(), why };
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Vec::new());
    }
    let tree: Value = serde_saphyr::from_str(text).map_err(|error| malformed(error.to_string()))?;
    let mut entries = Vec::new();
    match tree {
        Value::Null => {}
        Value::Object(_) => read_keys(file, "", &tree, &mut entries)?,
        _ => return Err(malformed("settings are keys with values, such as `metrics: {port: 8080}`".into())),
    }
    for (i, entry) in entries.iter().enumerate() {
        if let Some(other) = entries[..i].iter().find(|other| other.row == entry.row) {
            return Err(malformed(format!("{} and {} are the same setting", other.key, entry.key)));
        }
    }
    Ok(entries)
}

fn read_keys(file: &Path, key: &str, value: &Value, entries: &mut Vec<Entry>) -> Result<(), SettingsError> {
    let row = TABLE.iter().position(|row| row.keys().any(|known| known == key));
    let is_section = key.is_empty() || TABLE.iter().any(|row| is_inside(row.key, key));
    match (row, value) {
        // A key without a value keeps the default.
        (Some(_), Value::Null) => Ok(()),
        (Some(row), value) => {
            let value = scalar(value).ok_or_else(|| SettingsError::Malformed {
                file: file.into(),
                why: format!("{key} takes {}, not a table", TABLE[row].accepts),
            })?;
            entries.push(Entry { row, key: key.into(), value });
            Ok(())
        }
        (None, Value::Object(fields)) if is_section => fields.iter().try_for_each(|(name, value)| {
            let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            read_keys(file, &key, value, entries)
        }),
        (None, Value::Null) if is_section => Ok(()),
        (None, _) if is_section => Err(SettingsError::Malformed {
            file: file.into(),
            why: format!("{key} takes a table with {}", children(key).join(", ")),
        }),
        (None, _) => Err(SettingsError::UnknownKey {
            file: file.into(),
            key: key.into(),
            meant: nearest(key, TABLE.iter().flat_map(|row| row.keys().chain(sections(row.key)))),
        }),
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(items) => items.iter().map(scalar).collect::<Option<Vec<String>>>().map(|items| items.join(",")),
        Value::Null | Value::Object(_) => None,
    }
}

fn is_inside(key: &str, section: &str) -> bool {
    key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
}

/// The section of a key: `metrics` of `metrics.path`.
fn sections(key: &'static str) -> impl Iterator<Item = &'static str> {
    key.split_once('.').map(|(section, _)| section).into_iter()
}

fn children(section: &str) -> Vec<&'static str> {
    TABLE.iter().filter(|row| is_inside(row.key, section)).map(|row| &row.key[section.len() + 1..]).collect()
}
