//! What a verified token says. In: its payload. Out: claims by name, once issuer, audience and times are as they must be. The texts
//! are those of go-oidc and of Go's JSON decoder, and say nothing of the token but what its claims are.

use std::fmt::Display;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use konverge_schema::go_quote;

/// How far the clock of an issuer may be ahead.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);

const GOOGLE: &str = "https://accounts.google.com";
const GOOGLE_WITHOUT_SCHEME: &str = "accounts.google.com";

/// The claims of a token.
pub(super) struct Claims(pub Map<String, Value>);

impl Claims {
    /// The claims in a payload, if they are from this issuer, for one of these audiences, and valid now.
    pub(super) fn read(payload: &[u8], issuer: &str, audiences: &[String], now: Timestamp) -> Result<Self, String> {
        let unreadable = |why: &dyn Display| format!("oidc: failed to unmarshal claims: {why}");
        let claims: Map<String, Value> = serde_json::from_slice(payload).map_err(|why| unreadable(&why))?;
        let claims = Self(claims);
        claims.check_sources()?;
        let text = claims.text("iss").unwrap_or(Ok(String::new())).map_err(|why| unreadable(&why))?;
        if text != issuer && !(issuer == GOOGLE && text == GOOGLE_WITHOUT_SCHEME) {
            let (expected, got) = (go_quote(issuer), go_quote(&text));
            return Err(format!("oidc: id token issued by a different provider, expected {expected} got {got}"));
        }
        claims
            .check_audience(audiences)
            .map_err(|why| why.unwrap_or_else(|| unreadable(&"aud is no text and no list")))?;
        claims.check_times(now).map_err(|why| why.unwrap_or_else(|| unreadable(&"a time is no number")))?;
        Ok(claims)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A claim that has to be a text; none if it is not there.
    pub(super) fn text(&self, name: &str) -> Option<Result<String, String>> {
        Some(match self.0.get(name)? {
            Value::String(text) => Ok(text.clone()),
            // Go leaves a text empty then.
            Value::Null => Ok(String::new()),
            other => Err(wrong_type(other, "string")),
        })
    }

    /// The same, where its absence is an error.
    pub(super) fn required_text(&self, name: &str) -> Result<String, String> {
        self.text(name).unwrap_or_else(|| Err("claim not present".to_owned()))
    }

    /// A claim that has to be true or false.
    pub(super) fn flag(&self, name: &str) -> Option<Result<bool, String>> {
        Some(match self.0.get(name)? {
            Value::Bool(value) => Ok(*value),
            Value::Null => Ok(false),
            other => Err(wrong_type(other, "bool")),
        })
    }

    /// A claim that has to be a text, or a list of texts.
    pub(super) fn texts(&self, name: &str) -> Option<Result<Vec<String>, String>> {
        Some(match self.0.get(name)? {
            Value::Null => Ok(Vec::new()),
            Value::String(text) => Ok(vec![text.clone()]),
            list @ Value::Array(items) => {
                let text = |item: &Value| match item {
                    Value::String(text) => Ok(text.clone()),
                    Value::Null => Ok(String::new()),
                    _ => Err(wrong_type(list, "string")),
                };
                items.iter().map(text).collect()
            }
            other => Err(wrong_type(other, "string")),
        })
    }

    /// What the token says about claims that are kept elsewhere has to fit together.
    fn check_sources(&self) -> Result<(), String> {
        let names = self.0.get("_claim_names").and_then(Value::as_object);
        let sources = self.0.get("_claim_sources").and_then(Value::as_object);
        for source in names.into_iter().flat_map(Map::values) {
            match source.as_str().unwrap_or_default() {
                "" => return Err("oidc: failed to obtain source from claim name".to_owned()),
                source if sources.is_none_or(|sources| !sources.contains_key(source)) => {
                    return Err("oidc: source does not exist".to_owned());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The error is none if the claim has the wrong type.
    fn check_audience(&self, audiences: &[String]) -> Result<(), Option<String>> {
        let given = self.texts("aud").unwrap_or(Ok(Vec::new())).map_err(|_| None)?;
        if given.iter().any(|given| audiences.contains(given)) {
            return Ok(());
        }
        let quoted = |list: &[String]| list.iter().map(|text| go_quote(text)).collect::<Vec<_>>().join(" ");
        let got = quoted(&given);
        Err(Some(match audiences {
            [one] => format!("oidc: expected audience {} got [{got}]", go_quote(one)),
            several => {
                let mut sorted = several.to_vec();
                sorted.sort();
                format!("oidc: expected audience in [{}] got [{got}]", quoted(&sorted))
            }
        }))
    }

    /// The error is none if a claim has the wrong type.
    fn check_times(&self, now: Timestamp) -> Result<(), Option<String>> {
        let time = |name: &str| match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => seconds(value).map(Some).ok_or(None),
        };
        let (expires, not_before) = (time("exp")?, time("nbf")?);
        time("iat")?;
        let expires = expires.unwrap_or(Timestamp::MIN);
        if expires < now {
            let shown =
                if expires == Timestamp::MIN { "0001-01-01 00:00:00 +0000 UTC".to_owned() } else { go_time(expires) };
            return Err(Some(format!("oidc: token is expired (Token Expiry: {shown})")));
        }
        if let Some(not_before) = not_before.filter(|not_before| now + LEEWAY < *not_before) {
            let (now, not_before) = (go_time(now), go_time(not_before));
            return Err(Some(format!("oidc: current time {now} before the nbf (not before) time: {not_before}")));
        }
        Ok(())
    }
}

/// The issuer that a token names, before anything is verified.
pub(super) fn issuer_of(claimed: &str) -> &str {
    if claimed == GOOGLE_WITHOUT_SCHEME { GOOGLE } else { claimed }
}

/// A number of seconds, which some issuers write as a text.
fn seconds(value: &Value) -> Option<Timestamp> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.parse().ok()?,
        _ => return None,
    };
    let second = if number.is_finite() { number as i64 } else { return None };
    let range = Timestamp::MIN.as_second()..=Timestamp::MAX.as_second();
    Timestamp::from_second(second.clamp(*range.start(), *range.end())).ok()
}

/// A time as Go prints it.
fn go_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string()
}

fn wrong_type(value: &Value, wanted: &str) -> String {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {kind} into Go value of type {wanted}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn issuer_audience_and_times() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |seconds: i64| now.as_second() + seconds;
        let client = ["client".to_owned()];
        let several = ["client".to_owned(), "b".to_owned()];
        let check = |claims: Value, audiences: &[String], expect: Result<(), &str>| {
            let mut whole = json!({"iss": "https://a", "aud": "client", "exp": at(10)});
            whole.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
            let found = Claims::read(whole.to_string().as_bytes(), "https://a", audiences, now);
            assert_eq!(found.map(|_| ()), expect.map_err(str::to_owned), "{claims}");
        };
        check(json!({}), &client, Ok(()));
        check(json!({"aud": ["other", "client"]}), &client, Ok(()));
        check(json!({"aud": ["b"]}), &several, Ok(()));
        check(json!({"aud": ["x", "y"]}), &client, Err(r#"oidc: expected audience "client" got ["x" "y"]"#));
        check(json!({"aud": "x"}), &several, Err(r#"oidc: expected audience in ["b" "client"] got ["x"]"#));
        check(json!({"aud": null}), &client, Err(r#"oidc: expected audience "client" got []"#));
        check(json!({"aud": 7}), &client, Err("oidc: failed to unmarshal claims: aud is no text and no list"));
        check(
            json!({"iss": "https://b"}),
            &client,
            Err(r#"oidc: id token issued by a different provider, expected "https://a" got "https://b""#),
        );
        check(
            json!({"exp": at(-1)}),
            &client,
            Err("oidc: token is expired (Token Expiry: 2025-12-31 23:59:59 +0000 UTC)"),
        );
        check(
            json!({"exp": null}),
            &client,
            Err("oidc: token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)"),
        );
        check(json!({"exp": at(1).to_string()}), &client, Ok(()));
        check(json!({"exp": 1e30}), &client, Ok(()));
        check(json!({"exp": "soon"}), &client, Err("oidc: failed to unmarshal claims: a time is no number"));
        check(json!({"nbf": at(59)}), &client, Ok(()));
        check(
            json!({"nbf": at(61)}),
            &client,
            Err(
                "oidc: current time 2026-01-01 00:00:00 +0000 UTC before the nbf (not before) time: 2026-01-01 00:01:01 +0000 UTC",
            ),
        );
        check(json!({"_claim_names": {"groups": "src"}}), &client, Err("oidc: source does not exist"));
        check(json!({"_claim_names": {"groups": ""}}), &client, Err("oidc: failed to obtain source from claim name"));
    }
}
