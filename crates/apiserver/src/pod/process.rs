//! The processes of simulated containers that end by themselves. That of an interactive container, as `kubectl run -i --restart=Never` and `kubectl debug -i` make one: it begins when a client
//! attaches, and the container ends with it; the command of an ephemeral container that nobody attaches to ends at once. In: a program. Out: the same program, whose exit code is noted in an annotation of the
//! pod, where the simulator reads it.

use std::sync::Arc;

use serde_json::Value;

use konverge_core::simulate::{self, CONTAINER_ID, EXITED};

use crate::meta;
use crate::resource::Resource;
use crate::server::Server;
use crate::simulation::{self, Simulation};
use crate::streaming::{Exit, Output, Program};
use crate::user::SystemUser;
use crate::write::WriteRequest;

/// The exit code of a process that could not be started, as container runtimes have it.
const NOT_STARTED: i32 = 128;

/// A container of a pod.
pub(super) struct ProcessOf {
    pub server: Arc<Server>,
    pub resource: Arc<Resource>,
    pub namespace: String,
    pub pod: String,
    pub uid: String,
    pub container: String,
}

/// The process of a container.
pub(super) struct Process {
    program: Box<dyn Program>,
    /// Whose process it is, until it has ended.
    of: Option<ProcessOf>,
}

/// Whether a container begins and ends with the process of a client that attaches.
pub(super) fn is_interactive(pod: &Value, container: &Value) -> bool {
    let ephemeral = pod["spec"]["ephemeralContainers"].as_array().is_some_and(|all| all.contains(container));
    let policy = pod["spec"]["restartPolicy"].as_str().unwrap_or_default();
    simulate::ends_with_its_client(container["stdin"] == true, container["stdinOnce"] == true, ephemeral, policy)
}

/// The command of a container, with its arguments.
pub(super) fn command(container: &Value) -> Vec<String> {
    let words = |field: &str| container[field].as_array().into_iter().flatten();
    let all = words("command").chain(words("args"));
    all.filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

/// Notes how the commands of ephemeral containers end that are new in a simulated pod and that nobody attaches to. Those that simulated
/// containers cannot run go on until the pod ends.
pub(crate) fn note_exits(old: &Value, pod: &mut Value) {
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let is_simulated = |status: &Value| status["containerID"].as_str().is_some_and(|id| id.starts_with(CONTAINER_ID));
    if !statuses.into_iter().any(is_simulated) {
        return;
    }
    let containers = |pod: &Value| pod["spec"]["ephemeralContainers"].as_array().cloned().unwrap_or_default();
    let known = containers(old);
    let is_new = |container: &Value| known.iter().all(|known| known["name"] != container["name"]);
    let simulation = Arc::new(Simulation::of(pod));
    for container in containers(pod).iter().filter(|container| is_new(container) && container["stdin"] != true) {
        let (name, command) = (container["name"].as_str().unwrap_or_default(), command(container));
        if command.is_empty() {
            continue;
        }
        if let Some(code) = simulation::exit_code(&simulation, name, &command) {
            note_exit(pod, name, code);
        }
    }
}

fn note_exit(pod: &mut Value, container: &str, code: i32) {
    let exited = pod["metadata"]["annotations"][EXITED].as_str().unwrap_or_default();
    let exited = simulate::with_exit_code(exited, container, code);
    pod["metadata"]["annotations"][EXITED] = exited.into();
}

impl Process {
    pub(super) fn new(program: Box<dyn Program>, of: ProcessOf) -> Self {
        Self { program, of: Some(of) }
    }

    /// Notes the exit code, if there is one. The client learns it from the status of the container: an attach itself succeeds.
    fn check(&mut self, output: &mut Output) {
        let code = match output.exit.take() {
            None => return,
            Some(Exit::Code(code)) => code,
            Some(Exit::Failed(why)) => {
                output.complain(&format!("{why}\n"));
                NOT_STARTED
            }
        };
        output.exit(0);
        // The conversation is over before the write is, which takes as long as any other one.
        if let (Some(of), Ok(runtime)) = (self.of.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(of.note(code));
        }
    }
}

impl Program for Process {
    fn begin(&mut self, output: &mut Output) {
        self.program.begin(output);
        self.check(output);
    }

    fn stdin(&mut self, bytes: &[u8], output: &mut Output) {
        self.program.stdin(bytes, output);
        self.check(output);
    }

    fn stdin_closed(&mut self, output: &mut Output) {
        self.program.stdin_closed(output);
        self.check(output);
    }

    fn interrupt(&mut self, output: &mut Output) {
        self.program.interrupt(output);
        self.check(output);
    }

    fn killed(&mut self, output: &mut Output) {
        // The container has ended before its process.
        self.of = None;
        self.program.killed(output);
    }
}

impl Drop for Process {
    /// A client that goes away closes stdin.
    fn drop(&mut self) {
        if self.of.is_some() {
            let mut unread = Output::default();
            self.program.stdin_closed(&mut unread);
            self.check(&mut unread);
        }
    }
}

impl ProcessOf {
    /// Notes the exit code in the annotation, unless the pod is another one by now.
    async fn note(self, code: i32) {
        let context = self.server.task_context(SystemUser::ApiServer);
        let write =
            WriteRequest { namespace: Some(&self.namespace), ..self.server.internal_write(&context, &self.resource) };
        let noted = |pod: &Value| {
            let mut pod = pod.clone();
            if meta::text(&pod, "uid") == self.uid {
                note_exit(&mut pod, &self.container, code);
            }
            Ok(pod)
        };
        match write.patch(&self.pod, &mut Vec::new(), noted).await {
            Err(status) if status.code != 404 => {
                let Self { namespace, pod, container, .. } = &self;
                tracing::warn!(
                    namespace,
                    pod,
                    container,
                    code,
                    error = status.message,
                    "cannot end a simulated container"
                );
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn commands_of_new_ephemeral_containers_end() {
        let check = |id: &str, old: Value, new: Value, expect: Value| {
            let pod = |containers: &Value| {
                json!({"metadata": {"name": "web"}, "spec": {"ephemeralContainers": containers},
                "status": {"containerStatuses": [{"name": "main", "containerID": format!("{id}1")}]}})
            };
            let mut written = pod(&new);
            note_exits(&pod(&old), &mut written);
            let exited = written["metadata"]["annotations"][EXITED].as_str().map(|text| text.parse::<Value>().unwrap());
            assert_eq!(exited.unwrap_or_default(), expect, "{id} {old} {new}");
        };
        let container = |script: &str| json!({"name": "look", "command": ["sh", "-c", script]});
        check(CONTAINER_ID, json!(null), json!([container("echo x; exit 3")]), json!({"look": 3}));
        check(CONTAINER_ID, json!(null), json!([container("sleep 1d")]), json!(null));
        check(CONTAINER_ID, json!(null), json!([{"name": "look"}]), json!(null));
        check(CONTAINER_ID, json!(null), json!([{"name": "look", "stdin": true, "args": ["true"]}]), json!(null));
        check(CONTAINER_ID, json!([container("exit 3")]), json!([container("exit 3")]), json!(null));
        check("containerd://", json!(null), json!([container("exit 3")]), json!(null));
    }

    #[test]
    fn which_containers_end_with_their_client() {
        let check = |policy: &str, field: &str, container: Value, expect: bool, words: &[&str]| {
            let pod = json!({"spec": {"restartPolicy": policy, field: [container]}});
            assert_eq!(is_interactive(&pod, &container), expect, "{pod}");
            assert_eq!(command(&container), words, "{pod}");
        };
        let run = json!({"name": "a", "stdin": true, "stdinOnce": true, "args": ["sh", "-c", "exit 3"]});
        check("Never", "containers", run.clone(), true, &["sh", "-c", "exit 3"]);
        check("Always", "containers", run, false, &["sh", "-c", "exit 3"]);
        let left_open = json!({"name": "a", "stdin": true, "command": ["sh"], "args": ["x"]});
        check("Never", "containers", left_open.clone(), false, &["sh", "x"]);
        check("Always", "ephemeralContainers", left_open, true, &["sh", "x"]);
        check("Always", "ephemeralContainers", json!({"name": "a"}), false, &[]);
    }
}
