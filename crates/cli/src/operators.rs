//! The bundled operators: the examples of this repository. In: names, and a client. Out: their CRDs are installed, and each
//! operator runs in this process until it is told to stop.

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
use konverge::testing::TestWebhooks;
use konverge::{BindAddress, Health, Kind, Metrics, Operator, Settings};
use konverge_apiserver::UserInfo;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::operator_account::OperatorAccount;
use crate::operator_crds::Definitions;

/// How long running reconciles may take to finish when the server stops.
const DRAIN: Duration = Duration::from_secs(3);

/// A bundled operator.
struct Bundled {
    name: &'static str,
    definition: fn() -> CustomResourceDefinition,
    run: fn(HostProcess) -> Result<BoxFuture<'static, konverge::Result<()>>, konverge::MetricError>,
    /// Its webhooks, for reviews that a developer sends by hand.
    webhooks: Option<fn(Client) -> Result<TestWebhooks, konverge::MetricError>>,
}

const BUNDLED: [Bundled; 3] = [
    Bundled {
        name: "application",
        definition: application::Application::crd,
        run: |host| Ok(run(application::operator(&host.metrics)?, host)),
        webhooks: Some(|client| Ok(application::operator(&Metrics::new())?.test_webhooks(client))),
    },
    Bundled {
        name: "webapp",
        definition: webapp::WebApp::crd,
        run: |host| Ok(run(webapp::operator(), host)),
        webhooks: None,
    },
    Bundled {
        name: "myapp",
        definition: myapp::MyApp::crd,
        run: |host| Ok(run(myapp::operator(), host)),
        webhooks: None,
    },
];

/// Makes a client in this process that is a user.
pub(crate) type ActingAs = Arc<dyn Fn(UserInfo) -> Client + Send + Sync>;

/// What an operator shares with the process that it runs in.
struct HostProcess {
    name: &'static str,
    /// Of an administrator.
    client: Client,
    /// Makes clients of other users; none lets operators do everything.
    acting_as: Option<ActingAs>,
    metrics: Metrics,
    health: Health,
    stop: watch::Receiver<bool>,
}

fn run<R: Kind>(operator: Operator<R>, host: HostProcess) -> BoxFuture<'static, konverge::Result<()>> {
    let HostProcess { name, client, acting_as, metrics, health, mut stop } = host;
    let mut settings = Settings { name: name.into(), graceful_shutdown_timeout: DRAIN, ..Settings::default() };
    // `konverge dev` serves metrics and health itself.
    settings.metrics.enabled = false;
    settings.health.enabled = false;
    // The API server that calls them is this process.
    settings.webhook.address = BindAddress::loopback(0);
    Box::pin(async move {
        let client = match acting_as {
            None => client,
            Some(acting_as) => {
                let account = OperatorAccount::open(&client, &operator.manifests(&settings)).await;
                let failed = |why| konverge::Error::permanent(format!("its service account was not made: {why}"));
                acting_as(account.map_err(failed)?.user())
            }
        };
        let operator = operator.client(client).settings(settings).metrics(metrics).health(health);
        operator.run_until(async move { drop(stop.wait_for(|stop| *stop).await) }).await
    })
}

/// Which bundled operators run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OperatorChoice(Vec<&'static str>);

impl OperatorChoice {
    /// No operator.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// The bundled operators that are not chosen.
    pub(crate) fn others(&self) -> impl Iterator<Item = &'static str> + '_ {
        BUNDLED.iter().map(|one| one.name).filter(|name| !self.includes(name))
    }

    /// Whether an operator is chosen.
    pub(crate) fn includes(&self, name: &str) -> bool {
        self.0.contains(&name)
    }
}

/// The example that shows the most features.
impl Default for OperatorChoice {
    fn default() -> Self {
        Self(vec!["application"])
    }
}

/// `application,webapp`, `all` or `none`.
impl FromStr for OperatorChoice {
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

impl fmt::Display for OperatorChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&if self.0.is_empty() { "none".to_owned() } else { self.0.join(",") })
    }
}

/// Why operators do not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OperatorError {
    #[error("the definition of the {name} operator could not be installed: {why}")]
    Install { name: &'static str, why: String },
    #[error("the {name} operator could not start")]
    Start { name: &'static str, source: konverge::MetricError },
}

/// Running operators. Dropping it ends them at once; [`Operators::stop`] waits for running reconciles to finish.
pub(crate) struct Operators {
    names: Vec<&'static str>,
    webhooks: Vec<Arc<TestWebhooks>>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    /// Operators that ended by themselves, as lines for the health pages.
    ended: Arc<Mutex<Vec<String>>>,
    /// The checks of each operator.
    health: Vec<(&'static str, Health)>,
}

impl Operators {
    /// Installs the CRDs of the chosen operators and starts them.
    pub(crate) async fn start(
        choice: &OperatorChoice,
        client: &Client,
        acting_as: Option<&ActingAs>,
        metrics: &Metrics,
        definitions: &Definitions,
    ) -> Result<Self, OperatorError> {
        let (stop, stopped) = watch::channel(false);
        let mut operators = Self {
            names: Vec::new(),
            webhooks: Vec::new(),
            stop,
            tasks: JoinSet::new(),
            ended: Arc::default(),
            health: Vec::new(),
        };
        for bundled in BUNDLED.iter().filter(|one| choice.includes(one.name)) {
            let name = bundled.name;
            let failed = |why: konverge::Error| OperatorError::Install { name, why: format!("{why:#}") };
            let definition = (bundled.definition)();
            install(client, &definition).await.map_err(failed)?;
            definitions.add(serde_json::to_value(definition).unwrap_or_default());
            let health = Health::new();
            operators.health.push((name, health.clone()));
            let (client, acting_as) = (client.clone(), acting_as.cloned());
            let host = HostProcess {
                name,
                client: client.clone(),
                acting_as,
                metrics: metrics.clone(),
                health,
                stop: stopped.clone(),
            };
            let running = (bundled.run)(host).map_err(|source| OperatorError::Start { name, source })?;
            if let Some(webhooks) = bundled.webhooks {
                let webhooks = webhooks(client.clone()).map_err(|source| OperatorError::Start { name, source })?;
                operators.webhooks.push(Arc::new(webhooks));
            }
            let (ended, stopped) = (operators.ended.clone(), stopped.clone());
            operators.names.push(name);
            operators.tasks.spawn(async move {
                let outcome = AssertUnwindSafe(running).catch_unwind().await;
                if !*stopped.borrow() {
                    let why = match outcome {
                        Ok(Ok(())) => "it ended by itself".to_owned(),
                        Ok(Err(error)) => error.to_string(),
                        Err(_) => "it panicked".to_owned(),
                    };
                    tracing::error!(operator = name, why, "an operator has stopped");
                    ended.lock().push(format!("[-]operator {name} failed: {why}"));
                }
            });
        }
        Ok(operators)
    }

    /// The names of the operators.
    pub(crate) fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// The webhooks of the operators.
    pub(crate) fn webhooks(&self) -> &[Arc<TestWebhooks>] {
        &self.webhooks
    }

    /// A function that returns the operators that do not run any more and the liveness checks that fail, with the reason.
    pub(crate) fn failing(&self) -> Arc<dyn Fn() -> Vec<String> + Send + Sync> {
        let (ended, health) = (self.ended.clone(), self.health.clone());
        Arc::new(move || [ended.lock().clone(), failing_liveness(&health)].concat())
    }

    /// Stops the operators and waits for running reconciles to finish.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// The liveness checks of operators that fail now, as lines for the health pages.
fn failing_liveness(operators: &[(&'static str, Health)]) -> Vec<String> {
    let failing = operators.iter().flat_map(|(operator, health)| {
        health
            .failing_liveness()
            .into_iter()
            .map(move |(check, why)| format!("[-]operator {operator} failed: {check}: {why}"))
    });
    failing.collect()
}

/// Installs a CRD and returns its name.
pub(crate) async fn install(client: &Client, definition: &CustomResourceDefinition) -> konverge::Result<String> {
    let name = definition.metadata.name.clone().unwrap_or_default();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    api.patch(&name, &PatchParams::apply("konverge-dev").force(), &Patch::Apply(definition)).await?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_liveness_checks_are_reported_until_they_pass() {
        let (sound, sick) = (Health::new(), Health::new());
        let operators = [("webapp", sound.clone()), ("myapp", sick.clone())];
        let _passes = sound.liveness("watches");
        let watches = sick.liveness("watches");
        // Readiness is no matter of liveness: an operator that still lists its objects is not broken.
        let _not_ready = sick.readiness("cache");
        assert_eq!(failing_liveness(&operators), Vec::<String>::new());
        watches.fail("a watch is dead");
        assert_eq!(failing_liveness(&operators), ["[-]operator myapp failed: watches: a watch is dead"]);
        watches.pass();
        assert_eq!(failing_liveness(&operators), Vec::<String>::new());
    }

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
            let got = text.parse::<OperatorChoice>().map(|choice| choice.to_string());
            assert_eq!(got, expect.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }
}
