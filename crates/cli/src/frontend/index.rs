//! `/`: what there is. In: the table of pages, and what this server is. Out: JSON for `curl`, and for a browser a plain
//! page with the same and the live list of the objects of one kind. Nothing is loaded from elsewhere.

use std::sync::Arc;

use http::{HeaderValue, Response, header};
use jiff::Timestamp;
use konverge::testing::TestWebhooks;
use serde_json::{Value, json};

use konverge_apiserver::Body;
use konverge_core::Status;

use super::query::Query;
use super::{api_client::Reader, json_page, kinds, plain};
use crate::operator_crds::{Defined, Definitions};

const TEMPLATE: &str = include_str!("page.html");

/// A browser may run what is in the page and talk to this server, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Something to ask for.
pub(super) struct Page {
    pub path: &'static str,
    pub what: &'static str,
    /// What comes after the address in an example.
    example: &'static str,
}

impl Page {
    /// Whether it answers AdmissionReviews.
    pub(super) fn is_review(&self) -> bool {
        matches!(self.path, "/validate" | "/mutate")
    }

    /// A command that asks for it.
    fn attempt(&self, curl: &str, url: &str) -> String {
        let (path, options) = self.example.split_once(' ').unwrap_or((self.example, ""));
        format!("{curl} '{url}{path}' {options}").trim_end().to_owned()
    }
}

const fn page(path: &'static str, what: &'static str, example: &'static str) -> Page {
    Page { path, what, example }
}

/// The pages beside the API.
pub(super) const PAGES: [Page; 11] = [
    page("/", "What there is: JSON, or in a browser a page, on which ?kind= chooses what is listed", "/"),
    page("/readyz", "Whether the server and the operators work; also /healthz and /livez", "/readyz?verbose"),
    page("/crd", "The definition of what the operators at work are for, as kubectl apply takes it", "/crd"),
    page("/crds", "All definitions that are installed", "/crds"),
    page(
        "/watch",
        "Objects as they change, as Server-Sent Events; ?kind= and ?namespace= choose, Last-Event-ID resumes",
        "/watch?kind=Deployment",
    ),
    page(
        "/events",
        "What happened, newest first; filters: namespace, object, type, severity, since, limit",
        "/events?severity=Warning&since=10m",
    ),
    page(
        "/validate",
        "Reviews of the operators' validating webhooks: POST an AdmissionReview",
        "/validate --json @review.json",
    ),
    page("/mutate", "The same with the webhooks that fill in defaults", "/mutate --json @review.json"),
    page("/leader", "Who leads: this process for its own operators, and the holder of each Lease", "/leader"),
    page("/permissions", "Which rights users have, and which of them they used; ?user= chooses", "/permissions"),
    page("/metrics", "Metrics of the server, the controllers and the operators, for Prometheus", "/metrics"),
];

/// Kinds to look at that every server has.
const BUILT_IN: [(&str, &str); 3] = [("Deployment", "deployments.apps"), ("Pod", "pods"), ("Job", "jobs.batch")];

/// What the API has for an operator's kind, whose name stands where `{}` is; `kubectl` shows the rest.
const OPERATIONS: [(&str, &str, &str); 6] = [
    ("GET", "", "List {}"),
    ("POST", "", "Create one; a namespace that does not exist is made"),
    ("GET", "/{name}", "Get one"),
    ("PUT", "/{name}", "Replace one; it need not say which version it replaces"),
    ("PATCH", "/{name}", "Change one: merge patch, JSON patch, server-side apply"),
    ("DELETE", "/{name}", "Delete one, and what belongs to it"),
];

/// What this server is.
#[derive(Clone)]
pub(crate) struct About {
    /// `http://127.0.0.1:3000`
    pub url: String,
    /// `memory`, or where on disk.
    pub storage: String,
    /// The operators that run in this process.
    pub operators: Vec<&'static str>,
    /// The webhooks of these operators.
    pub webhooks: Vec<Arc<TestWebhooks>>,
    /// The operator of the project that is built and run beside it.
    pub project: Option<String>,
    /// What the operators are for.
    pub definitions: Definitions,
    /// When it started.
    pub since: Timestamp,
}

impl About {
    fn describe(&self, paths: &Value) -> Value {
        let pages = PAGES.iter().map(|page| {
            let curl = if page.path == "/watch" { "curl -N" } else { "curl" };
            let method = if page.is_review() { "POST" } else { "GET" };
            json!({"method": method, "path": page.path, "what": page.what,
                   "try": page.attempt(curl, &self.url)})
        });
        let operations = self.definitions.kinds().into_iter().flat_map(|Defined { path, plural, .. }| {
            OPERATIONS.map(|(method, rest, what)| {
                json!({"method": method, "path": format!("{path}{rest}"), "what": what.replace("{}", &plural)})
            })
        });
        json!({
            "name": "konverge dev",
            "version": env!("CARGO_PKG_VERSION"),
            "storage": self.storage,
            "operators": self.operators,
            "project": self.project,
            "since": self.since.to_string(),
            "endpoints": pages.chain(operations).collect::<Vec<_>>(),
            "paths": paths,
        })
    }
}

/// Answers a request for `/crd`.
pub(super) fn definition(about: &About) -> Result<Response<Body>, Status> {
    let manifest = about.definitions.manifest().ok_or_else(|| {
        let why = match &about.project {
            Some(binary) => format!("{binary} has not been built yet, or has no definitions of its own"),
            None => "no operator is at work".to_owned(),
        };
        Status::failure(404, "NotFound", format!("{why}; GET /crds lists what is installed"))
    })?;
    Ok(json_page(&manifest))
}

/// Answers a request for `/`.
pub(super) async fn answer(
    api: &Reader,
    about: &About,
    wanted: &Query,
    accept: Option<&str>,
) -> Result<Response<Body>, Status> {
    // Clients of Kubernetes look for the paths of the API here.
    let paths = api.json("/").await?["paths"].take();
    let description = about.describe(&paths);
    if !accept.is_some_and(|accept| accept.contains("text/html")) {
        return Ok(json_page(&description));
    }
    let shown = Shown::choose(api, &about.definitions, wanted.get("kind")).await?;
    let mut response = plain(200, "text/html; charset=utf-8", html(&description, &shown));
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    Ok(response)
}

/// The kinds a page offers, by their names and the words `/watch` takes, and the one it shows.
struct Shown {
    kind: String,
    word: String,
    /// Where its objects are.
    path: String,
    offered: Vec<(String, String)>,
}

impl Shown {
    /// What was asked for; else what the operators at work are for, or whichever definitions there are, or Deployments.
    async fn choose(api: &Reader, own: &Definitions, asked: Option<&str>) -> Result<Self, Status> {
        let definitions = api.json("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").await?;
        let custom = definitions["items"].as_array().into_iter().flatten().map(|definition| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (text(&definition["spec"]["names"]["kind"]), text(&definition["metadata"]["name"]))
        });
        let mut offered: Vec<(String, String)> = custom.collect();
        let own: Vec<String> = own.kinds().into_iter().map(|kind| kind.name).collect();
        let rank = |name: &str| own.iter().position(|one| one == name).unwrap_or(own.len());
        offered.sort_by_key(|(kind, name)| (rank(name), kind.clone()));
        offered.extend(BUILT_IN.map(|(kind, word)| (kind.to_owned(), word.to_owned())));
        let word = asked.map_or_else(|| offered[0].1.clone(), str::to_owned);
        let found = kinds::find(api, &word).await?;
        Ok(Self { kind: found.kind().to_owned(), word, path: found.path(None)?, offered })
    }

    fn links(&self) -> String {
        let link = |(kind, word): &(String, String)| {
            let current = if *kind == self.kind { " aria-current=\"page\"" } else { "" };
            format!("<a href=\"/?kind={}\"{current}>{}</a>", escape(word), escape(kind))
        };
        self.offered.iter().map(link).collect::<Vec<_>>().join(" ")
    }
}

fn html(description: &Value, shown: &Shown) -> String {
    let text = |value: &Value| escape(value.as_str().unwrap_or_default());
    let rows = description["endpoints"].as_array().into_iter().flatten().map(|row| {
        let example = match row["try"].as_str() {
            Some(line) => format!("<br><code class=\"try\">{}</code>", escape(line)),
            None => String::new(),
        };
        format!(
            "<dt>{} <code>{}</code></dt><dd>{}{example}</dd>\n",
            text(&row["method"]),
            text(&row["path"]),
            text(&row["what"])
        )
    });
    let mut operators: Vec<String> = description["operators"].as_array().into_iter().flatten().map(text).collect();
    operators.extend(description["project"].as_str().map(|binary| format!("{}, yours", escape(binary))));
    TEMPLATE
        .replace("{{version}}", &text(&description["version"]))
        .replace("{{storage}}", &text(&description["storage"]))
        .replace("{{operators}}", &if operators.is_empty() { "none".to_owned() } else { operators.join(", ") })
        .replace("{{kind}}", &escape(&shown.word))
        .replace("{{path}}", &escape(&shown.path))
        .replace("{{title}}", &escape(&shown.kind))
        .replace("{{kinds}}", &shown.links())
        .replace("{{endpoints}}", &rows.collect::<String>())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
