//! The types of what every policy sees: `request` and `namespaceObject`, and what the types of variables become.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::decl::{Decl, Inside};
use crate::types::Type;

pub(super) const REQUEST: &str = "kubernetes.AdmissionRequest";
pub(super) const NAMESPACE: &str = "kubernetes.Namespace";
pub(crate) const USER_INFO: &str = "kubernetes.UserInfo";

pub(crate) type Fields = BTreeMap<Box<str>, Decl>;

/// Each line is an object: its name, and its fields with their types.
const OBJECTS: &str = "\
kubernetes.GroupVersionKind group:string version:string kind:string
kubernetes.GroupVersionResource group:string version:string resource:string
kubernetes.UserInfo username:string uid:string groups:strings extra:lists
kubernetes.AdmissionRequest kind:kubernetes.GroupVersionKind resource:kubernetes.GroupVersionResource subResource:string \
requestKind:kubernetes.GroupVersionKind requestResource:kubernetes.GroupVersionResource requestSubResource:string \
name:string namespace:string operation:string userInfo:kubernetes.UserInfo dryRun:bool options:dyn
kubernetes.NamespaceSpec finalizers:strings
kubernetes.NamespaceCondition status:string type:string lastTransitionTime:timestamp message:string reason:string
kubernetes.NamespaceStatus conditions:conditions phase:string
kubernetes.NamespaceMetadata name:string generateName:string namespace:string labels:texts annotations:texts UID:string \
creationTimestamp:timestamp deletionGracePeriodSeconds:int deletionTimestamp:timestamp generation:int \
resourceVersion:string finalizers:strings
kubernetes.Namespace metadata:kubernetes.NamespaceMetadata spec:kubernetes.NamespaceSpec status:kubernetes.NamespaceStatus";

/// The fields of the objects, by the names of their types.
pub(crate) fn fields() -> &'static BTreeMap<&'static str, Fields> {
    static OBJECT_FIELDS: LazyLock<BTreeMap<&'static str, Fields>> = LazyLock::new(|| {
        let object = |line: &'static str| {
            let mut words = line.split(' ');
            let name = words.next().expect("a line begins with a name");
            let fields = words.map(|field| field.split_once(':').expect("a field has a type"));
            (name, fields.map(|(field, ty)| (field.into(), value(&named(ty)))).collect())
        };
        OBJECTS.lines().map(object).collect()
    });
    &OBJECT_FIELDS
}

fn named(ty: &'static str) -> Type {
    match ty {
        "string" => Type::String,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "dyn" => Type::Dyn,
        "timestamp" => Type::Timestamp,
        "strings" => Type::list(Type::String),
        "texts" => Type::map(Type::String, Type::String),
        "lists" => Type::map(Type::String, Type::list(Type::String)),
        "conditions" => Type::list(Type::Object("kubernetes.NamespaceCondition".into())),
        object => Type::Object(object.into()),
    }
}

/// The declaration of a value of which nothing but its type is known.
pub(super) fn value(ty: &Type) -> Decl {
    Decl { ty: ty.clone(), inside: Inside::Nothing, max_elements: 0, min_size: 0 }
}

/// The type that other expressions see of a variable: objects and what is not of CEL itself become `dyn`.
pub(super) fn variable_type(ty: &Type) -> Type {
    match ty {
        Type::List(item) => Type::list(variable_type(item)),
        Type::Map(entry) => Type::map(variable_type(&entry.0), variable_type(&entry.1)),
        Type::Object(_) | Type::Opaque(..) | Type::Kind(_) | Type::Param(_) | Type::Error => Type::Dyn,
        scalar => scalar.clone(),
    }
}
