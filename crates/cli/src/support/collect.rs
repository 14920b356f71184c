//! Reads what the plan says. In: items. Out: their content, or why it is not there. A failure is noted and never ends the rest. What is read here still has its secrets,
//! and leaves this module only for the archive.

use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::archive::Content;
use super::plan::{Item, MOST_OBJECTS, Source};
use super::redact::values;
use crate::counted::counted;
use crate::description::text;
use crate::doctor::list_path;
use crate::observer::{Listed, Observer, Unread};

/// How much of a file or a page is read; the archive takes less of what grows when it is made readable.
const MOST_BYTES: usize = 4 << 20;

/// How many objects are looked at to find those that belong to the operator's, and how many events are.
const MOST_LOOKED_AT: usize = 1_000;

/// How many Secrets of a namespace are read to search for their values.
const MOST_SECRETS: usize = 200;

/// What was read, and what is special about it; or why not.
pub(super) type Collected = Result<(Content, String), String>;

/// Reads items.
pub(super) struct Collector<'a> {
    pub observer: Option<&'a Observer>,
    /// The groups of the operator's kinds.
    pub groups: Vec<String>,
    /// How far events go back.
    pub since: Option<SignedDuration>,
    pub now: Timestamp,
    /// The operator's objects that were read, by their uids.
    owners: BTreeSet<String>,
    /// The namespaces that they are in.
    namespaces: BTreeSet<String>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        observer: Option<&'a Observer>,
        groups: Vec<String>,
        since: Option<SignedDuration>,
        now: Timestamp,
    ) -> Self {
        Self { observer, groups, since, now, owners: BTreeSet::new(), namespaces: BTreeSet::new() }
    }

    /// The content of an item.
    pub(super) async fn collect(&mut self, item: &Item) -> Collected {
        if let Source::File(path) = &item.source {
            return end_of(path).map_err(|error| error.to_string());
        }
        let observer = self.observer.ok_or("there is no cluster")?;
        let said = |error: Unread| error.to_string();
        match &item.source {
            Source::File(_) => unreachable!("it was read above"),
            Source::Page(path) => {
                let page = observer.page(path, MOST_BYTES).await.map_err(said)?;
                match page.code {
                    200 => Ok((Content::Text(page.text), if page.is_cut { "cut".into() } else { String::new() })),
                    // A probe that fails says why, and a Pod or the server says why there is no page.
                    500 if item.path.contains("/pages/") => Ok((Content::Text(page.text), "it answered 500".into())),
                    code => Err(format!("{code} {}", message(&page.text))),
                }
            }
            Source::Object(path) => match observer.get(path).await.map_err(said)? {
                Some(object) => Ok((Content::Json(object), String::new())),
                None => Err("it is not there".to_owned()),
            },
            Source::List(path) => self.list(path, |_, _| true, MOST_OBJECTS).await,
            Source::Kind(kind) => {
                let Some(path) = list_path(observer, kind).await.map_err(said)? else {
                    return Err("its CRD is not installed".into());
                };
                let (content, note) = self.list(&path, |_, _| true, MOST_OBJECTS).await?;
                if let Content::Objects(objects) = &content {
                    self.owners.extend(objects.iter().map(|object| text(&object["metadata"]["uid"])));
                    self.namespaces.extend(
                        objects.iter().filter_map(|object| object["metadata"]["namespace"].as_str().map(str::to_owned)),
                    );
                }
                Ok((content, note))
            }
            Source::Children { group, plural } => {
                let path = preferred(observer, group, plural)
                    .await
                    .map_err(said)?
                    .ok_or("the cluster does not know this kind")?;
                let of_owners = |collector: &Self, object: &Value| {
                    let mut owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
                    owners.any(|owner| collector.owners.contains(&text(&owner["uid"])))
                };
                self.list(&path, of_owners, MOST_LOOKED_AT).await
            }
            Source::Events(namespace) => {
                let is_concerned = |collector: &Self, event: &Value| {
                    let about = &event["involvedObject"];
                    let group = text(&about["apiVersion"]).split_once('/').map(|(group, _)| group.to_owned());
                    let is_ours = about["namespace"] == namespace.as_str()
                        || group.is_some_and(|group| collector.groups.contains(&group));
                    is_ours && collector.is_recent(event)
                };
                match self.list("/api/v1/events", is_concerned, MOST_LOOKED_AT).await {
                    Ok(events) => Ok(events),
                    // Whoever may not read all events may read those beside the operator.
                    Err(_) => {
                        self.list(&format!("/api/v1/namespaces/{namespace}/events"), is_concerned, MOST_LOOKED_AT).await
                    }
                }
            }
        }
    }

    /// Objects of a list that are wanted.
    async fn list(&self, path: &str, is_wanted: impl Fn(&Self, &Value) -> bool, most: usize) -> Collected {
        let observer = self.observer.ok_or("there is no cluster")?;
        let mut found = observer.list(path, "", most).await.map_err(|error| error.to_string())?;
        found.items.retain(|object| is_wanted(self, object));
        let shown = found.items.len();
        found.items.truncate(MOST_OBJECTS);
        let note = match (found.is_cut, shown > MOST_OBJECTS) {
            (true, _) => format!("{} of more than {most}", counted(found.items.len(), "object")),
            (false, true) => format!("{MOST_OBJECTS} of {shown} objects"),
            (false, false) => counted(shown, "object"),
        };
        Ok((Content::Objects(found.items), note))
    }

    fn is_recent(&self, event: &Value) -> bool {
        let times = [
            &event["series"]["lastObservedTime"],
            &event["lastTimestamp"],
            &event["eventTime"],
            &event["metadata"]["creationTimestamp"],
        ];
        let time = times.into_iter().find_map(|time| time.as_str()?.parse::<Timestamp>().ok());
        match (self.since, time) {
            (Some(since), Some(time)) => self.now.duration_since(time) <= since,
            _ => true,
        }
    }

    /// The values of Secrets beside the operator and its objects, and where they could not be read. They are searched for in everything else, and kept nowhere.
    pub(super) async fn secrets(&self, namespace: &str) -> (Vec<String>, Vec<String>) {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        let Some(observer) = self.observer else { return (found, missing) };
        let mut namespaces = self.namespaces.clone();
        namespaces.insert(namespace.to_owned());
        for namespace in namespaces {
            let path = format!("/api/v1/namespaces/{namespace}/secrets");
            let (values, unsearched) = of_secrets(&namespace, observer.list(&path, "", MOST_SECRETS).await);
            found.extend(values);
            missing.extend(unsearched);
        }
        (found, missing)
    }
}

/// The values of the Secrets of a namespace, and what of them cannot be searched for.
fn of_secrets(namespace: &str, secrets: Result<Listed, Unread>) -> (Vec<String>, Option<String>) {
    match secrets {
        Ok(Listed { items, is_cut }) => {
            let cut =
                || format!("not everything could be searched for: {namespace} has more than {MOST_SECRETS} Secrets");
            (items.iter().flat_map(values).collect(), is_cut.then(cut))
        }
        Err(error) => {
            let why = format!("values of Secrets in {namespace}, which were to be searched for: {error}");
            (Vec::new(), Some(why))
        }
    }
}

/// The list of a kind, in the version that the server prefers.
async fn preferred(observer: &Observer, group: &str, plural: &str) -> Result<Option<String>, Unread> {
    if group.is_empty() {
        return Ok(Some(format!("/api/v1/{plural}")));
    }
    let found = observer.get(&format!("/apis/{group}")).await?;
    let version = found.as_ref().and_then(|group| group["preferredVersion"]["groupVersion"].as_str());
    Ok(version.map(|version| format!("/apis/{version}/{plural}")))
}

/// The last part of a file.
fn end_of(path: &Path) -> std::io::Result<(Content, String)> {
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    let left_out = length.saturating_sub(MOST_BYTES as u64);
    file.seek(SeekFrom::Start(left_out))?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES as u64).read_to_end(&mut bytes)?;
    let note = if left_out > 0 { format!("without its first {left_out} bytes") } else { String::new() };
    Ok((Content::Text(String::from_utf8_lossy(&bytes).into_owned()), note))
}

/// What a server says of a failure, in one line.
fn message(page: &str) -> String {
    let status: Value = serde_json::from_str(page).unwrap_or_default();
    let message = status["message"].as_str().unwrap_or(page);
    message.lines().next().unwrap_or_default().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_that_were_not_read_are_told() {
        // `hunter22` in base64.
        let items = vec![json!({"data": {"a": "aHVudGVyMjI="}})];
        let listed = |is_cut| Ok(Listed { items: items.clone(), is_cut });
        for (given, count, expect) in [
            (listed(false), 1, None),
            (listed(true), 1, Some("not everything could be searched for: shop has more than 200")),
            (Err(Unread::Failed("slow".into())), 0, Some("values of Secrets in shop")),
        ] {
            let (values, unsearched) = of_secrets("shop", given);
            assert_eq!(values, vec!["hunter22"; count]);
            assert_eq!(unsearched.is_some(), expect.is_some());
            assert!(unsearched.unwrap_or_default().contains(expect.unwrap_or_default()));
        }
    }
}
