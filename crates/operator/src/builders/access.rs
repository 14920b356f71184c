//! RBAC: ServiceAccount, Role, ClusterRole and their bindings.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::rbac::v1 as rbac;

use super::wrapper::{kind, named, put, texts, wrapper};

const GROUP: &str = "rbac.authorization.k8s.io";

kind! {
    /// The identity of pods at the API server.
    ServiceAccount(core::ServiceAccount)
}

impl ServiceAccount {
    /// A service account called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self(core::ServiceAccount { metadata: named(name), ..Default::default() })
    }

    /// Whether its token is mounted into pods.
    pub fn automount_service_account_token(mut self, yes: bool) -> Self {
        self.0.automount_service_account_token = Some(yes);
        self
    }

    /// Adds a Secret with the credentials of an image registry.
    pub fn image_pull_secret(mut self, name: impl Into<String>) -> Self {
        let secret = core::LocalObjectReference { name: name.into() };
        put(&mut self.0.image_pull_secrets, secret, |secret| secret.name.clone());
        self
    }
}

kind! {
    /// Rules for one namespace.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// let rule = PolicyRule::new().api_groups([""]).resources(["pods"]).verbs(["get", "list", "watch"]);
    /// assert_eq!(Role::new("reader").rule(rule).inner().rules.as_ref().unwrap().len(), 1);
    /// ```
    Role(rbac::Role)
}

kind! {
    /// Rules for the whole cluster.
    ClusterRole(rbac::ClusterRole)
}

macro_rules! role {
    ($name:ident) => {
        impl $name {
            /// A role called `name` that allows nothing yet.
            pub fn new(name: impl Into<String>) -> Self {
                Self(rbac::$name { metadata: named(name), ..Default::default() })
            }

            /// Adds a rule.
            pub fn rule(mut self, rule: PolicyRule) -> Self {
                self.0.rules.get_or_insert_default().push(rule.into());
                self
            }
        }
    };
}

role!(Role);
role!(ClusterRole);

wrapper! {
    /// A rule of a role: the verbs that it allows on resources.
    PolicyRule(rbac::PolicyRule)
}

impl PolicyRule {
    /// A rule that allows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The API groups of the resources; `""` is the core group.
    pub fn api_groups(mut self, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.api_groups = Some(texts(groups));
        self
    }

    /// The resources, by their plural names: `pods`, `pods/log`.
    pub fn resources(mut self, resources: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.resources = Some(texts(resources));
        self
    }

    /// Limits the rule to objects with these names.
    pub fn resource_names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.resource_names = Some(texts(names));
        self
    }

    /// Paths outside of the API: `/metrics`. For cluster roles only.
    pub fn non_resource_urls(mut self, urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.non_resource_urls = Some(texts(urls));
        self
    }

    /// The verbs: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, or `*`.
    pub fn verbs(mut self, verbs: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.0.verbs = texts(verbs);
        self
    }
}

kind! {
    /// Grants the rules of a role in one namespace.
    RoleBinding(rbac::RoleBinding)
}

kind! {
    /// Grants the rules of a role in the whole cluster.
    ClusterRoleBinding(rbac::ClusterRoleBinding)
}

macro_rules! binding {
    ($name:ident) => {
        impl $name {
            /// A binding called `name`.
            pub fn new(name: impl Into<String>) -> Self {
                Self(rbac::$name { metadata: named(name), ..Default::default() })
            }

            /// Grants the cluster role `name`.
            pub fn cluster_role(self, name: impl Into<String>) -> Self {
                self.to("ClusterRole", name)
            }

            fn to(mut self, kind: &str, name: impl Into<String>) -> Self {
                let api_group = Some(GROUP.to_owned());
                self.0.role_ref = rbac::RoleRef { api_group, kind: kind.to_owned(), name: name.into() };
                self
            }

            /// Grants it to the service account `name`.
            pub fn service_account(self, name: impl Into<String>, namespace: impl Into<String>) -> Self {
                self.subject("ServiceAccount", name, None, Some(namespace.into()))
            }

            /// Grants it to the user `name`.
            pub fn user(self, name: impl Into<String>) -> Self {
                self.subject("User", name, Some(GROUP.to_owned()), None)
            }

            /// Grants it to the group `name`.
            pub fn group(self, name: impl Into<String>) -> Self {
                self.subject("Group", name, Some(GROUP.to_owned()), None)
            }

            fn subject(
                mut self,
                kind: &str,
                name: impl Into<String>,
                api_group: Option<String>,
                namespace: Option<String>,
            ) -> Self {
                let subject = rbac::Subject { api_group, kind: kind.to_owned(), name: name.into(), namespace };
                self.0.subjects.get_or_insert_default().push(subject);
                self
            }
        }
    };
}

binding!(RoleBinding);
binding!(ClusterRoleBinding);

impl RoleBinding {
    /// Grants the role `name` of the binding's namespace.
    pub fn role(self, name: impl Into<String>) -> Self {
        self.to("Role", name)
    }
}
