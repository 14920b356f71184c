//! Tests protobuf in both directions. In: the objects that Kubernetes publishes to test its own serialization, each as
//! protobuf and as JSON. Out: whether every object of a served kind decodes to the same JSON, and whether that JSON is
//! encoded to the same bytes.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;
use serde_json::Value;

use konverge_schema::{Budget, ProtobufEncoder, ProtobufError, ProtobufObject};

use crate::source::{Release, is_stable};

/// Kinds of stable versions that are never the body of a request to an API server, so the table leaves them out: options
/// that are query parameters, documents that a server only sends, and messages of webhooks and kubelets.
const NOT_SERVED: [&str; 18] = [
    "admission.k8s.io/v1 AdmissionReview",
    "apidiscovery.k8s.io/v2 APIGroupDiscovery",
    "apiextensions.k8s.io/v1 ConversionReview",
    "v1 CreateOptions",
    "v1 GetOptions",
    "v1 ListOptions",
    "v1 NodeProxyOptions",
    "v1 PatchOptions",
    "v1 PodAttachOptions",
    "v1 PodExecOptions",
    "v1 PodLogOptions",
    "v1 PodPortForwardOptions",
    "v1 PodProxyOptions",
    "v1 PodStatusResult",
    "v1 RangeAllocation",
    "v1 SerializedReference",
    "v1 ServiceProxyOptions",
    "v1 UpdateOptions",
];

/// Decodes the protobuf objects that Kubernetes publishes, encodes them again, and compares both with the originals.
#[derive(Args, Debug)]
pub(crate) struct RoundTrip {
    #[command(flatten)]
    release: Release,
}

/// Compares every object.
pub(crate) fn run(options: &RoundTrip) -> Result<(), String> {
    let mut report = Report::default();
    for folder in options.release.source()?.serialized_objects()? {
        report.folder(&folder)?;
    }
    report.finish()
}

#[derive(Default)]
struct Report {
    equal: usize,
    kinds: BTreeSet<String>,
    /// Kinds of stable versions that the table does not have.
    unknown: BTreeSet<String>,
    problems: Vec<String>,
}

impl Report {
    fn folder(&mut self, folder: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // These are what Kubernetes itself writes after it read an object; no client sends them.
            if name.ends_with(".pb") && !name.contains(".after_roundtrip") {
                files.push(path);
            }
        }
        files.sort();
        files.iter().try_for_each(|file| self.file(file))
    }

    fn file(&mut self, file: &Path) -> Result<(), String> {
        let shown = file.display();
        let body = std::fs::read(file).map_err(|error| format!("{shown}: {error}"))?;
        // An object of an earlier release can lose fields that the current one does not know.
        let after = file.with_extension("after_roundtrip.json");
        let expect = if after.exists() { after } else { file.with_extension("json") };
        let expect = std::fs::read(&expect).map_err(|error| format!("{}: {error}", expect.display()))?;
        let expect: Value = serde_json::from_slice(&expect).map_err(|error| format!("{shown}: {error}"))?;

        let read = ProtobufObject::read(&body).map_err(|error| format!("{shown}: {error}"))?;
        let kind = format!("{} {}", read.api_version, read.kind);
        match read.decode(Budget::unlimited()) {
            Ok(object) if object == expect => {
                self.encode(file, &body, &object)?;
                self.equal += 1;
                self.kinds.insert(kind);
            }
            Ok(object) => self.problems.push(format!("{shown}: {}", difference("", &object, &expect))),
            Err(ProtobufError::UnknownKind { api_version, .. }) => {
                if is_stable(api_version.rsplit('/').next().unwrap_or_default()) {
                    self.unknown.insert(kind);
                }
            }
            Err(error) => self.problems.push(format!("{shown}: {error}")),
        }
        Ok(())
    }

    /// Encodes an object, and compares every byte.
    fn encode(&mut self, file: &Path, body: &[u8], object: &Value) -> Result<(), String> {
        let shown = file.display();
        let after = file.with_extension("after_roundtrip.pb");
        let after = match after.exists() {
            true => Some(std::fs::read(&after).map_err(|error| format!("{}: {error}", after.display()))?),
            false => None,
        };
        let expect = after.as_deref().unwrap_or(body);
        match ProtobufEncoder::default().object(object.to_string().as_bytes()) {
            Ok(encoded) if encoded == expect => {}
            Ok(encoded) => {
                let at =
                    encoded.iter().zip(expect).position(|(a, b)| a != b).unwrap_or(encoded.len().min(expect.len()));
                let near = |bytes: &[u8]| {
                    let near = &bytes[at.saturating_sub(16).min(bytes.len())..(at + 16).min(bytes.len())];
                    near.escape_ascii().to_string()
                };
                let (found, expect) = (near(&encoded), near(expect));
                self.problems
                    .push(format!("{shown}: byte {at} of its protobuf differs: {found}, and should be {expect}"));
            }
            Err(error) => self.problems.push(format!("{shown}: {error}")),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), String> {
        let not_served: BTreeSet<String> = NOT_SERVED.map(str::to_owned).into();
        for kind in self.unknown.difference(&not_served) {
            self.problems.push(format!("{kind}: the table of protobuf messages does not have this kind"));
        }
        for kind in not_served.difference(&self.unknown) {
            self.problems.push(format!("{kind}: NOT_SERVED names a kind that is served, or has no data"));
        }
        if self.equal == 0 {
            self.problems.push("no object of a kind that is served was found".to_owned());
        }
        if self.problems.is_empty() {
            println!(
                "{} objects of {} kinds are equal as protobuf and as JSON, in both directions",
                self.equal,
                self.kinds.len()
            );
            return Ok(());
        }
        Err(self.problems.join("\n"))
    }
}

/// The first place where two values differ.
fn difference(path: &str, found: &Value, expect: &Value) -> String {
    match (found, expect) {
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            let differing = names.into_iter().find(|name| a.get(*name) != b.get(*name));
            match differing.map(|name| (name, a.get(name), b.get(name))) {
                Some((name, Some(a), Some(b))) => difference(&format!("{path}.{name}"), a, b),
                Some((name, None, b)) => format!("{path}.{name} is missing, and is {}", b.unwrap_or(&Value::Null)),
                Some((name, Some(a), None)) => format!("{path}.{name} is {a}, and should be missing"),
                None => format!("{path} is equal"),
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => match (0..a.len()).find(|at| a[*at] != b[*at]) {
            Some(at) => difference(&format!("{path}[{at}]"), &a[at], &b[at]),
            None => format!("{path} is equal"),
        },
        _ => format!("{path} is {found}, and should be {expect}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Go writes it: with the fields that are empty, too.
    const NAMESPACE: &[u8] =
        b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x1b\x0a\x13\x0a\x03dev\x12\0\x1a\0\x22\0\x2a\0\x32\0\
        \x38\0\x42\0\x12\0\x1a\x02\x0a\0\x1a\0\x22\0";

    /// The same without what is empty. It can be read, but is never written so.
    const SHORT: &[u8] = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x07\x0a\x05\x0a\x03dev";

    fn check(files: &[(&str, &[u8])], expect: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        let mut report = Report { unknown: NOT_SERVED.map(str::to_owned).into(), ..Report::default() };
        let problems = report.folder(folder.path()).and_then(|()| report.finish()).err().unwrap_or_default();
        let problems = problems.replace(&format!("{}/", folder.path().display()), "");
        assert_eq!(problems.lines().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn differences_are_found() {
        let json = br#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"dev"},"spec":{},"status":{}}"#;
        let other = br#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"},"spec":{},"status":{}}"#;
        check(&[("a.pb", NAMESPACE), ("a.json", json)], &[]);
        check(&[("a.pb", NAMESPACE), ("a.json", other), ("a.after_roundtrip.json", json)], &[]);
        check(&[("a.pb", SHORT), ("a.json", json), ("a.after_roundtrip.pb", NAMESPACE)], &[]);
        check(
            &[("a.pb", NAMESPACE), ("a.json", other)],
            &["a.pb: .metadata.name is \"dev\", and should be \"x\"", "no object of a kind that is served was found"],
        );
        check(&[("a.txt", b"")], &["no object of a kind that is served was found"]);
        let truncated = &NAMESPACE[..NAMESPACE.len() - 1];
        check(&[("a.pb", truncated), ("a.json", json)], &["a.pb: unexpected EOF"]);
        let unknown = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Nomespace";
        check(
            &[("a.pb", NAMESPACE), ("a.json", json), ("b.pb", unknown), ("b.json", json)],
            &["v1 Nomespace: the table of protobuf messages does not have this kind"],
        );
    }
}
