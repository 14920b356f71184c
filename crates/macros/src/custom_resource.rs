//! The derive `CustomResource`. In: a spec with its `#[kube(..)]`. Out: the struct of the kind, with `metadata`, `spec` and
//! `status`, and the traits that the client and `konverge` need. How a CRD looks is decided in `konverge`, not here.

mod settings;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Attribute, DeriveInput, Error, Expr, ExprLit, Ident, Lit, Meta, Result};

use self::settings::{Column, Scale, SchemaMode, Settings};
use crate::rule;

/// The derive `CustomResource`.
pub(crate) fn derive(input: DeriveInput) -> Result<TokenStream> {
    if let syn::Data::Union(_) = input.data {
        return Err(Error::new_spanned(&input.ident, "a union has no JSON form: derive `CustomResource` on a struct"));
    }
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(&input.generics, "a kind has one schema, so its spec cannot be generic"));
    }
    let settings = Settings::read(&input.attrs)?;
    let name = settings.root.as_ref().map_or_else(|| settings.kind.clone(), syn::LitStr::value);
    if input.ident == name {
        let message = format!(
            "`{name}` is the name of the struct that is generated for this kind: rename the spec to `{name}Spec`, or the \
             generated struct with `#[kube(root = \"..\")]`"
        );
        return Err(Error::new_spanned(&input.ident, message));
    }
    let root = format_ident!("{name}", span = settings.root.as_ref().map_or(input.ident.span(), syn::LitStr::span));
    let object = object(&input, &settings, &root);
    let resource = resource(&settings, &root);
    let schema = (settings.schema == SchemaMode::Derived).then(|| json_schema(&input, &settings, &root));
    let definition = definition(&settings, &root);
    Ok(quote!(#object #resource #schema #definition))
}

/// The struct of the kind, its constructor, and its serialization.
fn object(input: &DeriveInput, settings: &Settings, root: &Ident) -> TokenStream {
    let (vis, spec) = (&input.vis, &input.ident);
    let doc = settings.doc.clone().unwrap_or_else(|| format!("The kind `{}` around [`{spec}`].", settings.kind));
    let (derives, attributes) = (&settings.derives, &settings.attributes);
    let spec_default = settings.default.then(|| quote!(#[serde(default)]));
    let status = settings.status.as_ref();
    let status_field = status.map(|status| {
        quote! {
            /// The state that the controller observed last.
            #[serde(default)]
            #vis status: ::core::option::Option<#status>,
        }
    });
    let status_none = status.map(|_| quote!(status: ::core::option::Option::None,));
    let status_count = status.map(|_| quote!(+ usize::from(self.status.is_some())));
    let status_field_serialized = status.map(|_| {
        quote! {
            if let ::core::option::Option::Some(status) = &self.status {
                object.serialize_field("status", status)?;
            }
        }
    });
    quote! {
        #[doc = #doc]
        #[derive(
            ::core::clone::Clone,
            ::core::fmt::Debug,
            ::konverge::__private::serde::Deserialize,
            #(#derives),*
        )]
        #[serde(crate = "::konverge::__private::serde")]
        #(#[#attributes])*
        #vis struct #root {
            /// Name, namespace, labels and other metadata.
            #vis metadata: ::konverge::__private::ObjectMeta,
            /// The desired state.
            #spec_default
            #vis spec: #spec,
            #status_field
        }

        impl #root {
            /// A new object with this name and spec.
            #vis fn new(name: impl ::core::convert::Into<::std::string::String>, spec: #spec) -> Self {
                let metadata = ::konverge::__private::ObjectMeta {
                    name: ::core::option::Option::Some(name.into()),
                    ..::core::default::Default::default()
                };
                Self { metadata, spec, #status_none }
            }
        }

        #[automatically_derived]
        impl ::konverge::__private::serde::Serialize for #root {
            fn serialize<__S: ::konverge::__private::serde::Serializer>(
                &self,
                serializer: __S,
            ) -> ::core::result::Result<__S::Ok, __S::Error> {
                use ::konverge::__private::{kube::Resource, serde::ser::SerializeStruct};
                let mut object = serializer.serialize_struct(stringify!(#root), 4 #status_count)?;
                object.serialize_field("apiVersion", &<Self as Resource>::api_version(&()))?;
                object.serialize_field("kind", &<Self as Resource>::kind(&()))?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                #status_field_serialized
                object.end()
            }
        }

        #[automatically_derived]
        impl ::konverge::__private::kube::core::object::HasSpec for #root {
            type Spec = #spec;
            fn spec(&self) -> &#spec {
                &self.spec
            }
            fn spec_mut(&mut self) -> &mut #spec {
                &mut self.spec
            }
        }
    }
}

/// The names of the kind in the API.
fn resource(settings: &Settings, root: &Ident) -> TokenStream {
    let Settings { group, version, kind, .. } = settings;
    let (api_version, plural) = (format!("{group}/{version}"), plural(settings));
    let scope = if settings.namespaced { quote!(NamespaceResourceScope) } else { quote!(ClusterResourceScope) };
    let has_status = settings.status.as_ref().map(|status| {
        quote! {
            #[automatically_derived]
            impl ::konverge::__private::kube::core::object::HasStatus for #root {
                type Status = #status;
                fn status(&self) -> ::core::option::Option<&#status> {
                    self.status.as_ref()
                }
                fn status_mut(&mut self) -> &mut ::core::option::Option<#status> {
                    &mut self.status
                }
            }
        }
    });
    quote! {
        #[automatically_derived]
        impl ::konverge::__private::kube::Resource for #root {
            type DynamicType = ();
            type Scope = ::konverge::__private::kube::core::#scope;
            fn group(_: &()) -> ::std::borrow::Cow<'_, str> {
                #group.into()
            }
            fn version(_: &()) -> ::std::borrow::Cow<'_, str> {
                #version.into()
            }
            fn kind(_: &()) -> ::std::borrow::Cow<'_, str> {
                #kind.into()
            }
            fn api_version(_: &()) -> ::std::borrow::Cow<'_, str> {
                #api_version.into()
            }
            fn plural(_: &()) -> ::std::borrow::Cow<'_, str> {
                #plural.into()
            }
            fn meta(&self) -> &::konverge::__private::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ::konverge::__private::ObjectMeta {
                &mut self.metadata
            }
        }
        #has_status
    }
}

/// The schema of the whole object.
fn json_schema(input: &DeriveInput, settings: &Settings, root: &Ident) -> TokenStream {
    let spec = &input.ident;
    let name = root.to_string();
    let description = settings.doc.clone().unwrap_or_else(|| doc_comment(&input.attrs));
    let status = match &settings.status {
        Some(status) => quote!(::core::option::Option::Some(
            generator.subschema_for::<::core::option::Option<#status>>()
        )),
        None => quote!(::core::option::Option::None),
    };
    let spec_required = !settings.default;
    let rules = rule::with_names(settings.validations.iter().map(rule::validation));
    quote! {
        #[automatically_derived]
        impl ::konverge::__private::schemars::JsonSchema for #root {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                #name.into()
            }
            fn json_schema(
                generator: &mut ::konverge::__private::schemars::SchemaGenerator,
            ) -> ::konverge::__private::schemars::Schema {
                let (spec, status) = (generator.subschema_for::<#spec>(), #status);
                let schema = &mut ::konverge::__private::object_schema(#description, spec, #spec_required, status);
                #rules
                ::core::mem::take(schema)
            }
        }
    }
}

/// The user's settings of the CRD, as data.
fn definition(settings: &Settings, root: &Ident) -> TokenStream {
    let Settings { group, version, kind, namespaced, short_names, categories, selectable, .. } = settings;
    let (plural, singular) = (plural(settings), singular(settings));
    let name = format!("{plural}.{group}");
    let (served, storage, status) = (!settings.not_served, !settings.not_stored, settings.status.is_some());
    let columns = settings.columns.iter().map(column);
    let scale = option(settings.scale.as_ref().map(scale));
    let deprecated = option(settings.deprecated.as_ref().map(|warning| quote!(#warning)));
    let pairs = |pairs: &[(String, String)]| {
        let pairs = pairs.iter().map(|(key, value)| quote!((#key, #value)));
        quote!(&[#(#pairs),*])
    };
    let (annotations, labels) = (pairs(&settings.annotations), pairs(&settings.labels));
    let schema = match settings.schema {
        SchemaMode::Disabled => quote!(::core::option::Option::None),
        _ => quote!(::core::option::Option::Some(::konverge::__private::structural_schema::<Self>())),
    };
    quote! {
        #[automatically_derived]
        impl ::konverge::Kind for #root {
            fn definition() -> ::core::option::Option<::konverge::__private::CustomResourceDefinition> {
                ::core::option::Option::Some(<Self as ::konverge::__private::kube::CustomResourceExt>::crd())
            }
        }
        #[automatically_derived]
        impl ::konverge::__private::kube::CustomResourceExt for #root {
            fn crd() -> ::konverge::__private::CustomResourceDefinition {
                ::konverge::__private::Definition {
                    group: #group,
                    version: #version,
                    kind: #kind,
                    plural: #plural,
                    singular: #singular,
                    namespaced: #namespaced,
                    short_names: &[#(#short_names),*],
                    categories: &[#(#categories),*],
                    columns: &[#(#columns),*],
                    selectable: &[#(#selectable),*],
                    scale: #scale,
                    status: #status,
                    served: #served,
                    storage: #storage,
                    deprecated: #deprecated,
                    annotations: #annotations,
                    labels: #labels,
                }
                .crd(#schema)
            }
            fn crd_name() -> &'static str {
                #name
            }
            fn api_resource() -> ::konverge::__private::kube::core::ApiResource {
                ::konverge::__private::kube::core::ApiResource::erase::<Self>(&())
            }
            fn shortnames() -> &'static [&'static str] {
                &[#(#short_names),*]
            }
        }
    }
}

fn column(column: &Column) -> TokenStream {
    let Column { name, type_, json_path, description, format, priority } = column;
    let (description, format) = (option(description.as_ref()), option(format.as_ref()));
    let priority = option(priority.as_ref());
    quote! {
        ::konverge::__private::Column {
            name: #name,
            type_: #type_,
            json_path: #json_path,
            description: #description,
            format: #format,
            priority: #priority,
        }
    }
}

fn scale(scale: &Scale) -> TokenStream {
    let Scale { spec_replicas_path, status_replicas_path, label_selector_path } = scale;
    let label_selector_path = option(label_selector_path.as_ref());
    quote! {
        ::konverge::__private::Scale {
            spec_replicas_path: #spec_replicas_path,
            status_replicas_path: #status_replicas_path,
            label_selector_path: #label_selector_path,
        }
    }
}

fn option(value: Option<impl quote::ToTokens>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

fn singular(settings: &Settings) -> String {
    settings.singular.clone().unwrap_or_else(|| settings.kind.to_ascii_lowercase())
}

/// The plural, formed as kube's derive does, so that the CRD has the same name with either derive.
fn plural(settings: &Settings) -> String {
    if let Some(plural) = &settings.plural {
        return plural.clone();
    }
    let word = singular(settings);
    if ["s", "x", "z", "ch", "sh"].iter().any(|end| word.ends_with(end)) {
        return format!("{word}es");
    }
    match word.strip_suffix('y') {
        Some(stem) if !stem.is_empty() && !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ => format!("{word}s"),
    }
}

/// The doc comment of an item as running text.
fn doc_comment(attributes: &[Attribute]) -> String {
    let line = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    };
    attributes.iter().filter_map(line).collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::derive;

    /// Checks the error message for `source`; an empty one means that it compiles.
    #[track_caller]
    fn check(source: &str, expected: &str) {
        let message = match derive(syn::parse_str(source).expect("the case is Rust")) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        assert_eq!(message, expected, "{source}");
    }

    /// The same for one setting besides group, version and kind.
    #[track_caller]
    fn check_setting(setting: &str, expected: &str) {
        let named = r#"group = "example.com", version = "v1", kind = "WebApp""#;
        check(&format!("#[kube({named}, {setting})] struct WebAppSpec {{}}"), expected);
    }

    #[test]
    fn mistakes_say_what_to_do() {
        check("struct A {}", "the `group` of the kind is missing: add `#[kube(group = \"example.com\")]`");
        check(
            r#"#[kube(group = "a.com", kind = "A")] struct A {}"#,
            "the `version` of the kind is missing: add `#[kube(version = \"v1\")]`",
        );
        check(
            r#"#[kube(group = "a.com", version = "v1")] struct A {}"#,
            "the `kind` of the kind is missing: add `#[kube(kind = \"WebApp\")]`",
        );
        check(
            r#"#[kube(group = "a.com", version = "v1", kind = "A")] struct A {}"#,
            "`A` is the name of the struct that is generated for this kind: rename the spec to `ASpec`, or the generated \
             struct with `#[kube(root = \"..\")]`",
        );
        check(
            r#"#[kube(group = "a.com", version = "v1", kind = "A")] struct ASpec<T> { t: T }"#,
            "a kind has one schema, so its spec cannot be generic",
        );
        check(
            r#"#[kube(group = "a.com", version = "v1", kind = "A")] union ASpec { a: u8 }"#,
            "a union has no JSON form: derive `CustomResource` on a struct",
        );
    }

    #[test]
    fn wrong_settings_name_the_right_ones() {
        check_setting("namespaced", "");
        check_setting(
            "shortnames = \"a\"",
            "unknown setting `shortnames`; `kube` takes group, version, kind, plural, singular, root, namespaced, \
             default, doc, status, derive, attr, schema, shortname, category, printcolumn, selectable, scale, \
             validation, annotation, label, served, storage, deprecated",
        );
        check_setting("crates(kube = \"k\")", "`crates` is not needed: konverge's derive knows where its crates are");
        check_setting("shortname = 1", "expected string literal");
        check_setting("schema = \"none\"", "`schema` is \"derived\", \"manual\" or \"disabled\"");
        check_setting("served = 1", "expected `true` or `false`");
        check_setting("label(\"a\")", "expected a key and a value: `(\"key\", \"value\")`");
        check_setting(
            "attr = \"serde(default)\"",
            "konverge writes this attribute itself; for a derive write `#[kube(derive = \"PartialEq\")]`",
        );
        check_setting(r#"printcolumn(name = "A", type_ = "string")"#, "`printcolumn` needs `json_path`");
        check_setting(
            r#"printcolumn(title = "A")"#,
            "unknown `title`; `printcolumn` takes name, type_, json_path, description, format, priority",
        );
        check_setting("printcolumn = \"{\"", "EOF while parsing an object at line 1 column 1");
        check_setting(r#"scale(spec_replicas_path = ".spec.a")"#, "`scale` needs `status_replicas_path`");
    }
}
