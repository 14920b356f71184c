//! Whether the server is healthy. In: the health of the store. Out: the answer to probes, and a line in the log when it changes.
//! Repairs nothing; the store does that itself.

use http::Response;
use http::request::Parts;
use konverge_store::Health;
use tokio::sync::watch;

use crate::body::Body;
use crate::response::{not_found_page, typed};

/// Answers `/healthz`, `/livez` and `/readyz`, or one check of them, as kube-apiserver does.
pub(crate) fn answer(parts: &Parts, check: Option<&str>, store: &Health) -> Response<Body> {
    let probe = parts.uri.path().trim_matches('/').split('/').next().unwrap_or_default();
    // A restart does not help against a full disk, and reads go on: such a server is alive, but not ready.
    let problem = match store {
        Health::Failing(_) if probe == "livez" => None,
        store => store.problem(),
    };
    let checks = [("ping", None), ("store", problem)];
    let text = |code, text: String| typed(code, "text/plain; charset=utf-8", Body::full(text));
    if let Some(check) = check {
        return match checks.iter().find(|(name, _)| *name == check) {
            None => not_found_page(),
            Some((_, None)) => text(200, "ok".to_owned()),
            Some((name, Some(why))) => text(500, format!("{name} failed: {why}\n")),
        };
    }
    let verbose = parts.uri.query().is_some_and(|query| query.split('&').any(|one| one.starts_with("verbose")));
    let lines: String = checks
        .iter()
        .map(|(name, problem)| match problem {
            None => format!("[+]{name} ok\n"),
            Some(why) => format!("[-]{name} failed: {why}\n"),
        })
        .collect();
    match problem {
        Some(_) => text(500, format!("{lines}{probe} check failed\n")),
        None if verbose => text(200, format!("{lines}{probe} check passed\n")),
        None => text(200, "ok".to_owned()),
    }
}

/// Logs once when the store fails, and once when it can write again, until the server closes or the store is gone.
pub(crate) async fn log(health: watch::Receiver<Health>, closing: watch::Receiver<bool>) {
    follow(health, closing, |health| match health {
        Health::Fine => tracing::info!("the store can write again"),
        Health::Failing(why) => tracing::error!(%why, "the store cannot write; the server is not ready"),
        Health::Broken(why) => tracing::error!(%why, "the store is broken; the server has to be restarted"),
    })
    .await;
}

async fn follow(
    mut health: watch::Receiver<Health>,
    mut closing: watch::Receiver<bool>,
    mut report: impl FnMut(&Health),
) {
    // A failure from before the server listened, such as a disk that is full at the start, is reported as well.
    if *health.borrow() != Health::Fine {
        health.mark_changed();
    }
    loop {
        tokio::select! {
            changed = health.changed() => if changed.is_err() { return },
            _ = closing.wait_for(|closing| *closing) => return,
        }
        report(&health.borrow_and_update());
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_store_that_failed_before_anybody_listened_is_told_of() {
        let failing = || Health::Failing("the disk is full".into());
        for (first, then, expect) in [
            (Health::Fine, None, vec![]),
            (Health::Fine, Some(failing()), vec![failing()]),
            (failing(), None, vec![failing()]),
            (failing(), Some(Health::Fine), vec![failing(), Health::Fine]),
        ] {
            let (store, health) = watch::channel(first.clone());
            let (_closing, closing) = watch::channel(false);
            let mut told = Vec::new();
            let mut following = Box::pin(follow(health, closing, |health| told.push(health.clone())));
            assert!(futures_util::poll!(&mut following).is_pending());
            if let Some(then) = then {
                store.send_replace(then);
                assert!(futures_util::poll!(&mut following).is_pending());
            }
            drop(store);
            following.await;
            assert_eq!(told, expect, "{first:?}");
        }
    }

    #[tokio::test]
    async fn probes_tell_what_the_store_says() {
        let fine = Health::Fine;
        let failing = Health::Failing("the disk is full".into());
        let broken = Health::Broken("an fsync failed".into());
        let cases: [(&str, Option<&str>, &Health, u16, &str); 13] = [
            ("/readyz", None, &fine, 200, "ok"),
            ("/readyz?verbose", None, &fine, 200, "[+]ping ok\n[+]store ok\nreadyz check passed\n"),
            ("/readyz", None, &failing, 500, "[+]ping ok\n[-]store failed: the disk is full\nreadyz check failed\n"),
            ("/healthz", None, &failing, 500, "[+]ping ok\n[-]store failed: the disk is full\nhealthz check failed\n"),
            ("/livez", None, &failing, 200, "ok"),
            ("/livez?verbose", None, &failing, 200, "[+]ping ok\n[+]store ok\nlivez check passed\n"),
            ("/livez", None, &broken, 500, "[+]ping ok\n[-]store failed: an fsync failed\nlivez check failed\n"),
            ("/readyz", None, &broken, 500, "[+]ping ok\n[-]store failed: an fsync failed\nreadyz check failed\n"),
            ("/readyz/ping", Some("ping"), &failing, 200, "ok"),
            ("/readyz/store", Some("store"), &fine, 200, "ok"),
            ("/readyz/store", Some("store"), &failing, 500, "store failed: the disk is full\n"),
            ("/livez/store", Some("store"), &failing, 200, "ok"),
            ("/readyz/unicorn", Some("unicorn"), &fine, 404, "404 page not found\n"),
        ];
        for (path, check, health, code, text) in cases {
            let (parts, ()) = http::Request::get(path).body(()).unwrap().into_parts();
            let response = answer(&parts, check, health);
            assert_eq!(response.status().as_u16(), code, "{path} {health:?}");
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), text, "{path} {health:?}");
        }
    }
}
