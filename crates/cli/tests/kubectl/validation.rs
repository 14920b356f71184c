//! What a person reads when an object is wrong: unknown fields, wrong types, values out of bounds.

use crate::cluster::Cluster;
use crate::fixtures::{WEB, WIDGETS, config_map, widget};

#[test]
fn values() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    let check = |spec: &str, why: &str| {
        let why = format!("The Widget \"w\" is invalid: {why}");
        cluster.kubectl("create -f -").input(&widget("w", spec)).fails(&why);
    };
    check("color: red", "spec.size: Required value");
    check(
        "size: huge, replicas: 11, color: Red1",
        "
        * spec.color: Invalid value: \"Red1\": spec.color in body should match '^[a-z]+$'
        * spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10
        * spec.size: Unsupported value: \"huge\": supported values: \"small\", \"medium\", \"large\"",
    );
    check(
        "size: small, replicas: -1",
        "
        * spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0
        * .spec.replicas: Invalid value: -1: should be a non-negative integer",
    );
    check(
        "size: small, replicas: many",
        "
        * spec.replicas: Invalid value: \"string\": spec.replicas in body must be of type integer: \"string\"
        * .spec.replicas: Invalid value: 0: .spec.replicas accessor error: many is of the type string, expected int64",
    );
    check("size: small, color: bluebluebluex", "spec.color: Too long: may not be more than 10 bytes");
    check("size: small, tags: [a, b, c, d]", "spec.tags: Too many: 4: must have at most 3 items");
    check("size: small, parts: [{name: a}, {name: a}]", "spec.parts[1]: Duplicate value: {\"name\":\"a\"}");
    check("size: small, parts: [{count: 2}]", "spec.parts[0].name: Required value");

    // Changes are held to the same rules.
    cluster.create(&widget("w", "size: small"));
    cluster.kubectl("patch widget w --type=merge -p '{\"spec\":{\"size\":\"tiny\"}}'").fails(
        "The Widget \"w\" is invalid: spec.size: Unsupported value: \"tiny\": supported values: \"small\", \"medium\", \"large\"",
    );
    cluster
        .kubectl("patch widget w --type=merge -p '{\"spec\":{\"size\":null}}'")
        .fails("The Widget \"w\" is invalid: spec.size: Required value");
}

#[test]
fn built_in_objects() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl("create -f -").input(&config_map("Bad_Name", "k", "1")).fails(
        "The ConfigMap \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 subdomain \
         must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
         character (e.g. 'example.com', regex used for validation is *",
    );
    cluster.kubectl("create -f -").input(&WEB.replace("selector: {matchLabels: {app: web}}", "")).fails(
        "The Deployment \"web\" is invalid: …
         …",
    );
    cluster.kubectl("create -f -").input(&WEB.replace("replicas: 2", "replicas: two")).fails(
        "Error from server (BadRequest): error when creating \"STDIN\": Deployment in version \"v1\" cannot be handled as a \
         Deployment: json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
    );
    cluster.kubectl("create -f -").input("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: 1}\n").fails(
        "Error from server (BadRequest): error when creating \"STDIN\": ConfigMap in version \"v1\" cannot be handled as a \
         ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
    );
    cluster.kubectl("create -f -").input("apiVersion: v1\nkind: Nothing\nmetadata: {name: a}\n").fails(
        "error: resource mapping not found for name: \"a\" namespace: \"\" from \"STDIN\": no matches for kind \"Nothing\" \
         in version \"v1\"
         ensure CRDs are installed first",
    );
    cluster.kubectl("apply -f -").input(&widget("w", "size: small")).fails(
        "error: resource mapping not found for name: \"w\" namespace: \"\" from \"STDIN\": no matches for kind \"Widget\" \
         in version \"example.com/v1\"
         ensure CRDs are installed first",
    );
}

#[test]
fn unknown_fields() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    let custom = widget("w", "size: small, sise: 1");
    let built_in = WEB.replace("  replicas: 2", "  replicas: 2\n  replica: 3");
    for (name, kind, field, manifest) in [
        ("widget.example.com/w", "Widget", "spec.sise", &custom),
        ("deployment.apps/web", "Deployment", "spec.replica", &built_in),
    ] {
        let refused = format!(
            "Error from server (BadRequest): error when creating \"STDIN\": {kind} in version \"v1\" cannot be handled as a \
             {kind}: strict decoding error: unknown field \"{field}\""
        );
        let created = format!("{name} created");
        let warning = format!("Warning: unknown field \"{field}\"");
        // Strict is what kubectl asks for unless told otherwise.
        cluster.kubectl("create -f -").input(manifest).fails(&refused);
        cluster.kubectl("create -f - --validate=strict").input(manifest).fails(&refused);
        cluster.kubectl("create -f - --validate=warn").input(manifest).warns(&created, &warning);
        cluster.kubectl(&format!("delete {name}")).succeeds();
        cluster.kubectl("create -f - --validate=ignore").input(manifest).prints(&created);
        let kept = cluster.object(name);
        assert!(kept["spec"]["sise"].is_null() && kept["spec"]["replica"].is_null(), "{kept}");
    }
    // A patch is not strict by default: what it brings that nobody knows is dropped, and said.
    cluster
        .kubectl("patch widget w --type=merge -p '{\"spec\":{\"colour\":\"red\"}}'")
        .warns("widget.example.com/w patched (no change)", "Warning: unknown field \"spec.colour\"");
    // A CRD's old version says so to whoever uses it.
    cluster
        .kubectl("get widgets.v1beta1.example.com -o name")
        .warns("widget.example.com/w", "Warning: example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget");
}
