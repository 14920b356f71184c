//! Plans the next step of a claim or a volume. In: a claim with the volumes, the classes and its first pod; or a volume with
//! its claim. Out: the next step. Pure.

use std::sync::Arc;

use konverge_core::LabelSelector;

use super::kind::{BIND_COMPLETED, BOUND_BY_CONTROLLER, Class, PROVISIONED_BY, Volume};
use crate::context::PlannedEvent;
use crate::persistent_volume_claims::Claim;
use crate::quantity::amount;

/// The provisioner of simulated volumes, which have no storage behind them.
pub(super) const PROVISIONER: &str = "konverge.dev/simulated";

/// The name of the CSI driver of simulated volumes: a DNS subdomain, which a provisioner need not be.
pub(super) const DRIVER: &str = "simulated.konverge.dev";

/// The provisioner of classes whose volumes are created by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The first pod that uses a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Consumer {
    /// No pod uses the claim.
    Nobody,
    /// A pod of this name that has no node yet.
    Unscheduled(String),
    /// A pod that is scheduled to this node.
    Scheduled(String),
}

/// The next step of a claim.
#[derive(Debug, PartialEq)]
pub(super) enum ClaimStep {
    /// Nothing.
    Nothing,
    /// Set this default class.
    Class(String),
    /// Create a volume of this class.
    Provision(Arc<Class>),
    /// Bind this volume.
    Bind(Arc<Volume>),
    /// Wait, and record why.
    Wait(PlannedEvent),
    /// Its volume is lost; record why.
    Lost(PlannedEvent),
}

/// The next step of a volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VolumeStep {
    /// Nothing.
    Nothing,
    /// Set another phase.
    Phase(&'static str),
    /// Delete the volume, as its reclaim policy says.
    Delete,
    /// Remove the claimRef, because the claim has another volume.
    Free,
}

/// What the planner reads.
pub(super) struct Observed<'a> {
    pub claim: &'a Claim,
    pub volumes: &'a [Arc<Volume>],
    pub classes: &'a [Arc<Class>],
    pub consumer: Consumer,
}

/// The next step of a claim.
pub(super) fn claim_step(observed: &Observed<'_>) -> ClaimStep {
    let claim = observed.claim;
    let named = observed.volumes.iter().find(|volume| volume.metadata.name == claim.spec.volume_name);
    if claim.metadata.annotations.contains_key(BIND_COMPLETED) {
        return bound(claim, named);
    }
    if claim.metadata.is_terminating() {
        return ClaimStep::Nothing;
    }
    if !claim.spec.volume_name.is_empty() {
        return prebound(claim, named);
    }
    let Some(class_name) = &claim.spec.storage_class_name else {
        return match default_class(observed.classes) {
            Some(class) => ClaimStep::Class(class.metadata.name.clone()),
            None => without_class(observed),
        };
    };
    if class_name.is_empty() {
        return without_class(observed);
    }
    let class = observed.classes.iter().find(|class| class.metadata.name == *class_name);
    let waits = class.is_some_and(|class| class.waits());
    if let Some(volume) = best(claim, observed.volumes, waits && !matches!(observed.consumer, Consumer::Scheduled(_))) {
        return ClaimStep::Bind(volume);
    }
    match (class, &observed.consumer) {
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

/// The next step of a volume. `claim` is the claim that its claimRef names.
pub(super) fn volume_step(volume: &Volume, claim: Option<&Claim>) -> VolumeStep {
    let phase = |phase: &'static str| match volume.status.phase == phase {
        true => VolumeStep::Nothing,
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
        // The claim is not bound yet.
        Some(claim) if claim.spec.volume_name.is_empty() => VolumeStep::Nothing,
        Some(_) if !(deletes && volume.metadata.annotations.contains_key(PROVISIONED_BY)) => VolumeStep::Free,
        _ if volume.status.phase != "Released" => VolumeStep::Phase("Released"),
        _ if deletes && !volume.metadata.is_terminating() => VolumeStep::Delete,
        _ => VolumeStep::Nothing,
    }
}

/// The default class: the newest, if there are several.
pub(super) fn default_class(classes: &[Arc<Class>]) -> Option<&Arc<Class>> {
    let defaults = classes.iter().filter(|class| class.is_default());
    defaults.max_by_key(|class| (class.metadata.created(), std::cmp::Reverse(class.metadata.name.clone())))
}

/// Whether the controller, and not a user, bound this volume.
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
        Some(reference) if !reference.uid.is_empty() && is_status_current(claim, volume) => ClaimStep::Nothing,
        _ => ClaimStep::Bind(volume.clone()),
    }
}

/// Whether the status of a claim agrees with its volume.
fn is_status_current(claim: &Claim, volume: &Volume) -> bool {
    claim.status.phase == "Bound"
        && claim.status.access_modes == volume.spec.access_modes
        && claim.status.capacity == volume.spec.capacity
}

/// A claim that names its volume before it is bound.
fn prebound(claim: &Claim, volume: Option<&Arc<Volume>>) -> ClaimStep {
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

/// A claim without a class: only an existing volume can be bound.
fn without_class(observed: &Observed<'_>) -> ClaimStep {
    best(observed.claim, observed.volumes, false).map_or_else(|| ClaimStep::Wait(no_volume()), ClaimStep::Bind)
}

fn no_volume() -> PlannedEvent {
    let message = "no persistent volumes available for this claim and no storage class is set".to_owned();
    PlannedEvent { warning: false, reason: "FailedBinding", message }
}

/// The best volume for a claim: one that is reserved for it, else the one with the fewest access modes, else the smallest. If
/// the claim waits for a pod, only a reserved volume is taken.
fn best(claim: &Claim, volumes: &[Arc<Volume>], waits: bool) -> Option<Arc<Volume>> {
    let fits = |volume: &&Arc<Volume>| {
        !volume.metadata.is_terminating()
            && is_big_enough(claim, volume)
            && mode(&claim.spec.volume_mode) == mode(&volume.spec.volume_mode)
            && has_modes(claim, volume)
    };
    let reserved = |volume: &&Arc<Volume>| volume.spec.claim_ref.as_ref().is_some_and(|reference| reference.is(claim));
    if let Some(reserved) = volumes.iter().filter(fits).find(reserved) {
        return Some(reserved.clone());
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

/// Why a claim cannot be bound to the volume that it names.
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
    ClaimStep::Wait(PlannedEvent { warning, reason, message: message.into() })
}

fn lost(claim: &Claim, reason: &'static str, message: &str) -> ClaimStep {
    match claim.status.phase.as_str() {
        "Lost" => ClaimStep::Nothing,
        _ => ClaimStep::Lost(PlannedEvent { warning: true, reason, message: message.into() }),
    }
}

#[cfg(test)]
mod tests;
