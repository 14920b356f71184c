//! Ours as users have it: one async function and a typed object, with metrics and probes beside it. Its objects are woken
//! by a ConfigMap that concerns them all, because that is how users do it.

use konverge::builders::ConfigMap;
use konverge::prelude::*;
use konverge::{BindAddress, ControllerSettings, HealthSettings, MetricsSettings, Settings};
use kube::Client;
use tokio::sync::mpsc;

use super::{WakeAll, Work};
use crate::operator::job::CONCURRENCY;
use crate::operator::kinds::Widget;
use crate::operator::replay;

/// Settings under which operators do not get into each other's way.
pub fn settings() -> Settings {
    let anywhere = BindAddress::At(([127, 0, 0, 1], 0).into());
    Settings {
        name: "bench".into(),
        metrics: MetricsSettings { address: anywhere, ..MetricsSettings::default() },
        health: HealthSettings { address: anywhere, ..HealthSettings::default() },
        controller: ControllerSettings { max_concurrent_reconciles: CONCURRENCY, ..ControllerSettings::default() },
        ..Settings::default()
    }
}

pub fn start(client: Client, work: Work) -> WakeAll {
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
                    work.tally.saw(spec.sequence);
                }
                work.tally.took(&spec.payload);
                work.rest().await;
                Ok(Action::await_change())
            }
        });
    tokio::spawn(async move {
        if let Err(error) = operator.run_until(std::future::pending()).await {
            eprintln!("the operator ended: {error}");
        }
    });
    let (asked, mut asks) = mpsc::unbounded_channel::<()>();
    tokio::spawn(async move {
        while asks.recv().await.is_some() {
            if let Err(error) = replay::turn(&client).await {
                eprintln!("nothing was woken: {error}");
            }
        }
    });
    Box::new(move || {
        // The other end is there as long as the process is.
        let _ = asked.send(());
    })
}
