//! Derives that let an operator depend on one crate only.
//!
//! ```text
//! custom_resource   #[derive(CustomResource)]: a spec → the struct of its kind, with its names and its CRD
//! forward           #[derive(Serialize, Deserialize, JsonSchema)] → the derive of serde or schemars, on a copy of the type
//! copy              the copy: its name, the attributes that it keeps, its `Default`
//! rule              #[x_kube(..)] → attributes of schemars
//! types             #[types]: lets users apply the derives of serde and schemars themselves, without a copy
//! ```
//!
//! The code that the derives of serde, schemars and kube generate names their crates (`::serde`, …), which are not among
//! the dependencies of a user of `konverge`. The derives here use `::konverge::__private` instead. This crate never decides
//! how a kind looks in the API: it passes the user's settings on, and `konverge` makes a CRD of them.

mod copy;
mod custom_resource;
mod forward;
mod rule;
mod types;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a custom resource from its spec: `#[kube(group = "example.com", version = "v1", kind = "WebApp", namespaced)]` on
/// `WebAppSpec` generates the struct `WebApp` with `metadata`, `spec` and, with `status = "WebAppStatus"`, `status`.
///
/// Further settings: `plural`, `singular`, `shortname`, `category`, `root` (name of the generated struct), `derive`,
/// `attr`, `doc`, `default` (objects may omit the spec), `printcolumn(name = .., type_ = .., json_path = ..)`,
/// `selectable`, `scale(spec_replicas_path = .., status_replicas_path = ..)`, `validation` (a CEL rule over the whole
/// object), `annotation(key, value)` and `label(key, value)` (on the CRD), `schema = "derived" | "manual" |
/// "disabled"`, `served`, `storage`, `deprecated`.
#[proc_macro_derive(CustomResource, attributes(kube))]
pub fn custom_resource(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    custom_resource::derive(input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// serde's `Serialize`, for crates that do not depend on serde. Accepts serde's attributes.
#[proc_macro_derive(Serialize, attributes(serde))]
pub fn serialize(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    forward::serialize(input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// serde's `Deserialize`, for crates that do not depend on serde. Accepts serde's attributes.
#[proc_macro_derive(Deserialize, attributes(serde))]
pub fn deserialize(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    forward::deserialize(input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// schemars' `JsonSchema`, for crates that do not depend on schemars. Accepts the attributes of schemars and serde, and
/// `#[x_kube(validation = .., merge_strategy = ..)]` for CEL rules and list types.
#[proc_macro_derive(JsonSchema, attributes(schemars, serde, validate, x_kube))]
pub fn json_schema(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    forward::json_schema(input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Lets the derives of serde and schemars themselves (`use konverge::serde::Serialize`) find their crates through `konverge`.
/// Put it above the derives of a struct or an enum, or above a whole `mod`.
#[proc_macro_attribute]
pub fn types(args: TokenStream, item: TokenStream) -> TokenStream {
    types::attribute(args.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
