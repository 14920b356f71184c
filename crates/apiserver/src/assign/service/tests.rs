//! Tests of `service`, as tables.

use super::*;
use crate::assign::allocated::{Allocated, Held};

/// What becomes of the spec of a service where these are taken, or the complaint.
fn given(taken: &[&str], ports: &[u16], old: Option<Value>, spec: Value) -> Result<Value, String> {
    let mut addresses = Allocated::default();
    let held = taken.iter().map(|text| text.parse().unwrap()).collect();
    addresses.set(&"other".into(), Held { addresses: held, ports: ports.iter().copied().collect() });
    let old = old.map(|spec| json!({"spec": spec}));
    let mut new = json!({"spec": spec});
    if let Some(old) = &old {
        carry_over(old, &mut new);
    }
    match assign(&ServiceRanges::default(), &addresses.but("this"), 0, old.as_ref(), &mut new) {
        Ok(()) => Ok(new["spec"].take()),
        Err(Refused::Field(error)) => Err(error.to_string()),
        Err(Refused::Full(why)) => Err(why),
    }
}

/// A spec with what every service of one family gets.
fn single(mut spec: Value, address: &str) -> Value {
    spec["clusterIP"] = address.into();
    spec["clusterIPs"] = json!([address]);
    spec["ipFamilies"] = json!(["IPv4"]);
    spec["ipFamilyPolicy"] = "SingleStack".into();
    spec
}

#[test]
fn addresses() {
    #[track_caller]
    fn check(taken: &[&str], spec: Value, expect: Result<Value, &str>) {
        assert_eq!(given(taken, &[], None, spec), expect.map_err(str::to_owned));
    }
    let plain = json!({"type": "ClusterIP"});
    let asking = |address: &str| json!({"type": "ClusterIP", "clusterIP": address});
    check(&[], plain.clone(), Ok(single(plain.clone(), "10.96.1.0")));
    check(&["10.96.1.0", "10.96.1.1"], plain.clone(), Ok(single(plain.clone(), "10.96.1.2")));
    check(&[], asking("10.96.0.10"), Ok(single(plain.clone(), "10.96.0.10")));
    check(
        &["10.96.0.10"],
        asking("10.96.0.10"),
        Err(
            r#"spec.clusterIPs: Invalid value: ["10.96.0.10"]: failed to allocate IP 10.96.0.10: provided IP is already allocated"#,
        ),
    );
    for outside in ["10.97.0.1", "10.95.255.255", "10.96.0.0", "10.96.255.255"] {
        let why = given(&[], &[], None, asking(outside)).unwrap_err();
        assert!(
            why.ends_with(&format!(
                "failed to allocate IP {outside}: the provided network does not match the current range"
            )),
            "{why}"
        );
    }
    let why = given(&[], &[], None, asking("ten")).unwrap_err();
    assert!(why.starts_with(r#"spec.clusterIPs[0]: Invalid value: "ten": must be a valid IP address"#), "{why}");
    let headless = json!({"type": "ClusterIP", "clusterIP": "None", "selector": {"a": "b"}});
    check(&[], headless.clone(), Ok(single(headless, "None")));
    check(
        &[],
        asking("None"),
        Ok(json!({
            "type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"],
            "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack",
        })),
    );
    let external = json!({"type": "ExternalName", "externalName": "x"});
    check(&[], external.clone(), Ok(external));
    check(
        &[],
        json!({"type": "ClusterIP", "ipFamilyPolicy": "RequireDualStack"}),
        Err(
            r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services"#,
        ),
    );
    check(
        &[],
        json!({"type": "ClusterIP", "ipFamilies": ["IPv6"]}),
        Err(r#"spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster"#),
    );
    check(
        &[],
        json!({"type": "ClusterIP", "clusterIP": "10.96.0.2", "clusterIPs": ["10.96.0.3"]}),
        Err(r#"spec.clusterIPs: Invalid value: ["10.96.0.3"]: first value must match `clusterIP`"#),
    );
}

#[test]
fn every_address_is_given_once() {
    let mut addresses = Allocated::default();
    for random in 0..2000u128 {
        let mut service = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        let taken = addresses.but("this");
        assign(&ServiceRanges::default(), &taken, random % 7, None, &mut service).unwrap();
        let address = service["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
        let port = number(&service["spec"]["ports"][0]["nodePort"]).unwrap();
        assert!(!taken.has_address(&address) && !taken.has_port(&port), "{service}");
        let held = Held { addresses: [address].into(), ports: [port].into() };
        addresses.set(&random.to_string().into(), held);
    }
    let ports = (30000..=32767).collect();
    addresses.set(&"greedy".into(), Held { ports, ..Held::default() });
    let mut service = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let refused = assign(&ServiceRanges::default(), &addresses.but("this"), 0, None, &mut service).unwrap_err();
    assert_eq!(refused, Refused::Full("failed to allocate a nodePort: range is full".into()));
}

#[test]
fn node_ports_are_given() {
    #[track_caller]
    fn check(taken: &[u16], ty: &str, ports: Value, expect: Result<Vec<u16>, &str>) {
        let spec = given(&[], taken, None, json!({"type": ty, "ports": ports}));
        let got = spec.map(|spec| self::ports(&spec).filter_map(|port| number(&port["nodePort"])).collect());
        assert_eq!(got, expect.map_err(str::to_owned));
    }
    check(&[], "ClusterIP", json!([{"port": 80}]), Ok(vec![]));
    check(&[], "NodePort", json!([{"port": 80}, {"port": 81}]), Ok(vec![30086, 30087]));
    check(&[30086], "LoadBalancer", json!([{"port": 80}]), Ok(vec![30087]));
    check(&[], "NodePort", json!([{"port": 80, "nodePort": 30001}, {"port": 81}]), Ok(vec![30001, 30086]));
    check(
        &[],
        "NodePort",
        json!([{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP", "nodePort": 30053}]),
        Ok(vec![30053, 30053]),
    );
    check(
        &[30001],
        "NodePort",
        json!([{"port": 80, "nodePort": 30001}]),
        Err("spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated"),
    );
    check(
        &[],
        "NodePort",
        json!([{"port": 80, "nodePort": 30001}, {"port": 81, "nodePort": 30001}]),
        Err("spec.ports[1].nodePort: Invalid value: 30001: provided port is already allocated"),
    );
    check(
        &[],
        "NodePort",
        json!([{"port": 80, "nodePort": 80}]),
        Err("spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. \
             The range of valid ports is 30000-32767"),
    );
    let quiet = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{"port": 80}]});
    let spec = given(&[], &[], None, quiet).unwrap();
    assert_eq!(spec["ports"], json!([{"port": 80}]));
    let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
    let spec = given(&[], &[], None, local).unwrap();
    assert_eq!((&spec["ports"][0]["nodePort"], &spec["healthCheckNodePort"]), (&json!(30086), &json!(30087)));
    for (health, why) in [
        (80, Some("provided port is not in the valid range. The range of valid ports is 30000-32767")),
        (30100, Some("provided port is already allocated")),
        (30200, Some("provided port is already allocated")),
        (30300, None),
    ] {
        let asking = json!({
            "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": health,
            "ports": [{"port": 80, "nodePort": 30200}],
        });
        let refused = given(&[], &[30100], None, asking).err();
        let why = why.map(|why| format!("failed to allocate requested HealthCheck NodePort {health}: {why}"));
        assert_eq!(refused, why);
    }
}

#[test]
fn a_type_without_ports_drops_those_that_the_service_had() {
    let port = |name: &str, number: u64| json!({"name": name, "port": 80, "nodePort": number});
    let had = json!({"type": "NodePort", "ports": [port("a", 30500), port("b", 30501)]});
    for (ports, expect) in [(json!([port("b", 30501)]), Value::Null), (json!([port("b", 30502)]), json!(30502))] {
        let (old, mut new) = (json!({"spec": had}), json!({"spec": {"type": "ExternalName", "ports": ports}}));
        carry_over(&old, &mut new);
        assert_eq!(new["spec"]["ports"][0]["nodePort"], expect);
    }
}

#[test]
fn what_a_service_has_stays() {
    #[track_caller]
    fn check(old: &Value, new: Value, expect: Result<Value, &str>) {
        assert_eq!(given(&[], &[], Some(old.clone()), new), expect.map_err(str::to_owned));
    }
    let old = single(json!({"type": "NodePort", "ports": [{"name": "a", "port": 80, "nodePort": 30500}]}), "10.96.3.3");
    let spec = |ty: &str, ports: Value| single(json!({"type": ty, "ports": ports}), "10.96.3.3");
    let bare = |ty: &str, ports: Value| json!({"type": ty, "ports": ports});
    check(&old, bare("NodePort", json!([{"name": "a", "port": 80}])), Ok(old.clone()));
    check(
        &old,
        bare("NodePort", json!([{"name": "a", "port": 81}, {"name": "b", "port": 82}])),
        Ok(spec(
            "NodePort",
            json!([{"name": "a", "port": 81, "nodePort": 30500}, {"name": "b", "port": 82, "nodePort": 30086}]),
        )),
    );
    let mut plain = old.clone();
    plain["type"] = "ClusterIP".into();
    check(&old, plain, Ok(spec("ClusterIP", json!([{"name": "a", "port": 80}]))));
    let mut external = old.clone();
    external["type"] = "ExternalName".into();
    check(&old, external.clone(), Ok(bare("ExternalName", json!([{"name": "a", "port": 80}]))));
    check(
        &json!({"type": "ExternalName"}),
        json!({"type": "ClusterIP"}),
        Ok(single(json!({"type": "ClusterIP"}), "10.96.1.0")),
    );
    let mut moved = old.clone();
    moved["clusterIP"] = "10.96.3.4".into();
    check(&old, moved, Err(r#"spec.clusterIPs[0]: Invalid value: ["10.96.3.4"]: may not change once set"#));
}
