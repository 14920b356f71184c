//! A cluster with an operator in it. In: a subject. Out: the operator, started, stopped and killed as a measurement needs it, and what it made. Every wait has
//! a limit.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cluster::ScoreCluster;
use super::metrics_page::MetricsPage;
use super::observations::{Rest, Started};
use super::operator_process::{LOOK, OperatorProcess, Part, Ports};
use super::subject::Subject;
use super::write_record::{Target, Write};
use crate::operator_account::OperatorAccount;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For each wait.
    pub timeout: Duration,
    /// How long an operator writes nothing before it is taken to be at rest.
    pub settle: Duration,
}

/// How many of the last writes of an operator are told that does not come to rest.
const LAST_WRITES: usize = 5;

/// How long the Lease is held that a standby waits for: longer than any measurement, and no elector believes more than an hour.
const STANDBY_SECONDS: u32 = 3600;

/// What the scorecard writes to touch an object.
const TOUCHED: &str = "konverge.dev/scorecard-touched";

/// A cluster and an operator.
pub(super) struct Session {
    pub cluster: ScoreCluster,
    pub patience: Patience,
    pub account: OperatorAccount,
    kubeconfig: PathBuf,
    ports: Ports,
    process: Option<OperatorProcess>,
    /// The version that is about to take over.
    standby: Option<OperatorProcess>,
}

impl Session {
    /// Starts a cluster and installs what the operator needs. Says which CRDs are not as they should be.
    pub(super) async fn open(subject: &Subject, patience: Patience) -> Result<(Self, Vec<String>), String> {
        let (cluster, ports) = (ScoreCluster::start().await?, Ports::free()?);
        let bad = install(&cluster, &subject.definitions_at(ports.webhooks()), patience).await?;
        let (account, kubeconfig) = cluster.account(&subject.rights).await?;
        Ok((Self { cluster, patience, account, kubeconfig, ports, process: None, standby: None }, bad))
    }

    /// Installs the CRDs of another version, whose conversions the operator that runs serves. Says what the server refuses.
    pub(super) async fn install(&mut self, subject: &Subject) -> Result<Vec<String>, String> {
        self.install_at(subject, self.ports).await
    }

    async fn install_at(&mut self, subject: &Subject, ports: Ports) -> Result<Vec<String>, String> {
        let bad = install(&self.cluster, &subject.definitions_at(ports.webhooks()), self.patience).await?;
        self.cluster.objects.forget_kinds();
        Ok(bad)
    }

    /// Installs the CRDs of another version, and starts that version beside the operator that runs, as a rollout does: it serves webhooks and reconciles
    /// nothing. Says what the server refuses, and how it started.
    pub(super) async fn stand_by(&mut self, subject: &Subject) -> Result<(Vec<String>, Started), String> {
        let ports = Ports::free()?;
        let bad = self.install_at(subject, ports).await?;
        let (name, namespace) = Part::LEASE;
        let renewed = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let held = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": namespace},
            "spec": {"holderIdentity": "konverge-scorecard", "leaseDurationSeconds": STANDBY_SECONDS, "renewTime": renewed},
        });
        self.cluster.apply(&held).await.map_err(|(_, why)| why)?;
        let Subject { executable, directory, settings, .. } = subject;
        // It has all rights, because the account has those of the version that runs.
        let kubeconfig = self.cluster.kubeconfig();
        let mut standby = OperatorProcess::start(executable, directory, kubeconfig, settings, ports, Part::StandsBy)?;
        let started = standby.ready(self.patience.timeout).await;
        self.standby = Some(standby);
        Ok((bad, started))
    }

    /// Stops the version that stands by.
    pub(super) async fn dismiss(&mut self) {
        if let Some(standby) = self.standby.take() {
            standby.stop().await;
        }
    }

    /// Gives the account the rights of another version.
    pub(super) async fn entitle(&mut self, subject: &Subject) -> Result<(), String> {
        (self.account, self.kubeconfig) = self.cluster.account(&subject.rights).await?;
        Ok(())
    }

    /// Starts the operator without waiting for it.
    pub(super) fn begin(&mut self, subject: &Subject) -> Result<(), String> {
        let Subject { executable, directory, settings, .. } = subject;
        let (kubeconfig, ports) = (&self.kubeconfig, self.ports);
        self.process = Some(OperatorProcess::start(executable, directory, kubeconfig, settings, ports, Part::Leads)?);
        Ok(())
    }

    /// Waits until the operator is ready.
    pub(super) async fn ready(&mut self) -> Started {
        match &mut self.process {
            Some(process) => process.ready(self.patience.timeout).await,
            None => Started::NotReady { why: "it was not started".to_owned(), last_words: Vec::new() },
        }
    }

    /// Starts the operator and waits until it is ready.
    pub(super) async fn start(&mut self, subject: &Subject) -> Result<Started, String> {
        self.begin(subject)?;
        Ok(self.ready().await)
    }

    /// Asks the operator to stop, and waits for its end.
    pub(super) async fn stop_operator(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop().await;
        }
    }

    /// Kills the operator.
    pub(super) async fn kill_operator(&mut self) -> Result<(), String> {
        match self.process.take() {
            Some(process) => process.kill().await,
            None => Ok(()),
        }
    }

    /// The page of the operator's metrics.
    pub(super) async fn metrics(&self) -> Option<String> {
        self.process.as_ref()?.metrics().await
    }

    /// The sum of one of its metrics.
    pub(super) async fn metric(&self, name: &str) -> Option<f64> {
        MetricsPage::of(&self.metrics().await?).sum(name)
    }

    /// The sum of one of its counters, which is zero if nothing was counted yet; nothing if the page cannot be read.
    pub(super) async fn counter(&self, name: &str) -> Option<f64> {
        Some(MetricsPage::of(&self.metrics().await?).sum(name).unwrap_or_default())
    }

    /// The last lines of the operator's log.
    pub(super) fn log(&self) -> Vec<String> {
        self.process.as_ref().map(OperatorProcess::log).unwrap_or_default()
    }

    /// Applies the samples; those that the server refuses, and why. A webhook that does not answer yet is waited for.
    pub(super) async fn apply_samples(
        cluster: &ScoreCluster,
        subject: &Subject,
        patience: Patience,
    ) -> Vec<(String, String)> {
        let deadline = Instant::now() + patience.timeout;
        let mut refused = Vec::new();
        for (source, sample) in &subject.samples {
            loop {
                match cluster.apply(sample).await {
                    Ok(()) => break,
                    Err((code, _)) if matches!(code, 500 | 503 | 504) && Instant::now() < deadline => {
                        tokio::time::sleep(LOOK).await;
                    }
                    Err((_, why)) => {
                        refused.push((source.clone(), why));
                        break;
                    }
                }
            }
        }
        refused
    }

    /// Waits until the operator has written nothing for a while.
    pub(super) async fn rest(&mut self) -> Rest {
        let (began, record) = (Instant::now(), self.cluster.record.clone());
        let (mut count, mut since) = (record.count(), began);
        loop {
            if let Some(how) = self.process.as_mut().and_then(OperatorProcess::ended) {
                return Rest::Ended(how);
            }
            if record.count() != count {
                (count, since) = (record.count(), Instant::now());
            }
            if since.elapsed() >= self.patience.settle {
                return Rest::Quiet;
            }
            if began.elapsed() >= self.patience.timeout {
                let writes = record.since(record.count().saturating_sub(LAST_WRITES));
                return Rest::Restless(writes.iter().map(ToString::to_string).collect());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Changes an annotation of an object, so that it is reconciled although nothing matters.
    pub(super) async fn touch(&self, object: &Value, word: &str) -> Result<(), String> {
        let path = self.path(object).await?;
        let patch = json!({"metadata": {"annotations": {TOUCHED: word}}});
        self.cluster.objects.merge(&path, &patch).await.map(drop).map_err(|error| error.to_string())
    }

    /// The path of an object.
    pub(super) async fn path(&self, object: &Value) -> Result<String, String> {
        self.cluster.objects.path(object).await.map_err(|error| error.to_string())
    }

    /// An object as it is now.
    pub(super) async fn now(&self, object: &Value) -> Result<Option<Value>, String> {
        let path = self.path(object).await?;
        self.cluster.objects.get(&path).await.map_err(|error| error.to_string())
    }

    /// These objects as they are now, without those that are gone.
    pub(super) async fn all_now(&self, objects: &[Value]) -> Result<Vec<Value>, String> {
        let mut found = Vec::new();
        for object in objects {
            found.extend(self.now(object).await?);
        }
        Ok(found)
    }

    /// What the operator made since a time with these writes: what it named, and what it created under names that the server gave.
    pub(super) async fn children(
        &self,
        writes: &[Write],
        samples: &[Value],
        since: Timestamp,
    ) -> Result<Vec<Value>, String> {
        let about = |write: &&Write| {
            !write.target.is_event() && write.target.subresource.is_empty() && write.method != "DELETE"
        };
        let targets: Vec<&Target> = writes.iter().filter(about).map(|write| &write.target).collect();
        let objects = self.cluster.objects_of(targets.iter().copied()).await?;
        let uids: BTreeSet<&str> = samples.iter().filter_map(|sample| sample["metadata"]["uid"].as_str()).collect();
        Ok(objects.into_iter().filter(|object| is_child(object, &targets, &uids, since)).collect())
    }

    /// Stops everything.
    pub(super) async fn close(mut self) {
        self.dismiss().await;
        self.stop_operator().await;
        self.cluster.stop().await;
    }
}

/// Whether an object was made by writes to these targets, and is no sample.
fn is_child(object: &Value, targets: &[&Target], samples: &BTreeSet<&str>, since: Timestamp) -> bool {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, namespace) = (text(&metadata["name"]), text(&metadata["namespace"]));
    let group = text(&object["apiVersion"]).split_once('/').map_or(String::new(), |(group, _)| group.to_owned());
    if samples.contains(text(&metadata["uid"]).as_str()) || metadata["creationTimestamp"].as_str().is_none() {
        return false;
    }
    let created = metadata["creationTimestamp"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    // Times of Kubernetes have no fractions.
    let is_new = created.is_some_and(|created| created.as_second() >= since.as_second());
    let owners = metadata["ownerReferences"].as_array().cloned().unwrap_or_default();
    let is_of_another =
        owners.iter().any(|owner| owner["controller"] == true && !samples.contains(text(&owner["uid"]).as_str()));
    targets.iter().any(|target| {
        let fits = target.group == group && target.namespace == namespace;
        fits && is_new && (target.name == name || (target.name.is_empty() && !is_of_another))
    })
}

/// Installs CRDs, and waits until their kinds are served. Says what is wrong with them.
async fn install(cluster: &ScoreCluster, definitions: &[Value], patience: Patience) -> Result<Vec<String>, String> {
    let mut bad = Vec::new();
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        if let Err((_, why)) = cluster.apply(definition).await {
            bad.push(format!("{name} is refused: {why}"));
            continue;
        }
        let deadline = Instant::now() + patience.timeout;
        loop {
            let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
            let now = cluster.objects.get(&path).await.map_err(|error| error.to_string())?.unwrap_or_default();
            let condition = |wanted: &str| {
                let mut all = now["status"]["conditions"].as_array().into_iter().flatten();
                all.find(|one| one["type"] == wanted && one["status"] == "True").cloned()
            };
            if let Some(condition) = condition("NonStructuralSchema") {
                bad.push(format!("{name} is not structural: {}", condition["message"].as_str().unwrap_or_default()));
                break;
            }
            if condition("Established").is_some() {
                break;
            }
            if Instant::now() > deadline {
                bad.push(format!("{name} is not established"));
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
    Ok(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_made() {
        let target = |path: &str| Target::of(path).expect("a path");
        let (named, created) =
            (target("/apis/apps/v1/namespaces/a/deployments/web"), target("/apis/apps/v1/namespaces/a/deployments"));
        let samples: BTreeSet<&str> = ["sample"].into();
        let since: Timestamp = "2026-01-01T00:00:00.9Z".parse().expect("a time");
        let object = |name: &str, namespace: &str, uid: &str, created: &str, owner: Option<&str>| {
            let owners: Vec<Value> = owner.iter().map(|owner| json!({"uid": owner, "controller": true})).collect();
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": created, "ownerReferences": owners}})
        };
        let new = "2026-01-01T00:00:00Z";
        for (target, object, expect) in [
            (&named, object("web", "a", "1", new, Some("sample")), true),
            (&named, object("web", "b", "1", new, None), false),
            (&named, object("db", "a", "1", new, None), false),
            (&named, object("web", "a", "sample", new, None), false),
            (&named, object("web", "a", "1", "2025-12-31T23:59:59Z", None), false),
            (&created, object("any", "a", "1", new, Some("sample")), true),
            (&created, object("any", "a", "1", new, None), true),
            (&created, object("any", "a", "1", new, Some("another")), false),
        ] {
            assert_eq!(is_child(&object, &[target], &samples, since), expect, "{target} {object}");
        }
    }
}
