//! What people see of a reconcile that fails: an event and a condition on its object, for as long as it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use konverge::k8s_openapi::api::core::v1::Node;
use konverge::k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as Told;
use konverge::kube::Api;
use konverge::kube::api::PostParams;
use konverge::prelude::*;
use konverge::serde_json::json;
use konverge::{EventLog, HistoryFilter, READY, Settings};
use konverge_testkit::{Cluster, Fake, Verb};

/// Does what its mood says.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Robot", namespaced, status = "RobotStatus")]
pub struct RobotSpec {
    /// What becomes of its reconcile.
    pub mood: String,
}

/// What is true of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RobotStatus {
    /// What an operator wrote.
    pub note: String,
    /// Filled by the framework.
    pub conditions: Vec<Told>,
}

fn robot(mood: &str) -> Robot {
    Robot::new("r", RobotSpec { mood: mood.into() })
}

/// The condition `Ready` of a robot: status, reason and message.
fn ready(robot: &Robot) -> Option<(String, String, String)> {
    let conditions = robot.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == READY);
    ready.map(|ready| (ready.status.clone(), ready.reason.clone(), ready.message.clone()))
}

fn is_ready_told(robot: &Robot) -> bool {
    ready(robot).is_some()
}

async fn reconcile(ctx: Context<Robot>) -> Result<Action> {
    match ctx.resource().spec.mood.as_str() {
        "fails" => Err(Error::new("the disk is full")),
        "waits" => Err(Error::retry_after(Duration::from_secs(5), "the backup still runs").reason("BackupRuns")),
        "wrong" => Err(Error::permanent("there is no such colour")),
        "named" => Err(Error::permanent("the Secret login is not there").reason("SecretMissing")),
        "panics" => panic!("the paper is out"),
        "hangs" => std::future::pending().await,
        "invalid" => {
            let mut errors = FieldErrors::new();
            errors.invalid("spec.mood", "invalid", "is not a mood");
            Err(errors.into())
        }
        "grumbles" => {
            ctx.set_condition(Condition::no(READY, "Grumbles", "in its own words")).await?;
            Err(Error::permanent("there is no oil"))
        }
        _ => Ok(Action::await_change()),
    }
}

/// One that waits for ten seconds at most, which is less than a test does.
fn operator() -> Operator<Robot> {
    let brief = |settings: &mut Settings| settings.controller.reconcile_timeout = Some(Duration::from_secs(10));
    Operator::<Robot>::new().reconcile(reconcile).configure(brief)
}

/// An operator or a controller of robots, and how often it has reconciled.
fn counted<P: Default>() -> (Controller<Robot, P>, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counts = count.clone();
    let counting = move |ctx| {
        counts.fetch_add(1, Relaxed);
        reconcile(ctx)
    };
    (Controller::<Robot, P>::new().reconcile(counting), count)
}

/// Every failure that lasts is shown, by an event and a condition, until a reconcile succeeds.
#[tokio::test(start_paused = true)]
async fn what_hangs_is_told_until_it_does_not() -> Result<()> {
    for (mood, reason, message) in [
        ("fails", "Failed", "the disk is full"),
        ("waits", "BackupRuns", "the backup still runs"),
        ("wrong", "Failed", "there is no such colour"),
        ("named", "SecretMissing", "the Secret login is not there"),
        ("panics", "Panicked", "the reconcile panicked: the paper is out"),
        ("hangs", "TimedOut", "the reconcile took longer than 10s"),
        ("invalid", "Invalid", "spec.mood: is not a mood"),
    ] {
        let fake = Fake::new().with(robot(mood));
        let running = fake.run_unrestricted(operator());
        let told = fake.wait_until("r", is_ready_told).await?;
        let text = |text: &str| text.to_owned();
        let expect = (text("False"), text(reason), format!("reconcile failed: {message}"));
        assert_eq!(ready(&told), Some(expect), "{mood}");
        assert_eq!(told.status.unwrap_or_default().conditions[0].observed_generation, Some(1), "{mood}");

        fake.edit("r", |robot: &mut Robot| robot.spec.mood = "fine".into()).await?;
        fake.wait_until("r", |robot: &Robot| ready(robot).is_none()).await?;
        running.stop().await?;
        assert_eq!(fake.events().await?, [format!("Warning {reason} Robot default/r: {message}")], "{mood}");
    }
    Ok(())
}

/// What the framework writes about a failure is no reason to reconcile, so it is reported once.
#[tokio::test(start_paused = true)]
async fn an_invalid_object_is_reported_once() -> Result<()> {
    for mood in ["invalid", "wrong"] {
        let fake = Fake::new().with(robot(mood));
        let (log, (operator, count)) = (EventLog::default(), counted());
        let running = fake.run_unrestricted(operator.events(log.clone()));
        fake.wait_until("r", is_ready_told).await?;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        running.stop().await?;
        let counts: Vec<u32> = log.find(&HistoryFilter::default()).iter().map(|recorded| recorded.count).collect();
        assert_eq!((count.load(Relaxed), counts), (1, vec![1]), "{mood}");
    }
    Ok(())
}

/// Retries are not hurried by what is written about them: as many as the backoff has in an hour.
#[tokio::test(start_paused = true)]
async fn a_report_does_not_cut_the_backoff() -> Result<()> {
    let fake = Fake::new().with(robot("fails"));
    let (operator, count) = counted();
    let running = fake.run_unrestricted(operator);
    tokio::time::sleep(Duration::from_secs(600)).await;
    running.stop().await?;
    // 0.5 s, doubled: ten of them are past 255 seconds, the eleventh comes five minutes later.
    assert!((10..=13).contains(&count.load(Relaxed)), "{count:?}");
    assert_eq!(fake.events().await?.len(), 1);
    Ok(())
}

/// Who is given up says so, and is left alone until something changes: what is written about it is no change.
#[tokio::test(start_paused = true)]
async fn giving_up_is_told() -> Result<()> {
    for (mood, reason, message) in
        [("fails", "Failed", "the disk is full"), ("panics", "Panicked", "the reconcile panicked: the paper is out")]
    {
        let fake = Fake::new().with(robot(mood));
        let (operator, count) = counted();
        let running =
            fake.run_unrestricted(operator.configure(|settings| settings.controller.backoff.max_retries = Some(2)));
        let given_up = "reconcile failed 3 times in a row, and is not tried again until something changes: ";
        let is_told = |robot: &Robot| ready(robot).is_some_and(|(_, _, message)| message.starts_with(given_up));
        let told = fake.wait_until("r", is_told).await?;
        let expect = ("False".to_owned(), reason.to_owned(), format!("{given_up}{message}"));
        assert_eq!(ready(&told), Some(expect));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(count.load(Relaxed), 3, "{mood}");

        fake.edit("r", |robot: &mut Robot| robot.spec.mood = "fine".into()).await?;
        fake.wait_until("r", |robot: &Robot| ready(robot).is_none()).await?;
        running.stop().await?;
        let mut events = fake.events().await?;
        events.sort();
        let waits = "all retries are used up, so it waits until something changes";
        let expect = [("GaveUp", format!("{waits}: {message}")), (reason, message.to_owned())];
        let mut expect = expect.map(|(reason, message)| format!("Warning {reason} Robot default/r: {message}"));
        expect.sort();
        assert_eq!(events, expect, "{mood}");
    }
    Ok(())
}

async fn copy(ctx: Context<Robot>) -> Result<Action> {
    ctx.apply(ConfigMap::new(ctx.name())).await?;
    Ok(Action::await_change())
}

/// Another writer that was faster, or a server that is away, is nobody's fault and passes.
#[tokio::test(start_paused = true)]
async fn conflicts_and_outages_are_not_told() -> Result<()> {
    let fake = Fake::new().with(robot("fine"));
    fake.when::<ConfigMap>(Verb::Apply).once().conflict();
    fake.when::<ConfigMap>(Verb::Apply).once().fail(503);
    fake.when::<ConfigMap>(Verb::Apply).once().unreachable();
    fake.when::<ConfigMap>(Verb::Apply).once().throttle(Duration::from_secs(3));
    let running = fake.run_unrestricted(Operator::<Robot>::new().reconcile(copy));
    fake.wait_until("r", |_: &ConfigMap| true).await?;
    running.stop().await?;
    assert_eq!(fake.writes().only(|call| call.code != Some(201)).len(), 4, "{}", fake.writes());
    assert_eq!(fake.events().await?, [""; 0]);
    assert_eq!(ready(&fake.get("r").await?), None);
    Ok(())
}

/// What usually passes by itself, and does not, is told after a while: a webhook that is down answers with 500 for ever.
#[tokio::test(start_paused = true)]
async fn conflicts_and_failures_of_the_server_that_last_are_told() -> Result<()> {
    async fn create_once(ctx: Context<Robot>) -> Result<Action> {
        ctx.create_once(ConfigMap::new(ctx.name())).await?;
        Ok(Action::await_change())
    }
    async fn create(ctx: Context<Robot>) -> Result<Action> {
        let maps = Api::<konverge::k8s_openapi::api::core::v1::ConfigMap>::namespaced(ctx.client(), ctx.namespace());
        maps.create(&PostParams::default(), &ConfigMap::new(ctx.name()).into_inner()).await?;
        Ok(Action::await_change())
    }
    type Case = (Operator<Robot>, Verb, u16, &'static str, &'static str);
    let robots = Operator::<Robot>::new;
    let cases: [Case; 4] = [
        (robots().reconcile(copy), Verb::Apply, 500, "failed calling webhook \"w.example.com\"", "Unknown"),
        (robots().reconcile(copy), Verb::Apply, 409, "please apply your changes to the latest version", "Conflict"),
        (robots().reconcile(create_once), Verb::Create, 409, "configmaps \"r\" already exists", "AlreadyExists"),
        (robots().reconcile(create), Verb::Create, 409, "configmaps \"r\" already exists", "AlreadyExists"),
    ];
    for (operator, verb, code, words, reason) in cases {
        let fake = Fake::new().with(robot("fine"));
        fake.when::<ConfigMap>(verb).times(6).fail_with(code, words);
        let running = fake.run_unrestricted(operator);
        let told = fake.wait_until("r", is_ready_told).await?;
        let (_, given, message) = ready(&told).unwrap_or_default();
        assert_eq!(given, reason, "{code} {words}");
        assert!(message.starts_with("reconcile failed: ") && message.contains(words), "{message}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        fake.wait_until("r", |robot: &Robot| ready(robot).is_none()).await?;
        running.stop().await?;
        let events = fake.events().await?;
        let [event] = events.as_slice() else { panic!("{events:?}") };
        assert!(event.starts_with(&format!("Warning {reason} Robot default/r: ")) && event.contains(words), "{event}");
    }
    Ok(())
}

/// A server that is away is away for all objects: nothing is said on each of them, however long that lasts.
#[tokio::test(start_paused = true)]
async fn an_outage_is_not_told() -> Result<()> {
    for how in ["no connection", "no answer", "its store is away"] {
        let fake = Fake::new().with(robot("fine"));
        let away = || fake.whenever([Verb::Apply, Verb::Patch, Verb::Create]).times(20);
        match how {
            "no connection" => away().unreachable(),
            "no answer" => away().lose_answer(),
            _ => away().fail(500),
        }
        let log = EventLog::default();
        let running = fake.run_unrestricted(Operator::<Robot>::new().reconcile(copy).events(log.clone()));
        tokio::time::sleep(Duration::from_secs(1200)).await;
        fake.get::<ConfigMap>("r").await?;
        running.stop().await?;
        let told: Vec<String> = log.find(&HistoryFilter::default()).iter().map(|event| format!("{event:?}")).collect();
        assert_eq!(told, [""; 0], "{how}");
        assert_eq!(ready(&fake.get("r").await?), None, "{how}");
    }
    Ok(())
}

/// Two controllers of one kind that both fail say so in one condition, and do not revive each other by that.
#[tokio::test(start_paused = true)]
async fn reports_of_another_controller_wake_nobody() -> Result<()> {
    let fake = Fake::new().with(robot("fails"));
    let ((gold, golden), (silver, silvery)) = (counted(), counted());
    let operator = gold.named("gold").and(silver.named("silver"));
    let running =
        fake.run_unrestricted(operator.configure(|settings| settings.controller.backoff.max_retries = Some(2)));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    running.stop().await?;
    assert_eq!([golden, silvery].map(|count| count.load(Relaxed)), [3, 3]);
    Ok(())
}

/// A condition that the operator's own code sets stays as it is, and nobody goes round in circles about it.
#[tokio::test(start_paused = true)]
async fn a_condition_of_the_operators_own_is_left_alone() -> Result<()> {
    let fake = Fake::new().with(robot("grumbles"));
    let (operator, count) = counted();
    let running = fake.run_unrestricted(operator);
    fake.wait_until("r", is_ready_told).await?;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    fake.edit("r", |robot: &mut Robot| robot.spec.mood = "fine".into()).await?;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    running.stop().await?;
    let own = ("False".to_owned(), "Grumbles".to_owned(), "in its own words".to_owned());
    assert_eq!(ready(&fake.get("r").await?), Some(own));
    assert_eq!(fake.events().await?, ["Warning Failed Robot default/r: there is no oil"]);
    // Its own write to the status wakes it once.
    assert!(count.load(Relaxed) <= 3, "{count:?}");
    Ok(())
}

/// One failure says little about something that works; the second in a row does.
#[tokio::test(start_paused = true)]
async fn what_is_ready_stays_so_through_a_single_failure() -> Result<()> {
    for (failures, written) in [(1, 0), (3, 2)] {
        let fake = Fake::new().with(json!({
            "apiVersion": "example.com/v1", "kind": "Robot", "metadata": {"name": "r"}, "spec": {"mood": "fine"},
            "status": {"note": "", "conditions": [{
                "type": "Ready", "status": "True", "reason": "Works", "message": "it does",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        }));
        let fake = fake.knows::<Robot>();
        fake.when::<ConfigMap>(Verb::Apply).times(failures).fail(404);
        let running = fake.run_unrestricted(Operator::<Robot>::new().reconcile(async |ctx: Context<Robot>| {
            ctx.apply(ConfigMap::new(ctx.name())).await?;
            Ok(Action::await_change())
        }));
        fake.wait_until("r", |_: &ConfigMap| true).await?;
        running.stop().await?;
        let statuses = fake.writes().only(|call| call.to_string().starts_with("patch Robot/status"));
        assert_eq!(statuses.len(), written, "{}", fake.writes());
    }
    Ok(())
}

/// An operator says itself what a failure means for its status.
#[tokio::test(start_paused = true)]
async fn a_hook_sets_the_status() -> Result<()> {
    for (mood, note) in [
        ("fails", "Failed: the disk is full"),
        ("named", "SecretMissing: the Secret login is not there"),
        ("panics", "Panicked: the reconcile panicked: the paper is out"),
        ("hangs", "TimedOut: the reconcile took longer than 10s"),
    ] {
        let fake = Fake::new().with(robot(mood));
        let running = fake.run_unrestricted(operator().on_error(async |ctx: Context<Robot>, error: Arc<Error>| {
            let note = format!("{}: {error}", error.get_reason());
            let ready = Condition::no(READY, "Hooked", "by the operator");
            ctx.set_status_with(json!({"note": note}), [ready]).await
        }));
        let told = fake.wait_until("r", is_ready_told).await?;
        running.stop().await?;
        let own = ("False".to_owned(), "Hooked".to_owned(), "by the operator".to_owned());
        assert_eq!((ready(&told), told.status.unwrap_or_default().note), (Some(own), note.to_owned()));
    }
    Ok(())
}

/// A hook that fails, panics or hangs changes nothing about what becomes of the object.
#[tokio::test(start_paused = true)]
async fn a_broken_hook_holds_up_nothing() -> Result<()> {
    for broken in ["fails", "panics", "hangs"] {
        let fake = Fake::new().with(robot("named"));
        let running = fake.run_unrestricted(operator().on_error(move |_, _| async move {
            match broken {
                "fails" => Err(Error::new("no")),
                "panics" => panic!("no"),
                _ => std::future::pending().await,
            }
        }));
        fake.edit("r", |robot: &mut Robot| robot.spec.mood = "named".into()).await?;
        let told = fake.wait_until("r", is_ready_told).await?;
        assert_eq!(ready(&told).map(|(_, reason, _)| reason).as_deref(), Some("SecretMissing"), "{broken}");
        fake.edit("r", |robot: &mut Robot| robot.spec.mood = "fine".into()).await?;
        fake.wait_until("r", |robot: &Robot| ready(robot).is_none()).await?;
        running.stop().await?;
    }
    Ok(())
}

/// The conditions of Kubernetes' own kinds mean what Kubernetes says: a node is not unready because an operator failed.
#[tokio::test(start_paused = true)]
async fn kinds_of_kubernetes_get_an_event_and_no_condition() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})).await?;
    let wrong = async |_: Context<Node>| Err(Error::permanent("there is no rack"));
    cluster.reconcile(&Operator::<Node>::new().reconcile(wrong), "n").await.unwrap_err();
    assert!(cluster.writes().is_empty(), "{}", cluster.writes());
    assert_eq!(cluster.events().await?, ["Warning Failed Node n: there is no rack"]);
    Ok(())
}
