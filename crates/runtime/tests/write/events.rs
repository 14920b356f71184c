//! The recorder and a server, with a paused clock.

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

/// A running recorder. Its clock is tokio's paused clock, which advances when all tasks wait.
struct TestRecorder {
    cluster: Cluster,
    recorder: Recorder,
    task: JoinHandle<()>,
    subject: Arc<Subject>,
}

impl TestRecorder {
    async fn start() -> Self {
        Self::start_with(RecorderOptions::default()).await
    }

    async fn start_with(options: RecorderOptions) -> Self {
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

    /// Gives the recorder's task this much time.
    async fn wait(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// All events as `kubectl get events` requests them, in the order of their names.
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
    let test = TestRecorder::start().await;
    test.record(Event::info("Created", "the deployment is there"));
    test.wait(1).await;
    let sent = test.cluster.sent();
    assert_eq!((sent.len(), sent[0].path.as_str()), (1, "/apis/events.k8s.io/v1/namespaces/default/events"));
    let events = test.events().await;
    let event = &events[0];
    assert_eq!((&event["type"], &event["reason"]), (&json!("Normal"), &json!("Created")));
    assert_eq!(event["message"], "the deployment is there");
    assert_eq!(event["reportingComponent"], "webapp-operator");
    let involved = &event["involvedObject"];
    assert_eq!((&involved["kind"], &involved["name"]), (&json!("WebApp"), &json!("w")));
    assert_eq!(involved["uid"], json!(test.subject.uid));

    // As `kubectl describe` looks for them.
    let query = format!("involvedObject.name=w,involvedObject.uid={}", test.subject.uid).replace('=', "%3D");
    let uri = format!("/api/v1/namespaces/default/events?fieldSelector={query}");
    let list: Value = test.cluster.client.request(http::Request::get(uri).body(Vec::new()).unwrap()).await.unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn repetitions_within_a_minute_are_one_event_with_a_count() {
    let test = TestRecorder::start().await;
    for _ in 0..50 {
        test.record(Event::warning("Down", "0 of 3"));
        test.wait(1).await;
    }
    test.wait(15).await;
    let events = test.events().await;
    assert_eq!((events.len(), &events[0]["series"]["count"]), (1, &json!(50)));
    // One request creates the event, and one updates it for each ten seconds of repetitions.
    assert_eq!(test.cluster.methods(), "POST PATCH PATCH PATCH PATCH PATCH");
    // A repetition in the next minute is a new event.
    test.record(Event::warning("Down", "0 of 3"));
    test.wait(1).await;
    assert_eq!(test.events().await.len(), 2);
    let history = test.recorder.log().find(&HistoryFilter::default());
    assert_eq!(history.iter().map(|recorded| recorded.count).collect::<Vec<_>>(), [50, 1]);
}

#[tokio::test(start_paused = true)]
async fn events_of_different_severity_or_message_are_different_events() {
    let test = TestRecorder::start().await;
    for severity in [Severity::Info, Severity::Warning, Severity::Error, Severity::Critical] {
        test.record(Event::new(severity, "Same", "same"));
    }
    test.record(Event::info("Same", "other"));
    test.wait(1).await;
    let mut seen: Vec<_> = (test.events().await.iter())
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
async fn a_deleted_event_is_created_again() {
    let test = TestRecorder::start().await;
    test.record(Event::info("Up", "now"));
    test.wait(1).await;
    let name = test.events().await[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let key = ObjectKey::new(Some("default"), &name);
    test.cluster.writer.delete_named(&kind("events.k8s.io", "v1", "Event"), &key).await.unwrap();
    assert!(test.events().await.is_empty());
    test.cluster.methods();
    test.record(Event::info("Up", "now"));
    test.wait(15).await;
    assert_eq!(test.cluster.methods(), "PATCH POST");
    let events = test.events().await;
    assert_eq!((events.len(), &events[0]["series"]["count"]), (1, &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn failed_writes_are_retried_and_never_reach_the_reconcile() {
    let test = TestRecorder::start().await;
    let busy = || Fault::Answer(429, &[("retry-after", "20")], json!("busy"));
    // The response to the first write that succeeds is lost; the next attempt finds that the event exists.
    test.cluster.break_next([Fault::Refused, busy(), Fault::Hang, Fault::ResetAfter]);
    test.record(Event::info("Up", "now"));
    test.wait(120).await;
    assert_eq!(test.cluster.methods(), "POST POST POST POST POST");
    assert_eq!(test.events().await.len(), 1);
    assert_eq!(test.counts().failed, 0);

    let refused = Status::forbidden("events.k8s.io", "events", "", "no");
    test.cluster.break_next([Fault::Answer(403, &[], serde_json::to_value(refused).unwrap())]);
    test.record(Event::info("Up", "later"));
    test.wait(60).await;
    assert_eq!(test.cluster.methods(), "POST");
    assert_eq!(test.counts().failed, 1);
    // Other events are still written.
    test.record(Event::info("Up", "at last"));
    test.wait(1).await;
    assert_eq!(test.events().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn recording_never_waits_and_dropped_events_are_counted() {
    let test = TestRecorder::start().await;
    // The server does not respond, so the queue fills.
    test.cluster.break_next([Fault::Hang]);
    test.record(Event::info("First", ""));
    test.wait(1).await;
    for at in 0..2000 {
        test.record(Event::info("Many", at.to_string()));
    }
    assert_eq!(test.counts().dropped, 2000 - 1024);
    assert_eq!(test.recorder.log().find(&HistoryFilter::default()).len(), 2001);
    test.wait(20).await;
    // Then the limit of the object counts: 25 without a pause, including the first event, which is retried.
    let counts = test.counts();
    assert_eq!((counts.written, counts.limited, counts.recorded), (25, 1024 - 24, 2001));
    test.wait(10).await;
    test.record(Event::info("Later", ""));
    test.wait(1).await;
    assert_eq!(test.counts().written, 26);
}

#[tokio::test(start_paused = true)]
async fn closing_writes_waiting_events_and_ends_the_task() {
    let test = TestRecorder::start().await;
    test.record(Event::info("Up", "now"));
    test.wait(1).await;
    test.record(Event::info("Up", "now"));
    test.record(Event::info("Bye", ""));
    test.recorder.close();
    let events = async {
        test.task.await.expect("the task ends well");
    };
    tokio::time::timeout(Duration::from_secs(5), events).await.expect("the task does not wait for more events");
    let counts = test.recorder.counts();
    assert_eq!((counts.written, counts.dropped), (3, 0));
    test.recorder.record(&test.subject, Event::info("Late", ""));
    assert_eq!(test.recorder.counts().dropped, 1);
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_its_last_recorder() {
    let TestRecorder { recorder, task, subject, cluster } = TestRecorder::start().await;
    recorder.record(&subject, Event::info("Up", "now"));
    drop(recorder);
    tokio::time::timeout(Duration::from_secs(5), task).await.expect("nobody can record any more").unwrap();
    assert_eq!(cluster.methods(), "POST");
}

#[tokio::test(start_paused = true)]
async fn events_can_be_followed() {
    let test = TestRecorder::start().await;
    test.record(Event::info("Before", ""));
    let mut stream = test.recorder.log().follow();
    test.record(Event::info("Up", "now"));
    test.record(Event::info("Up", "now"));
    let first = stream.next().await.unwrap();
    let second = stream.next().await.unwrap();
    assert_eq!((first.event.reason.as_str(), first.count, second.count), ("Up", 1, 2));
    // A reader that falls behind continues with the oldest event that is left.
    for at in 0..3000 {
        test.record(Event::info("Many", at.to_string()));
    }
    let next = stream.next().await.unwrap();
    assert_eq!(next.event.message, (3000 - 1024).to_string());
}

#[tokio::test(start_paused = true)]
async fn durations_beyond_all_calendars_are_harmless() {
    let (series_delay, refill, log) = (Duration::MAX, Duration::MAX, EventLog::new(Duration::MAX, 100));
    let test =
        TestRecorder::start_with(RecorderOptions { series_delay, refill, log, ..RecorderOptions::default() }).await;
    for _ in 0..2 {
        test.record(Event::info("Up", "now"));
        test.wait(1).await;
    }
    test.record(Event::info("Down", "now"));
    test.wait(1).await;
    assert_eq!(test.counts().written, 2);
    // A repetition whose delay never ends is written when the recorder is closed.
    test.recorder.close();
    test.task.await.unwrap();
    assert_eq!(test.recorder.counts().written, 3);
}
