//! The cluster itself: version, CRDs of the project, webhooks, rights to deploy, namespaces that do not go, APIs that do not answer. In: what the server says.
//! Out: findings, by pure functions.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::checks::{API_SERVICES, DEFINITIONS, DEPLOY_RIGHTS, NAMESPACES, STORED_VERSIONS, VERSION, WEBHOOKS};
use super::definitions::{self, Pair};
use super::finding::{Finding, Outcome};
use super::own_project::OwnProject;
use super::{rights, webhooks};
use crate::description::text;
use crate::observer::{Observer, Unread};

/// The Kubernetes whose API this framework is built for, and the oldest whose servers know all that operators use: rules in CRDs, and server-side apply.
const BUILT_FOR: u64 = 36;
const OLDEST: u64 = 29;

/// How many objects of a kind are looked at.
const MOST: usize = 500;

/// A namespace may take this long to go.
const TERMINATING_FOR: SignedDuration = SignedDuration::from_secs(60);

pub(super) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WEBHOOK_LISTS: [&str; 2] = [
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
];

/// Looks at the cluster.
pub(super) async fn examine(
    observer: &Observer,
    url: &str,
    version: Option<&str>,
    project: Option<&OwnProject>,
    is_deployed: bool,
    now: Timestamp,
) -> Vec<Finding> {
    let mut findings = vec![judge_version(version)];
    let mut installed = Vec::new();
    if let Some(project) = project {
        let pairs = pairs(observer, project).await;
        match &pairs {
            Ok(pairs) => {
                findings.push(definitions::installed(pairs, is_deployed));
                findings.push(definitions::stored_versions(pairs));
                installed = pairs.iter().filter_map(|(_, found)| found.clone()).collect();
            }
            Err(error) => {
                findings.push(DEFINITIONS.not_checked(error.to_string()));
                findings.push(STORED_VERSIONS.not_checked(error.to_string()));
            }
        }
    }
    findings.push(webhooks(observer, url, installed, now).await);
    findings.push(match project {
        Some(project) => rights::to_deploy(observer, &project.target.namespace).await,
        None => DEPLOY_RIGHTS.not_checked("there is no project here to deploy"),
    });
    findings.push(namespaces(&observer.list("/api/v1/namespaces", "", MOST).await.map(|found| found.items), now));
    let api_services = observer.list("/apis/apiregistration.k8s.io/v1/apiservices", "", MOST).await;
    findings.push(judge_api_services(&api_services.map(|found| found.items)));
    findings
}

/// The project's CRDs, each with what is installed.
async fn pairs(observer: &Observer, project: &OwnProject) -> Result<Vec<Pair>, Unread> {
    let mut pairs = Vec::new();
    for wanted in &project.definitions {
        let found = observer.get(&format!("{CRDS}/{}", text(&wanted["metadata"]["name"]))).await?;
        pairs.push((wanted.clone(), found));
    }
    Ok(pairs)
}

async fn webhooks(observer: &Observer, url: &str, mut objects: Vec<Value>, now: Timestamp) -> Finding {
    for list in WEBHOOK_LISTS {
        match observer.list(list, "", MOST).await {
            Ok(found) => objects.extend(found.items),
            Err(error) => return WEBHOOKS.not_checked(error.to_string()),
        }
    }
    let host =
        url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(|host| host.trim_matches(['[', ']']).to_owned()));
    let is_local =
        host.is_some_and(|host| host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback()));
    let mut observed = Vec::new();
    for callee in webhooks::callees(&objects) {
        let answering = webhooks::observe(observer, &callee, is_local).await;
        observed.push((callee, answering));
    }
    webhooks::judge(&observed, now)
}

fn judge_version(version: Option<&str>) -> Finding {
    let Some(version) = version else { return VERSION.not_checked("the server does not say which version it is") };
    let minor = version.trim_start_matches('v').split('.').nth(1).and_then(|minor| minor.parse::<u64>().ok());
    match minor {
        Some(minor) if minor < OLDEST => VERSION.warning(
            format!("{version} is older than 1.{OLDEST}; rules in CRDs (CEL) may not work there"),
            &["upgrade the cluster, or try the operator there before you rely on it"],
        ),
        Some(minor) if minor > BUILT_FOR => {
            VERSION.ok(format!("{version}; newer than 1.{BUILT_FOR}, which this program is built for"))
        }
        Some(_) => VERSION.ok(version),
        None => VERSION.not_checked(format!("the version {version:?} is not understood")),
    }
}

/// The time since a field of an object, if it has one.
pub(super) fn since(value: &Value, now: Timestamp) -> Option<SignedDuration> {
    value.as_str()?.parse::<Timestamp>().ok().map(|at| now.duration_since(at))
}

fn namespaces(found: &Result<Vec<Value>, Unread>, now: Timestamp) -> Finding {
    let found = match found {
        Ok(found) => found,
        Err(error) => return NAMESPACES.not_checked(error.to_string()),
    };
    let is_stuck =
        |one: &&Value| since(&one["metadata"]["deletionTimestamp"], now).is_some_and(|by| by > TERMINATING_FOR);
    let stuck = found.iter().filter(is_stuck).map(|namespace| {
        let conditions = namespace["status"]["conditions"].as_array().into_iter().flatten();
        let why = conditions.filter(|one| one["status"] == "True").map(|one| text(&one["message"])).next_back();
        let why = why.unwrap_or_else(|| "nobody says why".to_owned());
        format!("{}: {why}", text(&namespace["metadata"]["name"]))
    });
    let stuck: Vec<String> = stuck.collect();
    if stuck.is_empty() {
        return NAMESPACES.ok("none is stuck");
    }
    NAMESPACES
        .warning(
            format!("{} wait to be deleted", stuck.len()),
            &[
                "what is left in one: kubectl api-resources --verbs=list --namespaced -o name | xargs -n1 kubectl get -n NAMESPACE --ignore-not-found",
                "start the operators whose finalizers are left, or remove the finalizers of those objects",
            ],
        )
        .with(stuck)
}

fn judge_api_services(found: &Result<Vec<Value>, Unread>) -> Finding {
    let found = match found {
        Ok(found) => found,
        Err(Unread::Absent(_)) => return API_SERVICES.ok("there are none"),
        Err(error) => return API_SERVICES.not_checked(error.to_string()),
    };
    let broken = found.iter().filter_map(|service| {
        let mut conditions = service["status"]["conditions"].as_array().into_iter().flatten();
        let condition = conditions.find(|one| one["type"] == "Available" && one["status"] == "False")?;
        Some(format!("{}: {}", text(&service["metadata"]["name"]), text(&condition["message"])))
    });
    let broken: Vec<String> = broken.collect();
    match broken.is_empty() {
        true => API_SERVICES.ok(format!("{} are available", found.len())),
        false => API_SERVICES
            .found(
                Outcome::Warning,
                format!("{} are not available; namespaces cannot be deleted meanwhile", broken.len()),
                &["kubectl get apiservices", "kubectl delete apiservice NAME, if nobody serves it any more"],
            )
            .with(broken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(found: Finding, outcome: Outcome, part: &str) {
        assert_eq!(found.outcome, outcome, "{found:?}");
        assert!(format!("{} {}", found.what, found.details.join(" ")).contains(part), "{found:?}");
        assert_eq!(found.mend.is_empty(), matches!(outcome, Outcome::Ok | Outcome::NotChecked), "{found:?}");
    }

    #[test]
    fn versions() {
        check(judge_version(Some("v1.36.4+konverge")), Outcome::Ok, "v1.36.4");
        check(judge_version(Some("v1.99.0")), Outcome::Ok, "newer than 1.36");
        check(judge_version(Some("v1.20.0-eks-1")), Outcome::Warning, "older than 1.29");
        check(judge_version(Some("what")), Outcome::NotChecked, "not understood");
        check(judge_version(None), Outcome::NotChecked, "");
    }

    #[test]
    fn namespaces_that_do_not_go() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let namespace = |deleted: Option<&str>| {
            json!({"metadata": {"name": "shop", "deletionTimestamp": deleted}, "status": {"conditions": [
                {"type": "NamespaceContentRemaining", "status": "True", "message": "shops.example.com has 1 resource instances"}]}})
        };
        check(namespaces(&Ok(vec![namespace(None)]), now), Outcome::Ok, "none");
        check(namespaces(&Ok(vec![namespace(Some("2026-01-01T00:09:30Z"))]), now), Outcome::Ok, "none");
        check(
            namespaces(&Ok(vec![namespace(Some("2026-01-01T00:00:00Z"))]), now),
            Outcome::Warning,
            "shop: shops.example.com has 1",
        );
        check(namespaces(&Err(Unread::Forbidden("no".into())), now), Outcome::NotChecked, "no");
    }

    #[test]
    fn aggregated_apis() {
        let service = |status: &str| {
            json!({"metadata": {"name": "v1beta1.metrics.k8s.io"}, "status": {"conditions": [
                {"type": "Available", "status": status, "message": "no endpoints"}]}})
        };
        check(judge_api_services(&Ok(vec![service("True")])), Outcome::Ok, "1 are");
        check(
            judge_api_services(&Ok(vec![service("False")])),
            Outcome::Warning,
            "v1beta1.metrics.k8s.io: no endpoints",
        );
        check(judge_api_services(&Err(Unread::Absent("x".into()))), Outcome::Ok, "none");
        check(judge_api_services(&Err(Unread::Failed("slow".into()))), Outcome::NotChecked, "slow");
    }
}
