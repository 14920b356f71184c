//! Named formats: `format.dns1123Label().validate(name)`.

use konverge_core::{FieldPath, NameRule, check_labels, check_name};
use konverge_schema::Format;

use crate::value::{Answer, Value};

use super::{Native, Url, no_overload};

/// A format that strings can have.
#[derive(Debug)]
pub(crate) struct NamedFormat {
    pub name: &'static str,
    /// How expensive checking is said to be: about the length of a regular expression.
    pub regex_size: u64,
    check: fn(&str) -> Vec<String>,
}

macro_rules! formats {
    ($($key:literal $name:literal $size:literal $check:expr;)*) => {
        /// The format of this name, as a function without arguments.
        pub(super) fn constant(key: &str) -> Option<Native> {
            let native: Native = match key {
                $($key => |_| Ok(Value::Format(find($key).expect("the format is in the table"))),)*
                _ => return None,
            };
            Some(native)
        }

        static FORMATS: &[(&str, NamedFormat)] =
            &[$(($key, NamedFormat { name: $name, regex_size: $size, check: $check })),*];
    };
}

formats! {
    "dns1123Label" "DNS1123Label" 30 |text| check_name(text, NameRule::Label, false);
    "dns1123Subdomain" "DNS1123Subdomain" 60 |text| check_name(text, NameRule::Subdomain, false);
    "dns1035Label" "DNS1035Label" 30 |text| check_name(text, NameRule::Label1035, false);
    "qualifiedName" "QualifiedName" 60 qualified_name;
    "dns1123LabelPrefix" "DNS1123LabelPrefix" 30 |text| check_name(text, NameRule::Label, true);
    "dns1123SubdomainPrefix" "DNS1123SubdomainPrefix" 60 |text| check_name(text, NameRule::Subdomain, true);
    "dns1035LabelPrefix" "DNS1035LabelPrefix" 30 |text| check_name(text, NameRule::Label1035, true);
    "labelValue" "LabelValue" 40 label_value;
    "uri" "URI" 1103 |text| Url::parse(text).err().into_iter().collect();
    "uuid" "uuid" 70 |text| open_api("uuid", text, "does not match the UUID format");
    "byte" "byte" 84 |text| open_api("byte", text, "invalid base64");
    "date" "date" 71 |text| open_api("date", text, "invalid date");
    "datetime" "datetime" 71 |text| open_api("date-time", text, "invalid datetime");
}

fn find(key: &str) -> Option<&'static NamedFormat> {
    FORMATS.iter().find(|(known, _)| *known == key).map(|(_, format)| format)
}

fn open_api(name: &str, text: &str, complaint: &str) -> Vec<String> {
    let format = Format::new(name, &["string"]);
    let valid = format.is_some_and(|format| format.accepts(text));
    if valid { Vec::new() } else { vec![complaint.to_owned()] }
}

/// The complaints about a label with this key and value.
fn label(key: &str, value: &str) -> Vec<String> {
    check_labels([(key, value)], &FieldPath::root()).into_iter().map(|error| error.detail).collect()
}

fn qualified_name(text: &str) -> Vec<String> {
    label(text, "")
}

fn label_value(text: &str) -> Vec<String> {
    label("a", text)
}

pub(super) fn named<'a>(args: &[Value<'a>]) -> Answer<'a> {
    match &args[0] {
        Value::String(name) => {
            Ok(find(name).map_or(Value::Optional(None), |format| Value::some(Value::Format(format))))
        }
        _ => Err(no_overload("format.named", args)),
    }
}

pub(super) fn validate<'a>(args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Format(format), Value::String(text)] = args else { return Err(no_overload("validate", args)) };
    let complaints = (format.check)(text);
    if complaints.is_empty() {
        return Ok(Value::Optional(None));
    }
    Ok(Value::some(Value::texts(complaints)))
}
