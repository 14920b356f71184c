//! Creating, reading, listing and replacing objects.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret};
use k8s_openapi::api::events::v1::Event as NewEvent;
use kube::api::{Api, GetParams, ListParams, Patch, PatchParams, PostParams, VersionMatch};
use kube::core::{Expression, Selector};
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::{Setup, flows, refused, typed};
use crate::cluster::{config_map, deployment, pod};

flows![
    crud,
    lists_in_pages,
    lists_at_a_version,
    selects_by_labels_and_fields,
    metadata_only,
    events_in_both_versions,
    leases,
    dry_run,
    scale,
    status,
    entries,
    discovery,
];

async fn crud(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    let post = PostParams::default();
    let made = maps.create(&post, &typed(&config_map("a"))).await.unwrap();
    assert!(made.uid().is_some() && made.creation_timestamp().is_some(), "{made:?}");
    assert_eq!(maps.get("a").await.unwrap(), made);
    assert_eq!(refused(maps.create(&post, &typed(&config_map("a"))).await, 409).reason, "AlreadyExists");

    let mut wanted = made.clone();
    wanted.data = Some(BTreeMap::from([("k".into(), "w".into())]));
    let replaced = maps.replace("a", &post, &wanted).await.unwrap();
    assert_eq!(replaced.data, wanted.data);
    assert_eq!(replaced.uid(), made.uid());
    assert_ne!(replaced.resource_version(), made.resource_version());
    assert_eq!(refused(maps.replace("a", &post, &wanted).await, 409).reason, "Conflict");

    let merged = maps.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"x": "y"}}))).await.unwrap();
    assert_eq!(merged.data.unwrap().len(), 2);
    let strategic = Patch::Strategic(json!({"data": {"k": null}}));
    let patched = maps.patch("a", &PatchParams::default(), &strategic).await.unwrap();
    assert_eq!(patched.data, Some(BTreeMap::from([("x".into(), "y".into())])));

    let gone = maps.delete("a", &Default::default()).await.unwrap();
    let status = gone.right().expect("a config map is answered with a status");
    assert!(status.is_success());
    assert_eq!(status.details.unwrap().uid, made.uid().unwrap());
    assert!(maps.get_opt("a").await.unwrap().is_none());
    assert_eq!(refused(maps.get("a").await, 404).message, "configmaps \"a\" not found");

    let again = maps.create(&post, &typed(&config_map("a"))).await.unwrap();
    assert_ne!(again.uid(), made.uid(), "a name that comes back is another object");
}

async fn lists_in_pages(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    for at in 0..25 {
        maps.create(&PostParams::default(), &typed(&config_map(&format!("m{at:02}")))).await.unwrap();
    }
    let mut params = ListParams::default().limit(10);
    let mut seen = Vec::new();
    let mut sizes = Vec::new();
    let mut version = None;
    loop {
        let page = maps.list(&params).await.unwrap();
        sizes.push((page.items.len(), page.metadata.remaining_item_count));
        assert_eq!(*version.get_or_insert(page.metadata.resource_version.clone()), page.metadata.resource_version);
        seen.extend(page.items.iter().map(ResourceExt::name_any));
        // What changes meanwhile is not part of a list that has begun.
        maps.create(&PostParams::default(), &typed(&config_map(&format!("late-{}", seen.len())))).await.unwrap();
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => params = ListParams::default().limit(10).continue_token(&token),
            _ => break,
        }
    }
    assert_eq!(sizes, [(10, Some(15)), (10, Some(5)), (5, None)]);
    assert_eq!(seen, (0..25).map(|at| format!("m{at:02}")).collect::<Vec<_>>());
}

async fn lists_at_a_version(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    let first = maps.create(&PostParams::default(), &typed(&config_map("a"))).await.unwrap();
    maps.create(&PostParams::default(), &typed(&config_map("b"))).await.unwrap();
    let version = first.resource_version().unwrap();
    let exact = ListParams::default().at(&version).matching(VersionMatch::Exact);
    assert_eq!(maps.list(&exact).await.unwrap().items, [first]);
    let newer = ListParams::default().at(&version).matching(VersionMatch::NotOlderThan);
    assert_eq!(maps.list(&newer).await.unwrap().items.len(), 2);
    assert_eq!(maps.list(&ListParams::default().match_any()).await.unwrap().items.len(), 2);
    assert_eq!(maps.get_with("a", &GetParams::any()).await.unwrap().name_any(), "a");
}

async fn selects_by_labels_and_fields(setup: Setup) {
    let pods: Api<Pod> = setup.api();
    for (name, labels, node) in [("a", "x", "n1"), ("b", "y", "n1"), ("c", "x", "n2")] {
        let mut object = pod(name);
        object["metadata"]["labels"] = json!({"app": labels});
        object["spec"]["nodeName"] = node.into();
        pods.create(&PostParams::default(), &typed(&object)).await.unwrap();
    }
    let listed = async |params: ListParams| {
        let list = pods.list(&params).await.unwrap();
        list.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>().join(" ")
    };
    let all = ListParams::default;
    assert_eq!(listed(all().labels("app=x")).await, "a c");
    assert_eq!(listed(all().labels("app in (x, y),app!=x")).await, "b");
    let selector: Selector = Expression::NotIn("app".into(), ["y".to_owned()].into()).into();
    assert_eq!(listed(all().labels_from(&selector)).await, "a c");
    assert_eq!(listed(all().fields("spec.nodeName=n1")).await, "a b");
    assert_eq!(listed(all().fields("metadata.name=c,spec.nodeName!=n1")).await, "c");
    assert_eq!(listed(all().labels("app=x").fields("spec.nodeName=n1")).await, "a");
    let unknown = refused(pods.list(&all().fields("spec.color=red")).await, 400);
    assert_eq!(unknown.message, "field label not supported: spec.color");
}

async fn metadata_only(setup: Setup) {
    let secrets: Api<Secret> = setup.api();
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "labels": {"a": "b"}}, "data": {"k": "c2VjcmV0"},
    });
    let made = secrets.create(&PostParams::default(), &typed(&object)).await.unwrap();
    let partial = secrets.get_metadata("s").await.unwrap();
    assert_eq!(partial.types.unwrap().kind, "PartialObjectMetadata");
    assert_eq!(partial.metadata, made.metadata);
    let list = secrets.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(list.types.kind, "PartialObjectMetadataList");
    assert_eq!(list.items.len(), 1);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"n": "1"}}}));
    let patched = secrets.patch_metadata("s", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.annotations()["n"], "1");
    assert!(secrets.get("s").await.unwrap().data.is_some(), "what is not shown is still there");
}

async fn events_in_both_versions(setup: Setup) {
    let old: Api<Event> = setup.api();
    let new: Api<NewEvent> = setup.api();
    let object = json!({
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Started", "message": "it runs", "type": "Normal", "count": 3, "source": {"component": "kubelet"},
    });
    let made = old.create(&PostParams::default(), &typed(&object)).await.unwrap();
    let shown = new.get("e").await.unwrap();
    assert_eq!(shown.uid(), made.uid());
    assert_eq!(shown.resource_version(), made.resource_version());
    assert_eq!(shown.note.as_deref(), Some("it runs"));
    assert_eq!(shown.regarding.unwrap().name.as_deref(), Some("p"));
    assert_eq!(shown.deprecated_count, Some(3));
    assert_eq!(shown.deprecated_source.unwrap().component.as_deref(), Some("kubelet"));

    let object = json!({
        "metadata": {"name": "f"}, "regarding": {"kind": "Pod", "name": "q", "namespace": "default"},
        "reason": "Stopped", "note": "it ended", "type": "Warning", "action": "Stop", "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/controller", "reportingInstance": "one",
    });
    new.create(&PostParams::default(), &typed(&object)).await.unwrap();
    let shown = old.get("f").await.unwrap();
    assert_eq!(shown.message.as_deref(), Some("it ended"));
    assert_eq!(shown.involved_object.name.as_deref(), Some("q"));
    assert_eq!(shown.reporting_component.as_deref(), Some("example.com/controller"));
    let by_object = ListParams::default().fields("involvedObject.name=q,type=Warning");
    assert_eq!(old.list(&by_object).await.unwrap().items.len(), 1);
    let by_object = ListParams::default().fields("regarding.name=p");
    assert_eq!(new.list(&by_object).await.unwrap().items.len(), 1);
    assert_eq!(new.list(&ListParams::default()).await.unwrap().items.len(), 2);
    new.delete("e", &Default::default()).await.unwrap();
    assert!(old.get_opt("e").await.unwrap().is_none());
}

async fn leases(setup: Setup) {
    let leases: Api<Lease> = setup.api();
    let lease = json!({"metadata": {"name": "leader"}, "spec": {
        "holderIdentity": "a", "leaseDurationSeconds": 15, "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.123456Z",
    }});
    let mut held = leases.create(&PostParams::default(), &typed(&lease)).await.unwrap();
    let mut taken = held.clone();
    held.spec.as_mut().unwrap().renew_time = Some(typed(&json!("2026-01-01T00:00:05.000001Z")));
    let renewed = leases.replace("leader", &PostParams::default(), &held).await.unwrap();
    assert_eq!(renewed.spec, held.spec);
    taken.spec.as_mut().unwrap().holder_identity = Some("b".into());
    refused(leases.replace("leader", &PostParams::default(), &taken).await, 409);
    taken.meta_mut().resource_version = None;
    let status = refused(leases.replace("leader", &PostParams::default(), &taken).await, 422);
    assert!(status.message.ends_with("metadata.resourceVersion: Invalid value: 0: must be specified for an update"));
    assert_eq!(leases.get("leader").await.unwrap(), renewed);
}

async fn dry_run(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    let before = setup.server.store().revision();
    let dry = PostParams { dry_run: true, field_manager: None };
    let made = maps.create(&dry, &typed(&config_map("a"))).await.unwrap();
    assert!(made.uid().is_some());
    assert!(maps.get_opt("a").await.unwrap().is_none());
    assert_eq!(setup.server.store().revision(), before);

    let kept = maps.create(&PostParams::default(), &typed(&config_map("a"))).await.unwrap();
    refused(maps.create(&dry, &typed(&config_map("a"))).await, 409);
    let patch = Patch::Merge(json!({"data": {"k": "other"}}));
    let patched = maps.patch("a", &PatchParams::default().dry_run(), &patch).await.unwrap();
    assert_eq!(patched.data.unwrap()["k"], "other");
    let apply = Patch::Apply(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "y"},
    }));
    maps.patch("a", &PatchParams::apply("me").dry_run(), &apply).await.unwrap();
    maps.replace("a", &dry, &typed(&json!({"metadata": {"name": "a"}}))).await.unwrap();
    maps.delete("a", &kube::api::DeleteParams::default().dry_run()).await.unwrap();
    maps.delete_collection(&kube::api::DeleteParams::default().dry_run(), &ListParams::default()).await.unwrap();
    assert_eq!(maps.get("a").await.unwrap(), kept);
}

async fn scale(setup: Setup) {
    let deployments: Api<Deployment> = setup.api();
    let made = deployments.create(&PostParams::default(), &typed(&deployment("web"))).await.unwrap();
    let scale = deployments.get_scale("web").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(2));
    assert_eq!(scale.status.unwrap().selector.as_deref(), Some("app=web"));
    assert_eq!(scale.metadata.resource_version, made.resource_version());

    let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
    let scaled = deployments.patch_scale("web", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(scaled.spec.as_ref().unwrap().replicas, Some(5));
    let object = deployments.get("web").await.unwrap();
    assert_eq!(object.spec.replicas, Some(5));
    assert_eq!(object.metadata.generation, Some(2));

    let mut wanted = scaled.clone();
    wanted.spec.as_mut().unwrap().replicas = Some(0);
    deployments.replace_scale("web", &PostParams::default(), &wanted).await.unwrap();
    assert_eq!(deployments.get("web").await.unwrap().spec.replicas, Some(0));
    refused(deployments.replace_scale("web", &PostParams::default(), &wanted).await, 409);
}

async fn status(setup: Setup) {
    let (widgets, resource) = setup.widgets().await;
    let object =
        kube::api::DynamicObject::new("w", &resource).data(json!({"spec": {"size": 1}, "status": {"phase": "?"}}));
    let made = widgets.create(&PostParams::default(), &object).await.unwrap();
    assert!(made.data.get("status").is_none(), "{made:?}");

    let patch = Patch::Merge(json!({"spec": {"size": 9}, "status": {"phase": "Ready"}}));
    let patched = widgets.patch_status("w", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((&patched.data["spec"]["size"], &patched.data["status"]["phase"]), (&json!(1), &json!("Ready")));
    assert_eq!(patched.metadata.generation, Some(1));

    let mut wanted = widgets.get_status("w").await.unwrap();
    wanted.data["status"] = json!({"phase": "Done", "replicas": 4});
    wanted.data["spec"]["size"] = 7.into();
    let replaced = widgets.replace_status("w", &PostParams::default(), &wanted).await.unwrap();
    assert_eq!((&replaced.data["spec"]["size"], &replaced.data["status"]["phase"]), (&json!(1), &json!("Done")));

    wanted = replaced.clone();
    wanted.data = json!({"spec": {"size": 2}, "status": {"phase": "lost"}});
    let replaced = widgets.replace("w", &PostParams::default(), &wanted).await.unwrap();
    assert_eq!((&replaced.data["spec"]["size"], &replaced.data["status"]["phase"]), (&json!(2), &json!("Done")));
    assert_eq!(replaced.metadata.generation, Some(2));
}

async fn entries(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    let mut entry = maps.entry("a").await.unwrap().or_insert(ConfigMap::default);
    entry.get_mut().data = Some(BTreeMap::from([("k".into(), "1".into())]));
    entry.commit(&PostParams::default()).await.unwrap();
    entry.get_mut().data.as_mut().unwrap().insert("l".into(), "2".into());
    entry.commit(&PostParams::default()).await.unwrap();
    assert_eq!(maps.get("a").await.unwrap().data.unwrap().len(), 2);
}

async fn discovery(setup: Setup) {
    setup.widgets().await;
    let found = kube::discovery::Discovery::new(setup.client.clone()).run().await.unwrap();
    let aggregated = kube::discovery::Discovery::new(setup.client.clone()).run_aggregated().await.unwrap();
    for discovery in [found, aggregated] {
        let group = discovery.get("example.com").expect("a definition brings its group");
        let (resource, capabilities) = group.recommended_kind("Widget").unwrap();
        assert_eq!((resource.plural.as_str(), resource.version.as_str()), ("widgets", "v1"));
        assert!(capabilities.supports_operation(kube::discovery::verbs::WATCH));
        assert_eq!(capabilities.subresources.len(), 2);
        let (deployments, _) = discovery.get("apps").unwrap().recommended_kind("Deployment").unwrap();
        assert_eq!(deployments.plural, "deployments");
    }
}
