//! What is kept in a directory, and for how long.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use konverge_serve::{Certificates, Renewal};

const DAY: Duration = Duration::from_secs(86_400);

fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).expect("a kept file")
}

#[test]
fn kept_ones_are_used_while_they_are_good() {
    let now = SystemTime::now();
    // When it is opened again, for which names, and whether the CA and the certificate stay.
    let table: [(u32, &[&str], bool, bool); 8] = [
        (0, &[], true, true),
        (0, &["example.test"], true, false),
        (0, &["192.0.2.7"], true, false),
        (0, &["localhost", "127.0.0.1"], true, true),
        (300, &[], true, true),
        (340, &[], true, false),
        (3000, &[], true, false),
        (3400, &[], false, false),
    ];
    for (days, names, same_ca, same_server) in table {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = directory.path().join("certs");
        let first = Certificates::in_directory(&directory, &[], now).expect("certificates");
        let kept = read(&directory, "server.crt");
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let second = Certificates::in_directory(&directory, &names, now + DAY * days).expect("certificates");
        let what = format!("after {days} days for {names:?}");
        assert_eq!(first.ca_pem() == second.ca_pem(), same_ca, "{what}");
        assert_eq!(kept == read(&directory, "server.crt"), same_server, "{what}");
        assert_eq!(Some(read(&directory, "ca.crt").as_str()), second.ca_pem(), "{what}");
        assert!(second.expires() > now + DAY * days + DAY * 30, "{what}");
    }
}

#[test]
fn the_running_one_is_renewed_and_kept() {
    let now = SystemTime::now();
    let directory = tempfile::tempdir().expect("a directory");
    let certificates = Certificates::in_directory(directory.path(), &[], now).expect("certificates");
    let (ca, first) = (read(directory.path(), "ca.crt"), read(directory.path(), "server.crt"));
    assert_eq!(certificates.renew_if_due(now + DAY * 300).expect("no need"), Renewal::Current);
    assert_eq!(read(directory.path(), "server.crt"), first);
    assert_eq!(certificates.renew_if_due(now + DAY * 350).expect("a new one"), Renewal::Renewed);
    assert_ne!(read(directory.path(), "server.crt"), first);
    assert_eq!(read(directory.path(), "ca.crt"), ca);
    assert!(certificates.expires() > now + DAY * 700);
}

#[cfg(unix)]
#[test]
fn keys_are_for_their_owner() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    // What a crash may have left must not decide who can read the key.
    fs::write(directory.path().join("ca.key.next"), "left").expect("a file");
    Certificates::in_directory(directory.path(), &[], SystemTime::now()).expect("certificates");
    for (name, expect) in [("ca.key", 0o600), ("server.key", 0o600), ("ca.crt", 0o644), ("server.crt", 0o644)] {
        let mode = fs::metadata(directory.path().join(name)).expect("a file").permissions().mode();
        // The umask may take away more.
        assert_eq!(mode & 0o777 & !expect, 0, "{name}");
    }
    let names: Vec<_> =
        fs::read_dir(directory.path()).expect("a directory").map(|file| file.expect("a file").file_name()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
}

#[test]
fn a_broken_ca_is_named_and_not_replaced() {
    let other = Certificates::in_memory(&[], SystemTime::now()).expect("certificates");
    let table: [(&str, Option<&str>, &str); 5] = [
        ("ca.key", None, "ca.key is missing"),
        ("ca.crt", None, "ca.crt is missing"),
        ("ca.key", Some("noise"), "ca.key is not a PEM private key"),
        ("ca.crt", Some("noise"), "ca.crt is not a PEM certificate"),
        ("ca.crt", other.ca_pem(), "does not belong to the certificate"),
    ];
    for (name, text, expect) in table {
        let directory = tempfile::tempdir().expect("a directory");
        Certificates::in_directory(directory.path(), &[], SystemTime::now()).expect("certificates");
        let path = directory.path().join(name);
        match text {
            Some(text) => fs::write(&path, text).expect("written"),
            None => fs::remove_file(&path).expect("removed"),
        }
        let error = Certificates::in_directory(directory.path(), &[], SystemTime::now()).expect_err("refused");
        assert!(error.to_string().contains(expect), "{error}");
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), text, "left as it was");
    }
}

#[test]
fn a_broken_server_certificate_is_made_again() {
    for (name, text) in [("server.key", "noise"), ("server.crt", "noise"), ("server.crt", "")] {
        let directory = tempfile::tempdir().expect("a directory");
        let first = Certificates::in_directory(directory.path(), &[], SystemTime::now()).expect("certificates");
        fs::write(directory.path().join(name), text).expect("written");
        let second = Certificates::in_directory(directory.path(), &[], SystemTime::now()).expect("certificates");
        assert_eq!(first.ca_pem(), second.ca_pem());
        assert!(read(directory.path(), name).starts_with("-----BEGIN"));
    }
}

#[test]
fn names_and_given_certificates_are_checked() {
    let now = SystemTime::now();
    for name in ["", "a b", "no/slash", "-"] {
        let error = Certificates::in_memory(&[name.to_string()], now).expect_err("refused");
        assert!(error.to_string().contains(&format!("{name:?}")), "{error}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    Certificates::in_directory(directory.path(), &[], now).expect("certificates");
    let (certificate, key) = (read(directory.path(), "server.crt"), read(directory.path(), "server.key"));
    let certificates = Certificates::in_memory(&[], now).expect("certificates");
    for (certificate, key, expect) in [
        ("", key.as_str(), "certificate"),
        ("noise", key.as_str(), "certificate"),
        (certificate.as_str(), "noise", "key"),
        (certificate.as_str(), &read(directory.path(), "ca.key"), "pair of certificate and key"),
    ] {
        let error = certificates.replace(certificate, key).expect_err("refused");
        assert_eq!(error.to_string(), format!("the given {expect} cannot be used"));
    }
    certificates.replace(&certificate, &key).expect("accepted");
    // What was given is the giver's to renew.
    assert_eq!(certificates.renew_if_due(now + DAY * 360).expect("nothing to do"), Renewal::Current);
}
