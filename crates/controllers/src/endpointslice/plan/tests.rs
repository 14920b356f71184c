//! Services, pods and slices, as tables.

use super::*;

fn service(spec: Value) -> Service {
    let mut all = json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let metadata = json!({"name": "web", "namespace": "a", "labels": {"team": "x"}});
    serde_json::from_value(json!({"metadata": metadata, "spec": all})).unwrap()
}

/// A pod by number: `+` is ready, `-` is not, `t` is ready and on its way out, `f` has failed, `n` has no address.
fn pod(number: usize, how: char) -> Arc<Pod> {
    let ready = if matches!(how, '+' | 't') { "True" } else { "False" };
    let ip = if how == 'n' { String::new() } else { format!("10.0.{}.{}", number / 250, number % 250 + 1) };
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("p{number}"), "namespace": "a", "uid": format!("u{number}"),
                "deletionTimestamp": (how == 't').then_some("2026-01-01T00:00:00Z"),
            },
            "spec": {"nodeName": "n1"},
            "status": {
                "phase": if how == 'f' { "Failed" } else { "Running" }, "podIP": ip,
                "conditions": [{"type": "Ready", "status": ready}],
            },
        }))
        .unwrap(),
    )
}

fn pods(how: &str) -> Vec<Arc<Pod>> {
    how.chars().enumerate().map(|(number, how)| pod(number, how)).collect()
}

/// The slices there are after a plan, in the order of their uids; and how many writes that took.
fn carried_out(slices: &[Arc<Slice>], plan: &Plan) -> (Vec<Arc<Slice>>, usize) {
    let gone = |uid: &str| plan.delete.iter().any(|slice| slice.metadata.uid == uid);
    let slice = |content: &Content, metadata: Meta| {
        let metadata = Meta { labels: content.labels.clone(), ..metadata };
        let (endpoints, ports) = (Some(content.endpoints.clone()), Some(content.ports.clone()));
        Arc::new(Slice { metadata, address_type: content.family, endpoints, ports })
    };
    let mut after: Vec<Arc<Slice>> = Vec::new();
    for old in slices.iter().filter(|slice| !gone(&slice.metadata.uid)) {
        let changed = plan.change.iter().find(|(slice, _)| slice.metadata.uid == old.metadata.uid);
        after.push(changed.map_or(old.clone(), |(old, content)| slice(content, old.metadata.clone())));
    }
    for (at, content) in plan.create.iter().enumerate() {
        let uid = format!("s{:03}", slices.len() + at);
        after.push(slice(content, Meta { uid, ..Meta::default() }));
    }
    (after, plan.delete.len() + plan.change.len() + plan.create.len())
}

fn sizes(slices: &[Arc<Slice>]) -> Vec<usize> {
    slices.iter().map(|slice| slice.endpoints.iter().flatten().count()).collect()
}

/// What becomes of slices as pods come and go; each step says how large the slices are and how many writes it took.
#[test]
fn slices_change_as_little_as_they_can() {
    type Step = (Vec<Arc<Pod>>, &'static [usize], usize);
    let check = |steps: &[Step]| {
        let service = service(json!({}));
        let mut slices = Vec::new();
        for (at, (pods, expect, writes)) in steps.iter().enumerate() {
            let (after, took) = carried_out(&slices, &plan(&service, pods, &slices));
            assert_eq!((sizes(&after), took), (expect.to_vec(), *writes), "step {at}");
            assert_eq!(plan(&service, pods, &after), Plan::default(), "step {at} is enough");
            slices = after;
        }
    };
    let ready = |range: std::ops::Range<usize>| range.map(|number| pod(number, '+')).collect::<Vec<_>>();
    // Nobody, somebody in the same slice, nobody again.
    check(&[(vec![], &[0], 1), (pods("+"), &[1], 1), (pods("++"), &[2], 1), (vec![], &[0], 1)]);
    // Many, one more, one fewer, and one that changes.
    check(&[
        (ready(0..250), &[100, 100, 50], 3),
        (ready(0..251), &[100, 100, 51], 1),
        (ready(1..251), &[99, 100, 51], 1),
        (ready(1..252), &[100, 100, 51], 1),
        // The newest one went where there was room, and stays there.
        (ready(201..252), &[1, 50], 3),
    ]);
    check(&[(pods("+-"), &[2], 1), (pods("++"), &[2], 1), (pods("++"), &[2], 0), (pods("ffn"), &[0], 1)]);
}

#[test]
fn endpoints_say_how_they_are() {
    let check = |spec: Value, how: &str, expect: (bool, bool, bool)| {
        let plan = plan(&service(spec.clone()), &pods(how), &[]);
        let Conditions { ready, serving, terminating } = plan.create[0].endpoints[0].conditions;
        assert_eq!((ready, serving, terminating), expect, "{spec} {how}");
    };
    check(json!({}), "+", (true, true, false));
    check(json!({}), "-", (false, false, false));
    check(json!({}), "t", (false, true, true));
    check(json!({"publishNotReadyAddresses": true}), "-", (true, false, false));
    check(json!({"publishNotReadyAddresses": true}), "t", (true, true, true));
}

#[test]
fn a_slice_in_full() {
    let plan = plan(&service(json!({"clusterIP": "None"})), &pods("+"), &[]);
    assert_eq!(
        plan.create[0].object(&service(json!({}))),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "generateName": "web-", "namespace": "a",
                "labels": {
                    "team": "x", "kubernetes.io/service-name": "web", "service.kubernetes.io/headless": "",
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                },
            },
            "addressType": "IPv4",
            "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{
                "addresses": ["10.0.0.1"], "nodeName": "n1",
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "targetRef": {"kind": "Pod", "name": "p0", "namespace": "a", "uid": "u0"},
            }],
        })
    );
}

#[test]
fn what_differs_in_ports_or_family_is_in_slices_of_its_own() {
    let named = |number: usize, port: i32| {
        let mut pod = Arc::unwrap_or_clone(pod(number, '+'));
        pod.spec.containers =
            serde_json::from_value(json!([{"ports": [{"name": "web", "containerPort": port}]}])).unwrap();
        Arc::new(pod)
    };
    let service_named = service(json!({"ports": [{"port": 80, "targetPort": "web"}]}));
    let apart = plan(&service_named, &[named(0, 80), named(1, 8080), named(2, 80)], &[]);
    let ports: Vec<_> = apart.create.iter().map(|one| (one.ports[0].port, one.endpoints.len())).collect();
    assert_eq!(ports, [(80, 2), (8080, 1)]);
    let dual = plan(&service(json!({"ipFamilies": ["IPv4", "IPv6"]})), &pods("+"), &[]);
    let families: Vec<_> = dual.create.iter().map(|one| (one.family, one.endpoints.len())).collect();
    assert_eq!(families, [(Family::IPv4, 1), (Family::IPv6, 0)]);
}
