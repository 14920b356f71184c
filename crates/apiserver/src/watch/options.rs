//! The options of a watch. In: the query of a request. Out: where the watch starts and what it sends, or the `Status` for
//! parameters that do not fit together.

use std::time::Duration;

use konverge_core::{FieldError, FieldPath, Status};
use konverge_store::Revision;

use crate::negotiate::Encoding;
use crate::read::{ListOptions, parse_version};
use crate::request::{Query, invalid_options};

/// A piece of the answer ends with the event that passes this size, so a client that does not read holds this much and one
/// object.
pub(super) const PIECE_BYTES: usize = 128 * 1024;

/// What a watch asks for.
#[derive(Debug)]
pub(crate) struct WatchOptions {
    /// The revision to start after.
    pub after: Option<Revision>,
    /// Whether the watch begins with the objects that exist.
    pub initial: bool,
    /// Whether a bookmark marks the end of the initial objects.
    pub initial_ends: bool,
    pub bookmarks: bool,
    pub timeout: Option<Duration>,
    /// A piece ends with the event that passes this size.
    pub piece_bytes: usize,
    /// JSON or protobuf.
    pub encoding: Encoding,
}

impl WatchOptions {
    /// Reads and checks the parameters.
    pub(crate) fn parse(query: &Query) -> Result<Self, Status> {
        // Watches have no limit, but what is given has to be a number.
        let (timeout, _limit) = (query.number("timeoutSeconds")?, query.number("limit")?);
        let send_initial = match query.flag("watch") {
            true => check(query)?,
            false => {
                // The path asks for the watch, and kube-apiserver takes its parameters for those of a list.
                ListOptions::check(query)?;
                None
            }
        };
        // kube-apiserver makes no 4xx of this.
        let asked = parse_version(query).map_err(|error| Status::failure(500, "", error.to_string()))?;
        let after = asked.filter(|revision| revision.0 > 0);
        let bookmarks = query.flag("allowWatchBookmarks");
        let timeout = timeout.filter(|seconds| *seconds > 0);
        Ok(Self {
            after,
            // Without a version, or from "0", a watch begins with the objects that exist.
            initial: send_initial.unwrap_or(after.is_none()),
            initial_ends: send_initial == Some(true) && bookmarks,
            bookmarks,
            timeout: timeout.map(|seconds| Duration::from_secs(seconds.unsigned_abs())),
            piece_bytes: PIECE_BYTES,
            encoding: Encoding::Json,
        })
    }

    /// Each piece of the answer is one event.
    pub(crate) fn event_by_event(self) -> Self {
        Self { piece_bytes: 1, ..self }
    }
}

/// Refuses parameters that do not fit together. Gives whether the watch begins with the objects that exist, if that was said.
fn check(query: &Query) -> Result<Option<bool>, Status> {
    let mut errors = Vec::new();
    let mut matching = query.get("resourceVersionMatch");
    let mut send_initial = query.switch("sendInitialEvents");
    let from_any = matches!(query.get("resourceVersion"), None | Some("0"));
    if send_initial.is_none() && matching.is_none() && from_any {
        // What clients mean that know neither parameter; the rules are the same for them.
        (matching, send_initial) = (Some("NotOlderThan"), Some(true));
    }
    let path = || FieldPath::new("resourceVersionMatch");
    if send_initial.is_some() && matching != Some("NotOlderThan") {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden(path(), why));
    }
    if let Some(matching) = matching {
        if send_initial.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(path(), why));
        }
        if matching != "NotOlderThan" {
            errors.push(FieldError::not_supported(path(), matching.into(), ["NotOlderThan"]));
        }
        if query.get("continue").is_some() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(path(), why));
        }
    }
    invalid_options("ListOptions", &errors)?;
    Ok(send_initial)
}
