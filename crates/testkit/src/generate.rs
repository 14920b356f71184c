//! Objects out of nothing. In: the schema of a CRD's version, and a seed. Out: an object as the schema describes it, the same for
//! the same seed. Rules in CEL are not understood here: whoever asks has the server judge what comes out. `pattern` makes texts that
//! match the pattern of their schema.

mod pattern;

use serde_json::{Map, Value, json};

/// How deep objects go; deeper ones have only what they must have.
const DEEPEST: u32 = 8;

/// How many items or entries there are at most, if nothing is said.
const MOST_ITEMS: u64 = 3;

/// How often the key of an item is made until no other item has it.
const KEY_ATTEMPTS: usize = 20;

/// Texts as people write them: names, versions, quantities, times, addresses, domains.
const WORDS: [&str; 12] =
    ["a", "web", "web-1", "v1", "1", "100m", "1Gi", "1.2.3", "5m", "example.com", "https://example.com/x", "Some text"];

/// Numbers that look random: xorshift, which is all that is needed here.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // A state of zero would stay zero, and neighbouring seeds should not begin alike.
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`; zero if there is none.
    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end.max(1)
    }

    /// True that often in a hundred.
    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(usize::try_from(self.below(all.len() as u64)).unwrap_or_default())
    }
}

/// A value of a schema.
pub(crate) fn value(schema: &Value, random: &mut Random) -> Value {
    of(schema, random, 0)
}

fn of(schema: &Value, random: &mut Random, depth: u32) -> Value {
    if let Some(all) = schema["enum"].as_array() {
        return random.pick(all).cloned().unwrap_or_default();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return if random.percent(50) { integer(schema, random) } else { text(schema, random) };
    }
    match schema["type"].as_str().unwrap_or_default() {
        "object" => object(schema, random, depth),
        "array" => array(schema, random, depth),
        "string" => text(schema, random),
        "integer" => integer(schema, random),
        "number" => number(schema, random),
        "boolean" => random.percent(50).into(),
        _ => json!({}),
    }
}

fn object(schema: &Value, random: &mut Random, depth: u32) -> Value {
    let mut fields = Map::new();
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let is_required = required.iter().any(|one| one == name);
        if is_required || (depth < DEEPEST && random.percent(70)) {
            fields.insert(name.clone(), of(field, random, depth + 1));
        }
    }
    if schema["additionalProperties"].is_object() && depth < DEEPEST {
        let least = schema["minProperties"].as_u64().unwrap_or_default();
        for at in 0..least + random.below(MOST_ITEMS) {
            fields.insert(format!("key-{at}"), of(&schema["additionalProperties"], random, depth + 1));
        }
    }
    fields.into()
}

fn array(schema: &Value, random: &mut Random, depth: u32) -> Value {
    let least = schema["minItems"].as_u64().unwrap_or_default();
    let most = schema["maxItems"].as_u64().unwrap_or(least + MOST_ITEMS).min(least + MOST_ITEMS);
    let count = if depth < DEEPEST { least + random.below(most.saturating_sub(least) + 1) } else { least };
    let mut items: Vec<Value> = (0..count).map(|_| of(&schema["items"], random, depth + 1)).collect();
    let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
    // The items of a map have different keys.
    if let Some(key) = keys.into_iter().next() {
        let of_key = &schema["items"]["properties"][key];
        if of_key["pattern"].is_string() {
            let mut seen: Vec<Value> = Vec::new();
            items.retain_mut(|item| {
                let mut made = (0..KEY_ATTEMPTS).map(|_| of(of_key, random, depth + 2));
                made.find(|made| !seen.contains(made)).is_some_and(|made| {
                    item[key] = made.clone();
                    seen.push(made);
                    true
                })
            });
            return items.into();
        }
        for (at, item) in items.iter_mut().enumerate() {
            match &item[key] {
                Value::String(text) => item[key] = format!("{text}-{at}").into(),
                Value::Number(number) => item[key] = (number.as_i64().unwrap_or_default() + at as i64).into(),
                _ => {}
            }
        }
    }
    if schema["x-kubernetes-list-type"] == "set" || schema["uniqueItems"] == true {
        let mut seen = Vec::new();
        items.retain(|item| {
            !seen.contains(item) && {
                seen.push(item.clone());
                true
            }
        });
    }
    items.into()
}

fn text(schema: &Value, random: &mut Random) -> Value {
    match schema["format"].as_str().unwrap_or_default() {
        "date-time" => return "2026-01-02T03:04:05Z".into(),
        "date" => return "2026-01-02".into(),
        "duration" => return "1h0m0s".into(),
        "byte" => return "YWJj".into(),
        "ipv4" | "ip" => return "192.0.2.1".into(),
        "ipv6" => return "2001:db8::1".into(),
        "cidr" => return "192.0.2.0/24".into(),
        "uuid" | "uuid4" => return "4b1c1fd0-8f6f-4b44-9e5c-0f6d4d9b8a11".into(),
        "uri" => return "https://example.com/a".into(),
        "email" => return "a@example.com".into(),
        _ => {}
    }
    let length = |field: &str| schema[field].as_u64().and_then(|length| usize::try_from(length).ok());
    let mut text = (*random.pick(&WORDS).unwrap_or(&"a")).to_owned();
    if schema["default"].is_string() && random.percent(20) {
        return schema["default"].clone();
    }
    let (least, most) = (length("minLength").unwrap_or_default(), length("maxLength").unwrap_or(usize::MAX));
    if let Some(matching) =
        schema["pattern"].as_str().and_then(|pattern| pattern::matching(pattern, (least, most), random))
    {
        return matching.into();
    }
    if text.len() < least {
        text.push_str(&"x".repeat((least - text.len()).min(1 << 10)));
    }
    text.truncate(most);
    text.into()
}

/// The bounds of a number, and sometimes the bounds themselves.
fn integer(schema: &Value, random: &mut Random) -> Value {
    let bound = |field: &str| schema[field].as_f64().map(|bound| bound as i64);
    let step = bound("multipleOf").filter(|step| *step > 0).unwrap_or(1);
    let widest = if schema["format"] == "int64" { 1 << 40 } else { 1000 };
    let mut least = bound("minimum").unwrap_or(-5);
    let mut most = bound("maximum").unwrap_or(least.saturating_add(widest));
    least += i64::from(schema["exclusiveMinimum"] == true);
    most -= i64::from(schema["exclusiveMaximum"] == true);
    let chosen = match random.below(5) {
        0 => least,
        1 => most,
        _ => least.saturating_add(random.below(most.saturating_sub(least).max(0).unsigned_abs() + 1) as i64),
    };
    (chosen / step * step).into()
}

fn number(schema: &Value, random: &mut Random) -> Value {
    let whole = integer(schema, random);
    if schema["multipleOf"].is_number() || random.percent(50) {
        return whole;
    }
    let half = whole.as_f64().unwrap_or_default() + 0.5;
    if schema["maximum"].as_f64().is_some_and(|most| half > most) { whole } else { json!(half) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_one_object_within_its_bounds() {
        let schema = json!({
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 2, "maximum": 4},
                "mode": {"type": "string", "enum": ["A", "B"]},
                "name": {"type": "string", "minLength": 4, "maxLength": 5},
                "ports": {
                    "type": "array", "minItems": 1, "maxItems": 2, "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
                },
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "hosts": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "required": ["name"], "properties": {
                        "name": {"type": "string", "pattern": "^[a-c]$"},
                    }},
                },
            },
        });
        let mut without_mode = 0;
        for seed in 0..200 {
            let made = value(&schema, &mut Random::new(seed));
            assert_eq!(made, value(&schema, &mut Random::new(seed)));
            assert!((2..=4).contains(&made["size"].as_i64().unwrap()), "{made}");
            assert!(made.get("name").is_none_or(|name| (4..=5).contains(&name.as_str().unwrap().len())), "{made}");
            let ports = made["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
            assert!(ports.len() <= 2 && (ports.len() < 2 || ports[0]["name"] != ports[1]["name"]), "{made}");
            let hosts: Vec<&str> =
                made["hosts"].as_array().into_iter().flatten().filter_map(|host| host["name"].as_str()).collect();
            assert!(hosts.iter().all(|name| ["a", "b", "c"].contains(name)), "{made}");
            assert!((1..hosts.len()).all(|at| !hosts[..at].contains(&hosts[at])), "{made}");
            without_mode += u32::from(made.get("mode").is_none());
        }
        assert!((20..120).contains(&without_mode), "{without_mode}");
    }
}
