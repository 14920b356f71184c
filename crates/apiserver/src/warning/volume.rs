//! Volumes: plugins that no longer work, fractions of bytes, and files of one volume that hide each other.

use serde_json::Value;

use konverge_core::FieldPath;

use super::{annotation, fraction, list, node, text};

/// Volume plugins that are gone, and since when.
const GONE: [(&str, &str); 8] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
];
const RBD: (&str, &str) = ("rbd", "deprecated in v1.28, non-functional in v1.31+");

const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const STORAGE_CLASS_OLD: &str = "deprecated since v1.8; use \"storageClassName\" attribute instead";
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// The volumes of a pod.
pub(super) fn of_pod(at: &FieldPath, volumes: &[Value], out: &mut Vec<String>) {
    for (index, volume) in volumes.iter().enumerate() {
        let at = at.index(index);
        for (name, why) in GONE {
            // Kubernetes prints one of them in Go's spelling.
            let shown = if name == "storageos" { "storageOS" } else { name };
            // Claims of ephemeral volumes come in the order of the original's checks.
            if name == "cephfs" {
                claim_template(&at, volume, out);
            }
            if !volume[name].is_null() {
                out.push(format!("{}: {why}", at.child(shown)));
            }
        }
        if !volume[RBD.0].is_null() {
            out.push(format!("{}: {}", at.child(RBD.0), RBD.1));
        }
    }
    volumes.iter().for_each(|volume| overlaps(volume, out));
}

fn claim_template(at: &FieldPath, volume: &Value, out: &mut Vec<String>) {
    let spec = &volume["ephemeral"]["volumeClaimTemplate"]["spec"];
    claim_spec(&at.child("ephemeral").child("volumeClaimTemplate").child("spec"), spec, out);
}

pub(super) fn claim(claim: &Value, out: &mut Vec<String>) {
    if annotation(claim, STORAGE_CLASS).is_some() {
        out.push(format!("metadata.annotations[{STORAGE_CLASS}]: {STORAGE_CLASS_OLD}"));
    }
    claim_spec(&FieldPath::new("spec"), &claim["spec"], out);
}

pub(super) fn claim_spec(at: &FieldPath, spec: &Value, out: &mut Vec<String>) {
    for part in ["requests", "limits"] {
        fraction(&at.child("resources").child(part).key("storage"), &spec["resources"][part]["storage"], out);
    }
}

pub(super) fn persistent_volume(volume: &Value, out: &mut Vec<String>) {
    let annotations = [
        (STORAGE_CLASS, STORAGE_CLASS_OLD),
        (MOUNT_OPTIONS, "deprecated since v1.31; use \"mountOptions\" attribute instead"),
    ];
    for (name, why) in annotations {
        if annotation(volume, name).is_some() {
            out.push(format!("metadata.annotations[{name}]: {why}"));
        }
    }
    let spec = &volume["spec"];
    if spec["persistentVolumeReclaimPolicy"] == "Recycle" {
        out.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach \
             is to use dynamic provisioning."
                .to_owned(),
        );
    }
    let at = FieldPath::new("spec").child("nodeAffinity").child("required").child("nodeSelectorTerms");
    for (index, term) in list(&spec["nodeAffinity"]["required"]["nodeSelectorTerms"]).iter().enumerate() {
        node::term(&at.index(index), term, false, out);
    }
    for name in ["cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd"] {
        let why = GONE.iter().chain([&RBD]).find(|(known, _)| *known == name).map(|(_, why)| *why);
        let shown = if name == "storageos" { "storageOS" } else { name };
        if let Some(why) = why.filter(|_| !spec[name].is_null()) {
            out.push(format!("spec.{shown}: {why}"));
        }
    }
}

/// A path in a volume, and which source it is from.
#[derive(Clone, PartialEq)]
struct SourcePath {
    path: String,
    source: String,
}

impl SourcePath {
    fn shown(&self) -> String {
        let Self { path, source } = self;
        if source.is_empty() { format!("{path:?}") } else { format!("{path:?} ({source})") }
    }

    fn hides(&self, other: &Self) -> bool {
        let inside = |one: &str, other: &str| format!("{one}/").starts_with(&format!("{other}/"));
        !self.path.is_empty()
            && !other.path.is_empty()
            && (inside(&self.path, &other.path) || inside(&other.path, &self.path))
    }
}

/// Files of one volume that would be written to the same place.
fn overlaps(volume: &Value, out: &mut Vec<String>) {
    let name = text(&volume["name"]);
    let plain = [
        (&volume["configMap"], format!("ConfigMap {:?}", text(&volume["configMap"]["name"]))),
        (&volume["secret"], format!("Secret {:?}", text(&volume["secret"]["secretName"]))),
        (&volume["downwardAPI"], "DownwardAPI".to_owned()),
    ];
    for (source, shown) in plain {
        collide(name, &shown, &items(source, ""), out);
    }
    let mut paths = Vec::new();
    for source in list(&volume["projected"]["sources"]) {
        if source.as_object().is_none_or(|fields| fields.is_empty()) {
            out.push(format!("volume {name:?} (Projected) has no sources provided"));
        }
        paths.extend(projected(source));
    }
    collide(name, "Projected", &paths, out);
}

fn projected(source: &Value) -> Vec<SourcePath> {
    let named = |kind: &str, name: &Value| format!("{kind} {:?}", text(name));
    let one = |path: &Value, source: String| SourcePath { path: trimmed(path), source };
    let token = &source["serviceAccountToken"];
    let (bundle, certificate) = (&source["clusterTrustBundle"], &source["podCertificate"]);
    if source["configMap"]["items"].is_array() {
        items(&source["configMap"], &named("ConfigMap", &source["configMap"]["name"]))
    } else if source["secret"]["items"].is_array() {
        items(&source["secret"], &named("Secret", &source["secret"]["name"]))
    } else if source["downwardAPI"]["items"].is_array() {
        items(&source["downwardAPI"], "DownwardAPI")
    } else if token.is_object() {
        vec![one(&token["path"], "ServiceAccountToken".to_owned())]
    } else if bundle.is_object() {
        let name = if bundle["name"].is_string() { &bundle["name"] } else { &bundle["signerName"] };
        vec![one(&bundle["path"], named("ClusterTrustBundle", name))]
    } else {
        let files = [
            ("certificateChainPath", "PodCertificate chain"),
            ("keyPath", "PodCertificate key"),
            ("credentialBundlePath", "PodCertificate credential bundle"),
        ];
        let set = files.into_iter().filter(|(field, _)| !text(&certificate[*field]).is_empty());
        set.map(|(field, shown)| one(&certificate[field], shown.to_owned())).collect()
    }
}

fn items(source: &Value, shown: &str) -> Vec<SourcePath> {
    let items = list(&source["items"]).iter();
    items.map(|item| SourcePath { path: trimmed(&item["path"]), source: shown.to_owned() }).collect()
}

fn trimmed(path: &Value) -> String {
    text(path).trim_end_matches('/').to_owned()
}

fn collide(volume: &str, shown: &str, paths: &[SourcePath], out: &mut Vec<String>) {
    for (at, path) in paths.iter().enumerate() {
        for other in paths[..at].iter().filter(|other| path.hides(other)) {
            let (path, other) = (path.shown(), other.shown());
            out.push(format!("volume {volume:?} ({shown}): overlapping paths: {path} with {other}"));
        }
    }
}
