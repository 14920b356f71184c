//! Derives that let an operator depend on one crate only.
//!
//! ```text
//! custom_resource   a spec → its kind: the object around it, its names, its CRD
//! forward           Serialize, Deserialize, JsonSchema → the real derive, on a copy that finds its crates
//! copy              the copy: which attributes stay, what it is called, how it defaults
//! rule              #[x_kube(..)] → what schemars understands
//! types             #[types]: the same derives without a copy, for whoever imports serde's own
//! ```
//!
//! The derives of serde, schemars and kube name their crates (`::serde`, …), which a user of `konverge` does not
//! have. These derives go through `::konverge::__private` instead. This crate never decides what a kind looks like in
//! the API: it writes down what the user said, and `konverge` turns it into a CRD.

mod copy;
mod custom_resource;
mod forward;
mod rule;
mod types;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a kind of a spec: `#[kube(group = "example.com", version = "v1", kind = "WebApp", namespaced)]` on
/// `WebAppSpec` gives the object `WebApp` with `metadata`, `spec` and, with `status = "WebAppStatus"`, `status`.
///
/// Further settings: `plural`, `singular`, `shortname`, `category`, `root` (name of the generated struct), `derive`,
/// `attr`, `doc`, `default` (the spec may be left out), `printcolumn(name = .., type_ = .., json_path = ..)`,
/// `selectable`, `scale(spec_replicas_path = .., status_replicas_path = ..)`, `validation` (a CEL rule over the whole
/// object), `annotation(key, value)` and `label(key, value)` (on the CRD), `schema = "derived" | "manual" |
/// "disabled"`, `served`, `storage`, `deprecated`.
#[proc_macro_derive(CustomResource, attributes(kube))]
pub fn custom_resource(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    custom_resource::derive(input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// serde's `Serialize`, without serde among the user's dependencies. Takes serde's attributes.
#[proc_macro_derive(Serialize, attributes(serde))]
pub fn serialize(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    forward::serialize(input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// serde's `Deserialize`, without serde among the user's dependencies. Takes serde's attributes.
#[proc_macro_derive(Deserialize, attributes(serde))]
pub fn deserialize(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    forward::deserialize(input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// schemars' `JsonSchema`, without schemars among the user's dependencies. Takes schemars' and serde's attributes,
/// and `#[x_kube(validation = .., merge_strategy = ..)]` for CEL rules and list types.
#[proc_macro_derive(JsonSchema, attributes(schemars, serde, validate, x_kube))]
pub fn json_schema(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    forward::json_schema(input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Lets serde's and schemars' own derives (`use konverge::serde::Serialize`) find their crates behind `konverge`.
/// Stands above the derives of a struct or an enum, or above a whole `mod`.
#[proc_macro_attribute]
pub fn types(args: TokenStream, item: TokenStream) -> TokenStream {
    types::attribute(args.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
