//! What claims and volumes need. In: a claim with the volumes, the classes and its first pod; or a volume with its claim.
//! Out: the next step. Pure.

use std::sync::Arc;

use konverge_core::LabelSelector;

use super::kind::{BIND_COMPLETED, BOUND_BY_CONTROLLER, Class, PROVISIONED_BY, Volume};
use crate::claims::Claim;
use crate::quantity::amount;

/// Who makes volumes here: nothing is behind them.
pub(super) const PROVISIONER: &str = "konverge.dev/simulated";

/// Who makes none: the volumes of such a class are there already.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The first pod that uses a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Consumer {
    Nobody,
    /// A pod of this name that has no node yet.
    Unscheduled(String),
    /// A pod on this node.
    On(String),
}

/// What a claim needs next.
#[derive(Debug, PartialEq)]
pub(super) enum ClaimStep {
    /// Nothing.
    Rest,
    /// It is the default class that it means.
    Class(String),
    /// A volume is to be made for it.
    Provision(Arc<Class>),
    /// This is its volume.
    Bind(Arc<Volume>),
    /// It waits; this is why.
    Wait(Why),
    /// Its volume is lost; this is why.
    Lost(Why),
}

/// Why something is so.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Why {
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

/// What a volume needs next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VolumeStep {
    /// Nothing.
    Rest,
    /// It is in another phase.
    Phase(&'static str),
    /// It goes, as its policy says.
    Delete,
    /// Its claim has another volume: it is free again.
    Free,
}

/// What there is for a claim.
pub(super) struct Seen<'a> {
    pub claim: &'a Claim,
    pub volumes: &'a [Arc<Volume>],
    pub classes: &'a [Arc<Class>],
    pub consumer: Consumer,
}

/// What a claim needs next.
pub(super) fn claim_step(seen: &Seen<'_>) -> ClaimStep {
    let claim = seen.claim;
    let named = seen.volumes.iter().find(|volume| volume.metadata.name == claim.spec.volume_name);
    if claim.metadata.annotations.contains_key(BIND_COMPLETED) {
        return bound(claim, named);
    }
    if claim.metadata.is_terminating() {
        return ClaimStep::Rest;
    }
    if !claim.spec.volume_name.is_empty() {
        return asked_for(claim, named);
    }
    let Some(class_name) = &claim.spec.storage_class_name else {
        return match default_class(seen.classes) {
            Some(class) => ClaimStep::Class(class.metadata.name.clone()),
            None => unclassed(seen),
        };
    };
    if class_name.is_empty() {
        return unclassed(seen);
    }
    let class = seen.classes.iter().find(|class| class.metadata.name == *class_name);
    let waits = class.is_some_and(|class| class.waits());
    if let Some(volume) = best(claim, seen.volumes, waits && !matches!(seen.consumer, Consumer::On(_))) {
        return ClaimStep::Bind(volume);
    }
    match (class, &seen.consumer) {
        (None, _) => {
            wait(true, "ProvisioningFailed", format!("storageclass.storage.k8s.io \"{class_name}\" not found"))
        }
        (Some(_), Consumer::Nobody) if waits => {
            wait(false, "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
        }
        (Some(_), Consumer::Unscheduled(pod)) if waits => {
            wait(false, "WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled"))
        }
        (Some(class), _) => match class.provisioner.as_str() {
            PROVISIONER => ClaimStep::Provision(class.clone()),
            NO_PROVISIONER => ClaimStep::Wait(no_volume()),
            other => wait(
                false,
                "ExternalProvisioning",
                format!(
                    "Waiting for a volume to be created either by the external provisioner '{other}' or manually by the \
                     system administrator. If volume creation is delayed, please verify that the provisioner is running and \
                     correctly registered."
                ),
            ),
        },
    }
}

/// What a volume needs next. The claim is the one of the name that the volume says.
pub(super) fn volume_step(volume: &Volume, claim: Option<&Claim>) -> VolumeStep {
    let phase = |phase: &'static str| match volume.status.phase == phase {
        true => VolumeStep::Rest,
        false => VolumeStep::Phase(phase),
    };
    let deletes = volume.spec.persistent_volume_reclaim_policy == "Delete";
    let is_reserved = volume.spec.claim_ref.as_ref().is_some_and(|claim| !claim.uid.is_empty());
    if !is_reserved {
        return phase("Available");
    }
    let claim = claim.filter(|claim| volume.spec.claim_ref.as_ref().is_some_and(|reference| reference.is(claim)));
    match claim {
        Some(claim) if claim.spec.volume_name == volume.metadata.name => phase("Bound"),
        // The claim is on its way here.
        Some(claim) if claim.spec.volume_name.is_empty() => VolumeStep::Rest,
        Some(_) if !(deletes && volume.metadata.annotations.contains_key(PROVISIONED_BY)) => VolumeStep::Free,
        _ if volume.status.phase != "Released" => VolumeStep::Phase("Released"),
        _ if deletes && !volume.metadata.is_terminating() => VolumeStep::Delete,
        _ => VolumeStep::Rest,
    }
}

/// The class for claims that name none: the newest, if there are several.
pub(super) fn default_class(classes: &[Arc<Class>]) -> Option<&Arc<Class>> {
    let defaults = classes.iter().filter(|class| class.is_default());
    defaults.max_by_key(|class| (class.metadata.created(), std::cmp::Reverse(class.metadata.name.clone())))
}

/// Whether the controller itself, and not its owner, chose what this is bound to.
pub(super) fn is_bound_by_controller(volume: &Volume) -> bool {
    volume.metadata.annotations.contains_key(BOUND_BY_CONTROLLER)
}

/// A claim that has been bound before.
fn bound(claim: &Claim, volume: Option<&Arc<Volume>>) -> ClaimStep {
    let lost = |message: &str| lost(claim, "ClaimLost", message);
    if claim.spec.volume_name.is_empty() {
        return lost("Bound claim has lost reference to PersistentVolume. Data on the volume is lost!");
    }
    let Some(volume) = volume else {
        return lost("Bound claim has lost its PersistentVolume. Data on the volume is lost!");
    };
    match &volume.spec.claim_ref {
        Some(reference) if !reference.is(claim) => {
            self::lost(claim, "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
        }
        Some(reference) if !reference.uid.is_empty() && is_settled(claim, volume) => ClaimStep::Rest,
        _ => ClaimStep::Bind(volume.clone()),
    }
}

/// Whether a claim says of itself what its volume is.
fn is_settled(claim: &Claim, volume: &Volume) -> bool {
    claim.status.phase == "Bound"
        && claim.status.access_modes == volume.spec.access_modes
        && claim.status.capacity == volume.spec.capacity
}

/// A claim that names its volume.
fn asked_for(claim: &Claim, volume: Option<&Arc<Volume>>) -> ClaimStep {
    let name = &claim.spec.volume_name;
    let Some(volume) = volume else {
        return wait(false, "FailedBinding", format!("volume \"{name}\" not found"));
    };
    match &volume.spec.claim_ref {
        Some(reference) if reference.is(claim) => ClaimStep::Bind(volume.clone()),
        Some(_) => wait(true, "FailedBinding", format!("volume \"{name}\" already bound to a different claim.")),
        None => match mismatch(claim, volume) {
            Some(why) => wait(true, "VolumeMismatch", format!("Cannot bind to requested volume \"{name}\": {why}")),
            None => ClaimStep::Bind(volume.clone()),
        },
    }
}

/// A claim that wants no class, or for which there is none: only volumes that are there will do.
fn unclassed(seen: &Seen<'_>) -> ClaimStep {
    best(seen.claim, seen.volumes, false).map_or_else(|| ClaimStep::Wait(no_volume()), ClaimStep::Bind)
}

fn no_volume() -> Why {
    let message = "no persistent volumes available for this claim and no storage class is set".to_owned();
    Why { warning: false, reason: "FailedBinding", message }
}

/// The volume that suits a claim best: one that is kept for it, else the one with the fewest access modes, else the
/// smallest. If it waits, only one that is kept for it will do.
fn best(claim: &Claim, volumes: &[Arc<Volume>], waits: bool) -> Option<Arc<Volume>> {
    let fits = |volume: &&Arc<Volume>| {
        !volume.metadata.is_terminating()
            && is_big_enough(claim, volume)
            && mode(&claim.spec.volume_mode) == mode(&volume.spec.volume_mode)
            && has_modes(claim, volume)
    };
    let kept = |volume: &&Arc<Volume>| volume.spec.claim_ref.as_ref().is_some_and(|reference| reference.is(claim));
    if let Some(kept) = volumes.iter().filter(fits).find(kept) {
        return Some(kept.clone());
    }
    let selector = LabelSelector::from_object(&claim.spec.selector).ok()?;
    let is_free = |volume: &&Arc<Volume>| {
        volume.spec.claim_ref.is_none()
            && volume.status.phase == "Available"
            && volume.spec.storage_class_name == class(claim)
            && selector.matches(&volume.metadata.labels)
    };
    let free = volumes.iter().filter(fits).filter(is_free).filter(|_| !waits);
    free.min_by_key(|volume| {
        (volume.spec.access_modes.len(), amount(&volume.spec.capacity.storage), volume.metadata.name.clone())
    })
    .cloned()
}

/// Why a volume that a claim names does not suit it.
fn mismatch(claim: &Claim, volume: &Volume) -> Option<String> {
    match () {
        () if volume.metadata.is_terminating() => {
            Some(format!("the volume is marked for deletion \"{}\"", volume.metadata.name))
        }
        () if !is_big_enough(claim, volume) => Some("requested PV is too small".into()),
        () if volume.spec.storage_class_name != class(claim) => Some("storageClassName does not match".into()),
        () if mode(&claim.spec.volume_mode) != mode(&volume.spec.volume_mode) => Some("incompatible volumeMode".into()),
        () if !has_modes(claim, volume) => Some("incompatible accessMode".into()),
        () => None,
    }
}

fn is_big_enough(claim: &Claim, volume: &Volume) -> bool {
    amount(&volume.spec.capacity.storage) >= amount(&claim.spec.resources.requests.storage)
}

fn has_modes(claim: &Claim, volume: &Volume) -> bool {
    claim.spec.access_modes.iter().all(|mode| volume.spec.access_modes.contains(mode))
}

fn class(claim: &Claim) -> &str {
    claim.spec.storage_class_name.as_deref().unwrap_or_default()
}

fn mode(mode: &Option<String>) -> &str {
    mode.as_deref().unwrap_or("Filesystem")
}

fn wait(warning: bool, reason: &'static str, message: impl Into<String>) -> ClaimStep {
    ClaimStep::Wait(Why { warning, reason, message: message.into() })
}

fn lost(claim: &Claim, reason: &'static str, message: &str) -> ClaimStep {
    match claim.status.phase.as_str() {
        "Lost" => ClaimStep::Rest,
        _ => ClaimStep::Lost(Why { warning: true, reason, message: message.into() }),
    }
}

#[cfg(test)]
mod tests;
