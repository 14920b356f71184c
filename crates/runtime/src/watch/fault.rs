//! What is wrong with a watch. In: an error of kube's watcher. Out: what to do about it, and the words for whoever reads
//! the log. Pure.

use kube::core::Status;
use kube::runtime::watcher;

use super::Target;

/// What an error means for the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server does not know the kind.
    NotInstalled,
    /// The server knows us, and says no to this verb.
    Forbidden(&'static str),
    /// The changes since we last looked are gone: list anew.
    Expired,
    /// The server is behind what we have seen: list anew, and forget how far it was.
    Rewound,
    /// The server does not stream lists: ask for pages.
    NoStreaming,
    /// A line could not be read, so a change may be lost: list anew.
    Garbled,
    /// Anything else: try again where we were.
    Broken,
}

impl Fault {
    /// Judges an error. `streaming` says whether the list was to be streamed.
    pub(super) fn of(error: &watcher::Error, streaming: bool) -> Self {
        use kube::Error;
        match error {
            watcher::Error::InitialListFailed(Error::Api(status)) => Self::of_status(status, "list", false),
            watcher::Error::WatchStartFailed(Error::Api(status)) => Self::of_status(status, "watch", streaming),
            watcher::Error::WatchError(status) => Self::of_status(status, "watch", false),
            watcher::Error::WatchFailed(Error::Api(status)) => Self::of_status(status, "watch", false),
            watcher::Error::WatchFailed(Error::SerdeError(_)) => Self::Garbled,
            _ => Self::Broken,
        }
    }

    fn of_status(status: &Status, verb: &'static str, streaming: bool) -> Self {
        match status.code {
            400 | 405 | 406 | 415 | 422 if streaming => Self::NoStreaming,
            403 => Self::Forbidden(verb),
            404 => Self::NotInstalled,
            // One that was restored from a backup, or keeps nothing and was restarted, will not come back to what we saw.
            _ if status.message.to_ascii_lowercase().contains("too large resource version") => Self::Rewound,
            410 => Self::Expired,
            _ => Self::Broken,
        }
    }

    /// Whether the watcher has to begin with a list. Errors it can resume after are not among them.
    pub(super) fn starts_over(&self) -> bool {
        match self {
            Self::NotInstalled | Self::Expired | Self::Rewound | Self::NoStreaming | Self::Garbled => true,
            Self::Forbidden(_) | Self::Broken => false,
        }
    }
}

/// The RBAC rule that would allow `verb`, as one writes it.
pub(crate) fn missing_rule(target: &Target, verb: &str) -> String {
    let group = &target.resource.group;
    let place = match &target.namespace {
        Some(namespace) => format!("a Role in namespace {namespace}"),
        None => "a ClusterRole".to_owned(),
    };
    format!(
        "{place} needs the rule: apiGroups: [\"{group}\"], resources: [\"{}\"], verbs: [\"list\", \"watch\"]; \
         refused was the verb {verb}; operators declare such rules with .owns, .watches or .needs",
        target.resource.plural
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults() {
        let status = |code, message: &str| Status { code, message: message.into(), ..Status::default() }.boxed();
        let listing = |code| watcher::Error::InitialListFailed(kube::Error::Api(status(code, "")));
        let starting = |code| watcher::Error::WatchStartFailed(kube::Error::Api(status(code, "")));
        let line = |code| watcher::Error::WatchError(status(code, ""));
        let too_large =
            watcher::Error::WatchStartFailed(kube::Error::Api(status(504, "Too large resource version: 9")));
        let too_large_line = watcher::Error::WatchError(status(410, "too large resource version: 9 (3)"));
        let serde = serde_json::from_str::<u8>("x").unwrap_err();
        for (error, streaming, expect) in [
            (listing(404), false, Fault::NotInstalled),
            (starting(404), true, Fault::NotInstalled),
            (listing(403), false, Fault::Forbidden("list")),
            (starting(403), true, Fault::Forbidden("watch")),
            (starting(410), false, Fault::Expired),
            (listing(410), false, Fault::Expired),
            (line(410), false, Fault::Expired),
            (too_large, false, Fault::Rewound),
            (too_large_line, false, Fault::Rewound),
            (starting(422), true, Fault::NoStreaming),
            (starting(400), true, Fault::NoStreaming),
            (starting(422), false, Fault::Broken),
            (starting(500), true, Fault::Broken),
            (starting(429), true, Fault::Broken),
            (line(500), false, Fault::Broken),
            (watcher::Error::WatchFailed(kube::Error::SerdeError(serde)), false, Fault::Garbled),
            (watcher::Error::NoResourceVersion, false, Fault::Broken),
        ] {
            assert_eq!(Fault::of(&error, streaming), expect, "{error}");
        }
    }
}
