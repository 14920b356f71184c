//! A request as the rule it takes. In: method, path and query. Out: the rule, as an API server would ask for it; none for
//! paths that are no resources (discovery, health).

use http::{Method, Uri};

use super::{Resource, Rules, Verb};

impl Rules {
    /// What has to be allowed for this request. An apply is a patch, and where it makes the object also a create, which
    /// the request does not tell.
    ///
    /// ```
    /// use konverge::Rules;
    /// let path = "/apis/apps/v1/namespaces/default/deployments/web/status".parse().unwrap();
    /// assert_eq!(Rules::of_request(&http::Method::PATCH, &path).to_string(), "patch deployments.apps/status");
    /// ```
    pub fn of_request(method: &Method, uri: &Uri) -> Rules {
        let mut rules = Rules::new();
        if let Some((resource, cluster, verb)) = read(method, uri) {
            rules.put(resource, cluster, [verb]);
        }
        rules
    }
}

fn read(method: &Method, uri: &Uri) -> Option<(Resource, bool, Verb)> {
    let mut words = uri.path().split('/').filter(|word| !word.is_empty());
    let group = match words.next()? {
        "api" => "",
        "apis" => words.next()?,
        _ => return None,
    };
    let _version = words.next()?;
    let rest: Vec<&str> = words.collect();
    // Namespaces are objects themselves, and places of others.
    let (namespaced, rest) = match rest.as_slice() {
        ["namespaces", _, part @ ("status" | "finalize")] => return of_part(group, "namespaces", part, method),
        ["namespaces", _, rest @ ..] if !rest.is_empty() => (true, rest),
        rest => (false, rest),
    };
    let (plural, named) = match rest {
        [plural] => (*plural, false),
        [plural, _] => (*plural, true),
        [plural, _, part @ ..] => {
            let (resource, _, verb) = of_part(group, plural, &part.join("/"), method)?;
            return Some((resource, !namespaced, verb));
        }
        [] => return None,
    };
    let resource = Resource { group: group.to_owned(), name: plural.to_owned() };
    // A list over all namespaces looks like one of a kind without namespaces: who declared the kind knows better.
    let cluster = !namespaced && named;
    Some((resource, cluster, verb(method, named, watches(uri))?))
}

fn of_part(group: &str, plural: &str, part: &str, method: &Method) -> Option<(Resource, bool, Verb)> {
    let resource = Resource { group: group.to_owned(), name: format!("{plural}/{part}") };
    Some((resource, true, verb(method, true, false)?))
}

fn verb(method: &Method, named: bool, watches: bool) -> Option<Verb> {
    Some(match (method.as_str(), named) {
        ("GET" | "HEAD", _) if watches => Verb::Watch,
        ("GET" | "HEAD", true) => Verb::Get,
        ("GET" | "HEAD", false) => Verb::List,
        ("POST", _) => Verb::Create,
        ("PUT", _) => Verb::Update,
        ("PATCH", _) => Verb::Patch,
        ("DELETE", true) => Verb::Delete,
        ("DELETE", false) => Verb::DeleteCollection,
        _ => return None,
    })
}

fn watches(uri: &Uri) -> bool {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    pairs.any(|pair| matches!(pair, "watch" | "watch=1" | "watch=true"))
}
