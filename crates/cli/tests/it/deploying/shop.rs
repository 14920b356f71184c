//! A project whose operator has everything, and a cluster for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::konverge::{Running, ends_on};

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
