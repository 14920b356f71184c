//! What hostile clients do. In: a server. Out: requests without end; whether they are refused does not matter here, only what they cost
//! others. An attack that cannot begin is an error.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::apiserver::kinds::CONFIG_MAPS;
use crate::http::{self, Endpoint};
use crate::invalid_run::InvalidRun;
use crate::widget::{self, DEFINITIONS};

/// How long an attacker waits before it opens a connection again that was closed.
const AGAIN: Duration = Duration::from_millis(20);

/// The objects that selectors look at.
const SELECTED: usize = 20_000;

/// Where objects of the hostile kind are.
const TARGETS: &str = "/apis/bench.konverge.dev/v1/namespaces/default/targets";

/// An attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attack {
    /// Objects whose schema is a tree of `anyOf` for each of many items.
    Alternatives,
    /// Objects whose rules in CEL cost as much as a rule may.
    Rules,
    /// Long texts against a pattern with large repetitions.
    Patterns,
    /// Server-side applies of many items.
    Applies,
    /// Objects with as many managed fields as a request has room for.
    ManagedFields,
    /// Definitions that come and go.
    Definitions,
    /// Lists with selectors that match nothing among many objects.
    Selectors,
    /// Watches that are never read, of large objects that change.
    Watches,
    /// Large lists that are never read.
    Lists,
    /// Bodies that arrive a byte at a time.
    SlowBodies,
    /// Connections on which nothing is said.
    Silence,
}

impl Attack {
    pub(super) const ALL: [Self; 11] = [
        Self::Alternatives,
        Self::Rules,
        Self::Patterns,
        Self::Applies,
        Self::ManagedFields,
        Self::Definitions,
        Self::Selectors,
        Self::Watches,
        Self::Lists,
        Self::SlowBodies,
        Self::Silence,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Alternatives => "8 clients whose schema is a tree of anyOf",
            Self::Rules => "8 clients with expensive rules in CEL",
            Self::Patterns => "8 clients with expensive patterns",
            Self::Applies => "8 applies of 60,000 items",
            Self::ManagedFields => "4 clients that send 25,000 managed fields",
            Self::Definitions => "200 CRDs that come and go",
            Self::Selectors => "8 clients with selectors over 20,000 objects",
            Self::Watches => "600 watches of large objects that nobody reads",
            Self::Lists => "500 lists of 9 MB that nobody reads",
            Self::SlowBodies => "400 bodies that arrive a byte at a time",
            Self::Silence => "1,000 silent connections",
        }
    }

    /// Makes what the attack needs.
    pub(super) async fn prepare(self, endpoint: &Endpoint) -> Result<(), InvalidRun> {
        match self {
            Self::Alternatives => {
                let items =
                    json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [alternatives(10)]});
                define(endpoint, json!({"items": {"type": "array", "items": items}})).await
            }
            Self::Rules => {
                // As expensive as the estimate at the definition lets it be.
                let rule = json!({"rule": "self.all(a, self.all(b, a <= b || b <= a))"});
                let numbers = |name: &str| {
                    let items = json!({"type": "integer"});
                    let list =
                        json!({"type": "array", "maxItems": 500, "items": items, "x-kubernetes-validations": [rule]});
                    (name.to_owned(), list)
                };
                define(endpoint, ["a", "b", "c", "d"].map(numbers).into_iter().collect()).await
            }
            Self::Patterns => {
                let text = json!({"type": "string", "pattern": "^(.{0,200}x){0,4}(a|aa)+$"});
                define(endpoint, json!({"items": {"type": "array", "items": text}})).await
            }
            Self::Applies => {
                let items = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}});
                let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"], "items": items});
                define(endpoint, json!({"items": list})).await
            }
            Self::Selectors => {
                let mut connection = endpoint.connect().await?;
                for number in 0..SELECTED {
                    connection.call(&config_map(&format!("selected-{number}"), 16), 201).await?;
                }
                Ok(())
            }
            Self::Watches => endpoint.once(&config_map("large-0", 500_000), 201).await.map(drop),
            Self::Lists => {
                for number in 0..9 {
                    endpoint.once(&config_map(&format!("large-{number}"), 1_000_000), 201).await?;
                }
                Ok(())
            }
            Self::ManagedFields | Self::Definitions | Self::SlowBodies | Self::Silence => Ok(()),
        }
    }

    /// Attacks until it is dropped.
    pub(super) async fn run(self, endpoint: &Endpoint) -> Result<(), InvalidRun> {
        match self {
            Self::Alternatives => flood(endpoint, 8, target(json!({"items": vec![json!({}); 20_000]}))).await,
            Self::Rules => {
                let numbers: Vec<usize> = (0..500).collect();
                let spec = json!({"a": numbers, "b": numbers, "c": numbers, "d": numbers});
                flood(endpoint, 8, target(spec)).await
            }
            Self::Patterns => flood(endpoint, 8, target(json!({"items": vec!["a".repeat(10_000); 100]}))).await,
            Self::Applies => {
                let items: Vec<Value> = (0..60_000).map(|number| json!({"n": number.to_string()})).collect();
                let object = target_object(json!({"items": items})).to_string();
                let path = format!("{TARGETS}/one?fieldManager=hostile&force=true");
                let request = http::request("PATCH", &path, "application/apply-patch+yaml", object.as_bytes());
                flood(endpoint, 8, request).await
            }
            Self::ManagedFields => flood(endpoint, 4, managed_fields(25_000)).await,
            Self::Definitions => come_and_go(endpoint).await,
            Self::Selectors => {
                let query = "labelSelector=app%20in%20(x,y,z),!absent&fieldSelector=metadata.name!=x";
                flood(endpoint, 8, http::get(&format!("{CONFIG_MAPS}?{query}"))).await
            }
            Self::Watches => {
                let watch = http::get(&format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name=large-0"));
                let stalled = try_join_all((0..600).map(|_| endpoint.stall(&watch))).await?;
                let ended = update(endpoint).await;
                drop(stalled);
                ended
            }
            Self::Lists => {
                let list = http::get(CONFIG_MAPS);
                // A server that gives up such a connection closes it behind what was not read, which is not seen here.
                join_all((0..500).map(|_| stall_again(endpoint, &list, Duration::from_secs(5)))).await;
                Ok(())
            }
            Self::SlowBodies => {
                join_all((0..400).map(|_| slow_body(endpoint))).await;
                Ok(())
            }
            Self::Silence => {
                join_all((0..1_000).map(|_| stall_again(endpoint, b"", Duration::from_secs(3600)))).await;
                Ok(())
            }
        }
    }
}

/// Clients that send the same request again and again.
async fn flood(endpoint: &Endpoint, clients: usize, request: Vec<u8>) -> Result<(), InvalidRun> {
    let request: Arc<[u8]> = request.into();
    join_all((0..clients).map(|_| async {
        loop {
            if let Ok(mut connection) = endpoint.connect().await {
                while connection.send(&request).await.is_ok() {}
            }
            tokio::time::sleep(AGAIN).await;
        }
    }))
    .await;
    Ok(())
}

/// Creates definitions and deletes all of them, again and again.
async fn come_and_go(endpoint: &Endpoint) -> Result<(), InvalidRun> {
    let mut connection = endpoint.connect().await?;
    loop {
        for number in 0..200 {
            let definition = widget::definition_of(&format!("kind{number}"), &[]);
            connection.send(&http::request("POST", DEFINITIONS, "application/json", &definition)).await?;
        }
        connection.send(&http::request("DELETE", DEFINITIONS, "", &[])).await?;
    }
}

/// Changes the large object, so that there is always more to be told to whoever watches.
async fn update(endpoint: &Endpoint) -> Result<(), InvalidRun> {
    let mut connection = endpoint.connect().await?;
    for turn in 0_u64.. {
        let patch = json!({"metadata": {"annotations": {"turn": turn.to_string()}}}).to_string();
        let path = format!("{CONFIG_MAPS}/large-0");
        connection.send(&http::request("PATCH", &path, "application/merge-patch+json", patch.as_bytes())).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Sends something and does not read the answer; and again when the server has closed the connection, or after this long.
async fn stall_again(endpoint: &Endpoint, request: &[u8], longest: Duration) {
    loop {
        if let Ok(stream) = endpoint.stall(request).await {
            let begun = Instant::now();
            while begun.elapsed() < longest && !has_ended(&stream) {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Whether the server has closed a connection. Takes no more than a byte of what it has sent.
fn has_ended(stream: &TcpStream) -> bool {
    match stream.try_read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// A body of a megabyte, a byte every tenth of a second.
async fn slow_body(endpoint: &Endpoint) {
    let request = http::request("POST", CONFIG_MAPS, "application/json", &[b' '; 1_000_000]);
    let head = request.len() - 1_000_000;
    loop {
        if let Ok(mut stream) = endpoint.stall(&request[..head]).await {
            while stream.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Defines the hostile kind.
async fn define(endpoint: &Endpoint, spec: Value) -> Result<(), InvalidRun> {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "targets.bench.konverge.dev"},
        "spec": {
            "group": "bench.konverge.dev",
            "scope": "Namespaced",
            "names": {"plural": "targets", "singular": "target", "kind": "Target", "listKind": "TargetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let request = http::request("POST", DEFINITIONS, "application/json", definition.to_string().as_bytes());
    endpoint.once(&request, 201).await.map(drop)
}

/// A tree of alternatives, none of which an empty object is.
fn alternatives(depth: usize) -> Value {
    match depth {
        0 => json!({"required": ["a"]}),
        _ => json!({"anyOf": [alternatives(depth - 1), alternatives(depth - 1)]}),
    }
}

fn target_object(spec: Value) -> Value {
    json!({"apiVersion": "bench.konverge.dev/v1", "kind": "Target", "metadata": {"name": "one"}, "spec": spec})
}

/// Creates an object of the hostile kind. It may exist already: most of the work comes before that is noticed.
fn target(spec: Value) -> Vec<u8> {
    let mut object = target_object(spec);
    object["metadata"] = json!({"generateName": "one-"});
    // A dry run, so that the attack costs work and not memory.
    let path = format!("{TARGETS}?dryRun=All");
    http::request("POST", &path, "application/json", object.to_string().as_bytes())
}

/// Creates a ConfigMap with a text of this length.
fn config_map(name: &str, bytes: usize) -> Vec<u8> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": "hostile"}},
        "data": {"text": "x".repeat(bytes)},
    });
    http::request("POST", CONFIG_MAPS, "application/json", object.to_string().as_bytes())
}

fn managed_fields(count: usize) -> Vec<u8> {
    let mut entries = String::new();
    for number in 0..count {
        let comma = if number == 0 { "" } else { "," };
        // Writing to a text cannot fail.
        let _ = write!(
            entries,
            r#"{comma}{{"manager":"m{number}","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{}}}}"#
        );
    }
    let object = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"managed","managedFields":[{entries}]}},"data":{{}}}}"#
    );
    http::request("POST", &format!("{CONFIG_MAPS}?dryRun=All"), "application/json", object.as_bytes())
}
