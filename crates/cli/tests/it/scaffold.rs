//! Projects as people make them: `konverge init`, `create api`, `create webhook` and `update` in an empty directory. What they write is compared with
//! `examples/memcached-operator`, which is compiled, tested, formatted and linted with everything else here.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/memcached-operator");

/// The manifest of the example is that of a member of this workspace; the rest is not compared because it is made by cargo, or is a copy.
const NOT_COMPARED: [&str; 4] = ["Cargo.toml", "Cargo.lock", ".scaffold", "target"];

/// A directory in which commands are run.
struct Place {
    folder: TempDir,
    /// Where in it.
    inside: PathBuf,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), inside: PathBuf::new() }
    }

    /// A project with one kind.
    fn with_shop() -> Self {
        let mut place = Self::new();
        place.ok("init --domain example.com --dir shop-operator --konverge-version 0.1.0");
        place.inside = "shop-operator".into();
        place.ok("create api --group shops --version v1alpha1 --kind Shop");
        place
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(&self.inside).join(path)
    }

    fn run(&self, arguments: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_konverge"));
        // An empty argument is written as a pair of quotes, as in a shell.
        command.args(arguments.split(' ').map(|word| word.trim_matches('"'))).current_dir(self.path(""));
        command.env_remove("RUST_LOG").output().expect("it starts")
    }

    /// Runs a command to a good end; returns what it said.
    #[track_caller]
    fn ok(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs a command to a bad end; returns what it said, and the error.
    #[track_caller]
    fn fails(&self, arguments: &str) -> (String, String) {
        let output = self.run(arguments);
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{arguments}: {error}");
        (String::from_utf8(output.stdout).expect("text"), error)
    }

    /// Runs a command that changes nothing and says why.
    #[track_caller]
    fn refuses(&self, arguments: &str, why: &str) {
        let before = files(&self.path(""));
        let (_, error) = self.fails(arguments);
        assert!(
            error.starts_with("error: ") && error.contains(why) && error.lines().count() == 1,
            "{arguments}: {error}"
        );
        assert_eq!(files(&self.path("")), before, "{arguments}");
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[track_caller]
    fn replace(&self, path: &str, from: &str, to: &str) {
        let text = self.read(path);
        assert!(text.contains(from), "{path} has no {from:?}:\n{text}");
        fs::write(self.path(path), text.replace(from, to)).expect("written");
    }
}

/// All files below a directory.
fn files(root: &Path) -> BTreeMap<String, String> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below").display().to_string();
                found.insert(name, fs::read_to_string(&path).expect("text"));
            }
        }
    }
    found
}

fn compared(root: &Path) -> BTreeMap<String, String> {
    let is_compared = |path: &String| !NOT_COMPARED.contains(&path.split('/').next().unwrap_or_default());
    files(root).into_iter().filter(|(path, _)| is_compared(path)).collect()
}

/// Every template, with every flag that changes code. `BLESS=1 cargo test -p konverge-cli --test it scaffold` renews the example.
#[test]
fn the_example_is_what_the_commands_write() {
    let mut place = Place::new();
    place.ok("init --domain example.com --dir memcached-operator --konverge-version 0.1.0");
    place.inside = "memcached-operator".into();
    for command in [
        "create api --group cache --version v1alpha1 --kind Memcached --resource --controller",
        "create webhook --group cache --version v1alpha1 --kind Memcached --defaulting --programmatic-validation",
        "create api --group cache --version v1 --kind Memcached",
        "create api --group cache --version v1alpha1 --kind Redis --plural redis",
        "create api --group cache --version v1beta1 --kind Redis",
        "create webhook --kind Redis --programmatic-validation",
        "create api --group cache --version v1 --kind Redis",
        "create api --group fleet --version v1 --kind Fleet --namespaced=false",
        "create webhook --kind Fleet --defaulting",
        "create api --group fleet --version v1 --kind Region --namespaced=false --controller=false",
    ] {
        place.ok(command);
    }
    let (written, example) = (compared(&place.path("")), Path::new(EXAMPLE));
    if std::env::var_os("BLESS").is_some() {
        for path in compared(example).keys().filter(|path| !written.contains_key(*path)) {
            fs::remove_file(example.join(path)).expect("removed");
        }
        for (path, text) in &written {
            let path = example.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("written");
        }
    }
    let there = compared(example);
    let hint = "the commands write something else by now; BLESS=1 renews the example";
    assert_eq!(there.keys().collect::<Vec<_>>(), written.keys().collect::<Vec<_>>(), "{hint}");
    for (path, text) in &written {
        assert_eq!(&there[path], text, "{path}: {hint}");
    }
}

/// Names of any length leave nothing for rustfmt to do.
#[test]
fn what_is_written_is_formatted() {
    for (project, kind) in [("a", "Db"), ("zoo-operator", "DatabaseClusterBackupPlan")] {
        let mut place = Place::new();
        place.ok(&format!("init --domain x.io --dir {project} --konverge-version 0.1.0"));
        place.inside = project.into();
        place.ok(&format!("create api --group g --version v2 --kind {kind}"));
        place.ok(&format!("create api --group g --version v10 --kind {kind}"));
        place.ok(&format!("create webhook --kind {kind} --defaulting --programmatic-validation"));
        place.ok(&format!("create api --group h --version v1 --kind {kind} --namespaced=false"));
        place.ok("create api --group g --version v1 --kind Plain --controller=false");
        let roots = files(&place.path(""))
            .into_keys()
            .filter(|path| path == "src/lib.rs" || path == "src/main.rs" || path.starts_with("tests/"));
        let mut rustfmt = Command::new("rustfmt");
        rustfmt.args(["--edition", "2024", "--check"]).args(roots).current_dir(place.path(""));
        let output = rustfmt.output().expect("rustfmt is there");
        assert!(output.status.success(), "{kind}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn wrong_turns_are_explained() {
    let place = Place::new();
    place.refuses("init", "--domain is missing: the domain that API groups end with, such as --domain example.com");
    place.refuses("init --domain example.com --name Shop", "cannot be the name of a project");
    place.refuses("init --domain localhost --name shop", "a group of custom resources has a dot");
    place
        .refuses("init --domain example.com --name shop --konverge-path nowhere", "nowhere is no checkout of Konverge");
    place.refuses("create api --group a --version v1 --kind A", "run `konverge init --domain example.com` first");
    place.refuses("create webhook --kind A --defaulting", "run `konverge init --domain example.com` first");
    place.refuses("update", "run `konverge init --domain example.com` first");
    fs::create_dir(place.path("src")).expect("a folder");
    fs::write(place.path("src/main.rs"), "fn main() {}\n").expect("written");
    place.refuses("init --domain example.com --name shop", "src/main.rs would be replaced, so nothing was written");

    let place = Place::with_shop();
    place.refuses("init --domain example.com", ". is a project already; `konverge create api` adds a kind to it");
    for (arguments, why) in [
        ("api --version v1 --kind Till", "--group is missing"),
        ("api --group shops --kind Till", "--version is missing"),
        ("api --group shops --version v1", "--kind is missing: the kind, such as --kind Memcached"),
        ("api --group shops --version v1 --kind till", "such as --kind Till"),
        ("api --group shops --version v1 --kind Type", "a word of Rust"),
        ("api --group shops --version v1 --kind Deployment", "uses this name for something else"),
        ("api --group shops --version 1 --kind Till", "a version is v1alpha1, v1beta1, v1, v2"),
        ("api --group Shops --version v1 --kind Till", "a DNS name in lower case"),
        ("api --group shops.example.com --version v1 --kind Till", "is added by itself; pass --group shops"),
        (
            "api --group shops --version v1alpha1 --kind Shop",
            "Shop has the version v1alpha1 already (src/kinds/shop/v1alpha1.rs)",
        ),
        ("api --group shops --version v1 --kind Shop --namespaced=false", "all its versions have to be"),
        ("api --group shops --version v1 --kind Shop --plural shoppes", "leave out --plural"),
        ("api --group shops --version v1 --kind Till --plural shops", "has the name shops.shops.example.com already"),
        ("api --group shops --version v1 --kind SHOP", "has the name shops.shops.example.com already"),
        ("api --group shops --version v1 --kind Till --resource=false", "`Controller::dynamic(…)` in src/lib.rs"),
        ("webhook --kind Shop", "say which webhook: --defaulting, --programmatic-validation, --conversion"),
        ("webhook --kind Till --defaulting", "this project has no kind Till; it has Shop in shops.example.com"),
        (
            "webhook --group x --kind Shop --defaulting",
            "no kind Shop in the group x.example.com; it has Shop in shops.example.com",
        ),
        ("webhook --kind Shop --version v2 --defaulting", "Shop has no version v2; it has v1alpha1"),
        ("webhook --kind Shop --conversion", "Shop has one version, v1alpha1, so there is nothing to convert"),
    ] {
        place.refuses(&format!("create {arguments}"), why);
    }
    // A file that is in the way, and a file of another program.
    fs::create_dir_all(place.path("src/kinds/till")).expect("a folder");
    fs::write(place.path("src/kinds/till/controller.rs"), "// mine\n").expect("written");
    place.refuses(
        "create api --group shops --version v1 --kind Till",
        "there already, so nothing was written: src/kinds/till/controller.rs",
    );
    fs::write(place.path("PROJECT"), "layout:\n- go.kubebuilder.io/v4\nversion: \"3\"\n").expect("written");
    place.refuses("create api --group shops --version v1 --kind Till", "is of kubebuilder or operator-sdk");
}

/// A repository that somebody has begun, with a README.
#[test]
fn files_of_a_repository_stay() {
    let place = Place::new();
    fs::write(place.path("README.md"), "mine\n").expect("written");
    fs::write(place.path(".gitignore"), "/x\n").expect("written");
    // Nobody has to read what stays as it is.
    fs::write(place.path("rustfmt.toml"), b"# gr\xfc\xdfe\n").expect("written");
    let said = place.ok("init --domain example.com --name shop --konverge-version 0.1.0");
    assert!(said.contains("kept  README.md") && said.contains("add /target and /.konverge to it"), "{said}");
    place.ok("create api --group shops --version v1alpha1 --kind Shop");
    assert_eq!((place.read("README.md").as_str(), place.read(".gitignore").as_str()), ("mine\n", "/x\n"));
    assert_eq!(fs::read(place.path("rustfmt.toml")).expect("a file"), b"# gr\xfc\xdfe\n");
    assert!(!place.path(".scaffold/README.md").exists(), "the scaffold has nothing to say about it");
}

#[test]
fn a_dry_run_writes_nothing() {
    let place = Place::new();
    let said = place.ok("init --domain example.com --dir shop --dry-run");
    assert!(said.contains("nothing is written") && said.contains("created  src/main.rs"), "{said}");
    assert!(files(&place.path("")).is_empty());
    let place = Place::with_shop();
    let before = files(&place.path(""));
    for command in
        ["create api --group a --version v1 --kind A --dry-run", "create webhook --kind Shop --defaulting --dry-run"]
    {
        let said = place.ok(command);
        assert!(said.contains("changed  src/kinds.rs") && !said.contains("Next"), "{said}");
    }
    place.ok("update --dry-run");
    assert_eq!(files(&place.path("")), before);
}

#[test]
fn what_people_wrote_stays() {
    let mut place = Place::with_shop();
    // In every file that later commands change.
    place.replace(
        "src/kinds.rs",
        "use konverge::prelude::*;\n",
        "use konverge::prelude::*;\n\n/// Mine.\npub mod mine;\n",
    );
    place.replace(
        "src/kinds/shop/v1alpha1.rs",
        "    /// The image to run.\n",
        "    /// Who pays.\n    pub team: String,\n    /// The image to run.\n",
    );
    place.replace("src/kinds/shop/controller.rs", ".owns::<Deployment>()", ".owns::<Deployment>().owns::<Service>()");
    place.replace("config/samples/shops_v1alpha1_shop.yaml", "replicas: 3", "replicas: 3\n  team: blue");
    fs::remove_file(place.path("AGENTS.md")).expect("removed");
    // Also from a folder of the project.
    place.inside = "shop-operator/src/kinds".into();
    place.ok("create webhook --kind Shop --defaulting");
    place.inside = "shop-operator".into();
    place.replace("src/kinds/shop/webhook.rs", "    Ok(object)\n", "    // Mine.\n    Ok(object)\n");
    place.ok("create api --group shops --version v1 --kind Shop");
    place.ok("create webhook --kind Shop --programmatic-validation");
    place.ok("create api --group tills --version v1 --kind Till");

    let kinds = place.read("src/kinds.rs");
    for expect in
        ["pub mod mine;", "pub mod v1alpha1;", "pub use v1::*;", ".validate(shop::webhook::validate)", ".and(till())"]
    {
        assert!(kinds.contains(expect), "{expect}:\n{kinds}");
    }
    let webhook = place.read("src/kinds/shop/webhook.rs");
    assert!(webhook.contains("// Mine.") && webhook.contains("fn validate"), "{webhook}");
    assert!(place.read("src/kinds/shop/controller.rs").contains(".owns::<Service>()"));
    // A new version begins with what the former one has become.
    let v1 = place.read("src/kinds/shop/v1.rs");
    assert!(v1.contains("pub team: String") && v1.contains("version = \"v1\""), "{v1}");
    let sample = place.read("config/samples/shops_v1_shop.yaml");
    assert!(sample.contains("apiVersion: shops.example.com/v1\n") && sample.contains("team: blue"), "{sample}");
    assert!(place.read("tests/shop.rs").contains("config/samples/shops_v1_shop.yaml"));
    assert!(!place.path("AGENTS.md").exists(), "what was removed stays so");

    // What is there already is no reason to fail.
    let before = files(&place.path(""));
    for command in [
        "create webhook --kind Shop --defaulting --programmatic-validation",
        "create webhook --kind Shop --conversion --spoke v1alpha1",
    ] {
        let said = place.ok(command);
        assert!(said.contains("Nothing is left to do."), "{said}");
    }
    place.refuses("create webhook --kind Shop --conversion --spoke v1", "v1 is the version of Shop that is stored");
    assert_eq!(files(&place.path("")), before);
}

#[test]
fn where_lines_were_changed_the_command_says_which_to_change() {
    let place = Place::with_shop();
    place.replace("src/kinds.rs", "    Operator::from(shop())\n", "    Operator::from(shop()).metrics(mine())\n");
    let before = place.read("src/kinds.rs");
    let (said, error) = place.fails("create api --group tills --version v1 --kind Till");
    assert_eq!(place.read("src/kinds.rs"), before, "it is left alone");
    for expect in [
        "created  src/kinds/till/controller.rs",
        "by hand  src/kinds.rs: you changed the lines that this would change; please do so yourself:",
        "+ pub mod till {",
        "-     Operator::from(shop())",
        "+     Operator::from(shop()).and(till())",
    ] {
        assert!(said.contains(expect), "{expect}:\n{said}");
    }
    let left = "error: the rest is done, but 1 file has to be changed by hand, as shown above; `konverge doctor` reminds you until it is done\n";
    assert_eq!(error, left);

    // Whoever overlooked it is told again: by the same command, and by the doctor.
    let (said, error) = place.fails("create api --group tills --version v1 --kind Till");
    assert!(said.contains("+     Operator::from(shop()).and(till())") && error == left, "{said}{error}");
    place.refuses("create webhook --kind Till --conversion", "Till has one version");
    let doctor = |expect: bool| {
        let said = String::from_utf8(place.run("doctor --only project").stdout).expect("text");
        let is_told = said.contains("are still missing in src/kinds.rs");
        assert_eq!(is_told, expect, "{said}");
    };
    doctor(true);
    // Or it is marked in the file, if that is what they want.
    let (said, _) = place.fails("update --dry-run");
    assert!(said.contains("conflict  src/kinds.rs: choose between"), "{said}");

    // What was put in is not asked for any more, however it is written; the next command asks for what is new only.
    let modules = "pub mod till {\n    pub mod controller;\n    pub mod v1;\n    pub use v1::*;\n}\n\n\
                   pub fn till() -> Controller<till::Till> {\n    till::controller::controller()\n}\n";
    place.replace("src/kinds.rs", "/// The operator with", &format!("{modules}\n/// The operator with"));
    doctor(true);
    place.replace(
        "src/kinds.rs",
        "    Operator::from(shop()).metrics(mine())\n",
        "    Operator::from(shop()).metrics(mine()).and(till())\n",
    );
    doctor(false);
    let (said, _) = place.fails("create api --group tills --version v1 --kind Bell");
    assert!(said.contains("+     Operator::from(shop()).and(till()).and(bell())"), "{said}");
    assert!(!said.contains("+ pub mod till {"), "{said}");
    // Whoever does it in another file says so.
    fs::remove_file(place.path(".scaffold/.by-hand/src/kinds.rs")).expect("it is kept there");
    doctor(false);
    assert!(place.ok("update").starts_with("All files are up to date"));
}

/// A command that was interrupted can be run again: `PROJECT` is written last.
#[test]
fn an_interrupted_command_is_run_again() {
    let place = Place::with_shop();
    let project = place.read("PROJECT");
    place.ok("create api --group tills --version v1 --kind Till");
    let done = files(&place.path(""));
    fs::write(place.path("PROJECT"), project).expect("written");
    fs::remove_file(place.path("tests/till.rs")).expect("removed");
    place.ok("create api --group tills --version v1 --kind Till");
    assert_eq!(files(&place.path("")), done);
}

/// Makes the project look as if older templates had written it: this line was another one.
fn older(place: &Place, path: &str, now: &str, then: &str) {
    place.replace(path, now, then);
    place.replace(&format!(".scaffold/{path}"), now, then);
    let project = place.read("PROJECT");
    let templates = project.lines().find(|line| line.starts_with("templates: ")).expect("a digest").to_owned();
    place.replace("PROJECT", &templates, "templates: 0123456789ab");
}

#[test]
fn an_older_scaffold_is_brought_forward() {
    let place = Place::with_shop();
    let said = place.ok("update");
    assert!(said.starts_with("All files are up to date with konverge "), "{said}");

    older(&place, "Dockerfile", "USER 65532:65532\n", "USER 1000\n");
    older(
        &place,
        "src/kinds/shop/controller.rs",
        "    Ok(Action::await_change())\n",
        "    Ok(Action::requeue(Duration::from_secs(60)))\n",
    );
    older(&place, ".gitignore", "/target\n", "/target\n/old\n");
    place.replace("src/kinds/shop/controller.rs", ".owns::<Deployment>()", ".owns::<Deployment>().owns::<Service>()");
    place.replace(".gitignore", "/old\n", "/old\n/mine\n");
    fs::remove_file(place.path("Dockerfile")).expect("removed");
    place.refuses("create api --group tills --version v1 --kind Till", "run `konverge update` first");

    let before = files(&place.path(""));
    let (dry, _) = place.fails("update --dry-run");
    assert_eq!(files(&place.path("")), before);
    let (said, error) = place.fails("update");
    assert_eq!(dry.replace("This is a dry run: nothing is written.\n", ""), said);
    for expect in [
        "changed  src/kinds/shop/controller.rs",
        "left  Dockerfile: you have removed it",
        "conflict  .gitignore: choose between <<<<<<< and >>>>>>> in 1 place",
    ] {
        assert!(said.contains(expect), "{said}");
    }
    assert_eq!(error, "error: 1 file has conflicts to be resolved, as shown above; then run the tests\n");
    let controller = place.read("src/kinds/shop/controller.rs");
    assert!(
        controller.contains("Ok(Action::await_change())") && controller.contains(".owns::<Service>()"),
        "{controller}"
    );
    let ignored = place.read(".gitignore");
    assert!(ignored.contains("<<<<<<< yours\n/old\n/mine\n||||||| scaffold of konverge "), "{ignored}");

    place.refuses("update", "conflicts are not resolved yet in .gitignore");
    fs::write(place.path(".gitignore"), "/target\n/mine\n").expect("written");
    assert!(place.ok("update").starts_with("All files are up to date"));
    place.ok("create api --group tills --version v1 --kind Till");
}

/// Links out of the project, or into the kept scaffold, would let a command change what it does not know.
#[test]
fn nothing_is_written_through_links_to_elsewhere() {
    let place = Place::with_shop();
    let elsewhere = tempfile::tempdir().expect("a folder");
    fs::write(elsewhere.path().join("precious.txt"), "mine\n").expect("written");
    fs::rename(place.path(".scaffold"), place.path("scaffold-before")).expect("moved");
    // Out of the project, and to another folder of it.
    for target in [elsewhere.path().to_owned(), place.path("src")] {
        symlink(&target, place.path(".scaffold")).expect("a link");
        for command in ["create api --group tills --version v1 --kind Till", "update"] {
            place.refuses(command, "would be written through a link");
        }
        fs::remove_file(place.path(".scaffold")).expect("removed");
    }
    assert_eq!(files(elsewhere.path()), BTreeMap::from([("precious.txt".to_owned(), "mine\n".to_owned())]));
    fs::rename(place.path("scaffold-before"), place.path(".scaffold")).expect("moved");
    // A link within the project stays one.
    fs::create_dir(place.path("shared")).expect("a folder");
    fs::rename(place.path("src/kinds.rs"), place.path("shared/kinds.rs")).expect("moved");
    symlink("../shared/kinds.rs", place.path("src/kinds.rs")).expect("a link");
    // What a person put beside the kept files is none of the scaffold.
    fs::write(place.path(".scaffold/notes.txt"), "mine\n").expect("written");
    place.ok("create api --group tills --version v1 --kind Till");
    assert!(place.path("src/kinds.rs").is_symlink() && place.read("shared/kinds.rs").contains("pub mod till"));
    assert_eq!(place.read(".scaffold/notes.txt"), "mine\n");
    // A project that somebody edited.
    place.replace("PROJECT", "module: till", "module: ../../evil");
    place.refuses("create api --group tills --version v1 --kind Bell", "\"../../evil\" cannot be the module");
}

#[test]
fn tests_of_another_kind_stay() {
    let place = Place::with_shop();
    place.ok("create webhook --kind Shop --defaulting");
    place.replace("tests/shop_webhook.rs", "//! What is checked", "//! Mine. What is checked");
    let before = place.read("tests/shop_webhook.rs");
    place.ok("create api --group shops --version v1 --kind ShopWebhook");
    place.ok("create api --group shops --version v1 --kind ShopVersions");
    assert_eq!(place.read("tests/shop_webhook.rs"), before);
    assert!(place.read("tests/shops_shop_webhook.rs").contains("ShopWebhook"));
    place.ok("create api --group shops --version v1 --kind Shop");
    assert!(place.read("tests/shop_versions.rs").contains("The versions of Shop:"));
    // Samples have the kind in small letters.
    place.refuses(
        "create api --group shops --version v1 --kind ShOp --plural others",
        "config/samples/shops_v1_shop.yaml would be a file of Shop and of ShOp",
    );
    place.ok("create api --group 3d --version v1 --kind Shop");
    assert!(place.read("src/kinds.rs").contains("pub mod group_3d_shop {"));
}

#[test]
fn a_dry_run_does_not_claim_to_be_done() {
    let place = Place::with_shop();
    place.replace("src/kinds.rs", "    Operator::from(shop())\n", "    Operator::from(shop()).metrics(mine())\n");
    let expect = "nothing was written; 1 file would need your hand";
    place.refuses("create api --group tills --version v1 --kind Till --dry-run", expect);
    older(&place, ".gitignore", "/target\n", "/target\n/old\n");
    place.replace(".gitignore", "/old\n", "/old\n/mine\n");
    place.refuses("update --dry-run", expect);
    // An older program would take the files back.
    let version = format!("cliVersion: \"{}\"", env!("CARGO_PKG_VERSION"));
    place.replace("PROJECT", &version, "cliVersion: 999.0.0");
    place.refuses("update", "konverge 999.0.0 has written this project, which is newer than this program");
}

#[test]
fn the_kept_scaffold_can_be_lost() {
    let place = Place::with_shop();
    let before = files(&place.path(""));
    fs::remove_dir_all(place.path(".scaffold")).expect("removed");
    place.ok("update");
    assert_eq!(files(&place.path("")), before, "the same templates make it again");
    older(&place, ".gitignore", "/target\n", "/target\n/old\n");
    fs::remove_dir_all(place.path(".scaffold")).expect("removed");
    place.refuses("update", ".scaffold is gone, which has the files as konverge");
}

#[test]
fn shells_and_manuals_know_the_commands() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = place.ok(&format!("completion {shell}"));
        assert!(text.contains("programmatic-validation"), "{shell}");
    }
    assert!(place.ok("man").contains(".SH SUBCOMMANDS"));
    place.ok("man pages");
    assert!(place.read("pages/konverge-create-api.1").contains("namespaced"));
}
