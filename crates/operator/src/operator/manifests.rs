//! What an operator needs before it can run in a cluster. In: its controllers and settings. Out: rules, CRDs and manifests, which
//! `--print-crds`, `--print-rbac`, `--print-webhooks` and `--print-statefulset` print.

use std::io::{self, Write};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_runtime::{Error, Result};
use serde::de::DeserializeOwned;

use super::{Operator, leader, sharding};
use crate::controller::AnyController;
use crate::rules::Rules;
use crate::settings::{Print, Settings};
use crate::versions::Versions;
use crate::webhook::Served;

impl<R: DeserializeOwned + Send + Sync + 'static> Operator<R> {
    /// The RBAC rules that this operator with all its controllers needs, as far as it declares them: its kinds, their status
    /// and finalizers, events, and what it `owns`, `watches` and `needs`. What reconciles apply without a declaration is seen
    /// in a test run: `konverge-testkit` has the rules that were used.
    pub fn rules(&self) -> Rules {
        let others = self.process.controllers.iter();
        others.fold(AnyController::rules(&self.spec), |rules, other| rules.and(other.rules()))
    }

    /// The CRDs of its kinds, of those whose types know them. Each is there once, also if several controllers reconcile it. A
    /// kind with several versions is converted by the operator's webhooks, at the address that settings from code say.
    pub fn definitions(&self) -> Vec<CustomResourceDefinition> {
        self.definitions_with(&self.process.settings_from_code())
    }

    fn definitions_with(&self, settings: &Settings) -> Vec<CustomResourceDefinition> {
        let others = self.process.controllers.iter().filter_map(|other| other.definition());
        let mut definitions: Vec<CustomResourceDefinition> = Vec::new();
        for definition in AnyController::definition(&self.spec).into_iter().chain(others) {
            // Several controllers may reconcile one kind, and one of them may know all of its versions.
            match definitions.iter_mut().find(|known| known.metadata.name == definition.metadata.name) {
                Some(known) if known.spec.versions.len() < definition.spec.versions.len() => *known = definition,
                Some(_) => {}
                None => definitions.push(definition),
            }
        }
        for definition in &mut definitions {
            if definition.spec.versions.len() > 1 {
                definition.spec.conversion = crate::webhook::conversion(settings);
            }
        }
        definitions
    }

    /// The kinds with several versions.
    pub(super) fn versions(&self) -> Vec<Versions> {
        let others = self.process.versions().into_iter().map(|(versions, _)| versions);
        AnyController::versions(&self.spec).cloned().into_iter().chain(others).collect()
    }

    /// The webhooks of all its controllers.
    pub(super) fn webhooks(&self) -> Vec<Served> {
        let others = self.process.webhooks(&self.spec.states);
        AnyController::webhooks(&self.spec, &self.spec.states).into_iter().chain(others).collect()
    }

    /// The roles of the operator under these settings, and those of its leader election.
    fn rbac(&self, settings: &Settings) -> Vec<serde_json::Value> {
        let mut manifests = self.rules().manifests(&settings.name, settings.home(), &settings.namespaces);
        if settings.leader_election.enabled {
            manifests.extend(leader::manifests(settings));
        }
        if settings.shards > 0 {
            manifests.extend(sharding::manifests(settings));
        }
        manifests
    }

    /// What leader election or shards need besides, in the namespace of their Leases. It is printed by `--print-rbac`, and empty without
    /// either.
    pub fn leader_election_rules(&self) -> Rules {
        let settings = self.process.settings_from_code();
        match settings.leader_election.enabled {
            _ if settings.shards > 0 => sharding::rules(),
            true => leader::rules(),
            false => Rules::new(),
        }
    }

    /// What an administrator applies for the operator under these settings, beside its CRDs: what `--print-rbac` and
    /// `--print-webhooks` print.
    pub fn manifests(&self, settings: &Settings) -> Vec<serde_json::Value> {
        let mut manifests = self.rbac(settings);
        manifests.extend(crate::webhook::manifests(&self.webhooks(), &self.versions(), settings));
        manifests
    }

    /// What the operator's webhooks and the conversion of its versions need besides: certificates, and telling API servers of them.
    /// It is printed by `--print-webhooks`, and empty without webhooks.
    pub fn webhook_rules(&self) -> Rules {
        let manifests =
            crate::webhook::manifests(&self.webhooks(), &self.versions(), &self.process.settings_from_code());
        let mut rules = Rules::new();
        for rule in manifests.iter().filter_map(|manifest| manifest["rules"].as_array()).flatten() {
            let texts = |field: &str| rule[field].as_array().into_iter().flatten().filter_map(|text| text.as_str());
            for group in texts("apiGroups") {
                for resource in texts("resources") {
                    rules = rules.allow_resource(group, resource, texts("verbs"));
                }
            }
        }
        rules
    }

    /// Prints what was asked for, as YAML that `kubectl apply -f -` takes.
    pub(super) fn print(&self, print: Print, settings: &Settings) -> Result<()> {
        let manifests = match print {
            Print::Crds => {
                let definitions = self.definitions_with(settings);
                definitions.iter().map(|one| Ok(with_one_address(serde_json::to_value(one)?))).collect::<Result<_>>()?
            }
            Print::Rbac => self.rbac(settings),
            Print::Webhooks => crate::webhook::manifests(&self.webhooks(), &self.versions(), settings),
            Print::StatefulSet => match &self.process.elected_by {
                Some(election) => election.manifests(settings),
                None => {
                    return Err(Error::permanent(
                        "the leader of this operator is not elected by Raft, so it needs no StatefulSet: run it as a Deployment",
                    ));
                }
            },
        };
        let mut out = std::io::stdout().lock();
        for manifest in manifests {
            let yaml = serde_saphyr::to_string(&manifest).map_err(Error::permanent)?;
            match writeln!(out, "---\n{}", yaml.trim_end()) {
                // The reader has seen enough: `--print-crds | head`.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
        }
        Ok(())
    }
}

/// A CRD that says which address its conversion webhook does not have: a CRD that is there may have the other one, from a run on another
/// machine, and an API server refuses both.
fn with_one_address(mut definition: serde_json::Value) -> serde_json::Value {
    if let Some(config) = definition.pointer_mut("/spec/conversion/webhook/clientConfig") {
        let other = if config["url"].is_string() { "service" } else { "url" };
        config[other] = serde_json::Value::Null;
    }
    definition
}
