//! Webhooks as OLM makes them. In: a description. Out: webhook definitions of a ClusterServiceVersion. OLM makes the Service, the certificate and the
//! configurations by itself, and mounts the certificate where the operator looks for one.

use serde_json::{Value, json};

use crate::description::{Description, text};

/// Where OLM mounts the certificate, with `tls.crt` and `tls.key`.
pub(super) const CERTIFICATES: &str = "/tmp/k8s-webhook-server/serving-certs";

/// The port of the Service.
const SERVICE_PORT: u16 = 443;

/// What a definition takes over from a webhook. The namespaces are those of the OperatorGroup.
const SHARED: [&str; 8] = [
    "rules",
    "failurePolicy",
    "matchPolicy",
    "objectSelector",
    "sideEffects",
    "timeoutSeconds",
    "admissionReviewVersions",
    "reinvocationPolicy",
];

/// The Service that OLM makes for the webhooks of a Deployment.
pub(super) fn service_name(deployment: &str) -> String {
    format!("{}-service", deployment.replace('.', "-"))
}

/// The CRDs whose versions the operator converts.
pub(super) fn converted(operator: &Description) -> Vec<String> {
    let converts = |definition: &&Value| definition["spec"]["conversion"]["strategy"] == "Webhook";
    operator.definitions.iter().filter(converts).map(|definition| text(&definition["metadata"]["name"])).collect()
}

/// The webhook definitions; none if the operator has no webhooks.
pub(super) fn definitions(operator: &Description) -> Vec<Value> {
    let Some(port) = operator.webhook_port() else { return Vec::new() };
    let mut definitions = Vec::new();
    let place = |definition: &mut Value, path: &Value| {
        definition["deploymentName"] = operator.name.as_str().into();
        definition["containerPort"] = SERVICE_PORT.into();
        definition["targetPort"] = port.into();
        definition["webhookPath"] = path.clone();
    };
    for configuration in operator.webhooks.iter().flat_map(|webhooks| &webhooks.configurations) {
        let kind = match text(&configuration["kind"]).starts_with("Mutating") {
            true => "MutatingAdmissionWebhook",
            false => "ValidatingAdmissionWebhook",
        };
        for webhook in configuration["webhooks"].as_array().into_iter().flatten() {
            let mut definition = json!({"type": kind, "generateName": webhook["name"]});
            for field in SHARED.iter().filter(|field| !webhook[*field].is_null()) {
                definition[*field] = webhook[*field].clone();
            }
            place(&mut definition, &webhook["clientConfig"]["service"]["path"]);
            definitions.push(definition);
        }
    }
    let converted = converted(operator);
    if let Some(first) = operator.definitions.iter().find(|one| converted.contains(&text(&one["metadata"]["name"]))) {
        let webhook = &first["spec"]["conversion"]["webhook"];
        let mut definition = json!({
            "type": "ConversionWebhook", "generateName": format!("convert.{}", operator.name),
            "admissionReviewVersions": webhook["conversionReviewVersions"],
            "sideEffects": "None", "conversionCRDs": converted,
        });
        place(&mut definition, &webhook["clientConfig"]["service"]["path"]);
        definitions.push(definition);
    }
    definitions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::tests::example;

    #[test]
    fn webhooks_and_conversions() {
        let shop = example();
        let found = definitions(&shop);
        let brief = |one: &Value| {
            format!("{} {} {}", text(&one["type"]), text(&one["generateName"]), text(&one["webhookPath"]))
        };
        let brief: Vec<String> = found.iter().map(brief).collect();
        assert_eq!(
            brief,
            [
                "ValidatingAdmissionWebhook validate.shop.example.com /validate",
                "ConversionWebhook convert.shop /convert",
            ]
        );
        assert_eq!((&found[0]["targetPort"], &found[0]["namespaceSelector"]), (&json!(9443), &Value::Null));
        assert_eq!(found[1]["conversionCRDs"], json!(["shops.example.com"]));
        let without = Description { webhooks: None, ..shop };
        assert_eq!(definitions(&without), Vec::<Value>::new());
    }
}
