//! Concurrent writers: of those with the same version exactly one wins, and no patch is lost.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use super::{Setup, flows, typed};
use crate::cluster::config_map;

flows![one_replace_wins, no_patch_is_lost, one_create_wins, counting_with_retries];

const RACERS: usize = 4;

async fn race<T: Send + 'static>(racers: impl Iterator<Item = impl Future<Output = T> + Send + 'static>) -> Vec<T> {
    let running: Vec<_> = racers.map(tokio::spawn).collect();
    let mut all = Vec::new();
    for racer in running {
        all.push(racer.await.unwrap());
    }
    all
}

async fn one_replace_wins(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    let mut current = maps.create(&PostParams::default(), &typed(&config_map("a"))).await.unwrap();
    for trial in 0..150 {
        let outcomes = race((0..RACERS).map(|racer| {
            let (maps, mut wanted) = (maps.clone(), current.clone());
            wanted.data.as_mut().unwrap().insert("k".into(), format!("{trial}-{racer}"));
            async move { maps.replace("a", &PostParams::default(), &wanted).await }
        }))
        .await;
        let (won, lost): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1, "trial {trial}");
        for error in lost {
            assert!(matches!(error, Err(kube::Error::Api(status)) if status.is_conflict()));
        }
        current = won.into_iter().next().unwrap().unwrap();
        assert_eq!(maps.get("a").await.unwrap(), current);
    }
}

async fn one_create_wins(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    for trial in 0..50 {
        let name = format!("m{trial}");
        let outcomes = race((0..RACERS).map(|_| {
            let (maps, object) = (maps.clone(), typed(&config_map(&name)));
            async move { maps.create(&PostParams::default(), &object).await.is_ok() }
        }))
        .await;
        assert_eq!(outcomes.into_iter().filter(|won| *won).count(), 1, "trial {trial}");
    }
}

async fn no_patch_is_lost(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    maps.create(&PostParams::default(), &typed(&config_map("a"))).await.unwrap();
    let versions = race((0..60).map(|racer| {
        let maps = maps.clone();
        async move {
            let patch = Patch::Merge(json!({"data": {format!("k{racer}"): "v"}}));
            maps.patch("a", &PatchParams::default(), &patch).await.unwrap().resource_version().unwrap()
        }
    }))
    .await;
    assert_eq!(versions.iter().collect::<BTreeSet<_>>().len(), 60, "each write has a version of its own");
    assert_eq!(maps.get("a").await.unwrap().data.unwrap().len(), 61);
}

/// What every client does: read, change, replace, and again after a conflict.
async fn counting_with_retries(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    let mut object = config_map("a");
    object["data"]["k"] = "0".into();
    maps.create(&PostParams::default(), &typed(&object)).await.unwrap();
    race((0..RACERS).map(|_| {
        let maps = maps.clone();
        async move {
            let mut done = 0;
            while done < 20 {
                let mut object = maps.get("a").await.unwrap();
                let count: usize = object.data.as_ref().unwrap()["k"].parse().unwrap();
                object.data.as_mut().unwrap().insert("k".into(), (count + 1).to_string());
                match maps.replace("a", &PostParams::default(), &object).await {
                    Ok(_) => done += 1,
                    Err(kube::Error::Api(status)) if status.is_conflict() => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }))
    .await;
    assert_eq!(maps.get("a").await.unwrap().data.unwrap()["k"], (RACERS * 20).to_string());
}
