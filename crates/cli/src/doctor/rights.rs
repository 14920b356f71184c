//! Rights: those of the current user to deploy, and those of the operator to work. In: rules, and the server's answers to access reviews. Out: findings. A review
//! is a question in the form of an object, and stores nothing.

use serde_json::{Value, json};

use super::checks::{DEPLOY_RIGHTS, OPERATOR_RIGHTS};
use super::finding::Finding;
use crate::description::{Description, text};
use crate::observer::{Observer, Unread};

/// How many questions are asked about an operator. Most need fewer than a hundred.
const MOST: usize = 300;

/// What `konverge deploy` does, by group, resource and whether it is in a namespace.
const DEPLOYED: [(&str, &str, bool); 10] = [
    ("", "namespaces", false),
    ("apiextensions.k8s.io", "customresourcedefinitions", false),
    ("rbac.authorization.k8s.io", "clusterroles", false),
    ("rbac.authorization.k8s.io", "clusterrolebindings", false),
    ("rbac.authorization.k8s.io", "roles", true),
    ("", "serviceaccounts", true),
    ("", "services", true),
    ("", "configmaps", true),
    ("apps", "deployments", true),
    ("policy", "poddisruptionbudgets", true),
];

/// What somebody may be allowed to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    namespace: String,
    verb: String,
    group: String,
    resource: String,
    name: String,
    /// A path instead of all but the verb.
    path: String,
}

impl Access {
    /// In the words of kubectl.
    fn words(&self) -> String {
        if !self.path.is_empty() {
            return format!("{} {}", self.verb, self.path);
        }
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let name = if self.name.is_empty() { String::new() } else { format!("/{}", self.name) };
        let place = if self.namespace.is_empty() { String::new() } else { format!(" in {}", self.namespace) };
        format!("{} {}{group}{name}{place}", self.verb, self.resource)
    }

    fn spec(&self) -> Value {
        if !self.path.is_empty() {
            return json!({"nonResourceAttributes": {"path": self.path, "verb": self.verb}});
        }
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        json!({"resourceAttributes": {
            "namespace": self.namespace, "verb": self.verb, "group": self.group, "resource": resource,
            "subresource": subresource, "name": self.name,
        }})
    }
}

/// What a deploy needs, into a namespace.
fn needed_to_deploy(namespace: &str) -> Vec<Access> {
    let of = |(group, resource, is_namespaced): (&str, &str, bool)| {
        ["create", "patch"].map(|verb| Access {
            namespace: if is_namespaced { namespace.to_owned() } else { String::new() },
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            ..Access::default()
        })
    };
    DEPLOYED.into_iter().flat_map(of).collect()
}

/// Every single right of some rules.
fn expanded(rules: &[Value], namespace: &str) -> Vec<Access> {
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let mut accesses = Vec::new();
    for rule in rules {
        let verbs = texts(&rule["verbs"]);
        for path in texts(&rule["nonResourceURLs"]) {
            let of = |verb: &String| Access { verb: verb.clone(), path: path.clone(), ..Access::default() };
            accesses.extend(verbs.iter().map(of));
        }
        let mut names = texts(&rule["resourceNames"]);
        if names.is_empty() {
            names.push(String::new());
        }
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for name in &names {
                    accesses.extend(verbs.iter().map(|verb| Access {
                        namespace: namespace.to_owned(),
                        verb: verb.clone(),
                        group: group.clone(),
                        resource: resource.clone(),
                        name: name.clone(),
                        path: String::new(),
                    }));
                }
            }
        }
    }
    accesses
}

/// Every right that an operator declares.
fn declared(operator: &Description) -> Vec<Access> {
    let mut accesses = expanded(&operator.rules.cluster, "");
    for (namespace, rules) in &operator.rules.namespaces {
        accesses.extend(expanded(rules, namespace));
    }
    let (namespace, rules) = &operator.leader_election;
    accesses.extend(expanded(rules, namespace));
    if let Some(webhooks) = &operator.webhooks {
        accesses.extend(expanded(&webhooks.namespaced_rules, &operator.namespace));
        accesses.extend(expanded(&webhooks.cluster_rules, ""));
    }
    accesses
}

/// Asks about each of these rights; returns those that are lacking.
async fn lacking(observer: &Observer, accesses: &[Access], user: Option<&str>) -> Result<Vec<String>, Unread> {
    let path = if user.is_some() { "subjectaccessreviews" } else { "selfsubjectaccessreviews" };
    let mut lacking = Vec::new();
    for access in accesses.iter().take(MOST) {
        let mut spec = access.spec();
        if let Some(user) = user {
            spec["user"] = user.into();
            let namespace = user.split(':').nth(2).unwrap_or_default();
            spec["groups"] = json!([
                "system:serviceaccounts",
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated"
            ]);
        }
        let answer = observer.review(&format!("/apis/authorization.k8s.io/v1/{path}"), &json!({"spec": spec})).await?;
        if answer["status"]["allowed"] != true {
            lacking.push(access.words());
        }
    }
    Ok(lacking)
}

/// Whether the current user may deploy.
pub(super) async fn to_deploy(observer: &Observer, namespace: &str) -> Finding {
    let needed = needed_to_deploy(namespace);
    judge_deploy(&lacking(observer, &needed, None).await, namespace)
}

fn judge_deploy(lacking: &Result<Vec<String>, Unread>, namespace: &str) -> Finding {
    match lacking {
        Err(error) => DEPLOY_RIGHTS.not_checked(error.to_string()),
        Ok(lacking) if lacking.is_empty() => DEPLOY_RIGHTS.ok(format!("you may deploy into {namespace}")),
        Ok(lacking) => DEPLOY_RIGHTS
            .warning(
                "you may not do all that `konverge deploy` does",
                &["ask whoever runs the cluster for these rights, or to deploy it"],
            )
            .with(lacking.clone()),
    }
}

/// Whether the operator's account has what the operator declares.
pub(super) async fn of_operator(observer: &Observer, operator: &Description) -> Finding {
    let user = format!("system:serviceaccount:{}:{}", operator.namespace, operator.name);
    let declared = declared(operator);
    judge_operator(&lacking(observer, &declared, Some(&user)).await, &user, declared.len())
}

fn judge_operator(lacking: &Result<Vec<String>, Unread>, user: &str, declared: usize) -> Finding {
    match lacking {
        Err(Unread::Forbidden(_)) => {
            OPERATOR_RIGHTS.not_checked("you may not ask what others may do (subjectaccessreviews)")
        }
        Err(error) => OPERATOR_RIGHTS.not_checked(error.to_string()),
        Ok(lacking) if lacking.is_empty() && declared > MOST => {
            OPERATOR_RIGHTS.ok(format!("{user} has the first {MOST} of {declared} rights that the operator declares"))
        }
        Ok(lacking) if lacking.is_empty() => {
            OPERATOR_RIGHTS.ok(format!("{user} has all {declared} rights that the operator declares"))
        }
        Ok(lacking) => OPERATOR_RIGHTS
            .problem(
                format!("{user} lacks {} of {declared} rights that the operator declares", lacking.len()),
                &["`konverge deploy` brings its roles up to date; `konverge generate rbac` writes them"],
            )
            .with(lacking.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Outcome;

    #[test]
    fn rules_are_taken_apart() {
        let rules = [
            json!({"apiGroups": ["apps", ""], "resources": ["deployments/status"], "verbs": ["get", "patch"]}),
            json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["a", "b"]}),
            json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}),
        ];
        let words: Vec<String> = expanded(&rules, "shop").iter().map(Access::words).collect();
        assert_eq!(
            words,
            [
                "get deployments/status.apps in shop",
                "patch deployments/status.apps in shop",
                "get deployments/status in shop",
                "patch deployments/status in shop",
                "get secrets/a in shop",
                "get secrets/b in shop",
                "get /metrics",
            ]
        );
        let attributes = &expanded(&rules, "")[0].spec()["resourceAttributes"];
        assert_eq!((&attributes["resource"], &attributes["subresource"]), (&json!("deployments"), &json!("status")));
        assert_eq!(needed_to_deploy("shop").len(), 2 * DEPLOYED.len());
    }

    #[test]
    fn what_is_lacking() {
        let check = |found: Finding, outcome: Outcome| assert_eq!(found.outcome, outcome, "{found:?}");
        let lacks = || Ok(vec!["get pods".to_owned()]);
        check(judge_deploy(&Ok(Vec::new()), "a"), Outcome::Ok);
        check(judge_deploy(&lacks(), "a"), Outcome::Warning);
        check(judge_deploy(&Err(Unread::Failed("x".into())), "a"), Outcome::NotChecked);
        check(judge_operator(&Ok(Vec::new()), "a", 3), Outcome::Ok);
        check(judge_operator(&lacks(), "a", 3), Outcome::Problem);
        check(judge_operator(&Err(Unread::Forbidden("x".into())), "a", 3), Outcome::NotChecked);
    }
}
