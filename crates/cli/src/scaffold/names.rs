//! The names that a scaffold is made of. In: what a person typed. Out: the name, or a sentence that says what is wrong with it and
//! what to type instead. Pure.

use konverge_core::{NameRule, check_name};

/// Words that cannot be the name of a module or a crate.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "union", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Names that the scaffolded code uses for something else.
const TAKEN: &[&str] = &[
    "Action",
    "Admission",
    "Box",
    "Clone",
    "Cluster",
    "Condition",
    "Container",
    "Context",
    "Controller",
    "Debug",
    "Default",
    "Deployment",
    "DeploymentObject",
    "Deserialize",
    "Err",
    "Error",
    "Fake",
    "FieldErrors",
    "From",
    "Into",
    "JsonSchema",
    "Kind",
    "None",
    "NotAdmitted",
    "Ok",
    "Operator",
    "Option",
    "Resources",
    "Result",
    "Review",
    "SecurityContext",
    "Serialize",
    "Some",
    "String",
    "ToString",
    "TryFrom",
    "TryInto",
    "Vec",
];

/// Packages that a project cannot have the name of: it depends on them, or cargo keeps the name for itself.
const PACKAGES: &[&str] =
    &["alloc", "build", "core", "deps", "examples", "konverge", "konverge-testkit", "std", "test", "tokio"];

/// Modules that would hide a crate which scaffolded code names.
const CRATES: &[&str] = &["core", "konverge", "std", "tokio"];

/// The longest name of a kind. A plural of it has to be a DNS label of 63 characters.
const LONGEST_KIND: usize = 60;

/// What was typed cannot be used; the sentence says why, and what to type instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadName(String);

/// The name of a project: that of its package, its image and its service account.
pub(crate) fn project_name(text: &str) -> Result<String, BadName> {
    let bad = |why: &str| Err(BadName(format!("{text:?} cannot be the name of a project: {why}")));
    if !check_name(text, NameRule::Label1035, false).is_empty() {
        return bad("use lower case letters, digits and dashes, beginning with a letter, such as --name shop-operator");
    }
    if KEYWORDS.contains(&text) {
        return bad("it is a word of Rust; choose another with --name");
    }
    if PACKAGES.contains(&text) {
        return bad("a package of this name is in use already; choose another with --name");
    }
    Ok(text.to_owned())
}

/// The domain that the groups of a project end with.
pub(crate) fn domain(text: &str) -> Result<String, BadName> {
    let bad = |why: &str| Err(BadName(format!("{text:?} cannot be the domain: {why}")));
    if !check_name(text, NameRule::Subdomain, false).is_empty() {
        return bad("it has to be a DNS name in lower case, such as --domain example.com");
    }
    if !text.contains('.') {
        return bad("a group of custom resources has a dot; use a domain of yours, such as --domain example.com");
    }
    if ["k8s.io", "kubernetes.io"].iter().any(|kept| text == *kept || text.ends_with(&format!(".{kept}"))) {
        return bad("Kubernetes keeps this domain for its own kinds; use a domain of yours");
    }
    Ok(text.to_owned())
}

/// The group without the domain; an empty one means the domain itself.
pub(crate) fn group(text: &str, domain: &str) -> Result<String, BadName> {
    let bad = |why: String| Err(BadName(format!("{text:?} cannot be the group: {why}")));
    if let Some(short) = text.strip_suffix(domain).map(|rest| rest.trim_end_matches('.')) {
        return bad(format!("the domain {domain} is added by itself; pass --group {}", shown(short)));
    }
    if !text.is_empty() && !check_name(text, NameRule::Subdomain, false).is_empty() {
        return bad("it has to be a DNS name in lower case, such as --group cache".into());
    }
    if text.len() + domain.len() > 200 {
        return bad("it is too long".into());
    }
    Ok(text.to_owned())
}

/// An argument as a shell takes it.
fn shown(text: &str) -> &str {
    if text.is_empty() { "\"\"" } else { text }
}

/// A path, an address or a revision of Konverge, which becomes text in manifests and in a Dockerfile.
pub(crate) fn source(text: &str) -> Result<(), BadName> {
    match text.is_empty()
        || text.contains(|letter: char| letter.is_control() || ['"', '\'', '`', '$', '\\'].contains(&letter))
    {
        false => Ok(()),
        true => Err(BadName(format!(
            "{text:?} cannot be the place of Konverge: it has a quote, a backslash, a dollar or a line break, or nothing at all; move the checkout to another path"
        ))),
    }
}

/// A version of an API.
pub(crate) fn version(text: &str) -> Result<String, BadName> {
    match Version::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(BadName(format!(
            "{text:?} cannot be the version: a version is v1alpha1, v1beta1, v1, v2 and so on, such as --version v1alpha1"
        ))),
    }
}

/// The name of a kind.
pub(crate) fn kind(text: &str) -> Result<String, BadName> {
    let bad = |why: String| Err(BadName(format!("{text:?} cannot be the kind: {why}")));
    if !is_camel(text) {
        let example = camel(text).map_or_else(|| "Memcached".into(), fit);
        return bad(format!("a kind begins with a capital and has only letters and digits, such as --kind {example}"));
    }
    if text.len() > LONGEST_KIND {
        return bad(format!("it may have {LONGEST_KIND} characters at most"));
    }
    let module = module(text);
    if KEYWORDS.contains(&module.as_str()) {
        return bad(format!("its module would be called {module}, which is a word of Rust; try {}", fit(text.into())));
    }
    if CRATES.contains(&module.as_str()) {
        return bad(format!("its module would be called {module}, as a crate is; try {}", fit(text.into())));
    }
    if TAKEN.contains(&text) {
        return bad(format!("the code of an operator uses this name for something else; try {}", fit(text.into())));
    }
    Ok(text.to_owned())
}

/// The same name, or one like it that a kind can have.
fn fit(kind: String) -> String {
    let module = module(&kind);
    if KEYWORDS.contains(&module.as_str()) || CRATES.contains(&module.as_str()) {
        return format!("{kind}Resource");
    }
    if TAKEN.contains(&kind.as_str()) { format!("My{kind}") } else { kind }
}

fn is_camel(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric())
}

/// A kind that is in a project already: it may have a name that newer programs refuse, but only one that is fit for paths and code.
pub(crate) fn known_kind(text: &str) -> Result<String, BadName> {
    match is_camel(text) && text.len() <= LONGEST_KIND {
        true => Ok(text.to_owned()),
        false => kind(text),
    }
}

/// The module of a kind that is in a project already.
pub(crate) fn known_module(text: &str) -> Result<String, BadName> {
    let is_name = text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.chars().all(|letter| matches!(letter, 'a'..='z' | '0'..='9' | '_'))
        && !KEYWORDS.contains(&text);
    match is_name {
        true => Ok(text.to_owned()),
        false => {
            Err(BadName(format!("{text:?} cannot be the module of a kind: it is a name of Rust, such as memcached")))
        }
    }
}

/// The plural of a kind, as it is in paths.
pub(crate) fn plural(text: &str) -> Result<String, BadName> {
    if check_name(text, NameRule::Label1035, false).is_empty() {
        return Ok(text.to_owned());
    }
    Err(BadName(format!("{text:?} cannot be the plural: use lower case letters, such as --plural memcacheds")))
}

/// The plural that a kind has by itself: that of the derive.
pub(crate) fn plural_of(kind: &str) -> String {
    let word = kind.to_ascii_lowercase();
    if ["s", "x", "z", "ch", "sh"].iter().any(|end| word.ends_with(end)) {
        return format!("{word}es");
    }
    match word.strip_suffix('y') {
        Some(stem) if !stem.is_empty() && !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ => format!("{word}s"),
    }
}

/// The name of a module for a kind: `WebApp` is `web_app`, `HTTPRoute` is `http_route`.
pub(crate) fn module(kind: &str) -> String {
    let letters: Vec<char> = kind.chars().collect();
    let mut name = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let after_small = at > 0 && !letters[at - 1].is_ascii_uppercase();
        let before_small = at > 0 && letters.get(at + 1).is_some_and(char::is_ascii_lowercase);
        if letter.is_ascii_uppercase() && (after_small || before_small) {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// What somebody probably meant: `web-app` is `WebApp`.
fn camel(text: &str) -> Option<String> {
    let mut name = String::new();
    for part in text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|part| !part.is_empty()) {
        let (first, rest) = part.split_at(1);
        name += &first.to_ascii_uppercase();
        name += rest;
    }
    name.starts_with(|first: char| first.is_ascii_uppercase()).then_some(name)
}

/// A version, ordered as Kubernetes orders them: a stable one is above every beta, and a beta above every alpha.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    stability: Stability,
    major: u32,
    minor: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stability {
    Alpha,
    Beta,
    Stable,
}

impl Version {
    /// Reads `v1beta2`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix('v')?;
        let (major, stability, minor) = match (rest.split_once("alpha"), rest.split_once("beta")) {
            (Some((major, minor)), _) => (major, Stability::Alpha, Some(minor)),
            (_, Some((major, minor))) => (major, Stability::Beta, Some(minor)),
            _ => (rest, Stability::Stable, None),
        };
        let number = |digits: &str| {
            let plain = digits.bytes().all(|digit| digit.is_ascii_digit()) && !digits.starts_with('0');
            digits.parse::<u32>().ok().filter(|_| plain)
        };
        let minor = match minor {
            Some(digits) => number(digits)?,
            None => 0,
        };
        Some(Self { stability, major: number(major)?, minor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(found: Result<String, BadName>, expect: &str) {
        let told = found.unwrap_or_else(|bad| bad.to_string());
        assert!(told.contains(expect) && !expect.is_empty() || told == expect, "{told}\nis not\n{expect}");
    }

    #[test]
    fn projects() {
        check(project_name("memcached-operator"), "memcached-operator");
        check(project_name("Memcached"), "use lower case letters, digits and dashes");
        check(project_name("1st"), "beginning with a letter");
        check(project_name("a.b"), "use lower case letters");
        check(project_name("match"), "it is a word of Rust");
        check(project_name("konverge"), "in use already");
        check(project_name("test"), "in use already");
    }

    #[test]
    fn domains_and_groups() {
        check(domain("example.com"), "example.com");
        check(domain("Example.com"), "a DNS name in lower case");
        check(domain("example"), "has a dot");
        check(domain("my.k8s.io"), "Kubernetes keeps this domain");
        check(domain("notk8s.io"), "notk8s.io");
        check(group("cache", "example.com"), "cache");
        check(group("", "example.com"), "");
        check(group("cache.web", "example.com"), "cache.web");
        check(group("cache.example.com", "example.com"), "is added by itself; pass --group cache");
        check(group("example.com", "example.com"), "pass --group \"\"");
        check(group("Cache", "example.com"), "a DNS name in lower case");
        check(group("cache_web", "example.com"), "a DNS name in lower case");
    }

    #[test]
    fn places_of_konverge() {
        for good in ["../konverge", "/opt/my konverge", "https://example.com/k.git", "0.1", ">=0.1, <2"] {
            assert_eq!(source(good), Ok(()));
        }
        for bad in ["", "a\"b", "a'b", "a\nb", "$HOME/k", "a\\b", "`k`"] {
            let told = source(bad).expect_err(bad).to_string();
            assert!(told.contains("cannot be the place of Konverge"), "{told}");
        }
    }

    #[test]
    fn versions() {
        for good in ["v1", "v2", "v1alpha1", "v10beta11"] {
            check(version(good), good);
        }
        for bad in ["1", "v", "v0", "v01", "v1alpha", "v1gamma1", "v1alpha01", "V1", "v1.2", "v+1", ""] {
            check(version(bad), "a version is v1alpha1, v1beta1, v1, v2");
        }
        let ordered = ["v1alpha1", "v1alpha2", "v2alpha1", "v1beta1", "v1", "v2", "v10"];
        let parsed: Vec<_> = ordered.iter().filter_map(|text| Version::parse(text)).collect();
        assert!(parsed.len() == ordered.len() && parsed.is_sorted(), "{parsed:?}");
    }

    #[test]
    fn kinds() {
        check(kind("Memcached"), "Memcached");
        check(kind("memcached"), "begins with a capital and has only letters and digits, such as --kind Memcached");
        check(kind("web-app"), "such as --kind WebApp");
        // What is suggested can be typed.
        check(kind("self"), "such as --kind SelfResource");
        check(kind("deployment"), "such as --kind MyDeployment");
        check(kind("3D"), "such as --kind Memcached");
        check(kind(""), "such as --kind Memcached");
        check(kind("Größe"), "begins with a capital");
        check(kind("Match"), "its module would be called match, which is a word of Rust; try MatchResource");
        check(kind("Deployment"), "try MyDeployment");
        check(kind("NotAdmitted"), "try MyNotAdmitted");
        check(kind("Konverge"), "its module would be called konverge, as a crate is; try KonvergeResource");
        check(known_kind("Konverge"), "Konverge");
        check(known_kind("../Evil"), "begins with a capital");
        check(known_module("web_app2"), "web_app2");
        for bad in ["../../evil", "a/b", "", "3d", "Shop", "mod"] {
            check(known_module(bad), "cannot be the module of a kind");
        }
        check(kind(&"A".repeat(61)), "60 characters at most");
        check(plural("memcacheds"), "memcacheds");
        check(plural("Memcacheds"), "use lower case letters");
    }

    #[test]
    fn words_made_of_kinds() {
        for (kind, expect_module, expect_plural) in [
            ("Memcached", "memcached", "memcacheds"),
            ("WebApp", "web_app", "webapps"),
            ("HTTPRoute", "http_route", "httproutes"),
            ("S3Bucket", "s3_bucket", "s3buckets"),
            ("Policy", "policy", "policies"),
            ("Gateway", "gateway", "gateways"),
            ("Box2", "box2", "box2s"),
            ("Redis", "redis", "redises"),
        ] {
            assert_eq!((module(kind).as_str(), plural_of(kind).as_str()), (expect_module, expect_plural));
        }
    }
}
