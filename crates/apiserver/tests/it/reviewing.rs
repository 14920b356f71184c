//! Who somebody is and what they may do, as reviews say it; tokens of service accounts from their issue to their end;
//! impersonation; approval of certificate signing requests.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use konverge_apiserver::{AuthorizationMode, Options, UserInfo};

use crate::cluster::Cluster;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ADMIN: &str = "root@system:masters";

async fn cluster() -> Cluster {
    Cluster::with(|options| Options { authorization: vec![AuthorizationMode::Rbac], ..options }).await
}

fn user(text: &str) -> UserInfo {
    let (name, groups) = text.split_once('@').unwrap_or((text, ""));
    let groups = groups.split(',').filter(|group| !group.is_empty()).map(str::to_owned).collect();
    UserInfo { groups, ..UserInfo::named(name) }
}

/// The code and the body of an answer to a user, who is written as `name@group,group`.
async fn ask_with(
    cluster: &Cluster,
    who: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> (u16, Value) {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let mut request = Request::builder().method(method).uri(path).header("content-type", kind).extension(user(who));
    for (name, value) in headers {
        // A header may have any bytes.
        request = request.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    let response = cluster.send(request.body(Full::new(body)).unwrap()).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

async fn ask(cluster: &Cluster, who: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    ask_with(cluster, who, method, path, &[], body).await
}

async fn create(cluster: &Cluster, path: &str, object: Value) -> Value {
    let (code, answer) = ask(cluster, ADMIN, "POST", path, &object).await;
    assert_eq!(code, 201, "{path}: {answer}");
    answer
}

/// Lets a user do what a rule says, everywhere.
async fn allow(cluster: &Cluster, name: &str, who: &str, rule: Value) {
    let group = "rbac.authorization.k8s.io";
    create(cluster, &format!("{RBAC}/clusterroles"), json!({"metadata": {"name": name}, "rules": [rule]})).await;
    let role = json!({"apiGroup": group, "kind": "ClusterRole", "name": name});
    let subjects = json!([{"apiGroup": group, "kind": "User", "name": who}]);
    let binding = json!({"metadata": {"name": name}, "roleRef": role, "subjects": subjects});
    create(cluster, &format!("{RBAC}/clusterrolebindings"), binding).await;
}

#[tokio::test]
async fn reviews_say_what_somebody_may_do() {
    let cluster = cluster().await;
    allow(&cluster, "reader", "alice", json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})).await;
    let reason = r#"RBAC: allowed by ClusterRoleBinding "reader" of ClusterRole "reader" to User "alice""#;
    let allowed = json!({"allowed": true, "reason": reason});
    let pods = |verb: &str| json!({"namespace": "default", "verb": verb, "resource": "pods"});
    let group = "/apis/authorization.k8s.io/v1";
    let own = format!("{group}/selfsubjectaccessreviews");
    let others = format!("{group}/subjectaccessreviews");
    let local = format!("{group}/namespaces/default/localsubjectaccessreviews");
    for (who, path, spec, expect) in [
        ("alice@system:authenticated", &own, json!({"resourceAttributes": pods("get")}), Ok(allowed.clone())),
        (
            "alice@system:authenticated",
            &own,
            json!({"resourceAttributes": pods("list")}),
            Ok(json!({"allowed": false})),
        ),
        ("bob@system:authenticated", &own, json!({"resourceAttributes": pods("get")}), Ok(json!({"allowed": false}))),
        (ADMIN, &others, json!({"user": "alice", "resourceAttributes": pods("get")}), Ok(allowed.clone())),
        (
            ADMIN,
            &others,
            json!({"user": "bob", "groups": ["system:masters"], "resourceAttributes": pods("get")}),
            Ok(json!({"allowed": true})),
        ),
        (
            ADMIN,
            &others,
            json!({"user": "bob", "nonResourceAttributes": {"path": "/healthz", "verb": "get"}}),
            Ok(json!({"allowed": false})),
        ),
        (ADMIN, &local, json!({"user": "alice", "resourceAttributes": pods("get")}), Ok(allowed)),
        (
            "alice@system:authenticated",
            &others,
            json!({"user": "bob"}),
            Err(
                "subjectaccessreviews.authorization.k8s.io is forbidden: User \"alice\" cannot create resource \"subjectaccessreviews\" in API group \"authorization.k8s.io\" at the cluster scope",
            ),
        ),
        (
            ADMIN,
            &own,
            json!({}),
            Err(
                ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
            ),
        ),
        (
            ADMIN,
            &others,
            json!({"resourceAttributes": pods("get")}),
            Err(
                ".authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": at least one of user or group must be specified",
            ),
        ),
        (
            ADMIN,
            &local,
            json!({"user": "a", "resourceAttributes": {"namespace": "other", "verb": "get"}}),
            Err(
                ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes.namespace: Invalid value: \"other\": must match metadata.namespace",
            ),
        ),
    ] {
        let (code, answer) = ask(&cluster, who, "POST", path, &json!({"spec": spec})).await;
        match expect {
            Ok(status) => assert_eq!((code, &answer["status"], &answer["spec"]), (201, &status, &spec), "{who} {path}"),
            Err(message) => assert_eq!(answer["message"], message, "{who} {path} {spec}"),
        }
    }
    let rules = format!("{group}/selfsubjectrulesreviews");
    let (code, answer) = ask(&cluster, "alice", "POST", &rules, &json!({"spec": {"namespace": "default"}})).await;
    assert_eq!(code, 403, "no group of alice may ask: {answer}");
    let (code, answer) =
        ask(&cluster, "alice@system:authenticated", "POST", &rules, &json!({"spec": {"namespace": "default"}})).await;
    assert_eq!(code, 201, "{answer}");
    let found = answer["status"]["resourceRules"].as_array().unwrap();
    assert!(found.contains(&json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]})), "{answer}");
    assert!(
        !answer["status"]["nonResourceRules"].as_array().unwrap().is_empty() && answer["status"]["incomplete"] == false
    );
    let (code, answer) = ask(&cluster, ADMIN, "POST", &rules, &json!({"spec": {}})).await;
    assert_eq!((code, &answer["message"]), (400, &json!("no namespace on request")));
    let whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, answer) = ask(&cluster, "alice@dev,system:authenticated", "POST", whoami, &json!({})).await;
    let expect = json!({"userInfo": {"username": "alice", "groups": ["dev", "system:authenticated"]}});
    assert_eq!((code, &answer["status"]), (201, &expect));
}

/// The user of a token, as the listener finds out.
async fn authenticate(cluster: &Cluster, token: &str) -> Result<UserInfo, u16> {
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    cluster.server.authenticate(Ok(None), "/api", &headers).await.map_err(|status| status.code)
}

async fn token(cluster: &Cluster, account: &str, spec: Value) -> String {
    let made = create(cluster, &format!("{ACCOUNTS}/{account}/token"), json!({"spec": spec})).await;
    made["status"]["token"].as_str().unwrap().to_owned()
}

/// What a TokenReview says of a token.
async fn review(cluster: &Cluster, token: &str, audiences: Value) -> Value {
    let spec = json!({"token": token, "audiences": audiences});
    create(cluster, "/apis/authentication.k8s.io/v1/tokenreviews", json!({"spec": spec})).await["status"].clone()
}

#[tokio::test]
async fn a_token_ends_with_what_it_is_bound_to() {
    let cluster = cluster().await;
    create(&cluster, ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let reference =
        |kind: &str, name: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name}});
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}],
    }});
    let pods = "/api/v1/namespaces/default/pods";
    for (plural, path, object) in [
        ("Secret", secrets, json!({"metadata": {"name": "p"}})),
        ("Pod", pods, pod),
        ("Node", "/api/v1/nodes", json!({"metadata": {"name": "p"}})),
    ] {
        create(&cluster, path, object.clone()).await;
        let bound = token(&cluster, "robot", reference(plural, "p")).await;
        let user = authenticate(&cluster, &bound).await.unwrap();
        assert_eq!(user.name, "system:serviceaccount:default:robot");
        assert_eq!(user.extra.contains_key("authentication.kubernetes.io/pod-name"), plural == "Pod");
        assert_eq!(user.extra.contains_key("authentication.kubernetes.io/node-name"), plural == "Node");
        ask(&cluster, ADMIN, "DELETE", &format!("{path}/p?gracePeriodSeconds=0"), &Value::Null).await;
        assert_eq!(authenticate(&cluster, &bound).await, Err(401), "{plural} is gone");
        let status = review(&cluster, &bound, Value::Null).await;
        assert!(status["error"].as_str().unwrap().contains("service account token has been invalidated"), "{status}");
        // Another object of the same name is not the same.
        create(&cluster, path, object).await;
        assert_eq!(authenticate(&cluster, &bound).await, Err(401), "{plural} is another one");
    }
    let unbound = token(&cluster, "robot", json!({})).await;
    let groups = authenticate(&cluster, &unbound).await.unwrap().groups;
    assert_eq!(groups, ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
    ask(&cluster, ADMIN, "DELETE", &format!("{ACCOUNTS}/robot"), &Value::Null).await;
    assert_eq!(authenticate(&cluster, &unbound).await, Err(401));
    create(&cluster, ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    assert_eq!(authenticate(&cluster, &unbound).await, Err(401), "the account is another one");
}

#[tokio::test]
async fn a_token_is_for_its_audience_and_its_time() {
    let cluster = cluster().await;
    create(&cluster, ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    let own = token(&cluster, "robot", json!({"expirationSeconds": 600})).await;
    let other = token(&cluster, "robot", json!({"audiences": ["vault"]})).await;
    assert!(authenticate(&cluster, &own).await.is_ok());
    assert_eq!(authenticate(&cluster, &other).await, Err(401), "it is for vault");
    let issuer = "https://kubernetes.default.svc.cluster.local";
    let status = review(&cluster, &own, Value::Null).await;
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!([issuer])));
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:robot");
    assert_eq!(review(&cluster, &other, json!(["vault", "more"])).await["audiences"], json!(["vault"]));
    let refused = review(&cluster, &other, Value::Null).await;
    assert!(refused["error"].as_str().unwrap().contains("is invalid for the target audiences"), "{refused}");
    assert!(refused.get("authenticated").is_none());

    // Clocks may differ by a minute.
    cluster.world.pass(Duration::from_secs(659));
    assert!(authenticate(&cluster, &own).await.is_ok());
    cluster.world.pass(Duration::from_secs(2));
    assert_eq!(authenticate(&cluster, &own).await, Err(401));
    let expired = review(&cluster, &own, Value::Null).await;
    assert!(expired["error"].as_str().unwrap().contains("service account token has expired"), "{expired}");
    // A server with another key does not believe it.
    let stranger = self::cluster().await;
    create(&stranger, ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    assert_eq!(authenticate(&stranger, &token(&cluster, "robot", json!({})).await).await, Err(401));
}

#[tokio::test]
async fn what_token_requests_are_refused() {
    let cluster = cluster().await;
    create(&cluster, ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    create(&cluster, "/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}})).await;
    let bound = |kind: &str, name: &str, uid: &str| json!({"spec": {"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid}}});
    for (account, sent, code, expect) in [
        ("absent", json!({}), 404, "serviceaccounts \"absent\" not found"),
        (
            "robot",
            json!({"spec": {"expirationSeconds": 60}}),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes",
        ),
        (
            "robot",
            json!({"metadata": {"name": "other"}}),
            422,
            "TokenRequest.authentication.k8s.io \"robot\" is invalid: metadata.name: Invalid value: \"other\": must match the service account name if specified",
        ),
        ("robot", bound("Secret", "absent", ""), 404, "secrets \"absent\" not found"),
        (
            "robot",
            bound("Secret", "s", "1"),
            409,
            "Operation cannot be fulfilled on Secret \"s\": the UID in the bound object reference (1) does not match the UID in record. The object might have been deleted and then recreated",
        ),
        ("robot", bound("ConfigMap", "s", ""), 400, "cannot bind token to object of type /v1, Kind=ConfigMap"),
        (
            "robot",
            json!({"kind": "Pod"}),
            400,
            "the kind in the data (Pod) does not match the expected kind (TokenRequest)",
        ),
        (
            "robot",
            json!([]),
            400,
            "TokenRequest in version \"v1\" cannot be handled as a TokenRequest: json: cannot unmarshal array into Go value of type v1.TokenRequest",
        ),
        (
            "robot",
            json!({"metadata": {"namespace": "kube-system"}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "robot",
            json!({"metadata": []}),
            400,
            "TokenRequest in version \"v1\" cannot be handled as a TokenRequest: json: cannot unmarshal array into Go struct field TokenRequest.metadata of type v1.ObjectMeta",
        ),
    ] {
        let (found, answer) = ask(&cluster, ADMIN, "POST", &format!("{ACCOUNTS}/{account}/token"), &sent).await;
        assert_eq!((found, answer["message"].as_str().unwrap()), (code, expect), "{sent}");
    }
}

#[tokio::test]
async fn the_keys_of_tokens_are_published() {
    let cluster = cluster().await;
    let robot = "system:serviceaccount:default:robot@system:serviceaccounts";
    let (code, document) = ask(&cluster, robot, "GET", "/.well-known/openid-configuration", &Value::Null).await;
    assert_eq!((code, &document["id_token_signing_alg_values_supported"]), (200, &json!(["ES256"])));
    assert!(document["jwks_uri"].as_str().unwrap().ends_with("/openid/v1/jwks"), "{document}");
    let (code, keys) = ask(&cluster, robot, "GET", "/openid/v1/jwks", &Value::Null).await;
    assert_eq!((code, &keys["keys"][0]["kty"], keys["keys"][0].get("d")), (200, &json!("EC"), None));
    let (code, _) = ask(&cluster, "alice@system:authenticated", "GET", "/openid/v1/jwks", &Value::Null).await;
    assert_eq!(code, 403);
}

#[tokio::test]
async fn who_may_acts_as_another_user() {
    let cluster = cluster().await;
    let whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    allow(
        &cluster,
        "legacy",
        "alice",
        json!({"apiGroups": [""], "resources": ["users", "groups", "serviceaccounts"], "verbs": ["impersonate"]}),
    )
    .await;
    allow(&cluster, "limited", "bob", json!({"apiGroups": ["authentication.k8s.io"], "resources": ["users"], "resourceNames": ["carol"], "verbs": ["impersonate:user-info"]})).await;
    allow(&cluster, "limited-on", "bob", json!({"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["impersonate-on:user-info:create"]})).await;
    let carol = ("impersonate-user", "carol");
    let denied = |who: &str, verb: &str, what: &str| {
        let resource = what.split('.').next().unwrap();
        let group = what.split_once('.').map_or("", |(_, group)| group);
        format!(
            "{what} is forbidden: User \"{who}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" at the cluster scope"
        )
    };
    let review = "selfsubjectreviews.authentication.k8s.io";
    for (who, headers, expect) in [
        (ADMIN, vec![carol], Ok("carol system:authenticated")),
        (ADMIN, vec![carol, ("impersonate-group", "dev"), ("impersonate-group", "ops")], Ok("carol dev ops system:authenticated")),
        (ADMIN, vec![("impersonate-user", "jürgen"), ("impersonate-group", "prüfer")], Ok("jürgen prüfer system:authenticated")),
        (ADMIN, vec![carol, ("impersonate-group", "system:masters")], Ok("carol system:masters system:authenticated")),
        (ADMIN, vec![("impersonate-user", "system:serviceaccount:a:b")], Ok("system:serviceaccount:a:b system:serviceaccounts system:serviceaccounts:a system:authenticated")),
        (ADMIN, vec![("impersonate-user", "system:anonymous")], Err((403, denied("system:anonymous", "create", review)))),
        ("alice", vec![carol], Ok("carol system:authenticated")),
        ("alice", vec![carol, ("impersonate-uid", "7")], Err((403, denied("alice", "impersonate-on:user-info:create", review)))),
        ("bob", vec![carol], Ok("carol system:authenticated")),
        ("bob", vec![("impersonate-user", "dave")], Err((403, "users.authentication.k8s.io \"dave\" is forbidden: User \"bob\" cannot impersonate:user-info resource \"users\" in API group \"authentication.k8s.io\" at the cluster scope".to_owned()))),
        ("eve@system:authenticated", vec![carol], Err((403, denied("eve", "impersonate-on:user-info:create", review)))),
        (ADMIN, vec![("impersonate-group", "dev")], Err((400, "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"dev\"}, Extra:map[string][]string(nil)} without impersonating a user name".to_owned()))),
    ] {
        let (code, answer) = ask_with(&cluster, who, "POST", whoami, &headers, &json!({})).await;
        let info = &answer["status"]["userInfo"];
        let groups = info["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let shown = std::iter::once(info["username"].as_str().unwrap_or_default()).chain(groups).collect::<Vec<_>>().join(" ");
        let found = if code == 201 { Ok(shown) } else { Err((code, answer["message"].as_str().unwrap().to_owned())) };
        assert_eq!(found, expect.map(str::to_owned), "{who} {headers:?}");
    }
    let extra =
        [carol, ("impersonate-extra-example.com%2fscopes", "a"), ("impersonate-extra-example.com%2fscopes", "b")];
    let (code, answer) = ask_with(&cluster, ADMIN, "POST", whoami, &extra, &json!({})).await;
    assert_eq!((code, &answer["status"]["userInfo"]["extra"]), (201, &json!({"example.com/scopes": ["a", "b"]})));
}

/// A request in PEM that is signed with its key, and what looks like a certificate; both in base64.
const CERTIFICATE_REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlINE1JR2dBZ0VBTUQ0eERqQU1CZ05WQkFNTUJXRnNhV05sTVJN\
    d0VRWURWUVFLREFwa1pYWmxiRzl3WlhKegpNUmN3RlFZRFZRUUtEQTV6ZVhOMFpXMDZiV0Z6ZEdWeWN6QlpNQk1HQnlxR1NNNDlB\
    Z0VHQ0NxR1NNNDlBd0VICkEwSUFCSWE5NjZsM2wxZDM1aFowNS81Wjh2cmFxdHpRQjhaNFhoOEhCMkNwQzJubXlVcGR5b3JJUGRX\
    OFRhRnMKYTU2QUgrWWlDS0FtYkVaVVQwZ05Nd2JSbkl1Z0FEQUtCZ2dxaGtqT1BRUURBZ05IQURCRUFpQjExa0Q4UUZxTwprbkVZ\
    NWhJVXIrSEk3SDExSnIvQjM3WnNCcEZCVHZQamRRSWdPKzVlZ0JKVTNSTDF3RmQ3TlY4M05NelF0UHpNCk1FcHJVTGpHdnFqKzZr\
    az0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";
const CERTIFICATE: &str =
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BY3dBREFBQXdFQQotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg==";

#[tokio::test]
async fn a_certificate_is_asked_for_and_approved() {
    let cluster = cluster().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = json!({"metadata": {"name": "a"}, "spec": {
        "request": CERTIFICATE_REQUEST, "signerName": "example.com/s", "usages": ["client auth"], "username": "somebody else",
    }});
    let (code, made) = ask(&cluster, "root@system:masters,dev", "POST", path, &request).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        (&made["spec"]["username"], &made["spec"]["groups"]),
        (&json!("root"), &json!(["system:masters", "dev"]))
    );
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "r", "message": "m"});
    let conditions = |list: Value| json!({"status": {"conditions": list}});
    let approval = format!("{path}/a/approval");
    let patch = async |path: &str, body: Value| ask(&cluster, ADMIN, "PATCH", path, &body).await;
    let (code, status) = patch(&format!("{path}/a/status"), conditions(json!([condition("Approved")]))).await;
    assert_eq!(code, 422, "{status}");
    assert!(status["message"].as_str().unwrap().contains("updates may not add a condition of type \"Approved\""));
    let (code, approved) = patch(&approval, conditions(json!([condition("Approved")]))).await;
    assert_eq!(code, 200, "{approved}");
    let times = &approved["status"]["conditions"][0];
    assert!(times["lastUpdateTime"].is_string() && times["lastTransitionTime"].is_string(), "{approved}");
    let (code, refused) = patch(&approval, conditions(json!([]))).await;
    assert_eq!(code, 422);
    assert!(refused["message"].as_str().unwrap().contains("updates may not remove a condition of type \"Approved\""));
    let (code, refused) = patch(&approval, conditions(json!([condition("Approved"), condition("Denied")]))).await;
    assert_eq!(code, 422);
    assert!(refused["message"].as_str().unwrap().contains("mutually exclusive"), "{refused}");
    // An approval changes nothing else, and a status keeps the approval.
    let (_, kept) =
        patch(&approval, json!({"spec": {"signerName": "other/s"}, "status": {"certificate": CERTIFICATE}})).await;
    assert_eq!((&kept["spec"]["signerName"], kept["status"].get("certificate")), (&json!("example.com/s"), None));
    let (code, signed) = patch(&format!("{path}/a/status"), json!({"status": {"certificate": CERTIFICATE}})).await;
    assert_eq!((code, &signed["status"]["certificate"]), (200, &json!(CERTIFICATE)), "{signed}");
    assert_eq!(signed["status"]["conditions"][0]["type"], "Approved");

    // The right to write approvals is not the right to approve for every signer.
    let writes = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["*"], "verbs": ["create", "get", "update", "patch"]});
    allow(&cluster, "approver", "alice", writes).await;
    let other = json!({"metadata": {"name": "b"}, "spec": {"request": CERTIFICATE_REQUEST, "signerName": "example.com/s", "usages": ["any"]}});
    create(&cluster, path, other).await;
    let approval = format!("{path}/b/approval");
    let approved = conditions(json!([condition("Approved")]));
    let (code, refused) = ask(&cluster, "alice", "PATCH", &approval, &approved).await;
    let why = "certificatesigningrequests.certificates.k8s.io \"b\" is forbidden: user not permitted to approve requests with signerName \"example.com/s\"";
    assert_eq!((code, refused["message"].as_str().unwrap()), (403, why));
    let signers = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.com/*"], "verbs": ["approve"]});
    allow(&cluster, "signers", "alice", signers).await;
    assert_eq!(ask(&cluster, "alice", "PATCH", &approval, &approved).await.0, 200);
}

#[tokio::test]
async fn selectors_of_reviews_are_checked() {
    let cluster = cluster().await;
    const VALUES: &str = "values: Required value: must be specified when `operator` is 'In' or 'NotIn'";
    const NONE: &str = "values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
    const KEY: &str = "key: Invalid value: \"\": name part must be non-empty";
    for (selector, requirement, expect) in [
        (
            "fieldSelector",
            json!({"key": "", "operator": "In", "values": ["x"]}),
            "key: Required value: must be specified",
        ),
        ("fieldSelector", json!({"key": "a", "operator": "In"}), VALUES),
        ("fieldSelector", json!({"key": "a", "operator": "DoesNotExist", "values": ["x"]}), NONE),
        ("labelSelector", json!({"key": "", "operator": "Exists"}), KEY),
        ("labelSelector", json!({"key": "a", "operator": "NotIn", "values": []}), VALUES),
        ("labelSelector", json!({"key": "a", "operator": "Exists", "values": ["x"]}), NONE),
        (
            "labelSelector",
            json!({"key": "a", "operator": "In", "values": ["x y"]}),
            "values[0]: Invalid value: \"x y\"",
        ),
        ("fieldSelector", json!({"key": "a", "operator": "In", "values": ["x y"]}), ""),
        ("labelSelector", json!({"key": "a", "operator": "Newer", "values": ["x"]}), ""),
    ] {
        let asked = json!({"verb": "list", "resource": "pods", selector: {"requirements": [requirement]}});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": "alice", "resourceAttributes": asked},
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let (code, answer) = ask(&cluster, ADMIN, "POST", path, &review).await;
        assert_eq!(code, if expect.is_empty() { 201 } else { 422 }, "{review}: {answer}");
        let message = answer["message"].as_str().unwrap_or_default();
        let place = format!("spec.resourceAttributes.{selector}.requirements[0].");
        assert!(expect.is_empty() || message.contains(&format!("{place}{expect}")), "{message}");
    }
}

#[tokio::test]
async fn a_review_that_is_refused_has_its_warnings() {
    let cluster = Cluster::new().await;
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "unknown": "x"}}});
    let answer = cluster.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await;
    answer.fails(422, "Invalid");
    assert_eq!(answer.warnings(), ["\"unknown field \\\"spec.resourceAttributes.unknown\\\"\""]);
}

#[tokio::test]
async fn reviews_say_what_of_a_selector_is_ignored() {
    let cluster = cluster().await;
    let of = |operator: &str, values: &[&str]| json!({"key": "a", "operator": operator, "values": values});
    let requirements = |list: &[&Value]| json!({"requirements": list});
    let (known, unknown, several) = (of("In", &["x"]), of("Newer", &["x"]), of("In", &["x", "y"]));
    for (field, label, expect) in [
        (Some(json!({"rawSelector": "a=b"})), Some(json!({"rawSelector": "a in (b)"})), None),
        (Some(json!({"rawSelector": "==="})), None, Some("fieldSelector ignored due to parse error")),
        (Some(requirements(&[&several])), None, Some("fieldSelector ignored due to parse error")),
        (Some(requirements(&[&known, &unknown])), None, Some("fieldSelector partially ignored due to parse error")),
        (None, Some(json!({"rawSelector": "a in ("})), Some("labelSelector ignored due to parse error")),
        (None, Some(requirements(&[&several])), None),
        (None, Some(requirements(&[&unknown, &known])), Some("labelSelector partially ignored due to parse error")),
        (
            Some(requirements(&[&unknown])),
            Some(requirements(&[&unknown])),
            Some(
                "fieldSelector ignored due to parse error; spec.resourceAttributes.labelSelector ignored due to parse \
                 error",
            ),
        ),
    ] {
        let mut asked = json!({"verb": "list", "resource": "pods"});
        for (name, selector) in [("fieldSelector", field), ("labelSelector", label)] {
            if let Some(selector) = selector {
                asked[name] = selector;
            }
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": "alice", "resourceAttributes": asked},
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let (code, answer) = ask(&cluster, ADMIN, "POST", path, &review).await;
        assert_eq!(code, 201, "{answer}");
        let expect = expect.map(|what| format!("spec.resourceAttributes.{what}"));
        assert_eq!(answer["status"]["evaluationError"].as_str(), expect.as_deref(), "{review}");
    }
}
