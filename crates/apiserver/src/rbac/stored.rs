//! What is read of stored roles and bindings.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use konverge_core::LabelSelector;
use konverge_schema::go_quote;

use crate::user::{UserInfo, service_account_name};

use super::rule::{Rule, list};

/// A role or a cluster role.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StoredRole {
    pub metadata: StoredMetadata,
    #[serde(deserialize_with = "list")]
    pub rules: Vec<Rule>,
    #[serde(rename = "aggregationRule", deserialize_with = "selectors")]
    pub aggregates: Option<Vec<LabelSelector>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct StoredMetadata {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

/// A role binding or cluster role binding.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StoredBinding {
    pub role_ref: RoleRef,
    #[serde(deserialize_with = "list")]
    pub subjects: Vec<Subject>,
}

/// The role that a binding gives.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RoleRef {
    pub api_group: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
}

/// Who gets it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Subject {
    pub kind: Box<str>,
    pub name: Box<str>,
    pub namespace: Box<str>,
}

impl Subject {
    /// Whether a user is meant, in a binding of this namespace.
    pub(super) fn is(&self, user: &UserInfo, namespace: &str) -> bool {
        match &*self.kind {
            "User" => *user.name == *self.name,
            "Group" => user.groups.iter().any(|group| **group == *self.name),
            "ServiceAccount" => self.user_name(namespace).is_some_and(|name| *user.name == *name),
            _ => false,
        }
    }

    /// The name of a service account as a user. One without a namespace is in that of its binding.
    pub(super) fn user_name(&self, namespace: &str) -> Option<Box<str>> {
        let namespace = if self.namespace.is_empty() { namespace } else { &*self.namespace };
        (!namespace.is_empty()).then(|| service_account_name(namespace, &self.name).into())
    }

    pub(super) fn describe(&self, namespace: &str) -> String {
        let namespace = if self.namespace.is_empty() { namespace } else { &*self.namespace };
        let name = match &*self.kind {
            "ServiceAccount" => format!("{}/{namespace}", self.name),
            _ => self.name.to_string(),
        };
        format!("{} {}", self.kind, go_quote(&name))
    }
}

/// The selectors of an aggregation rule. One that cannot be read selects nothing: validation refuses those.
fn selectors<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<LabelSelector>>, D::Error> {
    let rule = Option::<Value>::deserialize(deserializer)?.filter(|rule| !rule.is_null());
    Ok(rule.map(|rule| {
        let selectors = rule["clusterRoleSelectors"].as_array().into_iter().flatten();
        selectors.filter_map(|selector| LabelSelector::from_object(selector).ok()).collect()
    }))
}
