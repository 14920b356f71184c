//! The containers of a pod, as its endpoints name them. In: a pod and a name, or none. Out: the container that is meant and its
//! status, with the errors of kube-apiserver and kubelets.

use std::sync::Arc;

use serde_json::Value;

use konverge_core::Status;

use crate::meta;
use crate::resource::Resource;
use crate::server::Server;

use super::connect::Found;

/// How many changes of a pod are read at a time; they share the store's bytes.
const BATCH: usize = 16;

/// The lists of containers, in the order in which kube-apiserver names them, and the fields with their statuses.
const LISTS: [(&str, &str); 3] = [
    ("initContainers", "initContainerStatuses"),
    ("containers", "containerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
];

/// The container that a request names, or the only one.
pub(super) fn container<'p>(pod: &'p Value, asked: &str) -> Result<&'p Value, Status> {
    let pod_name = meta::text(pod, "name");
    let of = |field: &str| pod["spec"][field].as_array().into_iter().flatten();
    let name = |container: &'p Value| container["name"].as_str().unwrap_or_default();
    let all = || LISTS.iter().flat_map(|(field, _)| of(field));
    let mut mains = of("containers");
    match (asked, mains.next(), mains.next()) {
        ("", Some(one), None) => Ok(one),
        ("", None, _) => Err(Status::bad_request(format!("a container name must be specified for pod {pod_name}"))),
        ("", _, _) => Err(Status::bad_request(format!(
            "a container name must be specified for pod {pod_name}, choose one of: [{}]",
            all().map(name).collect::<Vec<_>>().join(" ")
        ))),
        (asked, ..) => all()
            .find(|container| name(container) == asked)
            .ok_or_else(|| Status::bad_request(format!("container {asked} is not valid for pod {pod_name}"))),
    }
}

/// The status of a container.
pub(super) fn status_of<'p>(pod: &'p Value, container: &str) -> Option<&'p Value> {
    let all = LISTS.iter().flat_map(|(_, statuses)| pod["status"][statuses].as_array().into_iter().flatten());
    all.into_iter().find(|status| status["name"] == container)
}

/// The id of a container that runs. It is another one after each restart.
pub(super) fn running(pod: &Value, container: &str) -> Option<String> {
    let status = status_of(pod, container).filter(|status| status["state"]["running"].is_object())?;
    let restarts = status["restartCount"].as_i64().unwrap_or_default();
    Some(format!("{}/{container}/{restarts}", meta::text(pod, "uid")))
}

/// Whether any container of a pod runs.
pub(super) fn any_running(pod: &Value) -> bool {
    let mut all = LISTS.iter().flat_map(|(_, statuses)| pod["status"][statuses].as_array().into_iter().flatten());
    all.any(|status| status["state"]["running"].is_object())
}

/// Ready when a pod is gone, or is such that `has_ended` says so. If the changes are lost, it is never ready.
pub(super) fn until(
    server: &Server,
    resource: &Arc<Resource>,
    found: &Found,
    has_ended: impl Fn(&Value) -> bool + Send + 'static,
) -> Result<impl Future<Output = ()> + Send + 'static, Status> {
    let mut watch = server.store.watch(&found.key, found.seen).map_err(Status::internal)?;
    let (resource, key) = (resource.clone(), found.key.clone());
    Ok(async move {
        while let Ok(changes) = watch.next(BATCH).await {
            for change in changes.iter().filter(|change| change.key == key) {
                let Some(after) = &change.after else { return };
                if resource.read_object(after).await.is_ok_and(|pod| has_ended(&pod)) {
                    return;
                }
            }
        }
        std::future::pending().await
    })
}
