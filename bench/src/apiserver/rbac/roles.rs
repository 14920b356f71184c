//! A cluster with many roles and bindings: teams with a namespace each, and in it ten roles and ten users, each of whom is bound to
//! all ten roles. Only data.

use serde_json::{Value, json};

const TEAMS: usize = 100;
/// Roles of a team, and users of it.
const OF_TEAM: usize = 10;

/// All roles.
pub(super) const ROLES: usize = TEAMS * OF_TEAM;
/// All users.
pub(super) const USERS: usize = TEAMS * OF_TEAM;
/// All bindings.
pub(super) const BINDINGS: usize = USERS * OF_TEAM;

/// The numbers of namespaces, roles and bindings, from the first to the one behind the last.
pub(super) const GROUPS: [(usize, usize); 3] =
    [(0, TEAMS), (TEAMS, TEAMS + ROLES), (TEAMS + ROLES, TEAMS + ROLES + BINDINGS)];

const API: &str = "/apis/rbac.authorization.k8s.io/v1";

/// What the roles of a team are for. The last one is asked for, so that all others are looked at before.
const RESOURCES: [(&str, &str); OF_TEAM] = [
    ("", "pods"),
    ("", "services"),
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("", "persistentvolumeclaims"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("batch", "jobs"),
    ("networking.k8s.io", "ingresses"),
    ("", "configmaps"),
];

/// The namespace of a team.
pub(super) fn namespace(team: usize) -> String {
    format!("team-{team:03}")
}

/// The user with this number.
pub(super) fn user(number: usize) -> String {
    format!("user-{number:04}@example.com")
}

/// The namespace of a user.
pub(super) fn namespace_of(user: usize) -> String {
    namespace(user / OF_TEAM)
}

/// The path and the body that create the object with this number.
pub(super) fn object(number: usize) -> (String, Value) {
    if number < TEAMS {
        return ("/api/v1/namespaces".to_owned(), json!({"metadata": {"name": namespace(number)}}));
    }
    let number = number - TEAMS;
    if number < ROLES {
        return (path(number / OF_TEAM, "roles"), role(number % OF_TEAM));
    }
    let number = number - ROLES;
    let (user, at) = (number / OF_TEAM, number % OF_TEAM);
    let subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self::user(user)}]);
    (path(user / OF_TEAM, "rolebindings"), binding(&format!("user-{user:04}-{at}"), at, subjects))
}

/// A binding of one of a team's roles.
pub(super) fn binding(name: &str, role: usize, subjects: Value) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": format!("role-{role}")},
        "subjects": subjects,
    })
}

/// Where roles or bindings of a team are.
pub(super) fn path(team: usize, plural: &str) -> String {
    format!("{API}/namespaces/{}/{plural}", namespace(team))
}

fn role(at: usize) -> Value {
    let (group, resource) = RESOURCES[at];
    let rule = |verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    json!({
        "metadata": {"name": format!("role-{at}")},
        "rules": [rule(&["get", "list", "watch"]), rule(&["create", "update", "patch", "delete"])],
    })
}
