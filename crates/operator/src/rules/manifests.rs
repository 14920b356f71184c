//! Rules as manifests that an administrator applies. In: rules, a name and namespaces. Out: ServiceAccount, roles and bindings.

use serde_json::Value;

use super::Rules;
use crate::builders::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, ServiceAccount};

impl Rules {
    /// The manifests for an operator called `name` that runs in the namespace `home`: a ServiceAccount, and these rules for it. If
    /// the operator watches some namespaces only, there is a Role in each. Rules for cluster-scoped kinds, and all rules if it
    /// watches all namespaces, are a ClusterRole.
    pub fn manifests(&self, name: &str, home: &str, namespaces: &[String]) -> Vec<Value> {
        let everywhere = namespaces.is_empty();
        let mut manifests = vec![manifest(&ServiceAccount::new(name).namespace(home))];
        let in_cluster = self.gathered(|allowed| everywhere || allowed.cluster);
        if !in_cluster.is_empty() {
            manifests.push(manifest(&in_cluster.into_iter().fold(ClusterRole::new(name), ClusterRole::rule)));
            let binding = ClusterRoleBinding::new(name).cluster_role(name).service_account(name, home);
            manifests.push(manifest(&binding));
        }
        for namespace in namespaces {
            let rules = self.gathered(|allowed| !allowed.cluster);
            if !rules.is_empty() {
                let role = rules.into_iter().fold(Role::new(name), Role::rule);
                manifests.push(manifest(&role.namespace(namespace)));
                let binding = RoleBinding::new(name).role(name).service_account(name, home);
                manifests.push(manifest(&binding.namespace(namespace)));
            }
        }
        manifests
    }
}

fn manifest(object: &impl serde::Serialize) -> Value {
    serde_json::to_value(object).expect("published types are JSON")
}
