//! Custom resource definitions: validation, how they change objects, several versions, name conflicts, deletion.

mod objects;
mod versions;

use serde_json::{Value, json};

use crate::cluster::{AS_TABLE, CRDS, Cluster, MERGE, NAMESPACES, WIDGETS, names, widget, widgets};

/// A definition with one change.
fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut definition = widgets();
    change(&mut definition);
    definition
}

/// A definition whose spec's properties are these.
fn of_spec(properties: Value) -> Value {
    with(|it| {
        let version = &mut it["spec"]["versions"][0];
        version["schema"]["openAPIV3Schema"]["properties"]["spec"] =
            json!({"type": "object", "properties": properties});
        version["subresources"] = json!({});
        version["additionalPrinterColumns"] = json!([]);
        version["selectableFields"] = json!([]);
    })
}

fn condition(definition: &Value, kind: &str) -> Value {
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    let mut found = found.unwrap_or_else(|| panic!("no {kind}: {definition}")).clone();
    found.as_object_mut().unwrap().remove("lastTransitionTime");
    found
}

#[tokio::test]
async fn what_the_server_fills_in() {
    let cluster = Cluster::new().await;
    let made = cluster.post(CRDS, &widgets()).await.expect(201);
    assert_eq!(made["spec"]["names"]["singular"], "widget");
    assert_eq!(made["spec"]["names"]["listKind"], "WidgetList");
    assert_eq!(made["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(made["metadata"]["generation"], 1);
    let now = cluster.get(&format!("{CRDS}/widgets.example.com")).await.expect(200);
    assert_eq!(now["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(now["status"]["acceptedNames"]["kind"], "Widget");
    assert_eq!(
        condition(&now, "NamesAccepted"),
        json!({"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"})
    );
    assert_eq!(
        condition(&now, "Established"),
        json!({
            "type": "Established", "status": "True", "reason": "InitialNamesAccepted",
            "message": "the initial names have been accepted",
        })
    );
    assert_eq!(cluster.get(WIDGETS).await.expect(200)["kind"], "WidgetList", "usable at once");
}

#[tokio::test]
async fn definitions_that_are_refused() {
    let cluster = Cluster::new().await;
    let schema =
        |change: fn(&mut Value)| with(|it| change(&mut it["spec"]["versions"][0]["schema"]["openAPIV3Schema"]));
    let deprecated = |warning: String| {
        with(|it| {
            it["spec"]["versions"][0]["deprecated"] = true.into();
            it["spec"]["versions"][0]["deprecationWarning"] = warning.into();
        })
    };
    for (definition, field, text) in [
        (
            with(|it| it["metadata"]["name"] = "gadgets.example.com".into()),
            "metadata.name",
            "must be spec.names.plural+\".\"+spec.group",
        ),
        (with(|it| it["spec"]["group"] = "example".into()), "spec.group", "should be a domain with at least one dot"),
        (
            with(|it| it["spec"]["scope"] = "Galaxy".into()),
            "spec.scope",
            "supported values: \"Cluster\", \"Namespaced\"",
        ),
        (with(|it| it["spec"]["names"]["kind"] = "".into()), "spec.names.kind", "Required value"),
        (with(|it| it["spec"]["names"]["shortNames"] = json!(["Up"])), "spec.names.shortNames[0]", "DNS-1035"),
        (
            with(|it| it["spec"]["versions"][0]["storage"] = false.into()),
            "spec.versions",
            "must have exactly one version marked as storage version",
        ),
        (
            with(|it| {
                let version = it["spec"]["versions"][0].clone();
                it["spec"]["versions"].as_array_mut().unwrap().push(version);
            }),
            "spec.versions",
            "must contain unique version names",
        ),
        (
            with(|it| it["spec"]["preserveUnknownFields"] = true.into()),
            "spec.preserveUnknownFields",
            "Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in",
        ),
        (
            with(|it| it["spec"]["versions"][0]["schema"] = Value::Null),
            "spec.versions[0].schema.openAPIV3Schema",
            "Required value",
        ),
        (
            schema(|it| it["type"] = Value::Null),
            "spec.validation.openAPIV3Schema.type",
            "Required value: must not be empty at the root",
        ),
        (
            schema(|it| it["properties"]["spec"]["properties"]["size"] = json!({})),
            "spec.validation.openAPIV3Schema.properties[spec].properties[size].type",
            "Required value: must not be empty for specified object fields",
        ),
        (
            schema(|it| it["properties"]["spec"]["properties"]["list"] = json!({"type": "array"})),
            "spec.validation.openAPIV3Schema.properties[spec].properties[list].items",
            "Required value: must be specified",
        ),
        (
            schema(|it| it["properties"]["spec"]["properties"]["size"]["pattern"] = "(".into()),
            "spec.validation.openAPIV3Schema.properties[spec].properties[size].pattern",
            "must be a valid regular expression, but isn't",
        ),
        (
            schema(|it| it["properties"]["spec"]["properties"]["color"]["default"] = 5.into()),
            "spec.validation.openAPIV3Schema.properties[spec].properties[color].default",
            "must be of type string",
        ),
        (
            schema(|it| {
                it["properties"]["metadata"] = json!({"type": "object", "properties": {"labels": {"type": "object"}}})
            }),
            "spec.validation.openAPIV3Schema.properties[metadata]",
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
        ),
        (
            with(|it| it["spec"]["versions"][0]["subresources"]["scale"]["specReplicasPath"] = ".status.size".into()),
            "spec.subresources.scale.specReplicasPath",
            "should be a json path under .spec",
        ),
        (
            with(|it| it["spec"]["versions"][0]["additionalPrinterColumns"][0]["jsonPath"] = "spec".into()),
            "spec.additionalPrinterColumns[0].JSONPath",
            "must be a simple json path starting with .",
        ),
        (
            with(|it| it["spec"]["versions"][0]["additionalPrinterColumns"][0]["type"] = "".into()),
            "spec.additionalPrinterColumns[0].type",
            "Required value: must be one of boolean,date,integer,number,string",
        ),
        (
            with(|it| it["spec"]["versions"][0]["additionalPrinterColumns"][0]["format"] = "zz".into()),
            "spec.additionalPrinterColumns[0].format",
            "must be one of byte,date,date-time,double,float,int32,int64,password",
        ),
        (
            with(|it| it["spec"]["versions"][0]["deprecationWarning"] = "old".into()),
            "spec.versions[0].deprecationWarning",
            "can only be set for deprecated versions",
        ),
        (deprecated("x".repeat(300)), "spec.versions[0].deprecationWarning", "must be <= 256 characters long"),
        (deprecated(String::new()), "spec.versions[0].deprecationWarning", "must not be an empty string"),
        (
            deprecated("caf\u{e9} \"ok\"\n".to_owned()),
            "spec.versions[0].deprecationWarning",
            "must only contain printable UTF-8 characters; non-printable character found at index 10",
        ),
        (
            with(|it| it["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.ports"}])),
            "spec.selectableFields[0].jsonPath",
            "Invalid value: \".spec.ports\": must point to a field of type string, boolean or integer. Enum string fields",
        ),
        (
            with(|it| it["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.ports[0]"}])),
            "spec.selectableFields[0].jsonPath",
            "is an invalid path: array notation is not allowed",
        ),
        (
            with(|it| it["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.absent"}])),
            "spec.selectableFields[0].jsonPath",
            "is an invalid path: does not refer to a valid field",
        ),
        (with(|it| it["spec"]["scope"] = "".into()), "spec.scope", "Required value"),
        (with(|it| it["spec"]["names"]["kind"] = "".into()), "spec.names.singular", "Required value"),
        (
            with(|it| {
                it["spec"]["group"] = "k8s.io".into();
                it["metadata"]["name"] = "widgets.k8s.io".into();
            }),
            "metadata.annotations[api-approved.kubernetes.io]",
            "Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see",
        ),
        (
            with(|it| {
                it["spec"]["group"] = "example.kubernetes.io".into();
                it["metadata"]["name"] = "widgets.example.kubernetes.io".into();
                it["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "xyz"});
            }),
            "metadata.annotations[api-approved.kubernetes.io]",
            "Invalid value: \"xyz\": protected groups must have approval annotation \"api-approved.kubernetes.io\" with either",
        ),
        (
            with(|it| {
                it["spec"]["group"] = "example.k8s.io".into();
                it["metadata"]["name"] = "widgets.example.k8s.io".into();
            }),
            "metadata.annotations[api-approved.kubernetes.io]",
            "protected groups must have approval annotation",
        ),
    ] {
        let answer = cluster.post(CRDS, &definition).await;
        let message = answer.fails(422, "Invalid");
        let causes = answer.json()["details"]["causes"].as_array().unwrap().clone();
        let fits =
            causes.iter().any(|cause| cause["field"] == field && cause["message"].as_str().unwrap().contains(text));
        assert!(fits, "{field}: {text}\n{message}\n{causes:#?}");
    }
    assert_eq!(names(&cluster.get(CRDS).await.expect(200)).len(), 0);
}

/// What looks wrong, and is accepted by a cluster.
#[tokio::test]
async fn definitions_that_are_accepted() {
    fn version(it: &mut Value) -> &mut Value {
        &mut it["spec"]["versions"][0]
    }
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    for definition in [
        with(|it| version(it)["subresources"]["scale"]["labelSelectorPath"] = "".into()),
        with(|it| version(it)["subresources"]["scale"]["specReplicasPath"] = ".spec.sizes[0]".into()),
        with(|it| version(it)["additionalPrinterColumns"][0]["jsonPath"] = ".spec[".into()),
        with(|it| {
            version(it)["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["map"] = map.clone();
            version(it)["selectableFields"] = json!([{"jsonPath": ".spec.map.key"}]);
        }),
        with(|it| {
            it["spec"]["group"] = "example.k8s.io".into();
            it["metadata"]["name"] = "widgets.example.k8s.io".into();
            it["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, for a test"});
        }),
    ] {
        let cluster = Cluster::new().await;
        let made = cluster.post(CRDS, &definition).await.expect(201);
        let name = made["metadata"]["name"].as_str().unwrap();
        let status = json!({"status": {"storedVersions": []}});
        cluster.patch(&format!("{CRDS}/{name}/status"), MERGE, &status).await.expect(200);
    }
}

#[tokio::test]
async fn unknown_formats_are_named_once() {
    let cluster = Cluster::new().await;
    let of = |formats: &[&str]| {
        let properties =
            formats.iter().map(|format| (format!("f-{format}"), json!({"type": "string", "format": format})));
        of_spec(Value::Object(properties.collect()))
    };
    let path = format!("{CRDS}/widgets.example.com");
    let warnings = |formats: &[&str]| -> Vec<String> {
        formats.iter().map(|format| format!("\"unrecognized format \\\"{format}\\\"\"")).collect()
    };
    assert_eq!(cluster.post(CRDS, &of(&["color", "email"])).await.warnings(), warnings(&["color"]));
    let update = json!({"spec": of(&["color", "shape"])["spec"]});
    assert_eq!(cluster.patch(&path, MERGE, &update).await.warnings(), warnings(&["shape"]));
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(cluster.patch(&path, MERGE, &label).await.warnings(), warnings(&[]));
}

/// Warnings are sent with a refusal as well.
#[tokio::test]
async fn refused_objects_have_their_warnings() {
    let cluster = Cluster::new().await;
    cluster.post(CRDS, &of_spec(json!({"n": {"type": "integer"}}))).await.expect(201);
    let mut object = widget("w");
    object["spec"] = json!({"n": "many", "unknown": 1});
    let unknown = ["\"unknown field \\\"spec.unknown\\\"\""];
    let path = format!("{WIDGETS}?fieldValidation=Warn");
    let refused = cluster.post(&path, &object).await;
    refused.fails(422, "Invalid");
    assert_eq!(refused.warnings(), unknown);
    object["spec"] = json!({"n": 1});
    cluster.post(&path, &object).await.expect(201);
    let patch = json!({"spec": {"n": "many", "unknown": 1}});
    let refused = cluster.patch(&format!("{WIDGETS}/w?fieldValidation=Warn"), MERGE, &patch).await;
    refused.fails(422, "Invalid");
    assert_eq!(refused.warnings(), unknown);
}

#[tokio::test]
async fn names_that_clash() {
    let cluster = Cluster::with_widgets().await;
    for (names, reason) in [
        (json!({"plural": "gadgets", "kind": "Widget", "singular": "gadget", "listKind": "Gadgets"}), "KindConflict"),
        (json!({"plural": "gadgets", "kind": "Gadget", "shortNames": ["wg"]}), "ShortNamesConflict"),
        (json!({"plural": "gadgets", "kind": "Gadget", "singular": "widget"}), "SingularConflict"),
        (json!({"plural": "gadgets", "kind": "Gadget", "listKind": "WidgetList"}), "ListKindConflict"),
        // Of several conflicts, the last one is reported.
        (json!({"plural": "gadgets", "kind": "Widget"}), "ListKindConflict"),
    ] {
        let definition = with(|it| {
            it["metadata"]["name"] = "gadgets.example.com".into();
            it["spec"]["names"] = names.clone();
        });
        cluster.post(CRDS, &definition).await.expect(201);
        let path = format!("{CRDS}/gadgets.example.com");
        let now = cluster.get(&path).await.expect(200);
        assert_eq!(condition(&now, "NamesAccepted")["status"], "False", "{names}");
        assert_eq!(condition(&now, "NamesAccepted")["reason"], reason, "{names}");
        assert_eq!(condition(&now, "Established")["status"], "False", "{names}");
        assert_eq!(cluster.get(&WIDGETS.replace("widgets", "gadgets")).await.code, 404, "{names}");
        cluster.delete(&path).await.expect(200);
    }
    // Names that become free go to the definition that waits for them.
    let waiting = with(|it| {
        it["metadata"]["name"] = "gadgets.example.com".into();
        it["spec"]["names"] = json!({"plural": "gadgets", "kind": "Widget"});
    });
    cluster.post(CRDS, &waiting).await.expect(201);
    let gadgets = WIDGETS.replace("widgets", "gadgets");
    assert_eq!(cluster.get(&gadgets).await.code, 404);
    cluster.delete(&format!("{CRDS}/widgets.example.com")).await.expect(200);
    cluster.get(&gadgets).await.expect(200);
    let path = format!("{CRDS}/gadgets.example.com");
    assert_eq!(condition(&cluster.get(&path).await.json(), "Established")["status"], "True");
    cluster.delete(&path).await.expect(200);
    cluster.post(CRDS, &widgets()).await.expect(201);
    // The same names in another group are no conflict.
    let elsewhere = with(|it| {
        it["metadata"]["name"] = "widgets.example.org".into();
        it["spec"]["group"] = "example.org".into();
    });
    let made = cluster.post(CRDS, &elsewhere).await.expect(201);
    assert_eq!(condition(&made, "Established")["status"], "True");
    cluster.post(WIDGETS, &widget("a")).await.expect(201);
}

#[tokio::test]
async fn what_cannot_be_changed() {
    let cluster = Cluster::with_widgets().await;
    let path = format!("{CRDS}/widgets.example.com");
    for (patch, field) in [
        (json!({"spec": {"scope": "Cluster"}}), "spec.scope"),
        (json!({"spec": {"names": {"kind": "Gadget"}}}), "spec.names.kind"),
    ] {
        let message = cluster.patch(&path, MERGE, &patch).await.fails(422, "Invalid");
        assert!(
            message.contains(&format!("{field}: Invalid value")) && message.contains("field is immutable"),
            "{message}"
        );
    }
    let short = cluster.patch(&path, MERGE, &json!({"spec": {"names": {"shortNames": ["wdg"]}}})).await.expect(200);
    assert_eq!(short["metadata"]["generation"], 2);
    let resources = cluster.get("/apis/example.com/v1").await.expect(200);
    assert_eq!(resources["resources"][0]["shortNames"], json!(["wdg"]));
}

#[tokio::test]
async fn the_end_of_a_definition() {
    let cluster = Cluster::with_widgets().await;
    cluster.post(NAMESPACES, &json!({"metadata": {"name": "team"}})).await.expect(201);
    let team = WIDGETS.replace("default", "team");
    let mut held = widget("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.post(WIDGETS, &held).await.expect(201);
    cluster.post(&team, &widget("free")).await.expect(201);
    let mut lines = cluster.watch("/apis/example.com/v1/widgets?watch=true").await;
    lines.next_briefs(2).await;

    let path = format!("{CRDS}/widgets.example.com");
    let going = cluster.delete(&path).await.expect(200);
    assert_eq!(going["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(condition(&going, "Terminating")["status"], "True");
    let mut seen = lines.next_briefs(2).await;
    seen.sort_unstable();
    assert_eq!(seen, ["DELETED free", "MODIFIED held"]);
    let refused = cluster.post(WIDGETS, &widget("late")).await;
    let message = "create not allowed while custom resource definition is terminating";
    assert_eq!(refused.fails(405, "MethodNotAllowed"), message);
    let applied =
        cluster.patch(&format!("{WIDGETS}/late?fieldManager=me"), crate::cluster::APPLY, &widget("late")).await;
    assert_eq!(applied.fails(405, "MethodNotAllowed"), message);
    assert_eq!(names(&cluster.get(WIDGETS).await.expect(200)), ["held"]);

    cluster.patch(&format!("{WIDGETS}/held"), MERGE, &json!({"metadata": {"finalizers": null}})).await.expect(200);
    assert_eq!(lines.next_brief().await, "DELETED held");
    lines.end().await;
    cluster.get(&path).await.fails(404, "NotFound");
    assert_eq!(cluster.get(WIDGETS).await.code, 404);
    let keys =
        cluster.server.store().range(konverge_store::Range { prefix: "/registry/example.com/", ..Default::default() });
    assert!(keys.unwrap().entries.is_empty(), "nothing is left in the store");
}

/// Objects in versions that are no longer served are deleted with their definition, too.
#[tokio::test]
async fn the_end_of_a_definition_that_is_not_served() {
    let cluster = Cluster::with_widgets().await;
    cluster.post(WIDGETS, &widget("a")).await.expect(201);
    let path = format!("{CRDS}/widgets.example.com");
    let unserve = json!([{"op": "replace", "path": "/spec/versions/0/served", "value": false}]);
    cluster.patch(&path, crate::cluster::JSON_PATCH, &unserve).await.expect(200);
    assert_eq!(cluster.get(WIDGETS).await.code, 404);
    cluster.delete(&path).await.expect(200);
    cluster.get(&path).await.fails(404, "NotFound");
    cluster.post(CRDS, &widgets()).await.expect(201);
    assert_eq!(names(&cluster.get(WIDGETS).await.expect(200)).len(), 0);
}

#[tokio::test]
async fn cluster_scoped_kinds() {
    let cluster = Cluster::new().await;
    cluster.post(CRDS, &with(|it| it["spec"]["scope"] = "Cluster".into())).await.expect(201);
    let widgets = "/apis/example.com/v1/widgets";
    let made = cluster.post(widgets, &widget("a")).await.expect(201);
    assert_eq!(made["metadata"].get("namespace"), None);
    cluster.get(&format!("{widgets}/a")).await.expect(200);
    assert_eq!(cluster.post(WIDGETS, &widget("b")).await.code, 404);
}

#[tokio::test]
async fn printer_columns() {
    let cluster = Cluster::new().await;
    let columns = json!([
        {"name": "Port", "type": "integer", "jsonPath": ".spec.ports[0].port", "format": "int32", "description": "the first"},
        {"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"},
        {"name": "Phase", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    let definition = with(|it| {
        let version = &mut it["spec"]["versions"][0];
        version["additionalPrinterColumns"] = columns;
        version["schema"]["openAPIV3Schema"]["properties"]["status"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    });
    cluster.post(CRDS, &definition).await.expect(201);
    let mut object = widget("a");
    object["spec"]["ports"] = json!([{"port": 80}]);
    cluster.post(WIDGETS, &object).await.expect(201);
    cluster.post(WIDGETS, &widget("b")).await.expect(201);
    let status = json!({"status": {"ready": true, "conditions": [{"type": "Other", "status": "?"}, {"type": "Ready", "status": "True"}]}});
    cluster.patch(&format!("{WIDGETS}/a/status"), MERGE, &status).await.expect(200);
    cluster.world.pass(std::time::Duration::from_secs(90));
    let table = cluster.accept(WIDGETS, AS_TABLE).await.expect(200);
    assert_eq!(table["columnDefinitions"][1]["description"], "the first");
    assert_eq!(table["columnDefinitions"][1]["format"], "int32");
    assert_eq!(table["rows"][0]["cells"], json!(["a", 80, true, "True", "90s"]));
    assert_eq!(table["rows"][1]["cells"], json!(["b", null, null, null, "90s"]));
}

/// An object that is created while its definition is deleted is either deleted or refused: no object is left in the store for
/// another definition of the same name.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nothing_outlives_its_definition() {
    let cluster = std::sync::Arc::new(Cluster::new().await);
    for round in 0..40 {
        cluster.post(CRDS, &widgets()).await.expect(201);
        let writing = (0..3).map(|writer| {
            let cluster = cluster.clone();
            tokio::spawn(async move {
                for at in 0.. {
                    let answer = cluster.post(WIDGETS, &widget(&format!("w{writer}-{at}"))).await;
                    if answer.code != 201 {
                        assert!(matches!(answer.code, 404 | 405), "{}", String::from_utf8_lossy(&answer.body));
                        return;
                    }
                    tokio::task::yield_now().await;
                }
            })
        });
        let writing: Vec<_> = writing.collect();
        for _ in 0..round % 7 {
            tokio::task::yield_now().await;
        }
        cluster.delete(&format!("{CRDS}/widgets.example.com")).await.expect(200);
        for writer in writing {
            writer.await.unwrap();
        }
        cluster.get(&format!("{CRDS}/widgets.example.com")).await.fails(404, "NotFound");
        let range = konverge_store::Range { prefix: "/registry/example.com/", ..Default::default() };
        let left = cluster.server.store().range(range).unwrap().entries;
        assert!(left.is_empty(), "round {round}: {left:?}");
    }
}
