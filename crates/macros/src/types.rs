//! The attribute `#[types]`. In: a struct, an enum, or a module with them. Out: the same, with attributes that tell the
//! derives of serde and schemars where their crates are. Changes nothing else.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Item, Path, Result, Token, parse_quote};

/// The attribute `#[types]`.
pub(crate) fn attribute(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !args.is_empty() {
        return Err(Error::new_spanned(args, "`#[konverge::types]` takes no settings"));
    }
    let mut item: Item = syn::parse2(item)?;
    add_attributes_below(&mut item)?;
    Ok(item.to_token_stream())
}

fn add_attributes_below(item: &mut Item) -> Result<()> {
    match item {
        Item::Struct(item) => add_crate_attributes(&mut item.attrs),
        Item::Enum(item) => add_crate_attributes(&mut item.attrs),
        Item::Mod(module) => match &mut module.content {
            Some((_, items)) => items
                .iter_mut()
                .filter(|item| matches!(item, Item::Struct(_) | Item::Enum(_) | Item::Mod(_)))
                .try_for_each(add_attributes_below),
            None => {
                Err(Error::new_spanned(module, "`#[konverge::types]` needs the module's body here: `mod name { .. }`"))
            }
        },
        other => Err(Error::new_spanned(
            other,
            "`#[konverge::types]` belongs above a struct, an enum or a module, before its derives",
        )),
    }
}

fn add_crate_attributes(attributes: &mut Vec<Attribute>) -> Result<()> {
    let mut derived = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("derive")) {
        let paths = attribute.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated)?;
        derived.extend(paths.into_iter().filter_map(|path| path.segments.last().map(|last| last.ident.to_string())));
    }
    let derives = |names: &[&str]| derived.iter().any(|name| names.contains(&name.as_str()));
    let mut add = |attribute: TokenStream| attributes.push(parse_quote!(#attribute));
    if derives(&["Serialize", "Deserialize"]) {
        add(quote!(#[serde(crate = "::konverge::__private::serde")]));
    }
    if derives(&["JsonSchema"]) {
        add(quote!(#[schemars(crate = "::konverge::__private::schemars")]));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::attribute;
    use quote::quote;

    #[test]
    fn other_items_are_refused() {
        let message = |args, item| attribute(args, item).unwrap_err().to_string();
        assert_eq!(
            message(
                quote!(all),
                quote!(
                    struct A;
                )
            ),
            "`#[konverge::types]` takes no settings"
        );
        assert_eq!(
            message(
                quote!(),
                quote!(
                    fn a() {}
                )
            ),
            "`#[konverge::types]` belongs above a struct, an enum or a module, before its derives"
        );
        assert_eq!(
            message(
                quote!(),
                quote!(
                    mod a;
                )
            ),
            "`#[konverge::types]` needs the module's body here: `mod name { .. }`"
        );
    }
}
