//! The parameters of a page. In: what comes after the question mark, and which names the page knows. Out: their values,
//! or the 400 that says which there are: a filter that is misspelt must not look like one that found nothing.

use percent_encoding::percent_decode_str;

use konverge_core::Status;

/// The parameters of one request.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads them; every name must be one of `known`, and given once.
    pub(super) fn parse(page: &str, text: Option<&str>, known: &[&str]) -> Result<Self, Status> {
        let mut found: Vec<(String, String)> = Vec::new();
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name), decode(value));
            if !known.contains(&name.as_str()) {
                let known = known.join(", ");
                return Err(Status::bad_request(format!("{page} has no parameter {name:?}; it has: {known}")));
            }
            if found.iter().any(|(before, _)| *before == name) {
                return Err(Status::bad_request(format!("{page} takes {name:?} once")));
            }
            found.push((name, value));
        }
        Ok(Self(found))
    }

    /// The value of a parameter; an empty one is the same as none.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }
}

/// A name of an object or a namespace, which may become part of a path.
pub(super) fn name<'q>(query: &'q Query, parameter: &str) -> Result<Option<&'q str>, Status> {
    let fits = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':'));
    match query.get(parameter) {
        Some(text) if !fits(text) => Err(Status::bad_request(format!(
            "{parameter} must be a name: letters, digits, '-' and '.'; {text:?} is none"
        ))),
        found => Ok(found),
    }
}

fn decode(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}
