//! Reading one object, or a list. In: a resource, a namespace, options. Out: records at one revision and, if a list is not
//! complete, a continue token. Does not render.

use konverge_core::{FieldError, FieldPath, Status};
use konverge_store::{Range, ReadError, Revision, Store};

use crate::conversion::Readable;
use crate::filter::Filter;
use crate::request::{Query, invalid_options};
use crate::resource::Resource;

/// How many entries are fetched at a time when a selector decides which of them count.
const SCAN: usize = 1000;

/// After parsing this many bytes a list yields, so that other requests are served: a millisecond or so.
const LOOK_BYTES: usize = 256 * 1024;

/// The object of this name.
pub(crate) async fn get(
    store: &dyn Store,
    resource: &Resource,
    namespace: Option<&str>,
    name: &str,
    query: &Query,
) -> Result<Readable, Status> {
    if let Some(asked) = version(query)? {
        not_from_the_future(store, asked)?;
    }
    let found = store.get(&resource.key(namespace, name), None).map_err(Status::internal)?;
    let entry = found.ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
    resource.read(entry).await
}

/// What a list asks for.
#[derive(Debug)]
pub(crate) struct ListOptions {
    limit: Option<usize>,
    start: Start,
}

#[derive(Debug)]
enum Start {
    /// From the beginning, at the newest revision or at this one.
    Beginning(Option<Revision>),
    /// Where an earlier list ended; without a revision, at the newest one.
    After(Option<Revision>, String),
}

/// One answer to a list.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub entries: Vec<Readable>,
    /// The revision all of them were read at.
    pub revision: Revision,
    /// The continue token, if there is more.
    pub more: Option<String>,
    /// How many objects are left, if that is known without looking at each.
    pub remaining: Option<usize>,
}

impl ListOptions {
    /// Refuses parameters that do not fit together.
    pub(crate) fn check(query: &Query) -> Result<(), Status> {
        let mut errors = Vec::new();
        let (asked, token) = (query.get("resourceVersion"), query.get("continue"));
        let matching = query.get("resourceVersionMatch");
        if let Some(matching) = matching {
            let path = || FieldPath::new("resourceVersionMatch");
            if asked.is_none() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.push(FieldError::forbidden(path(), why));
            }
            if token.is_some() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                errors.push(FieldError::forbidden(path(), why));
            }
            if !matches!(matching, "Exact" | "NotOlderThan") {
                errors.push(FieldError::not_supported(path(), matching.into(), ["Exact", "NotOlderThan", ""]));
            }
            if matching == "Exact" && asked == Some("0") {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(FieldError::forbidden(path(), why));
            }
        }
        if query.switch("sendInitialEvents").is_some() {
            let path = FieldPath::new("sendInitialEvents");
            errors.push(FieldError::forbidden(path, "sendInitialEvents is forbidden for list"));
        }
        invalid_options("ListOptions", &errors)
    }

    /// Reads and checks the parameters.
    pub(crate) fn parse(query: &Query, resource: &Resource) -> Result<Self, Status> {
        // A list ends when it is answered, so that this is only read.
        query.number("timeoutSeconds")?;
        let limit = query.number("limit")?.filter(|limit| *limit > 0).map(|limit| limit as usize);
        Self::check(query)?;
        let asked = version(query)?;
        let token = query.get("continue");
        let matching = query.get("resourceVersionMatch");
        let start = match token {
            Some(_) if asked.is_some_and(|asked| asked.0 > 0) => {
                return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
            }
            Some(token) => parse_token(token)?,
            // Without a rule, a version and a limit together mean exactly that version.
            None => match (asked, matching) {
                (Some(asked), Some("Exact")) => Start::Beginning(Some(asked)),
                (Some(asked), None) if asked.0 > 0 && limit.is_some() => Start::Beginning(Some(asked)),
                _ => Start::Beginning(None),
            },
        };
        // kube-apiserver answers this from its cache, which it has of every kind but events, and the cache knows no pages.
        let whole = asked == Some(Revision(0)) && token.is_none() && *resource.plural != *"events";
        Ok(Self { limit: limit.filter(|_| !whole), start })
    }
}

/// Lists the objects that pass the filter. While a selector parses many objects, other requests are served.
pub(crate) async fn list(
    store: &dyn Store,
    resource: &Resource,
    namespace: Option<&str>,
    filter: &Filter,
    options: &ListOptions,
    query: &Query,
) -> Result<Listed, Status> {
    if let Some(asked) = version(query)? {
        not_from_the_future(store, asked)?;
    }
    let prefix = resource.prefix(namespace);
    let (mut at, mut after) = match &options.start {
        Start::Beginning(at) => (*at, None),
        Start::After(at, key) => (*at, Some(format!("{prefix}{key}"))),
    };
    // If the selector names an object, no other has to be read.
    let narrow = filter.name().filter(|_| resource.namespaced == namespace.is_some());
    let searched = narrow.map_or_else(|| prefix.clone(), |name| resource.key(namespace, name));
    let mut entries = Vec::new();
    let mut looked = 0;
    loop {
        let wanted = options.limit.map(|limit| limit - entries.len());
        let fetch = if filter.is_everything() { wanted } else { Some(SCAN) };
        let range = Range { prefix: &searched, after: after.as_deref(), limit: fetch, at };
        let page = store.range(range).map_err(|error| too_old(error, options))?;
        // Later pages of the same answer are read at the revision of the first.
        at = Some(page.revision);
        after = page.entries.last().map(|entry| entry.key.to_string());
        let mut fetched = resource.read_all(page.entries).await?.into_iter();
        for entry in fetched.by_ref() {
            looked += if filter.is_everything() { 0 } else { entry.value.len() };
            if looked >= LOOK_BYTES {
                looked = 0;
                tokio::task::yield_now().await;
            }
            if filter.matches(resource, &entry) {
                entries.push(entry);
                if options.limit == Some(entries.len()) {
                    break;
                }
            }
        }
        let left = page.more || fetched.len() > 0;
        let full = options.limit == Some(entries.len());
        if full || !left {
            let revision = page.revision;
            let last = entries.last().filter(|_| full && left).map(|entry| entry.key.clone());
            let more = last.as_ref().map(|key| token(revision, &key[prefix.len()..]));
            // Counting is cheap only when every object counts.
            let rest = last
                .as_deref()
                .filter(|_| filter.is_everything())
                .map(|key| store.count(Range { prefix: &searched, after: Some(key), limit: None, at: Some(revision) }));
            let remaining = rest.transpose().map_err(|error| too_old(error, options))?;
            return Ok(Listed { entries, revision, more, remaining });
        }
    }
}

/// 410 or 504: a list asked for a revision that is compacted, or that does not exist yet.
fn too_old(error: ReadError, options: &ListOptions) -> Status {
    match (error, &options.start) {
        (ReadError::Future { asked, newest }, _) => from_the_future(asked, newest),
        (ReadError::Compacted { .. }, Start::Beginning(_)) => {
            Status::expired("The resourceVersion for the provided list is too old.")
        }
        (ReadError::Compacted { .. }, Start::After(_, key)) => {
            Status::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results. Continuing with the provided token results in an inconsistent list - objects \
                 that were created, modified, or deleted between the time the first chunk was returned and now may \
                 show up in the list.",
            )
            .with_continue(format!("-/{key}"))
        }
    }
}

/// A continue token holds the revision and the last key: `17/default/web`. A dash stands for the newest revision.
fn token(revision: Revision, key: &str) -> String {
    format!("{}/{key}", revision.0)
}

fn parse_token(token: &str) -> Result<Start, Status> {
    let invalid = || {
        Status::bad_request(format!(
            "invalid continue token: continue key is not valid: {token:?} is not from this server"
        ))
    };
    let (revision, key) = token.split_once('/').ok_or_else(invalid)?;
    match revision {
        "-" => Ok(Start::After(None, key.to_owned())),
        revision => {
            let revision = revision.parse().map_err(|_| invalid())?;
            Ok(Start::After(Some(Revision(revision)), key.to_owned()))
        }
    }
}

/// The `resourceVersion` parameter of a read.
fn version(query: &Query) -> Result<Option<Revision>, Status> {
    parse_version(query).map_err(|error| Status::bad_request(format!("invalid resource version: {error}")))
}

/// The `resourceVersion` parameter, or what is wrong with it.
pub(crate) fn parse_version(query: &Query) -> Result<Option<Revision>, FieldError> {
    let invalid = |text: &str| {
        let large = text.bytes().all(|byte| byte.is_ascii_digit());
        let problem = if large { "value out of range" } else { "invalid syntax" };
        let why = format!("strconv.ParseUint: parsing {text:?}: {problem}");
        FieldError::invalid(FieldPath::new("resourceVersion"), text.into(), why)
    };
    let parse = |text: &str| {
        // A version has no sign.
        let digits = Some(text).filter(|text| !text.starts_with('+'));
        digits.and_then(|digits| digits.parse().ok()).map(Revision).ok_or_else(|| invalid(text))
    };
    query.get("resourceVersion").map(parse).transpose()
}

/// Refuses a version that does not exist yet.
pub(crate) fn not_from_the_future(store: &dyn Store, asked: Revision) -> Result<(), Status> {
    let newest = store.revision();
    if asked > newest { Err(from_the_future(asked, newest)) } else { Ok(()) }
}

fn from_the_future(asked: Revision, newest: Revision) -> Status {
    let message = format!("Timeout: Too large resource version: {}, current: {}", asked.0, newest.0);
    Status::failure(504, "Timeout", message)
        .with_cause("ResourceVersionTooLarge", "Too large resource version", "")
        .retry_after(1)
}
