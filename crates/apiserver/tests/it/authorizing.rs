//! Who makes a request, and whether that user may. The user comes as a request extension, as a layer in front of the server
//! sets it; the authorizer of these tests writes down what it is asked, and allows only what its rule allows.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use konverge_apiserver::{Attributes, AuthorizationMode, Authorizer, Decision, Options, ResourceAttributes, UserInfo};

use crate::cluster::{CONFIG_MAPS, Cluster};

/// Allows everything to `admin`, and reading to everybody else.
#[derive(Default)]
struct Rules {
    asked: Mutex<Vec<String>>,
}

impl Authorizer for Rules {
    fn authorize<'a>(&'a self, attributes: Attributes<'a>) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        let Attributes { user, verb, path, resource, .. } = attributes;
        let what = match resource {
            None => path.to_owned(),
            Some(ResourceAttributes { group, version, resource, subresource, namespace, name, .. }) => {
                format!("{group}/{version} {resource}/{subresource} {namespace}/{name}")
            }
        };
        self.asked.lock().unwrap().push(format!("{} {verb} {what}", user.name));
        let allowed = user.name == "admin" || matches!(verb, "get" | "list" | "watch");
        Box::pin(async move {
            // An authorizer may wait.
            tokio::task::yield_now().await;
            if allowed {
                Decision::Allow { reason: String::new() }
            } else {
                Decision::Deny { reason: "only admin may write".into() }
            }
        })
    }
}

async fn cluster() -> (Cluster, Arc<Rules>) {
    let rules = Arc::new(Rules::default());
    let cluster =
        Cluster::with(|options| Options { authorization: vec![AuthorizationMode::Other(rules.clone())], ..options })
            .await;
    (cluster, rules)
}

async fn send(cluster: &Cluster, user: Option<UserInfo>, method: &str, path: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let mut request = Request::builder().method(method).uri(path);
    if let (Some(user), Some(extensions)) = (user, request.extensions_mut()) {
        extensions.insert(user);
    }
    let response = cluster.send(request.body(Full::new(body)).unwrap()).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test]
async fn each_request_is_asked_about_once() {
    let (cluster, rules) = cluster().await;
    let admin = || Some(UserInfo::named("admin"));
    let object = json!({"metadata": {"name": "a"}});
    let merge = json!({"data": {"a": "b"}});
    for (user, method, path, body, code, expect) in [
        (admin(), "POST", CONFIG_MAPS, object.clone(), 201, "admin create /v1 configmaps/ default/"),
        (
            None,
            "GET",
            "/api/v1/namespaces/default/configmaps/a",
            json!(null),
            200,
            "system:anonymous get /v1 configmaps/ default/a",
        ),
        (None, "GET", "/api/v1/configmaps", json!(null), 200, "system:anonymous list /v1 configmaps/ /"),
        (
            None,
            "HEAD",
            "/apis/apps/v1/namespaces/x/deployments/d/scale",
            json!(null),
            404,
            "system:anonymous get apps/v1 deployments/scale x/d",
        ),
        (
            None,
            "PUT",
            "/api/v1/namespaces/default/configmaps/a",
            object.clone(),
            403,
            "system:anonymous update /v1 configmaps/ default/a",
        ),
        (None, "DELETE", CONFIG_MAPS, json!(null), 403, "system:anonymous deletecollection /v1 configmaps/ default/"),
        // A list or watch of one name is authorized for that name; a field selector names nothing for other verbs.
        (
            None,
            "GET",
            "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Da",
            json!(null),
            200,
            "system:anonymous list /v1 configmaps/ default/a",
        ),
        (
            None,
            "GET",
            "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Da%2Fb",
            json!(null),
            200,
            "system:anonymous list /v1 configmaps/ default/",
        ),
        (
            None,
            "POST",
            "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Da",
            object.clone(),
            403,
            "system:anonymous create /v1 configmaps/ default/",
        ),
        (
            None,
            "DELETE",
            "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Da",
            json!(null),
            403,
            "system:anonymous deletecollection /v1 configmaps/ default/",
        ),
        (
            None,
            "DELETE",
            "/api/v1/namespaces/default",
            json!(null),
            403,
            "system:anonymous delete /v1 namespaces/ default/default",
        ),
        (
            None,
            "PATCH",
            "/api/v1/namespaces/default/pods/p/status",
            merge,
            403,
            "system:anonymous patch /v1 pods/status default/p",
        ),
        // A resource that is not served is authorized, too, so that an answer does not reveal what exists.
        (
            None,
            "POST",
            "/apis/example.com/v1/widgets",
            json!({}),
            403,
            "system:anonymous create example.com/v1 widgets/ /",
        ),
        (None, "GET", "/version", json!(null), 200, "system:anonymous get /version"),
        (None, "POST", "/version", json!({}), 403, "system:anonymous post /version"),
    ] {
        let (found, answer) = send(&cluster, user, method, path, body).await;
        assert_eq!(found, code, "{method} {path}: {answer}");
        assert_eq!(std::mem::take(&mut *rules.asked.lock().unwrap()), [expect], "{method} {path}");
    }
}

#[tokio::test]
async fn a_denial_names_the_user_and_changes_nothing() {
    let (cluster, _) = cluster().await;
    let bob = UserInfo { groups: vec!["developers".into()], ..UserInfo::named("bob") };
    let object = json!({"metadata": {"name": "a"}});
    let (code, denied) = send(&cluster, Some(bob), "POST", CONFIG_MAPS, object).await;
    let message = "configmaps is forbidden: User \"bob\" cannot create resource \"configmaps\" in API group \"\" in the \
                   namespace \"default\": only admin may write";
    assert_eq!(code, 403);
    assert_eq!(
        denied,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403,
            "reason": "Forbidden", "message": message, "details": {"kind": "configmaps"},
        })
    );
    let (code, list) = send(&cluster, None, "GET", CONFIG_MAPS, Value::Null).await;
    assert_eq!((code, &list["items"]), (200, &json!([])));
}

#[tokio::test]
async fn an_audit_id_is_passed_through_or_made() {
    let cluster = Cluster::new().await;
    for path in [CONFIG_MAPS, "/version", "/nowhere", "/api/v1/namespaces/default/configmaps/absent"] {
        let sent = cluster.ask("GET", path, &[("Audit-ID", "from-the-client")], "").await;
        assert_eq!(sent.header("audit-id"), "from-the-client", "{path}");
        let (one, two) =
            (cluster.ask("GET", path, &[], "").await, cluster.ask("GET", path, &[("audit-id", "")], "").await);
        assert_eq!((one.header("audit-id").len(), two.header("audit-id").len()), (36, 36), "{path}");
        assert_ne!(one.header("audit-id"), two.header("audit-id"), "{path}");
    }
}
