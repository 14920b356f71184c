//! What was seen of an operator, as verdicts are made from it. The shell in `observe` fills this in; `verdicts` read it. Nothing here decides anything.

use std::collections::BTreeMap;

use konverge_apiserver::PermissionReport;
use serde_json::Value;

use super::end_state::EndState;
use super::write_record::Write;

/// Something that was looked at: nothing if it was not, and why if it could not be.
pub(super) type Looked<T> = Option<Result<T, String>>;

/// Everything that was seen.
#[derive(Default)]
pub(super) struct Observations {
    /// The CRDs that the operator prints.
    pub definitions: Vec<Value>,
    /// The objects that the operator is deployed with.
    pub manifests: Vec<Value>,
    /// The samples as their files have them, with where they are from.
    pub samples: Vec<(String, Value)>,
    /// Alerts in the files of the project: names and expressions.
    pub alerts: Vec<(String, String)>,
    pub bundle: Looked<SeenBundle>,
    pub deployment: Looked<Deployment>,
    pub undisturbed: Looked<Undisturbed>,
    pub interrupted: Looked<Disturbed>,
    pub refused: Looked<Disturbed>,
    pub upgrade: Looked<Upgrade>,
    /// What the project declares in its `scorecard.yaml`, by name, and how it went.
    pub procedures: BTreeMap<&'static str, Looked<Procedure>>,
}

/// The bundle for OLM, as `konverge bundle` makes it.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenBundle {
    pub csv: Value,
    /// What `konverge bundle validate` calls errors.
    pub errors: Vec<String>,
}

/// The generated manifests in a cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Deployment {
    /// What the server refused, with its words.
    pub refused: Vec<String>,
    /// What does not become ready; nothing if the Pods of the operator are.
    pub not_ready: Option<String>,
}

/// How an operator started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Started {
    Ready,
    /// It serves no readiness, so nobody knows.
    NoProbe,
    Ended {
        how: String,
        last_words: Vec<String>,
    },
    NotReady {
        why: String,
        last_words: Vec<String>,
    },
}

impl Started {
    /// Whether it is of use to look further.
    pub(super) fn runs(&self) -> bool {
        matches!(self, Self::Ready | Self::NoProbe)
    }

    /// What went wrong, for people.
    pub(super) fn problem(&self) -> Option<String> {
        let (what, last_words) = match self {
            Self::Ready | Self::NoProbe => return None,
            Self::Ended { how, last_words } => (format!("the operator ended ({how})"), last_words),
            Self::NotReady { why, last_words } => (format!("the operator is not ready: {why}"), last_words),
        };
        let said = if last_words.is_empty() { "it said nothing".to_owned() } else { last_words.join("\n") };
        Some(format!("{what}\n{said}"))
    }
}

/// How a time without writes was waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// The operator stopped writing.
    Quiet,
    /// It wrote until the time was up; these are its last writes.
    Restless(Vec<String>),
    /// It ended.
    Ended(String),
}

/// An operator that nobody disturbs, from its start to the deletion of its samples.
pub(super) struct Undisturbed {
    /// CRDs that the server refused, or whose schema is not structural.
    pub bad_definitions: Vec<String>,
    pub started: Started,
    /// Nothing from here on if it did not start.
    pub life: Option<Life>,
}

/// What a started operator did.
pub(super) struct Life {
    /// Samples that the server refused: where they are from, and why.
    pub refused_samples: Vec<(String, String)>,
    pub rest: Rest,
    /// The samples as they are at rest.
    pub samples: Vec<Value>,
    /// What the operator made for them.
    pub children: Vec<Value>,
    /// What the operator wrote until it was at rest.
    pub writes: Vec<Write>,
    /// What the server refused to write for it.
    pub refusals: Vec<Write>,
    /// Events about the samples.
    pub events: Vec<Value>,
    /// The page of its metrics at rest.
    pub metrics: Option<String>,
    pub log: Vec<String>,
    pub end_state: EndState,
    pub again: Option<Again>,
    pub healed: Vec<Healed>,
    pub scaled: Vec<Scaled>,
    pub deleted: Option<Deleted>,
    pub rights: Option<PermissionReport>,
}

/// A second reconcile of everything.
#[derive(Clone, Debug, Default)]
pub(super) struct Again {
    /// What it wrote after a restart, in which all objects are reconciled.
    pub after_restart: Vec<Write>,
    /// What it wrote after its objects were touched without a change that matters.
    pub after_touch: Vec<Write>,
    /// How many reconciles there were, if its metrics tell.
    pub reconciles: Option<f64>,
}

/// A child that was disturbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Healed {
    /// `Deployment default/web`
    pub child: String,
    pub how: Disturbance,
    /// What is still wrong when the time is up; nothing if it is as before.
    pub left: Option<String>,
}

/// What was done to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
    Deleted,
    Changed,
}

/// A sample whose number of replicas was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scaled {
    pub sample: String,
    pub replicas: i64,
    /// Whether a child has as many.
    pub followed: bool,
    /// Whether the status tells the generation of the change.
    pub observed: bool,
}

/// The samples were deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Deleted {
    /// Samples that are still there, with their finalizers.
    pub stuck: Vec<String>,
    /// What the operator made and left behind.
    pub left: Vec<String>,
}

/// A run in which the operator or the server failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Disturbed {
    /// How many times: kills, or refused writes.
    pub times: usize,
    /// What kept it from the end, if something did.
    pub problem: Option<String>,
    /// What is different from the undisturbed run.
    pub differences: Vec<String>,
}

/// From the previous version of the operator to this one.
#[derive(Clone, Debug, Default)]
pub(super) struct Upgrade {
    /// What the new CRDs break.
    pub breaking: Vec<String>,
    /// What went wrong with the previous operator under the new CRDs.
    pub skew: Vec<String>,
    /// What went wrong when this version took over.
    pub problems: Vec<String>,
    /// What of these could not be seen, of the previous operator and of this version: nobody knows whether reconciles failed.
    pub skew_unseen: Option<String>,
    pub problems_unseen: Option<String>,
    /// What is lost or was made anew.
    pub lost: Vec<String>,
    /// How many objects were kept.
    pub kept: usize,
}

/// A procedure that the project declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Procedure {
    /// What was waited for.
    pub until: String,
    /// Why it did not come; nothing if it did.
    pub missing: Option<String>,
}
