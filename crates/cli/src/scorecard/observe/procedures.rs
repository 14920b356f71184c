//! What the project declares: backup, restore and their like. In: procedures. Out: whether what was declared to tell success came true.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::progress;
use crate::scorecard::declarations::{BEFORE_UPGRADE, Declared, PROCEDURES, Until};
use crate::scorecard::observations::{Looked, Procedure};
use crate::scorecard::operator_process::LOOK;
use crate::scorecard::session::{Patience, Session};
use crate::scorecard::subject::Subject;

pub(super) async fn observe(
    subject: &Subject,
    declared: &BTreeMap<&'static str, Declared>,
    patience: Patience,
) -> BTreeMap<&'static str, Looked<Procedure>> {
    let mut seen: BTreeMap<&'static str, Looked<Procedure>> = declared.keys().map(|name| (*name, None)).collect();
    if let Err(why) = run(subject, declared, patience, &mut seen).await {
        for looked in seen.values_mut().filter(|looked| looked.is_none()) {
            *looked = Some(Err(why.clone()));
        }
    }
    seen
}

async fn run(
    subject: &Subject,
    declared: &BTreeMap<&'static str, Declared>,
    patience: Patience,
    seen: &mut BTreeMap<&'static str, Looked<Procedure>>,
) -> Result<(), String> {
    let wanted = || {
        PROCEDURES.iter().filter(|name| **name != BEFORE_UPGRADE).filter_map(|name| Some((*name, declared.get(name)?)))
    };
    if wanted().next().is_none() {
        return Ok(());
    }
    let (mut session, _) = Session::open(subject, patience).await?;
    if let Some(why) = session.start(subject).await?.problem() {
        return Err(why);
    }
    Session::apply_samples(&session.cluster, subject, patience).await;
    session.rest().await;
    for (name, Declared { apply, until }) in wanted() {
        progress(&format!("doing what is declared as {name}"));
        let mut refused = None;
        for object in apply {
            if let Err((_, why)) = session.cluster.apply(object).await {
                refused = Some(why);
            }
        }
        let procedure = match refused {
            Some(why) => Procedure { until: until.to_string(), missing: Some(why) },
            None => wait_for(&session, until).await,
        };
        seen.insert(name, Some(Ok(procedure)));
    }
    session.close().await;
    Ok(())
}

/// Waits until something is true.
pub(super) async fn wait_for(session: &Session, until: &Until) -> Procedure {
    let deadline = Instant::now() + session.patience.timeout;
    loop {
        let missing = match session.now(&until.object()).await {
            Ok(object) => until.missing(object.as_ref()),
            Err(why) => Some(why),
        };
        if missing.is_none() || Instant::now() > deadline {
            return Procedure { until: until.to_string(), missing };
        }
        tokio::time::sleep(LOOK).await;
    }
}
