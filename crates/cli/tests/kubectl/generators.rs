//! Commands that make typed objects send them as protobuf. What is stored is what the same manifest makes as JSON.

use serde_json::{Value, json};

use crate::cluster::Cluster;

/// What kubectl makes, by the resource it makes and the command that makes it. `NAME` is the object's name.
const COMMANDS: [(&str, &str); 21] = [
    ("namespace", "create namespace NAME"),
    ("configmap", "create configmap NAME --from-literal=k=1"),
    ("secret", "create secret generic NAME --from-literal=user=me"),
    ("secret", "create secret docker-registry NAME --docker-username=u --docker-password=p"),
    ("serviceaccount", "create serviceaccount NAME"),
    ("deployment", "create deployment NAME --image=nginx --replicas=0 --port=80"),
    ("job", "create job NAME --image=busybox"),
    ("cronjob", "create cronjob NAME --image=busybox --schedule='*/5 * * * *'"),
    ("role", "create role NAME --verb=get,list --resource=pods,deployments.apps"),
    ("clusterrole", "create clusterrole NAME --verb=get --non-resource-url=/healthz"),
    ("clusterrole", "create clusterrole NAME --aggregation-rule=role=view"),
    ("rolebinding", "create rolebinding NAME --role=r --serviceaccount=default:default --user=me"),
    ("clusterrolebinding", "create clusterrolebinding NAME --clusterrole=c --group=g"),
    ("quota", "create quota NAME --hard=cpu=1,memory=1Gi,pods=2"),
    ("poddisruptionbudget", "create poddisruptionbudget NAME --selector=app=web --min-available=50%"),
    ("poddisruptionbudget", "create poddisruptionbudget NAME --selector=app=web --max-unavailable=1"),
    ("ingress", "create ingress NAME --class=c --rule=example.com/x*=web:80,tls=t --default-backend=web:http"),
    ("service", "create service clusterip NAME --clusterip=None --tcp=80:http"),
    ("service", "create service externalname NAME --external-name=example.com"),
    ("priorityclass", "create priorityclass NAME --value=5 --description=five --preemption-policy=Never"),
    ("pod", "run NAME --image=nginx --port=80 --env=A=1"),
];

/// The object without what differs between two objects that were made in the same way.
fn alike(mut object: Value, name: &str) -> Value {
    let metadata = object["metadata"].as_object_mut().expect("an object has metadata");
    for field in ["resourceVersion", "creationTimestamp"] {
        assert!(metadata.remove(field).is_some(), "{field} is missing");
    }
    // An object of which only the name is given has no managed fields.
    for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
        entry["time"] = json!(null);
    }
    let uid = metadata["uid"].as_str().expect("a uid is a text").to_owned();
    // Selectors, labels and managed fields have the name or the uid, too.
    let text = object.to_string().replace(&uid, "UID").replace(name, "NAME");
    serde_json::from_str(&text).expect("it was an object before")
}

#[test]
fn what_is_made_is_what_the_manifest_makes() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl("create deployment target --image=nginx").succeeds();
    for (at, (resource, command)) in COMMANDS.into_iter().enumerate() {
        let (sent, piped) = (format!("sent{at}"), format!("piped{at}"));
        cluster.kubectl(&command.replacen("NAME", &sent, 1)).succeeds();
        let manifest = command.replacen("NAME", &format!("{piped} --dry-run=client -o yaml"), 1);
        let manifest = cluster.kubectl(&manifest).text();
        cluster.kubectl(&format!("create -f - --field-manager={}", manager(command))).input(&manifest).succeeds();
        let made = alike(cluster.object(&format!("{resource} {sent}")), &sent);
        let expect = alike(cluster.object(&format!("{resource} {piped}")), &piped);
        assert_eq!(made, expect, "{command}");
        cluster.kubectl(&format!("delete {resource} {sent} --wait=false")).succeeds();
    }
}

/// The field manager that a command sends.
fn manager(command: &str) -> &'static str {
    if command.starts_with("run ") { "kubectl-run" } else { "kubectl-create" }
}
