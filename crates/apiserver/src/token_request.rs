//! `serviceaccounts/NAME/token`: gives out a token of a service account. In: a TokenRequest. Out: the same with a signed token,
//! or the `Status` that says why not. Nothing is stored: a token ends with its account and with the object it is bound to.

use serde::Deserialize;
use serde_json::{Value, json};

use konverge_core::{FieldError, FieldPath, GroupVersion, Status, from_value_without_nulls};

use crate::admission::Admission;
use crate::authenticate::{BoundObject, Claims, KubernetesClaims};
use crate::decode::Decoded;
use crate::env::rfc3339;
use crate::meta;
use crate::pod::identify;
use crate::record;
use crate::user::service_account_name;
use crate::write::{WriteRequest, foreign_namespace};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
const TYPE: &str = "io.k8s.api.authentication.v1.TokenRequest";

/// How long a token is valid if nobody says, and at least.
const DEFAULT_SECONDS: i64 = 60 * 60;
const LEAST_SECONDS: i64 = 10 * 60;

/// Kubelets ask for this. Clients that read the token of a pod only once would fail after it, so such a token lasts for a year.
const POD_SECONDS: i64 = 60 * 60 + 7;
const POD_SECONDS_EXTENDED: i64 = 365 * 24 * 60 * 60;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Sent {
    metadata: SentMetadata,
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SentMetadata {
    name: String,
    namespace: String,
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    audiences: Option<Vec<String>>,
    expiration_seconds: Option<i64>,
    bound_object_ref: Option<BoundRef>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BoundRef {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
}

/// Gives out a token of the service account of this name.
pub(crate) async fn create(
    write: &WriteRequest<'_>,
    name: &str,
    sent: Decoded,
    warnings: &mut Vec<String>,
) -> Result<Value, Status> {
    let mut object = receive(write, sent, warnings)?;
    let given = read(object.clone())?.metadata.namespace;
    if !given.is_empty() && Some(&*given) != write.namespace {
        return Err(foreign_namespace());
    }
    identify(write, &mut object);
    if object["spec"]["expirationSeconds"].is_null() {
        object["spec"]["expirationSeconds"] = DEFAULT_SECONDS.into();
    }
    let (chain, attributes, mut admission) =
        (&write.server.admission, write.attributes(name, None), Admission::default());
    let admitted = chain.admit(&attributes, &mut object, &mut admission).await;
    warnings.append(&mut admission.warnings);
    admitted?;
    let Sent { metadata, spec } = read(object.clone())?;
    let namespace = write.namespace.unwrap_or_default();
    for (field, given, expect) in [("name", &metadata.name, name), ("namespace", &metadata.namespace, namespace)] {
        if !given.is_empty() && given != expect {
            let path = FieldPath::new("metadata").child(field);
            let why = format!("must match the service account {field} if specified");
            return Err(Status::invalid(GROUP, KIND, name, &[FieldError::invalid(path, given.clone().into(), why)]));
        }
    }
    let account = find(write, "serviceaccounts", Some(namespace), name)?;
    let uid = meta::text(&account, "uid");
    if !metadata.uid.is_empty() && metadata.uid != uid {
        let given = &metadata.uid;
        let why =
            format!("the UID in the token request ({given}) does not match the UID of the service account ({uid})");
        return Err(Status::conflict(GROUP, KIND, name, &why));
    }
    let issuer = &write.server.authentication.service_accounts;
    let audiences = spec.audiences.filter(|audiences| !audiences.is_empty());
    let audiences = audiences.unwrap_or_else(|| issuer.audiences().to_vec());
    let mut seconds = spec.expiration_seconds.unwrap_or(DEFAULT_SECONDS);
    check_seconds(seconds)?;
    let now = write.server.env.now();
    object["spec"]["audiences"] = json!(audiences);
    for (field, text) in [("name", name), ("namespace", namespace), ("uid", uid), ("creationTimestamp", &rfc3339(now))]
    {
        object["metadata"][field] = text.into();
    }
    object["status"] = json!({"token": "", "expirationTimestamp": null});
    let admitted = chain.validate(&attributes, &object, &mut admission).await;
    warnings.append(&mut admission.warnings);
    admitted?;
    let mut claims = KubernetesClaims {
        namespace: namespace.to_owned(),
        serviceaccount: BoundObject { name: name.to_owned(), uid: uid.to_owned() },
        ..KubernetesClaims::default()
    };
    if let Some(bound) = &spec.bound_object_ref {
        bind(write, name, bound, &mut claims)?;
    }
    if let Some(longest) = issuer.max_expiration().filter(|longest| seconds > *longest) {
        warnings.push(format!("requested expiration of {seconds} seconds shortened to {longest} seconds"));
        seconds = longest;
    }
    let mut lasts = seconds;
    let own = audiences.iter().all(|audience| issuer.audiences().contains(audience));
    if claims.pod.is_some() && seconds == POD_SECONDS && own {
        claims.warnafter = Some(now.as_second() + seconds);
        lasts = POD_SECONDS_EXTENDED;
    }
    let token = issuer.sign(&Claims {
        aud: audiences.clone(),
        exp: Some(now.as_second() + lasts),
        iat: Some(now.as_second()),
        nbf: Some(now.as_second()),
        jti: uuid::Uuid::from_u128(write.server.env.random()).to_string(),
        sub: service_account_name(namespace, name),
        kubernetes: claims,
        ..Claims::default()
    });
    let mut request = json!({
        "kind": KIND,
        "apiVersion": format!("{GROUP}/v1"),
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": rfc3339(now)},
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": null},
        "status": {"token": token, "expirationTimestamp": rfc3339(now + jiff::SignedDuration::from_secs(seconds))},
    });
    if let Some(bound) = &spec.bound_object_ref {
        let mut shown = json!({"kind": bound.kind, "apiVersion": bound.api_version, "name": bound.name});
        if !bound.uid.is_empty() {
            shown["uid"] = bound.uid.clone().into();
        }
        request["spec"]["boundObjectRef"] = shown;
    }
    Ok(request)
}

fn receive(write: &WriteRequest<'_>, sent: Decoded, warnings: &mut Vec<String>) -> Result<Value, Status> {
    if let Some(given) = sent.value["kind"].as_str().filter(|given| *given != KIND) {
        let why = format!("the kind in the data ({given}) does not match the expected kind ({KIND})");
        return Err(Status::bad_request(why));
    }
    if let Some(given) = sent.value["apiVersion"].as_str().filter(|given| *given != "authentication.k8s.io/v1") {
        return Err(Status::bad_request(format!(
            "the API version in the data ({given}) does not match the expected API version ({GROUP}/v1)"
        )));
    }
    write.receive_typed(TYPE, sent, warnings).map_err(undecodable)
}

fn read(object: Value) -> Result<Sent, Status> {
    // In Go, a null is the same as nothing.
    from_value_without_nulls(object).map_err(|why| undecodable(why.to_string()))
}

fn undecodable(why: String) -> Status {
    Status::bad_request(format!("{KIND} in version \"v1\" cannot be handled as a {KIND}: {why}"))
}

fn check_seconds(seconds: i64) -> Result<(), Status> {
    let why = match seconds {
        ..LEAST_SECONDS => "may not specify a duration less than 10 minutes",
        LEAST_SECONDS..=0x1_0000_0000 => return Ok(()),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let path = FieldPath::new("spec").child("expirationSeconds");
    Err(Status::invalid(GROUP, KIND, "", &[FieldError::invalid(path, seconds.into(), why)]))
}

/// Binds a token to an object, which must be there.
fn bind(
    write: &WriteRequest<'_>,
    account: &str,
    bound: &BoundRef,
    claims: &mut KubernetesClaims,
) -> Result<(), Status> {
    let BoundRef { api_version, kind, name, uid } = bound;
    let parsed =
        GroupVersion::parse(api_version).unwrap_or(GroupVersion { group: String::new(), version: String::new() });
    let plural = match (&*parsed.group, &**kind) {
        ("", "Pod") => "pods",
        ("", "Node") => "nodes",
        ("", "Secret") => "secrets",
        (group, _) => {
            let version = &parsed.version;
            let shown = format!("{group}/{version}, Kind={kind}");
            return Err(Status::bad_request(format!("cannot bind token to object of type {shown}")));
        }
    };
    let namespace = if plural == "nodes" { None } else { write.namespace };
    let object = find(write, plural, namespace, name)?;
    let found = meta::text(&object, "uid");
    let of = |name: &str, uid: &str| Some(BoundObject { name: name.to_owned(), uid: uid.to_owned() });
    match plural {
        "pods" => {
            if object["spec"]["serviceAccountName"].as_str().unwrap_or_default() != account {
                return Err(Status::bad_request(format!(
                    "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
                )));
            }
            claims.pod = of(name, found);
            if let Some(node) = object["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
                let known = find(write, "nodes", None, node);
                claims.node = of(node, known.as_ref().map_or("", |node| meta::text(node, "uid")));
            }
        }
        "nodes" => claims.node = of(name, found),
        _ => claims.secret = of(name, found),
    }
    if !uid.is_empty() && uid != found {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(Status::conflict("", kind, name, &why));
    }
    Ok(())
}

/// An object of the core group.
fn find(write: &WriteRequest<'_>, plural: &str, namespace: Option<&str>, name: &str) -> Result<Value, Status> {
    let resource = write.server.registry.find("", "v1", plural).expect("tokens are bound to built-in kinds");
    let found = write.server.store.get(&resource.key(namespace, name), None).map_err(Status::internal)?;
    Ok(record::decode(&found.ok_or_else(|| Status::not_found("", plural, name))?))
}
