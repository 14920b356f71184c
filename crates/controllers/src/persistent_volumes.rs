//! The controller of claims and volumes. In: PersistentVolumeClaims, PersistentVolumes, StorageClasses and pods. Out: claims and
//! volumes bound to each other, volumes provisioned for claims, and released volumes deleted. `plan` decides; this file reads
//! caches and sends writes. A volume that is provisioned here has no storage: it has the label `konverge.dev/simulated`, and
//! its class and its driver have that name.

mod kind;
mod plan;

use std::sync::Arc;

use k8s_openapi::api::{core::v1 as core, storage::v1 as storage};
use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{
    Action, CacheOf, Cause, Controller, Object, Predicate, Result, Run, Target, Trigger, What, WriteError,
};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::context::{ControllerContext, PlannedEvent};
use crate::control_plane::{Manager, Task};
use crate::meta::Meta;
use crate::persistent_volume_claims::{self, Claim};
use crate::pods::{self, Pods};
use crate::requests::DeleteOptions;
use crate::simulator::SIMULATED;
use crate::storage_protection::VOLUME_FINALIZER;

use kind::{BIND_COMPLETED, BOUND_BY_CONTROLLER, ClaimRef, Class, IS_DEFAULT, PROVISIONED_BY, SELECTED_NODE, Volume};
use plan::{ClaimStep, Consumer, DRIVER, Observed, PROVISIONER, VolumeStep};

/// The name in kube-controller-manager.
pub(crate) const NAME: &str = "persistentvolume-binder-controller";

/// The class that is there for claims that name none.
const CLASS: &str = "simulated";

/// The index of volumes by the claim they are for, and of claims that have none yet.
const BY_CLAIM: &str = "claim";
const UNBOUND: &str = "unbound";

/// What the key of a class begins with. No volume has such a name.
const CLASS_KEY: &str = "class:";

/// Starts the controller.
pub(crate) fn start(manager: &Manager) -> Task {
    let ctx = manager.context(NAME);
    let controller = ctx.controller(persistent_volume_claims::target());
    controller.primary().add_index(UNBOUND, |claim| match claim.pointer("/status/phase") {
        Some("\"Bound\"") => Vec::new(),
        _ => vec![String::new()],
    });
    let pods = Pods::new(&ctx);
    persistent_volume_claims::index(pods.cache());
    controller.watch(
        pods::target(),
        Trigger::mapped("Pod", persistent_volume_claims::used_by).when(Predicate::spec_changed()),
    );
    // What is not in a namespace is a volume or a class. A volume wakes its claim as well.
    let volumes = controller.watch(
        volume_target(),
        Trigger::mapped("PersistentVolume", |volume| {
            let claim = claim_of(volume).map(|claim| claim.key());
            std::iter::once(ObjectKey::new(None, volume.name())).chain(claim).collect()
        }),
    );
    volumes.add_index(BY_CLAIM, |volume| claim_of(volume).map(|claim| claim.key().to_string()).into_iter().collect());
    let classes = controller.watch(
        Target::of::<storage::StorageClass>(),
        Trigger::mapped("StorageClass", |class| vec![class_key(class.name())]),
    );
    let this = Arc::new(Volumes {
        claims: CacheOf::new(controller.primary().clone()),
        volumes: CacheOf::new(volumes),
        classes: CacheOf::new(classes),
        pods,
        claims_api: persistent_volume_claims::api(),
        volumes_api: volume_api(),
        classes_api: ApiResource::erase::<storage::StorageClass>(&()),
        controller: controller.clone(),
        ctx: ctx.clone(),
    });
    this.wake(&class_key(""));
    ctx.run_controller(controller, move |run| this.clone().reconcile(run))
}

/// The kind of volumes.
pub(crate) fn volume_api() -> ApiResource {
    ApiResource::erase::<core::PersistentVolume>(&())
}

/// All volumes.
pub(crate) fn volume_target() -> Target {
    Target::of::<core::PersistentVolume>()
}

struct Volumes {
    ctx: ControllerContext,
    claims: CacheOf<Claim>,
    volumes: CacheOf<Volume>,
    classes: CacheOf<Class>,
    pods: Pods,
    claims_api: ApiResource,
    volumes_api: ApiResource,
    classes_api: ApiResource,
    controller: Arc<Controller>,
}

impl Volumes {
    async fn reconcile(self: Arc<Self>, run: Run) -> Result<Action> {
        match (run.key.namespace(), run.key.name().strip_prefix(CLASS_KEY)) {
            (Some(_), _) => self.claim(&run.key).await?,
            (None, Some("")) => self.offer_class().await?,
            (None, Some(_)) => self.wake_unbound(),
            (None, None) => self.volume(&run.key).await?,
        }
        Ok(Action::Wait)
    }

    /// Creates the class of simulated volumes, unless a user has created one.
    async fn offer_class(&self) -> Result<()> {
        let classes = self.classes();
        if classes.iter().any(|class| class.provisioner == PROVISIONER) {
            return Ok(());
        }
        let is_default = plan::default_class(&classes).is_none();
        let class = json!({
            "apiVersion": self.classes_api.api_version,
            "kind": self.classes_api.kind,
            "metadata": {
                "name": CLASS,
                "labels": {SIMULATED: "true"},
                "annotations": {IS_DEFAULT: is_default.to_string()},
            },
            "provisioner": PROVISIONER,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate",
            "allowVolumeExpansion": false,
        });
        match self.ctx.create(&self.classes_api, &class).await {
            Ok(_) | Err(WriteError::Exists { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn claim(&self, key: &ObjectKey) -> Result<()> {
        let Some(claim) = self.claims.get(key)? else {
            for volume in self.volumes.cache().by_index(BY_CLAIM, &key.to_string()) {
                self.wake(&volume.key());
            }
            return Ok(());
        };
        let volumes = self.volumes.list(None, &LabelSelector::default());
        let volumes: Vec<Arc<Volume>> = volumes.into_iter().flatten().collect();
        let (classes, consumer) = (self.classes(), self.consumer(key));
        let node = match &consumer {
            Consumer::Scheduled(node) => Some(node.clone()),
            _ => None,
        };
        let step = plan::claim_step(&Observed { claim: &claim, volumes: &volumes, classes: &classes, consumer });
        match step {
            ClaimStep::Nothing => Ok(()),
            ClaimStep::Class(class) => {
                let patch = json!({"spec": {"storageClassName": class}});
                // This change wakes the claim again.
                self.ctx.merge_patch(&self.claims_api, &claim.metadata, "", patch).await
            }
            ClaimStep::Provision(class) => {
                let volume = self.provision(&claim, &class).await?;
                self.bind(&claim, &volume, node.filter(|_| class.waits())).await
            }
            ClaimStep::Bind(volume) => {
                let waits =
                    classes.iter().any(|class| class.metadata.name == volume.spec.storage_class_name && class.waits());
                self.bind(&claim, &volume, node.filter(|_| waits)).await
            }
            ClaimStep::Wait(event) => self.claim_phase(&claim, "Pending", &event).await,
            ClaimStep::Lost(event) => self.claim_phase(&claim, "Lost", &event).await,
        }
    }

    async fn claim_phase(&self, claim: &Claim, phase: &str, event: &PlannedEvent) -> Result<()> {
        let subject = Arc::new(claim.metadata.subject(&self.claims_api));
        self.ctx.record(&subject, event);
        match claim.status.phase == phase {
            true => Ok(()),
            false => {
                self.ctx
                    .merge_patch(&self.claims_api, &claim.metadata, "status", json!({"status": {"phase": phase}}))
                    .await
            }
        }
    }

    /// Creates a simulated volume for a claim; there is no storage behind it.
    async fn provision(&self, claim: &Claim, class: &Class) -> Result<Arc<Volume>> {
        let name = format!("pvc-{}", claim.metadata.uid);
        let subject = Arc::new(claim.metadata.subject(&self.claims_api));
        let mut volume = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": name,
                "labels": {SIMULATED: "true"},
                "finalizers": [VOLUME_FINALIZER],
                "annotations": {SIMULATED: "true", PROVISIONED_BY: PROVISIONER, BOUND_BY_CONTROLLER: "yes"},
            },
            "spec": {
                "accessModes": claim.spec.access_modes,
                "capacity": {"storage": claim.spec.resources.requests.storage},
                "claimRef": self.reference(claim),
                "csi": {"driver": DRIVER, "volumeHandle": name},
                "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
                "storageClassName": class.metadata.name,
            },
        });
        if let Some(mode) = &claim.spec.volume_mode {
            volume["spec"]["volumeMode"] = mode.clone().into();
        }
        let created = match self.ctx.create(&self.volumes_api, &volume).await {
            Ok(created) => created,
            Err(error) => {
                let message =
                    format!("Failed to provision volume with StorageClass \"{}\": {error}", class.metadata.name);
                self.ctx.warning(&subject, "ProvisioningFailed", message);
                return Err(error.into());
            }
        };
        self.ctx.event(
            &subject,
            "ProvisioningSucceeded",
            format!("Successfully provisioned volume {name} using {PROVISIONER}"),
        );
        Ok(Arc::new(serde_json::from_value(created)?))
    }

    /// Binds a claim and a volume to each other: first the volume gets its claimRef, then the claim its volumeName.
    async fn bind(&self, claim: &Claim, volume: &Volume, node: Option<String>) -> Result<()> {
        let volume_key = volume.metadata.key();
        if volume.spec.claim_ref.as_ref().is_none_or(|reference| reference.uid.is_empty()) {
            let mut patch = json!({"spec": {"claimRef": self.reference(claim)}});
            if volume.spec.claim_ref.is_none() {
                patch["metadata"]["annotations"][BOUND_BY_CONTROLLER] = "yes".into();
            }
            self.ctx.merge_patch(&self.volumes_api, &volume.metadata, "", patch).await?;
        }
        if volume.status.phase != "Bound" {
            let volume = self.volumes.get(&volume_key)?;
            if let Some(volume) = volume {
                self.ctx
                    .merge_patch(&self.volumes_api, &volume.metadata, "status", json!({"status": {"phase": "Bound"}}))
                    .await?;
            }
        }
        // The claim may have changed while the volume was written.
        let fresh = self.claims.get(&claim.metadata.key())?.filter(|fresh| fresh.metadata.uid == claim.metadata.uid);
        let Some(claim) = fresh else { return Ok(()) };
        let mut patch = json!({});
        if claim.spec.volume_name.is_empty() {
            patch["spec"]["volumeName"] = volume.metadata.name.clone().into();
            patch["metadata"]["annotations"][BOUND_BY_CONTROLLER] = "yes".into();
        }
        if !claim.metadata.annotations.contains_key(BIND_COMPLETED) {
            patch["metadata"]["annotations"][BIND_COMPLETED] = "yes".into();
        }
        if let Some(node) = node.filter(|_| !claim.metadata.annotations.contains_key(SELECTED_NODE)) {
            patch["metadata"]["annotations"][SELECTED_NODE] = node.into();
        }
        if patch != json!({}) {
            self.ctx.merge_patch(&self.claims_api, &claim.metadata, "", patch).await?;
        }
        let Some(claim) = self.claims.get(&claim.metadata.key())? else { return Ok(()) };
        let capacity = &volume.spec.capacity.storage;
        let status = json!({
            "phase": "Bound",
            "accessModes": volume.spec.access_modes,
            "capacity": {"storage": capacity},
        });
        self.ctx.merge_patch(&self.claims_api, &claim.metadata, "status", json!({"status": status})).await
    }

    async fn volume(&self, key: &ObjectKey) -> Result<()> {
        let Some(volume) = self.volumes.get(key)? else { return Ok(()) };
        let meta = &volume.metadata;
        let claim = match &volume.spec.claim_ref {
            Some(claim) => self.claims.get(&claim.key())?,
            None => None,
        };
        match plan::volume_step(&volume, claim.as_deref()) {
            VolumeStep::Nothing => {}
            VolumeStep::Phase(phase) => {
                self.ctx.merge_patch(&self.volumes_api, meta, "status", json!({"status": {"phase": phase}})).await?;
            }
            VolumeStep::Free => {
                let reference = match plan::is_bound_by_controller(&volume) {
                    true => Value::Null,
                    false => json!({"uid": null, "resourceVersion": null}),
                };
                let mut patch = json!({"spec": {"claimRef": reference}});
                patch["metadata"]["annotations"][BOUND_BY_CONTROLLER] = Value::Null;
                self.ctx.merge_patch(&self.volumes_api, meta, "", patch).await?;
            }
            VolumeStep::Delete => {
                let options = DeleteOptions { uid: &meta.uid, ..DeleteOptions::default() };
                self.ctx.delete(&self.volumes_api, key, &options).await?;
            }
        }
        let is_free = |volume: &Volume| volume.spec.claim_ref.as_ref().is_none_or(|claim| claim.uid.is_empty());
        if self.volumes.get(key)?.is_some_and(|volume| is_free(&volume) && volume.status.phase == "Available") {
            self.wake_unbound();
        }
        Ok(())
    }

    /// The first active pod that uses a claim, preferably one with a node.
    fn consumer(&self, claim: &ObjectKey) -> Consumer {
        let mut users = self.pods.decoded(&persistent_volume_claims::users(self.pods.cache(), claim));
        users.retain(|pod| pod.is_active());
        match users.iter().find(|pod| !pod.spec.node_name.is_empty()).or(users.first()) {
            Some(pod) if pod.spec.node_name.is_empty() => Consumer::Unscheduled(pod.metadata.name.clone()),
            Some(pod) => Consumer::Scheduled(pod.spec.node_name.clone()),
            None => Consumer::Nobody,
        }
    }

    fn classes(&self) -> Vec<Arc<Class>> {
        self.classes.list(None, &LabelSelector::default()).into_iter().flatten().collect()
    }

    /// The claimRef of a volume.
    fn reference(&self, claim: &Claim) -> Value {
        let meta: &Meta = &claim.metadata;
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
        })
    }

    /// Wakes the claims that have no volume: there may be one now.
    fn wake_unbound(&self) {
        for claim in self.claims.cache().by_index(UNBOUND, "") {
            self.wake(&claim.key());
        }
    }

    fn wake(&self, key: &ObjectKey) {
        let kind: Arc<str> = "PersistentVolume".into();
        let cause = Cause { kind, key: key.clone(), what: What::Resync, resource_version: String::new() };
        self.controller.wake(key, cause);
    }
}

/// The claim a volume is for.
fn claim_of(volume: &Object) -> Option<ClaimRef> {
    volume.pointer("/spec/claimRef").and_then(|claim| serde_json::from_str(claim).ok())
}

fn class_key(name: &str) -> ObjectKey {
    ObjectKey::new(None, &format!("{CLASS_KEY}{name}"))
}
