//! `/events`: recent Events, newest first. In: filters, which are validated, and the Events of the API server. Out: an
//! `EventList` of the matching ones.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use konverge_core::Status;

use super::api_client::Reader;
use super::query::{self, Query};

/// The parameters of the page.
pub(super) const PARAMETERS: [&str; 6] = ["namespace", "object", "type", "severity", "since", "limit"];

const TYPES: [&str; 2] = ["Normal", "Warning"];
const SEVERITIES: [&str; 4] = ["Info", "Warning", "Error", "Critical"];

/// Where an event tells more than the two types of Kubernetes can.
const SEVERITY_ANNOTATION: &str = "konverge.dev/severity";

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;

/// Which events are wanted.
#[derive(Debug, PartialEq)]
pub(super) struct Filter {
    namespace: Option<String>,
    /// The kind, if it is said, and the name.
    object: Option<(Option<String>, String)>,
    kind: Option<&'static str>,
    severity: Option<&'static str>,
    since: Option<Timestamp>,
    limit: usize,
}

impl Filter {
    /// Reads the parameters of a request; `since` may be a time or how long before `now`.
    pub(super) fn parse(query: &Query, now: Timestamp) -> Result<Self, Status> {
        let object = query.get("object").map(|text| match text.split_once('/') {
            Some((kind, name)) => (Some(kind.to_owned()), name.to_owned()),
            None => (None, text.to_owned()),
        });
        let limit = match query.get("limit") {
            None => DEFAULT_LIMIT,
            Some(text) => text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit)).ok_or_else(|| {
                Status::bad_request(format!("limit must be a number from 1 to {MAX_LIMIT}; {text:?} is none"))
            })?,
        };
        Ok(Self {
            namespace: query::name(query, "namespace")?.map(str::to_owned),
            object,
            kind: one_of(query, "type", &TYPES)?,
            severity: one_of(query, "severity", &SEVERITIES)?,
            since: query.get("since").map(|text| moment(text, now)).transpose()?,
            limit,
        })
    }

    /// The events that fit.
    pub(super) async fn answer(&self, api: &Reader) -> Result<Value, Status> {
        let path = match &self.namespace {
            Some(namespace) => format!("/api/v1/namespaces/{namespace}/events"),
            None => "/api/v1/events".to_owned(),
        };
        let mut list = api.json(&path).await?;
        let items = match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        let metadata = json!({"resourceVersion": list["metadata"]["resourceVersion"]});
        let items = self.select(items);
        Ok(json!({"apiVersion": "v1", "kind": "EventList", "metadata": metadata, "items": items}))
    }

    /// Those of `events` that fit, newest first.
    fn select(&self, events: Vec<Value>) -> Vec<Value> {
        let mut dated: Vec<(Option<Timestamp>, Value)> =
            events.into_iter().filter(|event| self.fits(event)).map(|event| (time(&event), event)).collect();
        dated.retain(|(time, _)| self.since.is_none() || *time >= self.since);
        dated.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
        dated.into_iter().take(self.limit).map(|(_, event)| readable(event)).collect()
    }

    fn fits(&self, event: &Value) -> bool {
        let about = &event["involvedObject"];
        let is = |value: &Value, wanted: &str| value.as_str().is_some_and(|text| text.eq_ignore_ascii_case(wanted));
        self.kind.is_none_or(|kind| event["type"] == kind)
            && self.severity.is_none_or(|severity| severity_of(event) == severity)
            && self.object.as_ref().is_none_or(|(kind, name)| {
                about["name"] == name.as_str() && kind.as_ref().is_none_or(|kind| is(&about["kind"], kind))
            })
    }
}

fn one_of(query: &Query, name: &str, known: &[&'static str]) -> Result<Option<&'static str>, Status> {
    let Some(text) = query.get(name) else { return Ok(None) };
    let found = known.iter().find(|known| known.eq_ignore_ascii_case(text));
    found.copied().map(Some).ok_or_else(|| {
        Status::bad_request(format!("{name} must be one of {}; {text:?} is none of them", known.join(", ")))
    })
}

fn moment(text: &str, now: Timestamp) -> Result<Timestamp, Status> {
    let ago = || text.parse::<SignedDuration>().ok().and_then(|before| now.checked_sub(before).ok());
    text.parse().ok().or_else(ago).ok_or_else(|| {
        Status::bad_request(format!(
            "since must be a time (2026-01-02T03:04:05Z) or how long ago (90s, 5m, 2h); {text:?} is neither"
        ))
    })
}

fn severity_of(event: &Value) -> &str {
    match event["metadata"]["annotations"][SEVERITY_ANNOTATION].as_str() {
        Some(severity) => severity,
        None if event["type"] == "Warning" => "Warning",
        None => "Info",
    }
}

/// An event without what only the API server has a use for.
fn readable(mut event: Value) -> Value {
    if let Some(metadata) = event["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    event
}

/// When it happened last.
fn time(event: &Value) -> Option<Timestamp> {
    let places = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    places.into_iter().find_map(|place| place.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-02T12:00:00Z".parse().expect("a time")
    }

    fn parse(text: &str) -> Result<Filter, Status> {
        Filter::parse(&Query::parse("/events", Some(text), &PARAMETERS)?, now())
    }

    #[test]
    fn filters() {
        let event = |name: &str, kind: &str, type_: &str, time: &str| {
            json!({"metadata": {"name": name}, "type": type_, "involvedObject": {"kind": kind, "name": "shop"},
                   "eventTime": time})
        };
        let mut critical = event("d", "Application", "Warning", "2026-01-02T11:00:00Z");
        critical["metadata"]["annotations"] = json!({SEVERITY_ANNOTATION: "Critical"});
        critical["series"] = json!({"lastObservedTime": "2026-01-02T11:59:30Z"});
        let events = vec![
            event("a", "Application", "Normal", "2026-01-02T10:00:00Z"),
            event("b", "Deployment", "Normal", "2026-01-02T11:58:00.5Z"),
            event("c", "Application", "Warning", "2026-01-02T11:57:00Z"),
            critical,
        ];
        for (query, expect) in [
            ("", "d b c a"),
            ("limit=2", "d b"),
            ("type=Warning", "d c"),
            ("type=normal", "b a"),
            ("severity=Info", "b a"),
            ("severity=warning", "c"),
            ("severity=Critical", "d"),
            ("object=shop", "d b c a"),
            ("object=application/shop", "d c a"),
            ("object=other", ""),
            ("since=5m", "d b c"),
            ("since=1m", "d"),
            ("since=2026-01-02T11:58:00Z", "d b"),
            ("since=2026-01-02T11%3A58%3A00Z&type=Normal&limit=1", "b"),
        ] {
            let found = parse(query).expect(query).select(events.clone());
            let names: Vec<&str> = found.iter().filter_map(|event| event["metadata"]["name"].as_str()).collect();
            assert_eq!(names.join(" "), expect, "{query}");
        }
    }

    #[test]
    fn filters_that_make_no_sense_say_what_does() {
        for (query, expect) in [
            ("kind=Pod", "/events has no parameter \"kind\"; it has: namespace, object, type, severity, since, limit"),
            ("type=Bad", "type must be one of Normal, Warning; \"Bad\" is none of them"),
            ("severity=high", "severity must be one of Info, Warning, Error, Critical; \"high\" is none of them"),
            (
                "since=yesterday",
                "since must be a time (2026-01-02T03:04:05Z) or how long ago (90s, 5m, 2h); \"yesterday\" is neither",
            ),
            ("limit=0", "limit must be a number from 1 to 1000; \"0\" is none"),
            ("limit=all", "limit must be a number from 1 to 1000; \"all\" is none"),
            ("limit=1&limit=2", "/events takes \"limit\" once"),
            ("namespace=a/b", "namespace must be a name: letters, digits, '-' and '.'; \"a/b\" is none"),
        ] {
            let refused = parse(query).expect_err(query);
            assert_eq!((refused.code, refused.message.as_str()), (400, expect), "{query}");
        }
    }
}
