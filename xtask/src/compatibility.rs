//! In: what Kubernetes serves, by its published discovery documents, and what our server answers to the same requests. Out:
//! `docs/compatibility.md`. Whether an endpoint exists is found out by asking it, not by reading our own tables. What no
//! program can see, such as a difference in behaviour, comes from notes that are kept by hand.

mod flags;
mod notes;
mod original;
mod probe;
mod validation;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use clap::Args;

use konverge_apiserver::AdmissionPlugins;

use crate::source::{Release, is_stable};
use flags::Effect;
use notes::Notes;
use original::Endpoint;
use probe::Probe;

const PAGE: &str = "docs/compatibility.md";

/// Writes docs/compatibility.md: what of Kubernetes this server has, what is different and what is missing
#[derive(Args, Debug)]
pub(crate) struct Compatibility {
    #[command(flatten)]
    release: Release,
    /// Write nothing; fail when the committed page differs from what would be written
    #[arg(long)]
    check: bool,
}

/// Writes the page, or compares it with the committed one.
pub(crate) fn run(options: &Compatibility, root: &Path) -> Result<(), String> {
    let source = options.release.source()?;
    let notes = Notes::read(root)?;
    let endpoints = original::endpoints(&source.core()?, &source.groups()?)?;
    let mut page = head(&options.release.version);
    page.push_str(&kinds(&endpoints, &notes)?);
    page.push_str(&validation::section(root)?);
    page.push_str(&plugins(&notes));
    page.push_str(&flags(root, &notes)?);
    page.push_str(&notes.differences());
    notes.all_used()?;

    let file = root.join(PAGE);
    if !options.check {
        return std::fs::write(&file, &page).map_err(|error| format!("{PAGE}: {error}"));
    }
    match std::fs::read_to_string(&file) {
        Ok(committed) if committed == page => Ok(()),
        _ => Err(format!("{PAGE} is out of date; run `cargo xtask compatibility`")),
    }
}

fn head(version: &str) -> String {
    format!(
        "# Compatibility with Kubernetes {version}\n\n\
         Written by `cargo xtask compatibility`; do not edit. The published discovery documents of the release say what\n\
         Kubernetes serves with its defaults, and every endpoint and verb in them was asked for on this server. Remarks and the\n\
         last section are kept by hand, in `xtask/data/compatibility.notes`.\n"
    )
}

/// Every kind with its verbs and subresources.
fn kinds(endpoints: &[Endpoint], notes: &Notes) -> Result<String, String> {
    let mut probe = Probe::start()?;
    let (mut served, mut missing) = (0, 0);
    let mut sections: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut off: Vec<String> = Vec::new();
    for endpoint in endpoints {
        let version = (endpoint.group.clone(), endpoint.version.clone());
        if !is_stable(&endpoint.version) {
            let name = format!("`{}/{}`", endpoint.group, endpoint.version);
            if !off.contains(&name) {
                off.push(name);
            }
            continue;
        }
        let (there, absent): (Vec<&String>, Vec<&String>) =
            endpoint.verbs.iter().partition(|verb| probe.is_served(endpoint, verb));
        served += there.len();
        missing += absent.len();
        let list = |verbs: &[&String]| verbs.iter().map(|verb| verb.as_str()).collect::<Vec<_>>().join(", ");
        let state = match (there.is_empty(), absent.is_empty()) {
            (_, true) => "as in Kubernetes".to_owned(),
            (true, false) => "**missing**".to_owned(),
            (false, false) => format!("**without {}**", list(&absent)),
        };
        let state = match notes.endpoint(&endpoint.name_with_group()) {
            None => state,
            Some(note) if absent.is_empty() => format!("different: {note}"),
            Some(note) => format!("{state}: {note}"),
        };
        let verbs = list(&endpoint.verbs.iter().collect::<Vec<_>>());
        sections.entry(version).or_default().push(format!("| {} | {verbs} | {state} |\n", endpoint.name()));
    }
    let mut text = format!(
        "\n## Kinds, verbs and subresources\n\nOf the {} endpoints and verbs that Kubernetes serves by default, {served} are served \
         and {missing} are not.\n",
        served + missing
    );
    for ((group, version), rows) in &sections {
        let group = if group.is_empty() { "core" } else { group };
        let _ =
            write!(text, "\n### {group}/{version}\n\n| resource | verbs | here |\n|---|---|---|\n{}", rows.concat());
    }
    let _ = write!(
        text,
        "\nVersions that Kubernetes serves only when asked to, and this server never: {}.\n",
        off.join(", ")
    );
    Ok(text)
}

fn plugins(notes: &Notes) -> String {
    let mut text = "\n## Admission plugins\n\nIn the order in which they run.\n\n\
                    | plugin | on by default in Kubernetes | here |\n|---|---|---|\n"
        .to_owned();
    let (original, ours) = (AdmissionPlugins::kubernetes(), AdmissionPlugins::default());
    let missing: Vec<&str> = AdmissionPlugins::missing().collect();
    for name in AdmissionPlugins::known() {
        let on = original.is_enabled(name);
        let state = match (missing.contains(&name), on, ours.is_enabled(name)) {
            (true, ..) => "**missing**",
            (false, true, false) => "as in Kubernetes, but only on where controllers run",
            _ => "as in Kubernetes",
        };
        let note = notes.plugin(name).map_or(String::new(), |note| format!(": {note}"));
        let _ = writeln!(text, "| {name} | {} | {state}{note} |", if on { "yes" } else { "no" });
    }
    text
}

fn flags(root: &Path, notes: &Notes) -> Result<String, String> {
    let flags = flags::read(root)?;
    let mut text =
        "\n## Flags under the name `kube-apiserver`\n\nEvery flag of the release is known, and an unknown one is \
                    refused. These are obeyed:\n\n"
            .to_owned();
    let named = |effect: Effect| flags.iter().filter(move |flag| flag.effect == effect).map(|flag| flag.name.as_str());
    for name in named(Effect::Obeyed) {
        let note = notes.flag(name).map_or(String::new(), |note| format!(": {note}"));
        let _ = writeln!(text, "- `--{name}`{note}");
    }
    let list = |effect| named(effect).map(|name| format!("`--{name}`")).collect::<Vec<String>>();
    let (refused, others) = (list(Effect::Refused), list(Effect::Nothing));
    let _ = write!(
        text,
        "\nThese are refused, because a server without them would decide otherwise: {}.\n\nThese {} have no effect, which is \
         printed for each that is given: {}.\n",
        refused.join(", "),
        others.len(),
        others.join(", ")
    );
    Ok(text)
}
