//! Forwards to the derives of serde and schemars. In: a type. Out: a hidden copy of the type with the real derive, and an
//! implementation for the type that calls that of the copy. The copy tells the real derive to find its crate through
//! `::konverge`, which a derive cannot do on the type itself.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{DeriveInput, GenericParam, Generics, Lifetime, LifetimeParam, LitStr, Result, parse_quote};

use crate::copy::Copy;
use crate::rule;

/// `Serialize` for `input`.
pub(crate) fn serialize(input: DeriveInput) -> Result<TokenStream> {
    let serialize = quote!(::konverge::__private::serde::Serialize);
    let copy = Copy::new(&input, &["serde"])?;
    let definition = remote(&copy, &serialize);
    let generics = bounded(input.generics.clone(), &serialize);
    let (_, arguments, _) = input.generics.split_for_impl();
    let (impl_generics, _, clause) = generics.split_for_impl();
    let (name, original) = (&copy.name, &copy.original);
    Ok(hidden(quote! {
        #definition
        impl #impl_generics #serialize for #original #arguments #clause {
            fn serialize<__S: ::konverge::__private::serde::Serializer>(
                &self,
                serializer: __S,
            ) -> ::core::result::Result<__S::Ok, __S::Error> {
                #name::serialize(self, serializer)
            }
        }
    }))
}

/// `Deserialize` for `input`.
pub(crate) fn deserialize(input: DeriveInput) -> Result<TokenStream> {
    let copy = Copy::new(&input, &["serde"])?;
    let definition = remote(&copy, &quote!(::konverge::__private::serde::Deserialize));
    let default = copy.default_impl();
    let de = Lifetime::new("'de", Span::call_site());
    let deserialize = quote!(::konverge::__private::serde::Deserialize<#de>);
    let mut generics = bounded(input.generics.clone(), &deserialize);
    let mut lifetime = LifetimeParam::new(de);
    lifetime.bounds.extend(generics.lifetimes().map(|borrowed| borrowed.lifetime.clone()));
    generics.params.insert(0, GenericParam::Lifetime(lifetime));
    let (_, arguments, _) = input.generics.split_for_impl();
    let (impl_generics, _, clause) = generics.split_for_impl();
    let (name, original) = (&copy.name, &copy.original);
    Ok(hidden(quote! {
        #definition
        #default
        impl #impl_generics #deserialize for #original #arguments #clause {
            fn deserialize<__D: ::konverge::__private::serde::Deserializer<'de>>(
                deserializer: __D,
            ) -> ::core::result::Result<Self, __D::Error> {
                #name::deserialize(deserializer)
            }
        }
    }))
}

/// `JsonSchema` for `input`.
pub(crate) fn json_schema(mut input: DeriveInput) -> Result<TokenStream> {
    rule::translate(&mut input)?;
    let trait_ = quote!(::konverge::__private::schemars::JsonSchema);
    let copy = Copy::new(&input, &["serde", "schemars", "validate", "doc", "deprecated"])?;
    let (item, name, original, rename) = (&copy.item, &copy.name, &copy.original, copy.rename());
    let default = copy.default_impl();
    let generics = bounded(input.generics.clone(), &trait_);
    let (_, arguments, _) = input.generics.split_for_impl();
    let (impl_generics, _, clause) = generics.split_for_impl();
    let forward = quote!(<#name #arguments as #trait_>);
    Ok(hidden(quote! {
        // The code that schemars generates for `serialize_with` names these two crates.
        use ::konverge::__private::{schemars, serde};
        #[derive(::konverge::__private::schemars::JsonSchema)]
        #[schemars(crate = "::konverge::__private::schemars", #rename)]
        #item
        #default
        impl #impl_generics #trait_ for #original #arguments #clause {
            fn inline_schema() -> bool {
                #forward::inline_schema()
            }
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                #forward::schema_name()
            }
            fn schema_id() -> ::std::borrow::Cow<'static, str> {
                #forward::schema_id()
            }
            fn json_schema(
                generator: &mut ::konverge::__private::schemars::SchemaGenerator,
            ) -> ::konverge::__private::schemars::Schema {
                #forward::json_schema(generator)
            }
        }
    }))
}

/// The copy with serde's derive for a type of another crate (`remote`): for the copy, the type is one.
fn remote(copy: &Copy, derive: &TokenStream) -> TokenStream {
    let (item, rename) = (&copy.item, copy.rename());
    let remote = LitStr::new(&copy.original.to_string(), copy.original.span());
    quote! {
        #[derive(#derive)]
        #[serde(crate = "::konverge::__private::serde", remote = #remote, #rename)]
        #item
    }
}

/// Adds the trait as a bound to every type parameter.
fn bounded(mut generics: Generics, bound: &TokenStream) -> Generics {
    for parameter in generics.type_params_mut() {
        parameter.default = None;
        parameter.bounds.push(parse_quote!(#bound));
    }
    generics
}

/// Puts generated items where no name, documentation or lint sees them.
fn hidden(items: TokenStream) -> TokenStream {
    quote! {
        #[doc(hidden)]
        #[allow(
            unused,
            deprecated,
            missing_docs,
            non_camel_case_types,
            unreachable_pub,
            clippy::all,
            clippy::pedantic,
            reason = "generated code"
        )]
        const _: () = { #items };
    }
}

#[cfg(test)]
mod tests {
    use super::{json_schema, serialize};

    #[test]
    fn mistakes_say_what_to_do() {
        let message = |source| serialize(syn::parse_str(source).expect("the case is Rust")).unwrap_err().to_string();
        assert_eq!(message("union A { a: u8 }"), "a union has no JSON form: use an enum");
        assert_eq!(
            message(r#"#[serde(remote = "B")] struct A {}"#),
            "`remote` needs serde's own derive: `use konverge::serde::Serialize` and `#[konverge::types]`"
        );
        let rule = syn::parse_str("struct A { #[x_kube(rule = \"a\")] a: u8 }").expect("the case is Rust");
        assert_eq!(
            json_schema(rule).unwrap_err().to_string(),
            "`x_kube` takes `validation = \"rule\"` and `merge_strategy = ListMerge::..`"
        );
    }
}
