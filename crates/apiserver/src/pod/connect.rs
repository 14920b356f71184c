//! `exec`, `attach` and `portforward`: requests that become connections with several streams. In: a request that asks for an
//! upgrade. Out: 101, and a conversation with the simulated pod; or the refusal of kube-apiserver or a kubelet, each where it
//! would come from.

use std::sync::Arc;

use http::{HeaderMap, Response};
use serde_json::Value;

use konverge_core::Status;
use konverge_store::Revision;

use crate::body::Body;
use crate::handler::ObjectRequest;
use crate::meta;
use crate::request::Query;
use crate::resource::Resource;
use crate::response::no_such_resource;
use crate::server::Server;
use crate::simulation::{self, Simulation};
use crate::streaming::{
    ClientStream, Conversation, Negotiated, PortForward, Refusal, RemoteCommand, StreamOptions, converse,
    negotiate_port_forward, negotiate_remote_command, plain,
};
use crate::subresource::Subresource;
use crate::websocket;

use super::container;
use super::process::{self, Process, ProcessOf};

/// A request for a pod.
pub(crate) struct PodRequest<'a> {
    pub server: &'a Arc<Server>,
    pub resource: &'a Arc<Resource>,
    pub request: &'a ObjectRequest,
    pub namespace: Option<&'a str>,
    pub name: &'a str,
}

/// An object, and where to watch for what happens to it next.
pub(super) struct Found {
    pub key: Arc<str>,
    /// The revision of the store before the object was read. That of the object itself may be compacted long since.
    pub seen: Revision,
    pub object: Value,
}

impl PodRequest<'_> {
    /// The object of this name: the pod, unless a service or a node is asked for.
    pub(super) async fn read(&self, name: &str) -> Result<Found, Status> {
        self.read_as(self.resource, name).await
    }

    /// An object of another kind of the core group in the same namespace.
    pub(super) async fn read_other(&self, plural: &str, name: &str) -> Result<Value, Status> {
        let resource = self.server.registry.find("", "v1", plural).ok_or_else(no_such_resource)?;
        Ok(self.read_as(&resource, name).await?.object)
    }

    async fn read_as(&self, resource: &Resource, name: &str) -> Result<Found, Status> {
        let seen = self.server.store.revision();
        let found = self.server.store.get(&resource.key(self.namespace, name), None).map_err(Status::internal)?;
        let entry = found.ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
        let object = resource.read_object(&entry).await?;
        Ok(Found { key: entry.key, seen, object })
    }
}

/// Connects a client to a pod.
pub(crate) async fn connect(pod: &PodRequest<'_>, subresource: Subresource) -> Result<Response<Body>, Status> {
    let connected = match subresource {
        Subresource::PortForward => port_forward(pod).await,
        _ => remote_command(pod, subresource).await,
    };
    match connected {
        Ok(response) | Err(Refusal::Plain(response)) => Ok(response),
        Err(Refusal::Status(status)) => Err(status),
    }
}

async fn remote_command(at: &PodRequest<'_>, subresource: Subresource) -> Result<Response<Body>, Refusal> {
    let (headers, query) = (&at.request.parts.headers, &at.request.query);
    let found = at.read(at.name).await?;
    let pod = &found.object;
    let container = container::container(pod, query.get("container").unwrap_or_default())?;
    let name = container["name"].as_str().unwrap_or_default();
    check_node(pod)?;
    check_upgrade(headers)?;
    // From here on it is the kubelet that answers.
    let options = stream_options(query)?;
    let Some(id) = container::running(pod, name) else {
        let (pod, namespace) = (meta::text(pod, "name"), meta::text(pod, "namespace"));
        return Err(plain(
            500,
            match subresource {
                Subresource::Exec => format!("container not found ({name:?})"),
                _ => format!("container {name} not found in pod {pod}_{namespace}"),
            },
        ));
    };
    let negotiated = negotiate_remote_command(headers)?;
    let simulation = Arc::new(Simulation::of(pod));
    let files = at.server.files.of(id.clone());
    let command = query.all("command");
    let program = match subresource {
        Subresource::Exec => simulation::program(&simulation, name, files, options.tty, command),
        _ if options.stdin && process::is_interactive(pod, container) => {
            let command = process::command(container);
            let program = match command.is_empty() {
                true => simulation::attached(&simulation, name, files, options.tty, true),
                false => simulation::program(&simulation, name, files, options.tty, &command),
            };
            let of = ProcessOf {
                server: at.server.clone(),
                resource: at.resource.clone(),
                namespace: meta::text(pod, "namespace").to_owned(),
                pod: at.name.to_owned(),
                uid: meta::text(pod, "uid").to_owned(),
                container: name.to_owned(),
            };
            Box::new(Process::new(program, of))
        }
        _ => {
            let reads_stdin = options.stdin && container["stdin"] == true;
            simulation::attached(&simulation, name, files, options.tty, reads_stdin)
        }
    };
    let (protocol, opens) = (&negotiated.protocol, negotiated.opens_streams);
    let conversation = RemoteCommand::new(protocol, opens, options, command, program);
    let container_name = name.to_owned();
    let has_ended = move |pod: &Value| container::running(pod, &container_name).as_ref() != Some(&id);
    begin(at, &found, negotiated, Box::new(conversation), has_ended)
}

async fn port_forward(at: &PodRequest<'_>) -> Result<Response<Body>, Refusal> {
    let headers = &at.request.parts.headers;
    let found = at.read(at.name).await?;
    let pod = &found.object;
    let ports = ports(&at.request.query)?;
    check_node(pod)?;
    check_upgrade(headers)?;
    // From here on it is the kubelet that answers.
    if !container::any_running(pod) {
        let (pod, namespace) = (meta::text(pod, "name"), meta::text(pod, "namespace"));
        return Err(plain(500, format!("pod not found (\"{pod}_{namespace}\")")));
    }
    let negotiated = negotiate_port_forward(headers, ports.len())?;
    if !negotiated.opens_streams && ports.is_empty() {
        return Err(plain(400, "query parameter \"port\" is required"));
    }
    let channels = if negotiated.opens_streams { Vec::new() } else { ports };
    let conversation = PortForward::new(Simulation::of(pod), channels);
    begin(at, &found, negotiated, Box::new(conversation), |pod| !container::any_running(pod))
}

/// Answers 101. Nothing can fail after this.
fn begin(
    at: &PodRequest<'_>,
    found: &Found,
    negotiated: Negotiated,
    conversation: Box<dyn Conversation>,
    has_ended: impl Fn(&Value) -> bool + Send + 'static,
) -> Result<Response<Body>, Refusal> {
    let ended = container::until(at.server, at.resource, found, has_ended)?;
    let mut closing = at.server.closing();
    let closing = async move { drop(closing.wait_for(|closing| *closing).await) };
    let client = at.request.parts.extensions.get::<ClientStream>().and_then(ClientStream::take);
    let Some(client) = client else {
        let why = "this connection cannot be upgraded: exec, attach and port-forward need HTTP/1.1 over a socket";
        return Err(Status::failure(501, "NotImplemented", why).into());
    };
    let (wire, head) = negotiated.into_parts();
    Ok(Negotiated::answer(head, converse(wire, conversation, client, ended, closing)))
}

fn check_node(pod: &Value) -> Result<(), Status> {
    match pod["spec"]["nodeName"].as_str() {
        None | Some("") => {
            Err(Status::bad_request(format!("pod {} does not have a host assigned", meta::text(pod, "name"))))
        }
        Some(_) => Ok(()),
    }
}

fn check_upgrade(headers: &HeaderMap) -> Result<(), Status> {
    if websocket::upgrades(headers) { Ok(()) } else { Err(Status::bad_request("Upgrade request required")) }
}

fn stream_options(query: &Query) -> Result<StreamOptions, Refusal> {
    let tty = query.flag("tty");
    // A terminal has one output.
    let stderr = query.flag("stderr") && !tty;
    let options = StreamOptions { stdin: query.flag("stdin"), stdout: query.flag("stdout"), stderr, tty };
    if !options.stdin && !options.stdout && !options.stderr {
        return Err(plain(400, "you must specify at least 1 of stdin, stdout, stderr"));
    }
    Ok(options)
}

fn ports(query: &Query) -> Result<Vec<u16>, Refusal> {
    let texts = query.all("ports").iter().flat_map(|text| text.split(','));
    let port = |text: &str| match text.parse::<u16>() {
        Ok(0) => Err(plain(400, format!("port {text:?} must be > 0"))),
        Ok(port) => Ok(port),
        Err(_) => Err(Status::bad_request(format!("unable to parse {text:?} as a port")).into()),
    };
    texts.map(port).collect()
}
