//! Pods that restart when their configuration changes. In: a ConfigMap or Secret. Out: a checksum of its data, which changes
//! if and only if the data does. The checksum is the same in every version of this crate: an upgrade must not restart pods.

use k8s_openapi::api::core::v1 as core;
use ring::digest::{Context, SHA256};

use super::{ConfigMap, Secret};

/// The annotation of pods that has the checksum.
pub(super) const CHECKSUM: &str = "konverge.dev/config-checksum";

/// Configuration of pods: a [`ConfigMap`] or a [`Secret`], as a builder or as the type that Kubernetes publishes.
pub trait ConfigData {
    /// `ConfigMap` or `Secret`, and its name.
    fn named(&self) -> (&'static str, &str);

    /// Every key with its bytes, in the order of the keys.
    fn entries(&self) -> Vec<(&str, &[u8])>;
}

impl ConfigData for core::ConfigMap {
    fn named(&self) -> (&'static str, &str) {
        ("ConfigMap", self.metadata.name.as_deref().unwrap_or_default())
    }

    fn entries(&self) -> Vec<(&str, &[u8])> {
        let text = self.data.iter().flatten().map(|(key, text)| (key.as_str(), text.as_bytes()));
        let bytes = self.binary_data.iter().flatten().map(|(key, bytes)| (key.as_str(), bytes.0.as_slice()));
        let mut entries: Vec<_> = text.chain(bytes).collect();
        entries.sort_unstable();
        entries
    }
}

impl ConfigData for core::Secret {
    fn named(&self) -> (&'static str, &str) {
        ("Secret", self.metadata.name.as_deref().unwrap_or_default())
    }

    fn entries(&self) -> Vec<(&str, &[u8])> {
        let bytes = self.data.iter().flatten().map(|(key, bytes)| (key.as_str(), bytes.0.as_slice()));
        // What is only written, never read: the server puts it over the data.
        let text = self.string_data.iter().flatten().map(|(key, text)| (key.as_str(), text.as_bytes()));
        let mut entries: Vec<_> = bytes.filter(|(key, _)| !has(&self.string_data, key)).chain(text).collect();
        entries.sort_unstable();
        entries
    }
}

fn has(data: &Option<std::collections::BTreeMap<String, String>>, key: &str) -> bool {
    data.as_ref().is_some_and(|data| data.contains_key(key))
}

impl ConfigData for ConfigMap {
    fn named(&self) -> (&'static str, &str) {
        self.inner().named()
    }

    fn entries(&self) -> Vec<(&str, &[u8])> {
        self.inner().entries()
    }
}

impl ConfigData for Secret {
    fn named(&self) -> (&'static str, &str) {
        self.inner().named()
    }

    fn entries(&self) -> Vec<(&str, &[u8])> {
        self.inner().entries()
    }
}

/// The checksum of the former checksum and of one more object: half of a SHA-256, as 32 hexadecimal digits.
pub(super) fn checksum(before: Option<&str>, config: &impl ConfigData) -> String {
    let mut sum = Context::new(&SHA256);
    // With its length before each part no two lists of parts look the same.
    let mut add = |part: &[u8]| {
        sum.update(&(part.len() as u64).to_be_bytes());
        sum.update(part);
    };
    let (kind, name) = config.named();
    add(before.unwrap_or_default().as_bytes());
    add(kind.as_bytes());
    add(name.as_bytes());
    for (key, value) in config.entries() {
        add(key.as_bytes());
        add(value);
    }
    sum.finish().as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(config: &impl ConfigData) -> String {
        checksum(None, config)
    }

    /// Pods of running clusters have this checksum: another one for the same data would restart all of them.
    #[test]
    fn the_sum_is_the_same_for_ever() {
        assert_eq!(sum(&ConfigMap::new("a").data("k", "v")), "ba8f4eed1a5f635eea4e14de75fcb560");
        assert_eq!(sum(&Secret::new("a").data("k", "v")), "cb84b4df015536627154e41806af3b4f");
    }

    #[test]
    fn the_sum_follows_the_data_and_nothing_else() {
        let map = || ConfigMap::new("a").data("x", "1").data("y", "2");
        let other = ConfigMap::new("a").data("y", "2").data("x", "1").label("team", "red").immutable();
        assert_eq!(sum(&map()), sum(&other));
        assert_eq!(sum(&map()), sum(map().inner()));
        let differs = [
            map().data("x", "2"),
            map().data("z", ""),
            ConfigMap::new("b").data("x", "1").data("y", "2"),
            ConfigMap::new("a").data("x", "1y2"),
            ConfigMap::new("a"),
        ];
        for other in differs {
            assert_ne!(sum(&map()), sum(&other), "{other:?}");
        }
        let secret = Secret::new("a").data("x", "1").data("y", "2");
        assert_ne!(sum(&map()), sum(&secret));
        // What is written as text is read as bytes.
        let text = |secret: &mut core::Secret| secret.string_data = Some([("y".to_owned(), "2".to_owned())].into());
        assert_eq!(sum(&secret), sum(&Secret::new("a").data("x", "1").data("y", "old").patch(text)));
    }
}
