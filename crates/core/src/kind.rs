//! Group, version and kind: how the API names what an object is.

use std::fmt;

/// A group and a version: `apps/v1`, or `v1` for the core group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    /// The group; empty for core.
    pub group: String,
    /// The version.
    pub version: String,
}

impl GroupVersion {
    /// Reads an `apiVersion`.
    ///
    /// ```
    /// use konverge_core::GroupVersion;
    /// assert_eq!(GroupVersion::parse("apps/v1").unwrap().group, "apps");
    /// assert_eq!(GroupVersion::parse("v1").unwrap().group, "");
    /// assert!(GroupVersion::parse("a/b/c").is_none());
    /// ```
    pub fn parse(api_version: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if version.is_empty() || version.contains('/') {
            return None;
        }
        Some(Self { group: group.to_owned(), version: version.to_owned() })
    }

    /// The kind `kind` of this group and version.
    pub fn with_kind(self, kind: &str) -> GroupVersionKind {
        GroupVersionKind { group: self.group, version: self.version, kind: kind.to_owned() }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(&self.version) } else { write!(f, "{}/{}", self.group, self.version) }
    }
}

/// What an object says it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    /// The group; empty for core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

impl GroupVersionKind {
    /// The `apiVersion` an object of this kind carries.
    pub fn api_version(&self) -> String {
        self.group_version().to_string()
    }

    /// Group and version alone.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }
}

impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, Kind={}", self.group_version(), self.kind)
    }
}
