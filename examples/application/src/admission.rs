//! What is refused, and what is filled in, before an Application or one of its Pods is stored. In: what an API server asks. Out:
//! the object with its defaults, or every field that is wrong. Nothing here reads the cluster.

use konverge::k8s_openapi::api::core::v1 as core;
use konverge::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use konverge::prelude::*;

use crate::image::Image;
use crate::{Application, Strategy};

/// The most replicas of an Application.
const MOST_REPLICAS: i32 = 100;

/// The registries that images may come from.
const REGISTRIES: [&str; 2] = ["gcr.io", "docker.io"];

/// Images that are there to build others from, and not to be run.
const BASE_IMAGES: [&str; 3] = ["ubuntu", "debian", "alpine"];

pub(crate) const NAME: &str = "app.kubernetes.io/name";
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const INSTANCE: &str = "app.kubernetes.io/instance";

/// The value of [`MANAGED_BY`] for what this operator makes. The policy for Pods is about Pods with it.
pub(crate) const OPERATOR: &str = "application";

/// Refuses Applications that should not run.
pub(crate) async fn validate(request: Admission<Application>) -> Result<()> {
    let (spec, mut errors) = (&request.object().spec, FieldErrors::new());
    if let Some(replicas) = spec.replicas.filter(|replicas| !(0..=MOST_REPLICAS).contains(replicas)) {
        errors.invalid("spec.replicas", replicas, format!("must be between 0 and {MOST_REPLICAS}"));
    }
    match spec.image.as_deref() {
        None | Some("") => {
            errors.required("spec.image", "name the image to run");
        }
        Some(image) => {
            if let Err(why) = check_image(image) {
                errors.invalid("spec.image", image, why);
            }
        }
    }
    if spec.resources.as_ref().is_none_or(|resources| resources.limits.is_empty()) {
        request.warn("spec.resources.limits is not set: each replica may use all that its node has");
    }
    Ok(errors.into_result()?)
}

/// Fills in what a user left out.
pub(crate) async fn defaults(request: Admission<Application>) -> Result<Application> {
    let mut app = request.object().clone();
    app.spec.replicas.get_or_insert(1);
    app.spec.strategy.get_or_insert(Strategy::RollingUpdate);
    let name = request.name().to_owned();
    let labels = app.metadata.labels.get_or_insert_default();
    labels.entry(MANAGED_BY.to_owned()).or_insert_with(|| OPERATOR.to_owned());
    // The server makes the name up later, or the name is longer than a label may be.
    if !name.is_empty() && name.len() <= 63 {
        for label in [NAME, INSTANCE] {
            labels.entry(label.to_owned()).or_insert_with(|| name.clone());
        }
    }
    Ok(app)
}

/// The security policy: a webhook for the Pods of Applications.
pub(crate) fn pod_policy() -> Webhook<Pod> {
    let ours = [(MANAGED_BY.to_owned(), OPERATOR.to_owned())];
    let ours = LabelSelector { match_labels: Some(ours.into()), ..LabelSelector::default() };
    let policy = Webhook::validating(check_pod).named("pods.application.cloudnative.elide.dev").objects(ours);
    // In every namespace, the operator's own among them: its Pod does not have the label.
    policy.namespaces(LabelSelector::default())
}

/// Refuses Pods that reach out of their sandbox, and images that Applications may not have either.
async fn check_pod(request: Admission<Pod>) -> Result<()> {
    let mut errors = FieldErrors::new();
    let Some(spec) = &request.object().inner().spec else { return Ok(()) };
    let shared = [("hostNetwork", spec.host_network), ("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc)];
    for (field, _) in shared.iter().filter(|(_, shared)| *shared == Some(true)) {
        errors.forbidden(&format!("spec.{field}"), "Pods of Applications do not share what belongs to the node");
    }
    for (at, volume) in spec.volumes.iter().flatten().enumerate().filter(|(_, volume)| volume.host_path.is_some()) {
        let why = format!("the volume {:?} is a directory of the node", volume.name);
        errors.forbidden(&format!("spec.volumes[{at}].hostPath"), why);
    }
    let lists =
        [("initContainers", spec.init_containers.as_deref().unwrap_or_default()), ("containers", &spec.containers)];
    for (list, containers) in lists {
        for (at, container) in containers.iter().enumerate() {
            check_container(&format!("spec.{list}[{at}]"), container, &mut errors);
        }
    }
    Ok(errors.into_result()?)
}

fn check_container(path: &str, container: &core::Container, errors: &mut FieldErrors) {
    let image = container.image.as_deref().unwrap_or_default();
    if let Err(why) = check_image(image) {
        errors.invalid(&format!("{path}.image"), image, why);
    }
    let Some(context) = &container.security_context else { return };
    let context_path = format!("{path}.securityContext");
    if context.privileged == Some(true) {
        errors.forbidden(&format!("{context_path}.privileged"), "a privileged container is root on its node");
    }
    if context.allow_privilege_escalation == Some(true) {
        let why = "a process must not gain more privileges than its parent";
        errors.forbidden(&format!("{context_path}.allowPrivilegeEscalation"), why);
    }
    let added = context.capabilities.as_ref().and_then(|all| all.add.as_deref()).unwrap_or_default();
    for (at, capability) in added.iter().enumerate().filter(|(_, one)| *one != "NET_BIND_SERVICE") {
        let added_path = format!("{context_path}.capabilities.add[{at}]");
        errors.not_supported(&added_path, capability.as_str(), &["NET_BIND_SERVICE"]);
    }
}

/// Whether an image may run. The error says why not.
fn check_image(text: &str) -> Result<(), String> {
    let image = Image::parse(text)?;
    if !REGISTRIES.contains(&image.registry.as_str()) {
        let allowed = REGISTRIES.join(" and ");
        return Err(format!("must be from one of the registries {allowed}, and not from {}", image.registry));
    }
    if BASE_IMAGES.contains(&image.name()) {
        let name = image.name();
        return Err(format!("must not be the base image {name}: build an image on top of it and run that one"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_image;

    #[test]
    fn images() {
        let digest = format!("@sha256:{}", "ab".repeat(32));
        for good in ["nginx", "nginx:alpine", "gcr.io/distroless/base-debian12", "docker.io/alpine/git", "team/app:1"] {
            assert_eq!(check_image(good), Ok(()), "{good}");
        }
        for (text, expect) in [
            ("quay.io/team/app", "and not from quay.io"),
            ("us.gcr.io/team/app", "and not from us.gcr.io"),
            ("localhost:5000/app", "and not from localhost:5000"),
            ("ubuntu", "base image ubuntu"),
            ("ubuntu:22.04", "base image ubuntu"),
            ("library/ubuntu:22.04", "base image ubuntu"),
            ("docker.io/library/debian", "base image debian"),
            (&format!("alpine{digest}"), "base image alpine"),
            (&format!("index.docker.io/alpine:3{digest}"), "base image alpine"),
            ("gcr.io/mirror/ubuntu", "base image ubuntu"),
            ("UPPER", "must have a path of small letters"),
        ] {
            let error = check_image(text).unwrap_err();
            assert!(error.contains(expect), "{text}: {error}");
        }
    }
}
