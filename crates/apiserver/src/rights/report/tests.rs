//! Tests of `report`, as a table: roles and requests go in, the text of the report and the least roles come out.

use serde_json::from_value;

use super::super::Rights;
use super::*;
use crate::rbac::Rbac;

const USER: &str = "system:serviceaccount:home:web";

/// A request: the verb, the group, the resource, the namespace and the name, and whether it was allowed.
type Request<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str, bool);

fn reported(grants: &[Grant], requests: &[Request<'_>]) -> PermissionReport {
    let (rights, user) = (Rights::default(), UserInfo::named(USER));
    for &(verb, group, resource, namespace, name, allowed) in requests {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let resource =
            ResourceAttributes { group, version: "v1", resource, subresource, namespace, name, fields: None };
        rights.note(&Attributes { user: &user, verb, path: "", resource: Some(resource) }, allowed);
    }
    let noted = rights.0.lock().get(USER).cloned().unwrap_or_default();
    report(&user, grants, &noted, noted.incomplete)
}

fn grant(namespace: &str, kind: &str, rules: Value) -> Grant {
    Grant::new(namespace, kind, "web", from_value(rules).unwrap())
}

#[track_caller]
fn check(grants: &[Grant], requests: &[Request<'_>], expect: [&[&str]; 4]) {
    let report = reported(grants, requests);
    let lines = |rules: &[ScopedRule]| rules.iter().map(ScopedRule::to_string).collect::<Vec<String>>();
    let least = report.least.iter().flat_map(|role| {
        let at = role["metadata"]["namespace"].as_str().unwrap_or("-").to_owned();
        role["rules"].as_array().unwrap().iter().map(move |rule| format!("{at} {rule}")).collect::<Vec<String>>()
    });
    let least: Vec<String> = least.collect();
    assert_eq!(
        [lines(&report.used), lines(&report.unused), lines(&report.lacking), least],
        expect.map(|list| { list.iter().map(|line| (*line).to_owned()).collect::<Vec<String>>() })
    );
}

#[test]
fn rights_are_told_by_whether_they_were_used() {
    let rules = || {
        json!([
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "delete"]},
            {"apiGroups": ["x.io"], "resources": ["webs/finalizers"], "verbs": ["update"]},
        ])
    };
    let everywhere = [grant("", "ClusterRole", rules())];
    check(
        &everywhere,
        &[
            ("list", "apps", "deployments", "", "", true),
            ("get", "apps", "deployments", "shop", "a", true),
            ("create", "", "configmaps", "shop", "", false),
            // Allowed by a role of a group that everybody is in.
            ("create", "authorization.k8s.io", "selfsubjectaccessreviews", "", "", true),
        ],
        [
            &["list deployments.apps", "get deployments.apps in the namespace shop"],
            &["delete deployments.apps"],
            &["create configmaps in the namespace shop"],
            &[
                r#"- {"apiGroups":[""],"resources":["configmaps"],"verbs":["create"]}"#,
                r#"- {"apiGroups":["apps"],"resources":["deployments"],"verbs":["get","list"]}"#,
                r#"- {"apiGroups":["x.io"],"resources":["webs/finalizers"],"verbs":["update"]}"#,
            ],
        ],
    );
    // A role of a namespace is not used by what happens in another one.
    let in_shop =
        [grant("shop", "Role", json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]))];
    check(
        &in_shop,
        &[("get", "", "pods", "shop", "a", true), ("list", "", "pods", "other", "", false)],
        [
            &["get pods in the namespace shop"],
            &["list pods in the namespace shop"],
            &["list pods in the namespace other"],
            &[
                r#"other {"apiGroups":[""],"resources":["pods"],"verbs":["list"]}"#,
                r#"shop {"apiGroups":[""],"resources":["pods"],"verbs":["get"]}"#,
            ],
        ],
    );
    check(&[], &[], [&[], &[], &[], &[]]);
}

/// The rights of a role that says so are needed rarely: they stay in the least roles, with the mark, and are not called unused.
#[test]
fn a_role_that_says_so_is_kept() {
    let secrets = json!([
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["cert"], "verbs": ["get", "update"]},
    ]);
    let mut kept = [grant("home", "Role", secrets)];
    kept[0].is_kept = true;
    let requests = [("create", "", "secrets", "home", "", true), ("get", "", "secrets", "home", "cert", true)];
    check(
        &kept,
        &requests,
        [
            &["create secrets in the namespace home", "get secrets named cert in the namespace home"],
            &[],
            &[],
            &[
                r#"home {"apiGroups":[""],"resources":["secrets"],"verbs":["create"]}"#,
                r#"home {"apiGroups":[""],"resourceNames":["cert"],"resources":["secrets"],"verbs":["get","update"]}"#,
            ],
        ],
    );
    let report = reported(&kept, &requests);
    assert!(report.is_least(), "{report}");
    assert_eq!(report.least[0]["metadata"]["annotations"], json!({KEEP_RIGHTS: "true"}));
    let expect = "kept because it is needed rarely:\n  update secrets named cert in the namespace home\n";
    assert!(report.to_string().ends_with(expect), "{report}");
}

/// Rights that belong to one which was used are not called unused; a set of which nothing was used is, and so is what is in no set.
#[test]
fn rights_that_belong_together() {
    let owned = json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "create", "delete"]}]);
    let own = json!([
        {"apiGroups": ["x.io"], "resources": ["webs"], "verbs": ["list", "update"]},
        {"apiGroups": ["x.io"], "resources": ["webs/status"], "verbs": ["patch"]},
    ]);
    let idle = json!([{"apiGroups": [""], "resources": ["services"], "verbs": ["list"]}]);
    let rules = json!([
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "create", "delete", "deletecollection"]},
        {"apiGroups": ["x.io"], "resources": ["webs"], "verbs": ["list", "update"]},
        {"apiGroups": ["x.io"], "resources": ["webs/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["list"]},
    ]);
    let mut grants = [grant("", "ClusterRole", rules)];
    grants[0].together = json!([owned, own, idle]).to_string();
    let requests = [
        ("list", "apps", "deployments", "", "", true),
        ("create", "apps", "deployments", "shop", "a", true),
        ("list", "x.io", "webs", "", "", true),
    ];
    check(
        &grants,
        &requests,
        [
            &["list deployments.apps", "list webs.x.io", "create deployments.apps in the namespace shop"],
            &["list services", "deletecollection deployments.apps"],
            &[],
            &[
                r#"- {"apiGroups":["apps"],"resources":["deployments"],"verbs":["list","create","delete"]}"#,
                r#"- {"apiGroups":["x.io"],"resources":["webs"],"verbs":["list","update"]}"#,
                r#"- {"apiGroups":["x.io"],"resources":["webs/status"],"verbs":["patch"]}"#,
            ],
        ],
    );
    let report = reported(&grants, &requests);
    let kept: Vec<String> = report.kept.iter().map(ScopedRule::to_string).collect();
    assert_eq!(kept, ["delete deployments.apps", "update webs.x.io", "patch webs.x.io/status"]);
    assert_eq!(report.least[0]["metadata"]["annotations"], json!({RIGHTS_TOGETHER: grants[0].together}));
    // What cannot be read says nothing.
    grants[0].together = "nonsense".to_owned();
    assert_eq!(reported(&grants, &requests).kept, []);
}

/// Whoever was refused and got the right lacks it no more.
#[test]
fn what_was_granted_since_is_not_lacking() {
    let asked = |allowed| ("list", "", "pods", "shop", "", allowed);
    let granted = [grant("", "ClusterRole", json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]))];
    let used: &[&str] = &["list pods in the namespace shop"];
    let least: &[&str] = &[r#"- {"apiGroups":[""],"resources":["pods"],"verbs":["list"]}"#];
    // Used since then, or only allowed by now.
    check(&granted, &[asked(false), asked(true)], [used, &[], &[], least]);
    check(&granted, &[asked(false)], [used, &[], &[], least]);
    // Allowed by a group that everybody is in.
    check(&[], &[asked(false), asked(true)], [&[], &[], &[], &[]]);
    // And taken away again.
    check(
        &[],
        &[asked(true), asked(false)],
        [&[], &[], used, &[r#"shop {"apiGroups":[""],"resources":["pods"],"verbs":["list"]}"#]],
    );
}

#[test]
fn names_count_one_by_one() {
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["a", "b"]}]);
    let named = [grant("", "ClusterRole", rules)];
    check(
        &named,
        &[("get", "", "secrets", "shop", "a", true), ("get", "", "secrets", "shop", "c", false)],
        [
            &["get secrets named a in the namespace shop"],
            &["get secrets named b"],
            &["get secrets named c in the namespace shop"],
            &[
                r#"- {"apiGroups":[""],"resourceNames":["a"],"resources":["secrets"],"verbs":["get"]}"#,
                r#"- {"apiGroups":[""],"resourceNames":["c"],"resources":["secrets"],"verbs":["get"]}"#,
            ],
        ],
    );
}

#[test]
fn a_wildcard_is_replaced_by_what_it_was_used_for() {
    let all = [grant("", "ClusterRole", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]))];
    check(
        &all,
        &[("patch", "apps", "deployments/scale", "shop", "a", true)],
        [
            &["patch deployments.apps/scale in the namespace shop"],
            &["* *.*"],
            &[],
            &[r#"- {"apiGroups":["apps"],"resources":["deployments/scale"],"verbs":["patch"]}"#],
        ],
    );
}

#[test]
fn dangerous_rights_are_named() {
    #[track_caller]
    fn check(namespace: &str, rule: Value, expect: &str) {
        let risks = reported(&[grant(namespace, "ClusterRole", json!([rule]))], &[]).risks;
        assert_eq!(risks.len(), usize::from(!expect.is_empty()), "{risks:?}");
        assert!(risks.iter().all(|risk| risk.contains(expect)), "{risks:?}");
    }
    let secrets = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]});
    check("", secrets.clone(), "the Secrets of all namespaces");
    check("shop", secrets, "");
    check("", json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["a"]}), "");
    check("", json!({"apiGroups": [""], "resources": ["*"], "verbs": ["get"]}), "wildcard (get *)");
    check("", json!({"nonResourceURLs": ["/a/*"], "verbs": ["get"]}), "wildcard (get /a/*)");
    check("", json!({"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}), "every other right");
    check("", json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}), "");
}

#[test]
fn what_is_noted_is_bounded_and_masters_are_not_noted() {
    let rights = Rights::default();
    let note = |user: &UserInfo, verb: &str, name: &str| {
        let resource = ResourceAttributes { version: "v1", resource: "pods", name, ..ResourceAttributes::default() };
        rights.note(&Attributes { user, verb, path: "", resource: Some(resource) }, true);
    };
    let master = UserInfo { groups: vec![crate::user::MASTERS.into()], ..UserInfo::named("admin") };
    note(&master, "get", "a");
    assert!(rights.users().is_empty());
    note(&UserInfo::anonymous(), "get", "a");
    assert!(rights.users().is_empty());
    let user = UserInfo::named(USER);
    for n in 0..100 {
        note(&user, "get", &format!("name{n}"));
    }
    assert_eq!(rights.0.lock()[USER].asked.values().map(|outcome| outcome.allowed.len()).max(), Some(MAX_NAMES + 1));
    assert!(!rights.report(&Rbac::default(), &user).incomplete);
    for n in 0..10_000 {
        note(&user, &format!("verb{n}"), "a");
    }
    assert!(rights.0.lock()[USER].bytes <= super::super::MAX_BYTES);
    assert!(rights.report(&Rbac::default(), &user).incomplete);
    let other = UserInfo::named("other");
    note(&other, "get", &"x".repeat(1000));
    assert!(rights.0.lock()["other"].asked.is_empty() && rights.report(&Rbac::default(), &other).incomplete);
    for n in 0..super::super::MAX_USERS {
        note(&UserInfo::named(format!("user{n}")), "get", "a");
    }
    assert_eq!(rights.users().len(), super::super::MAX_USERS);
    assert!(rights.report(&Rbac::default(), &UserInfo::named("user255")).incomplete);
}
