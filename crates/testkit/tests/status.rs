//! A status of the operator's own, and what the framework fills in of it.

use konverge::prelude::*;
use konverge_testkit::Fake;

/// Opens when it has a door.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Shop", namespaced, status = "ShopStatus")]
pub struct ShopSpec {
    /// How many doors it has.
    pub doors: u32,
}

/// What is true of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ShopStatus {
    /// In one word.
    pub phase: String,
    /// Filled by the framework.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Filled by the framework.
    pub conditions: Vec<Condition>,
}

async fn reconcile(ctx: Context<Shop>) -> Result<Action> {
    let phase = if ctx.resource().spec.doors > 0 { "Open" } else { "Shut" };
    let ready = Condition::new(READY, phase == "Open", phase, "");
    let status = ShopStatus { phase: phase.into(), ..ShopStatus::default() };
    match ctx.resource().spec.doors {
        // By themselves, by one write, and as a part of the status: all the same.
        0 => {
            ctx.set_status(status).await?;
            ctx.set_condition(ready).await?;
        }
        1 => ctx.set_status_with(status, [ready]).await?,
        _ => ctx.set_status(ShopStatus { conditions: vec![ready], ..status }).await?,
    }
    Ok(Action::await_change())
}

#[tokio::test]
async fn conditions_and_the_observed_generation_are_filled() -> Result<()> {
    let fake = Fake::new().with(Shop::new("s", ShopSpec { doors: 0 }));
    let operator = Operator::<Shop>::new().reconcile(reconcile);
    for (doors, generation, phase) in [(0, 1, "Shut"), (1, 2, "Open"), (2, 3, "Open"), (0, 4, "Shut")] {
        fake.edit("s", |shop: &mut Shop| shop.spec.doors = doors).await?;
        fake.reconcile(&operator, "s").await?;
        let status = fake.get::<Shop>("s").await?.status.unwrap_or_default();
        assert_eq!((status.phase.as_str(), status.observed_generation), (phase, Some(generation)), "{doors} doors");
        let [ready] = status.conditions.as_slice() else { panic!("{:?}", status.conditions) };
        let told = (ready.status, ready.reason.as_str(), ready.observed_generation);
        assert_eq!(told, ((phase == "Open").into(), phase, Some(generation)), "{doors} doors");
        assert!(ready.last_transition_time.is_some(), "{ready:?}");
        // What is so already is not written again.
        fake.forget_calls();
        fake.reconcile(&operator, "s").await?;
        assert!(fake.writes().is_empty(), "{}", fake.writes());
    }
    Ok(())
}

/// One that says itself which generation it is about is believed.
#[tokio::test]
async fn an_observed_generation_that_is_given_stays() -> Result<()> {
    let fake = Fake::new().with(Shop::new("s", ShopSpec { doors: 0 }));
    let operator = Operator::<Shop>::new().reconcile(async |ctx: Context<Shop>| {
        ctx.set_status(ShopStatus { observed_generation: Some(7), ..ShopStatus::default() }).await?;
        Ok(Action::await_change())
    });
    fake.reconcile(&operator, "s").await?;
    assert_eq!(fake.get::<Shop>("s").await?.status.unwrap_or_default().observed_generation, Some(7));
    Ok(())
}

/// A status that was read, changed in part and written back is about what was reconciled now.
#[tokio::test]
async fn an_observed_generation_that_was_read_is_not_kept() -> Result<()> {
    let fake = Fake::new().with(Shop::new("s", ShopSpec { doors: 0 }));
    let operator = Operator::<Shop>::new().reconcile(async |ctx: Context<Shop>| {
        let mut status = ctx.resource().status.clone().unwrap_or_default();
        status.phase = format!("{} doors", ctx.resource().spec.doors);
        ctx.set_status(status.clone()).await?;
        // Once more, with what was read before the first write.
        ctx.set_status(ShopStatus { phase: status.phase + "!", ..status }).await?;
        Ok(Action::await_change())
    });
    for generation in 1..=3 {
        fake.edit("s", |shop: &mut Shop| shop.spec.doors = generation - 1).await?;
        fake.reconcile(&operator, "s").await?;
        let status = fake.get::<Shop>("s").await?.status.unwrap_or_default();
        assert_eq!(status.observed_generation, Some(generation.into()), "{}", status.phase);
    }
    Ok(())
}

/// Conditions of a field are a map for server-side apply, like those of every other kind.
#[test]
fn conditions_are_told_apart_by_their_type() {
    let crd = konverge::serde_json::to_value(Shop::crd()).expect("a CRD is JSON");
    let conditions = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/conditions";
    let conditions = crd.pointer(conditions).expect("the status has conditions");
    assert_eq!(conditions["x-kubernetes-list-type"], "map");
    assert_eq!(conditions["x-kubernetes-list-map-keys"][0], "type");
}
