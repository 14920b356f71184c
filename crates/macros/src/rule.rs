//! Validation rules and merge strategies. In: `#[x_kube(validation = .., merge_strategy = ..)]` on a type or its fields. Out:
//! schemars attributes that write the same into the schema. Never checks a rule: the API server does.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Expr, Result, parse_quote};

/// Adds a schemars attribute for every `x_kube` attribute of `input`.
pub(crate) fn translate(input: &mut DeriveInput) -> Result<()> {
    translate_all(&mut input.attrs)?;
    match &mut input.data {
        Data::Struct(data) => data.fields.iter_mut().try_for_each(|field| translate_all(&mut field.attrs))?,
        Data::Enum(data) => {
            for variant in &mut data.variants {
                translate_all(&mut variant.attrs)?;
                variant.fields.iter_mut().try_for_each(|field| translate_all(&mut field.attrs))?;
            }
        }
        Data::Union(_) => {}
    }
    Ok(())
}

/// Statements that write a rule into `schema`.
pub(crate) fn validation(rule: &Expr) -> TokenStream {
    quote!(::konverge::__private::validation(schema, #rule);)
}

/// A block with `statements` that change the variable `schema`, and imports of the names that rules use.
pub(crate) fn with_names(statements: impl IntoIterator<Item = TokenStream>) -> TokenStream {
    let statements = statements.into_iter();
    quote! {{
        #[allow(unused_imports, reason = "generated code")]
        use ::konverge::__private::kube::core::{ListMerge, MapMerge, Message, Reason, Rule, StructMerge};
        #(#statements)*
    }}
}

fn translate_all(attributes: &mut Vec<Attribute>) -> Result<()> {
    let mut statements = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("x_kube")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("validation") {
                statements.push(validation(&meta.value()?.parse()?));
            } else if meta.path.is_ident("merge_strategy") {
                let strategy: Expr = meta.value()?.parse()?;
                statements.push(quote!(::konverge::__private::merge_strategy(schema, #strategy);));
            } else {
                return Err(meta.error("`x_kube` takes `validation = \"rule\"` and `merge_strategy = ListMerge::..`"));
            }
            Ok(())
        })?;
    }
    if !statements.is_empty() {
        let body = with_names(statements);
        attributes.push(parse_quote! {
            #[schemars(transform = |schema: &mut ::konverge::__private::schemars::Schema| #body)]
        });
    }
    Ok(())
}
