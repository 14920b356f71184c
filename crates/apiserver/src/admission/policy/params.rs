//! The parameters of policies. In: the kind that a policy names and the reference of a binding. Out: the objects that are there
//! now, or why they cannot be found, in the words of kube-apiserver.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use konverge_core::{GroupVersion, LabelSelector, Status};
use konverge_store::Range;

use crate::admission::Attributes;
use crate::crd;
use crate::resource::Resource;
use crate::server::Server;

/// The kind of the parameters of a policy.
#[derive(Debug)]
pub(super) struct ParamKind {
    group: String,
    version: String,
    kind: String,
}

impl ParamKind {
    pub(super) fn read(json: &Value) -> Option<Self> {
        let GroupVersion { group, version } = GroupVersion::parse(json["apiVersion"].as_str()?)?;
        Some(Self { group, version, kind: json["kind"].as_str().unwrap_or_default().to_owned() })
    }

    /// The resource of this kind.
    pub(super) fn resource(&self, server: &Server) -> Result<Arc<Resource>, String> {
        let Self { group, version, kind } = self;
        let find = || {
            let known = server.registry.of_kind(group, kind)?;
            server.registry.find(group, version, &known.plural)
        };
        let found = find().or_else(|| {
            crd::catch_up(server);
            find()
        });
        found
            .ok_or_else(|| format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"))
    }
}

/// Which objects are the parameters of a binding.
#[derive(Debug)]
pub(super) struct ParamRef {
    name: String,
    namespace: String,
    selector: Option<Result<LabelSelector, String>>,
    /// Whether requests are refused when there are no parameters.
    deny: bool,
}

impl ParamRef {
    pub(super) fn read(json: &Value) -> Option<Self> {
        let text = |field: &str| json[field].as_str().unwrap_or_default().to_owned();
        let selector = json["selector"].is_object().then(|| LabelSelector::from_object(&json["selector"]));
        json.is_object().then(|| Self {
            name: text("name"),
            namespace: text("namespace"),
            selector: selector.map(|selector| selector.map_err(|error| error.to_string())),
            deny: json["parameterNotFoundAction"] == "Deny",
        })
    }

    /// The parameters for a request. The outer error is of the store, or of a conversion webhook.
    pub(super) async fn find(
        &self,
        attributes: &Attributes<'_>,
        kind: &Arc<Resource>,
    ) -> Result<Result<Vec<Value>, String>, Status> {
        let namespace = match self.namespace(attributes, kind) {
            Ok(namespace) => namespace,
            Err(why) => return Ok(Err(why.to_owned())),
        };
        let store = &attributes.server.store;
        let mut params = Vec::new();
        if let Some(selector) = self.selector.as_ref().filter(|_| self.name.is_empty()) {
            let selector = match selector {
                Ok(selector) => selector,
                Err(why) => return Ok(Err(why.clone())),
            };
            let range = Range { prefix: &kind.prefix(namespace), ..Range::default() };
            let page = store.range(range).map_err(Status::internal)?;
            for record in kind.read_all(page.entries).await? {
                let object = kind.object(&record);
                let labels = object["metadata"]["labels"].as_object();
                if selector.matches_with(|key| labels?.get(key)?.as_str().map(Cow::Borrowed)) {
                    params.push(versioned(object, record.revision.0));
                }
            }
        } else if let Some(entry) = store.get(&kind.key(namespace, &self.name), None).map_err(Status::internal)? {
            params.push(versioned(kind.read_object(&entry).await?, entry.revision.0));
        }
        if params.is_empty() && self.deny {
            return Ok(Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned()));
        }
        Ok(Ok(params))
    }

    /// The namespace that the parameters are in; none where they have no namespace.
    fn namespace<'r>(
        &'r self,
        attributes: &'r Attributes<'_>,
        kind: &Resource,
    ) -> Result<Option<&'r str>, &'static str> {
        match (kind.namespaced, self.namespace.as_str(), attributes.request_namespace()) {
            (false, "", _) => Ok(None),
            (false, ..) => Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`"),
            (true, "", "") => {
                Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
            }
            (true, "", namespace) | (true, namespace, _) => Ok(Some(namespace)),
        }
    }
}

fn versioned(mut object: Value, revision: u64) -> Value {
    object["metadata"]["resourceVersion"] = revision.to_string().into();
    object
}
