//! The table of protobuf messages, from small Go packages.

use serde_json::json;

use super::*;

const META: &str = "type Time struct {\n\ttime.Time `protobuf:\"-\"`\n}\n\
                    type Verbs []string\ntype UID string\n";

/// The table that a package with kind `T` makes, without its head.
fn table_of(go: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in [("api/x/v1", go), ("apimachinery/pkg/apis/meta/v1", META)] {
        let package = folder.path().join("staging/src/k8s.io").join(path);
        std::fs::create_dir_all(&package).unwrap();
        std::fs::write(package.join("types.go"), text.replace("\ttime.Time `protobuf:\"-\"`\n", "")).unwrap();
        std::fs::write(package.join("types_test.go"), "type T struct {\n\tA, B int `json:\"a\"`\n}\n").unwrap();
    }
    let kind = json!({"x-kubernetes-group-version-kind": [{"group": "x.io", "version": "v1", "kind": "T"}]});
    let schemas = BTreeMap::from([("io.k8s.api.x.v1.T".to_owned(), kind), ("io.k8s.api.x.v1.U".to_owned(), json!({}))]);
    table("a test", &schemas, &Source::at(folder.path().into()))
        .map(|text| text.split_once("\n\n").unwrap().1.trim_start_matches('\n').to_owned())
}

/// One field of the kind.
fn check(field: &str, expect: &str) {
    let go = format!(
        "package v1\n\nimport (\n\tmetav1 \"k8s.io/apimachinery/pkg/apis/meta/v1\"\n)\n\n\
         type T struct {{\n\tmetav1.TypeMeta `json:\",inline\"`\n\t{field}\n}}\n\n\
         type Inner struct {{\n\tA string `json:\"a\" protobuf:\"bytes,1,opt,name=a\"`\n}}\n\
         type Inners []Inner\ntype Name string\ntype Names map[Name]Inner\ntype Odd map[int]Inner\n"
    );
    let got = table_of(&go).map_or_else(
        |problem| format!("error: {problem}"),
        |text| text.split_once("io.k8s.api.x.v1.T x.io/v1\n").unwrap().1.lines().next().unwrap().trim().to_owned(),
    );
    assert_eq!(got, expect, "{field}");
}

#[test]
fn writes_fields() {
    let cases = [
        ("Name string `json:\"name\" protobuf:\"bytes,1,opt,name=name\"`", "1 name string"),
        ("Name Name `json:\"name,omitempty\" protobuf:\"bytes,1,opt,name=name,casttype=Name\"`", "1 name? string"),
        ("Count *int32 `json:\"count,omitempty\" protobuf:\"varint,7,opt,name=count\"`", "7 count? *int32"),
        // The tag calls a double bytes, or a string repeated; the Go type is right.
        ("Name string `json:\"name\" protobuf:\"bytes,1,rep,name=name\"`", "1 name string"),
        ("Max *float64 `json:\"max,omitempty\" protobuf:\"bytes,10,opt,name=max\"`", "10 max? *double"),
        ("Data map[string][]byte `json:\"data\" protobuf:\"bytes,2,rep,name=data\"`", "2 data {bytes"),
        ("Raw []byte `json:\"raw\" protobuf:\"bytes,2,opt,name=raw\"`", "2 raw bytes"),
        ("UID metav1.UID `json:\"uid\" protobuf:\"bytes,2,opt,name=uid\"`", "2 uid string"),
        ("At metav1.Time `json:\"at,omitempty,omitzero\" protobuf:\"bytes,2,opt,name=at\"`", "2 at~ time"),
        ("At *metav1.Time `json:\"at,omitempty\" protobuf:\"bytes,2,opt,name=at\"`", "2 at? *time"),
        ("Verbs metav1.Verbs `json:\"verbs\" protobuf:\"bytes,4,opt,name=verbs\"`", "4 verbs meta/v1.Verbs"),
        ("Inner `json:\",inline\" protobuf:\"bytes,2,opt,name=inner\"`", "2 . Inner"),
        ("Inner `json:\"inner\" protobuf:\"bytes,2,opt,name=inner\"`", "2 inner Inner"),
        ("Named string `json:\",omitempty\" protobuf:\"bytes,2,opt,name=named\"`", "2 Named? string"),
        ("List []Inner `json:\"list\" protobuf:\"bytes,2,rep,name=list\"`", "2 list [Inner"),
        ("List Inners `json:\"list,omitempty\" protobuf:\"bytes,2,rep,name=list\"`", "2 list? [Inner"),
        ("Map Names `json:\"map\" protobuf:\"bytes,2,opt,name=map\"`", "2 map {Inner"),
        ("Map map[string]metav1.Verbs `json:\"map\" protobuf:\"bytes,2,rep,name=map\"`", "2 map {meta/v1.Verbs"),
    ];
    for (field, expect) in cases {
        check(field, expect);
    }
}

#[test]
fn refuses_what_it_cannot_write() {
    let cases = [
        ("A string `json:\"a\"`", "A: no protobuf tag"),
        ("A string `json:\"-\" protobuf:\"bytes,1,opt,name=a\"`", "A: a field that JSON leaves out"),
        ("A string `json:\"a\" protobuf:\"bytes\"`", "A: a tag that cannot be read: \"bytes\""),
        (
            "A string `json:\"a\" protobuf:\"bytes,x,opt,name=a\"`",
            "A: a field number that cannot be read: \"bytes,x,opt,name=a\"",
        ),
        ("A string `json:\"a,omitzero\" protobuf:\"bytes,1,opt,name=a\"`", "A: omitzero with string"),
        ("A Inners `json:\"a,omitempty\" protobuf:\"bytes,1,opt,name=a\"`", "A: omitempty with a named list"),
        ("*Inner `json:\",inline\" protobuf:\"bytes,1,opt,name=a\"`", "Inner: an embedded pointer"),
        ("A Missing `json:\"a\" protobuf:\"bytes,1,opt,name=a\"`", "A: k8s.io/api/x/v1 declares no Missing"),
        ("A interface{} `json:\"a\" protobuf:\"bytes,1,opt,name=a\"`", "A: interface{} cannot be sent"),
        ("A Odd `json:\"a\" protobuf:\"bytes,1,rep,name=a\"`", "A: k8s.io/api/x/v1 declares no int"),
        (
            "A string `json:\"a\" protobuf:\"bytes,1,opt,name=a\"`\n\tB string `json:\"b\" protobuf:\"bytes,1,opt,name=b\"`",
            "B: a second field with the number 1",
        ),
    ];
    for (field, expect) in cases {
        check(field, &format!("error: k8s.io/api/x/v1.T: {expect}"));
    }
}

#[test]
fn names_kinds_packages_and_lists() {
    let go = "package v1\n\nimport (\n\tmetav1 \"k8s.io/apimachinery/pkg/apis/meta/v1\"\n)\n\n\
              type T struct {\n\tVerbs metav1.Verbs `json:\"verbs\" protobuf:\"bytes,4,opt,name=verbs\"`\n}\n";
    assert_eq!(
        table_of(go).unwrap(),
        "@meta/v1 io.k8s.apimachinery.pkg.apis.meta.v1\n\n\
         io.k8s.api.x.v1.T x.io/v1\n  4 verbs meta/v1.Verbs\n\n\
         io.k8s.apimachinery.pkg.apis.meta.v1.Verbs transparent\n  1 items [string\n"
    );
}
