//! Name conflicts of definitions that are already served.

use serde_json::{Value, json};

use crate::cluster::{AT_MOST, CRDS, Cluster, MERGE, WIDGETS, widgets};

/// A kind that is served stays served under its names, as on a cluster, and gets the new name when it is free.
#[tokio::test]
async fn a_clash_in_an_update_takes_no_kind_away() {
    let cluster = Cluster::with_widgets().await;
    let mut other = widgets();
    other["metadata"]["name"] = "gadgets.example.com".into();
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget", "shortNames": ["gd"]});
    cluster.post(CRDS, &other).await.expect(201);
    let path = format!("{CRDS}/widgets.example.com");
    let short = |definition: &Value| definition["status"]["acceptedNames"]["shortNames"].clone();
    let is = |definition: &Value, kind: &str| {
        let mut conditions = definition["status"]["conditions"].as_array().unwrap().iter();
        conditions.find(|condition| condition["type"] == kind).unwrap()["status"].clone()
    };
    let served = async || {
        let list = cluster.get("/apis/example.com/v1").await.expect(200);
        let mut resources = list["resources"].as_array().unwrap().iter();
        resources.find(|resource| resource["name"] == "widgets").unwrap()["shortNames"].clone()
    };
    let before = cluster.get(&path).await.expect(200);
    let wanted = json!({"spec": {"names": {"shortNames": ["gd"]}}});
    let after = cluster.patch(&path, MERGE, &wanted).await.expect(200);
    assert_eq!((is(&after, "NamesAccepted"), is(&after, "Established")), ("False".into(), "True".into()));
    assert_eq!(after["spec"]["names"]["shortNames"], json!(["gd"]));
    assert_eq!((short(&after), served().await), (short(&before), short(&before)));
    cluster.get(WIDGETS).await.expect(200);

    cluster.delete(&format!("{CRDS}/gadgets.example.com")).await.expect(200);
    let freed = async {
        while cluster.get(&path).await.expect(200)["status"]["acceptedNames"]["shortNames"] != json!(["gd"]) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(AT_MOST, freed).await.expect("the name is free");
    assert_eq!(
        (is(&cluster.get(&path).await.expect(200), "NamesAccepted"), served().await),
        ("True".into(), json!(["gd"]))
    );
}
