//! The webhooks with `konverge::Operator`, as users write them: an async function with a typed object, and another one with a
//! type that has only the fields that the function looks at.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod as TypedPod;
use konverge::prelude::*;
use konverge::webhook::{Admission, Webhook};
use konverge::{BindAddress, Settings, WebhookSettings};
use kube::Client;

use super::pod_rules::{label, unpinned};
use super::review::Hook;
use crate::invalid_run::InvalidRun;
use crate::operator::{Widget, settings};

/// A Pod with what the functions look at. What else it has stays as it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct FewFields {
    metadata: Labels,
    spec: Containers,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Labels {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Containers {
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Container {
    name: String,
    image: String,
}

/// Serves until the process is killed.
pub(super) async fn serve(client: Client, port: u16, cert_dir: &Path) -> Result<(), InvalidRun> {
    let webhook = WebhookSettings {
        address: BindAddress::loopback(port),
        cert_dir: Some(cert_dir.to_owned()),
        ..WebhookSettings::default()
    };
    let pods = ApiKind::of::<TypedPod>();
    let few_fields = |hook: Hook| (hook.path(), format!("{}.pods.core", hook.path().trim_start_matches('/')));
    let (validate_path, validate_name) = few_fields(Hook::ValidateFewFields);
    let (mutate_path, mutate_name) = few_fields(Hook::MutateFewFields);
    let operator = Operator::<Widget>::new()
        .settings(Settings { webhook, ..settings() })
        .client(client)
        .reconcile(|_: Context<Widget>| async { Ok(Action::await_change()) })
        .webhook(Webhook::validating(validate))
        .webhook(Webhook::mutating(mutate))
        .webhook(Webhook::validating_dynamic(&pods, validate_few_fields).path(validate_path).named(validate_name))
        .webhook(Webhook::mutating_dynamic(&pods, mutate_few_fields).path(mutate_path).named(mutate_name));
    operator.run_until(std::future::pending()).await.map_err(|error| InvalidRun::new(format!("{error:#}")))
}

async fn validate(request: Admission<TypedPod>) -> Result<()> {
    let spec = request.object().spec.as_ref();
    let images = spec.into_iter().flat_map(|spec| &spec.containers).filter_map(|container| container.image.as_deref());
    decide(images)
}

async fn mutate(request: Admission<TypedPod>) -> Result<TypedPod> {
    let mut pod = request.object().clone();
    label(pod.metadata.labels.get_or_insert_default());
    Ok(pod)
}

async fn validate_few_fields(request: Admission<FewFields>) -> Result<()> {
    decide(request.object().spec.containers.iter().map(|container| container.image.as_str()))
}

async fn mutate_few_fields(request: Admission<FewFields>) -> Result<FewFields> {
    let mut pod = request.object().clone();
    label(&mut pod.metadata.labels);
    Ok(pod)
}

fn decide<'a>(images: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut errors = FieldErrors::new();
    if let Some(image) = unpinned(images) {
        errors.invalid("spec.containers", image, "must have a tag other than latest");
    }
    Ok(errors.into_result()?)
}
