//! Rules as manifests that an administrator applies. In: rules, a name and namespaces. Out: ServiceAccount, roles and bindings.

use konverge_core::RIGHTS_TOGETHER;
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
            manifests.push(self.marked(&in_cluster.into_iter().fold(ClusterRole::new(name), ClusterRole::rule)));
            let binding = ClusterRoleBinding::new(name).cluster_role(name).service_account(name, home);
            manifests.push(manifest(&binding));
        }
        for namespace in namespaces {
            manifests.extend(self.role(name, namespace, (name, home)));
        }
        manifests
    }

    /// The rules for objects in namespaces as a Role in one of them, bound to a ServiceAccount (name and namespace); nothing if there are
    /// none.
    pub(crate) fn role(&self, name: &str, namespace: &str, (account, home): (&str, &str)) -> Vec<Value> {
        let rules = self.gathered(|allowed| !allowed.cluster);
        if rules.is_empty() {
            return Vec::new();
        }
        let role = rules.into_iter().fold(Role::new(name), Role::rule);
        let binding = RoleBinding::new(name).role(name).service_account(account, home);
        vec![self.marked(&role.namespace(namespace)), manifest(&binding.namespace(namespace))]
    }

    /// A role, which says which of its rights belong together.
    fn marked(&self, role: &impl serde::Serialize) -> Value {
        let (mut role, together) = (manifest(role), self.together());
        if !together.is_empty() {
            role["metadata"]["annotations"][RIGHTS_TOGETHER] = together.into();
        }
        role
    }
}

fn manifest(object: &impl serde::Serialize) -> Value {
    serde_json::to_value(object).expect("published types are JSON")
}
