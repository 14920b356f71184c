//! An operator that looks at some namespaces: one queue for all of them, and nothing outside of them is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use konverge::k8s_openapi::api::core::v1::Namespace;
use konverge::kube::core::ObjectMeta;
use konverge::prelude::*;
use konverge::{ControllerSettings, Settings};
use konverge_testkit::{Call, Cluster, Verb};

/// Wants a ConfigMap.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Tenant", namespaced)]
pub struct TenantSpec {
    /// What is in it.
    pub text: String,
}

fn tenant(namespace: &str) -> Tenant {
    let mut tenant = Tenant::new("t", TenantSpec { text: "hello".into() });
    tenant.metadata.namespace = Some(namespace.into());
    tenant
}

#[tokio::test]
async fn some_namespaces_are_one_controller() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Tenant>().await?;
    for namespace in ["a", "b", "c"] {
        let metadata = ObjectMeta { name: Some(namespace.into()), ..ObjectMeta::default() };
        cluster.create(Namespace { metadata, ..Namespace::default() }).await?;
        cluster.create(tenant(namespace)).await?;
    }
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, seen) = (running.clone(), most.clone());
    let operator = Operator::<Tenant>::new()
        .across_namespaces()
        .settings(Settings {
            namespaces: vec!["a".into(), "b".into()],
            controller: ControllerSettings { max_concurrent_reconciles: 1, ..ControllerSettings::default() },
            ..Settings::default()
        })
        .owns::<ConfigMap>()
        .watches::<Secret>(|secret: &Secret| vec![ObjectKey::new(secret.inner().metadata.namespace.as_deref(), "t")])
        .with_finalizer()
        .reconcile(move |ctx: Context<Tenant>| {
            let (now, seen) = (now.clone(), seen.clone());
            async move {
                seen.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                let found = ctx.list::<Secret>().await?.len();
                let map =
                    ConfigMap::new("m").data("text", &ctx.resource().spec.text).data("secrets", found.to_string());
                let applied = ctx.apply(map).await.map(|_| Action::await_change());
                now.fetch_sub(1, SeqCst);
                applied
            }
        });
    cluster.forget_calls();
    let operating = cluster.run_unrestricted(operator);
    let is = |secrets: &'static str| move |map: &ConfigMap| map.get("secrets") == Some(secrets);
    for key in ["a/m", "b/m"] {
        cluster.wait_until(key, is("0")).await?;
        // What is changed or gone comes back, wherever it is.
        cluster.edit(key, |map: &mut ConfigMap| *map = map.clone().patch(|map| map.data = None)).await?;
        cluster.wait_until(key, is("0")).await?;
    }
    cluster.create(Secret::new("s").namespace("b")).await?;
    cluster.wait_until("b/m", is("1")).await?;

    for key in ["a/t", "b/t"] {
        cluster.delete::<Tenant>(key).await?;
        cluster.wait_gone::<Tenant>(key).await?;
    }
    operating.stop().await?;
    assert_eq!(most.load(SeqCst), 1, "as many at a time as was said, in all namespaces together");
    assert!(cluster.find::<ConfigMap>("c/m").await?.is_none());
    assert!(cluster.get::<Tenant>("c/t").await?.metadata.finalizers.is_none());
    let watched = cluster.calls().only(|call| call.verb == Verb::Watch);
    assert!(watched.lines().len() >= 6, "{watched:?}");
    let inside = |call: &Call| matches!(call.namespace.as_deref(), Some("a" | "b"));
    assert_eq!(watched.only(|call| !inside(call)).lines(), Vec::<String>::new());
    Ok(())
}
