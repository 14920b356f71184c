//! Admission plugins, as a person meets them: quotas, limit ranges, pod security, priorities, accounts.

use super::deployment;
use crate::cluster::Cluster;

fn pod(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: main, image: web}}]{spec}}}\n"
    )
}

#[test]
fn quotas_and_limits() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    cluster.kubectl("wait --for=create sa/default --timeout=60s").succeeds();
    cluster.kubectl("create quota few --hard=pods=2,requests.cpu=3").prints("resourcequota/few created");
    cluster.until("get quota few -o jsonpath={.status.used}", |used| used == r#"{"pods":"0","requests.cpu":"0"}"#);
    cluster.kubectl("create -f -").input(&pod("unsaid", "")).fails(
        "Error from server (Forbidden): error when creating \"STDIN\": pods \"unsaid\" is forbidden: failed quota: few: must \
         specify requests.cpu for: main",
    );
    let limits = "apiVersion: v1
kind: LimitRange
metadata: {name: usual}
spec: {limits: [{type: Container, defaultRequest: {cpu: 250m}, max: {cpu: '1'}}]}
";
    cluster.create(limits);
    cluster.create(&pod("limited", ""));
    cluster.kubectl("get pod limited -o jsonpath={.spec.containers[0].resources.requests.cpu}").prints("250m");
    cluster.create(&deployment("web", 2, ""));
    // One pod of the two fits into the quota.
    let failing = "get deploy web -o jsonpath='{.status.conditions[?(@.type==\"ReplicaFailure\")].reason}'";
    cluster.until(failing, |reason| reason == "FailedCreate");
    cluster.until("describe quota few", |said| {
        let words: Vec<&str> = said.split_whitespace().collect();
        words.windows(3).any(|row| row == ["pods", "2", "2"])
            && words.windows(3).any(|row| row == ["requests.cpu", "1250m", "3"])
    });
    cluster.kubectl("delete pod limited --now").succeeds();
    cluster.rolled_out("deploy/web");
    cluster.kubectl("delete deploy web").succeeds();
    cluster.until("get quota few -o jsonpath={.status.used}", |used| used == r#"{"pods":"0","requests.cpu":"0"}"#);
}

#[test]
fn pod_security() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    cluster.kubectl("create ns safe").succeeds();
    cluster.kubectl("wait --for=create sa/default -n safe --timeout=60s").succeeds();
    cluster.kubectl("label ns safe pod-security.kubernetes.io/enforce=baseline").prints("namespace/safe labeled");
    cluster.kubectl("create -n safe -f -").input(&pod("p", ", hostNetwork: true")).fails(
        "Error from server (Forbidden): error when creating \"STDIN\": pods \"p\" is forbidden: violates PodSecurity \
         \"baseline:latest\": host namespaces (hostNetwork=true)",
    );
    let manifest = deployment("web", 1, "").replace("containers:", "hostPID: true\n      containers:");
    cluster.kubectl("create -n safe -f -").input(&manifest).warns(
        "deployment.apps/web created",
        "Warning: would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)",
    );
    cluster.kubectl("create -n safe -f -").input(&pod("q", "")).prints("pod/q created");
    cluster.kubectl("label ns safe --overwrite pod-security.kubernetes.io/enforce=restricted").warns(
        "namespace/safe labeled",
        "Warning: existing pods in namespace \"safe\" violate the new PodSecurity enforce level \"restricted:latest\"
         Warning: q: allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile",
    );
}

#[test]
fn priorities_and_accounts() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    cluster.kubectl("create priorityclass high --value=1000").warns(
        "priorityclass.scheduling.k8s.io/high created",
        "Warning: no pod is preempted here: pods of this class get their priority, but make no room for themselves",
    );
    cluster.kubectl("wait --for=create sa/default --timeout=60s").succeeds();
    cluster.create(&pod("p", ", priorityClassName: high"));
    cluster.kubectl("wait --for=condition=Ready pod/p --timeout=60s").succeeds();
    cluster.kubectl("describe pod p").mentions(&[
        "Priority: 1000",
        "Priority Class Name: high",
        "Service Account: default",
        "/var/run/secrets/kubernetes.io/serviceaccount from kube-api-access-",
        "Type: Projected (a volume that contains injected data from multiple sources)",
        "TokenExpirationSeconds: 3607",
    ]);
    cluster.kubectl("create -f -").input(&pod("q", ", serviceAccountName: nobody")).fails(
        "Error from server (Forbidden): error when creating \"STDIN\": pods \"q\" is forbidden: error looking up service \
         account default/nobody: serviceaccount \"nobody\" not found",
    );
}
