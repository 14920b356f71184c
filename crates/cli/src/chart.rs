//! A Helm chart of an operator. In: its description. Out: the files of the chart. The templates are made of the same manifests that kubectl gets,
//! with places that values fill: `templates` says which, `values` lists the values with their comments and schema.

mod templates;
mod values;

use serde_json::json;

use crate::description::Description;
use crate::generated_files::{GeneratedFiles, MARK, YAML_HEADER};
use crate::yaml::{Reader, document};

/// The folder of all charts.
const CHARTS: &str = "charts";

/// The oldest release that has all fields: `unhealthyPodEvictionPolicy` of a PodDisruptionBudget is from 1.26.
const OLDEST_KUBERNETES: &str = ">=1.26.0-0";

/// The files of the chart.
pub(crate) fn files(operator: &Description) -> GeneratedFiles {
    let name = &operator.name;
    let folder = format!("{CHARTS}/{name}");
    let mut files = GeneratedFiles::default();
    files.own(&folder);
    let summary = if operator.summary.is_empty() { format!("The operator {name}") } else { operator.summary.clone() };
    let chart = json!({
        "apiVersion": "v2", "name": name, "type": "application", "description": summary,
        "version": operator.version, "appVersion": operator.version, "kubeVersion": OLDEST_KUBERNETES,
    });
    files.add(format!("{folder}/Chart.yaml"), format!("{YAML_HEADER}{}", document(&chart, Reader::Kubernetes)));
    files.add(format!("{folder}/values.yaml"), format!("{YAML_HEADER}{}", values::text(operator)));
    let schema = serde_json::to_string_pretty(&values::schema(operator)).expect("a value is JSON");
    files.add(format!("{folder}/values.schema.json"), format!("{schema}\n"));
    for (file, text) in templates::templates(operator) {
        files.add(format!("{folder}/templates/{file}"), text);
    }
    files.add(format!("{folder}/templates/_helpers.tpl"), helpers(operator));
    files.add(format!("{folder}/templates/NOTES.txt"), notes(operator));
    files
}

/// The first line of a template of ours, which Helm does not render.
fn template_header() -> String {
    format!(
        "{{{{- /* {MARK}; `konverge generate chart` replaces this file. Remove this line to keep changes of yours. */ -}}}}\n"
    )
}

fn helpers(operator: &Description) -> String {
    let name = &operator.name;
    let header = template_header();
    format!(
        r#"{header}{{{{- define "{name}.labels" -}}}}
app.kubernetes.io/name: {name}
app.kubernetes.io/instance: {{{{ .Release.Name | quote }}}}
app.kubernetes.io/managed-by: {{{{ .Release.Service }}}}
app.kubernetes.io/version: {{{{ .Chart.AppVersion | replace "+" "_" | quote }}}}
helm.sh/chart: {{{{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}}}
{{{{- end }}}}

{{{{- define "{name}.image" -}}}}
{{{{- with .Values.image -}}}}
{{{{- if .digest -}}}}
{{{{ .repository }}}}@{{{{ .digest }}}}
{{{{- else -}}}}
{{{{ .repository }}}}:{{{{ .tag | default ($.Chart.AppVersion | replace "+" "-") }}}}
{{{{- end -}}}}
{{{{- end -}}}}
{{{{- end }}}}
"#
    )
}

fn notes(operator: &Description) -> String {
    let name = &operator.name;
    let first = operator.kinds().first().map(|kind| format!("{}.{}", kind.plural, kind.group));
    let kinds = first.map_or_else(String::new, |kind| format!("\n  kubectl get {kind} --all-namespaces"));
    let header = template_header();
    let workload = if operator.raft.is_some() { "statefulset" } else { "deployment" };
    format!(
        "{header}{name} {{{{ .Chart.AppVersion }}}} is installed in the namespace {{{{ .Release.Namespace }}}}.

  kubectl --namespace {{{{ .Release.Namespace }}}} rollout status {workload}/{name}
  kubectl --namespace {{{{ .Release.Namespace }}}} logs --selector app.kubernetes.io/name={name} --follow{kinds}
{{{{- if and .Values.crds.enabled .Values.crds.keep }}}}

Its CRDs, and with them all objects, stay when this release is uninstalled.
{{{{- end }}}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::tests::{example, raft_example};

    #[test]
    fn the_same_operator_has_the_same_chart() {
        let text = |files: &GeneratedFiles| {
            files.iter().map(|(path, text)| format!("{}\n{text}", path.display())).collect::<String>()
        };
        for operator in [example(), raft_example()] {
            assert_eq!(text(&files(&operator)), text(&files(&operator)));
            check_templates(&files(&operator));
        }
    }

    fn check_templates(chart: &GeneratedFiles) {
        // Every opened block is closed.
        for (path, text) in chart.iter().filter(|(path, _)| path.starts_with("charts/shop/templates")) {
            let opened = ["{{- if", "{{- with", "{{- range", "{{- define"].map(|word| text.matches(word).count());
            assert_eq!(opened.iter().sum::<usize>(), text.matches("{{- end").count(), "{}\n{text}", path.display());
        }
        // What is fixed in manifests is the release's in a chart.
        for (path, text) in chart.iter().filter(|(path, _)| path.starts_with("charts/shop/templates")) {
            assert!(!text.contains("shop-system"), "{}\n{text}", path.display());
        }
    }

    #[test]
    fn values_have_a_comment_and_a_schema_each() {
        let shop = example();
        let text = values::text(&shop);
        let parsed: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        let schema = values::schema(&shop);
        for (key, value) in parsed.as_object().unwrap() {
            let known = &schema["properties"][key];
            assert!(known["description"].is_string(), "{key}");
            for (inner, _) in value.as_object().into_iter().flatten().filter(|_| known["properties"].is_object()) {
                assert!(known["properties"][inner]["description"].is_string(), "{key}.{inner}");
            }
        }
        let members = values::text(&raft_example());
        assert!(members.contains("\nreplicas: 3\n") && members.contains("\npersistence:\n"), "{members}");
        assert!(!members.contains("leaderElection"), "{members}");
        let without = Description { webhooks: None, scoped: None, ..shop };
        let text = values::text(&without);
        assert!(!text.contains("\nwebhook:") && !text.contains("watchNamespaces"), "{text}");
    }
}
