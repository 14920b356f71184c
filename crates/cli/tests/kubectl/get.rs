//! `kubectl get`: tables, formats, selections.

use serde_json::json;

use crate::cluster::Cluster;
use crate::expect;
use crate::fixtures::{REGIONS, WEB, WIDGETS, config_map, widget};

#[test]
fn tables() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(&format!("{WIDGETS}{REGIONS}"));
    cluster.kubectl("get cm").warns("", "No resources found in default namespace.");
    cluster.kubectl("get regions").warns("", "No resources found");
    cluster.kubectl("get cm a").fails("Error from server (NotFound): configmaps \"a\" not found");
    cluster.kubectl("get wd w").fails("Error from server (NotFound): widgets.example.com \"w\" not found");
    cluster
        .create(&(config_map("a", "k", "1") + &widget("w", "size: small") + &widget("x", "size: large, color: red")));
    cluster.create(&format!("{WEB}---\napiVersion: example.com/v1\nkind: Region\nmetadata: {{name: north}}"));

    cluster.kubectl("get cm").prints("NAME DATA AGE\na 1 *s");
    cluster.kubectl("get deploy").prints(
        "NAME  READY  UP-TO-DATE  AVAILABLE  AGE
         web   0/2    0           0          *s",
    );
    cluster.kubectl("get deploy -o wide").prints(
        "NAME  READY  UP-TO-DATE  AVAILABLE  AGE  CONTAINERS    IMAGES                 SELECTOR
         web   0/2    0           0          *s   server,proxy  nginx:1.27,envoy:1.30  app=web",
    );
    cluster.kubectl("get widgets").prints(
        "NAME  SIZE   REPLICAS  PHASE  AGE
         w     small  1                *s
         x     large  1                *s",
    );
    cluster.kubectl("get wd w -o wide").prints(
        "NAME  SIZE   REPLICAS  PHASE  COLOR  AGE
         w     small  1                blue   *s",
    );
    cluster.kubectl("get rg").prints("NAME AGE\nnorth *s");
    cluster.kubectl("get crd").prints("NAME CREATED AT\nregions.example.com *Z\nwidgets.example.com *Z");
    cluster.kubectl("get ns").prints(
        "NAME             STATUS  AGE
         default          Active  *s
         kube-node-lease  Active  *s
         kube-public      Active  *s
         kube-system      Active  *s",
    );
    cluster.kubectl("get cm -A --no-headers").prints("default a 1 *s");
    cluster.kubectl("get cm --show-labels").prints("NAME DATA AGE LABELS\na 1 *s <none>");
    cluster.kubectl("get deploy -L app").prints("NAME READY UP-TO-DATE AVAILABLE AGE APP\nweb 0/2 0 0 *s web");
    cluster.kubectl("get cm,wd").prints(
        "NAME         DATA  AGE
         configmap/a  1     *s
         NAME                  SIZE   REPLICAS  PHASE  AGE
         widget.example.com/w  small  1                *s
         widget.example.com/x  large  1                *s",
    );
    // A category names all kinds that joined it.
    cluster.kubectl("get gear").prints(
        "NAME  SIZE   REPLICAS  PHASE  AGE
         w     small  1                *s
         x     large  1                *s",
    );
    cluster.kubectl("get all").prints(
        "NAME                TYPE       CLUSTER-IP  EXTERNAL-IP  PORT(S)  AGE
         service/kubernetes  ClusterIP  10.96.0.1   <none>       443/TCP  *s
         NAME                 READY  UP-TO-DATE  AVAILABLE  AGE
         deployment.apps/web  0/2    0           0          *s
         NAME                  SIZE   REPLICAS  PHASE  AGE
         widget.example.com/w  small  1                *s
         widget.example.com/x  large  1                *s",
    );
    // Older versions have no columns of their own, and so the age.
    cluster
        .kubectl("get widgets.v1beta1.example.com w")
        .warns("NAME AGE\nw *s", "Warning: example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget");
}

#[test]
fn formats() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.create(&(config_map("a", "k", "1") + WEB + &widget("w", "size: small")));
    cluster.kubectl("get cm,deploy,wd -o name").prints("configmap/a\ndeployment.apps/web\nwidget.example.com/w");
    let yaml = cluster.kubectl("get cm a -o yaml").text();
    expect::text(
        "get cm a -o yaml",
        "apiVersion: v1
         data:
           k: \"1\"
         kind: ConfigMap
         metadata:
           creationTimestamp: \"*Z\"
           name: a
           namespace: default
           resourceVersion: \"*\"
           uid: *-*-*-*-*",
        &yaml,
    );
    let list = cluster.kubectl("get cm,wd -o json").json();
    expect::has(&list, &json!({"apiVersion": "v1", "kind": "List"}));
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{list}");
    cluster
        .kubectl("get deploy web -o jsonpath={.spec.template.spec.containers[*].image}")
        .prints("nginx:1.27 envoy:1.30");
    cluster
        .kubectl("get wd -o jsonpath='{range .items[*]}{.metadata.name}={.spec.color}{\"\\n\"}{end}'")
        .prints("w=blue");
    cluster.kubectl("get wd -o custom-columns=N:.metadata.name,S:.spec.size").prints("N S\nw small");
    cluster.kubectl("get wd w -o go-template='{{.spec.size}}'").prints("small");
    cluster.kubectl("get -f - -o name").input(&widget("w", "")).prints("widget.example.com/w");

    // Describing looks at related objects and events as well.
    let said = cluster.kubectl("describe widget w").text();
    for expect in ["Name:         w", "API Version:  example.com/v1", "Color:     blue", "Events:      <none>"] {
        assert!(said.contains(expect), "{expect} is not in\n{said}");
    }
    let said = cluster.kubectl("describe deployment web").text();
    for expect in [
        "Selector:               app=web",
        "2 desired | 0 updated",
        "RollingUpdateStrategy:  25% max unavailable, 25% max surge",
        "Image:        nginx:1.27",
        "Port:         80/TCP",
    ] {
        assert!(said.contains(expect), "{expect} is not in\n{said}");
    }
}

#[test]
fn selections() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(&format!("{WIDGETS}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: other}}"));
    let labelled = |name: &str, label: &str| {
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{{label}}}}}\n")
    };
    cluster.create(&(labelled("a", "env: dev, tier: web") + &labelled("b", "env: prod") + &labelled("c", "tier: db")));
    cluster.kubectl("create -n other -f -").input(&labelled("d", "env: dev")).succeeds();
    let found = |selection: &str, names: &str| {
        let expect: Vec<String> = names.split_whitespace().map(|name| format!("configmap/{name}")).collect();
        let got = cluster.kubectl(&format!("get cm -o name {selection}")).text();
        expect::text(selection, &expect.join("\n"), &got);
    };
    found("-l env=dev", "a");
    found("-l 'env!=dev'", "b c");
    found("-l 'env in (dev,prod)'", "a b");
    found("-l 'env notin (dev)'", "b c");
    found("-l env,tier=web", "a");
    found("-l '!env'", "c");
    found("-A -l env=dev", "a d");
    found("--field-selector metadata.name=b", "b");
    found("--field-selector metadata.name!=b", "a c");
    found("-A --field-selector metadata.namespace=other", "d");
    found("a c", "a c");
    cluster.kubectl("get cm -l env=dev,").fails(
        "Error from server (BadRequest): Unable to find \"/v1, Resource=configmaps\" that match label selector \"env=dev,\", \
         field selector \"\": found '', expected: identifier after ','",
    );
    cluster.kubectl("get cm --field-selector data.k=1").fails(
        "Error from server (BadRequest): Unable to find \"/v1, Resource=configmaps\" that match label selector \"\", \
         field selector \"data.k=1\": \"data.k\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
    );

    cluster.create(
        &(widget("r", "size: small, color: red, replicas: 3")
            + &widget("s", "size: small")
            + &widget("t", "size: large, replicas: 2")),
    );
    cluster.kubectl("get wd -o name --field-selector spec.color=red").prints("widget.example.com/r");
    cluster.kubectl("get wd -o name --field-selector spec.color!=red,spec.size=small").prints("widget.example.com/s");
    cluster.kubectl("get wd --field-selector spec.note=x").fails(
        "Error from server (BadRequest): Unable to find \"example.com/v1, Resource=widgets\" that match label selector \"\", \
         field selector \"spec.note=x\": field label not supported: spec.note",
    );
    cluster
        .kubectl("get wd --sort-by=.spec.replicas -o custom-columns=N:.metadata.name --no-headers")
        .prints("s\nt\nr");
    cluster.kubectl("get wd --sort-by=.spec.replicas --no-headers").prints(
        "s small 1 *s
         t large 2 *s
         r small 3 *s",
    );
}

#[test]
fn large_lists_come_in_pages() {
    let Some(cluster) = Cluster::start() else { return };
    let many: String = (0..25).map(|n| config_map(&format!("c{n:02}"), "k", "1")).collect();
    cluster.create(&many);
    let names: Vec<String> = (0..25).map(|n| format!("configmap/c{n:02}")).collect();
    for (chunk, pages) in [(10, 3), (25, 1), (24, 2), (0, 1)] {
        let (said, aside) = cluster.kubectl(&format!("get cm -o name --chunk-size={chunk} -v=8")).says(0);
        assert_eq!(said.lines().collect::<Vec<_>>(), names, "chunk {chunk}");
        let requests = aside.lines().filter(|line| line.contains("GET ") || line.contains("verb=\"GET\""));
        let lists = requests.filter(|line| line.contains("/api/v1/namespaces/default/configmaps")).count();
        assert_eq!(lists, pages, "chunk {chunk}\n{aside}");
    }
    // A table of several pages has one header.
    let table = cluster.kubectl("get cm --chunk-size=7").text();
    assert_eq!(table.lines().count(), 26, "{table}");
}

#[test]
fn events() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(&config_map("a", "k", "1"));
    cluster.kubectl("get events").warns("", "No resources found in default namespace.");
    cluster.create(
        "apiVersion: v1
kind: Event
metadata: {name: a.1}
involvedObject: {apiVersion: v1, kind: ConfigMap, name: a, namespace: default}
type: Warning
reason: Odd
message: it looks odd
count: 3
lastTimestamp: '2026-01-01T00:00:00Z'
source: {component: tester}
",
    );
    cluster.kubectl("get events").prints(
        "LAST SEEN  TYPE     REASON  OBJECT       MESSAGE
         *d         Warning  Odd     configmap/a  it looks odd",
    );
    cluster.kubectl("get events --field-selector involvedObject.name=a,reason=Odd -o name").prints("event/a.1");
    cluster.kubectl("get events --field-selector type=Normal").warns("", "No resources found in default namespace.");
    cluster.kubectl("events --for cm/a").prints(
        "LAST SEEN        TYPE     REASON  OBJECT       MESSAGE
         *d (x3 over *)  Warning  Odd     ConfigMap/a  it looks odd",
    );
    // The newer API shows the same events.
    cluster.kubectl("get events.events.k8s.io -o name").prints("event.events.k8s.io/a.1");
}
