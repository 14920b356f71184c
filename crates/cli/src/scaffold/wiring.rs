//! The file `src/kinds.rs` of a project: its kinds as modules, and how they are wired. In: a project. Out: the text, as rustfmt would leave
//! it. Pure. It is the only source file that a further kind changes besides new ones.

use std::collections::BTreeSet;

use super::files::conversion_module;
use super::layout::{chain, signature};
use super::project_file::{ProjectFile, Resource};

/// Where it is.
pub(super) const PATH: &str = "src/kinds.rs";

const HEAD: &str = "\
//! The kinds of this operator, and how they are wired. `konverge create api` and `konverge create webhook` add to this file; what
//! you change in it stays.
";

/// The text of the file.
pub(super) fn text(project: &ProjectFile) -> String {
    let Some((first, others)) = project.resources.split_first() else { return HEAD.to_owned() };
    let mut text = format!("{HEAD}\nuse konverge::prelude::*;\n");
    for resource in &project.resources {
        text += &module(project, resource);
    }
    text += "\n/// The operator with all its controllers.\n";
    text += &signature("pub fn operator", "", &format!("Operator<{}>", type_of(first)));
    text.push('\n');
    let others = others.iter().map(|resource| format!(".and({}())", resource.module)).collect();
    text += &chain(&format!("Operator::from({}())", first.module), others);
    text += "}\n";
    for resource in &project.resources {
        text += &function(resource);
    }
    text
}

/// The module of a kind. Paragraphs keep rustfmt from ordering lines anew.
fn module(project: &ProjectFile, resource: &Resource) -> String {
    let (kind, group, hub) = (&resource.kind, project.full_group(&resource.group), resource.hub());
    let mut paragraphs = vec![format!(
        "//! {kind} of the group {group}. Names without a version are those of {hub}, which is reconciled and stored."
    )];
    // rustfmt orders modules by their letters, v10 before v2.
    let versions: BTreeSet<&String> = resource.versions.iter().collect();
    paragraphs.push(lines(versions.iter().map(|version| format!("pub mod {version};"))));
    paragraphs.extend(resource.conversions.iter().map(|one| format!("mod {};", conversion_module(one))));
    let functions = [("controller", resource.controller), ("webhook", !resource.webhooks.is_none())];
    let functions = functions.iter().filter(|(_, there)| *there).map(|(name, _)| format!("pub mod {name};"));
    paragraphs.push(lines(functions));
    paragraphs.push(format!("pub use {hub}::*;"));
    let paragraphs = paragraphs.into_iter().filter(|paragraph| !paragraph.is_empty());
    let body = paragraphs.map(|paragraph| paragraph.replace('\n', "\n    ")).collect::<Vec<_>>().join("\n\n    ");
    format!("\npub mod {} {{\n    {body}\n}}\n", resource.module)
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

/// The function with all that belongs to a kind.
fn function(resource: &Resource) -> String {
    let Resource { kind, module, webhooks, .. } = resource;
    let (head, what) = match resource.controller {
        true => (format!("{module}::controller::controller()"), "The controller of"),
        false => ("Controller::new()".to_owned(), "Nothing is done about objects of"),
    };
    let mut links: Vec<String> = Vec::new();
    if !resource.controller {
        links.push(".reconcile(|_| async { Ok(Action::await_change()) })".into());
    }
    links.extend(resource.spokes().map(|version| format!(".version::<{module}::{version}::{kind}>()")));
    if webhooks.defaulting {
        links.push(format!(".default_with({module}::webhook::defaults)"));
    }
    if webhooks.validation {
        links.push(format!(".validate({module}::webhook::validate)"));
    }
    let more = match (resource.controller, links.is_empty()) {
        (true, true) => "",
        (true, false) => " with what surrounds it",
        (false, _) => "; their CRD belongs to this operator",
    };
    let signature = signature(&format!("pub fn {module}"), "", &format!("Controller<{}>", type_of(resource)));
    let body = chain(&head, links);
    format!("\n/// {what} {kind}{more}.\n{signature}\n{body}}}\n")
}

fn type_of(resource: &Resource) -> String {
    format!("{}::{}", resource.module, resource.kind)
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::{project, resource};
    use super::super::project_file::Webhooks;
    use super::*;

    #[track_caller]
    fn check(resources: Vec<Resource>, expect: &str) {
        let text = text(&ProjectFile { resources, ..project() });
        assert_eq!(text.strip_prefix(HEAD), Some(expect), "{text}");
    }

    #[test]
    fn one_kind() {
        check(vec![], "");
        check(
            vec![resource("Shop")],
            "
use konverge::prelude::*;

pub mod shop {
    //! Shop of the group shops.example.com. Names without a version are those of v1alpha1, which is reconciled and stored.

    pub mod v1alpha1;

    pub mod controller;

    pub use v1alpha1::*;
}

/// The operator with all its controllers.
pub fn operator() -> Operator<shop::Shop> {
    Operator::from(shop())
}

/// The controller of Shop.
pub fn shop() -> Controller<shop::Shop> {
    shop::controller::controller()
}
",
        );
    }

    #[test]
    fn all_that_a_kind_may_have() {
        let mut shop = resource("Shop");
        shop.add_version("v1");
        shop.webhooks = Webhooks { defaulting: true, validation: true };
        let till = Resource { controller: false, ..resource("Till") };
        check(
            vec![shop, till],
            "
use konverge::prelude::*;

pub mod shop {
    //! Shop of the group shops.example.com. Names without a version are those of v1, which is reconciled and stored.

    pub mod v1;
    pub mod v1alpha1;

    mod v1alpha1_v1;

    pub mod controller;
    pub mod webhook;

    pub use v1::*;
}

pub mod till {
    //! Till of the group shops.example.com. Names without a version are those of v1alpha1, which is reconciled and stored.

    pub mod v1alpha1;

    pub use v1alpha1::*;
}

/// The operator with all its controllers.
pub fn operator() -> Operator<shop::Shop> {
    Operator::from(shop()).and(till())
}

/// The controller of Shop with what surrounds it.
pub fn shop() -> Controller<shop::Shop> {
    shop::controller::controller()
        .version::<shop::v1alpha1::Shop>()
        .default_with(shop::webhook::defaults)
        .validate(shop::webhook::validate)
}

/// Nothing is done about objects of Till; their CRD belongs to this operator.
pub fn till() -> Controller<till::Till> {
    Controller::new().reconcile(|_| async { Ok(Action::await_change()) })
}
",
        );
    }
}
