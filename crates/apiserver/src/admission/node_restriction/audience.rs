//! Tokens that nodes ask for: bound to a pod on the node, and for an audience that the pod needs, or that a rule allows.

use serde_json::Value;

use konverge_core::Status;
use konverge_schema::go_quote;

use crate::authorize::{Attributes as Asked, Authorizer, Decision, ResourceAttributes};
use crate::meta;

use super::super::lookup::Kind;
use super::{PODS, Request};

/// The verb of rules that allow nodes other audiences.
const VERB: &str = "request-serviceaccounts-token-audience";

const CLAIMS: Kind = ("", "persistentvolumeclaims");
const VOLUMES: Kind = ("", "persistentvolumes");
const DRIVERS: Kind = ("storage.k8s.io", "csidrivers");

/// The CSI drivers that have taken over volumes of Kubernetes itself.
const MIGRATED: [(&str, &str); 7] = [
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
    ("portworxVolume", "pxd.portworx.com"),
];

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

impl Request<'_> {
    pub(super) async fn token(&self) -> Result<(), Status> {
        let spec = &self.object["spec"];
        let bound = &spec["boundObjectRef"];
        let (name, uid) = (text(&bound["name"]), text(&bound["uid"]));
        if bound["apiVersion"] != "v1" || bound["kind"] != "Pod" || name.is_empty() {
            return self.refuse("node requested token not bound to a pod");
        }
        if uid.is_empty() {
            return self.refuse("node requested token with a pod binding without a uid");
        }
        let pod = self.find(PODS, self.attributes.namespace, name)?;
        self.unless(uid == meta::text(&pod, "uid"), || {
            format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
                 been deleted and then recreated"
            )
        })?;
        self.unless(self.has_pod(&pod), || {
            "node requested token bound to a pod scheduled on a different node".to_owned()
        })?;
        let audiences: Vec<&str> = items(&spec["audiences"]).map(text).collect();
        match audiences.as_slice() {
            [] => self.audience(&pod, "").await,
            [one] => self.audience(&pod, one).await,
            _ => self.refuse("node may only request 0 or 1 audiences"),
        }
    }

    async fn audience(&self, pod: &Value, audience: &str) -> Result<(), Status> {
        let quoted = go_quote(audience);
        match self.pod_needs(pod, audience) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(why) => return self.refuse(format!("error validating audience {quoted}: {why}")),
        }
        let user = &self.attributes.context.user;
        let (namespace, name) = (self.attributes.namespace.unwrap_or_default(), self.attributes.name);
        let resource =
            ResourceAttributes { version: "v1", resource: audience, namespace, name, ..ResourceAttributes::default() };
        let asked = Asked { user, verb: VERB, path: "", resource: Some(resource) };
        match self.attributes.server.authorizer.authorize(asked).await {
            Decision::Allow { .. } => Ok(()),
            _ => self.refuse(format!(
                "audience {quoted} not found in pod spec volume, {} is not authorized to request tokens for this audience",
                user.name
            )),
        }
    }

    /// Whether a volume of the pod needs tokens for the audience: itself, or its CSI driver. An error if a driver cannot be
    /// found, and no other volume needs them.
    fn pod_needs(&self, pod: &Value, audience: &str) -> Result<bool, String> {
        let mut errors = Vec::new();
        for volume in items(&pod["spec"]["volumes"]) {
            let sources = items(&volume["projected"]["sources"]);
            let mut tokens = sources.map(|source| &source["serviceAccountToken"]).filter(|token| token.is_object());
            if tokens.any(|token| text(&token["audience"]) == audience) {
                return Ok(true);
            }
            let needed = self.driver(pod, volume).and_then(|driver| match driver.as_str() {
                "" => Ok(false),
                driver => {
                    let driver = self.find(DRIVERS, None, driver).map_err(|status| status.message)?;
                    Ok(items(&driver["spec"]["tokenRequests"]).any(|request| text(&request["audience"]) == audience))
                }
            });
            match needed {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(why) if errors.contains(&why) => {}
                Err(why) => errors.push(why),
            }
        }
        match errors.as_slice() {
            [] => Ok(false),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        }
    }

    /// The CSI driver of a volume; empty if it has none.
    fn driver(&self, pod: &Value, volume: &Value) -> Result<String, String> {
        let ephemeral = &volume["ephemeral"]["volumeClaimTemplate"];
        if ephemeral.is_object() {
            return self.driver_of_claim(&format!("{}-{}", meta::text(pod, "name"), text(&volume["name"])));
        }
        if volume["persistentVolumeClaim"].is_object() {
            return self.driver_of_claim(text(&volume["persistentVolumeClaim"]["claimName"]));
        }
        Ok(driver_of_source(volume))
    }

    fn driver_of_claim(&self, claim: &str) -> Result<String, String> {
        let claim = self.find(CLAIMS, self.attributes.namespace, claim).map_err(|status| status.message)?;
        let volume = self.find(VOLUMES, None, text(&claim["spec"]["volumeName"])).map_err(|status| status.message)?;
        Ok(driver_of_source(&volume["spec"]))
    }
}

fn driver_of_source(source: &Value) -> String {
    if source["csi"].is_object() {
        return text(&source["csi"]["driver"]).to_owned();
    }
    let migrated = MIGRATED.iter().find(|(name, _)| source[*name].is_object());
    migrated.map_or_else(String::new, |(_, driver)| (*driver).to_owned())
}
