//! Warns of objects that are stored and shown but have no effect, because what would act on them does not run. Not a plugin of
//! kube-apiserver, and always on: an operator that relies on such an object must not look as if it worked.

use serde_json::Value;

use super::{Admission, AdmissionPlugins, Attributes, Operation, Plugin, Verdict, decided};

/// A part of a cluster that does not run beside the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsentPart {
    /// The controller that measures what is used of ResourceQuotas. Without it, they limit nothing.
    ResourceQuotaController,
    /// A scheduler that removes pods to make room for those of a higher priority.
    Preemption,
    /// The controllers that sign certificates for the signers of Kubernetes. Others may sign for signers of their own.
    CertificateSigner,
}

/// What an object needs to have an effect.
enum Needs {
    Plugin(&'static str),
    Part(AbsentPart),
}

struct Row {
    group: &'static str,
    plural: &'static str,
    needs: Needs,
    warning: &'static str,
}

impl Row {
    /// Whether this object misses what is not there.
    fn concerns(&self, object: &Value) -> bool {
        match self.needs {
            // A class whose pods do not preempt others misses nothing.
            Needs::Part(AbsentPart::Preemption) => object["preemptionPolicy"] != "Never",
            Needs::Part(AbsentPart::CertificateSigner) => {
                let signer = object["spec"]["signerName"].as_str().unwrap_or_default();
                signer.starts_with("kubernetes.io/") && object["status"]["certificate"].is_null()
            }
            _ => true,
        }
    }
}

const fn plugin(group: &'static str, plural: &'static str, name: &'static str, warning: &'static str) -> Row {
    Row { group, plural, needs: Needs::Plugin(name), warning }
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const WEBHOOKS: &str = "the admission plugin for these webhooks is off: this configuration has no effect";
const POLICIES: &str = "this server evaluates no admission policies: this object has no effect";

const TABLE: [Row; 10] = [
    plugin("", "limitranges", "LimitRanger", "the admission plugin LimitRanger is off: this limit range has no effect"),
    Row {
        group: "",
        plural: "resourcequotas",
        needs: Needs::Part(AbsentPart::ResourceQuotaController),
        warning: "no resource quota controller runs beside this server: this quota limits nothing until one writes its \
                  status",
    },
    Row {
        group: "scheduling.k8s.io",
        plural: "priorityclasses",
        needs: Needs::Part(AbsentPart::Preemption),
        warning: "no pod is preempted here: pods of this class get their priority, but make no room for themselves",
    },
    Row {
        group: "certificates.k8s.io",
        plural: "certificatesigningrequests",
        needs: Needs::Part(AbsentPart::CertificateSigner),
        warning: "nobody signs for the signers of Kubernetes here: this request can be approved, but gets no certificate",
    },
    plugin(ADMISSION, "mutatingwebhookconfigurations", "MutatingAdmissionWebhook", WEBHOOKS),
    plugin(ADMISSION, "validatingwebhookconfigurations", "ValidatingAdmissionWebhook", WEBHOOKS),
    plugin(ADMISSION, "mutatingadmissionpolicies", "MutatingAdmissionPolicy", POLICIES),
    plugin(ADMISSION, "mutatingadmissionpolicybindings", "MutatingAdmissionPolicy", POLICIES),
    plugin(ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", POLICIES),
    plugin(ADMISSION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicy", POLICIES),
];

/// The rows of the table whose objects have no effect on this server.
pub(super) struct NoEffect(Vec<&'static Row>);

impl NoEffect {
    pub(super) fn new(plugins: &AdmissionPlugins, absent: &[AbsentPart]) -> Self {
        let without = |row: &&Row| match row.needs {
            Needs::Plugin(name) => !plugins.is_effective(name),
            Needs::Part(part) => absent.contains(&part),
        };
        Self(TABLE.iter().filter(without).collect())
    }

    fn row(&self, attributes: &Attributes<'_>) -> Option<&'static Row> {
        self.0.iter().copied().find(|row| attributes.is_about(row.group, row.plural))
    }
}

impl Plugin for NoEffect {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation != Operation::Delete && self.row(attributes).is_some()
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: &'a Value,
        admission: &'a mut Admission,
    ) -> Verdict<'a> {
        if let Some(row) = self.row(attributes).filter(|row| row.concerns(object)) {
            admission.warn(row.warning);
        }
        decided(Ok(()))
    }
}
