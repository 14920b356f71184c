//! `konverge bundle subscription`: what an administrator applies so that OLM installs the operator and keeps it up to date. In: a bundle on disk, and
//! where it goes. Out: OperatorGroup and Subscription, and a CatalogSource if the image of a catalog is given.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use konverge_core::{ErrorChain, NameRule, check_name};
use serde_json::{Value, json};

use super::files::{BUNDLE, CHANNELS_KEY, DEFAULT_CHANNEL_KEY, PACKAGE_KEY};
use super::validate::{LoadError, LoadedBundle};
use crate::description::text;
use crate::yaml::{Reader, document};

pub(super) const EXAMPLES: &str = "\
Without --watch-namespace the operator watches all namespaces.

Examples:
  konverge bundle subscription | kubectl apply -f -
  konverge bundle subscription --namespace default --watch-namespace default --channel alpha
  konverge bundle subscription --catalog-image ghcr.io/acme/catalog:latest --approval Manual";

/// Arguments of `konverge bundle subscription`.
#[derive(Debug, clap::Args)]
pub(super) struct SubscriptionArgs {
    /// The bundle
    #[arg(value_name = "DIR", default_value = BUNDLE)]
    directory: PathBuf,
    /// The namespace to install into, which has to be there [default: the one that the bundle suggests]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// The namespaces that the operator watches [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    watch_namespace: Vec<String>,
    /// The channel [default: the default one of the bundle]
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Who approves upgrades
    #[arg(long, value_enum, default_value_t = Approval::Automatic)]
    approval: Approval,
    /// Begin with the newest version of the channel, instead of that of the bundle
    #[arg(long)]
    newest: bool,
    /// The CatalogSource that has the package
    #[arg(long, value_name = "NAME", default_value = "operatorhubio-catalog", conflicts_with = "catalog_image")]
    source: String,
    /// The namespace of the CatalogSource
    #[arg(long, value_name = "NAMESPACE", default_value = "olm")]
    source_namespace: String,
    /// Make a CatalogSource of this image of a catalog
    #[arg(long, value_name = "IMAGE")]
    catalog_image: Option<String>,
}

/// Who approves upgrades.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum Approval {
    Automatic,
    Manual,
}

/// Why there is no Subscription.
#[derive(Debug, thiserror::Error)]
enum SubscriptionError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("the bundle is in no channel {0}; it is in {1}")]
    Channel(String, String),
    #[error("{0:?} cannot be the name of a namespace: {1}")]
    Namespace(String, String),
    #[error("the operator cannot be installed for {wanted}: its install modes allow {allowed} only")]
    InstallMode { wanted: String, allowed: String },
}

/// `konverge bundle subscription`
pub(super) fn subscription(args: &SubscriptionArgs) -> ExitCode {
    let made = LoadedBundle::load(&args.directory).map_err(Into::into).and_then(|bundle| manifests(args, &bundle));
    match made {
        Ok(manifests) => {
            let texts: Vec<String> = manifests.iter().map(|object| document(object, Reader::Kubernetes)).collect();
            print!("{}", texts.join("---\n"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {}", ErrorChain(&error));
            ExitCode::FAILURE
        }
    }
}

fn manifests(args: &SubscriptionArgs, bundle: &LoadedBundle) -> Result<Vec<Value>, SubscriptionError> {
    let csv = bundle.csv()?;
    let package = text(&bundle.annotations[PACKAGE_KEY]);
    let channels = text(&bundle.annotations[CHANNELS_KEY]);
    let first = channels.split(',').next().unwrap_or_default().trim().to_owned();
    let default = bundle.annotations[DEFAULT_CHANNEL_KEY].as_str().map_or(first, ToOwned::to_owned);
    let channel = args.channel.clone().unwrap_or(default);
    if !channels.split(',').any(|known| known.trim() == channel) {
        return Err(SubscriptionError::Channel(channel, channels));
    }
    let suggested = text(&csv["metadata"]["annotations"]["operatorframework.io/suggested-namespace"]);
    let namespace = args.namespace.clone().unwrap_or(suggested);
    for name in std::iter::once(&namespace).chain(&args.watch_namespace) {
        if let Some(why) = check_name(name, NameRule::Label, false).into_iter().next() {
            return Err(SubscriptionError::Namespace(name.clone(), why));
        }
    }
    check_install_mode(csv, &namespace, &args.watch_namespace)?;
    let group = match args.watch_namespace.as_slice() {
        [] => json!({}),
        watched => json!({"targetNamespaces": watched}),
    };
    let metadata = |name: String, namespace: &str| json!({"name": name, "namespace": namespace});
    let mut made = Vec::new();
    let mut source = args.source.clone();
    if let Some(image) = &args.catalog_image {
        source = format!("{package}-catalog");
        made.push(json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
            "metadata": metadata(source.clone(), &args.source_namespace),
            "spec": {"sourceType": "grpc", "image": image, "displayName": csv["spec"]["displayName"]},
        }));
    }
    made.push(json!({
        "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
        "metadata": metadata(format!("{package}-group"), &namespace), "spec": group,
    }));
    let approval = args.approval.to_possible_value().map(|value| value.get_name().to_owned());
    let mut subscription = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
        "metadata": metadata(format!("{package}-subscription"), &namespace),
        "spec": {
            "name": package, "channel": channel, "installPlanApproval": approval,
            "source": source, "sourceNamespace": args.source_namespace,
        },
    });
    if !args.newest {
        subscription["spec"]["startingCSV"] = csv["metadata"]["name"].clone();
    }
    made.push(subscription);
    Ok(made)
}

/// Whether the operator can watch these namespaces from this one.
fn check_install_mode(csv: &Value, namespace: &str, watched: &[String]) -> Result<(), SubscriptionError> {
    let modes = csv["spec"]["installModes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let supported = modes.iter().filter(|mode| mode["supported"] == true).map(|mode| text(&mode["type"]));
    let supported: Vec<String> = supported.collect();
    let (mode, wanted) = match watched {
        [] => ("AllNamespaces", "all namespaces".to_owned()),
        [only] if only == namespace => ("OwnNamespace", format!("its own namespace {only}")),
        [only] => ("SingleNamespace", format!("the namespace {only}")),
        several => ("MultiNamespace", format!("the namespaces {}", several.join(", "))),
    };
    match supported.iter().any(|known| known == mode) {
        true => Ok(()),
        false => Err(SubscriptionError::InstallMode { wanted, allowed: supported.join(", ") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(watched: &[&str], expect: &str) {
        let mode = |kind: &str, supported: bool| json!({"type": kind, "supported": supported});
        let csv = json!({"spec": {"installModes": [mode("OwnNamespace", true), mode("AllNamespaces", false), mode("MultiNamespace", true)]}});
        let watched: Vec<String> = watched.iter().map(|name| (*name).to_owned()).collect();
        let found =
            check_install_mode(&csv, "home", &watched).map_or_else(|error| error.to_string(), |()| "good".to_owned());
        assert_eq!(found, expect);
    }

    #[test]
    fn namespaces_have_to_be_allowed() {
        let only = "its install modes allow OwnNamespace, MultiNamespace only";
        check(&["home"], "good");
        check(&["a", "b"], "good");
        check(&[], &format!("the operator cannot be installed for all namespaces: {only}"));
        check(&["a"], &format!("the operator cannot be installed for the namespace a: {only}"));
    }
}
