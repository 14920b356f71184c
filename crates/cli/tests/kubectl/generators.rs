//! Commands that make typed objects send them as protobuf, which is not read yet: the answer says so, and what to do.

use crate::cluster::Cluster;

#[test]
fn protobuf_is_refused_with_advice() {
    let Some(cluster) = Cluster::start() else { return };
    for command in [
        "create namespace n",
        "create configmap c --from-literal=k=1",
        "create secret generic s --from-literal=k=1",
        "create deployment d --image=nginx",
        "create job j --image=busybox",
        "create role r --verb=get --resource=pods",
    ] {
        let (said, aside) = cluster.kubectl(command).says(1);
        assert_eq!(said, "", "{command}");
        let word = command.split_whitespace().nth(1).unwrap_or_default();
        for expect in [
            "the body of the request was in an unknown format",
            "protobuf is not read yet",
            "--dry-run=client -o yaml | kubectl create -f -",
        ] {
            assert!(aside.contains(expect), "{word}: {expect} is not in\n{aside}");
        }
        // And the advice works.
        let manifest = cluster.kubectl(&format!("{command} --dry-run=client -o yaml")).text();
        cluster.kubectl("create -f -").input(&manifest).succeeds();
    }
}
