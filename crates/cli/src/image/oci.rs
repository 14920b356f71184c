//! An image in the OCI layout, as one tar archive. In: files. Out: the archive, and the digest by which registries know the image. It also has the
//! `manifest.json` by which older versions of `docker load` find their way. The same files give the same bytes.

use std::io::Write;

use flate2::{Compression, GzBuilder};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use crate::tar::Tar;

/// An image of one layer.
pub(super) struct Image<'a> {
    /// `ghcr.io/acme/shop:1.0.0`
    pub name: &'a str,
    pub version: &'a str,
    pub summary: &'a str,
    /// As Go calls it: `amd64`.
    pub architecture: &'a str,
    pub entrypoint: &'a str,
    /// The ports that it says it listens on.
    pub ports: &'a [u16],
    pub files: Vec<ImageFile<'a>>,
}

/// A file of an image.
pub(super) struct ImageFile<'a> {
    /// Without a slash at its beginning.
    pub path: &'a str,
    pub mode: u32,
    pub content: &'a [u8],
}

/// The user of kubebuilder's images, which is nobody's.
const USER: &str = "65532:65532";

/// The beginning of time, by which images with the same content are the same.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// What an archive keeps under its digest.
struct Blob {
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Self {
        Self { digest: sha256(&bytes), bytes }
    }

    fn json(value: &Value) -> Self {
        Self::new(value.to_string().into_bytes())
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": format!("sha256:{}", self.digest), "size": self.bytes.len()})
    }
}

impl Image<'_> {
    /// The archive, and the digest of the image. By its full name containerd, and so a kubelet, finds it.
    pub(super) fn archive(&self, full_name: &str) -> (Vec<u8>, String) {
        let mut files: Vec<&ImageFile<'_>> = self.files.iter().collect();
        files.sort_by_key(|file| file.path);
        let mut layer = Tar::default();
        files.iter().for_each(|file| layer.file(file.path, file.mode, file.content));
        let layer = layer.finish();
        let uncompressed = sha256(&layer);
        let layer = Blob::new(gzip(&layer));
        let config = Blob::json(&json!({
            "architecture": self.architecture, "os": "linux", "created": CREATED,
            "config": {
                "User": USER, "Entrypoint": [self.entrypoint], "WorkingDir": "/",
                "ExposedPorts": self.ports.iter().map(|port| (format!("{port}/tcp"), json!({}))).collect::<Map<_, _>>(),
                "Labels": {
                    "org.opencontainers.image.title": self.repository(),
                    "org.opencontainers.image.version": self.version,
                    "org.opencontainers.image.description": self.summary,
                },
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{uncompressed}")]},
            "history": [{"created": CREATED, "created_by": "konverge build"}],
        }));
        let manifest = Blob::json(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config.descriptor("application/vnd.oci.image.config.v1+json"),
            "layers": [layer.descriptor("application/vnd.oci.image.layer.v1.tar+gzip")],
        }));
        let mut entry = manifest.descriptor("application/vnd.oci.image.manifest.v1+json");
        entry["annotations"] =
            json!({"io.containerd.image.name": full_name, "org.opencontainers.image.ref.name": self.name});
        entry["platform"] = json!({"architecture": self.architecture, "os": "linux"});
        let index = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry],
        });
        let docker = json!([{"Config": config.path(), "RepoTags": [self.name], "Layers": [layer.path()]}]);
        let mut archive = Tar::default();
        archive.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#);
        archive.file("index.json", 0o644, index.to_string().as_bytes());
        archive.file("manifest.json", 0o644, docker.to_string().as_bytes());
        archive.directory("blobs/");
        archive.directory("blobs/sha256/");
        let digest = format!("sha256:{}", manifest.digest);
        let mut blobs = [config, layer, manifest];
        blobs.sort_by(|one, other| one.digest.cmp(&other.digest));
        blobs.iter().for_each(|blob| archive.file(&blob.path(), 0o644, &blob.bytes));
        (archive.finish(), digest)
    }

    fn repository(&self) -> &str {
        let last = self.name.rsplit('/').next().unwrap_or_default();
        last.split([':', '@']).next().unwrap_or_default()
    }
}

fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Without a time and a name in its header.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    // A vector takes everything.
    let _ = writer.write_all(bytes);
    writer.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;
    use crate::tar::tests::read;

    fn image() -> Image<'static> {
        Image {
            name: "ghcr.io/acme/shop:1.0.0",
            version: "1.0.0",
            summary: "Shops",
            architecture: "amd64",
            entrypoint: "/operator",
            ports: &[8080],
            files: vec![
                ImageFile { path: "sbom.cdx.json", mode: 0o644, content: b"{}" },
                ImageFile { path: "operator", mode: 0o755, content: &[1; 5000] },
            ],
        }
    }

    /// Every digest and size in the archive is that of the bytes that it names, down to the files of the image.
    #[test]
    fn an_archive_is_read_back() {
        let full_name = "docker.io/library/shop:1.0.0";
        let (archive, digest) = image().archive(full_name);
        assert_eq!(image().archive(full_name), (archive.clone(), digest.clone()), "the same again");
        let files: BTreeMap<String, Vec<u8>> =
            read(&archive).into_iter().map(|(path, _, content)| (path, content)).collect();
        let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        assert_eq!(parse(&files["oci-layout"])["imageLayoutVersion"], "1.0.0");
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap().to_owned();
            let bytes = files[&format!("blobs/sha256/{digest}")].clone();
            assert_eq!((sha256(&bytes), descriptor["size"].as_u64()), (digest, Some(bytes.len() as u64)));
            bytes
        };
        let index = parse(&files["index.json"]);
        assert_eq!(index["manifests"][0]["digest"], digest);
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], full_name);
        let manifest = parse(&blob(&index["manifests"][0]));
        let config = parse(&blob(&manifest["config"]));
        assert_eq!(
            (&config["config"]["Entrypoint"][0], &config["config"]["User"]),
            (&json!("/operator"), &json!(USER))
        );
        let mut layer = Vec::new();
        flate2::read::GzDecoder::new(blob(&manifest["layers"][0]).as_slice()).read_to_end(&mut layer).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(&layer)));
        let names: Vec<(String, u32)> = read(&layer).into_iter().map(|(path, mode, _)| (path, mode)).collect();
        assert_eq!(names, [("operator".to_owned(), 0o755), ("sbom.cdx.json".to_owned(), 0o644)]);
        let docker = parse(&files["manifest.json"]);
        assert_eq!(docker[0]["RepoTags"], json!(["ghcr.io/acme/shop:1.0.0"]));
        assert!(
            files.contains_key(docker[0]["Config"].as_str().unwrap())
                && files.contains_key(docker[0]["Layers"][0].as_str().unwrap())
        );
    }
}
