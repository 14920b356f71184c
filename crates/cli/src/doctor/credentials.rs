//! The kubeconfig: files, context, certificates, plugin, server, identity. In: the files, and what the server answers. Out: findings, by pure functions. What is
//! secret in a kubeconfig is never printed.

use std::path::PathBuf;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use konverge::kube::config::Kubeconfig;
use konverge_core::ErrorChain;
use konverge_serve::certificate_expiries;
use serde_json::Value;

use super::checks::{CERTIFICATE, CONTEXT, FILES, IDENTITY, PLUGIN, SERVER};
use super::finding::{Finding, Outcome};
use super::program;
use crate::data_dir::DataDir;
use crate::description::text;
use crate::observer::{Page, Unread};
use crate::remote_cluster::{ClusterArgs, advice};

/// A certificate or token that ends sooner than this is warned of.
const SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

/// What was read of the kubeconfig.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    files: Vec<(PathBuf, FileState)>,
    /// Whether somebody named the files, instead of the one in the home directory.
    is_named: bool,
    /// All that could be read, as one.
    merged: Kubeconfig,
    /// The context that was asked for.
    asked: Option<String>,
    /// The kubeconfig of `konverge dev` here.
    own: Option<PathBuf>,
    /// Whether this is a Pod, which has an account of its own.
    in_pod: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FileState {
    Read,
    Missing,
    Broken(String),
}

/// The parts of a context, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    pub context: String,
    pub server: String,
    pub user: String,
    /// Of the cluster, as JSON.
    cluster: Value,
    /// Of the user, as JSON, with what is secret.
    auth: Value,
}

impl Credentials {
    /// Reads the files that kubectl would read.
    pub(crate) fn gather(args: &ClusterArgs) -> Self {
        let named = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
        let is_named = args.kubeconfig.is_some() || named.is_some();
        let paths: Vec<PathBuf> = match (&args.kubeconfig, named) {
            (Some(path), _) => vec![path.clone()],
            (None, Some(paths)) => std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect(),
            (None, None) => std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect(),
        };
        let own = DataDir::new(crate::args::DATA_DIR.as_ref()).kubeconfig();
        let mut credentials = Self {
            asked: args.context.clone(),
            is_named,
            own: std::path::absolute(own).ok().filter(|own| own.is_file()),
            in_pod: std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
            ..Self::default()
        };
        for path in paths {
            let state = match regular(&path).map(|()| Kubeconfig::read_from(&path)) {
                _ if !path.exists() => FileState::Missing,
                Err(why) => FileState::Broken(why),
                Ok(Ok(found)) => match std::mem::take(&mut credentials.merged).merge(found) {
                    Ok(merged) => {
                        credentials.merged = merged;
                        FileState::Read
                    }
                    Err(error) => FileState::Broken(ErrorChain(&error).to_string()),
                },
                Ok(Err(error)) => FileState::Broken(ErrorChain(&error).to_string()),
            };
            credentials.files.push((path, state));
        }
        credentials
    }

    /// Whether there is anything to reach a cluster with.
    pub(crate) fn is_usable(&self) -> bool {
        if self.files.iter().any(|(_, state)| matches!(state, FileState::Broken(_))) {
            return false;
        }
        self.entries().is_ok() || (self.in_pod && self.files.iter().all(|(_, state)| *state == FileState::Missing))
    }

    /// What is secret in it, so that it can be searched for elsewhere.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let mut secrets = Vec::new();
        for user in &self.merged.auth_infos {
            let auth = serde_json::to_value(&user.auth_info).unwrap_or_default();
            for field in ["password", "token", "client-key-data"] {
                secrets.extend(auth[field].as_str().map(str::to_owned));
            }
            for (_, value) in auth["auth-provider"]["config"].as_object().into_iter().flatten() {
                secrets.extend(value.as_str().map(str::to_owned));
            }
            for variable in auth["exec"]["env"].as_array().into_iter().flatten() {
                secrets.extend(variable["value"].as_str().map(str::to_owned));
            }
        }
        secrets
    }

    /// The context with its cluster and user, or what is missing.
    pub(crate) fn entries(&self) -> Result<Entries, String> {
        let name = match self.asked.clone().or_else(|| self.merged.current_context.clone()) {
            Some(name) if !name.is_empty() => name,
            _ => return Err("no context is chosen: there is no current-context".to_owned()),
        };
        let Some(context) = self.merged.contexts.iter().find(|one| one.name == name) else {
            return Err(format!("there is no context {name:?}"));
        };
        let context = context.context.clone().ok_or_else(|| format!("the context {name:?} is empty"))?;
        let cluster = self.merged.clusters.iter().find(|one| one.name == context.cluster);
        let cluster = cluster.and_then(|one| one.cluster.as_ref());
        let cluster = cluster.ok_or_else(|| {
            format!("the context {name:?} names the cluster {:?}, which is not there", context.cluster)
        })?;
        let user = context.user.unwrap_or_default();
        let auth = self.merged.auth_infos.iter().find(|one| one.name == user).and_then(|one| one.auth_info.as_ref());
        if auth.is_none() && !user.is_empty() {
            return Err(format!("the context {name:?} names the user {user:?}, who is not there"));
        }
        Ok(Entries {
            context: name,
            server: cluster.server.clone().unwrap_or_default(),
            user,
            cluster: serde_json::to_value(cluster).unwrap_or_default(),
            auth: serde_json::to_value(auth).unwrap_or_default(),
        })
    }

    /// Findings that need no server.
    pub(crate) fn judge(&self, now: Timestamp) -> Vec<Finding> {
        let entries = self.entries();
        let contexts: Vec<&str> = self.merged.contexts.iter().map(|one| one.name.as_str()).collect();
        let mut findings = vec![files(&self.files, self.is_named, self.own.as_ref(), self.in_pod)];
        if findings[0].outcome != Outcome::Ok && contexts.is_empty() {
            return findings;
        }
        findings.push(context(&entries, &contexts));
        if let Ok(entries) = &entries {
            findings.push(certificates(&entries.ends(), now));
            findings.push(plugin(&entries.auth, program::is_there));
        }
        findings
    }
}

/// Whether a file can be read twice without waiting for anybody: here, and by what talks to the server.
fn regular(path: &std::path::Path) -> Result<(), String> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err("it is a directory".to_owned()),
        Ok(metadata) if !metadata.is_file() => {
            Err("it is a pipe or a device; write what it gives to a file first".to_owned())
        }
        // What else is wrong is told by whoever reads it.
        _ => Ok(()),
    }
}

/// Something that ends: what it is, and when; none if it cannot be read.
type End = (&'static str, Result<Timestamp, String>);

impl Entries {
    /// When certificates and the token end.
    fn ends(&self) -> Vec<End> {
        let mut ends = Vec::new();
        let pem = |value: &Value, data: &str, file: &str| match (value[data].as_str(), value[file].as_str()) {
            (Some(data), _) => Some(STANDARD.decode(data.trim()).map_err(|error| error.to_string())),
            (None, Some(path)) => Some(std::fs::read(path).map_err(|error| format!("{path}: {error}"))),
            (None, None) => None,
        };
        let time = |at: SystemTime| Timestamp::try_from(at).map_err(|error| error.to_string());
        let first = |pem: Vec<u8>| {
            let none = || Err("it is no certificate in PEM".to_owned());
            certificate_expiries(&pem).first().map_or_else(none, |at| time(*at))
        };
        // Clients trust any of several CAs, so the last to end counts.
        let last = |pem: Vec<u8>| {
            let none = || Err("it is no certificate in PEM".to_owned());
            certificate_expiries(&pem).iter().max().map_or_else(none, |at| time(*at))
        };
        if let Some(pem) = pem(&self.auth, "client-certificate-data", "client-certificate") {
            ends.push(("the client certificate", pem.and_then(first)));
        }
        if let Some(pem) = pem(&self.cluster, "certificate-authority-data", "certificate-authority") {
            ends.push(("the CA", pem.and_then(last)));
        }
        if let Some(end) = self.auth["token"].as_str().and_then(token_end) {
            ends.push(("the token", Ok(end)));
        }
        ends
    }
}

/// When a token ends, if it says so.
fn token_end(token: &str) -> Option<Timestamp> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims["exp"].as_i64()?).ok()
}

fn files(files: &[(PathBuf, FileState)], is_named: bool, own: Option<&PathBuf>, in_pod: bool) -> Finding {
    let names = |is_it: fn(&FileState) -> bool| {
        let found = files.iter().filter(|(_, state)| is_it(state)).map(|(path, _)| path.display().to_string());
        found.collect::<Vec<_>>().join(", ")
    };
    if let Some((path, FileState::Broken(why))) = files.iter().find(|(_, state)| matches!(state, FileState::Broken(_)))
    {
        return FILES
            .problem(format!("{} cannot be read: {why}", path.display()), &["kubectl config view --raw=false"]);
    }
    let (read, missing) = (names(|state| *state == FileState::Read), names(|state| *state == FileState::Missing));
    match (read.is_empty(), missing.is_empty()) {
        (true, _) if in_pod => FILES.ok("none: this is a Pod, and its service account is used"),
        (true, _) => {
            let mend = own.map_or_else(
                || "`konverge dev` starts a cluster on this machine; KUBECONFIG or --kubeconfig names the file of another one".to_owned(),
                |own| format!("export KUBECONFIG={}   (that of `konverge dev` here)", own.display()),
            );
            match is_named {
                true => FILES.problem(format!("there is no kubeconfig: {missing} is not there"), &[&mend]),
                // Whoever has no cluster needs no file.
                false => FILES.not_checked(format!("there is no kubeconfig ({missing}); {mend}")),
            }
        }
        (false, true) => FILES.ok(read),
        (false, false) => FILES.warning(
            format!("{read}; {missing} is named by KUBECONFIG and is not there"),
            &["take it out of KUBECONFIG"],
        ),
    }
}

fn context(entries: &Result<Entries, String>, contexts: &[&str]) -> Finding {
    match entries {
        Ok(entries) if entries.server.is_empty() => {
            CONTEXT.problem(format!("the cluster of {:?} has no server", entries.context), &["kubectl config view"])
        }
        Ok(Entries { context, server, user, .. }) => {
            let user = if user.is_empty() { "nobody" } else { user };
            CONTEXT.ok(format!("{context}: {server} as {user}"))
        }
        Err(why) => {
            let known =
                format!("--context NAME, or `kubectl config use-context NAME`; there is {}", contexts.join(", "));
            let mend = if contexts.is_empty() { "kubectl config get-contexts" } else { &known };
            CONTEXT.problem(why.clone(), &[mend])
        }
    }
}

fn certificates(ends: &[End], now: Timestamp) -> Finding {
    let mend = &["log in again, or get a new kubeconfig from whoever runs the cluster"];
    if ends.is_empty() {
        return CERTIFICATE.ok("none is used, or none says when it ends");
    }
    for (what, end) in ends {
        match end {
            Err(why) => return CERTIFICATE.problem(format!("{what} cannot be read: {why}"), mend),
            Ok(end) if *end <= now => {
                return CERTIFICATE.problem(format!("{what} has expired at {}", date(*end)), mend);
            }
            Ok(_) => {}
        }
    }
    let soon = ends
        .iter()
        .find_map(|(what, end)| end.as_ref().ok().filter(|end| end.duration_since(now) < SOON).map(|end| (what, end)));
    match soon {
        Some((what, end)) => CERTIFICATE.warning(format!("{what} expires at {}", date(*end)), mend),
        None => {
            let said =
                ends.iter().filter_map(|(what, end)| Some(format!("{what} until {}", date(*end.as_ref().ok()?))));
            CERTIFICATE.ok(said.collect::<Vec<_>>().join(", "))
        }
    }
}

/// To the second.
pub(super) fn date(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

fn plugin(auth: &Value, is_there: impl Fn(&str) -> bool) -> Finding {
    if let Some(name) = auth["auth-provider"]["name"].as_str() {
        let what = format!("the auth-provider {name:?} was taken out of Kubernetes 1.26");
        return PLUGIN.problem(what, &["get a kubeconfig with an exec plugin from your provider"]);
    }
    let exec = &auth["exec"];
    let Some(command) = exec["command"].as_str() else { return PLUGIN.ok("none is used") };
    if is_there(command) {
        return PLUGIN.ok(format!("{command} is there"));
    }
    let hint = text(&exec["installHint"]);
    let mend = if hint.is_empty() { format!("install {command}, or put it on the PATH") } else { hint };
    PLUGIN.problem(format!("{command}, which fetches credentials, is not on the PATH"), &[&mend])
}

/// Whether the server answers `GET /version`.
pub(crate) fn server(url: &str, answer: &Result<Page, Unread>) -> Finding {
    let is_version =
        |page: &Page| serde_json::from_str::<Value>(&page.text).is_ok_and(|it| it["gitVersion"].is_string());
    let why = match answer {
        Ok(page) if page.code == 200 && is_version(page) => return SERVER.ok(format!("{url} answers")),
        // It is there, and does not know who asks; see `identity`.
        Ok(page) if matches!(page.code, 401 | 403) => return SERVER.ok(format!("{url} answers")),
        Ok(page) if page.code < 500 => {
            let mend = "is it the address of the cluster? A proxy or a login page answers like this; `curl -vk` with the address and /version shows who it is";
            let what = format!("{url} answers /version with {}, and not as an API server does", page.code);
            return SERVER.problem(what, &[mend]);
        }
        Ok(page) => {
            return SERVER.problem(
                format!("{url} answers {}", page.code),
                &[&format!("kubectl get --raw '/readyz?verbose' --server {url}")],
            );
        }
        Err(error) => error.to_string(),
    };
    SERVER.problem(format!("{url} does not answer: {why}"), &[advice(&why)])
}

/// No client could be made for the server of the kubeconfig.
pub(crate) fn no_client(why: &str) -> Finding {
    SERVER.problem(
        format!("the kubeconfig cannot be used: {why}"),
        &[
            "`kubectl config view --minify` shows the server and how credentials are fetched",
            "or choose another context with --context",
        ],
    )
}

/// Answers that were not understood; nothing if all were.
pub(crate) fn garbled(url: &str, answers: Vec<String>) -> Option<Finding> {
    let count = answers.len();
    let what = match count {
        0 => return None,
        1 => format!("{url} gave an answer that is none of an API server"),
        _ => format!("{url} gave {count} answers that are none of an API server"),
    };
    let mend = "is a proxy between this machine and the cluster? `kubectl get --raw` with the path shows the answer";
    Some(SERVER.problem(what, &[mend]).with(answers))
}

/// Who asks, by a SelfSubjectReview.
pub(crate) fn identity(review: &Result<Value, Unread>) -> Finding {
    match review {
        Ok(review) => {
            let user = &review["status"]["userInfo"];
            let groups: Vec<String> = user["groups"].as_array().into_iter().flatten().map(text).collect();
            let who = format!("{} ({})", text(&user["username"]), groups.join(", "));
            match user["username"] == "system:anonymous" {
                true => IDENTITY
                    .warning(format!("nobody: {who}"), &["the kubeconfig has no credential for this server; log in"]),
                false => IDENTITY.ok(who),
            }
        }
        Err(Unread::Absent(_)) => IDENTITY.not_checked("the server is too old to say who asks"),
        Err(Unread::Forbidden(why)) => IDENTITY.problem(
            format!("the server does not accept the credentials: {why}"),
            &["log in again, or get a new kubeconfig from whoever runs the cluster"],
        ),
        Err(error) => IDENTITY.not_checked(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Outcome::{NotChecked, Ok as Fine, Problem, Warning};
    use serde_json::json;

    #[track_caller]
    fn check(found: Finding, outcome: Outcome, part: &str) {
        assert_eq!(found.outcome, outcome, "{found:?}");
        assert!(found.what.contains(part), "{found:?}");
        assert_eq!(found.mend.is_empty(), matches!(outcome, Fine | NotChecked), "what to do is said: {found:?}");
    }

    #[test]
    fn which_files() {
        let file = |path: &str, state: FileState| (PathBuf::from(path), state);
        let (read, missing) = (|path: &str| file(path, FileState::Read), |path: &str| file(path, FileState::Missing));
        check(files(&[read("/a")], true, None, false), Fine, "/a");
        check(files(&[read("/a"), missing("/b")], true, None, false), Warning, "/b is named by KUBECONFIG");
        check(files(&[missing("/b")], true, None, false), Problem, "there is no kubeconfig: /b");
        check(files(&[missing("/b")], false, None, false), NotChecked, "`konverge dev` starts a cluster");
        check(files(&[missing("/b")], true, None, true), Fine, "this is a Pod");
        check(
            files(&[read("/a"), file("/c", FileState::Broken("bad".into()))], true, None, false),
            Problem,
            "/c cannot be read: bad",
        );
        let own = files(&[missing("/b")], true, Some(&"/p/.konverge/kubeconfig".into()), false);
        assert!(own.mend[0].starts_with("export KUBECONFIG=/p/.konverge/kubeconfig"), "{own:?}");
    }

    #[test]
    fn which_context() {
        let credentials = |asked: Option<&str>, yaml: &str| Credentials {
            merged: Kubeconfig::from_yaml(yaml).unwrap(),
            asked: asked.map(str::to_owned),
            ..Credentials::default()
        };
        let yaml = "clusters: [{name: c, cluster: {server: 'https://x'}}]
users: [{name: u, user: {token: abc}}]
contexts: [{name: good, context: {cluster: c, user: u}}, {name: lost, context: {cluster: d, user: u}}, {name: who, context: {cluster: c, user: v}}]
current-context: good";
        let found = |asked: Option<&str>, yaml: &str| context(&credentials(asked, yaml).entries(), &["good", "lost"]);
        check(found(None, yaml), Fine, "good: https://x as u");
        check(found(Some("bad"), yaml), Problem, "there is no context \"bad\"");
        check(found(Some("lost"), yaml), Problem, "names the cluster \"d\"");
        check(found(Some("who"), yaml), Problem, "names the user \"v\"");
        check(found(None, "contexts: []"), Problem, "no context is chosen");
        assert_eq!(credentials(None, yaml).secrets(), ["abc"]);
    }

    #[test]
    fn what_ends_when() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |text: &str| Ok(text.parse::<Timestamp>().unwrap());
        check(certificates(&[], now), Fine, "none");
        check(certificates(&[("the CA", at("2027-01-01T00:00:00Z"))], now), Fine, "the CA until 2027-01-01");
        check(certificates(&[("the CA", at("2026-01-03T00:00:00Z"))], now), Warning, "the CA expires at 2026-01-03");
        let (late, over) = (("the CA", at("2026-01-03T00:00:00Z")), ("the token", at("2025-12-31T00:00:00Z")));
        check(certificates(&[late, over], now), Problem, "the token has expired at 2025-12-31");
        check(certificates(&[("the CA", Err("no PEM".into()))], now), Problem, "no PEM");
        let claims = URL_SAFE_NO_PAD.encode(r#"{"exp":1767225600}"#);
        assert_eq!(token_end(&format!("x.{claims}.y")), Some(now));
        assert_eq!((token_end("abc"), token_end("a.b.c")), (None, None));
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(["a".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2025, 6, 1);
        let pem = STANDARD.encode(params.self_signed(&key).unwrap().pem());
        let entries = Entries { auth: json!({"client-certificate-data": pem}), ..Entries::default() };
        check(certificates(&entries.ends(), now), Problem, "the client certificate has expired at 2025-06-01");
        let entries = Entries { auth: json!({"client-certificate": "/nonexistent"}), ..Entries::default() };
        check(certificates(&entries.ends(), now), Problem, "/nonexistent: ");
    }

    #[test]
    fn plugins_and_servers() {
        let there = |name: &str| name == "aws";
        check(plugin(&json!({"token": "x"}), there), Fine, "none");
        check(plugin(&json!({"exec": {"command": "aws"}}), there), Fine, "aws is there");
        let missing = plugin(&json!({"exec": {"command": "gke", "installHint": "gcloud install"}}), there);
        assert_eq!(missing.mend, ["gcloud install"]);
        check(missing, Problem, "gke, which fetches credentials");
        check(plugin(&json!({"auth-provider": {"name": "gcp"}}), there), Problem, "taken out");
        let page = |code: u16| Ok(Page { code, date: None, text: String::new(), is_cut: false });
        let failed = |why: &str| Err(Unread::Failed(why.to_owned()));
        let said = |code: u16, text: &str| Ok(Page { code, date: None, text: text.to_owned(), is_cut: false });
        check(server("https://x", &said(200, r#"{"gitVersion": "v1.36.0"}"#)), Fine, "answers");
        check(server("https://x", &said(200, "<html>log in</html>")), Problem, "with 200, and not as an API server");
        check(server("https://x", &page(302)), Problem, "with 302, and not as an API server");
        check(server("https://x", &page(404)), Problem, "with 404, and not as an API server");
        check(no_client("no credentials came"), Problem, "no credentials came");
        assert_eq!(garbled("https://x", Vec::new()), None);
        check(garbled("https://x", vec!["a".into(), "b".into()]).expect("two"), Problem, "2 answers");
        check(server("https://x", &page(401)), Fine, "answers");
        check(server("https://x", &page(503)), Problem, "503");
        for (why, part) in [
            ("invalid peer certificate: UnknownIssuer", "CA"),
            ("dns error", "host name"),
            ("Connection refused", "nobody listens"),
            ("no answer within 10 s", "VPN"),
        ] {
            let found = server("https://x", &failed(why));
            assert!(found.mend[0].contains(part), "{found:?}");
            check(found, Problem, why);
        }
        let review = |name: &str| Ok(json!({"status": {"userInfo": {"username": name, "groups": ["a", "b"]}}}));
        check(identity(&review("alice")), Fine, "alice (a, b)");
        check(identity(&review("system:anonymous")), Warning, "nobody");
        check(identity(&Err(Unread::Forbidden("Unauthorized".into()))), Problem, "Unauthorized");
        check(identity(&Err(Unread::Absent("404".into()))), NotChecked, "too old");
    }
}
