//! The controller with `konverge::Operator`, as users write it: an async function with a typed object, and metrics and probes.
//! A watched ConfigMap that maps to all objects wakes them, as it would in a user's operator.

use konverge::builders::ConfigMap;
use konverge::prelude::*;
use konverge::{BindAddress, ControllerSettings, HealthSettings, MetricsSettings, Settings};
use kube::Client;
use tokio::sync::mpsc;

use super::{WakeAll, Work};
use crate::operator::job::CONCURRENCY;
use crate::operator::kinds::Widget;
use crate::operator::replay;

/// Settings with free ports, so that several operators can run on one machine.
pub(crate) fn settings() -> Settings {
    let anywhere = BindAddress::At(([127, 0, 0, 1], 0).into());
    Settings {
        name: "bench".into(),
        metrics: MetricsSettings { address: anywhere, ..MetricsSettings::default() },
        health: HealthSettings { address: anywhere, ..HealthSettings::default() },
        controller: ControllerSettings { max_concurrent_reconciles: CONCURRENCY, ..ControllerSettings::default() },
        ..Settings::default()
    }
}

pub(super) fn start(client: Client, work: Work) -> WakeAll {
    let keys = work.keys();
    let settings = Settings { sync_period: work.resync, ..settings() };
    let operator = Operator::<Widget>::new()
        .settings(settings)
        .client(client.clone())
        .watches::<ConfigMap>(move |_| keys.clone())
        .reconcile(move |ctx: Context<Widget>| {
            let work = work.clone();
            async move {
                let spec = &ctx.resource().spec;
                if work.stamped {
                    work.counter.change_seen(spec.sequence);
                }
                work.counter.reconciled(&spec.payload);
                work.pause().await;
                Ok(Action::await_change())
            }
        });
    tokio::spawn(async move {
        if let Err(error) = operator.run_until(std::future::pending()).await {
            eprintln!("the operator ended: {error}");
        }
    });
    let (wake, mut wakes) = mpsc::unbounded_channel::<()>();
    tokio::spawn(async move {
        while wakes.recv().await.is_some() {
            if let Err(error) = replay::wake_all(&client).await {
                eprintln!("cannot wake the objects: {error}");
            }
        }
    });
    Box::new(move || {
        // The receiver lives as long as the process.
        let _ = wake.send(());
    })
}
