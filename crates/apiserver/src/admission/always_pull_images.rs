//! AlwaysPullImages: every container of a new pod pulls its image at each start. Off by default.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided, items_mut};

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

pub(super) struct AlwaysPullImages;

impl Plugin for AlwaysPullImages {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is_about("", "pods") && attributes.operation != Operation::Delete
    }

    fn admit<'a>(&'a self, attributes: &'a Attributes<'a>, pod: &'a mut Value, _: &'a mut Admission) -> Verdict<'a> {
        if attributes.old.is_none_or(|old| has_new_image(old, pod)) {
            pull_always(pod);
        }
        decided(Ok(()))
    }
}

fn images(pod: &Value) -> BTreeSet<&str> {
    let lists = LISTS.into_iter().flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    lists.filter_map(|container| container["image"].as_str()).collect()
}

fn has_new_image(old: &Value, pod: &Value) -> bool {
    !images(pod).is_subset(&images(old))
}

fn pull_always(pod: &mut Value) {
    for list in LISTS {
        for container in items_mut(&mut pod["spec"], list) {
            container["imagePullPolicy"] = "Always".into();
        }
    }
    for volume in items_mut(&mut pod["spec"], "volumes") {
        if volume["image"].is_object() {
            volume["image"]["pullPolicy"] = "Always".into();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_are_always_pulled() {
        let mut pod = json!({"spec": {
            "containers": [{"image": "a", "imagePullPolicy": "Never"}],
            "initContainers": [{"image": "b"}],
            "volumes": [{"name": "v", "image": {"reference": "c"}}, {"name": "w"}],
        }});
        assert!(has_new_image(&json!({"spec": {"containers": [{"image": "a"}]}}), &pod));
        assert!(!has_new_image(&pod, &json!({"spec": {"containers": [{"image": "b"}]}})));
        pull_always(&mut pod);
        assert_eq!(
            pod["spec"],
            json!({
                "containers": [{"image": "a", "imagePullPolicy": "Always"}],
                "initContainers": [{"image": "b", "imagePullPolicy": "Always"}],
                "volumes": [{"name": "v", "image": {"reference": "c", "pullPolicy": "Always"}}, {"name": "w"}],
            })
        );
    }
}
