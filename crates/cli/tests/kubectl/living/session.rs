//! Sessions of a person: a command in a pod that lives for it, one beside a pod, and a user with a certificate.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};

use crate::cluster::Cluster;

#[test]
fn a_command_ends_with_its_exit_code() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    cluster.kubectl("wait --for=create sa/default --timeout=60s").succeeds();
    for (script, code) in [("echo hello; exit 3", 3), ("echo hello", 0)] {
        let line = format!("run -i --rm --quiet --restart=Never one --image=busybox -- sh -c '{script}'");
        let (said, _) = cluster.kubectl(&line).says(code);
        assert!(said.contains("hello"), "{said}");
    }
    // Nobody attaches to this one, so it has done its work at once.
    cluster.kubectl("run two --restart=Never --image=busybox -- echo hello").succeeds();
    cluster.until("get pod two -o jsonpath={.status.phase}", |said| said == "Succeeded");

    cluster.kubectl("run web --image=nginx").succeeds();
    cluster.kubectl("wait --for=condition=Ready pod/web --timeout=60s").succeeds();
    let debug = "debug -i --quiet --profile=general -c look web --image=busybox -- sh -c 'echo looked; exit 4'";
    let (said, _) = cluster.kubectl(debug).says(0);
    assert!(said.contains("looked"), "{said}");
    let code = "get pod web -o jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode}";
    cluster.until(code, |said| said == "4");
    // Nobody attaches to this one.
    cluster.kubectl("debug --quiet --profile=general -c peek web --image=busybox -- sh -c 'echo x; exit 3'").succeeds();
    let code = "get pod web -o jsonpath={.status.ephemeralContainerStatuses[1].state.terminated.exitCode}";
    cluster.until(code, |said| said == "3");
    cluster.kubectl("get pod web -o jsonpath={.status.phase}").prints("Running");
}

#[test]
fn a_user_gets_a_certificate() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "alice");
    params.distinguished_name.push(DnType::OrganizationName, "developers");
    let request = params.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
    let manifest = |name: &str, usage: &str| {
        format!(
            r#"---
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {{name: {name}}}
spec: {{signerName: kubernetes.io/kube-apiserver-client, usages: [{usage}], request: {}}}
"#,
            STANDARD.encode(&request)
        )
    };
    // Whoever is signed for is not warned of.
    let created = "certificatesigningrequest.certificates.k8s.io/alice created\n";
    cluster.kubectl("create -f -").input(&manifest("alice", "client auth")).prints(created);
    cluster.kubectl("certificate approve alice").succeeds();
    let certificate = cluster.until("get csr alice -o jsonpath={.status.certificate}", |said| !said.is_empty());
    let certificate = STANDARD.decode(certificate).expect("base64");
    cluster.file("alice.crt", &String::from_utf8(certificate).expect("PEM"));
    cluster.file("alice.key", &key.serialize_pem());
    cluster.kubectl("config set-credentials alice --client-certificate=alice.crt --client-key=alice.key").succeeds();
    cluster
        .kubectl("--user=alice auth whoami")
        .mentions(&["Username alice", "Groups [developers system:authenticated]"]);
    cluster.kubectl("--user=alice get pods").fails(
        "Error from server (Forbidden): pods is forbidden: User \"alice\" cannot list resource \"pods\" in API group \"\" \
         in the namespace \"default\"\n",
    );

    cluster.create(&manifest("server", "server auth"));
    cluster.kubectl("certificate approve server").succeeds();
    let why = "invalid usage for client certificate: server auth";
    cluster.until("get csr server -o jsonpath={.status.conditions[*].message}", |said| said.contains(why));
}
