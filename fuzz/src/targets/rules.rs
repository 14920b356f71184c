//! The schemas of CRDs, and their rules in CEL. An input is a rule or a schema, a line break, and an object that is judged by it.

use konverge_cel::{RuleSet, check_rules};
use konverge_core::FieldPath;
use konverge_schema::{Arena, Budget, NullRules, compile, default, prune};
use serde_json::{Value, json};

use crate::target::Runner;
use crate::targets::decoders::budget;

pub(super) const WORDS: &[&str] = &[
    "self",
    "oldSelf",
    ".",
    "?",
    ":",
    "[",
    "]",
    "(",
    ")",
    "&&",
    "||",
    "!",
    "==",
    "!=",
    "<=",
    ">",
    "+",
    "-",
    "*",
    "/",
    "%",
    " in ",
    "has(self.text)",
    ".all(x, x > 1)",
    ".exists(x, true)",
    ".exists_one(x, x)",
    ".map(x, x)",
    ".filter(x, x)",
    ".size()",
    ".matches('a+')",
    ".startsWith('a')",
    "duration('1h')",
    "timestamp('2024-01-01T00:00:00Z')",
    "quantity('1Gi')",
    "int(",
    "string(",
    "double(",
    "type(",
    "dyn(",
    "b'a'",
    "r'\\'",
    "'''a'''",
    "1u",
    "0x1F",
    "1e3",
    "9223372036854775807",
    "[1, 2]",
    "{'a': 1}",
    ".?text",
    "[?0]",
    ".orValue('')",
    "optional.none()",
    "optional.of(1)",
    "ip('10.0.0.1')",
    "cidr('10.0.0.0/8')",
    "url('https://a')",
    "isURL('a')",
    ".split(',')",
    ".join()",
    ".substring(1)",
    ".format([1])",
    "'%d'",
    "sets.contains([1], [1])",
    ".sum()",
    ".indexOf(1)",
    ".reverse()",
    ".flatten()",
    ".sort()",
    "cel.bind(a, 1, a)",
    "format.dns1123Label()",
    "semver('1.0.0')",
    ".lowerAscii()",
    ".replace('a', 'b')",
];

fn schema(rule: &str) -> Value {
    json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "x-kubernetes-validations": [{"rule": rule, "messageExpression": "'because of ' + self.text"}],
        "properties": {
            "text": {"type": "string", "maxLength": 100},
            "number": {"type": "integer"}, "float": {"type": "number"}, "flag": {"type": "boolean"},
            "when": {"type": "string", "format": "date-time"}, "long": {"type": "string", "format": "duration"},
            "bytes": {"type": "string", "format": "byte"}, "either": {"x-kubernetes-int-or-string": true},
            "list": {"type": "array", "maxItems": 20, "items": {"type": "integer"}},
            "parts": {"type": "array", "maxItems": 20, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "maxLength": 20}}}},
            "map": {"type": "object", "maxProperties": 20, "additionalProperties": {"type": "string", "maxLength": 20}},
        },
    }}})
}

const OBJECT: &str = r#"{"spec":{"text":"aaa","number":3,"float":0.5,"flag":true,"when":"2024-01-01T00:00:00Z","long":"1h","bytes":"YQ==","either":"5%","list":[1,2,3],"parts":[{"name":"x"}],"map":{"a":"b"}}}"#;

pub(super) fn seeds() -> Vec<Vec<u8>> {
    [
        "self.number > 2 && self.text.size() < 10",
        "self.list.all(x, x in [1, 2, 3]) || self.map.exists(k, self.map[k] == 'b')",
        "oldSelf.number == self.number",
        "self.when < timestamp('2030-01-01T00:00:00Z') && duration('30m') < duration(self.text)",
        "self.?text.orValue('x').matches('^[a-z]+$') ? true : false",
        "self.parts.filter(p, p.name.startsWith('x')).map(p, p.name).join(',') != ''",
        "type(self.either) == string ? self.either == '5%' : self.either > 3",
        "quantity('1Gi').isGreaterThan(quantity('500Mi'))",
        "[[1, 2], [3]].flatten().sum() == 6 && 'a,b'.split(',').size() == 2",
        "cel.bind(x, self.number * 2, x / 3 % 2 == 0) && b'abc'.size() == 3",
        "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.1.1')",
        "'%s %d'.format([self.text, self.number]) == 'aaa 3'",
    ]
    .map(|rule| format!("{rule}\n{OBJECT}").into_bytes())
    .into()
}

pub(super) fn rules() -> Runner {
    Box::new(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return "not text".into() };
        let (rule, object) = text.split_once('\n').unwrap_or((text, OBJECT));
        judge(&schema(rule), serde_json::from_str(object).ok())
    })
}

/// Checks the rules of a schema as a CRD is written, and judges an object by them.
fn judge(schema: &Value, object: Option<Value>) -> String {
    let errors = match check_rules(schema, &FieldPath::new("schema"), &budget()) {
        Ok(errors) => errors,
        Err(why) => return format!("{why:?}"),
    };
    if let Some(error) = errors.first() {
        return error.to_string();
    }
    let (Some(rules), Some(object)) = (RuleSet::compile(schema), object) else { return "no rules".into() };
    match rules.validate(&object, Some(&object), &budget()) {
        Ok(outcome) => {
            let first = outcome.errors.first().map(ToString::to_string);
            format!("judged, {} errors: {}", outcome.errors.len(), first.unwrap_or_default())
        }
        Err(why) => format!("{why:?}"),
    }
}

pub(super) const SCHEMA_WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "\"type\":\"object\"",
    "\"type\":\"array\"",
    "\"type\":\"string\"",
    "\"properties\":{\"a\":{}}",
    "\"items\":{}",
    "\"additionalProperties\":{}",
    "\"default\":{}",
    "\"default\":null",
    "\"nullable\":true",
    "\"enum\":[1]",
    "\"pattern\":\"a\"",
    "\"format\":\"ipv4\"",
    "\"multipleOf\":0.1",
    "\"minimum\":1e300",
    "\"maxLength\":3",
    "\"uniqueItems\":true",
    "\"allOf\":[{}]",
    "\"anyOf\":[{}]",
    "\"oneOf\":[{}]",
    "\"not\":{}",
    "\"required\":[\"a\"]",
    "\"x-kubernetes-list-type\":\"set\"",
    "\"x-kubernetes-preserve-unknown-fields\":true",
    "\"x-kubernetes-embedded-resource\":true",
    "\"x-kubernetes-int-or-string\":true",
    "\"x-kubernetes-validations\":[{\"rule\":\"self.a\"}]",
    "\"$ref\":\"x\"",
];

pub(super) fn schema_seeds() -> Vec<Vec<u8>> {
    let rich = json!({"type": "object", "required": ["a"], "properties": {
        "a": {"type": "string", "default": "x", "enum": ["x", "y"], "pattern": "^x"},
        "b": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer", "minimum": 1, "multipleOf": 2}},
        "c": {"type": "object", "additionalProperties": {"type": "number", "nullable": true}},
        "d": {"anyOf": [{"required": ["e"]}, {"not": {"required": ["f"]}}], "type": "object", "properties": {"e": {"x-kubernetes-int-or-string": true}}},
        "g": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    }});
    vec![
        format!("{}\n{OBJECT}", schema("self.number > 2")).into_bytes(),
        format!(
            "{rich}\n{}",
            json!({"a": "z", "b": [2, 2, 3], "c": {"x": null}, "d": {"f": 1}, "g": {"kind": "K"}, "h": 1})
        )
        .into_bytes(),
    ]
}

pub(super) fn schemas() -> Runner {
    Box::new(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return "not text".into() };
        let (schema, object) = text.split_once('\n').unwrap_or((text, "{}"));
        let Ok(schema) = serde_json::from_str::<Value>(schema) else { return "not a schema".into() };
        let mut arena = Arena::default();
        let root = match compile(&mut arena, Some(&schema)) {
            Ok(root) => root,
            Err(error) => return error.to_string(),
        };
        let Ok(mut object) = serde_json::from_str::<Value>(object) else { return "not an object".into() };
        let budget: Budget = budget();
        let unknown = prune(&arena, root, &mut object, NullRules::Custom);
        if default(&arena, root, &mut object, &budget).is_err() {
            return "over budget".into();
        }
        let errors = konverge_schema::validate(&arena, root, &object, &budget);
        format!("{} unknown, {:.60} {}", unknown.len(), format!("{errors:?}"), judge(&schema, Some(object)))
    })
}
