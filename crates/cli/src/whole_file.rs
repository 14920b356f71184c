//! Writing a file so that whoever reads it, also after this program was interrupted, finds the old text or the new one. In: a path and a text. Out: the
//! file, with the permissions it had. A link stays a link: what it leads to is written.

use std::fs;
use std::io;
use std::path::Path;

/// Writes a file whole or not at all; makes its folder if need be.
pub(crate) fn write_whole(path: &Path, text: &[u8]) -> io::Result<()> {
    let at = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = at.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let name = at.file_name().unwrap_or_default().to_string_lossy();
    let new = folder.join(format!(".{name}.konverge-new"));
    let written = || {
        fs::write(&new, text)?;
        // A file that people made executable stays so.
        if let Ok(there) = fs::metadata(&at) {
            fs::set_permissions(&new, there.permissions())?;
        }
        fs::rename(&new, &at)
    };
    written().inspect_err(|_| {
        // The reason of the failure is told, whether or not this works.
        let _ = fs::remove_file(&new);
    })
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn links_and_permissions_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("deep/a"), folder.path().join("b"));
        write_whole(&file, b"1").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        symlink(&file, &link).unwrap();
        write_whole(&link, b"2").unwrap();
        assert!(link.is_symlink() && fs::read(&file).unwrap() == b"2");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(folder.path().join("deep")).unwrap().count(), 1, "nothing is left beside it");
        // A folder cannot be replaced by a file, and nothing is left of the attempt.
        assert!(write_whole(&folder.path().join("deep"), b"3").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
