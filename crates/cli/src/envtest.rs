//! `konverge envtest`: a directory for KUBEBUILDER_ASSETS. In: a directory. Out: links in it by the names of the programs that
//! envtest starts, `kube-apiserver` and `etcd`, which all lead to this program, and to kubectl if there is one on PATH. It never
//! replaces a file that is not such a link.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::args::{EnvtestArgs, EnvtestCommand};

/// Why the directory was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvtestError {
    #[error("cannot find out where this program is")]
    Program(#[source] io::Error),
    #[error("{} is there already and no link, so it is left alone; choose another directory", .0.display())]
    Foreign(PathBuf),
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// `konverge envtest` and `konverge envtest env`
pub(crate) fn envtest(args: &EnvtestArgs) -> Result<(), EnvtestError> {
    let directory = match &args.command {
        Some(EnvtestCommand::Env(env)) => &env.directory,
        None => &args.directory.directory,
    };
    let program = env::current_exe().map_err(EnvtestError::Program)?;
    let kubectl = find("kubectl", env::var_os("PATH").as_deref().map(env::split_paths).into_iter().flatten());
    let directory = write(directory, &program, kubectl.as_deref())?;
    match args.command {
        Some(EnvtestCommand::Env(_)) => println!("export KUBEBUILDER_ASSETS={}", shell_word(&directory)),
        None => {
            let kubectl = if kubectl.is_some() { " and kubectl" } else { "; there is no kubectl on PATH" };
            println!("wrote kube-apiserver, etcd{kubectl}: KUBEBUILDER_ASSETS={}", shell_word(&directory));
        }
    }
    Ok(())
}

/// Writes the links, and returns the absolute path of the directory.
fn write(directory: &Path, program: &Path, kubectl: Option<&Path>) -> Result<PathBuf, EnvtestError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| EnvtestError::Write { path, source }
    };
    fs::create_dir_all(directory).map_err(failed(directory))?;
    let directory = fs::canonicalize(directory).map_err(failed(directory))?;
    let links = [("kube-apiserver", Some(program)), ("etcd", Some(program)), ("kubectl", kubectl)];
    for (name, target) in links {
        let Some(target) = target else { continue };
        let path = directory.join(name).with_extension(env::consts::EXE_EXTENSION);
        match fs::symlink_metadata(&path) {
            Ok(there) if there.is_symlink() || cfg!(not(unix)) => fs::remove_file(&path).map_err(failed(&path))?,
            Ok(_) => return Err(EnvtestError::Foreign(path)),
            Err(_) => {}
        }
        link(target, &path).map_err(failed(&path))?;
    }
    Ok(directory)
}

#[cfg(unix)]
fn link(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

/// Links need a privilege on Windows.
#[cfg(not(unix))]
fn link(target: &Path, path: &Path) -> io::Result<()> {
    fs::copy(target, path).map(drop)
}

/// The program of this name in the first of these directories that has one.
fn find(name: &str, mut directories: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    directories.find_map(|directory| {
        let path = std::path::absolute(directory.join(name).with_extension(env::consts::EXE_EXTENSION)).ok()?;
        path.is_file().then_some(path)
    })
}

/// A path as a word of a shell command.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@%".contains(letter);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn links_are_replaced_and_files_are_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let assets = directory.path().join("new/assets");
        let program = Path::new("/bin/true");
        let written = write(&assets, program, None).expect("written");
        assert!(written.is_absolute());
        let names = |directory: &Path| {
            let entries = fs::read_dir(directory).expect("a directory");
            let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&written), ["etcd", "kube-apiserver"]);
        let other = Path::new("/bin/false");
        write(&assets, other, Some(Path::new("/usr/bin/kubectl"))).expect("written again");
        assert_eq!(names(&written), ["etcd", "kube-apiserver", "kubectl"]);
        assert_eq!(fs::read_link(written.join("etcd")).expect("a link"), other);
        fs::remove_file(written.join("etcd")).expect("removed");
        fs::write(written.join("etcd"), "the real one").expect("written");
        let error = write(&assets, program, None).expect_err("not a link").to_string();
        assert!(
            error.ends_with("etcd is there already and no link, so it is left alone; choose another directory"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(written.join("etcd")).expect("still there"), "the real one");
    }

    #[test]
    fn words() {
        for (path, expect) in [("/a/b-c.d", "/a/b-c.d"), ("/a b", "'/a b'"), ("/it's", r"'/it'\''s'")] {
            assert_eq!(shell_word(Path::new(path)), expect);
        }
    }

    #[test]
    fn the_first_on_the_path() {
        let directory = tempfile::tempdir().expect("a directory");
        let [empty, one, two] = ["empty", "one", "two"].map(|name| directory.path().join(name));
        for path in [&empty, &one, &two] {
            fs::create_dir(path).expect("a directory");
        }
        for path in [&one, &two] {
            fs::write(path.join("kubectl").with_extension(env::consts::EXE_EXTENSION), "").expect("written");
        }
        let found = find("kubectl", [&empty, &one, &two].into_iter().cloned());
        assert_eq!(found, Some(one.join("kubectl").with_extension(env::consts::EXE_EXTENSION)));
        assert_eq!(find("kubectl", [empty].into_iter()), None);
    }
}
