//! What is common to objects of `meta.k8s.io`: the metadata of an object or a list without the rest. In: an
//! object. Out: the bytes of a PartialObjectMetadata, or of a list of them.

use serde::Serialize;
use serde_json::Value;

/// A version of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MetaVersion {
    /// `meta.k8s.io/v1`
    #[default]
    V1,
    /// `meta.k8s.io/v1beta1`, which old clients ask for.
    V1Beta1,
}

/// The metadata of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMeta<'a> {
    /// The revision that the list shows.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource_version: &'a str,
    /// Where the next part starts; empty in the last part.
    #[serde(rename = "continue", skip_serializing_if = "str::is_empty")]
    pub continue_token: &'a str,
    /// How many objects later parts have, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<u64>,
}

impl MetaVersion {
    /// The `apiVersion`.
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

impl ListMeta<'_> {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write(out, self);
    }
}

/// The PartialObjectMetadata of an object.
pub(crate) fn partial_metadata(object: &Value, version: MetaVersion) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    write_metadata(&mut out, object, version);
    out
}

/// What comes before the items of a PartialObjectMetadataList.
pub(crate) fn open_list(out: &mut Vec<u8>, meta: &ListMeta<'_>, version: MetaVersion) {
    open(out, "PartialObjectMetadataList", version);
    out.extend_from_slice(b",\"metadata\":");
    meta.write(out);
    out.extend_from_slice(b",\"items\":[");
}

pub(crate) fn write_metadata(out: &mut Vec<u8>, object: &Value, version: MetaVersion) {
    open(out, "PartialObjectMetadata", version);
    out.extend_from_slice(b",\"metadata\":");
    match object.get("metadata") {
        Some(metadata @ Value::Object(_)) => write(out, metadata),
        _ => out.extend_from_slice(b"{}"),
    }
    out.push(b'}');
}

/// The start of an object of `meta.k8s.io`, up to its version.
pub(crate) fn open(out: &mut Vec<u8>, kind: &str, version: MetaVersion) {
    out.extend_from_slice(b"{\"kind\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"apiVersion\":\"");
    out.extend_from_slice(version.api_version().as_bytes());
    out.push(b'"');
}

pub(crate) fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("JSON values and our own structs always serialise into memory");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn keeps_metadata_only() {
        for (object, version, expect) in [
            (
                json!({"kind": "Pod", "metadata": {"name": "a"}, "spec": {}}),
                MetaVersion::V1,
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}}),
            ),
            (
                json!({"kind": "Pod"}),
                MetaVersion::V1Beta1,
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1beta1", "metadata": {}}),
            ),
        ] {
            assert_eq!(parsed(&partial_metadata(&object, version)), expect);
        }
    }

    #[test]
    fn lists_metadata() {
        let objects = [json!({"metadata": {"name": "a"}, "spec": 1}), json!({"metadata": {"name": "b"}})];
        let meta = ListMeta { resource_version: "7", continue_token: "next", remaining_item_count: Some(3) };
        let list = |objects: &[Value], meta: &ListMeta<'_>| {
            let mut out = Vec::new();
            open_list(&mut out, meta, MetaVersion::V1);
            for (at, object) in objects.iter().enumerate() {
                out.extend_from_slice(if at > 0 { b"," } else { b"" });
                write_metadata(&mut out, object, MetaVersion::V1);
            }
            out.extend_from_slice(b"]}");
            parsed(&out)
        };
        let empty = list(&[], &ListMeta::default());
        let list = list(&objects, &meta);
        assert_eq!(list["kind"], "PartialObjectMetadataList");
        assert_eq!(list["metadata"], json!({"resourceVersion": "7", "continue": "next", "remainingItemCount": 3}));
        assert_eq!(list["items"][1]["metadata"], json!({"name": "b"}));
        assert_eq!((&empty["items"], &empty["metadata"]), (&json!([]), &json!({})));
    }
}
