//! What an API server is told about a webhook besides its address. Each option has the safe default first. Plain data.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The shortest and longest time that an API server waits for a webhook.
pub(super) const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);
pub(super) const LONGEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What the API server does if the webhook cannot decide: it is away, fails, panics or takes too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// It refuses the request. Nothing that breaks the rules is stored, but without the operator nothing is stored at all.
    #[default]
    Fail,
    /// It goes on as if there were no webhook. Only for advice: whoever can make the webhook fail gets around it.
    Ignore,
}

/// Whether a webhook changes something besides the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SideEffects {
    /// It does not.
    #[default]
    None,
    /// It does, but not if the request is a dry run: see [`Admission::is_dry_run`](super::Admission::is_dry_run).
    NoneOnDryRun,
}

/// Which versions of a kind a webhook is called for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchPolicy {
    /// All versions of the kind; the API server converts the object to the one that the webhook knows.
    #[default]
    Equivalent,
    /// Only the version that the webhook knows. Whoever uses another one gets around it.
    Exact,
}

/// Whether a mutating webhook is called again if another one changed the object after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReinvocationPolicy {
    /// It is called once.
    #[default]
    Never,
    /// It may be called once more. Its function has to be idempotent.
    IfNeeded,
}

/// Everything that can be said, with its defaults.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub failure_policy: FailurePolicy,
    pub side_effects: SideEffects,
    pub match_policy: MatchPolicy,
    pub reinvocation: ReinvocationPolicy,
    pub timeout: Duration,
    pub namespaces: Option<LabelSelector>,
    pub objects: Option<LabelSelector>,
    /// Names with CEL expressions; all have to be true.
    pub conditions: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            failure_policy: FailurePolicy::default(),
            side_effects: SideEffects::default(),
            match_policy: MatchPolicy::default(),
            reinvocation: ReinvocationPolicy::default(),
            // Kubernetes' own default. A request waits for all webhooks, and its client for about a minute.
            timeout: Duration::from_secs(10),
            namespaces: None,
            objects: None,
            conditions: Vec::new(),
        }
    }
}

impl FailurePolicy {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

impl SideEffects {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::NoneOnDryRun => "NoneOnDryRun",
        }
    }
}

impl MatchPolicy {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Equivalent => "Equivalent",
            Self::Exact => "Exact",
        }
    }
}

impl ReinvocationPolicy {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Never => "Never",
            Self::IfNeeded => "IfNeeded",
        }
    }
}
