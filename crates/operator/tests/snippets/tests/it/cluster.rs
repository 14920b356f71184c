//! An API server in this process, and what it says to an object.

use konverge::Kind;
use konverge::kube::api::{Api, DynamicObject, Patch, PatchParams};
use konverge::kube::{Client, Error};
use konverge::serde_json::Value;
use konverge_apiserver::{ApiServer, Options};

/// A client of an empty cluster.
pub(crate) async fn client() -> Client {
    Client::new(ApiServer::open(Options::default()).await.unwrap(), "default")
}

/// Applies `object` as an operator does, without nulls, and with unknown fields refused.
pub(crate) async fn apply<K: Kind>(client: &Client, object: &K) -> Result<K, String> {
    let mut value = konverge::serde_json::to_value(object).unwrap();
    konverge_core::drop_nulls(&mut value);
    let applied = apply_value::<K>(client, value).await?;
    konverge::serde_json::from_value(applied).map_err(|error| error.to_string())
}

/// The same for JSON that should be an object of the kind `K`.
pub(crate) async fn apply_value<K: Kind>(client: &Client, object: Value) -> Result<Value, String> {
    let resource = K::resource();
    let api: Api<DynamicObject> = match K::scope() {
        konverge::Scope::Namespaced => Api::namespaced_with(client.clone(), "default", &resource),
        konverge::Scope::Cluster => Api::all_with(client.clone(), &resource),
    };
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let params = PatchParams::apply("test").validation_strict();
    let applied = api.patch(&name, &params, &Patch::Apply(object)).await.map_err(said)?;
    Ok(konverge::serde_json::to_value(applied).unwrap())
}

fn said(error: Error) -> String {
    match error {
        Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
