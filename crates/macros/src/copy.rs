//! In comes an item, out goes a copy of it that one real derive can be put on: another name, only the attributes that
//! derive knows, and `Self` spelled out. Never changes the item itself: a derive cannot.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, Error, Fields, LitStr, Meta, Result, Token, parse_quote};

/// A copy of a type for one derive.
pub(crate) struct Copy {
    /// The copy, named [`Copy::name`].
    pub item: DeriveInput,
    /// What the copy is called.
    pub name: Ident,
    /// What the type itself is called.
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
                let ty = spelled_out(field.ty.to_token_stream(), &self_type(input));
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

    /// The name under which the type is known in its format or schema: its own, unless an attribute says otherwise.
    pub(crate) fn rename(&self) -> Option<Meta> {
        let given = self.item.attrs.iter().any(|attribute| has(attribute, "rename"));
        let name = self.original.to_string();
        (!given).then(|| parse_quote!(rename = #name))
    }

    /// `Default` for the copy by way of the type's own, if the container says `#[serde(default)]`.
    pub(crate) fn default_impl(&self) -> Option<TokenStream> {
        let Data::Struct(data) = &self.item.data else { return None };
        // With a path (`default = "path"`) the derive calls that function and needs nothing from the copy.
        let says_default = |attribute: &Attribute| {
            let entries = entries(attribute).unwrap_or_default();
            entries.iter().any(|entry| matches!(entry, Meta::Path(path) if path.is_ident("default")))
        };
        if !self.item.attrs.iter().any(says_default) {
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

/// Whether one of our attributes holds `key`, as a word, a value or a list.
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

/// The attributes named in `keep`. A `crate = ".."` goes: the derive sets its own.
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
        let entries: Vec<_> = entries.map(|entry| paths_spelled_out(entry.to_token_stream(), original)).collect();
        if entries.is_empty() {
            continue;
        }
        list.tokens = quote!(#(#entries),*);
        out.push(Attribute { meta: Meta::List(list), ..attribute.clone() });
    }
    Ok(out)
}

/// `Self` in a field's type means the type, not its copy.
fn spelled_out(tokens: TokenStream, with: &TokenStream) -> TokenStream {
    let each = |tree| match tree {
        TokenTree::Ident(ident) if ident == "Self" => with.clone(),
        TokenTree::Group(group) => {
            TokenTree::Group(Group::new(group.delimiter(), spelled_out(group.stream(), with))).into()
        }
        other => other.into(),
    };
    tokens.into_iter().map(each).collect()
}

/// `"Self::path"` in an attribute means the type's function, not its copy's.
fn paths_spelled_out(tokens: TokenStream, original: &Ident) -> TokenStream {
    let each = |tree: TokenTree| match tree {
        TokenTree::Literal(literal) => match syn::parse2::<LitStr>(literal.to_token_stream()) {
            Ok(text) if text.value().starts_with("Self::") => {
                let path = format!("{original}{}", &text.value()["Self".len()..]);
                LitStr::new(&path, text.span()).to_token_stream()
            }
            _ => literal.to_token_stream(),
        },
        TokenTree::Group(group) => {
            TokenTree::Group(Group::new(group.delimiter(), paths_spelled_out(group.stream(), original))).into()
        }
        other => other.into(),
    };
    tokens.into_iter().map(each).collect()
}
