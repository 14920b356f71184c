//! Writes that race.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use serde_json::json;

use konverge_store::{Commit, Write as StoreWrite};

use super::*;
use crate::record;
use crate::user::SystemUser;
use crate::{ApiServer, Options};

/// Somebody else is always faster: each time, between the look at the object and the commit.
#[tokio::test]
async fn conflicts_end_in_a_409() {
    let server = ApiServer::open(Options::default()).await.expect("a store in memory opens");
    let resource = &server.0.registry.find("", "v1", "configmaps").expect("is built in");
    let context = server.0.task_context(SystemUser::ApiServer);
    let write = WriteRequest { namespace: Some("default"), ..server.0.internal_write(&context, resource) };
    let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hot"}});
    let created = write.create(Decoded { value, duplicates: Vec::new() }, &mut Vec::new()).await;
    assert!(matches!(created, Ok(WriteOutcome::Stored(_))));
    let key: Arc<str> = resource.key(Some("default"), "hot").into();
    let tries = AtomicUsize::new(0);
    let touch = |object: &Value| {
        let at = tries.fetch_add(1, Ordering::Relaxed);
        let value = record::encode(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": object["metadata"], "data": {"at": at.to_string()},
        }));
        let writes = vec![StoreWrite::Put(key.clone(), value)];
        let committed = server.0.store.commit(Commit { conditions: Vec::new(), writes });
        committed.now_or_never().expect("memory does not wait").expect("nothing is in the way");
        let mut new = object.clone();
        new["data"] = json!({"mine": "yes"});
        Ok(new)
    };
    let refused = write.modify("hot", &mut Vec::new(), touch).await.expect_err("is always too late");
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    assert_eq!(tries.load(Ordering::Relaxed), MAX_CONFLICTS);
}

/// The first attempt loses a race. What was warned about before stays, and what both attempts warn about is said once.
#[tokio::test]
async fn warnings_survive_a_conflict_and_are_not_repeated() {
    let server = ApiServer::open(Options::default()).await.expect("a store in memory opens");
    let resource = &server.0.registry.find("", "v1", "configmaps").expect("is built in");
    let context = server.0.task_context(SystemUser::ApiServer);
    let write = WriteRequest {
        namespace: Some("default"),
        validation: FieldValidation::Warn,
        ..server.0.internal_write(&context, resource)
    };
    let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hot"}});
    let created = write.create(Decoded { value, duplicates: Vec::new() }, &mut Vec::new()).await;
    assert!(matches!(created, Ok(WriteOutcome::Stored(_))));
    let key: Arc<str> = resource.key(Some("default"), "hot").into();
    let tries = AtomicUsize::new(0);
    let patched = |object: &Value| {
        if tries.fetch_add(1, Ordering::Relaxed) == 0 {
            let writes = vec![StoreWrite::Put(key.clone(), record::encode(object))];
            let committed = server.0.store.commit(Commit { conditions: Vec::new(), writes });
            committed.now_or_never().expect("memory does not wait").expect("nothing is in the way");
        }
        let mut new = object.clone();
        new["data"] = json!({"mine": "yes"});
        new["date"] = json!("today");
        Ok(new)
    };
    let mut warnings = vec!["of before".to_owned()];
    let done = write.patch("hot", &mut warnings, patched).await;
    assert!(matches!(done, Ok(WriteOutcome::Stored(_))), "{done:?}");
    assert_eq!(tries.load(Ordering::Relaxed), 2);
    assert_eq!(warnings, ["of before", "unknown field \"date\""]);
}
