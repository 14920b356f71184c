//! In: the discovery documents of a release. Out: every endpoint that Kubernetes serves, with its verbs.

use serde_json::Value;

/// One endpoint: the objects of a resource, or a subresource of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: Option<String>,
    pub namespaced: bool,
    pub verbs: Vec<String>,
}

impl Endpoint {
    /// `pods` or `pods/exec`
    pub(super) fn name(&self) -> String {
        match &self.subresource {
            None => self.resource.clone(),
            Some(subresource) => format!("{}/{subresource}", self.resource),
        }
    }

    /// `deployments.apps` or `deployments.apps/scale`
    pub(super) fn name_with_group(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let subresource = self.subresource.as_ref().map_or(String::new(), |name| format!("/{name}"));
        format!("{}{group}{subresource}", self.resource)
    }
}

/// The endpoints of the core group, whose document is a list, and of all other groups, whose document is aggregated.
pub(super) fn endpoints(core: &Value, groups: &Value) -> Result<Vec<Endpoint>, String> {
    let mut endpoints = Vec::new();
    for entry in list(core, "resources")? {
        let name = text(entry, "name")?;
        let (resource, subresource) = match name.split_once('/') {
            None => (name, None),
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        };
        endpoints.push(Endpoint {
            group: String::new(),
            version: text(core, "groupVersion")?.to_owned(),
            resource: resource.to_owned(),
            subresource,
            namespaced: entry["namespaced"] == true,
            verbs: verbs(entry)?,
        });
    }
    for group in list(groups, "items")? {
        let name = text(&group["metadata"], "name")?;
        for version in list(group, "versions")? {
            for resource in list(version, "resources")? {
                let whole = Endpoint {
                    group: name.to_owned(),
                    version: text(version, "version")?.to_owned(),
                    resource: text(resource, "resource")?.to_owned(),
                    subresource: None,
                    namespaced: resource["scope"] == "Namespaced",
                    verbs: verbs(resource)?,
                };
                endpoints.push(whole.clone());
                for part in resource["subresources"].as_array().into_iter().flatten() {
                    let subresource = Some(text(part, "subresource")?.to_owned());
                    endpoints.push(Endpoint { subresource, verbs: verbs(part)?, ..whole.clone() });
                }
            }
        }
    }
    Ok(endpoints)
}

fn verbs(entry: &Value) -> Result<Vec<String>, String> {
    Ok(list(entry, "verbs")?.iter().filter_map(|verb| verb.as_str().map(str::to_owned)).collect())
}

fn list<'a>(value: &'a Value, field: &str) -> Result<&'a [Value], String> {
    value[field].as_array().map(Vec::as_slice).ok_or_else(|| format!("a discovery document has no {field}: {value}"))
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str, String> {
    value[field].as_str().ok_or_else(|| format!("a discovery document has no {field}: {value}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_of_document() {
        let core = json!({"groupVersion": "v1", "resources": [
            {"name": "pods", "namespaced": true, "verbs": ["get"]},
            {"name": "pods/exec", "namespaced": true, "verbs": ["create", "get"]},
        ]});
        let groups = json!({"items": [{"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [
            {"resource": "deployments", "scope": "Namespaced", "verbs": ["list"],
             "subresources": [{"subresource": "scale", "verbs": ["patch"]}]},
        ]}]}]});
        let endpoints = endpoints(&core, &groups).expect("endpoints");
        let names: Vec<String> = endpoints.iter().map(Endpoint::name_with_group).collect();
        assert_eq!(names, ["pods", "pods/exec", "deployments.apps", "deployments.apps/scale"]);
        assert_eq!(endpoints[3].verbs, ["patch"]);
        assert!(endpoints.iter().all(|endpoint| endpoint.namespaced));
    }

    #[test]
    fn says_what_is_missing() {
        let error = endpoints(&json!({"groupVersion": "v1"}), &json!({})).expect_err("no resources");
        assert!(error.contains("no resources"), "{error}");
    }
}
