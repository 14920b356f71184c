//! The names of images. In: how a container names one. Out: whether a node asks for it each time.

/// `Always` for the tag `latest`, which is also meant by a name without tag and digest; `IfNotPresent` for any other,
/// and for what is no name.
pub(super) fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    // The colon of a registry's port is followed by a slash.
    let (name, tag) = match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (name, None),
    };
    let latest = is_name(name) && digest.is_none_or(is_digest) && tag.map_or(digest.is_none(), |tag| tag == "latest");
    if latest { "Always" } else { "IfNotPresent" }
}

/// Path components after an optional registry, which is told by a dot, a port or by being `localhost`.
fn is_name(name: &str) -> bool {
    let path = match name.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" || host != host.to_lowercase() => path,
        _ => name,
    };
    path.split('/').all(|part| {
        let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        part.starts_with(plain) && part.ends_with(plain) && part.chars().all(|c| plain(c) || "._-".contains(c))
    })
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(kind, hex)| {
        !kind.is_empty() && hex.len() >= 32 && hex.bytes().all(|letter| letter.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_decides() {
        let sha = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let pinned = format!("nginx@{sha}");
        let latest = format!("nginx:latest@{sha}");
        for (image, expect) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.29", "IfNotPresent"),
            ("localhost:5000/nginx", "Always"),
            ("localhost:5000/team/nginx:v1", "IfNotPresent"),
            ("registry.example.com/a/b_c:latest", "Always"),
            (&pinned, "IfNotPresent"),
            (&latest, "Always"),
            ("nginx@sha256:1", "IfNotPresent"),
            ("Nginx", "IfNotPresent"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), expect, "{image}");
        }
    }
}
