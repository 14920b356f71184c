//! Runs in which something fails: the operator is killed right after a write was stored and before it was answered, or the server refuses the first attempt of
//! each write. In: a subject, and the end of an undisturbed run. Out: whether the end is the same.

use jiff::Timestamp;

use crate::scorecard::end_state::EndState;
use crate::scorecard::observations::{Disturbed, Rest, Started};
use crate::scorecard::session::{Patience, Session};
use crate::scorecard::subject::Subject;

/// How many times an operator is killed in a row. One that gets no further between two kills shows nothing new.
const MOST_KILLS: usize = 20;

/// Kills the operator at each of its writes about the samples, and lets it come to rest then.
pub(super) async fn interrupted(subject: &Subject, expect: &EndState, patience: Patience) -> Result<Disturbed, String> {
    let (mut session, _) = Session::open(subject, patience).await?;
    let mut seen = Disturbed { problem: session.start(subject).await?.problem(), ..Disturbed::default() };
    if seen.problem.is_none() {
        let (since, from) = (Timestamp::now(), session.cluster.record.count());
        let record = session.cluster.record.clone();
        record.hold_next();
        // The process runs although an answer to it is held, so its webhooks judge the samples.
        Session::apply_samples(&session.cluster, subject, patience).await;
        while seen.times < MOST_KILLS {
            let at_rest = async {
                // A start may be held, too, and is not waited for then.
                session.ready().await;
                session.rest().await
            };
            tokio::select! {
                () = record.held() => {}
                _ = at_rest => break,
            }
            session.kill_operator().await?;
            seen.times += 1;
            record.hold_next();
            session.begin(subject)?;
        }
        record.pass();
        seen.problem = finish(&mut session, subject, seen.times == MOST_KILLS).await?;
        compare_with(&session, subject, expect, &mut seen, from, since).await?;
    }
    session.close().await;
    Ok(seen)
}

/// Lets the operator come to rest. It is started once more if its last start may be held for good.
async fn finish(session: &mut Session, subject: &Subject, held: bool) -> Result<Option<String>, String> {
    if held {
        session.kill_operator().await?;
        session.begin(subject)?;
    }
    let started = session.ready().await;
    if let Some(problem) = started.problem() {
        return Ok(Some(problem));
    }
    Ok(restless(session.rest().await))
}

/// Refuses the first attempt of each write about the samples.
pub(super) async fn refused(subject: &Subject, expect: &EndState, patience: Patience) -> Result<Disturbed, String> {
    let (mut session, _) = Session::open(subject, patience).await?;
    let started = session.start(subject).await?;
    let mut seen = Disturbed { problem: started.problem(), ..Disturbed::default() };
    if started == Started::Ready || started == Started::NoProbe {
        let (since, from) = (Timestamp::now(), session.cluster.record.count());
        session.cluster.record.refuse_first();
        Session::apply_samples(&session.cluster, subject, patience).await;
        seen.problem = restless(session.rest().await);
        seen.times = session.cluster.record.refused_on_purpose();
        session.cluster.record.pass();
        compare_with(&session, subject, expect, &mut seen, from, since).await?;
    }
    session.close().await;
    Ok(seen)
}

fn restless(rest: Rest) -> Option<String> {
    match rest {
        Rest::Quiet => None,
        Rest::Restless(writes) => Some(format!("it does not stop writing: {}", writes.join(", "))),
        Rest::Ended(how) => Some(format!("the operator ended ({how})")),
    }
}

async fn compare_with(
    session: &Session,
    subject: &Subject,
    expect: &EndState,
    seen: &mut Disturbed,
    from: usize,
    since: Timestamp,
) -> Result<(), String> {
    let samples = session.all_now(&subject.distinct_samples()).await?;
    let children = session.children(&session.cluster.record.since(from), &samples, since).await?;
    seen.differences = expect.differences(&EndState::of(&samples, &children));
    Ok(())
}
