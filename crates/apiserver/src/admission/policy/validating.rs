//! ValidatingAdmissionPolicy: refuses requests, warns of them, or leaves a note in the audit log. In: a request as it would be
//! stored. Out: the refusal of the first policy that says no.

use serde::Serialize;
use serde_json::Value;

use konverge_cel::{
    Compiled, Composer, Declared, Evaluation, Inputs, Output, Permissions, ResourceCheck, Returns, Stop,
};
use konverge_core::Status;

use super::{Binding, Invocation, Kind, Policy, are_judged, invocations};
use crate::admission::match_conditions::Matching;
use crate::admission::question;
use crate::admission::versioned::{Versioned, namespace_object};
use crate::admission::{Admission, Attributes, Operation, Plugin, Verdict};
use crate::subresource::Subresource;

/// The longest message that a messageExpression may give, and the longest audit annotation, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;
const LONGEST_ANNOTATION: usize = 10 * 1024;

const AUDIT_FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

pub(crate) struct ValidatingAdmissionPolicy;

/// What a policy of this kind says.
pub(super) struct Rules {
    validations: Vec<Validation>,
    annotations: Vec<AuditAnnotation>,
}

struct Validation {
    expression: Compiled,
    /// Shown if there is no message expression, or none that has a value.
    message: String,
    message_expression: Option<Compiled>,
    reason: Option<String>,
}

struct AuditAnnotation {
    key: String,
    value: Compiled,
}

impl Kind for Rules {
    const POLICIES: &'static str = "validatingadmissionpolicies";
    const BINDINGS: &'static str = "validatingadmissionpolicybindings";

    fn compile(spec: &Value, composer: &Composer, declared: Declared) -> Self {
        let list = |field: &str| spec[field].as_array().into_iter().flatten();
        let validation = |json: &Value| {
            let text = |field: &str| json[field].as_str().unwrap_or_default();
            let message = Some(text("messageExpression")).filter(|message| !message.is_empty());
            let unasked = Declared { authorizer: false, ..declared };
            Validation {
                expression: composer.compile(text("expression"), Returns::Bool, declared),
                message: text("message").trim().to_owned(),
                message_expression: message.map(|message| composer.compile(message, Returns::Text, unasked)),
                reason: json["reason"].as_str().map(str::to_owned),
            }
        };
        let annotation = |json: &Value| {
            let text = |field: &str| json[field].as_str().unwrap_or_default();
            let value = composer.compile(text("valueExpression"), Returns::TextOrNull, declared);
            AuditAnnotation { key: text("key").to_owned(), value }
        };
        Self {
            validations: list("validations").map(validation).collect(),
            annotations: list("auditAnnotations").map(annotation).collect(),
        }
    }
}

/// What a policy decides about a request.
#[derive(Default)]
struct Judgement {
    refusals: Vec<Refusal>,
    /// What goes into the audit log.
    annotations: Vec<(String, String)>,
    /// Annotations that have no value refuse the request whatever the actions of the binding are.
    failed_annotations: Vec<String>,
}

struct Refusal {
    /// Which validation it is.
    index: usize,
    message: String,
    reason: Option<String>,
}

impl Judgement {
    /// An error refuses the request if the failure policy says so.
    fn failed(fail: bool, message: String) -> Self {
        let refusal = Refusal { index: 0, message, reason: None };
        Self { refusals: fail.then_some(refusal).into_iter().collect(), ..Self::default() }
    }
}

/// What one evaluation of a policy looks at.
struct Subject<'a> {
    inputs: Inputs<'a>,
    /// The request as match conditions see it.
    unmatched: &'a Value,
}

impl Policy<Rules> {
    fn begin<'a>(&'a self, inputs: &Inputs<'a>, asked: &'a Permissions, attributes: &Attributes<'a>) -> Evaluation<'a> {
        Evaluation::new(&self.composer, inputs, asked, attributes.budget)
    }

    fn judge(
        &self,
        subject: &Subject<'_>,
        asked: &Permissions,
        attributes: &Attributes<'_>,
    ) -> Result<Judgement, Stop> {
        let conditions = Inputs { namespace: None, request: subject.unmatched, ..subject.inputs.clone() };
        match self.conditions.matches(self.begin(&conditions, asked, attributes), self.fail)? {
            Matching::Yes => {}
            Matching::No => return Ok(Judgement::default()),
            Matching::Failed(why) => return Ok(Judgement::failed(self.fail, why)),
        }
        let mut judgement = Judgement::default();
        let mut evaluation = self.begin(&subject.inputs, asked, attributes);
        let mut results = Vec::with_capacity(self.rules.validations.len());
        for validation in &self.rules.validations {
            match evaluation.evaluate(&validation.expression) {
                Ok(result) => results.push(result),
                Err(stop @ Stop::OutOfCost) => return Ok(Judgement::failed(self.fail, stop.to_string())),
                Err(stop) => return Err(stop),
            }
        }
        let unasked = Inputs { authorizer: None, ..subject.inputs.clone() };
        let mut evaluation = self.begin(&unasked, asked, attributes).after(&evaluation);
        let mut messages: Result<Vec<Option<String>>, String> = Ok(Vec::new());
        for validation in &self.rules.validations {
            let Ok(known) = &mut messages else { break };
            let message = validation.message_expression.as_ref().map(|message| evaluation.evaluate(message));
            match message.transpose() {
                Ok(message) => known.push(message.and_then(Result::ok).and_then(readable)),
                Err(stop @ Stop::OutOfCost) => messages = Err(format!("failed messageExpression: {stop}")),
                Err(stop) => return Err(stop),
            }
        }
        for (index, (validation, result)) in self.rules.validations.iter().zip(results).enumerate() {
            let (message, reason) = match (result, &messages) {
                (Err(why), _) if self.fail => (why, None),
                (Err(_), _) => continue,
                (Ok(_), Err(why)) if self.fail => (why.clone(), None),
                (Ok(_), Err(_)) | (Ok(Output::Bool(true)), _) => continue,
                (Ok(_), Ok(messages)) => {
                    let message = messages[index].clone().unwrap_or_else(|| validation.default_message());
                    (message, validation.reason.clone())
                }
            };
            judgement.refusals.push(Refusal { index, message, reason });
        }
        self.annotate(self.begin(&unasked, asked, attributes), &mut judgement)?;
        Ok(judgement)
    }

    fn annotate<'a>(&'a self, mut evaluation: Evaluation<'a>, judgement: &mut Judgement) -> Result<(), Stop> {
        let mut results = Vec::with_capacity(self.rules.annotations.len());
        for annotation in &self.rules.annotations {
            match evaluation.evaluate(&annotation.value) {
                Ok(result) => results.push(result),
                Err(stop @ Stop::OutOfCost) => {
                    *judgement = Judgement::failed(self.fail, stop.to_string());
                    return Ok(());
                }
                Err(stop) => return Err(stop),
            }
        }
        for (annotation, result) in self.rules.annotations.iter().zip(results) {
            match result {
                Ok(Output::Text(text)) if !text.trim().is_empty() => {
                    judgement.annotations.push((annotation.key.clone(), text.trim().to_owned()));
                }
                Ok(Output::Text(_) | Output::Null) => {}
                Ok(_) => judgement.failed_annotations.push(format!(
                    "valueExpression '{}' resulted in unsupported return type. Return type must be either string or null.",
                    annotation.value.source
                )),
                Err(why) if self.fail => judgement.failed_annotations.push(why),
                Err(_) => {}
            }
        }
        Ok(())
    }
}

impl Validation {
    fn default_message(&self) -> String {
        if self.message.is_empty() {
            return format!("failed expression: {}", self.expression.source.trim());
        }
        self.message.clone()
    }
}

/// The message that an expression gave, if it can be shown.
fn readable(output: Output) -> Option<String> {
    let Output::Text(text) = output else { return None };
    let text = text.trim();
    (!text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n')).then(|| text.to_owned())
}

impl Plugin for ValidatingAdmissionPolicy {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        // A binding was judged when it was sent; this is the pod that it changes.
        let bound = attributes.operation == Operation::Update && attributes.subresource == Subresource::Binding;
        !bound && are_judged(attributes) && !attributes.server.policies.validating.hooks(attributes.server).is_empty()
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: &'a Value,
        admission: &'a mut Admission,
    ) -> Verdict<'a> {
        let object = (attributes.operation != Operation::Delete).then_some(object);
        Box::pin(validate(attributes, object, admission))
    }
}

async fn validate<'a>(
    attributes: &'a Attributes<'a>,
    object: Option<&'a Value>,
    admission: &mut Admission,
) -> Result<(), Status> {
    let hooks = attributes.server.policies.validating.hooks(attributes.server);
    let found = invocations(attributes, object, &hooks).await?;
    if found.is_empty() {
        return Ok(());
    }
    let namespace = namespace_object(attributes)?;
    let check = resource_check(attributes);
    let mut permissions = Permissions::default();
    let mut denied = None;
    let mut annotations: Vec<(String, Vec<String>)> = Vec::new();
    for invocation in &found {
        let (policy, binding, through, params) = match invocation {
            Invocation::Evaluate { policy, binding, through, params } => (policy, *binding, through, params),
            Invocation::Failed { policy, binding, why } => {
                denied.get_or_insert_with(|| refusal(attributes, &policy.name, *binding, why, None));
                continue;
            }
        };
        let versioned = Versioned::new(attributes, object, through).await?;
        let (request, unmatched) = (versioned.request(attributes), versioned.unmatched_request(attributes));
        let inputs = Inputs {
            object: versioned.object.as_deref(),
            old_object: versioned.old.as_deref(),
            request: &request,
            namespace: namespace.as_ref(),
            params: params.as_ref(),
            authorizer: Some(&check),
        };
        let subject = Subject { inputs, unmatched: &unmatched };
        let judge = |asked: &Permissions| policy.judge(&subject, asked, attributes);
        let judgement = question::evaluate(attributes, &mut permissions, judge).await?;
        for refused in &judgement.refusals {
            for action in &binding.actions {
                match action.as_str() {
                    "Deny" => {
                        denied.get_or_insert_with(|| {
                            let Refusal { message, reason, .. } = refused;
                            refusal(attributes, &policy.name, Some(binding), message, reason.as_deref())
                        });
                    }
                    "Warn" => admission.warn(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                        policy.name, binding.name, refused.message
                    )),
                    _ => admission.annotate(AUDIT_FAILURE, failure(policy, binding, refused)),
                }
            }
        }
        for (key, value) in judgement.annotations {
            let key = format!("{}/{key}", policy.name);
            let value = truncated(value);
            match annotations.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) if values.contains(&value) => {}
                Some((_, values)) => values.push(value),
                None => annotations.push((key, vec![value])),
            }
        }
        for why in &judgement.failed_annotations {
            denied.get_or_insert_with(|| refusal(attributes, &policy.name, Some(binding), why, None));
        }
    }
    for (key, values) in annotations {
        admission.annotate(&key, values.join(", "));
    }
    denied.map_or(Ok(()), Err)
}

/// What `authorizer.requestResource` is about.
pub(crate) fn resource_check(attributes: &Attributes<'_>) -> ResourceCheck {
    ResourceCheck {
        group: attributes.resource.group.to_string(),
        resource: attributes.resource.plural.to_string(),
        subresource: attributes.subresource.name().to_owned(),
        namespace: attributes.request_namespace().to_owned(),
        name: attributes.name.to_owned(),
        ..ResourceCheck::default()
    }
}

/// The same as JSON, with the fields in the order of kube-apiserver.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ValidationFailure<'a> {
    message: &'a str,
    policy: &'a str,
    binding: &'a str,
    expression_index: usize,
    validation_actions: &'a [String],
}

/// What the audit log gets of a validation that failed.
fn failure(policy: &Policy<Rules>, binding: &Binding, refused: &Refusal) -> String {
    let failure = ValidationFailure {
        message: &refused.message,
        policy: &policy.name,
        binding: &binding.name,
        expression_index: refused.index,
        validation_actions: &binding.actions,
    };
    serde_json::to_string(&[failure]).expect("writing to memory does not fail")
}

fn truncated(mut value: String) -> String {
    if value.len() > LONGEST_ANNOTATION {
        value.truncate((0..=LONGEST_ANNOTATION).rev().find(|at| value.is_char_boundary(*at)).unwrap_or_default());
    }
    value
}

/// The answer to a request that a policy refuses.
fn refusal(
    attributes: &Attributes<'_>,
    policy: &str,
    binding: Option<&Binding>,
    why: &str,
    reason: Option<&str>,
) -> Status {
    let message = match binding {
        Some(binding) => {
            format!("ValidatingAdmissionPolicy '{policy}' with binding '{}' denied request: {why}", binding.name)
        }
        None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {why}"),
    };
    let reason = reason.unwrap_or("Invalid");
    let mut status = attributes.forbidden(&message).with_cause("", &message, "");
    status.code = match reason {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    status.reason = reason.to_owned();
    status
}
