//! Logs of containers that do not run. In: a pod and log options. Out: plain text that says that the pod is simulated, and the
//! state of its container; with `follow`, a line for each change of that state until the container ends.
//! Never pretends to be the output of a program.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use serde_json::Value;

use konverge_core::{FieldError, FieldPath, Status};
use konverge_store::{Entry, Watch};

use crate::body::Body;
use crate::env::{Environment, rfc3339};
use crate::meta;
use crate::request::Query;
use crate::resource::Resource;
use crate::server::Server;

/// How many changes of a followed pod are read at a time; they share the store's bytes.
const BATCH: usize = 16;

/// The fields of a pod's status with the states of its containers.
const STATES: [&str; 3] = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];

/// Log options. Lines are made for each request, so all of them are new: `sinceTime` and `sinceSeconds` are accepted and leave
/// nothing out.
#[derive(Clone, Debug)]
struct LogOptions {
    container: String,
    follow: bool,
    previous: bool,
    timestamps: bool,
    tail_lines: Option<usize>,
    limit_bytes: Option<usize>,
}

impl LogOptions {
    fn parse(query: &Query, pod: &str) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let mut number = |name: &str, least: i64, why: &str| {
            let given = query.number(name)?;
            if let Some(given) = given.filter(|given| *given < least) {
                errors.push(FieldError::invalid(FieldPath::new(name), given.into(), why));
            }
            Ok::<_, Status>(given.map(|given| usize::try_from(given).unwrap_or_default()))
        };
        let tail_lines = number("tailLines", 0, "must be greater than or equal to 0")?;
        let limit_bytes = number("limitBytes", 1, "must be greater than 0")?;
        let since = number("sinceSeconds", 1, "must be greater than 0")?;
        if since.is_some() && query.get("sinceTime").is_some() {
            let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.push(FieldError::forbidden(FieldPath::root(), why));
        }
        if !errors.is_empty() {
            return Err(Status::invalid("", "PodLogOptions", pod, &errors));
        }
        Ok(Self {
            container: query.get("container").unwrap_or_default().to_owned(),
            // With a limit, the first piece is the whole answer.
            follow: query.flag("follow") && limit_bytes.is_none(),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            tail_lines,
            limit_bytes,
        })
    }

    /// The text of some lines, as much of it as is wanted.
    fn text(&self, lines: &[String], env: &dyn Environment) -> String {
        let skipped = self.tail_lines.map_or(0, |wanted| lines.len().saturating_sub(wanted));
        let stamp = if self.timestamps { format!("{} ", rfc3339(env.now())) } else { String::new() };
        let mut text: String = lines.iter().skip(skipped).map(|line| format!("{stamp}{line}\n")).collect();
        if let Some(limit) = self.limit_bytes.filter(|limit| *limit < text.len()) {
            let cut = (0..=limit).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
            text.truncate(cut);
        }
        text
    }
}

/// The log of a container; nothing as long as the pod has no node.
pub(crate) async fn log(
    server: &Server,
    resource: &Arc<Resource>,
    namespace: Option<&str>,
    name: &str,
    query: &Query,
) -> Result<Option<Body>, Status> {
    let options = LogOptions::parse(query, name)?;
    let found = server.store.get(&resource.key(namespace, name), None).map_err(Status::internal)?;
    let entry = found.ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
    let pod = resource.read_object(&entry).await?;
    let container = container(&pod, &options.container)?;
    if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
        return Ok(None);
    }
    let lines = lines(&pod, &container, options.previous)?;
    let text = options.text(&lines, &*server.env);
    let ended = options.previous || has_ended(&pod, &container);
    if !options.follow || ended {
        return Ok(Some(Body::full(text)));
    }
    let watch = server.store.watch(&entry.key, entry.revision).map_err(Status::internal)?;
    let last_line = lines.last().cloned().unwrap_or_default();
    let following =
        Following { resource: resource.clone(), env: server.env.clone(), options, entry, container, last_line };
    let mut closing = server.closing();
    let closing = async move { drop(closing.wait_for(|closing| *closing).await) };
    let news = following.news(watch).take_until(closing);
    Ok(Some(Body::stream(stream::iter([Bytes::from(text)]).chain(news))))
}

/// The container that the request names, or the only one.
fn container(pod: &Value, asked: &str) -> Result<String, Status> {
    let pod_name = meta::text(pod, "name");
    let of = |field: &str| {
        let list = pod["spec"][field].as_array().into_iter().flatten();
        list.filter_map(|container| container["name"].as_str()).collect::<Vec<_>>()
    };
    // In the order in which kube-apiserver lists them.
    let all: Vec<&str> = ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(of).collect();
    match (asked, of("containers").as_slice()) {
        ("", [one]) => Ok((*one).to_owned()),
        ("", []) => Err(Status::bad_request(format!("a container name must be specified for pod {pod_name}"))),
        ("", _) => Err(Status::bad_request(format!(
            "a container name must be specified for pod {pod_name}, choose one of: [{}]",
            all.join(" ")
        ))),
        (asked, _) if all.contains(&asked) => Ok(asked.to_owned()),
        (asked, _) => Err(Status::bad_request(format!("container {asked} is not valid for pod {pod_name}"))),
    }
}

fn status_of<'p>(pod: &'p Value, container: &str) -> Option<&'p Value> {
    let all = STATES.iter().flat_map(|states| pod["status"][states].as_array().into_iter().flatten());
    all.into_iter().find(|status| status["name"] == container)
}

fn has_ended(pod: &Value, container: &str) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    let terminated = status_of(pod, container).is_some_and(|status| status["state"]["terminated"].is_object());
    terminated || matches!(phase, "Succeeded" | "Failed")
}

/// The lines about a container, or the kubelet's error if it has not started.
fn lines(pod: &Value, container: &str, previous: bool) -> Result<Vec<String>, Status> {
    let name = meta::text(pod, "name");
    let Some(status) = status_of(pod, container) else {
        return Err(Status::bad_request(format!("container {container:?} in pod {name:?} is not available")));
    };
    let (state, last) = (&status["state"], &status["lastState"]["terminated"]);
    if previous && !last.is_object() {
        let why = format!("previous terminated container {container:?} in pod {name:?} not found");
        return Err(Status::bad_request(why));
    }
    if state["waiting"].is_object() && !last.is_object() {
        let reason = match state["waiting"]["reason"].as_str().unwrap_or_default() {
            "ErrImagePull" => "image can't be pulled",
            "ImagePullBackOff" => "trying and failing to pull image",
            reason => reason,
        };
        let why = format!("container {container:?} in pod {name:?} is waiting to start: {reason}");
        return Err(Status::bad_request(why));
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let simulated = format!(
        "konverge: pod {}/{name} is simulated: none of its containers runs, so there is no output of theirs to show",
        meta::text(pod, "namespace")
    );
    let placed =
        format!("konverge: pod is {} on node {}", text(&pod["status"]["phase"]), text(&pod["spec"]["nodeName"]));
    let image = format!("konverge: container {container} has image {}", text(&status["image"]));
    let state = if previous { format!("konverge: before, it {}", ended(last)) } else { state_line(container, status) };
    Ok(vec![simulated, placed, image, state])
}

/// The state of a container in one line.
fn state_line(container: &str, status: &Value) -> String {
    let state = &status["state"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let now = if let Some(running) = state.get("running").filter(|running| running.is_object()) {
        let ready = if status["ready"] == true { "ready" } else { "not ready" };
        format!("runs since {}, {ready}", text(&running["startedAt"]))
    } else if state["terminated"].is_object() {
        ended(&state["terminated"])
    } else {
        format!("waits: {}", text(&state["waiting"]["reason"]))
    };
    let restarts = status["restartCount"].as_i64().unwrap_or_default();
    format!("konverge: container {container} {now}, {restarts} restarts")
}

fn ended(terminated: &Value) -> String {
    let code = terminated["exitCode"].as_i64().unwrap_or_default();
    let reason = terminated["reason"].as_str().unwrap_or("Unknown");
    format!("ended with exit code {code} ({reason})")
}

/// A container whose log is followed.
struct Following {
    resource: Arc<Resource>,
    env: Arc<dyn Environment>,
    options: LogOptions,
    entry: Entry,
    container: String,
    /// The newest line that was sent.
    last_line: String,
}

impl Following {
    /// A line for each change of the container's state, until it ends or the pod is gone.
    fn news(self, watch: Watch) -> impl Stream<Item = Bytes> + Send + 'static {
        stream::unfold(Some((self, watch)), |following| async move {
            let (mut this, mut watch) = following?;
            loop {
                // The changes were compacted: the log ends, and the client may ask again.
                let changes = watch.next(BATCH).await.ok()?;
                let (mut fresh, mut over) = (Vec::new(), false);
                for change in changes.iter().filter(|change| change.key == this.entry.key) {
                    let Some(after) = &change.after else {
                        over = true;
                        break;
                    };
                    let pod = this.resource.read_object(after).await.ok()?;
                    let Some(status) = status_of(&pod, &this.container) else { continue };
                    let line = state_line(&this.container, status);
                    if line != this.last_line {
                        fresh.push(line.clone());
                        this.last_line = line;
                    }
                    over = has_ended(&pod, &this.container);
                }
                if over || !fresh.is_empty() {
                    let text = LogOptions { tail_lines: None, ..this.options.clone() }.text(&fresh, &*this.env);
                    return Some((Bytes::from(text), (!over).then_some((this, watch))));
                }
            }
        })
    }
}
