//! DefaultIngressClass: an ingress that names no class gets the default one.

use serde_json::Value;

use konverge_core::Status;

use super::default_storage_class::newest_default;
use super::{Admission, Attributes, Operation, Plugin, Verdict, decided, lookup};
use crate::meta;

const CLASSES: lookup::Kind = ("networking.k8s.io", "ingressclasses");

/// The annotation that marks the default class.
const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";

/// The annotation that names a class in old versions.
const CLASS: &str = "kubernetes.io/ingress.class";

pub(super) struct DefaultIngressClass;

impl Plugin for DefaultIngressClass {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is(Operation::Create, "networking.k8s.io", "ingresses")
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        ingress: &'a mut Value,
        _: &'a mut Admission,
    ) -> Verdict<'a> {
        decided(choose(attributes, ingress))
    }
}

fn choose(attributes: &Attributes<'_>, ingress: &mut Value) -> Result<(), Status> {
    let annotated = meta::of(ingress).get("annotations").is_some_and(|annotations| annotations.get(CLASS).is_some());
    if annotated || ingress["spec"]["ingressClassName"].is_string() {
        return Ok(());
    }
    if let Some(class) = newest_default(attributes, CLASSES, &[IS_DEFAULT])? {
        ingress["spec"]["ingressClassName"] = class.into();
    }
    Ok(())
}
