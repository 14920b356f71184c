//! The controller with the engine, `konverge_runtime::Controller`: objects are bytes, and a reconcile decodes only the fields
//! that it reads.

use std::sync::Arc;

use konverge_core::ObjectKey;
use konverge_runtime::{
    Action, BoxFuture, Caches, Cause, Controller, ControllerOptions, Result, Run, Target, WatchSettings, What,
};
use kube::Client;

use super::{WakeAll, Work};
use crate::operator::job::CONCURRENCY;
use crate::operator::kinds::Widget;

pub(super) fn start(client: Client, work: Work) -> WakeAll {
    let caches = Caches::new(client, WatchSettings::default());
    let options = ControllerOptions { concurrency: CONCURRENCY, resync: work.resync, ..ControllerOptions::default() };
    let controller = Controller::new("widgets", Target::of::<Widget>(), caches, options);
    let keys = work.keys();
    let running = controller.clone();
    let shared = Arc::new((controller.primary().clone(), work));
    let reconciler = move |run: Run| -> BoxFuture<Result<Action>> {
        let shared = shared.clone();
        Box::pin(async move {
            let (widgets, work) = &*shared;
            let Some(widget) = widgets.get(&run.key) else { return Ok(Action::await_change()) };
            let spec = widget.pointer("/spec").unwrap_or_default();
            if work.stamped {
                let stamp = widget.pointer("/spec/sequence").and_then(|text| text.parse().ok());
                work.counter.change_seen(stamp.unwrap_or_default());
            }
            work.counter.reconciled(spec);
            work.pause().await;
            Ok(Action::await_change())
        })
    };
    tokio::spawn(async move { running.run(Arc::new(reconciler), std::future::pending()).await });
    let kind: Arc<str> = "Storm".into();
    Box::new(move || {
        let cause = |key: &ObjectKey| Cause {
            kind: kind.clone(),
            key: key.clone(),
            what: What::Resync,
            resource_version: String::new(),
        };
        keys.iter().for_each(|key| controller.wake(key, cause(key)));
    })
}
