//! How a project depends on Konverge: by a version, a git revision or a path. In: flags, and where this program comes from. Out: the
//! lines of a Cargo.toml.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The packages that a project uses, and where a checkout has them.
const PACKAGES: [(&str, &str); 2] = [("konverge", "crates/operator"), ("konverge-testkit", "crates/testkit")];

/// Where cargo finds Konverge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(crate) enum KonvergeSource {
    /// A checkout of the repository.
    Path { path: String },
    /// A repository, and a revision of it.
    Git {
        git: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rev: Option<String>,
    },
    /// The registry.
    Version { version: String },
}

/// The flags of `konverge init` about it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SourceArgs {
    /// Depend on Konverge by the path of a checkout. By itself, if this program was built in a checkout that is still there
    #[arg(long, value_name = "DIR", conflicts_with_all = ["konverge_git", "konverge_version"])]
    konverge_path: Option<PathBuf>,
    /// Depend on Konverge by a git repository
    #[arg(long, value_name = "URL", conflicts_with = "konverge_version")]
    konverge_git: Option<String>,
    /// The revision of the git repository
    #[arg(long, value_name = "REV", requires = "konverge_git")]
    konverge_rev: Option<String>,
    /// Depend on Konverge by a version in the registry [default: that of this program]
    #[arg(long, value_name = "VERSION", value_parser = requirement)]
    konverge_version: Option<String>,
}

/// A requirement of cargo, as far as its letters go; cargo itself knows the rest.
fn requirement(text: &str) -> Result<String, String> {
    let is_fit = |letter: char| letter.is_ascii_alphanumeric() || " .,+-*^~<>=".contains(letter);
    match text.chars().all(is_fit) && text.contains(|letter: char| letter.is_ascii_digit() || letter == '*') {
        true => Ok(text.to_owned()),
        false => Err(format!("cargo takes versions such as {}", env!("CARGO_PKG_VERSION"))),
    }
}

/// There is no checkout where one was said to be.
#[derive(Debug, thiserror::Error)]
#[error("{} is no checkout of Konverge: it has no crates/operator and crates/testkit; pass its directory as --konverge-path", .0.display())]
pub(crate) struct NoCheckout(PathBuf);

impl SourceArgs {
    /// Whether no flag says anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.konverge_path.is_none() && self.konverge_git.is_none() && self.konverge_version.is_none()
    }

    /// What the flags say, for a project in a directory. A relative path is made one from there.
    pub(crate) fn source(&self, project: &Path) -> Result<KonvergeSource, NoCheckout> {
        if let Some(path) = &self.konverge_path {
            if !is_checkout(path) {
                return Err(NoCheckout(path.clone()));
            }
            return Ok(KonvergeSource::Path { path: from(project, path) });
        }
        if let Some(git) = &self.konverge_git {
            return Ok(KonvergeSource::Git { git: git.clone(), rev: self.konverge_rev.clone() });
        }
        if let Some(version) = &self.konverge_version {
            return Ok(KonvergeSource::Version { version: version.clone() });
        }
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).filter(|root| is_checkout(root));
        Ok(match own {
            Some(root) => KonvergeSource::Path { path: root.display().to_string() },
            None => KonvergeSource::Version { version: env!("CARGO_PKG_VERSION").into() },
        })
    }
}

impl KonvergeSource {
    /// The lines of `[workspace.dependencies]`.
    pub(crate) fn dependencies(&self) -> String {
        let line = |(package, directory): (&str, &str)| match self {
            KonvergeSource::Path { path } => {
                format!("{package} = {{ path = {} }}", quoted(&format!("{path}/{directory}")))
            }
            KonvergeSource::Git { git, rev: Some(rev) } => {
                format!("{package} = {{ git = {}, rev = {} }}", quoted(git), quoted(rev))
            }
            KonvergeSource::Git { git, rev: None } => format!("{package} = {{ git = {} }}", quoted(git)),
            KonvergeSource::Version { version } => format!("{package} = {}", quoted(version)),
        };
        PACKAGES.map(line).join("\n")
    }

    /// What becomes part of other files.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let (first, second) = match self {
            KonvergeSource::Path { path } => (path, None),
            KonvergeSource::Git { git, rev } => (git, rev.as_ref()),
            KonvergeSource::Version { version } => (version, None),
        };
        std::iter::once(first).chain(second).map(String::as_str)
    }

    /// The path of a checkout, if it is one.
    pub(crate) fn path(&self) -> Option<&str> {
        match self {
            KonvergeSource::Path { path } => Some(path),
            _ => None,
        }
    }

    /// The version in cargo's registry, if it is one.
    pub(crate) fn version(&self) -> Option<&str> {
        match self {
            KonvergeSource::Version { version } => Some(version),
            _ => None,
        }
    }

    /// A newer program brings its own version.
    pub(crate) fn updated(&self) -> Self {
        match self {
            KonvergeSource::Version { .. } => KonvergeSource::Version { version: env!("CARGO_PKG_VERSION").into() },
            other => other.clone(),
        }
    }
}

fn is_checkout(root: &Path) -> bool {
    PACKAGES.iter().all(|(package, directory)| {
        let manifest = std::fs::read_to_string(root.join(directory).join("Cargo.toml")).unwrap_or_default();
        manifest.lines().any(|line| line == format!("name = \"{package}\""))
    })
}

/// A path as a project sees it: an absolute one stays, a relative one begins at the project.
fn from(project: &Path, path: &Path) -> String {
    let text = |path: &Path| path.display().to_string().replace('\\', "/");
    let (Ok(to), Ok(start)) = (std::path::absolute(path), std::path::absolute(project)) else { return text(path) };
    let (to, start) = (plain(&to), plain(&start));
    if path.is_absolute() {
        return text(&to);
    }
    let shared = to.components().zip(start.components()).take_while(|(a, b)| a == b).count();
    let mut relative: PathBuf = start.components().skip(shared).map(|_| "..").collect();
    relative.extend(to.components().skip(shared));
    if relative.as_os_str().is_empty() { ".".into() } else { text(&relative) }
}

/// An absolute path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            std::path::Component::ParentDir => drop(plain.pop()),
            std::path::Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|letter| match letter {
        '\\' | '"' => format!("\\{letter}"),
        letter if letter.is_control() => format!("\\u{:04X}", u32::from(letter)),
        letter => letter.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_manifest() {
        for (source, expect) in [
            (
                KonvergeSource::Path { path: "../konverge".into() },
                "konverge = { path = \"../konverge/crates/operator\" }\n\
                 konverge-testkit = { path = \"../konverge/crates/testkit\" }",
            ),
            (
                KonvergeSource::Git { git: "https://example.com/k".into(), rev: Some("abc".into()) },
                "konverge = { git = \"https://example.com/k\", rev = \"abc\" }\n\
                 konverge-testkit = { git = \"https://example.com/k\", rev = \"abc\" }",
            ),
            (
                KonvergeSource::Git { git: "https://example.com/k".into(), rev: None },
                "konverge = { git = \"https://example.com/k\" }\nkonverge-testkit = { git = \"https://example.com/k\" }",
            ),
            (KonvergeSource::Version { version: "0.1.0".into() }, "konverge = \"0.1.0\"\nkonverge-testkit = \"0.1.0\""),
        ] {
            assert_eq!(source.dependencies(), expect);
        }
        assert_eq!(quoted(r#"a"b\c"#), r#""a\"b\\c""#);
        assert_eq!(quoted("a\nb\u{7f}"), r#""a\u000Ab\u007F""#);
        for (text, is_fit) in [("0.1", true), (">=0.1, <2", true), ("*", true), ("0.1\"\nx = 1", false), ("", false)] {
            assert_eq!(requirement(text).is_ok(), is_fit, "{text:?}");
        }
    }

    #[test]
    fn paths_begin_at_the_project() {
        for (project, path, expect) in [
            ("/a/shop", "/k", "/k"),
            ("/a/shop", "/a/../k/.", "/k"),
            ("shop", "konverge", "../konverge"),
            ("a/shop", "konverge", "../../konverge"),
            (".", "konverge", "konverge"),
            (".", ".", "."),
            (".", "..", ".."),
        ] {
            assert_eq!(from(Path::new(project), Path::new(path)), expect, "{project} {path}");
        }
    }

    #[test]
    fn this_program_knows_its_checkout() {
        let own = SourceArgs::default().source(Path::new("shop")).expect("no path was given");
        assert!(own.path().is_some_and(|path| Path::new(path).join("crates/cli/templates").is_dir()), "{own:?}");
        let elsewhere = SourceArgs { konverge_path: Some("/nowhere".into()), ..SourceArgs::default() };
        let error = elsewhere.source(Path::new("shop")).expect_err("no checkout").to_string();
        assert!(error.starts_with("/nowhere is no checkout of Konverge"), "{error}");
    }
}
