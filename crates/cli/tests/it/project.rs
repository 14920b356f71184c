//! `konverge dev` in an operator's project. Cargo is a script, and so is the operator: what is tested is who is built,
//! asked, started and stopped, and when, which takes no compiler.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::konverge::{PATIENCE, Running, ends, fails};

/// Compiles by copying. Says what it reads before `hold` can make it wait, so that a test can save a file meanwhile.
const CARGO: &str = r#"#!/bin/sh
home=$(dirname "$0")
case "$1" in
metadata) cat "$home/metadata.json" ;;
build)
  while [ "$1" != --bin ]; do shift; done
  mkdir -p "$home/target/debug"
  cp "$home/src/main.rs" "$home/target/new"
  echo "   Compiling $2" >&2
  while [ -e "$home/hold" ]; do sleep 0.02; done
  if grep -q BROKEN "$home/target/new"; then
    printf 'error: this is BROKEN, \377 and all\n' >&2
    exit 101
  fi
  chmod +x "$home/target/new"
  cmp -s "$home/target/new" "$home/target/debug/$2" || mv "$home/target/new" "$home/target/debug/$2"
  echo "$home/target/debug/$2: $home/src/main.rs" > "$home/target/debug/$2.d"
  printf '{"reason":"compiler-artifact","target":{"name":"%s"},"executable":"%s"}\n' "$2" "$home/target/debug/$2"
  echo "    Finished" >&2 ;;
esac
"#;

/// An operator that says who it is and how it is stopped; when told to `wait` it takes its time.
const OPERATOR: &str = r#"#!/bin/sh
case "$1" in
--print-crds) cat crd.yaml; exit ;;
--print-rbac) [ -e rbac.yaml ] || exit 2; cat rbac.yaml; exit ;;
--print-webhooks) exit ;;
esac
end() {
  echo "VERSION is asked to stop"
  while [ -e wait ]; do sleep 0.02; done
  printf 'VERSION says good bye'
  exit 0
}
trap end TERM
echo "VERSION uses $KUBECONFIG"
BODY
while :; do sleep 0.05; done
"#;

const CRD: &str = "---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: greetings.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: greetings, singular: greeting, kind: Greeting}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
";

/// What the operator declares: its kind, and Services that it owns, of which it makes none yet.
const RBAC: &str = r#"---
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: shop
  annotations:
    konverge.dev/rights-together: >-
      [[{"apiGroups":["example.com"],"resources":["greetings"],"verbs":["get","list","watch"]}],
      [{"apiGroups":[""],"resources":["services"],"verbs":["create","delete"]}]]
rules:
- {apiGroups: [example.com], resources: [greetings], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [services], verbs: [create, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: shop}
subjects:
- {kind: ServiceAccount, name: shop, namespace: default}
"#;

const DEV: &[&str] = &["dev", "--port", "0", "--memory"];

/// A project with these binaries.
struct Shop {
    _folder: TempDir,
    home: PathBuf,
}

impl Shop {
    fn new(binaries: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = fs::canonicalize(folder.path()).expect("it is there");
        let shop = Self { _folder: folder, home };
        let targets: Vec<_> = binaries.iter().map(|name| json!({"name": name, "kind": ["bin"]})).collect();
        let metadata = json!({"workspace_root": shop.home, "packages": [{
            "name": "shop", "manifest_path": shop.home.join("Cargo.toml"), "targets": targets, "default_run": null,
            "dependencies": [{"name": "konverge", "kind": null}],
        }]});
        shop.write("metadata.json", &metadata.to_string());
        shop.write("Cargo.toml", "[dependencies]\nkonverge = '1'\n");
        shop.write("crd.yaml", CRD);
        shop.write("cargo", CARGO);
        fs::set_permissions(shop.home.join("cargo"), fs::Permissions::from_mode(0o755)).expect("it is ours");
        shop.save("first", "");
        shop
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.home.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    /// Saves an operator of this version, which does this before it waits to be stopped.
    fn save(&self, version: &str, body: &str) {
        self.write("src/main.rs", &OPERATOR.replace("VERSION", version).replace("BODY", body));
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.home.join(name)).expect("it is there");
    }

    fn start(&self, more: &[&str]) -> Running {
        Running::start(&self.home, &[DEV, more].concat())
    }
}

/// The lines in the order in which they were said.
#[track_caller]
fn in_order(said: &[String], expect: &[&str]) {
    let mut rest = said.iter();
    for part in expect {
        assert!(rest.any(|line| line.contains(part)), "{part:?} is not there, or too early, in\n{}", said.join("\n"));
    }
}

#[test]
fn built_run_and_replaced() {
    let shop = Shop::new(&["shop"]);
    let server = shop.start(&[]);
    let uses = format!("operator │ first uses {}", shop.home.join(".konverge/kubeconfig").display());
    let said = server.says(&uses);
    in_order(
        &said,
        &[
            "Your operator shop is built and run",
            "   build │ cargo build --bin shop",
            "   build │    Compiling shop",
            "   build │     Finished",
            "     dev │ installed greetings.example.com: kubectl get greetings -A",
        ],
    );
    let installed = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/greetings.example.com";
    assert_eq!(server.curl("GET", installed, &[], "").0, 200);
    let index = server.curl("GET", "/", &[], "").1;
    assert_eq!((&index["project"], &index["operators"]), (&json!("shop"), &json!([])));
    // Pages speak of the project's own kinds.
    assert!(index.to_string().contains("/apis/example.com/v1/namespaces/{namespace}/greetings/{name}"), "{index}");
    assert_eq!(server.curl("GET", "/crd", &[], "").1["metadata"]["name"], "greetings.example.com");
    let greeting = r#"{"apiVersion":"example.com/v1","kind":"Greeting","metadata":{"name":"hello"}}"#;
    let made = server.post("/apis/example.com/v1/namespaces/default/greetings", greeting);
    assert!(made.starts_with("HTTP/1.1 201"), "{made}");
    assert_eq!(server.stream("/watch", &[]).event(), "ADDED hello");

    shop.save("second", "");
    in_order(
        &server.says("second uses"),
        &[
            "Compiling",
            "Finished",
            "operator │ first is asked to stop",
            "operator │ first says good bye",
            "dev │ the previous operator ended (exit status: 0)",
            "dev │ starting shop",
        ],
    );

    // What does not compile is shown, and changes nothing.
    shop.save("third", "BROKEN");
    let said = server.says("the build failed; the previous operator still runs; waiting for a change");
    in_order(&said, &["build │ error: this is BROKEN, \u{fffd} and all"]);
    assert!(!said.iter().any(|line| line.contains("second")), "{said:?}");
    // What is missing may be a file that was not there before.
    shop.write("src/missing.rs", "");
    server.says("the build failed");
    // What compiles to the same leaves the operator alone.
    shop.save("second", "");
    server.says("dev │ nothing has changed; the operator keeps running");
    shop.save("fourth", "");
    in_order(&server.says("fourth uses"), &["second is asked to stop", "second says good bye"]);

    // The operator goes first: the server is there as long as it needs it.
    shop.write("wait", "");
    server.ask_to_stop();
    server.says("fourth is asked to stop");
    assert_eq!(server.curl("GET", "/readyz", &[], "").0, 200);
    shop.remove("wait");
    let (code, rest) = server.ends();
    assert_eq!(code, Some(0));
    let rest: Vec<String> = rest.lines().map(str::to_owned).collect();
    in_order(&rest, &["operator │ fourth says good bye", "dev │ the operator ended (exit status: 0)"]);
}

/// Samples are applied once for each start, in an order that works, and what is behind `--` reaches the operator.
#[test]
fn samples_are_applied_and_flags_are_passed() {
    let shop = Shop::new(&["shop"]);
    let greeting = |name: &str| {
        format!(
            "apiVersion: example.com/v1\nkind: Greeting\nmetadata: {{name: {name}, namespace: shop, labels: {{sample: one}}}}\n"
        )
    };
    shop.write("config/samples/a.yaml", &greeting("hello"));
    shop.write("config/samples/b.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n");
    shop.write("config/samples/c.yaml", &greeting("Wrong_Name"));
    shop.write(
        "config/samples/kustomization.yaml",
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
    );
    shop.save("first", "echo \"first has $* and $COLOUR\"");
    let server = shop.start(&["--samples", "--", "COLOUR=green", "--namespace", "shop"]);
    // The operator and its samples speak at the same time.
    let said = server.says("config/samples, and 1 failed");
    in_order(
        &said,
        &[
            "dev │ sample Namespace shop created",
            "dev │ sample Greeting shop/hello created",
            "dev │ sample Greeting shop/Wrong_Name",
        ],
    );
    in_order(&said, &["dev │ applied 2 samples of "]);
    let heard =
        |said: &[String]| said.iter().any(|line| line.contains("operator │ first has --namespace shop and green"));
    assert!(heard(&said) || heard(&server.says("first has")), "{said:?}");
    let hello = server.curl("GET", "/apis/example.com/v1/namespaces/shop/greetings/hello", &[], "").1;
    assert_eq!(hello["metadata"]["managedFields"][0]["manager"], "konverge-samples", "{hello}");
    // What is deleted stays away, although the operator is built again.
    server.curl("DELETE", "/apis/example.com/v1/namespaces/shop/greetings/hello", &[], "");
    shop.save("second", "");
    let said = server.says("second uses");
    let (_, rest) = server.stop();
    assert!(!said.iter().chain([&rest]).any(|line| line.contains("sample")), "{said:?} {rest}");
    // What was said is kept for `konverge support`.
    let log = fs::read_to_string(shop.home.join(".konverge/dev.log")).expect("a log");
    assert!(
        log.contains(" dev sample Greeting shop/hello created\n") && log.contains(" operator second uses"),
        "{log}"
    );

    let empty = tempfile::tempdir().expect("a folder");
    for (arguments, expect) in [
        (&["dev", "--samples"][..], "no operator's project here: --samples DIR"),
        (&["dev", "--samples", "nowhere"], "there are no samples at nowhere"),
        (&["dev", "--", "--flag"], "no operator's project here: flags behind --"),
    ] {
        let error = fails(empty.path(), arguments);
        assert!(error.contains(expect), "{error}");
    }
}

/// The operator runs as its own service account, may do what it prints and nothing else, and `konverge permissions` judges that.
#[test]
fn an_operator_has_the_rights_that_it_declares() {
    let shop = Shop::new(&["shop"]);
    shop.write("rbac.yaml", RBAC);
    let server = shop.start(&[]);
    let kubeconfig = shop.home.join(".konverge/operator.kubeconfig");
    let said = server.says(&format!("operator │ first uses {}", kubeconfig.display()));
    in_order(&said, &["dev │ it runs as the service account default/shop, with the rights that it declares"]);
    assert_eq!(fs::metadata(&kubeconfig).expect("a file").permissions().mode() & 0o777, 0o600);
    let token = || {
        let text = fs::read_to_string(&kubeconfig).expect("a kubeconfig");
        let token = text.lines().find_map(|line| line.trim().strip_prefix("token: ")).expect("a token");
        format!("Bearer {token}")
    };
    let ask = |method: &str, path: &str, body: &str| {
        let headers = [("authorization", &*token()), ("content-type", "application/json")];
        server.curl(method, path, &headers, body).0
    };
    let (greetings, services) = ("/apis/example.com/v1/greetings", "/api/v1/namespaces/default/services");
    let service = r#"{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}"#;
    assert_eq!(ask("GET", greetings, ""), 200);
    let permissions = |more: &[&str]| {
        let arguments = ["permissions", "shop", "--kubeconfig", ".konverge/kubeconfig", "--check"];
        ends(&shop.home, &[&arguments[..], more].concat())
    };
    // The second half of the rights is declared, and nobody has used any of it.
    let (code, said) = permissions(&[]);
    assert!(code == Some(1) && said.contains("never used: 1, lacking: 0;"), "{said}");
    assert!(said.contains("allowed beyond what was used:\n  create, delete services\n"), "{said}");
    // To delete a service belongs to creating one.
    assert_eq!(ask("POST", services, service), 201);
    let (code, said) = permissions(&[]);
    assert!(code == Some(0) && said.contains("kept because it is needed rarely:\n  delete services\n"), "{said}");
    assert_eq!(ask("GET", "/api/v1/secrets", ""), 403);
    let (code, said) = permissions(&["-o", "roles"]);
    assert!(code == Some(1) && said.contains("never used: 0, lacking: 1;"), "{said}");
    assert!(said.contains("konverge.dev/rights-together"), "{said}");

    // What the next version does not declare any more is taken away.
    shop.write(
        "rbac.yaml",
        &RBAC.replace("- {apiGroups: [\"\"], resources: [services], verbs: [create, delete]}\n", ""),
    );
    shop.save("second", "");
    server.says("second uses");
    assert_eq!((ask("GET", greetings, ""), ask("DELETE", &format!("{services}/s"), "")), (200, 403));
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn what_is_saved_during_a_build_is_not_missed() {
    let shop = Shop::new(&["shop"]);
    shop.write("hold", "");
    let server = shop.start(&[]);
    server.says("Compiling");
    shop.save("second", "");
    shop.remove("hold");
    in_order(&server.says("second uses"), &["first uses", "Compiling", "first says good bye"]);
    // Nor when that build fails.
    shop.write("hold", "");
    shop.save("third", "BROKEN");
    server.says("Compiling");
    shop.save("fourth", "");
    shop.remove("hold");
    in_order(&server.says("fourth uses"), &["the build failed", "Compiling", "second says good bye"]);

    // A stop does not wait for a build.
    shop.write("hold", "");
    shop.save("fifth", "");
    server.says("Compiling");
    let (code, rest) = server.stop();
    assert_eq!(code, Some(0));
    assert!(rest.contains("fourth says good bye") && !rest.contains("fifth"), "{rest}");
    // The script, which nobody told, may end.
    shop.remove("hold");
}

#[test]
fn who_ends_by_itself_is_started_again() {
    let shop = Shop::new(&["shop"]);
    shop.write("crd.yaml", "");
    shop.save("first", "if [ -e mended ]; then echo all is well; else echo oh no >&2; exit 3; fi");
    let server = shop.start(&[]);
    let said = server.says("the operator ended (exit status: 3); restarting it in 1 s");
    in_order(&said, &["dev │ the operator has no CRDs of its own", "first uses"]);
    // It comes from another pipe, so nobody knows which of the two was said first.
    in_order(&said, &["dev │ the operator has no CRDs of its own", "operator │ oh no"]);
    shop.write("mended", "");
    in_order(&server.says("all is well"), &["first uses"]);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn who_does_not_print_crds_runs_nevertheless() {
    let shop = Shop::new(&["shop"]);
    shop.write(
        "src/main.rs",
        "#!/bin/sh\n[ \"$1\" = '' ] || { echo what? >&2; exit 2; }\necho it runs; exec sleep 60\n",
    );
    let server = shop.start(&[]);
    let said = server.says("operator │ it runs");
    in_order(&said, &["the operator's CRDs were not installed: it does not know --print-crds: what?"]);
    let (code, rest) = server.stop();
    assert_eq!(code, Some(0));
    assert!(rest.contains("the operator ended (killed by signal 15)"), "{rest}");
}

#[test]
fn which_operator_is_a_choice() {
    let shop = Shop::new(&["shop", "till"]);
    let error = fails(&shop.home, DEV);
    assert!(error.contains("shop has several binaries (shop, till); say which with --bin NAME"), "{error}");
    let error = fails(&shop.home, &[DEV, &["--bin", "tills"]].concat());
    assert!(error.contains("shop has no binary \"tills\"; it has shop, till"), "{error}");
    let server = shop.start(&["--bin", "till"]);
    in_order(&server.says("first uses"), &["Your operator till", "cargo build --bin till"]);
    assert_eq!(server.stop().0, Some(0));

    // Bundled ones instead.
    let server = shop.start(&["--operator", "webapp"]);
    assert_eq!(server.curl("GET", "/", &[], "").1["operators"], json!(["webapp"]));
    let (_, rest) = server.stop();
    assert!(rest.contains("Operators at work: webapp.") && !rest.contains("build │"), "{rest}");

    // Where there is no operator's project, cargo is not even asked; that the package is passed over is said.
    shop.write("cargo", "#!/bin/sh\nexit 7\n");
    let error = fails(&shop.home, DEV);
    assert!(error.contains("cargo does not understand "), "{error}");
    shop.write("Cargo.toml", "[dependencies]\ntokio = '1'\n");
    let server = shop.start(&[]);
    assert_eq!(server.curl("GET", "/", &[], "").1["operators"], json!(["application"]));
    let (code, said) = server.stop();
    assert!(code == Some(0) && said.contains("is not run, because it does not depend on konverge"), "{said}");
}

#[test]
fn a_folder_of_the_project_is_the_project() {
    let shop = Shop::new(&["shop"]);
    let deep = shop.home.join("src/deep");
    fs::create_dir_all(&deep).expect("a folder");
    // The scripts of this test are found beside the place where it starts.
    shop.write("src/deep/cargo", &CARGO.replace("$(dirname \"$0\")", &shop.home.display().to_string()));
    fs::set_permissions(deep.join("cargo"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let server = Running::start(&deep, DEV);
    server.says("installed greetings.example.com");
    assert!(
        shop.home.join(".konverge/kubeconfig").is_file() && !deep.join(".konverge").exists(),
        "one cluster a project"
    );
    let error = fails(&shop.home, DEV);
    assert!(error.contains("is in use"), "{error}");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn an_operator_never_outlives_its_dev() {
    let shop = Shop::new(&["shop"]);
    let server = shop.start(&[]);
    server.says("first uses");
    shop.save("second", "echo $$ > pid; echo $KONVERGE_METRICS_BIND_ADDRESS and \"[$PORT$NAMESPACE]\"");
    let said = server.says("127.0.0.1:0 and []");
    in_order(&said, &["second uses"]);
    let pid = fs::read_to_string(shop.home.join("pid")).expect("its id");
    let stat = PathBuf::from(format!("/proc/{}/stat", pid.trim()));
    let group = |stat: &str| stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(3)).map(str::to_owned);
    let (operator, dev) = (read(&stat), read(&format!("/proc/{}/stat", server.id()).into()));
    assert!(operator.is_some() && group(&operator.unwrap()) != group(&dev.unwrap()), "Ctrl-C reaches only dev");

    server.kill();
    // The kernel tells the supervisor, the supervisor the operator; the test's own patience is the limit.
    let deadline = Instant::now() + PATIENCE;
    while read(&stat).is_some() {
        assert!(Instant::now() < deadline, "the operator is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What an operator has started ends with it: when it crashes, and when `konverge dev` is killed.
#[test]
fn nothing_of_an_operator_is_left_behind() {
    let shop = Shop::new(&["shop"]);
    // A shell would end its children by itself if it had a terminal; `exec` lets go of its pipes, so that nobody waits for them.
    let body = "sh -c 'trap \"\" TERM; exec sleep 600' > /dev/null 2>&1 &\necho $! > child-$$; mv child-$$ child\n\
                if [ -e mended ]; then echo all is well; else echo oh no; exit 3; fi";
    shop.save("first", body);
    let server = shop.start(&[]);
    let child = || {
        let pid = fs::read_to_string(shop.home.join("child")).expect("its id");
        PathBuf::from(format!("/proc/{}/cmdline", pid.trim()))
    };
    // An empty command line is that of a process that has ended and that nobody has asked about.
    let ends = |child: PathBuf| {
        let deadline = Instant::now() + PATIENCE;
        while read(&child).is_some_and(|command| !command.is_empty()) {
            assert!(Instant::now() < deadline, "{} is still there", child.display());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    server.says("oh no");
    let crashed = child();
    server.says("the operator ended (exit status: 3)");
    ends(crashed);
    shop.write("mended", "");
    server.says("all is well");
    let last = child();
    assert!(read(&last).is_some_and(|command| command.contains("sleep")), "it runs beside the operator");
    server.kill();
    ends(last);
}

/// The server avoids huge pages for itself only: a compiler and an operator are slower without them.
#[cfg(target_os = "linux")]
#[test]
fn children_may_use_huge_pages() {
    const ENABLED: &str = "THP_enabled:\t1";
    // A kernel without huge pages has no such line, or 0 for every process.
    if !read(&"/proc/self/status".into()).is_some_and(|status| status.contains(ENABLED)) {
        return;
    }
    let shop = Shop::new(&["shop"]);
    let show = "grep THP_enabled /proc/$$/status";
    shop.write("cargo", &CARGO.replace("mkdir -p", &format!("{show} >&2\n  mkdir -p")));
    shop.save("first", show);
    let server = shop.start(&[]);
    in_order(&server.says(&format!("operator │ {ENABLED}")), &[&format!("build │ {ENABLED}")]);
    let status = read(&format!("/proc/{}/status", server.id()).into()).expect("it runs");
    assert!(status.contains("THP_enabled:\t0"), "{status}");
}

/// What is in a file, if it is there.
fn read(path: &PathBuf) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[test]
fn two_servers_in_memory_do_not_share_a_kubeconfig() {
    let shop = Shop::new(&["shop"]);
    let server = shop.start(&[]);
    let kubeconfig = fs::read_to_string(shop.home.join(".konverge/kubeconfig")).expect("a file");
    let error = fails(&shop.home, DEV);
    assert!(error.contains(&format!("is in use: process {} at http", server.id())), "{error}");
    assert_eq!(fs::read_to_string(shop.home.join(".konverge/kubeconfig")).expect("a file"), kubeconfig);
    assert_eq!(server.stop().0, Some(0));
}
