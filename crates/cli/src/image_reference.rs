//! The names of images. In: what a person wrote. Out: its parts, or what is wrong with it. Pure. The grammar is that of the registries
//! (`distribution/reference`), so what is accepted here is accepted by engines, by kubelets and by containerd.

/// `ghcr.io/acme/shop:1.0.0`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageReference {
    /// `ghcr.io`; nothing means Docker Hub.
    registry: Option<String>,
    /// `acme/shop`
    path: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// Why a text is no name of an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no name of an image: {why}; write it as ghcr.io/acme/shop:1.0.0")]
pub(crate) struct BadReference {
    text: String,
    why: &'static str,
}

/// The longest name without tag and digest.
const LONGEST: usize = 255;

impl ImageReference {
    /// Reads a name.
    pub(crate) fn parse(text: &str) -> Result<Self, BadReference> {
        let bad = |why| BadReference { text: text.to_owned(), why };
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        let (name, tag) = match rest.rsplit_once(':') {
            // The colon before a slash is that of a port.
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (rest, None),
        };
        let (registry, path) = match name.split_once('/') {
            Some((first, path)) if is_registry(first) => (Some(first), path),
            _ => (None, name),
        };
        if registry.is_some_and(|registry| !is_host(registry)) {
            return Err(bad("what stands before the first slash is no address of a registry"));
        }
        if !path.split('/').all(is_component) {
            return Err(bad(
                "between slashes it takes small letters and digits, with single dots, underscores or dashes between them",
            ));
        }
        if name.len() > LONGEST {
            return Err(bad("it is too long"));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(bad("a tag takes up to 128 letters, digits, dots, underscores and dashes"));
        }
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(bad("a digest is sha256: and 64 digits from 0 to f"));
        }
        let owned = |part: Option<&str>| part.map(str::to_owned);
        Ok(Self { registry: owned(registry), path: path.to_owned(), tag: owned(tag), digest: owned(digest) })
    }

    /// Whether it names one image for good.
    pub(crate) fn has_digest(&self) -> bool {
        self.digest.is_some()
    }

    /// Whether it is a name alone, to which a tag can be added.
    pub(crate) fn is_plain(&self) -> bool {
        self.tag.is_none() && self.digest.is_none()
    }

    /// The whole name, by which containerd and kubelets know an image: with the registry that is meant if none is named.
    pub(crate) fn full(&self) -> String {
        let registry = self.registry.as_deref().unwrap_or("docker.io");
        let library = if registry == "docker.io" && !self.path.contains('/') { "library/" } else { "" };
        let digest = self.digest.as_ref().map_or_else(String::new, |digest| format!("@{digest}"));
        let tag = match &self.tag {
            Some(tag) => format!(":{tag}"),
            None if self.digest.is_none() => ":latest".to_owned(),
            None => String::new(),
        };
        format!("{registry}/{library}{}{tag}{digest}", self.path)
    }
}

/// Whether the first part of a name is a registry: others are folders of Docker Hub, which have only small letters.
fn is_registry(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.contains(|letter: char| letter.is_ascii_uppercase())
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_label = |label: &str| {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        !label.is_empty() && label.chars().all(is_letter) && !label.starts_with('-') && !label.ends_with('-')
    };
    let ipv6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match ipv6 {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(is_label),
    };
    is_host && port.is_none_or(|port| !port.is_empty() && port.chars().all(|digit| digit.is_ascii_digit()))
}

/// A part of a path: words with `.`, `_`, `__` or any number of dashes between them.
fn is_component(text: &str) -> bool {
    let is_word = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_between = |part: &str| ["", ".", "_", "__"].contains(&part) || part.chars().all(|letter| letter == '-');
    text.starts_with(is_word) && text.ends_with(is_word) && text.split(is_word).all(is_between)
}

fn is_tag(text: &str) -> bool {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.starts_with(is_word)
        && text.len() <= 128
        && text.chars().all(|letter| is_word(letter) || ".-".contains(letter))
}

fn is_digest(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64 && digits.chars().all(|digit| matches!(digit, '0'..='9' | 'a'..='f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = ImageReference::parse(text).map_or_else(|bad| bad.why.to_owned(), |image| image.full());
        assert!(found.starts_with(expect), "{text}: {found}");
    }

    #[test]
    fn names() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        check("webapp:0.1.0", "docker.io/library/webapp:0.1.0");
        check("webapp", "docker.io/library/webapp:latest");
        check("acme/webapp:1", "docker.io/acme/webapp:1");
        check("docker.io/webapp:1", "docker.io/library/webapp:1");
        check("ghcr.io/acme/a/b:1", "ghcr.io/acme/a/b:1");
        check("localhost:5000/a", "localhost:5000/a:latest");
        check("localhost/a:1_B.2-3", "localhost/a:1_B.2-3");
        check("[::1]:5000/a", "[::1]:5000/a:latest");
        check("ACME/a:1", "ACME/a:1");
        check("x/a.b__c-d--e", "docker.io/x/a.b__c-d--e:latest");
        check(&format!("a:1@{digest}"), &format!("docker.io/library/a:1@{digest}"));
        check(&format!("a@{digest}"), &format!("docker.io/library/a@{digest}"));
        for bad in [
            "",
            "a/b:x:y",
            "a//b",
            "ghcr.io/ACME/b:1",
            "-x",
            "a/",
            "/a",
            "a..b",
            "a___b",
            "a b",
            "A",
            "ghcr.io/",
            "a/ü",
        ] {
            check(bad, "between slashes");
        }
        check("a:", "a tag takes");
        check("a:-x", "a tag takes");
        check(&format!("a:{}", "x".repeat(129)), "a tag takes");
        check("x@sha256:12", "a digest is");
        check("x@", "a digest is");
        check("-a.io/b", "what stands before");
        check("a.io:x/b", "what stands before");
        check(&format!("x/{}", "a".repeat(254)), "it is too long");
    }
}
