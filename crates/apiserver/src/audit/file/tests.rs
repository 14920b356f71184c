//! Files that are full, and what becomes of old ones.

use std::io::Read;

use super::*;

const NONE: Rotation = Rotation { max_size: 0, max_age: 0, max_backups: 0, compress: false };

fn at(second: u64) -> Timestamp {
    Timestamp::from_second(1_767_323_045).unwrap() + Duration::from_secs(second)
}

#[test]
fn which_old_files_go() {
    #[track_caller]
    fn check(rotation: Rotation, names: &[&str], remove: &[&str], compress: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let now = "2026-01-10T00:00:00Z".parse().unwrap();
        let plan = Plan::of(&names, &name_parts(Path::new("/var/log/audit.log")), rotation, now);
        assert_eq!((plan.remove.as_slice(), plan.compress.as_slice()), (remove, compress), "{rotation:?}");
    }
    let (first, second, third) = (
        "audit-2026-01-01T00-00-00.000.log",
        "audit-2026-01-08T00-00-00.000.log.gz",
        "audit-2026-01-09T12-00-00.123.log",
    );
    let names = [first, "audit.log", third, "audit-x.log", second, "other-2026-01-01T00-00-00.000.log"];
    check(NONE, &names, &[], &[]);
    check(Rotation { max_backups: 3, ..NONE }, &names, &[], &[]);
    check(Rotation { max_backups: 1, ..NONE }, &names, &[second, first], &[]);
    check(Rotation { max_age: 5, ..NONE }, &names, &[first], &[]);
    check(Rotation { max_age: 1, ..NONE }, &names, &[second, first], &[]);
    check(Rotation { compress: true, ..NONE }, &names, &[], &[third, first]);
    check(Rotation { max_backups: 2, compress: true, ..NONE }, &names, &[first], &[third]);
    // A file whose compression was cut short counts once.
    let twice = ["audit-2026-01-09T12-00-00.123.log.gz", third, second];
    check(Rotation { max_backups: 2, ..NONE }, &twice, &[], &[]);
}

#[test]
fn a_full_file_is_put_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new/audit.log");
    let mut file = RotatingFile::open(&path, Rotation { max_size: 1, ..NONE }).expect("a file");
    let mut half = vec![b'x'; 600 * 1024];
    half[600 * 1024 - 1] = b'\n';
    for second in 0..3 {
        file.write(&half, at(second)).expect("written");
    }
    // The same moment again: nothing is overwritten.
    file.write(&half, at(2)).expect("written");
    let refused = file.write(&vec![b'x'; 1024 * 1024 + 1], at(9)).expect_err("too long");
    assert_eq!(refused.to_string(), "write length 1048577 exceeds maximum file size 1048576");
    drop(file);
    let mut names: Vec<String> = fs::read_dir(folder.path().join("new"))
        .expect("a folder")
        .map(|entry| entry.expect("a file").file_name().into_string().expect("a name"))
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "audit-2026-01-02T03-04-06.000.log",
            "audit-2026-01-02T03-04-07.000.log",
            "audit-2026-01-02T03-04-07.001.log",
            "audit.log"
        ]
    );
    // A new server goes on where the last one ended.
    let mut file = RotatingFile::open(&path, Rotation { max_size: 1, ..NONE }).expect("a file");
    file.write(b"end\n", at(10)).expect("written");
    assert_eq!(fs::metadata(&path).expect("a file").len(), 600 * 1024 + 4);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn old_files_are_compressed_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.log");
    let old = backup(&path, at(0));
    fs::write(&old, "line\n".repeat(1000)).expect("written");
    clean(&path, Rotation { compress: true, max_size: 1, ..NONE }, at(1)).expect("cleaned");
    let mut text = String::new();
    let packed = File::open(compressed(&old)).expect("a file");
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).expect("compressed text");
    assert_eq!(text, "line\n".repeat(1000));
    assert!(!old.exists());
}

#[test]
fn a_line_that_was_cut_short_spoils_no_other() {
    #[track_caller]
    fn check(found: &str, expect: &str) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        fs::write(&path, found).expect("written");
        let mut file = RotatingFile::open(&path, Rotation { max_size: 1, ..NONE }).expect("a file");
        file.write(b"{\"a\":1}\n", at(0)).expect("written");
        // A disk that is full takes half a line, and has room again for the next one.
        file.open = None;
        fs::OpenOptions::new().append(true).open(&path).expect("a file").write_all(b"{\"b\"").expect("written");
        file.write(b"{\"c\":3}\n", at(0)).expect("written");
        let size = file.open.as_ref().map(|(_, size)| *size);
        let text = fs::read_to_string(&path).expect("a text");
        assert_eq!((text.as_str(), size), (expect, Some(expect.len() as u64)));
    }
    check("", "{\"a\":1}\n{\"b\"\n{\"c\":3}\n");
    check("{}\n", "{}\n{\"a\":1}\n{\"b\"\n{\"c\":3}\n");
    check("{\"half", "{\"half\n{\"a\":1}\n{\"b\"\n{\"c\":3}\n");
}
