//! The controller with `kube::runtime::Controller`, as its documentation shows it, with the same concurrency and the same list
//! strategy as ours.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use kube::runtime::controller::{Action, Config};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;

use super::{WakeAll, Work};
use crate::operator::job::CONCURRENCY;
use crate::operator::kinds::Widget;

pub(super) fn start(client: Client, work: Work) -> WakeAll {
    let (wake, wakes) = mpsc::unbounded_channel::<()>();
    let wakes = stream::unfold(wakes, |mut wakes| async move { wakes.recv().await.map(|()| ((), wakes)) });
    let mut controller = Controller::new(Api::<Widget>::all(client), watcher::Config::default().streaming_lists())
        .with_config(Config::default().concurrency(CONCURRENCY as u16))
        .reconcile_all_on(wakes);
    if let Some(period) = work.resync {
        let ticks = stream::unfold((), move |()| async move {
            tokio::time::sleep(period).await;
            Some(((), ()))
        });
        controller = controller.reconcile_all_on(ticks);
    }
    let reconcile = |widget: Arc<Widget>, work: Arc<Work>| async move {
        if work.stamped {
            work.counter.change_seen(widget.spec.sequence);
        }
        work.counter.reconciled(&widget.spec.payload);
        work.pause().await;
        Ok::<_, Infallible>(Action::await_change())
    };
    let on_error = |_: Arc<Widget>, error: &Infallible, _: Arc<Work>| match *error {};
    let reconciles = controller.run(reconcile, on_error, Arc::new(work));
    tokio::spawn(reconciles.for_each(|_| std::future::ready(())));
    Box::new(move || {
        // The receiver lives as long as the process.
        let _ = wake.send(());
    })
}
