//! `konverge validate`: objects judged without a cluster. In: manifests and CRDs. Out: what is wrong with each object, as the API
//! server would say it; exit code 1 if something is, 2 if something cannot be read.

use std::process::ExitCode;

use konverge_apiserver::{Checked, CrdRegistry};
use konverge_core::{ErrorChain, Status};
use serde_json::{Value, json};

use crate::args::{OutputFormat, ValidateArgs};
use crate::documents::{Document, read_all};

/// The verdict about one object.
pub(crate) struct Judged {
    pub document: Document,
    pub verdict: Result<Checked, Status>,
}

/// `konverge validate`
pub(crate) fn validate(args: &ValidateArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let judged = match runtime {
        Ok(runtime) => runtime.block_on(judge(args)),
        Err(error) => Err(error.to_string()),
    };
    let judged = match judged {
        Ok(judged) => judged,
        Err(why) => {
            eprintln!("error: {why}");
            return ExitCode::from(2);
        }
    };
    match args.output {
        OutputFormat::Text => print_text(&judged),
        OutputFormat::Json => println!("{:#}", json_of(&judged)),
        OutputFormat::Yaml => print_yaml(&judged),
    }
    ExitCode::from(u8::from(judged.iter().any(|one| one.verdict.is_err())))
}

async fn judge(args: &ValidateArgs) -> Result<Vec<Judged>, String> {
    let read = |paths: &[_]| read_all(paths).map_err(|error| ErrorChain(&error).to_string());
    let (definitions, objects) = (read(&args.crds)?, read(&args.filename)?);
    if objects.is_empty() {
        return Err("there are no objects to validate in what -f names".to_owned());
    }
    let mut judged = judge_all(&definitions, objects).await?;
    for status in judged.iter_mut().filter_map(|one| one.verdict.as_mut().err()) {
        if let Some((unknown, _)) = status.message.split_once("; ").filter(|_| status.code == 404) {
            status.message = format!("{unknown}; name the file or the directory of its CRD with --crds");
        }
    }
    Ok(judged)
}

/// Judges objects by CRDs, and by those among the objects.
pub(crate) async fn judge_all(definitions: &[Document], objects: Vec<Document>) -> Result<Vec<Judged>, String> {
    let registry = CrdRegistry::new().await.map_err(|error| ErrorChain(&error).to_string())?;
    for document in definitions.iter().filter(|document| is_definition(&document.object)) {
        let registered = registry.register(&document.object).await;
        registered
            .map_err(|status| format!("{} is no CRD that a server takes: {}", document.source, status.message))?;
    }
    // Those among the objects are judged like the others, and the others by them.
    for document in objects.iter().filter(|document| is_definition(&document.object)) {
        let _judged_below = registry.register(&document.object).await;
    }
    let mut judged = Vec::with_capacity(objects.len());
    for document in objects {
        let verdict = match is_definition(&document.object) {
            true => registry.register(&document.object).await.map(|warnings| checked(&document.object, warnings)),
            false => registry.check(&document.object).await,
        };
        judged.push(Judged { document, verdict });
    }
    Ok(judged)
}

fn checked(object: &Value, warnings: Vec<String>) -> Checked {
    Checked::new(object.clone(), warnings)
}

fn is_definition(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition"
        && object["apiVersion"].as_str().is_some_and(|version| version.starts_with("apiextensions.k8s.io/"))
}

impl Judged {
    /// `Shop default/main`
    pub(crate) fn called(&self) -> String {
        let object = &self.document.object;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (metadata, kind) = (&object["metadata"], text(&object["kind"]));
        let name = match text(&metadata["name"]) {
            name if name.is_empty() => text(&metadata["generateName"]),
            name => name,
        };
        match text(&metadata["namespace"]) {
            namespace if namespace.is_empty() => format!("{kind} {name}"),
            namespace => format!("{kind} {namespace}/{name}"),
        }
    }
}

fn print_text(judged: &[Judged]) {
    for one in judged {
        let (source, called) = (&one.document.source, one.called());
        match &one.verdict {
            Ok(checked) => {
                println!("{source}: {called} is valid");
                checked.warnings.iter().for_each(|warning| println!("  warning: {warning}"));
            }
            Err(status) => {
                println!("{source}: {called} is not valid");
                let causes = causes(status);
                causes.iter().for_each(|(field, message)| println!("  {field}: {message}"));
                if causes.is_empty() {
                    println!("  {}", status.message);
                }
            }
        }
    }
    let bad = judged.iter().filter(|one| one.verdict.is_err()).count();
    println!("{} valid, {bad} not valid", judged.len() - bad);
}

fn print_yaml(judged: &[Judged]) {
    for one in judged {
        match &one.verdict {
            Ok(checked) => println!("---\n{}", serde_saphyr::to_string(&checked.object).unwrap_or_default().trim_end()),
            Err(status) => eprintln!("{}: {} is not valid: {}", one.document.source, one.called(), status.message),
        }
    }
}

fn json_of(judged: &[Judged]) -> Value {
    let object = |one: &Judged| {
        let object = &one.document.object;
        let mut shown = json!({
            "source": one.document.source, "apiVersion": object["apiVersion"], "kind": object["kind"],
            "namespace": object["metadata"]["namespace"], "name": object["metadata"]["name"],
            "valid": one.verdict.is_ok(),
        });
        match &one.verdict {
            Ok(checked) => {
                shown["warnings"] = json!(checked.warnings);
                shown["object"] = checked.object.clone();
            }
            Err(status) => shown["status"] = json!(status),
        }
        shown
    };
    json!({
        "valid": judged.iter().all(|one| one.verdict.is_ok()),
        "objects": judged.iter().map(object).collect::<Vec<_>>(),
    })
}

/// The fields that are wrong, each with what is wrong with it.
pub(crate) fn causes(status: &Status) -> Vec<(String, String)> {
    let causes = status.details.iter().flat_map(|details| &details.causes).filter(|cause| !cause.field.is_empty());
    causes.map(|cause| (cause.field.clone(), cause.message.clone())).collect()
}
