//! A request as the rule it takes. In: what a request does to which object. Out: the rule, as an API server would ask for
//! it; none for paths that are no resources (discovery, health).

use konverge_runtime::RequestInfo;

use super::{RbacVerb, Resource, Rules};

impl Rules {
    /// The rule that a request needs. An apply is a patch; if it creates the object, it is a create as well, which the request
    /// does not show.
    ///
    /// ```
    /// use konverge::{RequestInfo, Rules};
    /// let path = "/apis/apps/v1/namespaces/default/deployments/web/status";
    /// let (parts, ()) = http::Request::patch(path).body(()).unwrap().into_parts();
    /// assert_eq!(Rules::of_request(&RequestInfo::of(&parts)).to_string(), "patch deployments.apps/status");
    /// ```
    pub fn of_request(request: &RequestInfo) -> Rules {
        let mut rules = Rules::new();
        if request.is_resource() {
            let name = match &request.subresource {
                Some(subresource) => format!("{}/{subresource}", request.resource),
                None => request.resource.clone(),
            };
            // A list over all namespaces looks like one of a kind without namespaces: who declared the kind knows better.
            let cluster = request.namespace.is_none() && request.name.is_some();
            let resource = Resource { group: request.group.clone(), name };
            rules.put(resource, cluster, [RbacVerb::new(request.verb.as_rbac())]);
        }
        rules
    }
}
