//! Tables of cases for `table.rs`: frames, columns of CRDs, built-in kinds as `kubectl get` shows them.

use super::*;

fn resource(group: &str, kind: &str, columns: Option<Vec<Column>>) -> Resource {
    Resource {
        custom: columns.is_some(),
        columns: columns.unwrap_or_default().into(),
        ..Resource::plain(group, "v1", kind)
    }
}

fn column(name: &str, ty: &str, path: &str) -> Column {
    Column {
        name: name.into(),
        ty: ty.into(),
        json_path: path.into(),
        priority: 1,
        description: "".into(),
        ..age_column()
    }
}

fn options() -> TableOptions {
    TableOptions {
        version: MetaVersion::V1,
        include: IncludeObject::Metadata,
        headings: Headings::Shown,
        now: "2024-05-01T00:00:00Z".parse().unwrap(),
    }
}

fn render(resource: &Resource, object: &Value, options: &TableOptions) -> Value {
    let meta = ListMeta { resource_version: "5", ..ListMeta::default() };
    serde_json::from_slice(&TablePrinter::of(resource).render([object], &meta, options)).unwrap()
}

/// `NAME=cell` for every column.
#[track_caller]
fn check(group: &str, kind: &str, mut object: Value, expect: &[&str]) {
    object["metadata"]["name"] = "x".into();
    object["metadata"]["creationTimestamp"] = "2024-04-30T23:00:00Z".into();
    let table = render(&resource(group, kind, None), &object, &options());
    let columns = table["columnDefinitions"].as_array().unwrap();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(columns.len(), cells.len());
    let shown: Vec<String> = columns
        .iter()
        .zip(cells)
        .map(|(column, cell)| {
            let wide = if column["priority"] == 0 { "" } else { "+" };
            format!("{wide}{}={}", column["name"].as_str().unwrap(), cell::print(cell))
        })
        .collect();
    assert_eq!(shown, expect);
}

#[test]
fn a_table_has_its_frame() {
    let object = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}});
    let config_map = resource("", "ConfigMap", None);
    let table = render(&config_map, &object, &options());
    assert_eq!(
        table,
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "5"},
            "columnDefinitions": [
                {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
                {"name": "Data", "type": "string", "format": "", "description": "", "priority": 0},
                {"name": "Age", "type": "string", "format": "", "description": "", "priority": 0},
            ],
            "rows": [{
                "cells": ["a", 1, "<unknown>"],
                "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]},
            }],
        })
    );
    let check = |options: TableOptions, pointer: &str, expect: Value| {
        assert_eq!(render(&config_map, &object, &options).pointer(pointer), Some(&expect));
    };
    check(TableOptions { include: IncludeObject::None, ..options() }, "/rows/0/object", Value::Null);
    check(TableOptions { include: IncludeObject::Object, ..options() }, "/rows/0/object", object.clone());
    check(TableOptions { headings: Headings::Left, ..options() }, "/columnDefinitions", Value::Null);
    let beta = TableOptions { version: MetaVersion::V1Beta1, ..options() };
    check(beta, "/apiVersion", "meta.k8s.io/v1beta1".into());
    check(beta, "/rows/0/object/apiVersion", "meta.k8s.io/v1beta1".into());
}

#[test]
fn lists_have_a_row_each() {
    let objects = [json!({"metadata": {"name": "a"}}), json!({"metadata": {"name": "b"}})];
    let meta = ListMeta { resource_version: "5", continue_token: "t", remaining_item_count: Some(2) };
    let view = TablePrinter::of(&resource("", "ServiceAccount", None));
    let table: Value = serde_json::from_slice(&view.render(&objects, &meta, &options())).unwrap();
    assert_eq!(table["metadata"], json!({"resourceVersion": "5", "continue": "t", "remainingItemCount": 2}));
    assert_eq!(table["rows"][1]["cells"], json!(["b", "<unknown>"]));
    let none: Value = serde_json::from_slice(&view.render([], &meta, &options())).unwrap();
    assert_eq!(none["rows"], json!([]));
}

#[test]
fn include_object_is_one_of_three() {
    for (parameter, expect) in [
        (None, Ok(IncludeObject::Metadata)),
        (Some(""), Ok(IncludeObject::Metadata)),
        (Some("Metadata"), Ok(IncludeObject::Metadata)),
        (Some("None"), Ok(IncludeObject::None)),
        (Some("Object"), Ok(IncludeObject::Object)),
        (Some("all"), Err(400)),
    ] {
        assert_eq!(IncludeObject::parse(parameter).map_err(|status| status.code), expect);
    }
}

#[test]
fn custom_columns() {
    #[track_caller]
    fn check(ty: &str, path: &str, expect: Value) {
        let object = json!({
            "metadata": {"name": "a", "creationTimestamp": "2024-04-30T23:59:55Z"},
            "spec": {"n": 3, "f": 2.7, "s": "x", "b": true, "z": null, "o": {"a": [1]}, "t": "soon", "whole": 2.0},
        });
        let table = render(&resource("b.io", "Widget", Some(vec![column("C", ty, path)])), &object, &options());
        assert_eq!(table["rows"][0]["cells"], json!(["a", expect]));
        assert_eq!(table["columnDefinitions"][1]["priority"], 1);
    }
    check("integer", ".spec.n", json!(3));
    check("integer", ".spec.f", json!(2));
    check("integer", ".spec.s", json!(null));
    check("number", ".spec.f", json!(2.7));
    check("number", ".spec.n", json!(3));
    check("boolean", ".spec.b", json!(true));
    check("boolean", ".spec.n", json!(null));
    check("string", ".spec.s", json!("x"));
    check("string", ".spec.n", json!("3"));
    check("string", ".spec.b", json!("true"));
    check("string", ".spec.o", json!(r#"{"a":[1]}"#));
    check("string", ".spec.z", json!("<no value>"));
    check("string", ".spec.absent", json!(null));
    check("date", ".metadata.creationTimestamp", json!("5s"));
    check("date", ".spec.t", json!("<invalid>"));
    check("date", ".spec.n", json!(null));
}

#[test]
fn custom_headings() {
    #[track_caller]
    fn check(columns: Vec<Column>, expect: &[&str]) {
        let table = render(&resource("b.io", "Widget", Some(columns)), &json!({}), &options());
        let names: Vec<&Value> =
            table["columnDefinitions"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
        assert_eq!(names, expect);
    }
    check(vec![], &["Name", "Age"]);
    check(vec![column("A", "string", ".a"), column("B", "string", ".b")], &["Name", "A", "B"]);
    // A path that cannot be read ends the list.
    check(vec![column("A", "string", ".a"), column("B", "string", ".b["), column("C", "string", ".c")], &["Name", "A"]);
    let described = render(&resource("b.io", "W", Some(vec![column("A", "string", ".a")])), &json!({}), &options());
    assert_eq!(
        described["columnDefinitions"][1]["description"],
        "Custom resource definition column (in JSONPath format): .a"
    );
}

#[test]
fn builtin_kinds() {
    let template = json!({"spec": {"containers": [{"name": "a", "image": "i1"}, {"name": "b", "image": "i2"}]}});
    let selector = json!({"matchLabels": {"app": "x"}});
    check(
        "apps",
        "Deployment",
        json!({"spec": {"replicas": 3, "template": template, "selector": selector},
            "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}}),
        &[
            "Name=x",
            "Ready=1/3",
            "Up-to-date=2",
            "Available=1",
            "Age=60m",
            "+Containers=a,b",
            "+Images=i1,i2",
            "+Selector=app=x",
        ],
    );
    check(
        "apps",
        "ReplicaSet",
        json!({"spec": {"replicas": 3, "template": template, "selector": selector}, "status": {"replicas": 2}}),
        &[
            "Name=x",
            "Desired=3",
            "Current=2",
            "Ready=0",
            "Age=60m",
            "+Containers=a,b",
            "+Images=i1,i2",
            "+Selector=app=x",
        ],
    );
    check(
        "apps",
        "StatefulSet",
        json!({"spec": {"replicas": 2, "template": template}}),
        &["Name=x", "Ready=0/2", "Age=60m", "+Containers=a,b", "+Images=i1,i2"],
    );
    check(
        "batch",
        "CronJob",
        json!({"spec": {"schedule": "* * * * *", "suspend": false, "jobTemplate": {"spec": {"template": template}}},
            "status": {"active": [{}], "lastScheduleTime": "2024-04-30T23:59:30Z"}}),
        &[
            "Name=x",
            "Schedule=* * * * *",
            "Timezone=<none>",
            "Suspend=False",
            "Active=1",
            "Last Schedule=30s",
            "Age=60m",
            "+Containers=a,b",
            "+Images=i1,i2",
            "+Selector=<none>",
        ],
    );
    check(
        "",
        "Pod",
        json!({"spec": {"nodeName": "n1", "containers": [{}]}, "status": {"phase": "Pending"}}),
        &[
            "Name=x",
            "Ready=0/1",
            "Status=Pending",
            "Restarts=0",
            "Age=60m",
            "+IP=<none>",
            "+Node=n1",
            "+Nominated Node=<none>",
            "+Readiness Gates=<none>",
        ],
    );
    check(
        "",
        "Secret",
        json!({"type": "Opaque", "data": {"a": "", "b": ""}}),
        &["Name=x", "Type=Opaque", "Data=2", "Age=60m"],
    );
    check("", "Namespace", json!({"status": {"phase": "Active"}}), &["Name=x", "Status=Active", "Age=60m"]);
    check("rbac.authorization.k8s.io", "Role", json!({}), &["Name=x", "Created At=2024-04-30T23:00:00Z"]);
    check(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        json!({}),
        &["Name=x", "Created At=2024-04-30T23:00:00Z"],
    );
    check(
        "storage.k8s.io",
        "StorageClass",
        json!({"provisioner": "p", "metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
        &[
            "Name=x (default)",
            "Provisioner=p",
            "ReclaimPolicy=Delete",
            "VolumeBindingMode=Immediate",
            "AllowVolumeExpansion=false",
            "Age=60m",
        ],
    );
    check(
        "policy",
        "PodDisruptionBudget",
        json!({"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}),
        &["Name=x", "Min Available=50%", "Max Unavailable=N/A", "Allowed Disruptions=1", "Age=60m"],
    );
    check(
        "scheduling.k8s.io",
        "PriorityClass",
        json!({"value": 1000, "preemptionPolicy": "Never"}),
        &["Name=x", "Value=1000", "Global-Default=false", "Age=60m", "PreemptionPolicy=Never"],
    );
    check("node.k8s.io", "Unheard", json!({}), &["Name=x", "Age=60m"]);
}

#[test]
fn finished_pods_say_so() {
    let table = render(&resource("", "Pod", None), &json!({"status": {"phase": "Succeeded"}}), &options());
    assert_eq!(table["rows"][0]["conditions"][0]["type"], "Completed");
    let scale = TablePrinter::builtin("autoscaling", "Scale");
    let object = json!({"metadata": {"name": "a"}, "spec": {"replicas": 2}});
    let table: Value = serde_json::from_slice(&scale.render([&object], &ListMeta::default(), &options())).unwrap();
    assert_eq!(table["rows"][0]["cells"], json!(["a", 2, 0, "<unknown>"]));
}
