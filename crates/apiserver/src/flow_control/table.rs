//! What the initial FlowSchemas and PriorityLevelConfigurations are: the facts of Kubernetes as tables. Out: objects' names and specs,
//! with all defaults filled in.

use serde_json::{Value, json};

use super::Initial;

/// A priority level: its name, its share of the requests, the percent of it that others may borrow, and how requests wait: the
/// number of queues, how many of them one flow may use, and how many requests wait in each. Without queues they are refused.
type Level = (&'static str, u32, u32, Option<[u32; 3]>);

const LEVELS: [Level; 7] = [
    (CATCH_ALL, 5, 0, None),
    ("global-default", 20, 50, Some([128, 6, 50])),
    ("leader-election", 10, 0, Some([16, 4, 50])),
    ("node-high", 40, 25, Some([64, 6, 50])),
    ("system", 30, 33, Some([64, 6, 50])),
    ("workload-high", 40, 50, Some([128, 6, 50])),
    ("workload-low", 100, 90, Some([128, 6, 50])),
];

/// The level whose requests are not limited; its name is also that of a FlowSchema, as is the next one's.
pub(super) const EXEMPT: &str = "exempt";
pub(super) const CATCH_ALL: &str = "catch-all";

/// What a FlowSchema is about.
#[derive(Clone, Copy)]
enum Requests {
    All,
    /// Reads of the endpoints that say whether the server is well.
    Probes,
    /// Resources: verbs, group, resources, and whether those outside of namespaces count, too.
    Resources(&'static [(&'static [&'static str], &'static str, &'static [&'static str], bool)]),
}

/// Whose requests a FlowSchema is about.
#[derive(Clone, Copy)]
enum Who {
    User(&'static str),
    Group(&'static str),
    /// All service accounts of kube-system.
    SystemAccounts,
}

/// A FlowSchema: its name, its priority level, its precedence, what tells its flows apart, whose requests it is about, and which.
type Schema = (&'static str, &'static str, u32, Option<&'static str>, &'static [Who], Requests);

const BY_USER: Option<&str> = Some("ByUser");
const BY_NAMESPACE: Option<&str> = Some("ByNamespace");
const EVERYBODY: &[Who] = &[Who::Group("system:unauthenticated"), Who::Group("system:authenticated")];
const NODES: &[Who] = &[Who::Group("system:nodes")];
const CONTROLLER_MANAGER: Who = Who::User("system:kube-controller-manager");
const SCHEDULER: Who = Who::User("system:kube-scheduler");
const LEASES: &str = "coordination.k8s.io";

const SCHEMAS: [Schema; 11] = [
    (EXEMPT, EXEMPT, 1, None, &[Who::Group("system:masters")], Requests::All),
    ("probes", EXEMPT, 2, None, EVERYBODY, Requests::Probes),
    (
        "system-leader-election",
        "leader-election",
        100,
        BY_USER,
        &[CONTROLLER_MANAGER, SCHEDULER, Who::SystemAccounts],
        Requests::Resources(&[(&["get", "create", "update"], LEASES, &["leases"], false)]),
    ),
    (
        "system-node-high",
        "node-high",
        400,
        BY_USER,
        NODES,
        Requests::Resources(&[(&["*"], "", &["nodes", "nodes/status"], true), (&["*"], LEASES, &["leases"], false)]),
    ),
    ("system-nodes", "system", 500, BY_USER, NODES, Requests::All),
    ("kube-controller-manager", "workload-high", 800, BY_NAMESPACE, &[CONTROLLER_MANAGER], Requests::All),
    ("kube-scheduler", "workload-high", 800, BY_NAMESPACE, &[SCHEDULER], Requests::All),
    ("kube-system-service-accounts", "workload-high", 900, BY_NAMESPACE, &[Who::SystemAccounts], Requests::All),
    ("service-accounts", "workload-low", 9000, BY_USER, &[Who::Group("system:serviceaccounts")], Requests::All),
    ("global-default", "global-default", 9900, BY_USER, EVERYBODY, Requests::All),
    (CATCH_ALL, CATCH_ALL, 10_000, BY_USER, EVERYBODY, Requests::All),
];

/// The initial PriorityLevelConfigurations.
pub(super) fn levels() -> Vec<Initial> {
    let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let limited = LEVELS.into_iter().map(|(name, shares, lendable, queues)| {
        let response = match queues {
            None => json!({"type": "Reject"}),
            Some([queues, hand, length]) => {
                json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": length}})
            }
        };
        let limited = json!({
            "nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response,
        });
        (name, json!({"type": "Limited", "limited": limited}))
    });
    std::iter::once((EXEMPT, exempt)).chain(limited).map(initial).collect()
}

/// The initial FlowSchemas.
pub(super) fn schemas() -> Vec<Initial> {
    let schemas = SCHEMAS.into_iter().map(|(name, level, precedence, distinguisher, who, requests)| {
        let subjects: Vec<Value> = who.iter().map(|who| subject(*who)).collect();
        let mut rule = rules(requests);
        rule["subjects"] = subjects.into();
        let mut spec = json!({
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rule],
        });
        if let Some(distinguisher) = distinguisher {
            spec["distinguisherMethod"] = json!({"type": distinguisher});
        }
        (name, spec)
    });
    schemas.map(initial).collect()
}

fn initial((name, spec): (&'static str, Value)) -> Initial {
    Initial { name, spec, mandatory: matches!(name, EXEMPT | CATCH_ALL) }
}

fn subject(who: Who) -> Value {
    match who {
        Who::User(name) => json!({"kind": "User", "user": {"name": name}}),
        Who::Group(name) => json!({"kind": "Group", "group": {"name": name}}),
        Who::SystemAccounts => {
            json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}})
        }
    }
}

fn rules(requests: Requests) -> Value {
    let resources = |verbs: &[&str], group: &str, resources: &[&str], outside: bool| {
        let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
        if outside {
            rule["clusterScope"] = true.into();
        }
        rule
    };
    match requests {
        Requests::All => json!({
            "resourceRules": [resources(&["*"], "*", &["*"], true)],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }),
        Requests::Probes => json!({
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}],
        }),
        Requests::Resources(rules) => {
            let rules: Vec<Value> =
                rules.iter().map(|(verbs, group, of, outside)| resources(verbs, group, of, *outside)).collect();
            json!({"resourceRules": rules})
        }
    }
}
