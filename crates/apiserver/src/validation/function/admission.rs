//! Admission policies and their bindings: whether their expressions compile, and the rules that say which requests they match.

use std::collections::BTreeSet;

use serde_json::Value;

use konverge_cel::{Composer, Declared, ExpressionError, Returns, is_reserved_word};
use konverge_core::{FieldError, FieldErrorKind, FieldPath, NameRule, check_label_key, check_name};

use super::super::walk::{Frame, Target, Walk};
use super::{Function, field, has, list, text};

const MAX_CONDITIONS: usize = 64;
const MAX_ANNOTATIONS: usize = 20;
const MAX_ANNOTATION_EXPRESSION: usize = 5 * 1024;

/// Compiling one character of an expression takes about as long as so many steps, and an expression as such takes this many.
const STEPS_PER_CHARACTER: u64 = 20;
const STEPS_PER_EXPRESSION: u64 = 500;

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "validating-policy" => validating_policy,
        "mutating-policy" => mutating_policy,
        "param-kind" => param_kind,
        "validation-actions" => validation_actions,
        "lone-wildcard-operations" => |walk, at, _| lone_wildcard(walk, at, "operations"),
        "lone-wildcard-groups" => |walk, at, _| lone_wildcard(walk, at, "API groups"),
        "lone-wildcard-versions" => |walk, at, _| lone_wildcard(walk, at, "API versions"),
        "rule-resources" => rule_resources,
        "webhook-conditions" => webhook_conditions,
        _ => return None,
    })
}

/// Compiles the expressions of one policy, and reports what is wrong with them.
struct Expressions<'w, 'a> {
    walk: &'w mut Walk<'a>,
    composer: Composer,
    declared: Declared,
}

impl Expressions<'_, '_> {
    /// Whether the request may still compile an expression of this length.
    fn may_compile(&mut self, expression: &str) -> bool {
        self.walk.budget.spend(STEPS_PER_EXPRESSION + expression.len() as u64 * STEPS_PER_CHARACTER)
    }

    fn report(&mut self, path: FieldPath, shown: &str, error: &ExpressionError) {
        self.walk.push(match error {
            ExpressionError::Invalid(why) => FieldError::invalid(path, shown.into(), why),
            ExpressionError::Internal(why) => FieldError::new(FieldErrorKind::Internal, path, None, why),
        });
    }

    fn compile(&mut self, path: FieldPath, expression: &str, shown: &str, returns: Returns, declared: Declared) {
        if !self.may_compile(expression) {
            return;
        }
        let compiled = self.composer.compile(expression, returns, declared);
        if let Some(error) = compiled.error() {
            self.report(path, shown, error);
        }
    }

    fn match_conditions(&mut self, path: &FieldPath, conditions: &[Value]) {
        if conditions.len() > MAX_CONDITIONS {
            self.walk.push(FieldError::too_many(path.clone(), conditions.len(), MAX_CONDITIONS));
        }
        let mut names = BTreeSet::new();
        // Match conditions do not know the variables of the policy when they are written.
        let composer = std::mem::replace(&mut self.composer, Composer::without_variables());
        for (at, condition) in conditions.iter().enumerate() {
            let path = path.index(at);
            let expression = text(condition, "expression").trim();
            if expression.is_empty() {
                self.walk.push(FieldError::required(path.child("expression"), ""));
            } else {
                self.compile(path.child("expression"), expression, expression, Returns::Bool, self.declared);
            }
            let name = text(condition, "name");
            if name.is_empty() {
                self.walk.push(FieldError::required(path.child("name"), ""));
                continue;
            }
            for why in check_label_key(name) {
                self.walk.push(FieldError::invalid(path.child("name"), name.into(), why));
            }
            if !names.insert(name) {
                self.walk.push(FieldError::duplicate(path.child("name"), name.into()));
            }
        }
        self.composer = composer;
    }

    fn variables(&mut self, path: &FieldPath, variables: &[Value]) {
        for (at, variable) in variables.iter().enumerate() {
            let path = path.index(at);
            let (name, expression) = (text(variable, "name"), text(variable, "expression"));
            if name.trim().is_empty() {
                self.walk.push(FieldError::required(path.child("name"), "name is not specified"));
            } else if !is_identifier(name) {
                let why = "must be a valid CEL identifier";
                self.walk.push(FieldError::invalid(path.child("name"), name.into(), why));
            }
            if expression.trim().is_empty() {
                self.walk.push(FieldError::required(path.child("expression"), "expression is not specified"));
            } else if self.may_compile(expression)
                && let Err(error) = self.composer.define(name, expression, self.declared)
            {
                self.report(path.child("expression"), expression, &error);
            }
        }
    }

    fn validation(&mut self, path: &FieldPath, validation: &Value) {
        let (expression, message) = (text(validation, "expression"), text(validation, "message"));
        if expression.trim().is_empty() {
            self.walk.push(FieldError::required(path.child("expression"), "expression is not specified"));
        } else {
            self.compile(path.child("expression"), expression, expression, Returns::Bool, self.declared);
        }
        let by_expression = text(validation, "messageExpression");
        let at = path.child("messageExpression");
        if !by_expression.is_empty() && by_expression.trim().is_empty() {
            self.walk.push(FieldError::invalid(at, by_expression.into(), "must be non-empty if specified"));
        } else if !by_expression.is_empty() {
            let unasked = Declared { authorizer: false, ..self.declared };
            self.compile(at, by_expression, by_expression, Returns::Text, unasked);
        }
        let at = path.child("message");
        if !message.is_empty() && message.trim().is_empty() {
            self.walk.push(FieldError::invalid(at, message.into(), "must be non-empty if specified"));
        } else if message.trim().contains(['\n', '\r']) {
            self.walk.push(FieldError::invalid(at, message.into(), "must not contain line breaks"));
        }
        let known = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
        if let Some(reason) = field(validation, "reason").as_str().filter(|reason| !known.contains(reason)) {
            self.walk.push(FieldError::not_supported(path.child("reason"), reason.into(), known));
        }
    }

    fn annotation(&mut self, path: &FieldPath, policy: &str, annotation: &Value) {
        let (key, expression) = (text(annotation, "key"), text(annotation, "valueExpression"));
        let qualified = format!("{policy}/{key}");
        for why in check_label_key(&qualified) {
            self.walk.push(FieldError::invalid(path.child("key"), qualified.as_str().into(), why));
        }
        let at = path.child("valueExpression");
        match expression.trim() {
            "" => self.walk.push(FieldError::required(at, "valueExpression is not specified")),
            long if long.len() > MAX_ANNOTATION_EXPRESSION => {
                let why = format!("must not exceed {MAX_ANNOTATION_EXPRESSION} bytes in length");
                self.walk.push(FieldError::required(at, why));
            }
            trimmed => self.compile(at, trimmed, expression, Returns::TextOrNull, self.declared),
        }
    }

    fn mutation(&mut self, path: &FieldPath, mutation: &Value) {
        let of = [
            ("JSONPatch", "jsonPatch", Returns::JsonPatch),
            ("ApplyConfiguration", "applyConfiguration", Returns::Apply),
        ];
        let kind = text(mutation, "patchType");
        if kind.is_empty() {
            self.walk.push(FieldError::required(path.child("patchType"), ""));
            return;
        }
        let Some((_, name, returns)) = of.iter().find(|(known, ..)| *known == kind) else {
            let known = ["ApplyConfiguration", "JSONPatch"];
            self.walk.push(FieldError::not_supported(path.child("patchType"), kind.into(), known));
            return;
        };
        let at = path.child(name);
        if has(mutation, name) {
            let at = at.child("expression");
            match text(field(mutation, name), "expression").trim() {
                "" => self.walk.push(FieldError::required(at, "")),
                expression => {
                    let patches = Declared { patches: true, ..self.declared };
                    self.compile(at, expression, expression, *returns, patches);
                }
            }
        } else {
            self.walk.push(FieldError::required(at, format!("must be specified when patchType is {kind}")));
        }
        for (_, other, _) in of.iter().filter(|(known, other, _)| *known != kind && has(mutation, other)) {
            let why = format!("must not be specified when patchType is {kind}");
            self.walk.push(FieldError::invalid(path.child(other), format!("{{{other}}}").into(), why));
        }
    }
}

fn expressions<'w, 'a>(walk: &'w mut Walk<'a>, spec: &Value, composer: Composer) -> Expressions<'w, 'a> {
    let declared = Declared { params: has(spec, "paramKind"), authorizer: true, patches: false };
    Expressions { walk, composer, declared }
}

fn validating_policy(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let (spec, path) = (at.value, at.place.path());
    let name = text(field(walk.object, "metadata"), "name").to_owned();
    let variables = list(spec, "variables");
    let composer = if variables.is_empty() { Composer::without_variables() } else { Composer::default() };
    let mut expressions = expressions(walk, spec, composer);
    expressions.match_conditions(&path.child("matchConditions"), list(spec, "matchConditions"));
    expressions.variables(&path.child("variables"), variables);
    let (validations, annotations) = (list(spec, "validations"), list(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        for field in ["validations", "auditAnnotations"] {
            let why = "validations or auditAnnotations must contain at least one item";
            expressions.walk.push(FieldError::required(path.child(field), why));
        }
        return;
    }
    for (at, validation) in validations.iter().enumerate() {
        expressions.validation(&path.child("validations").index(at), validation);
    }
    let path = path.child("auditAnnotations");
    if annotations.len() > MAX_ANNOTATIONS {
        let why = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        expressions.walk.push(FieldError::invalid(path.clone(), annotations.into(), why));
    }
    let mut keys = BTreeSet::new();
    for (at, annotation) in annotations.iter().enumerate() {
        expressions.annotation(&path.index(at), &name, annotation);
        let key = text(annotation, "key");
        if !keys.insert(key) {
            expressions.walk.push(FieldError::duplicate(path.index(at).child("key"), key.into()));
        }
    }
}

fn mutating_policy(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let (spec, path) = (at.value, at.place.path());
    let mut expressions = expressions(walk, spec, Composer::default());
    expressions.match_conditions(&path.child("matchConditions"), list(spec, "matchConditions"));
    expressions.variables(&path.child("variables"), list(spec, "variables"));
    let (path, mutations) = (path.child("mutations"), list(spec, "mutations"));
    if mutations.is_empty() {
        expressions.walk.push(FieldError::required(path, "mutations must contain at least one item"));
        return;
    }
    for (at, mutation) in mutations.iter().enumerate() {
        expressions.mutation(&path.index(at), mutation);
    }
}

/// The match conditions of a webhook, which has neither parameters nor variables.
fn webhook_conditions(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let conditions = at.value.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut expressions = expressions(walk, &Value::Null, Composer::without_variables());
    expressions.match_conditions(&at.place.path(), conditions);
}

fn is_identifier(name: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(word) && !name.starts_with(|c: char| c.is_ascii_digit()) && !is_reserved_word(name)
}

fn param_kind(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let path = at.place.path();
    let (version, kind) = (text(at.value, "apiVersion"), text(at.value, "kind"));
    let version_path = path.child("apiVersion");
    let mut invalid = |path: &FieldPath, value: &str, why: String| {
        walk.push(FieldError::invalid(path.clone(), value.into(), why));
    };
    let parts: Vec<&str> = if version == "/" { vec![""] } else { version.split('/').collect() };
    match parts.as_slice() {
        [""] if version.is_empty() => walk.push(FieldError::required(version_path, "")),
        [_] | [_, _] => {
            let (group, number) = if let [group, number] = parts[..] { (group, number) } else { ("", parts[0]) };
            let group_errors =
                if group.is_empty() { Vec::new() } else { check_name(group, NameRule::Subdomain, false) };
            if !group_errors.is_empty() {
                invalid(&version_path, group, group_errors.join(","));
            }
            let errors = check_name(number, NameRule::Label1035, false);
            if number.is_empty() {
                invalid(&version_path, version, "version must be specified".to_owned());
            } else if !errors.is_empty() {
                invalid(&version_path, number, errors.join(","));
            }
        }
        _ => invalid(&version_path, version, format!("unexpected GroupVersion string: {version}")),
    }
    let errors = check_name(&kind.to_lowercase(), NameRule::Label1035, false);
    if kind.is_empty() {
        walk.push(FieldError::required(path.child("kind"), ""));
    } else if !errors.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", errors.join(","));
        walk.push(FieldError::invalid(path.child("kind"), kind.into(), why));
    }
}

fn validation_actions(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let path = at.place.path();
    let actions: Vec<&str> = at.value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (index, action) in actions.iter().enumerate() {
        let known = ["Audit", "Deny", "Warn"];
        if !known.contains(action) {
            walk.push(FieldError::not_supported(path.index(index), (*action).into(), known));
        }
        if actions[..index].contains(action) {
            walk.push(FieldError::duplicate(path.index(index), (*action).into()));
        }
    }
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                   response and headers serves no purpose)";
        walk.push(FieldError::invalid(path.clone(), at.value.clone(), why));
    }
    if actions.is_empty() {
        walk.push(FieldError::required(path, "at least one validation action is required"));
    }
}

/// Refuses `*` beside others.
fn lone_wildcard(walk: &mut Walk<'_>, at: Target<'_>, others: &str) {
    let items = at.value.as_array().map(Vec::as_slice).unwrap_or_default();
    if items.len() > 1 && items.iter().any(|item| item == "*") {
        let why = format!("if '*' is present, must not specify other {others}");
        walk.push(FieldError::invalid(at.place.path(), at.value.clone(), why));
    }
}

/// Resources with their subresources, of which wildcards must not name any twice.
fn rule_resources(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let path = at.place.path();
    let resources: Vec<&str> = at.value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let (mut all_below, mut below_all) = (BTreeSet::new(), BTreeSet::new());
    let mut plain = false;
    for (index, resource) in resources.iter().enumerate() {
        let path = path.index(index);
        if resource.is_empty() {
            walk.push(FieldError::required(path, ""));
            continue;
        }
        let Some((name, below)) = resource.split_once('/') else {
            plain = *resource != "*";
            continue;
        };
        let mut refuse = |known: String| {
            let why = format!("if '{known}' is present, must not specify {resource}");
            walk.push(FieldError::invalid(path.clone(), (*resource).into(), why));
        };
        if all_below.contains(name) {
            refuse(format!("{name}/*"));
        }
        if below_all.contains(below) {
            refuse(format!("*/{below}"));
        }
        if below == "*" {
            all_below.insert(name);
        }
        if name == "*" {
            below_all.insert(below);
        }
    }
    let mut refuse = |why: &str| walk.push(FieldError::invalid(path.clone(), at.value.clone(), why));
    if resources.len() > 1 && resources.contains(&"*/*") {
        refuse("if '*/*' is present, must not specify other resources");
    }
    if resources.contains(&"*") && plain {
        refuse("if '*' is present, must not specify other resources without subresources");
    }
}
