//! What a gate sees of the writes of an operator, and what becomes of those it refuses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use konverge_runtime::{
    Applied, ApplyOptions, ClientLayers, Error, Event, FieldManager, Leadership, OtherFields, Patch, Recorder,
    RecorderOptions, RequestInfo, Retry, Seat, StatusUpdate, Subject, Term, TermGate, WriteError, WriteGate,
    WriteOutcome, WritePass, WriteRefused, Writer, WriterOptions, retry,
};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use serde_json::json;

use crate::cluster::{Cluster, Fault, cached, config_map, key, kind, webapp};

/// A gate that writes everything down, and closes on command.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    seen: Mutex<Vec<String>>,
}

impl Gate {
    fn close(&self) {
        *self.closed.lock().unwrap() = true;
    }

    fn take_seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    fn note(&self, line: String) {
        self.seen.lock().unwrap().push(line);
    }
}

impl WriteGate for Gate {
    fn check(&self, request: &RequestInfo) -> Result<WritePass, WriteRefused> {
        if *self.closed.lock().unwrap() {
            self.note(format!("{request} refused"));
            return Err(WriteRefused::new("NotLeading", "another instance leads"));
        }
        Ok(WritePass::default())
    }

    fn done(&self, request: &RequestInfo, outcome: WriteOutcome) {
        self.note(format!("{request} {outcome:?}"));
    }
}

fn gated(cluster: &Cluster, gates: &[&Arc<Gate>]) -> Client {
    let layers = gates.iter().fold(ClientLayers::new(), |layers, gate| layers.gate((*gate).clone()));
    layers.around(cluster.wired_client())
}

fn writer(client: &Client) -> Writer {
    Writer::new(client.clone(), FieldManager::new("webapp-operator"), WriterOptions::default())
}

/// An API of a client that somebody made by hand, as a reconcile may do.
fn config_maps(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), "default", &config_map())
}

#[tokio::test]
async fn every_write_passes_the_gate_and_no_read_does() {
    let cluster = Cluster::start().await;
    let gate = Arc::new(Gate::default());
    let client = gated(&cluster, &[&gate]);
    let (writer, api, app) = (writer(&client), config_map(), webapp());

    let settings = json!({"metadata": {"name": "settings", "namespace": "default"}, "data": {"a": "1"}});
    let applied = writer.apply(&api, None, &settings, ApplyOptions::default()).await.unwrap();
    let live = applied.object().unwrap().clone();
    let unchanged = writer.apply(&api, Some(&live), &settings, ApplyOptions::default()).await.unwrap();
    assert_eq!(unchanged, Applied::Unchanged);
    let patch = Patch::Json(json!([{"op": "add", "path": "/data/b", "value": "2"}]));
    writer.patch(&api, &key(&api, "settings"), "", patch).await.unwrap();
    assert_eq!(
        gate.take_seen(),
        ["apply configmaps default/settings Answered(201)", "patch configmaps default/settings Answered(200)"]
    );

    let web = json!({
        "apiVersion": "example.com/v1", "kind": "WebApp", "metadata": {"name": "web", "namespace": "default"}, "spec": {},
    });
    let web = writer.create(&app, &web).await.unwrap();
    let update = StatusUpdate::fields(json!({"phase": "Ready"}), OtherFields::Stay);
    writer.set_status(&app, &cached(&app, &web), &update, Timestamp::now()).await.unwrap();
    writer.delete(&api, &live.value()).await.unwrap();
    assert_eq!(
        gate.take_seen(),
        [
            "create webapps.example.com default/ Answered(201)",
            "patch webapps.example.com/status default/web Answered(200)",
            "delete configmaps default/settings Answered(200)",
        ]
    );

    let (recorder, task) = Recorder::new(writer.clone(), RecorderOptions::default());
    recorder.record(&Arc::new(Subject::of(&app, &web).unwrap()), Event::info("Started", "it began"));
    recorder.close();
    task.run().await;
    assert_eq!(gate.take_seen(), ["create events.events.k8s.io default/ Answered(201)"]);

    let object: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "by-hand"}})).unwrap();
    config_maps(&client).create(&PostParams::default(), &object).await.unwrap();
    assert_eq!(gate.take_seen(), ["create configmaps default/ Answered(201)"]);

    writer.get(&api, &key(&api, "by-hand")).await.unwrap().expect("it is there");
    config_maps(&client).list(&ListParams::default()).await.unwrap();
    let reviews = kind("authorization.k8s.io", "v1", "SelfSubjectAccessReview");
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": reviews.kind, "spec": {}});
    let request = http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
    // Whatever the server thinks of reviews, nobody was asked about this one.
    let _ = client.request_text(request.body(review.to_string().into_bytes()).unwrap()).await;
    assert_eq!(gate.take_seen(), [""; 0]);
}

#[tokio::test]
async fn a_refused_write_is_not_sent_and_not_retried() {
    let cluster = Cluster::start().await;
    let gate = Arc::new(Gate::default());
    let client = gated(&cluster, &[&gate]);
    let (writer, api) = (writer(&client), config_map());
    let settings = json!({"metadata": {"name": "settings", "namespace": "default"}, "data": {"a": "1"}});
    let live = writer.apply(&api, None, &settings, ApplyOptions::default()).await.unwrap().object().unwrap().clone();
    gate.close();
    gate.take_seen();
    cluster.methods();

    let changed = json!({"metadata": {"name": "settings", "namespace": "default"}, "data": {"a": "2"}});
    let merge = Patch::Merge { patch: json!({"data": {}}), resource_version: live.resource_version().to_owned() };
    let errors = [
        writer.apply(&api, Some(&live), &changed, ApplyOptions::default()).await.unwrap_err(),
        writer.create(&api, &live.value()).await.unwrap_err(),
        writer.replace(&api, &live.value()).await.unwrap_err(),
        writer.patch(&api, &key(&api, "settings"), "", merge).await.unwrap_err(),
        writer.delete(&api, &live.value()).await.unwrap_err(),
        writer.add_finalizer(&api, &live, "example.com/f").await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(&error, WriteError::NotSent(_)), "{error:?}");
        assert_eq!((error.reason(), error.to_string().as_str()), ("NotLeading", "another instance leads"));
        assert_eq!(retry(&Error::from(error)), Retry::Stop);
    }
    let by_hand = config_maps(&client).delete("settings", &Default::default()).await.unwrap_err();
    assert_eq!(retry(&Error::from(by_hand)), Retry::Stop);
    assert_eq!(gate.take_seen().len(), 7);
    assert_eq!(cluster.methods(), "");
    // Reading is fine, and so is an apply that needs no request.
    assert!(writer.get(&api, &key(&api, "settings")).await.unwrap().is_some());
    assert_eq!(writer.apply(&api, Some(&live), &settings, ApplyOptions::default()).await.unwrap(), Applied::Unchanged);
}

#[tokio::test(start_paused = true)]
async fn a_gate_hears_how_each_write_ended() {
    let cluster = Cluster::start().await;
    let (first, second) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let client = gated(&cluster, &[&first, &second]);
    let options = WriterOptions { timeout: Duration::from_secs(5) };
    let (writer, api) = (Writer::new(client, FieldManager::new("webapp-operator"), options), config_map());
    let object = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});

    cluster.break_next([Fault::ResetAfter, Fault::Hang, Fault::Answer(503, &[], json!("down"))]);
    for name in ["reset", "hangs", "down"] {
        writer.create(&api, &object(name)).await.unwrap_err();
    }
    second.close();
    writer.create(&api, &object("refused")).await.unwrap_err();
    first.close();
    writer.create(&api, &object("refused")).await.unwrap_err();
    let ends = |gate: &Gate| -> Vec<String> {
        let seen = gate.take_seen();
        seen.iter().map(|line| line.trim_start_matches("create configmaps default/ ").to_owned()).collect()
    };
    // A caller that stops waiting, as for the one that hangs, does not know how its write ended.
    assert_eq!(ends(&first), ["Unanswered", "Unanswered", "Answered(503)", "Refused", "refused"]);
    assert_eq!(ends(&second), ["Unanswered", "Unanswered", "Answered(503)", "refused"]);
}

#[tokio::test]
async fn a_gate_that_panics_ends_one_request_and_not_the_client() {
    let cluster = Cluster::start().await;
    let gate = |request: &RequestInfo| match request.name.as_deref() {
        Some("bad") => panic!("the process ends here"),
        _ => Ok(()),
    };
    let client = ClientLayers::new().gate(Arc::new(gate)).around(cluster.wired_client());
    let maps = config_maps(&client);
    let bad = tokio::spawn(async move { maps.delete("bad", &Default::default()).await.map(drop) });
    assert!(bad.await.unwrap_err().is_panic());
    let object: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "good"}})).unwrap();
    config_maps(&client).create(&PostParams::default(), &object).await.unwrap();
}

fn lead(seat: &Seat, number: u64) {
    // The server has no Lease that would confirm the term.
    let term = Term { number, holder: "web-0".into(), fence: None };
    seat.lead(term, tokio::time::Instant::now() + Duration::from_secs(10));
}

/// A write is checked in one term, and the next one begins before it is sent: it is not sent, and never under the next term's name.
#[tokio::test(start_paused = true)]
async fn a_write_is_not_sent_when_its_term_ended_after_the_check() {
    for (begins_next, expect) in [(false, "sent"), (true, "TermOver: term 3 of web-0 is over")] {
        let cluster = Cluster::start().await;
        let (leadership, seat) = Leadership::vacant();
        lead(&seat, 3);
        let noted = Arc::new(Gate::default());
        // It is asked after the gate of the term.
        let between = move |_: &RequestInfo| {
            if begins_next {
                lead(&seat, 4);
            }
            Ok(())
        };
        let layers = ClientLayers::new().gate(noted.clone()).gate(Arc::new(TermGate::new(leadership)));
        let client = layers.gate(Arc::new(between)).around(cluster.wired_client());
        cluster.methods();
        let written = writer(&client)
            .create(
                &config_map(),
                &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}),
            )
            .await;
        let (outcome, methods) = match begins_next {
            true => ("Refused", ""),
            false => ("Answered(201)", "POST"),
        };
        let told = match written {
            Ok(_) => "sent".to_owned(),
            Err(WriteError::NotSent(refused)) => format!("{}: {refused}", refused.reason()),
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(told, expect);
        assert_eq!(noted.take_seen(), [format!("create configmaps default/ {outcome}")]);
        assert_eq!(cluster.methods(), methods);
    }
}

/// A write that waits for its answer when the term ends is given up, and nobody knows what became of it.
#[tokio::test(start_paused = true)]
async fn a_write_under_way_is_given_up_when_its_term_ends() {
    let cluster = Cluster::start().await;
    let (leadership, seat) = Leadership::vacant();
    lead(&seat, 3);
    let client = ClientLayers::new().gate(Arc::new(TermGate::new(leadership))).around(cluster.wired_client());
    cluster.break_next([Fault::Hang]);
    let began = tokio::time::Instant::now();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}});
    let error = writer(&client).create(&config_map(), &object).await.unwrap_err();
    assert!(matches!(error, WriteError::Unknown { .. }), "{error:?}");
    assert_eq!(began.elapsed().as_secs(), 10);
}
