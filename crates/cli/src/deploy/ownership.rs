//! Which deployment an object is a part of. In: an object as the cluster has it. Out: ours, that of another deployment, or of none. Pure. The label is for
//! `kubectl get --selector`, and whoever takes it away keeps the object. It has only the name, so an annotation says in which namespace the deployment is:
//! the same operator may be deployed twice.

use serde_json::Value;

use crate::description::DeployTarget;

/// The label with the name of the deployment.
const DEPLOYMENT_LABEL: &str = "konverge.dev/deployment";

/// The annotation with the namespace and the name of the deployment.
const OWNER_ANNOTATION: &str = "konverge.dev/deployed-by";

/// Whose an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    Ours,
    Another { namespace: String, name: String },
    Nobodys,
}

/// Marks an object as a part of a deployment.
pub(super) fn mark(object: &mut Value, target: &DeployTarget) {
    object["metadata"]["labels"][DEPLOYMENT_LABEL] = target.name.as_str().into();
    object["metadata"]["annotations"][OWNER_ANNOTATION] = owner(target).into();
}

/// Whose an object is.
pub(super) fn of(object: &Value, target: &DeployTarget) -> Ownership {
    let metadata = &object["metadata"];
    match metadata["annotations"][OWNER_ANNOTATION].as_str() {
        Some(found) if found != owner(target) => {
            let (namespace, name) = found.split_once('/').unwrap_or((found, ""));
            Ownership::Another { namespace: namespace.to_owned(), name: name.to_owned() }
        }
        Some(_) if metadata["labels"][DEPLOYMENT_LABEL] == target.name.as_str() => Ownership::Ours,
        _ => Ownership::Nobodys,
    }
}

fn owner(target: &DeployTarget) -> String {
    format!("{}/{}", target.namespace, target.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whose_an_object_is() {
        let target =
            |namespace: &str| DeployTarget { name: "shop".into(), namespace: namespace.into(), image: String::new() };
        let mut object = json!({"kind": "ClusterRole", "metadata": {"name": "a"}});
        assert_eq!(of(&object, &target("one")), Ownership::Nobodys);
        mark(&mut object, &target("one"));
        assert_eq!(of(&object, &target("one")), Ownership::Ours);
        assert_eq!(of(&object, &target("two")), Ownership::Another { namespace: "one".into(), name: "shop".into() });
        // Whoever takes one of the marks away takes the object over.
        let mut unlabelled = object.clone();
        unlabelled["metadata"]["labels"] = json!({});
        assert_eq!(of(&unlabelled, &target("one")), Ownership::Nobodys);
        object["metadata"]["annotations"] = json!({});
        assert_eq!(of(&object, &target("one")), Ownership::Nobodys);
    }
}
