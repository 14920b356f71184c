//! `konverge build`: an image of the project's operator. In: a project. Out: an image in the store of docker, podman or buildah if one of them works and
//! there is a Dockerfile; otherwise an archive in the OCI layout, made here: a static binary on an empty base. The same sources give the same
//! archive. A list of everything that is compiled in (an SBOM) comes with it.
//!
//! ```text
//! static_binary   cargo → an executable that needs no file beside it
//! sbom            cargo's metadata and lock file → CycloneDX
//! tar, oci        files → a layer → an image → an archive
//! engine          the programs that build images otherwise
//! ```

mod engine;
mod oci;
mod sbom;
mod static_binary;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use konverge_core::ErrorChain;
use serde_json::{Value, json};

use crate::args::OutputFormat;
use crate::description::{DeployTarget, Package, ProjectArgs, ProjectError, here};
use crate::image_reference::{BadReference, ImageReference};
use crate::project::Project;
use crate::scaffold;

use engine::{Engine, EngineError};
use oci::{Image, ImageFile};
use sbom::SbomError;
use static_binary::{StaticBinary, StaticError};

/// Arguments of `konverge build`.
#[derive(Debug, clap::Args)]
pub(crate) struct BuildArgs {
    #[command(flatten)]
    project: ProjectArgs,
    /// The name of the image, with its tag [default: `image` in [package.metadata.konverge] with the version of the package]
    #[arg(short, long, value_name = "IMAGE")]
    tag: Option<String>,
    /// What builds the image: the first of docker, podman and buildah that works, or none of them
    #[arg(long, value_enum, default_value_t = EngineChoice::Auto)]
    engine: EngineChoice,
    /// Push the image to its registry, which needs an engine
    #[arg(long)]
    push: bool,
    /// Where the archive is written if no engine builds the image [default: target/konverge/NAME-VERSION-ARCH.oci.tar]
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    /// The Rust target of the archive's binary [default: that of musl on this machine, or glibc linked statically]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// The profile of cargo
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Let the archive's binary say by itself what is compiled in, for scanners that see nothing else; needs cargo-auditable
    #[arg(long)]
    auditable: bool,
    /// Write the static binary of the archive to this file, too
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The ports that the archive's image says it listens on
    #[arg(long, value_name = "PORT", value_delimiter = ',', default_values_t = [8080, 8081, 9443])]
    expose: Vec<u16>,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    /// More arguments of the engine, after --
    #[arg(last = true, value_name = "ARGS")]
    more: Vec<String>,
}

/// What builds images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EngineChoice {
    Auto,
    Docker,
    Podman,
    Buildah,
    /// This program itself.
    None,
}

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
enum BuildError {
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error(transparent)]
    Static(#[from] StaticError),
    #[error(transparent)]
    Sbom(#[from] SbomError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Tag(#[from] BadReference),
    #[error("{0:?} has a digest, which an image has only after it was built; give it a tag")]
    Digest(String),
    #[error(
        "an archive cannot be pushed without docker, podman or buildah: `skopeo copy oci-archive:FILE docker://IMAGE` does it"
    )]
    Push,
    #[error(
        "{0} is about the archive that konverge makes itself; an image that docker, podman or buildah builds is made by its Dockerfile: `--engine none` makes the archive"
    )]
    OnlyArchive(&'static str),
    #[error("cannot write {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
}

/// `konverge build`
pub(crate) fn build(args: &BuildArgs) -> ExitCode {
    match run(args) {
        Ok(built) => {
            match args.output {
                OutputFormat::Text => {
                    for (name, value) in built.as_object().into_iter().flatten() {
                        println!("{name}: {}", value.as_str().unwrap_or_default());
                    }
                }
                _ => println!("{built:#}"),
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {}", ErrorChain(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &BuildArgs) -> Result<Value, BuildError> {
    let (project, package, mut target) = here(&args.project)?;
    if let Some(tag) = &args.tag {
        if ImageReference::parse(tag)?.has_digest() {
            return Err(BuildError::Digest(tag.clone()));
        }
        target.image = tag.clone();
    }
    let engine = match (args.engine, &args.archive) {
        (EngineChoice::None, _) | (EngineChoice::Auto, Some(_)) => None,
        (EngineChoice::Auto, None) if args.binary.is_some() => None,
        (EngineChoice::Auto, None) if !project.directory().join(engine::DOCKERFILE).is_file() => None,
        (EngineChoice::Auto, None) => Engine::find(),
        (EngineChoice::Docker, _) => Some(Engine::named("docker")?),
        (EngineChoice::Podman, _) => Some(Engine::named("podman")?),
        (EngineChoice::Buildah, _) => Some(Engine::named("buildah")?),
    };
    match engine {
        Some(_) if args.binary.is_some() => Err(BuildError::OnlyArchive("--binary")),
        Some(engine) => {
            let konverge = scaffold::konverge_checkout(project.directory());
            let more = engine::with_context(&args.more, konverge.as_deref());
            engine.build(project.directory(), &target.image, &more)?;
            if args.push {
                engine.push(&target.image)?;
            }
            let sbom = write_sbom(&project, &target, &package, None)?.1;
            Ok(json!({"image": target.image, "engine": engine.name(), "sbom": sbom}))
        }
        None if args.push => Err(BuildError::Push),
        None => archive(args, &project, &package, &target),
    }
}

/// Makes the image here.
fn archive(args: &BuildArgs, project: &Project, package: &Package, target: &DeployTarget) -> Result<Value, BuildError> {
    let binary = StaticBinary::build(project, args.target.as_deref(), &args.profile, args.auditable)?;
    let (sbom, sbom_path) = write_sbom(project, target, package, Some(&binary.triple))?;
    let image = Image {
        name: &target.image,
        version: &package.version,
        summary: &package.summary,
        architecture: binary.architecture(),
        entrypoint: "/operator",
        ports: &args.expose,
        files: vec![
            ImageFile { path: "operator", mode: 0o755, content: &binary.content },
            ImageFile { path: "sbom.cdx.json", mode: 0o644, content: sbom.as_bytes() },
        ],
    };
    let (archive, digest) = image.archive(&ImageReference::parse(&target.image)?.full());
    let default = format!("{}-{}-{}.oci.tar", target.name, package.version, binary.architecture());
    let path = args.archive.clone().unwrap_or_else(|| folder(project).join(default));
    write(&path, &archive)?;
    let mut result = json!({});
    if let Some(file) = &args.binary {
        write_program(file, &binary.content)?;
        result["binary"] = file.display().to_string().into();
    }
    let path = path.display().to_string();
    eprintln!(
        "`podman load -i {path}` or `docker load -i {path}` loads it, `skopeo copy oci-archive:{path} docker://{}` pushes it",
        target.image
    );
    for (name, value) in [
        ("image", target.image.as_str()),
        ("archive", &path),
        ("digest", &digest),
        ("sbom", &sbom_path),
        ("architecture", binary.architecture()),
        ("target", &binary.triple),
    ] {
        result[name] = value.into();
    }
    Ok(result)
}

/// Writes the SBOM beside the archive; its text and its path.
fn write_sbom(
    project: &Project,
    target: &DeployTarget,
    package: &Package,
    triple: Option<&str>,
) -> Result<(String, String), BuildError> {
    let text = sbom::of(project, triple)?;
    let path = folder(project).join(format!("{}-{}.cdx.json", target.name, package.version));
    write(&path, text.as_bytes())?;
    Ok((text, path.display().to_string()))
}

/// Where archives are by default: beside what cargo builds, which no repository keeps.
fn folder(project: &Project) -> PathBuf {
    project.directory().join("target/konverge")
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    let failed = |error| BuildError::Write(path.to_owned(), error);
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    std::fs::write(path, bytes).map_err(failed)
}

/// Writes a file that can be run.
fn write_program(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    write(path, bytes)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let failed = |error| BuildError::Write(path.to_owned(), error);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
    }
    Ok(())
}
