//! Reads and writes the `scale` subresource of an object of any kind. In: a reference with kind and name. Out: its Scale. The
//! path of a kind comes from discovery, once.

use std::collections::HashMap;

use http::Method;
use konverge_core::LabelSelector;
use konverge_runtime::{Error, Patch, Result};
use kube::core::ApiResource;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::context::ControllerContext;
use crate::meta::Meta;
use crate::requests;

/// What refers to an object: its kind and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ScaleTarget {
    pub api_version: String,
    pub kind: String,
    pub name: String,
}

/// How large an object is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Scale {
    pub metadata: Meta,
    pub spec: ScaleSpec,
    pub status: ScaleStatus,
}

/// How large it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ScaleSpec {
    pub replicas: i32,
}

/// How large it is, and which pods are its.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ScaleStatus {
    pub replicas: i32,
    pub selector: String,
}

/// Reads and writes scales.
pub(crate) struct Scales {
    ctx: ControllerContext,
    /// The kinds that were asked for.
    kinds: Mutex<HashMap<(String, String), ApiResource>>,
}

impl Scale {
    /// Which pods are its.
    pub(crate) fn selector(&self) -> Option<LabelSelector> {
        LabelSelector::parse(&self.status.selector).ok().filter(|selector| !selector.is_everything())
    }
}

impl Scales {
    /// Those a context sees.
    pub(crate) fn new(ctx: ControllerContext) -> Self {
        Self { ctx, kinds: Mutex::default() }
    }

    /// The scale of an object. That there is no such object, kind or scale is an error with the server's words.
    pub(crate) async fn get(&self, namespace: &str, target: &ScaleTarget) -> Result<Scale> {
        let api = self.api(target).await?;
        let path = format!("{}/scale", requests::path(&api, Some(namespace), &target.name));
        let answer = requests::send(&self.ctx.client, Method::GET, &path, None).await?;
        Ok(serde_json::from_str(&answer)?)
    }

    /// Makes an object so large, if it still is as it was.
    pub(crate) async fn set(&self, target: &ScaleTarget, scale: &Scale, replicas: i32) -> Result<()> {
        let api = self.api(target).await?;
        let patch = json!([
            {"op": "test", "path": "/spec/replicas", "value": scale.spec.replicas},
            {"op": "add", "path": "/spec/replicas", "value": replicas},
        ]);
        // Zero is left out of what the server shows.
        let patch = if scale.spec.replicas == 0 { json!([patch[1]]) } else { patch };
        self.ctx.writer.patch(&api, &scale.metadata.key(), "scale", Patch::Json(patch)).await?;
        Ok(())
    }

    async fn api(&self, target: &ScaleTarget) -> Result<ApiResource> {
        let kind = (target.api_version.clone(), target.kind.clone());
        if let Some(known) = self.kinds.lock().get(&kind) {
            return Ok(known.clone());
        }
        let (group, version) = target.api_version.split_once('/').unwrap_or(("", &target.api_version));
        let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let list: Value = serde_json::from_str(&requests::send(&self.ctx.client, Method::GET, &path, None).await?)?;
        let plural = plural_of(&list, &target.kind).ok_or_else(|| {
            Error::new(format!("no matches for kind {:?} in version {:?}", target.kind, target.api_version))
        })?;
        let api = ApiResource {
            group: group.into(),
            version: version.into(),
            api_version: target.api_version.clone(),
            kind: target.kind.clone(),
            plural,
        };
        self.kinds.lock().insert(kind, api.clone());
        Ok(api)
    }
}

/// The plural of a kind in a list of resources.
fn plural_of(list: &Value, kind: &str) -> Option<String> {
    let resources = list["resources"].as_array().into_iter().flatten();
    let mut names =
        resources.filter(|resource| resource["kind"] == kind).filter_map(|resource| resource["name"].as_str());
    names.find(|name| !name.contains('/')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_their_own_name() {
        let list = json!({"resources": [
            {"name": "deployments/scale", "kind": "Scale"},
            {"name": "deployments/status", "kind": "Deployment"},
            {"name": "deployments", "kind": "Deployment"},
        ]});
        let check = |kind: &str, expect: Option<&str>| assert_eq!(plural_of(&list, kind).as_deref(), expect, "{kind}");
        check("Deployment", Some("deployments"));
        check("Scale", None);
        check("Other", None);
    }
}
