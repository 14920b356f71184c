//! `cargo xtask dist`: the program `konverge` for people without Rust. In: this repository. Out, in a folder: an archive with the static binary, man pages,
//! completions and licences; an image in the OCI layout; a bill of materials; checksums of all of them. The program makes its own image, as it makes
//! those of operators (`konverge build`).

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::Value;

use crate::package::metadata;

/// Makes the files of a release: a static binary of konverge, an image, a bill of materials, checksums
#[derive(Args)]
pub(crate) struct Dist {
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = "target/dist-files")]
    dir: PathBuf,
    /// The Rust target [default: that of musl on this machine if it is installed, or glibc linked statically]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// The profile of cargo; another than `dist` is for trying this command
    #[arg(long, value_name = "NAME", default_value = "dist")]
    profile: String,
}

/// The shells whose completions are in the archive, with the names of their files.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "konverge.bash"), ("zsh", "_konverge"), ("fish", "konverge.fish")];

/// The ports of `konverge dev` and of `konverge apiserver`.
const PORTS: &str = "3000,6443";

/// Makes the files.
pub(crate) fn run(options: &Dist, root: &Path) -> Result<(), String> {
    let version = version(root)?;
    let dir =
        std::path::absolute(root.join(&options.dir)).map_err(|error| format!("{}: {error}", options.dir.display()))?;
    let staging = dir.join("staging");
    remove(&staging)?;
    create(&staging)?;

    let image = dir.join("image.oci.tar");
    let mut build = Command::new("cargo");
    build.args(["run", "--quiet", "--package", "konverge-cli", "--manifest-path"]).arg(root.join("Cargo.toml"));
    build.args(["--", "build", "--engine=none", "--output=json", "--expose", PORTS, "--profile", &options.profile]);
    build.args(["--tag", &format!("konverge:{version}")]);
    build.arg("--archive").arg(&image).arg("--binary").arg(staging.join("konverge"));
    build.args(options.target.iter().flat_map(|target| ["--target", target]));
    let is_auditable =
        Command::new("cargo").args(["auditable", "--version"]).output().is_ok_and(|told| told.status.success());
    build.args(is_auditable.then_some("--auditable"));
    // `konverge build` builds the project of its directory.
    build.current_dir(root.join("crates/cli"));
    let built: Value =
        serde_json::from_str(&output(&mut build)?).map_err(|error| format!("konverge build: {error}"))?;
    let text = |field: &str| built[field].as_str().unwrap_or_default().to_owned();

    let platform = format!("linux-{}", text("architecture"));
    let name = format!("konverge-{version}-{platform}");
    rename(&image, &dir.join(format!("{name}.oci.tar")))?;
    copy(Path::new(&text("sbom")), &dir.join(format!("{name}.cdx.json")))?;

    let konverge = staging.join("konverge");
    for file in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"] {
        copy(&root.join(file), &staging.join(file))?;
    }
    create(&staging.join("completions"))?;
    for (shell, file) in COMPLETIONS {
        let completion = output(Command::new(&konverge).args(["completion", shell]))?;
        std::fs::write(staging.join("completions").join(file), completion)
            .map_err(|error| format!("{file}: {error}"))?;
    }
    output(Command::new(&konverge).arg("man").arg(staging.join("man")))?;
    remove(&dir.join(&name))?;
    rename(&staging, &dir.join(&name))?;

    // The same files give the same archive, whoever packs them, and whenever.
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--mtime=@0",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--use-compress-program=gzip -n",
    ]);
    tar.arg("-cf").arg(format!("{name}.tar.gz")).arg(&name).current_dir(&dir);
    output(&mut tar)?;
    remove(&dir.join(&name))?;

    let files: Vec<String> = ["cdx.json", "oci.tar", "tar.gz"].map(|ending| format!("{name}.{ending}")).into();
    let checksums = output(Command::new("sha256sum").args(&files).current_dir(&dir))?;
    std::fs::write(dir.join("SHA256SUMS"), &checksums).map_err(|error| format!("SHA256SUMS: {error}"))?;
    print!("{checksums}");
    let auditable =
        if is_auditable { "auditable" } else { "not auditable: `cargo install --locked cargo-auditable` makes it so" };
    println!("in {}; target {}, {auditable}", dir.display(), text("target"));
    Ok(())
}

/// The version of the program.
fn version(root: &Path) -> Result<String, String> {
    let metadata = metadata(root)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let program =
        packages.filter(|package| package["name"] == "konverge-cli").find_map(|package| package["version"].as_str());
    program.map(ToOwned::to_owned).ok_or_else(|| "the workspace has no package konverge-cli".to_owned())
}

/// What a program prints; its errors go to the terminal.
fn output(command: &mut Command) -> Result<String, String> {
    let shown = format!("{command:?}");
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run {shown}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{shown} failed")),
    }
}

fn create(dir: &Path) -> Result<(), String> {
    std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))
}

fn remove(dir: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", dir.display())),
        _ => Ok(()),
    }
}

fn rename(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::rename(from, to).map_err(|error| format!("{}: {error}", to.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::copy(from, to).map(drop).map_err(|error| format!("{}: {error}", from.display()))
}
