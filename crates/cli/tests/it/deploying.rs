//! From a project to a cluster: `generate`, `install`, `deploy`, `logs`, `undeploy`, `uninstall`, `build`. Cargo is a script, and so is the operator: it prints
//! what operators print. The cluster is `konverge dev`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::konverge::{Running, ended, ends_on, start_on};

/// Compiles by copying, with the metadata that was prepared.
const CARGO: &str = r#"#!/bin/sh
home=$(dirname "$0")
case "$1" in
metadata) cat "$home/metadata.json" ;;
build)
  if [ -e "$home/broken" ]; then echo 'error: broken' >&2; exit 101; fi
  mkdir -p "$home/target/debug"
  source=operator
  case "$*" in *--target*) [ ! -e "$home/static" ] || source=static ;; esac
  cp "$home/$source" "$home/target/debug/shop"
  chmod +x "$home/target/debug/shop"
  printf '{"reason":"compiler-artifact","target":{"name":"shop"},"executable":"%s"}\n' "$home/target/debug/shop" ;;
esac
"#;

const OPERATOR: &str = r#"#!/bin/sh
case "$1" in
--print-config) echo 'name: shop' ;;
--print-crds) cat crd.yaml ;;
--print-rbac) case "$*" in *--namespace=*) cat scoped.yaml ;; *) cat rbac.yaml ;; esac ;;
--print-webhooks) cat webhooks.yaml ;;
*) echo "it runs with $*" ;;
esac
"#;

const CRD: &str = "---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: shops, singular: shop, kind: Shop}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, description: \"A shop.\\nWith {{ braces }}.\"}}
";

const RBAC: &str = "---
apiVersion: rbac.authorization.k8s.io/v1
kind: KIND
metadata: {name: shop, namespace: NAMESPACE}
rules:
- {apiGroups: [example.com], resources: [shops, shops/status], verbs: [get, list, watch, patch]}
- {apiGroups: [apps], resources: [deployments], verbs: [get, list, watch, create, patch, delete]}
";

const ELECTION: &str = "---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: shop-leader-election, namespace: shop-system}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, watch, create, update]}
";

const WEBHOOKS: &str = "---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: shop}
webhooks:
- name: validate.shop.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {service: {namespace: shop-system, name: shop-webhook, path: /validate, port: 443}}
  rules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [shops], scope: Namespaced}]
---
apiVersion: v1
kind: Service
metadata: {name: shop-webhook, namespace: shop-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: shop-webhook, namespace: shop-system}
rules:
- {apiGroups: [''], resources: [secrets], verbs: [create]}
";

/// A project whose operator has everything.
pub(crate) struct Shop {
    _folder: TempDir,
    pub home: PathBuf,
}

impl Shop {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = fs::canonicalize(folder.path()).expect("it is there");
        let shop = Self { _folder: folder, home };
        let metadata = json!({"workspace_root": shop.home, "packages": [{
            "id": "shop", "name": "shop", "version": "1.2.3", "description": "Shops", "license": "MIT",
            "manifest_path": shop.home.join("Cargo.toml"), "targets": [{"name": "shop", "kind": ["bin"]}], "default_run": null,
            "dependencies": [{"name": "konverge", "kind": null}], "metadata": {"konverge": {"image": "example.com/shop"}},
        }], "resolve": {"nodes": [{"id": "shop", "deps": []}]}});
        shop.write("metadata.json", &metadata.to_string());
        shop.write("Cargo.toml", "[dependencies]\nkonverge = '1'\n");
        shop.write("cargo", CARGO);
        fs::set_permissions(shop.home.join("cargo"), fs::Permissions::from_mode(0o755)).expect("it is ours");
        shop.write("operator", OPERATOR);
        shop.write("crd.yaml", CRD);
        shop.write(
            "rbac.yaml",
            &(RBAC.replace("KIND", "ClusterRole").replace(", namespace: NAMESPACE", "") + ELECTION),
        );
        let probed = "konverge-probes-the-watched-namespaces";
        shop.write("scoped.yaml", &(RBAC.replace("KIND", "Role").replace("NAMESPACE", probed) + ELECTION));
        shop.write("webhooks.yaml", WEBHOOKS);
        shop
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.home.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.home.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Every file below a folder, with its content.
    pub(crate) fn files(&self, folder: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut folders = vec![self.home.join(folder)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder").flatten() {
                match entry.path() {
                    path if path.is_dir() => folders.push(path),
                    path => {
                        let name = path.strip_prefix(&self.home).expect("it is below").display().to_string();
                        found.push((name, fs::read_to_string(path).expect("text")));
                    }
                }
            }
        }
        found.sort();
        found
    }
}

/// A cluster without operators.
pub(crate) struct Cluster {
    _folder: TempDir,
    pub server: Running,
    pub kubeconfig: PathBuf,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Running::start(folder.path(), &["dev", "--operator", "none", "--memory", "--port", "0"]);
        let kubeconfig = folder.path().join(".konverge/kubeconfig");
        Self { _folder: folder, server, kubeconfig }
    }

    /// Runs a command of the project on it; fails the test if it ends otherwise.
    #[track_caller]
    pub(crate) fn run(&self, shop: &Shop, expect: i32, arguments: &[&str]) -> String {
        let (code, out, error) = ends_on(&shop.home, Some(&self.kubeconfig), arguments);
        assert_eq!(code, Some(expect), "{arguments:?}\n{out}\n{error}");
        format!("{out}{error}")
    }

    /// The code of the answer.
    pub(crate) fn create(&self, path: &str, object: &str) -> u16 {
        self.server.curl("POST", path, &[("content-type", "application/json")], object).0
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        let (code, object) = self.server.curl("GET", path, &[], "");
        (code == 200).then_some(object)
    }
}

#[track_caller]
pub(crate) fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/shop-system/deployments/shop";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/shops.example.com";
const SHOPS: &str = "/apis/example.com/v1/namespaces/default/shops";

#[test]
fn files_are_stable_and_checked() {
    let shop = Shop::new();
    let generate = |what: &[&str]| ends_on(&shop.home, None, &[&["generate"], what].concat());
    let (code, out, _) = generate(&["all", "--check"]);
    assert_eq!(code, Some(1));
    has(&out, &["config/crd/bases/example.com_shops.yaml missing", "charts/shop/Chart.yaml missing"]);
    assert!(!shop.home.join("config").exists(), "a check writes nothing");

    let (code, out, error) = generate(&["all"]);
    assert_eq!(code, Some(0), "{error}");
    has(&out, &["config/default/kustomization.yaml created", "charts/shop/values.schema.json created"]);
    let files = [shop.files("config"), shop.files("charts")].concat();
    assert!(files.iter().all(|(_, text)| text.lines().take(3).any(|line| line.contains("Generated by konverge"))));
    assert_eq!(generate(&["all"]).1, "all files are up to date\n");
    assert_eq!([shop.files("config"), shop.files("charts")].concat(), files);
    assert_eq!(generate(&["all", "--check"]).0, Some(0));

    // The operator changes: its webhooks are gone, and it may do something else.
    shop.write("webhooks.yaml", "");
    shop.write("rbac.yaml", &shop.read("rbac.yaml").replace("create, patch, delete", "create"));
    let (code, out, error) = generate(&["all", "--check"]);
    assert_eq!(code, Some(1));
    has(
        &out,
        &["config/rbac/role.yaml stale", "config/webhook/service.yaml left over", "charts/shop/values.yaml stale"],
    );
    has(&error, &["files are not up to date; run `konverge generate all`"]);
    // A person's own are not touched, and those that became a person's are kept.
    shop.write("config/overlays/production/kustomization.yaml", "resources: [../../default]\n");
    shop.write("config/rbac/role.yaml", "# mine\nkind: ClusterRole\n");
    shop.write("config/webhook/own.yaml", "kind: Service\n");
    let (_, out, _) = generate(&["all", "-o", "json", "--check"]);
    let found: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(found["upToDate"], false);
    let (code, out, _) = generate(&["all"]);
    assert_eq!(code, Some(0));
    has(&out, &["config/rbac/role.yaml kept (it is yours)", "config/webhook/service.yaml removed"]);
    assert_eq!(shop.read("config/rbac/role.yaml"), "# mine\nkind: ClusterRole\n");
    assert!(
        shop.home.join("config/webhook/own.yaml").exists()
            && !shop.home.join("config/webhook/kustomization.yaml").exists()
    );
    // What somebody keeps does not make a check fail.
    let (code, out, _) = generate(&["all", "--check"]);
    assert_eq!((code, out.as_str()), (Some(0), "config/rbac/role.yaml yours\nall files are up to date\n"));

    // Only what was asked for, and elsewhere.
    let (code, _, _) = generate(&["crd", "--output-dir", "elsewhere"]);
    assert_eq!(code, Some(0));
    let names: Vec<String> = shop.files("elsewhere").into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["elsewhere/config/crd/bases/example.com_shops.yaml", "elsewhere/config/crd/kustomization.yaml"]);
}

#[test]
fn what_goes_wrong_is_explained() {
    let shop = Shop::new();
    let refused = |home: &Path, arguments: &[&str], expect: &str| {
        let (code, _, error) = ends_on(home, None, arguments);
        assert!(code == Some(1) && error.contains(expect), "{arguments:?}: {error}");
        assert!(error.lines().filter(|line| line.starts_with("error: ")).count() >= 1, "{error}");
    };
    let empty = tempfile::tempdir().expect("a folder");
    refused(empty.path(), &["generate", "all"], "there is no operator here: no Cargo.toml");
    let none = "error: there is no cluster to talk to: failed to read kubeconfig from '\"/nonexistent/kubeconfig\"': No such file or directory \
                (os error 2); KUBECONFIG, --kubeconfig and --context name one";
    refused(&shop.home, &["install"], none);
    // The cluster is asked first, and compiling the operator would fail.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let dead = empty.path().join("kubeconfig");
    let config = format!(
        "{{clusters: [{{name: c, cluster: {{server: 'https://{free}'}}}}], users: [{{name: u, user: {{}}}}], current-context: x, \
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]}}"
    );
    fs::write(&dead, config).expect("a file");
    shop.write("broken", "");
    for command in ["install", "uninstall", "deploy", "run"] {
        let (code, _, error) = ends_on(&shop.home, Some(&dead), &[command]);
        let expect = format!(
            "error: no cluster answers at https://{free}: Connection refused (os error 111); nobody listens there: start the cluster \
             (`konverge dev`, `minikube start`, …), or choose another with --context or KUBECONFIG\n"
        );
        assert_eq!((code, error), (Some(1), expect), "{command}");
    }
    fs::remove_file(shop.home.join("broken")).expect("it is there");
    refused(&shop.home, &["deploy", "-f", "none.yaml"], "cannot read none.yaml");
    refused(&shop.home, &["deploy", "--namespace", "A"], "\"A\" cannot be the name of a namespace");
    refused(&shop.home, &["build", "--tag", "Shop:1"], "\"Shop:1\" is no name of an image");
    refused(&shop.home, &["deploy", "--image", "a/b:x:y"], "\"a/b:x:y\" is no name of an image");
    refused(&shop.home, &["generate", "all", "--image", "a:"], "\"a:\" is no name of an image");
    let digest = format!("a@sha256:{}", "0".repeat(64));
    refused(&shop.home, &["build", "--tag", &digest], "has a digest, which an image has only after it was built");
    refused(&shop.home, &["build", "--engine", "none", "--push"], "skopeo copy");
    // The script that stands for cargo builds no program.
    refused(&shop.home, &["build", "--engine", "none"], "is not static");
    shop.write("operator", "#!/bin/sh\necho what? >&2\nexit 2\n");
    refused(&shop.home, &["generate", "all"], "the operator does not answer --print-config: what?");
    shop.write("broken", "");
    refused(&shop.home, &["generate", "all"], "the build of shop failed");
    shop.write("Cargo.toml", "[dependencies]\ntokio = '1'\n");
    refused(&shop.home, &["run"], "is no operator: it does not depend on konverge");
}

#[test]
fn deployed_changed_and_taken_out() {
    let (shop, cluster) = (Shop::new(), Cluster::start());
    // Nothing is there yet, and a dry run leaves it so.
    let said = cluster.run(&shop, 0, &["deploy", "--dry-run"]);
    has(
        &said,
        &[
            "Namespace shop-system created (dry run)",
            "ClusterRole shop-manager created (dry run)",
            "Deployment shop-system/shop created (not checked",
        ],
    );
    assert!(cluster.get("/api/v1/namespaces/shop-system").is_none() && cluster.get(DEFINITION).is_none());
    let said = cluster.run(&shop, 1, &["undeploy"]);
    has(&said, &["there is no deployment shop in the namespace shop-system"]);

    // Every object is checked strictly, and the namespace refuses Pods that are not restricted.
    let said = cluster.run(&shop, 0, &["deploy"]);
    has(
        &said,
        &[
            "Deployment shop-system/shop created",
            "Pods are simulated in this cluster",
            " created, 0 configured, 0 unchanged, 0 deleted",
        ],
    );
    assert!(!said.contains("WebhookConfiguration"), "{said}");
    let deployment = cluster.get(DEPLOYMENT).expect("it is there");
    assert_eq!(
        (&deployment["status"]["availableReplicas"], &deployment["metadata"]["labels"]["konverge.dev/deployment"]),
        (&json!(2), &json!("shop"))
    );
    let namespace = cluster.get("/api/v1/namespaces/shop-system").expect("it is there");
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    has(&cluster.run(&shop, 0, &["deploy"]), &["0 created, 0 configured", "0 deleted"]);
    has(&cluster.run(&shop, 0, &["logs"]), &["│ "]);

    // What changes is configured, and what is no part of the operator any more goes.
    assert!(cluster.get("/api/v1/namespaces/shop-system/services/shop-webhook").is_some());
    shop.write("webhooks.yaml", "");
    let said = cluster.run(&shop, 0, &["deploy", "--image", "example.com/shop:2"]);
    has(
        &said,
        &[
            "Deployment shop-system/shop configured",
            "Service shop-system/shop-webhook deleted",
            "ServiceAccount shop-system/shop unchanged",
        ],
    );
    assert!(cluster.get("/api/v1/namespaces/shop-system/services/shop-webhook").is_none());
    assert_eq!(
        cluster.get(DEPLOYMENT).expect("it is there")["spec"]["template"]["spec"]["containers"][0]["image"],
        "example.com/shop:2"
    );

    // Somebody else manages a field.
    let scale = r#"{"spec": {"replicas": 3}}"#;
    let patched = cluster.server.curl(
        "PATCH",
        &format!("{DEPLOYMENT}?fieldManager=hand"),
        &[("content-type", "application/merge-patch+json")],
        scale,
    );
    assert_eq!(patched.0, 200, "{patched:?}");
    has(&cluster.run(&shop, 1, &["deploy"]), &["conflict", "--force-conflicts takes these fields over"]);
    has(&cluster.run(&shop, 0, &["deploy", "--force-conflicts", "-o", "json"]), &["\"change\": \"configured\""]);

    // A Pod that the namespace refuses: why the rollout does not end.
    let bad = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: bad, namespace: shop-system}\nspec:\n  selector: {matchLabels: {a: b}}\n  \
               template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i, securityContext: {privileged: true}}]}}\n";
    shop.write("bad.yaml", bad);
    let said = cluster.run(&shop, 1, &["deploy", "-f", "bad.yaml", "--timeout", "3"]);
    has(
        &said,
        &["Deployment shop-system/bad is not rolled out: after 3 s its Pods are refused", "violates PodSecurity"],
    );
    has(&cluster.run(&shop, 0, &["deploy"]), &["Deployment shop-system/bad deleted"]);

    // Objects of users are not deleted by accident.
    let made = cluster.server.curl(
        "POST",
        SHOPS,
        &[("content-type", "application/json")],
        r#"{"apiVersion":"example.com/v1","kind":"Shop","metadata":{"name":"a"}}"#,
    );
    assert_eq!(made.0, 201, "{made:?}");
    let said = cluster.run(&shop, 1, &["undeploy"]);
    has(&said, &["deletes all their objects (1 of shops.example.com)", "pass --yes if you mean it"]);
    assert!(cluster.get(DEPLOYMENT).is_some());
    // Nor are namespaces with something of others in them.
    let other = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"theirs"}}"#;
    assert_eq!(
        cluster
            .server
            .curl("POST", "/api/v1/namespaces/shop-system/configmaps", &[("content-type", "application/json")], other)
            .0,
        201
    );
    let said = cluster.run(&shop, 0, &["undeploy", "--keep-crds"]);
    has(
        &said,
        &[
            "Deployment shop-system/shop deleted",
            "shops.example.com kept",
            "Namespace shop-system kept: it has 1 object of others (configmaps/theirs)",
        ],
    );
    assert!(cluster.get(DEPLOYMENT).is_none() && cluster.get(&format!("{SHOPS}/a")).is_some());
    // Again, and this time everything goes.
    cluster.run(&shop, 0, &["deploy", "--no-wait"]);
    let said = cluster.run(&shop, 0, &["undeploy", "--yes"]);
    has(&said, &["shops.example.com deleted, with 1 object", "Namespace shop-system deleted"]);
    assert!(cluster.get("/api/v1/namespaces/shop-system").is_none() && cluster.get(DEFINITION).is_none());
}

#[test]
fn namespaces_of_others_stay_theirs() {
    let (shop, cluster) = (Shop::new(), Cluster::start());
    let namespace = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"theirs"}}"#;
    assert_eq!(cluster.create("/api/v1/namespaces", namespace), 201);
    let (rbac, webhooks) = (shop.read("rbac.yaml"), shop.read("webhooks.yaml"));
    // An operator prints its roles for the namespace that it is told.
    shop.write("rbac.yaml", &rbac.replace("shop-system", "theirs"));
    shop.write("webhooks.yaml", &webhooks.replace("shop-system", "theirs"));
    // It is neither labelled nor marked, and it is not deleted, although nothing of others is in it.
    let said = cluster.run(&shop, 0, &["deploy", "-n", "theirs", "--no-wait"]);
    has(&said, &["Namespace theirs left as it is: this deployment did not make it", "Deployment theirs/shop created"]);
    let found = cluster.get("/api/v1/namespaces/theirs").expect("it is there");
    assert_eq!(found["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "theirs"}), "{found}");
    let said = cluster.run(&shop, 0, &["undeploy", "-n", "theirs", "--dry-run"]);
    has(&said, &["shops.example.com deleted (dry run)", "Deployment theirs/shop deleted (dry run)"]);
    assert!(cluster.get("/apis/apps/v1/namespaces/theirs/deployments/shop").is_some());
    let said = cluster.run(&shop, 0, &["undeploy", "-n", "theirs"]);
    has(&said, &["Deployment theirs/shop deleted"]);
    assert!(!said.contains("Namespace"), "{said}");
    assert!(cluster.get("/api/v1/namespaces/theirs").is_some());
    assert!(cluster.get("/api/v1/namespaces/theirs/configmaps/konverge-deploy-shop").is_none());

    shop.write("rbac.yaml", &rbac);
    shop.write("webhooks.yaml", &webhooks);
    // Objects whose names every namespace has, but of other kinds, keep a namespace that the deployment made.
    cluster.run(&shop, 0, &["deploy", "--no-wait"]);
    let default = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"default"}}"#;
    assert_eq!(cluster.create("/api/v1/namespaces/shop-system/configmaps", default), 201);
    let said = cluster.run(&shop, 0, &["undeploy", "--dry-run"]);
    has(&said, &["Namespace shop-system kept: it has 1 object of others (configmaps/default)"]);
    let said = cluster.run(&shop, 0, &["undeploy"]);
    has(&said, &["Namespace shop-system kept: it has 1 object of others (configmaps/default)"]);
    // The list stays for what is left, and the next undeploy goes on with it.
    assert!(cluster.get("/api/v1/namespaces/shop-system/configmaps/konverge-deploy-shop").is_some());
    has(&cluster.run(&shop, 0, &["undeploy", "--yes"]), &["Namespace shop-system deleted"]);
    assert!(cluster.get("/api/v1/namespaces/shop-system").is_none());
}

#[test]
fn two_deployments_do_not_share_objects() {
    let (shop, cluster) = (Shop::new(), Cluster::start());
    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/shop-manager";
    cluster.run(&shop, 0, &["deploy", "--no-wait"]);
    let said = cluster.run(&shop, 1, &["deploy", "-n", "second", "--no-wait"]);
    has(
        &said,
        &["is part of the deployment shop in the namespace shop-system", "konverge undeploy --namespace shop-system"],
    );
    assert!(cluster.get("/api/v1/namespaces/second").is_none(), "nothing is applied");
    let subject = |cluster: &Cluster| cluster.get(binding).expect("it is there")["subjects"][0]["namespace"].clone();
    assert_eq!(subject(&cluster), "shop-system");

    // What another deployment has by now is neither pruned nor deleted: here a role and the CRD.
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/shop-manager";
    for path in [role, DEFINITION] {
        let theirs = r#"{"metadata":{"annotations":{"konverge.dev/deployed-by":"second/shop"}}}"#;
        let merge = [("content-type", "application/merge-patch+json")];
        assert_eq!(cluster.server.curl("PATCH", path, &merge, theirs).0, 200);
    }
    let said = cluster.run(&shop, 0, &["undeploy", "--yes"]);
    has(
        &said,
        &[
            "CustomResourceDefinition shops.example.com kept: it is no part of this deployment any more",
            "ClusterRole shop-manager kept: it is no part of this deployment any more",
            "Namespace shop-system deleted",
        ],
    );
    assert!(cluster.get(role).is_some() && cluster.get(DEFINITION).is_some() && cluster.get(binding).is_none());
    // That deployment has no list, so there is none: what it left is taken over.
    let said = cluster.run(&shop, 0, &["deploy", "--no-wait", "--force-conflicts"]);
    has(&said, &["ClusterRole shop-manager configured"]);
    assert_eq!(subject(&cluster), "shop-system");
}

#[test]
fn objects_that_cannot_be_counted_are_not_lost() {
    let (shop, cluster) = (Shop::new(), Cluster::start());
    cluster.run(&shop, 0, &["deploy", "--no-wait"]);
    assert_eq!(cluster.create(SHOPS, r#"{"apiVersion":"example.com/v1","kind":"Shop","metadata":{"name":"a"}}"#), 201);
    // No version is served any more, so that there is no list to look at.
    let unserved = json!([{"op": "replace", "path": "/spec/versions/0/served", "value": false}]).to_string();
    let patch = [("content-type", "application/json-patch+json")];
    assert_eq!(cluster.server.curl("PATCH", DEFINITION, &patch, &unserved).0, 200);
    for command in ["uninstall", "undeploy"] {
        let said = cluster.run(&shop, 1, &[command]);
        has(&said, &["those of shops.example.com cannot be counted: none of its versions is served", "--yes"]);
    }
    has(&cluster.run(&shop, 0, &["uninstall", "--dry-run"]), &["deleted, with all its objects (dry run)"]);
    // A deploy that does not have the CRD any more keeps it.
    shop.write("crd.yaml", "");
    has(&cluster.run(&shop, 0, &["deploy", "--no-wait"]), &["kept: it has objects, or may have some; --yes deletes"]);
    assert!(cluster.get(DEFINITION).is_some() && cluster.get(DEPLOYMENT).is_some());
}

/// What a manifest lacks is said with its name; what it leaves out is filled in.
#[test]
fn manifests_are_checked() {
    let (shop, cluster) = (Shop::new(), Cluster::start());
    let head = "apiVersion: v1\nkind: ConfigMap\n";
    for (text, expect) in [
        ("metadata: x\n", "bad.yaml cannot be deployed: it has no metadata.name"),
        ("metadata: {name: a, labels: [a]}\n", "bad.yaml cannot be deployed: metadata.labels"),
        ("metadata: {}\n", "bad.yaml cannot be deployed: it has no metadata.name"),
    ] {
        shop.write("bad.yaml", &format!("{head}{text}"));
        has(&cluster.run(&shop, 1, &["deploy", "-f", "bad.yaml"]), &[expect]);
    }
    let namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop-system}\n";
    shop.write("good.yaml", &format!("{head}metadata: {{name: a}}\n{namespace}"));
    has(&cluster.run(&shop, 0, &["deploy", "-f", "good.yaml"]), &["ConfigMap shop-system/a created"]);
    assert!(cluster.get("/api/v1/namespaces/shop-system/configmaps/a").is_some());
}

#[test]
fn logs_end_with_their_reader() {
    let (shop, cluster) = (Shop::new(), Cluster::start());
    has(&cluster.run(&shop, 1, &["logs"]), &["there is no deployment shop"]);
    // A second line comes soon, and the container never ends.
    let manifest = |replicas: u8| {
        format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop-system}}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: shop}}\nspec:\n  \
             replicas: {replicas}\n  selector: {{matchLabels: {{a: b}}}}\n  template:\n    metadata: {{labels: {{a: b}}, annotations: \
             {{simulate.konverge.dev/logs: \"one\\n+1s two\\n+2s three\\n+10s four\\n+30s five\"}}}}\n    spec: {{containers: [{{name: c, image: i}}]}}\n"
        )
    };
    shop.write("some.yaml", &manifest(1));
    cluster.run(&shop, 0, &["deploy", "-f", "some.yaml"]);
    let mut following = start_on(&shop.home, &cluster.kubeconfig, &["logs", "--follow"]);
    let mut reader = BufReader::new(following.stdout.take().expect("piped"));
    let mut line = String::new();
    reader.read_line(&mut line).expect("a line");
    assert_eq!(line, "one\n");
    drop(reader);
    assert_eq!(ended(&mut following), Some(0));

    shop.write("some.yaml", &manifest(0));
    cluster.run(&shop, 0, &["deploy", "-f", "some.yaml"]);
    has(&cluster.run(&shop, 1, &["logs"]), &["the deployment shop in the namespace shop-system has no Pods"]);
}

#[test]
fn kinds_are_installed_and_uninstalled() {
    let (shop, cluster) = (Shop::new(), Cluster::start());
    has(&cluster.run(&shop, 0, &["install"]), &["CustomResourceDefinition shops.example.com created"]);
    has(&cluster.run(&shop, 0, &["install"]), &["shops.example.com unchanged"]);
    has(&cluster.run(&shop, 0, &["install", "-o", "json"]), &["\"change\": \"unchanged\""]);
    // The operator runs in the place of the command.
    has(
        &cluster.run(&shop, 0, &["run", "--", "--namespace", "a"]),
        &["it runs with --webhook-bind-address=127.0.0.1:0 --namespace a"],
    );
    has(
        &cluster.run(&shop, 0, &["run", "--webhook-url", "https://laptop:9443"]),
        &["it runs with --webhook-url=https://laptop:9443"],
    );
    let made = cluster.server.curl(
        "POST",
        SHOPS,
        &[("content-type", "application/json")],
        r#"{"apiVersion":"example.com/v1","kind":"Shop","metadata":{"name":"a","finalizers":["example.com/x"]}}"#,
    );
    assert_eq!(made.0, 201, "{made:?}");
    has(&cluster.run(&shop, 1, &["uninstall"]), &["(1 of shops.example.com)", "--yes"]);
    assert!(cluster.get(DEFINITION).is_some());
    has(
        &cluster.run(&shop, 1, &["uninstall", "--yes", "--timeout", "1"]),
        &[
            "still being deleted after 1 s, because 1 of its objects cannot go before a finalizer is removed",
            "start it if it does not run",
        ],
    );
    let freed = cluster.server.curl(
        "PATCH",
        &format!("{SHOPS}/a"),
        &[("content-type", "application/merge-patch+json")],
        r#"{"metadata":{"finalizers":null}}"#,
    );
    assert_eq!(freed.0, 200, "{freed:?}");
    cluster.run(&shop, 0, &["uninstall", "--yes"]);
    has(&cluster.run(&shop, 0, &["uninstall"]), &["shops.example.com is not installed"]);
}

#[test]
fn an_image_is_built_without_an_engine() {
    let shop = Shop::new();
    // A program for Linux that names no loader: a header without segments.
    let mut program = vec![0; 64];
    program[..4].copy_from_slice(b"\x7fELF");
    fs::write(shop.home.join("static"), program).expect("a file");
    let build = || {
        let (code, out, error) =
            ends_on(&shop.home, None, &["build", "--engine", "none", "-o", "json", "--tag", "example.com/shop:9"]);
        assert_eq!(code, Some(0), "{error}");
        serde_json::from_str::<Value>(&out).expect("JSON")
    };
    let built = build();
    assert_eq!(built["image"], "example.com/shop:9");
    assert!(built["digest"].as_str().is_some_and(|digest| digest.starts_with("sha256:")), "{built}");
    let read = |field: &str| fs::read(built[field].as_str().expect("a path")).expect("a file");
    let archive = read("archive");
    let sbom: Value = serde_json::from_slice(&read("sbom")).expect("JSON");
    assert_eq!((&sbom["bomFormat"], &sbom["metadata"]["component"]["name"]), (&json!("CycloneDX"), &json!("shop")));
    assert!(archive.windows(10).any(|bytes| bytes == b"oci-layout"), "it has the layout");
    // The same sources give the same archive.
    assert_eq!((build(), read("archive")), (built.clone(), archive));
}
