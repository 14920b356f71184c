//! kube's own controller, as its documentation shows it, with the same number of reconciles at a time and the same way to
//! list.

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

pub fn start(client: Client, work: Work) -> WakeAll {
    let (asked, asks) = mpsc::unbounded_channel::<()>();
    let asks = stream::unfold(asks, |mut asks| async move { asks.recv().await.map(|()| ((), asks)) });
    let mut controller = Controller::new(Api::<Widget>::all(client), watcher::Config::default().streaming_lists())
        .with_config(Config::default().concurrency(CONCURRENCY as u16))
        .reconcile_all_on(asks);
    if let Some(period) = work.resync {
        let ticks = stream::unfold((), move |()| async move {
            tokio::time::sleep(period).await;
            Some(((), ()))
        });
        controller = controller.reconcile_all_on(ticks);
    }
    let reconcile = |widget: Arc<Widget>, work: Arc<Work>| async move {
        if work.stamped {
            work.tally.saw(widget.spec.sequence);
        }
        work.tally.took(&widget.spec.payload);
        work.rest().await;
        Ok::<_, Infallible>(Action::await_change())
    };
    let on_error = |_: Arc<Widget>, error: &Infallible, _: Arc<Work>| match *error {};
    let reconciles = controller.run(reconcile, on_error, Arc::new(work));
    tokio::spawn(reconciles.for_each(|_| std::future::ready(())));
    Box::new(move || {
        // The other end is there as long as the process is.
        let _ = asked.send(());
    })
}
