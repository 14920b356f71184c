//! How an operator begins and ends: what it refuses to begin with, how long it takes to stop, and what is left of it.

use std::time::Duration;

use konverge::k8s_openapi::api::events::v1::Event;
use konverge::prelude::*;
use konverge::{BackoffSettings, ControllerOverrides};
use konverge_testkit::{Fake, Verb};
use tokio::time::Instant;

/// Something to reconcile.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Lamp", namespaced)]
pub struct LampSpec {
    /// How bright.
    pub watts: u32,
}

fn lamp(name: &str) -> Lamp {
    Lamp::new(name, LampSpec { watts: 40 })
}

async fn fine(_: Context<Lamp>) -> Result<Action> {
    Ok(Action::await_change())
}

/// The start of a deletion is an update: no predicate may keep the cleanup from it.
#[tokio::test(start_paused = true)]
async fn a_cleanup_runs_whatever_the_predicate() -> Result<()> {
    async fn cleanup(ctx: Context<Lamp>) -> Result<()> {
        ctx.event("SwitchedOff", "good night").await
    }
    for predicate in [Predicate::labels_changed(), Predicate::generation_changed(), Predicate::new(|_, _| false)] {
        let fake = Fake::new().with(lamp("l"));
        let running = fake.run_unrestricted(Operator::<Lamp>::new().reconcile(fine).when(predicate).on_delete(cleanup));
        fake.wait_until("l", |lamp: &Lamp| lamp.metadata.finalizers.is_some()).await?;
        fake.delete::<Lamp>("l").await?;
        fake.wait_gone::<Lamp>("l").await?;
        running.stop().await?;
        assert_eq!(fake.events().await?, ["Normal SwitchedOff Lamp default/l: good night"]);
    }
    Ok(())
}

#[tokio::test]
async fn settings_from_code_are_checked() {
    let none = |settings: &mut Settings| settings.controller.max_concurrent_reconciles = 0;
    let mut wrong = Settings::default();
    none(&mut wrong);
    let backoff = BackoffSettings { jitter: 2.0, ..BackoffSettings::default() };
    let odd = ControllerOverrides { backoff: Some(backoff), ..ControllerOverrides::default() };
    for (operator, expect) in [
        (Operator::<Lamp>::new().settings(wrong), "maxConcurrentReconciles"),
        (Operator::<Lamp>::new().settings(Settings::default()).configure(none), "maxConcurrentReconciles"),
        (Operator::<Lamp>::new().settings(quiet()).with(odd), "jitter"),
    ] {
        let operator = operator.reconcile(fine).client(Fake::new().knows::<Lamp>().client());
        let refused = operator.run_until(std::future::ready(())).await.unwrap_err().to_string();
        assert!(refused.contains(expect), "{expect}: {refused}");
    }
}

/// Settings without listeners.
fn quiet() -> Settings {
    let mut settings = Settings::default();
    (settings.metrics.enabled, settings.health.enabled) = (false, false);
    settings
}

/// A Pod has thirty seconds from SIGTERM to SIGKILL. Everything takes as long as it may: a reconcile that never ends, and a
/// server that does not answer to what is left to write.
#[tokio::test(start_paused = true)]
async fn a_stop_takes_less_than_a_pod_has() -> Result<()> {
    async fn endless(ctx: Context<Lamp>) -> Result<Action> {
        ctx.event("Begun", "and never done").await?;
        std::future::pending().await
    }
    let fake = Fake::new().with(lamp("l"));
    fake.when::<Event>(Verb::WRITES).delay(Duration::from_secs(3600));
    let slow = |settings: &mut Settings| settings.controller.reconcile_timeout = None;
    let running = fake.run_unrestricted(Operator::<Lamp>::new().reconcile(endless).configure(slow));
    while fake.calls().only(|call| call.is_about("Event")).lines().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let asked = Instant::now();
    running.stop().await?;
    let took = asked.elapsed();
    assert!(took >= Duration::from_secs(25) && took < Duration::from_secs(30), "{took:?}");
    Ok(())
}

/// Who is dropped is gone, as after a crash: no event follows, not even a count of repetitions.
#[tokio::test(start_paused = true)]
async fn a_dropped_operator_writes_no_more_events() -> Result<()> {
    async fn noisy(ctx: Context<Lamp>) -> Result<Action> {
        ctx.event("Blinked", "on and off").await?;
        Ok(Action::requeue(Duration::from_secs(1)))
    }
    let fake = Fake::new().with(lamp("l"));
    let operator = Operator::<Lamp>::new().reconcile(noisy).in_test(fake.client());
    let running = tokio::spawn(operator.run_until(std::future::pending()));
    // The first is written at once, and repetitions wait for ten seconds.
    tokio::time::sleep(Duration::from_secs(5)).await;
    running.abort();
    let _ = running.await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let events = fake.calls().only(|call| call.is_about("Event")).lines();
    assert!(events.len() == 1 && events[0].starts_with("create Event"), "{events:?}");
    Ok(())
}

/// Whoever reads an event wants to know which Pod wrote it.
#[tokio::test(start_paused = true)]
async fn events_name_the_instance_that_reports() -> Result<()> {
    async fn seen(ctx: Context<Lamp>) -> Result<Action> {
        ctx.event("Seen", "it is there").await?;
        Ok(Action::await_change())
    }
    let fake = Fake::new().with(lamp("l"));
    fake.reconcile(&Operator::<Lamp>::new().reconcile(seen), "l").await?;
    let events = fake.list::<Event>().await?;
    let instance = events[0].reporting_instance.as_deref().unwrap_or_default();
    assert!(instance.len() > "konverge-".len() && instance.starts_with("konverge-"), "{instance}");
    Ok(())
}

/// Two retries, and then an event and a count instead of silence. An outage before that costs none of them.
#[tokio::test(start_paused = true)]
async fn who_is_given_up_is_told_of() -> Result<()> {
    async fn fails(ctx: Context<Lamp>) -> Result<Action> {
        ctx.apply(ConfigMap::new("c")).await?;
        Err(Error::new("the fuse is blown"))
    }
    let fake = Fake::new().with(lamp("l"));
    fake.when::<ConfigMap>(Verb::Apply).times(5).fail(503);
    let (metrics, few) = (Metrics::new(), |settings: &mut Settings| settings.controller.backoff.max_retries = Some(2));
    let running =
        fake.run_unrestricted(Operator::<Lamp>::new().reconcile(fails).configure(few).metrics(metrics.clone()));
    let gave_up = r#"konverge_reconcile_gave_up_total{controller="lamp.example.com"} 1"#;
    for _ in 0..10_000 {
        if metrics.page().contains(gave_up) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(metrics.page().contains(gave_up), "{}", metrics.page());
    running.stop().await?;
    let applied = fake.calls().only(|call| call.is_about("ConfigMap") && call.writes()).lines();
    assert_eq!(applied.iter().filter(|line| line.ends_with("503")).count(), 5, "{applied:?}");
    let events = fake.events().await?;
    let gave_up = |event: &&String| event.starts_with("Warning GaveUp Lamp default/l: ");
    assert_eq!(events.iter().filter(gave_up).count(), 1, "{events:?}");
    Ok(())
}
