//! Events on a server, under a clock that is turned by hand.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use konverge_core::{ObjectKey, Status};
use konverge_runtime::{
    Event, EventLog, HistoryFilter, Recorder, RecorderCounts, RecorderOptions, Severity, Subject, WriterOptions,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, Fault, kind, webapp};

/// A recorder at work. Its clock is tokio's, which the tests have stopped: it jumps when everybody waits.
struct Office {
    cluster: Cluster,
    recorder: Recorder,
    task: JoinHandle<()>,
    subject: Arc<Subject>,
}

impl Office {
    async fn open() -> Self {
        Self::open_with(RecorderOptions::default()).await
    }

    async fn open_with(options: RecorderOptions) -> Self {
        let cluster = Cluster::start().await;
        let object = json!({
            "apiVersion": "example.com/v1", "kind": "WebApp",
            "metadata": {"name": "w", "namespace": "default"}, "spec": {},
        });
        let subject = Subject::of(&webapp(), &cluster.create(&webapp(), object).await).unwrap();
        let (start, epoch) = (tokio::time::Instant::now(), Timestamp::from_second(1_800_000_000).unwrap());
        let clock = Arc::new(move || epoch + SignedDuration::try_from(start.elapsed()).unwrap());
        let options = RecorderOptions {
            controller: "webapp-operator".into(),
            instance: "webapp-operator-0".into(),
            clock,
            ..options
        };
        let writer = cluster.writer_with(WriterOptions { timeout: Duration::from_secs(5) });
        let (recorder, task) = Recorder::new(writer, options);
        Self { cluster, recorder, task: tokio::spawn(task.run()), subject: Arc::new(subject) }
    }

    fn record(&self, event: Event) {
        self.recorder.record(&self.subject, event);
    }

    /// Lets the task do what it can within this time.
    async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// All events as `kubectl get events` asks for them, in the order of their names.
    async fn events(&self) -> Vec<Value> {
        let request = http::Request::get("/api/v1/namespaces/default/events").body(Vec::new()).unwrap();
        let list: Value = self.cluster.client.request(request).await.unwrap();
        list["items"].as_array().unwrap().clone()
    }

    fn counts(&self) -> RecorderCounts {
        self.recorder.counts()
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_is_seen_by_kubectl() {
    let office = Office::open().await;
    office.record(Event::info("Created", "the deployment is there"));
    office.pass(1).await;
    let sent = office.cluster.sent();
    assert_eq!((sent.len(), sent[0].path.as_str()), (1, "/apis/events.k8s.io/v1/namespaces/default/events"));
    let events = office.events().await;
    let event = &events[0];
    assert_eq!((&event["type"], &event["reason"]), (&json!("Normal"), &json!("Created")));
    assert_eq!(event["message"], "the deployment is there");
    assert_eq!(event["reportingComponent"], "webapp-operator");
    let involved = &event["involvedObject"];
    assert_eq!((&involved["kind"], &involved["name"]), (&json!("WebApp"), &json!("w")));
    assert_eq!(involved["uid"], json!(office.subject.uid));

    // As `kubectl describe` looks for them.
    let query = format!("involvedObject.name=w,involvedObject.uid={}", office.subject.uid).replace('=', "%3D");
    let uri = format!("/api/v1/namespaces/default/events?fieldSelector={query}");
    let list: Value = office.cluster.client.request(http::Request::get(uri).body(Vec::new()).unwrap()).await.unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn repetitions_within_a_minute_are_one_event_with_a_count() {
    let office = Office::open().await;
    for _ in 0..50 {
        office.record(Event::warning("Down", "0 of 3"));
        office.pass(1).await;
    }
    office.pass(15).await;
    let events = office.events().await;
    assert_eq!((events.len(), &events[0]["series"]["count"]), (1, &json!(50)));
    // One to create it, one for each ten seconds of repetitions.
    assert_eq!(office.cluster.methods(), "POST PATCH PATCH PATCH PATCH PATCH");
    // The next minute has its own.
    office.record(Event::warning("Down", "0 of 3"));
    office.pass(1).await;
    assert_eq!(office.events().await.len(), 2);
    let history = office.recorder.log().find(&HistoryFilter::default());
    assert_eq!(history.iter().map(|recorded| recorded.count).collect::<Vec<_>>(), [50, 1]);
}

#[tokio::test(start_paused = true)]
async fn different_events_are_kept_apart_by_severity_and_words() {
    let office = Office::open().await;
    for severity in [Severity::Info, Severity::Warning, Severity::Error, Severity::Critical] {
        office.record(Event::new(severity, "Same", "same"));
    }
    office.record(Event::info("Same", "other"));
    office.pass(1).await;
    let mut seen: Vec<_> = (office.events().await.iter())
        .map(|event| {
            let severity = event.pointer("/metadata/annotations/konverge.dev~1severity").cloned();
            (event["type"].as_str().unwrap().to_owned(), severity)
        })
        .collect();
    seen.sort_by_key(|(type_, severity)| (type_.clone(), severity.as_ref().map(Value::to_string)));
    let (normal, warning) = ("Normal".to_owned(), "Warning".to_owned());
    let expect = [
        (normal.clone(), None),
        (normal, None),
        (warning.clone(), None),
        (warning.clone(), Some(json!("Critical"))),
        (warning, Some(json!("Error"))),
    ];
    assert_eq!(seen, expect);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_event_is_made_again() {
    let office = Office::open().await;
    office.record(Event::info("Up", "now"));
    office.pass(1).await;
    let name = office.events().await[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let key = ObjectKey::new(Some("default"), &name);
    office.cluster.writer.delete_named(&kind("events.k8s.io", "v1", "Event"), &key).await.unwrap();
    assert!(office.events().await.is_empty());
    office.cluster.methods();
    office.record(Event::info("Up", "now"));
    office.pass(15).await;
    assert_eq!(office.cluster.methods(), "PATCH POST");
    let events = office.events().await;
    assert_eq!((events.len(), &events[0]["series"]["count"]), (1, &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_and_never_reach_the_reconcile() {
    let office = Office::open().await;
    let busy = || Fault::Answer(429, &[("retry-after", "20")], json!("busy"));
    // The answer to the first attempt that arrives is lost: the next one finds it there.
    office.cluster.break_next([Fault::Refused, busy(), Fault::Hang, Fault::ResetAfter]);
    office.record(Event::info("Up", "now"));
    office.pass(120).await;
    assert_eq!(office.cluster.methods(), "POST POST POST POST POST");
    assert_eq!(office.events().await.len(), 1);
    assert_eq!(office.counts().failed, 0);

    let refused = Status::forbidden("events.k8s.io", "events", "", "no");
    office.cluster.break_next([Fault::Answer(403, &[], serde_json::to_value(refused).unwrap())]);
    office.record(Event::info("Up", "later"));
    office.pass(60).await;
    assert_eq!(office.cluster.methods(), "POST");
    assert_eq!(office.counts().failed, 1);
    // Others still come through.
    office.record(Event::info("Up", "at last"));
    office.pass(1).await;
    assert_eq!(office.events().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn recording_never_waits_and_what_is_too_much_is_counted() {
    let office = Office::open().await;
    // The server is silent: the queue fills.
    office.cluster.break_next([Fault::Hang]);
    office.record(Event::info("First", ""));
    office.pass(1).await;
    for at in 0..2000 {
        office.record(Event::info("Many", at.to_string()));
    }
    assert_eq!(office.counts().dropped, 2000 - 1024);
    assert_eq!(office.recorder.log().find(&HistoryFilter::default()).len(), 2001);
    office.pass(20).await;
    // Then the object's own limit holds: 25 at once, with the first, which is tried again.
    let counts = office.counts();
    assert_eq!((counts.written, counts.limited, counts.recorded), (25, 1024 - 24, 2001));
    office.pass(10).await;
    office.record(Event::info("Later", ""));
    office.pass(1).await;
    assert_eq!(office.counts().written, 26);
}

#[tokio::test(start_paused = true)]
async fn closing_writes_what_waits_and_ends_the_task() {
    let office = Office::open().await;
    office.record(Event::info("Up", "now"));
    office.pass(1).await;
    office.record(Event::info("Up", "now"));
    office.record(Event::info("Bye", ""));
    office.recorder.close();
    let events = async {
        office.task.await.expect("the task ends well");
    };
    tokio::time::timeout(Duration::from_secs(5), events).await.expect("it does not wait for more");
    let counts = office.recorder.counts();
    assert_eq!((counts.written, counts.dropped), (3, 0));
    office.recorder.record(&office.subject, Event::info("Late", ""));
    assert_eq!(office.recorder.counts().dropped, 1);
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_its_last_recorder() {
    let Office { recorder, task, subject, cluster } = Office::open().await;
    recorder.record(&subject, Event::info("Up", "now"));
    drop(recorder);
    tokio::time::timeout(Duration::from_secs(5), task).await.expect("nobody can record any more").unwrap();
    assert_eq!(cluster.methods(), "POST");
}

#[tokio::test(start_paused = true)]
async fn events_can_be_followed() {
    let office = Office::open().await;
    office.record(Event::info("Before", ""));
    let mut stream = office.recorder.log().follow();
    office.record(Event::info("Up", "now"));
    office.record(Event::info("Up", "now"));
    let first = stream.next().await.unwrap();
    let second = stream.next().await.unwrap();
    assert_eq!((first.event.reason.as_str(), first.count, second.count), ("Up", 1, 2));
    // Whoever falls behind goes on with what is left.
    for at in 0..3000 {
        office.record(Event::info("Many", at.to_string()));
    }
    let next = stream.next().await.unwrap();
    assert_eq!(next.event.message, (3000 - 1024).to_string());
}

#[tokio::test(start_paused = true)]
async fn durations_beyond_all_calendars_are_harmless() {
    let (series_delay, refill, log) = (Duration::MAX, Duration::MAX, EventLog::new(Duration::MAX, 100));
    let office = Office::open_with(RecorderOptions { series_delay, refill, log, ..RecorderOptions::default() }).await;
    for _ in 0..2 {
        office.record(Event::info("Up", "now"));
        office.pass(1).await;
    }
    office.record(Event::info("Down", "now"));
    office.pass(1).await;
    assert_eq!(office.counts().written, 2);
    // A repetition whose delay never ends is written when the recorder is closed.
    office.recorder.close();
    office.task.await.unwrap();
    assert_eq!(office.recorder.counts().written, 3);
}
