//! What a simulated pod answers: commands, requests to its ports, its log. In: a pod. Out: what its annotations prescribe, and
//! where they prescribe nothing, answers that say that the pod is simulated. Nothing here runs a program or opens a socket.
//!
//! | annotation `simulate.konverge.dev/…` | meaning |
//! |---|---|
//! | `logs` | the lines of the log; `+2s text` is printed two seconds after the start of the container |
//! | `exec-stdout`, `exec-stderr`, `exec-exit-code` | what every command prints, and how it exits |
//! | `exec` | the same for some commands: `[{"command": "pg_isready*", "stdout": "…", "stderr": "…", "exitCode": 1}]` |
//! | `http-status`, `http-body` | what its ports answer |
//! | `http` | the same for some requests: `[{"port": 80, "method": "GET", "path": "/health*", "status": 200, "body": "…", "contentType": "…"}]` |
//! | `container` | all this is about the container of this name only |

mod command;
mod files;
mod http;
mod shell;
mod tar;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use konverge_core::simulate::{self, PREFIX};

use crate::meta;

pub(crate) use self::http::{HttpAnswer, HttpConnection};
pub(crate) use command::{attached, exit_code, program};
pub(crate) use files::FileAreas;

/// A pod that is simulated.
#[derive(Clone, Debug)]
pub(crate) struct Simulation {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The address of the pod; empty as long as it has none.
    pub ip: String,
    annotations: BTreeMap<String, String>,
    ports: Vec<Port>,
}

/// A port that a container declares.
#[derive(Clone, Debug)]
struct Port {
    number: u16,
    container: String,
}

/// A line of a log, and how long after the start of its container it is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogLine {
    pub after: Duration,
    pub text: String,
}

/// What a command prints, and how it exits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CommandAnswer {
    /// Which commands, their words separated by spaces; `*` stands for any text.
    command: String,
    pub stdout: String,
    pub stderr: String,
    pub exit_code: i32,
}

/// What a request is answered with.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct RequestAnswer {
    port: Option<u16>,
    method: Option<String>,
    path: String,
    status: u16,
    content_type: String,
    body: String,
}

impl Default for RequestAnswer {
    fn default() -> Self {
        Self {
            port: None,
            method: None,
            path: "*".into(),
            status: 200,
            content_type: "text/plain; charset=utf-8".into(),
            body: String::new(),
        }
    }
}

impl Simulation {
    pub(crate) fn of(pod: &Value) -> Self {
        let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
        let annotations = annotations
            .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_owned(), value.as_str()?.to_owned())));
        let sidecars = pod["spec"]["initContainers"].as_array().into_iter().flatten();
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten().chain(sidecars);
        let ports = containers.flat_map(|container| {
            let name = container["name"].as_str().unwrap_or_default();
            let ports = container["ports"].as_array().into_iter().flatten();
            ports.filter_map(|port| {
                let number = port["containerPort"].as_u64().and_then(|port| u16::try_from(port).ok())?;
                Some(Port { number, container: name.to_owned() })
            })
        });
        Self {
            namespace: meta::text(pod, "namespace").to_owned(),
            name: meta::text(pod, "name").to_owned(),
            uid: meta::text(pod, "uid").to_owned(),
            ip: pod["status"]["podIP"].as_str().unwrap_or_default().to_owned(),
            annotations: annotations.collect(),
            ports: ports.collect(),
        }
    }

    /// An annotation, if it is about this container.
    fn word(&self, container: &str, name: &str) -> Option<&str> {
        let only = self.annotations.get("container");
        let concerned = only.is_none_or(|only| only == container);
        self.annotations.get(name).filter(|_| concerned).map(String::as_str)
    }

    /// An annotation that is a list.
    fn list<T: DeserializeOwned>(&self, container: &str, name: &str) -> Result<Vec<T>, String> {
        let Some(text) = self.word(container, name) else { return Ok(Vec::new()) };
        serde_json::from_str(text).map_err(|why| format!("the annotation {PREFIX}{name} is not valid: {why}"))
    }

    /// The log that is prescribed.
    pub(crate) fn log(&self, container: &str) -> Option<Vec<LogLine>> {
        let text = self.word(container, "logs")?;
        let mut after = Duration::ZERO;
        let line = |line: &str| {
            let delayed = line.strip_prefix('+').and_then(|rest| rest.split_once(' '));
            if let Some((time, text)) = delayed
                && let Some(time) = simulate::duration(time)
            {
                // Lines stay in order.
                after = after.max(time);
                return LogLine { after, text: text.to_owned() };
            }
            LogLine { after, text: line.to_owned() }
        };
        Some(text.lines().map(line).collect())
    }

    /// What a command is prescribed to do.
    fn command(&self, container: &str, command: &[String]) -> Result<Option<CommandAnswer>, String> {
        let line = command.join(" ");
        let listed: Vec<CommandAnswer> = self.list(container, "exec")?;
        if let Some(answer) = listed.into_iter().find(|answer| simulate::is_like(&answer.command, &line)) {
            return Ok(Some(answer));
        }
        let word = |name: &str| self.word(container, name);
        let (stdout, stderr, code) = (word("exec-stdout"), word("exec-stderr"), word("exec-exit-code"));
        if stdout.or(stderr).or(code).is_none() {
            return Ok(None);
        }
        let exit_code = code.unwrap_or("0").trim().parse().map_err(|_| {
            format!(
                "the annotation {PREFIX}exec-exit-code is not valid: {:?} is not a number",
                code.unwrap_or_default()
            )
        })?;
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        Ok(Some(CommandAnswer { command: "*".into(), stdout: text(stdout), stderr: text(stderr), exit_code }))
    }

    /// Why nothing answers on a port; nothing if a container declares it.
    pub(crate) fn check_port(&self, port: u16) -> Result<(), String> {
        match self.ports.iter().any(|declared| declared.number == port) {
            true => Ok(()),
            false => Err(format!(
                "failed to connect to localhost:{port}: connection refused (the pod is simulated, and none of its containers \
                 declares port {port})"
            )),
        }
    }

    /// The port that is meant if none is named.
    pub(crate) fn first_port(&self) -> Option<u16> {
        self.ports.first().map(|port| port.number)
    }

    /// The answer to a request on a port that a container declares.
    pub(crate) fn request(&self, port: u16, method: &str, path: &str) -> HttpAnswer {
        let container = self.ports.iter().find(|declared| declared.number == port);
        let container = container.map_or("", |port| port.container.as_str());
        let plain = |status: u16, body: String| HttpAnswer {
            status,
            content_type: "text/plain; charset=utf-8".to_owned(),
            body,
        };
        let listed: Vec<RequestAnswer> = match self.list(container, "http") {
            Ok(listed) => listed,
            Err(why) => return plain(500, format!("konverge: {why}\n")),
        };
        let is_meant = |answer: &&RequestAnswer| {
            answer.port.is_none_or(|asked| asked == port)
                && answer.method.as_ref().is_none_or(|asked| asked.eq_ignore_ascii_case(method))
                && simulate::is_like(&answer.path, path)
        };
        if let Some(answer) = listed.iter().find(is_meant) {
            let RequestAnswer { status, content_type, body, .. } = answer.clone();
            return HttpAnswer { status, content_type, body };
        }
        let (status, body) = (self.word(container, "http-status"), self.word(container, "http-body"));
        let Ok(code) = status.unwrap_or("200").trim().parse::<u16>() else {
            return plain(
                500,
                format!("konverge: the annotation {PREFIX}http-status is not valid: it is not a number\n"),
            );
        };
        let default = || {
            let Self { namespace, name, .. } = self;
            format!(
                "konverge: pod {namespace}/{name} is simulated: no program listens on port {port} of container {container}.\n\
                 You asked: {method} {path}\n\
                 The annotations {PREFIX}http, http-status and http-body prescribe other answers.\n"
            )
        };
        plain(code, body.map_or_else(default, str::to_owned))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(annotations: &[(&str, &str)]) -> Simulation {
        let annotations: BTreeMap<String, &str> =
            annotations.iter().map(|(name, value)| (format!("{PREFIX}{name}"), *value)).collect();
        Simulation::of(&json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "annotations": annotations},
            "spec": {"containers": [
                {"name": "main", "ports": [{"containerPort": 8080}, {"containerPort": 9090}]}, {"name": "other"},
            ]},
        }))
    }

    #[test]
    fn logs() {
        for (text, expect) in [
            ("one\ntwo", &[(0, "one"), (0, "two")][..]),
            ("one\n+2s two\nthree\n+1s four", &[(0, "one"), (2000, "two"), (2000, "three"), (2000, "four")]),
            ("+500ms x", &[(500, "x")]),
            ("+soon x\n+1s", &[(0, "+soon x"), (0, "+1s")]),
            ("", &[]),
        ] {
            let expect: Vec<LogLine> = expect
                .iter()
                .map(|(after, text)| LogLine { after: Duration::from_millis(*after), text: (*text).into() })
                .collect();
            assert_eq!(pod(&[("logs", text)]).log("main"), Some(expect), "{text}");
        }
        assert_eq!(pod(&[]).log("main"), None);
        assert_eq!(pod(&[("logs", "x"), ("container", "other")]).log("main"), None);
    }

    #[test]
    fn commands() {
        let rules = r#"[{"command": "pg_isready*", "exitCode": 2}, {"command": "*", "stdout": "rest\n"}]"#;
        let said = |answer: CommandAnswer| (answer.stdout, answer.stderr, answer.exit_code);
        for (annotations, command, expect) in [
            (&[][..], "ls", None),
            (&[("exec-exit-code", "3")], "ls", Some(("", "", 3))),
            (&[("exec-stdout", "hi\n"), ("exec-stderr", "oh\n")], "ls", Some(("hi\n", "oh\n", 0))),
            (&[("exec", rules)], "pg_isready -q", Some(("", "", 2))),
            (&[("exec", rules)], "ls", Some(("rest\n", "", 0))),
            (&[("exec", "[]"), ("exec-exit-code", "4")], "ls", Some(("", "", 4))),
            (&[("container", "other"), ("exec-exit-code", "4")], "ls", None),
        ] {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            let got = pod(annotations).command("main", &words).expect("valid annotations").map(said);
            let expect = expect.map(|(stdout, stderr, code): (&str, &str, i32)| (stdout.into(), stderr.into(), code));
            assert_eq!(got, expect, "{annotations:?} {command}");
        }
        for (annotation, expect) in [
            (("exec", "{}"), "the annotation simulate.konverge.dev/exec is not valid: "),
            (
                ("exec", r#"[{"exit": 1}]"#),
                "the annotation simulate.konverge.dev/exec is not valid: unknown field `exit`",
            ),
            (
                ("exec-exit-code", "x"),
                r#"the annotation simulate.konverge.dev/exec-exit-code is not valid: "x" is not a number"#,
            ),
        ] {
            let why = pod(&[annotation]).command("main", &["ls".into()]).expect_err("not valid");
            assert!(why.starts_with(expect), "{why}");
        }
    }

    #[test]
    fn requests() {
        let rules =
            r#"[{"path": "/healthz", "status": 503, "body": "down"}, {"port": 9090, "method": "POST", "status": 201}]"#;
        for (annotations, port, method, path, expect) in [
            (&[("http-body", "hi"), ("http-status", "418")][..], 8080, "GET", "/", (418, "hi")),
            (&[("http", rules)], 8080, "GET", "/healthz", (503, "down")),
            (&[("http", rules)], 9090, "POST", "/x", (201, "")),
            (&[("http", rules), ("http-body", "else")], 8080, "POST", "/x", (200, "else")),
        ] {
            let HttpAnswer { status, body, .. } = pod(annotations).request(port, method, path);
            assert_eq!((status, body.as_str()), expect, "{method} {port} {path}");
        }
        let default = pod(&[]).request(8080, "GET", "/x?y");
        assert!(default.body.starts_with("konverge: pod shop/web is simulated"), "{}", default.body);
        assert_eq!(pod(&[("http", "no")]).request(8080, "GET", "/").status, 500);
        assert_eq!((pod(&[]).check_port(8080), pod(&[]).check_port(81).is_err()), (Ok(()), true));
    }
}
