//! The operators that come with the program. In: names, and a client. Out: their definitions installed, and each at work
//! in this process until it is told to stop. They are the examples of this repository, and know nothing of this.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use konverge::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge::kube::api::{Patch, PatchParams};
use konverge::kube::{Api, Client, CustomResourceExt};
use konverge::{Kind, Metrics, Operator, Settings};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::definitions::Definitions;

/// How long reconciles that run may take when the server stops.
const DRAIN: Duration = Duration::from_secs(3);

/// One of them.
struct Bundled {
    name: &'static str,
    definition: fn() -> CustomResourceDefinition,
    run: fn(Beside) -> Result<BoxFuture<'static, konverge::Result<()>>, konverge::MetricError>,
}

const BUNDLED: [Bundled; 3] = [
    Bundled {
        name: "application",
        definition: application::Application::crd,
        run: |beside| Ok(run(application::operator(&beside.metrics)?, beside)),
    },
    Bundled { name: "webapp", definition: webapp::WebApp::crd, run: |beside| Ok(run(webapp::operator(), beside)) },
    Bundled { name: "myapp", definition: myapp::MyApp::crd, run: |beside| Ok(run(myapp::operator(), beside)) },
];

/// What an operator gets of the process it runs in.
struct Beside {
    name: &'static str,
    client: Client,
    metrics: Metrics,
    stop: watch::Receiver<bool>,
}

fn run<R: Kind>(operator: Operator<R>, beside: Beside) -> BoxFuture<'static, konverge::Result<()>> {
    let Beside { name, client, metrics, mut stop } = beside;
    let mut settings = Settings { name: name.into(), graceful_shutdown_timeout: DRAIN, ..Settings::default() };
    // The process has pages for both already.
    settings.metrics.enabled = false;
    settings.health.enabled = false;
    let operator = operator.client(client).settings(settings).metrics(metrics);
    Box::pin(operator.run_until(async move { drop(stop.wait_for(|stop| *stop).await) }))
}

/// Which of them to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice(Vec<&'static str>);

impl Choice {
    /// None of them.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Whether this one is among them.
    pub fn includes(&self, name: &str) -> bool {
        self.0.contains(&name)
    }
}

/// The one that shows most.
impl Default for Choice {
    fn default() -> Self {
        Self(vec!["application"])
    }
}

/// `application,webapp`, `all` or `none`.
impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || BUNDLED.iter().map(|one| one.name);
        match text {
            "all" => return Ok(Self(known().collect())),
            "none" => return Ok(Self(Vec::new())),
            _ => {}
        }
        let mut chosen = Vec::new();
        for name in text.split(',').map(str::trim) {
            let Some(name) = known().find(|known| *known == name) else {
                let known: Vec<&str> = known().collect();
                return Err(format!("{name:?} is none of them; there is {}, or all, or none", known.join(", ")));
            };
            if !chosen.contains(&name) {
                chosen.push(name);
            }
        }
        Ok(Self(chosen))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&if self.0.is_empty() { "none".to_owned() } else { self.0.join(",") })
    }
}

/// Why operators do not run.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("the definition of the {name} operator could not be installed")]
    Install { name: &'static str, source: Box<konverge::kube::Error> },
    #[error("the {name} operator could not start")]
    Start { name: &'static str, source: konverge::MetricError },
}

/// Operators at work. Dropping it ends them at once; [`Operators::stop`] lets reconciles finish.
pub struct Operators {
    names: Vec<&'static str>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    /// What became of those that ended by themselves.
    ended: Arc<Mutex<Vec<String>>>,
}

impl Operators {
    /// Installs the definitions of those that are chosen, and starts them.
    pub async fn start(
        choice: &Choice,
        client: &Client,
        metrics: &Metrics,
        definitions: &Definitions,
    ) -> Result<Self, OperatorError> {
        let (stop, told) = watch::channel(false);
        let mut operators = Self { names: Vec::new(), stop, tasks: JoinSet::new(), ended: Arc::default() };
        for bundled in BUNDLED.iter().filter(|one| choice.includes(one.name)) {
            let name = bundled.name;
            let failed = |source| OperatorError::Install { name, source: Box::new(source) };
            let definition = (bundled.definition)();
            install(client, &definition).await.map_err(failed)?;
            definitions.add(serde_json::to_value(definition).unwrap_or_default());
            let beside = Beside { name, client: client.clone(), metrics: metrics.clone(), stop: told.clone() };
            let running = (bundled.run)(beside).map_err(|source| OperatorError::Start { name, source })?;
            let (ended, told) = (operators.ended.clone(), told.clone());
            operators.names.push(name);
            operators.tasks.spawn(async move {
                let outcome = AssertUnwindSafe(running).catch_unwind().await;
                if !*told.borrow() {
                    let why = match outcome {
                        Ok(Ok(())) => "it ended by itself".to_owned(),
                        Ok(Err(error)) => error.to_string(),
                        Err(_) => "it panicked".to_owned(),
                    };
                    tracing::error!(operator = name, why, "an operator does not run any more");
                    ended.lock().push(format!("[-]operator {name} failed: {why}"));
                }
            });
        }
        Ok(operators)
    }

    /// Their names.
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// Tells, whenever it is asked, which of them do not run any more, and why.
    pub fn ailing(&self) -> Arc<dyn Fn() -> Vec<String> + Send + Sync> {
        let ended = self.ended.clone();
        Arc::new(move || ended.lock().clone())
    }

    /// Lets reconciles finish, and ends.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Puts a definition into the server, and tells its name.
pub async fn install(client: &Client, definition: &CustomResourceDefinition) -> Result<String, konverge::kube::Error> {
    let name = definition.metadata.name.clone().unwrap_or_default();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    api.patch(&name, &PatchParams::apply("konverge-dev").force(), &Patch::Apply(definition)).await?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices() {
        for (text, expect) in [
            ("all", Ok("application,webapp,myapp")),
            ("none", Ok("none")),
            ("application", Ok("application")),
            ("myapp,application, myapp", Ok("myapp,application")),
            ("", Err("\"\" is none of them; there is application, webapp, myapp, or all, or none")),
            ("webapp,other", Err("\"other\" is none of them; there is application, webapp, myapp, or all, or none")),
        ] {
            let got = text.parse::<Choice>().map(|choice| choice.to_string());
            assert_eq!(got, expect.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }
}
