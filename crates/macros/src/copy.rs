//! A copy of a type for a real derive. In: a type. Out: a copy with another name, with only the attributes that this derive
//! knows, and with the type's name instead of `Self`. Never changes the type itself, because a derive macro cannot.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, Error, Fields, LitStr, Meta, Result, Token, parse_quote};

/// A copy of a type for one derive.
pub(crate) struct Copy {
    /// The copy, named [`Copy::name`].
    pub item: DeriveInput,
    /// The name of the copy.
    pub name: Ident,
    /// The name of the type.
    pub original: Ident,
}

impl Copy {
    /// Copies `input` with the attributes named in `keep`.
    pub(crate) fn new(input: &DeriveInput, keep: &[&str]) -> Result<Self> {
        let original = input.ident.clone();
        let name = format_ident!("__{}Copy", original);
        let mut item = input.clone();
        item.ident = name.clone();
        item.attrs = kept(&item.attrs, keep, &original)?;
        let fields = |fields: &mut Fields| -> Result<()> {
            for field in fields {
                field.attrs = kept(&field.attrs, keep, &original)?;
                let ty = replace_self(field.ty.to_token_stream(), &self_type(input));
                field.ty = parse_quote!(#ty);
            }
            Ok(())
        };
        match &mut item.data {
            Data::Struct(data) => fields(&mut data.fields)?,
            Data::Enum(data) => {
                for variant in &mut data.variants {
                    variant.attrs = kept(&variant.attrs, keep, &original)?;
                    variant.discriminant = None;
                    fields(&mut variant.fields)?;
                }
            }
            Data::Union(_) => return Err(Error::new_spanned(&original, "a union has no JSON form: use an enum")),
        }
        Ok(Self { item, name, original })
    }

    /// An attribute that gives the copy the name of the type in the data format and the schema, unless the user renames it.
    pub(crate) fn rename(&self) -> Option<Meta> {
        let given = self.item.attrs.iter().any(|attribute| has(attribute, "rename"));
        let name = self.original.to_string();
        (!given).then(|| parse_quote!(rename = #name))
    }

    /// `Default` for the copy, which calls that of the type; only for a container with `#[serde(default)]`.
    pub(crate) fn default_impl(&self) -> Option<TokenStream> {
        let Data::Struct(data) = &self.item.data else { return None };
        // With a path (`default = "path"`) the derive calls that function and needs nothing from the copy.
        let has_default = |attribute: &Attribute| {
            let entries = entries(attribute).unwrap_or_default();
            entries.iter().any(|entry| matches!(entry, Meta::Path(path) if path.is_ident("default")))
        };
        if !self.item.attrs.iter().any(has_default) {
            return None;
        }
        let (copy, original) = (&self.name, &self.original);
        let (impl_generics, arguments, clause) = self.item.generics.split_for_impl();
        let members: Vec<_> = data.fields.members().collect();
        let names: Vec<_> = (0..members.len()).map(|at| format_ident!("field{at}")).collect();
        let predicates = clause.map(|clause| &clause.predicates);
        Some(quote! {
            impl #impl_generics ::core::default::Default for #copy #arguments
            where #original #arguments: ::core::default::Default, #predicates {
                fn default() -> Self {
                    let #original { #(#members: #names),* } = ::core::default::Default::default();
                    Self { #(#members: #names),* }
                }
            }
        })
    }
}

/// Whether an attribute has an entry `key`, as `key`, `key = ..` or `key(..)`.
fn has(attribute: &Attribute, key: &str) -> bool {
    entries(attribute).is_ok_and(|entries| entries.iter().any(|entry| entry.path().is_ident(key)))
}

fn entries(attribute: &Attribute) -> Result<Punctuated<Meta, Token![,]>> {
    attribute.parse_args_with(Punctuated::parse_terminated)
}

fn self_type(input: &DeriveInput) -> TokenStream {
    let name = &input.ident;
    let (_, arguments, _) = input.generics.split_for_impl();
    quote!(#name #arguments)
}

/// The attributes named in `keep`, without `crate = ".."`, which the derive sets itself.
fn kept(attributes: &[Attribute], keep: &[&str], original: &Ident) -> Result<Vec<Attribute>> {
    let mut out = Vec::new();
    for attribute in attributes.iter().filter(|attribute| keep.iter().any(|name| attribute.path().is_ident(name))) {
        let Meta::List(list) = &attribute.meta else {
            out.push(attribute.clone());
            continue;
        };
        let mut list = list.clone();
        let entries = entries(attribute)?;
        if let Some(remote) = entries.iter().find(|entry| entry.path().is_ident("remote")) {
            let message =
                "`remote` needs serde's own derive: `use konverge::serde::Serialize` and `#[konverge::types]`";
            return Err(Error::new_spanned(remote, message));
        }
        let entries = entries.into_iter().filter(|entry| !entry.path().is_ident("crate"));
        let entries: Vec<_> = entries.map(|entry| replace_self_in_paths(entry.to_token_stream(), original)).collect();
        if entries.is_empty() {
            continue;
        }
        list.tokens = quote!(#(#entries),*);
        out.push(Attribute { meta: Meta::List(list), ..attribute.clone() });
    }
    Ok(out)
}

/// Replaces `Self` in the type of a field, where it would mean the copy.
fn replace_self(tokens: TokenStream, with: &TokenStream) -> TokenStream {
    let each = |tree| match tree {
        TokenTree::Ident(ident) if ident == "Self" => with.clone(),
        TokenTree::Group(group) => {
            TokenTree::Group(Group::new(group.delimiter(), replace_self(group.stream(), with))).into()
        }
        other => other.into(),
    };
    tokens.into_iter().map(each).collect()
}

/// Replaces `"Self::path"` in an attribute, where it would mean a function of the copy.
fn replace_self_in_paths(tokens: TokenStream, original: &Ident) -> TokenStream {
    let each = |tree: TokenTree| match tree {
        TokenTree::Literal(literal) => match syn::parse2::<LitStr>(literal.to_token_stream()) {
            Ok(text) if text.value().starts_with("Self::") => {
                let path = format!("{original}{}", &text.value()["Self".len()..]);
                LitStr::new(&path, text.span()).to_token_stream()
            }
            _ => literal.to_token_stream(),
        },
        TokenTree::Group(group) => {
            TokenTree::Group(Group::new(group.delimiter(), replace_self_in_paths(group.stream(), original))).into()
        }
        other => other.into(),
    };
    tokens.into_iter().map(each).collect()
}
