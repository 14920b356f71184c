//! Image references, read as container runtimes read them. In: `nginx`, `gcr.io/shop/web:1.2`, `ubuntu@sha256:…`. Out: the
//! registry and the repository, with what the short form leaves out. Nothing is fetched.

/// The registry of images that name none.
const DOCKER: &str = "docker.io";

/// Where an image comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// The host, with its port if there is one: `docker.io`, `localhost:5000`.
    pub registry: String,
    /// The path in the registry: `library/nginx`.
    pub repository: String,
    pub tag: Option<String>,
    pub digest: Option<String>,
}

impl Image {
    /// Reads a reference. The error says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err("must have a digest such as sha256:… with 64 hexadecimal digits after the @");
        }
        // The first part is a host only if it looks like one; `team/app` is on Docker Hub.
        let (registry, path) = match name.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
            _ => (DOCKER, name),
        };
        let (path, tag) = match path.rsplit_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (path, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err("must have a tag of letters, digits, '_', '.' and '-' after the colon");
        }
        if !is_host(registry) {
            return Err("must begin with the host of a registry, or with the path of the image");
        }
        if !path.split('/').all(is_component) {
            return Err("must have a path of small letters and digits, with '.', '_' or '-' only between them");
        }
        let registry = if registry == "index.docker.io" { DOCKER } else { registry };
        let repository =
            if registry == DOCKER && !path.contains('/') { format!("library/{path}") } else { path.to_owned() };
        let (tag, digest) = (tag.map(str::to_owned), digest.map(str::to_owned));
        Ok(Self { registry: registry.to_owned(), repository, tag, digest })
    }

    /// The last part of the repository: `nginx`.
    pub(crate) fn name(&self) -> &str {
        self.repository.rsplit('/').next().unwrap_or_default()
    }
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let is_word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    algorithm.split(['+', '.', '_', '-']).all(is_word)
        && hex.len() >= 32
        && (algorithm != "sha256" || hex.len() == 64)
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_tag(text: &str) -> bool {
    let is_first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_first && text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        // The colons of an IPv6 address are within brackets.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_ipv6 = || {
        let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (host.split('.').all(is_label) || is_ipv6()) && port.is_none_or(is_port)
}

/// Words of small letters and digits, with `.`, `_`, `__` or hyphens between two of them.
fn is_component(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let between = text.split(|c: char| c.is_ascii() && is_word(c as u8)).filter(|part| !part.is_empty());
    let is_ended = text.bytes().next().is_some_and(is_word) && text.bytes().last().is_some_and(is_word);
    is_ended
        && between.into_iter().all(|part| matches!(part, "." | "_" | "__") || part.bytes().all(|byte| byte == b'-'))
}

#[cfg(test)]
mod tests {
    use super::Image;

    #[test]
    fn references() {
        let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
        let by_digest = format!("ubuntu:22.04@{digest}");
        for (text, expect) in [
            ("nginx", "docker.io library/nginx - -"),
            ("nginx:1.27", "docker.io library/nginx 1.27 -"),
            ("library/ubuntu:22.04", "docker.io library/ubuntu 22.04 -"),
            ("docker.io/ubuntu", "docker.io library/ubuntu - -"),
            ("index.docker.io/library/debian", "docker.io library/debian - -"),
            ("team/app", "docker.io team/app - -"),
            ("gcr.io/shop/web:v1", "gcr.io shop/web v1 -"),
            ("localhost/web", "localhost web - -"),
            ("localhost:5000/a/b:c", "localhost:5000 a/b c -"),
            ("registry:5000/web", "registry:5000 web - -"),
            ("[::1]:5000/web", "[::1]:5000 web - -"),
            (by_digest.as_str(), "docker.io library/ubuntu 22.04 sha256"),
            ("a--b/c__d.e", "docker.io a--b/c__d.e - -"),
        ] {
            let image = Image::parse(text).unwrap();
            let digest = image.digest.as_deref().map_or("-", |digest| &digest[..6]);
            let found =
                format!("{} {} {} {digest}", image.registry, image.repository, image.tag.as_deref().unwrap_or("-"));
            assert_eq!(found, expect, "{text}");
        }
        for (text, expect) in [
            ("", "must have a path"),
            ("nginx:", "must have a tag"),
            ("nginx:a b", "must have a tag"),
            ("Nginx", "must have a path"),
            ("a//b", "must have a path"),
            ("a/-b", "must have a path"),
            ("a/b___c", "must have a path"),
            ("nginx@sha256:12", "must have a digest"),
            ("nginx@", "must have a digest"),
            ("-bad.io/web", "must begin with the host"),
            ("bad.io:x/web", "must begin with the host"),
            ("https://gcr.io/web", "must begin with the host"),
            ("gcr.io/", "must have a path"),
        ] {
            let error = Image::parse(text).unwrap_err();
            assert!(error.starts_with(expect), "{text}: {error}");
        }
    }
}
