//! Permissions as the guide has them.

use konverge::k8s_openapi::api::core::v1::Node;
use konverge::prelude::*;
use konverge_snippets::WebApp;

const GUIDE: &str = include_str!("../../../../../../docs/guide/permissions.md");

#[test]
fn kinds_without_a_builder_can_be_needed() {
    for words in ["`use konverge::k8s_openapi::api::core::v1::Node;`", "`.needs::<Node>([\"get\"])`"] {
        assert!(GUIDE.contains(words), "{words} is not in the guide");
    }
    let rules = Operator::<WebApp>::new().needs::<Node>(["get"]).rules().to_string();
    assert!(rules.contains("get nodes"), "{rules}");
}
