//! Whether an authentication configuration makes sense. In: the configuration, and the issuers that are the server's own. Out: how
//! claims become users, compiled; or everything that is wrong, in the words of kube-apiserver.

use std::collections::BTreeSet;

use serde_json::Value;

use konverge_cel::{AuthenticationExpression, Sees};
use konverge_core::{FieldError, FieldPath, NameRule, check_name};

use super::configuration::{
    AuthenticationConfiguration, ClaimMappings, ClaimOrExpression, ClaimValidationRule, IssuerConfiguration,
    JwtConfiguration, UserValidationRule,
};
use super::mapping::{Mapping, Source, ValidationRule};
use crate::webhook_client::check_ca_bundle;

/// How many issuers there may be.
const MAX_ISSUERS: usize = 64;

/// Everything that is wrong with a configuration, as Go's aggregate prints it; or how each issuer's claims become users.
pub(super) fn compile(configuration: &AuthenticationConfiguration) -> Result<Vec<Mapping>, String> {
    let root = FieldPath::new("jwt");
    let issuers = &configuration.jwt;
    if issuers.len() > MAX_ISSUERS {
        return Err(FieldError::too_many(root, issuers.len(), MAX_ISSUERS).to_string());
    }
    let (mut errors, mut mappings) = (Vec::new(), Vec::new());
    for (at, jwt) in issuers.iter().enumerate() {
        let path = root.index(at);
        mappings.push(check_jwt(jwt, &path, &mut errors));
        let before = &issuers[..at];
        let (url, discovery) = (&jwt.issuer.url, &jwt.issuer.discovery_url);
        if before.iter().any(|other| other.issuer.url == *url) {
            errors.push(FieldError::duplicate(path.child("issuer").child("url"), url.clone().into()));
        }
        if !discovery.is_empty() && before.iter().any(|other| other.issuer.discovery_url == *discovery) {
            errors.push(FieldError::duplicate(path.child("issuer").child("discoveryURL"), discovery.clone().into()));
        }
    }
    if let Some(anonymous) = &configuration.anonymous
        && !anonymous.enabled
        && !anonymous.conditions.is_empty()
    {
        let paths: Vec<Value> = anonymous.conditions.iter().map(|condition| condition.path.clone().into()).collect();
        let why = "enabled should be set to true when conditions are defined";
        errors.push(FieldError::invalid(FieldPath::new("anonymous").child("conditions"), paths.into(), why));
    }
    if errors.is_empty() { Ok(mappings) } else { Err(aggregate(&errors)) }
}

/// The refusal of an issuer that is the server's own.
pub(super) fn check_own(url: &str, own: &[String]) -> Result<(), String> {
    if !own.iter().any(|own| own == url) {
        return Ok(());
    }
    let mut sorted = own.to_vec();
    sorted.sort();
    let why = format!("URL must not overlap with disallowed issuers: [{}]", sorted.join(" "));
    Err(FieldError::invalid(FieldPath::new("issuer").child("url"), url.into(), why).to_string())
}

/// Errors as Go's aggregate prints them.
fn aggregate(errors: &[FieldError]) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

fn check_jwt(jwt: &JwtConfiguration, path: &FieldPath, errors: &mut Vec<FieldError>) -> Mapping {
    check_issuer(&jwt.issuer, &path.child("issuer"), errors);
    let mut mapping = Mapping::default();
    check_claim_rules(&jwt.claim_validation_rules, &path.child("claimValidationRules"), &mut mapping, errors);
    check_mappings(&jwt.claim_mappings, &path.child("claimMappings"), &mut mapping, errors);
    check_user_rules(&jwt.user_validation_rules, &path.child("userValidationRules"), &mut mapping, errors);
    mapping
}

fn check_issuer(issuer: &IssuerConfiguration, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let at = path.child("url");
    if issuer.url.is_empty() {
        errors.push(FieldError::required(at, ""));
    } else {
        check_url(&issuer.url, &at, errors);
    }
    let (discovery, at) = (&issuer.discovery_url, path.child("discoveryURL"));
    if !discovery.is_empty() {
        if !issuer.url.is_empty() && issuer.url.trim_end_matches('/') == discovery.trim_end_matches('/') {
            let why = "discoveryURL must be different from URL";
            errors.push(FieldError::invalid(at.clone(), discovery.clone().into(), why));
        }
        check_url(discovery, &at, errors);
    }
    check_audiences(issuer, path, errors);
    if !issuer.certificate_authority.is_empty() && check_ca_bundle(issuer.certificate_authority.as_bytes()).is_err() {
        let why = "data does not contain any valid RSA or ECDSA certificates";
        errors.push(FieldError::invalid(path.child("certificateAuthority"), "<omitted>".into(), why));
    }
    let (egress, at) = (&issuer.egress_selector_type, path.child("egressSelectorType"));
    match &**egress {
        "" => {}
        // Only kube-apiserver has a configuration of egress selectors, and without one it refuses this, too.
        "controlplane" | "cluster" => {
            let why = format!("oidc: egress lookup required with egress selector type {egress:?}");
            errors.push(FieldError::invalid(at, egress.clone().into(), why));
        }
        _ => {
            let why = "egress selector must be either controlplane or cluster";
            errors.push(FieldError::invalid(at, egress.clone().into(), why));
        }
    }
}

fn check_url(url: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut refuse = |why: &str| errors.push(FieldError::invalid(path.clone(), url.into(), why));
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = rest.split('/').next().unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("https") {
        refuse("URL scheme must be https");
    } else if authority.is_empty() || url.parse::<http::Uri>().is_err() {
        refuse("the URL cannot be read; it needs the form https://HOST[:PORT][/PATH]");
    }
    if authority.contains('@') {
        refuse("URL must not contain a username or password");
    }
    if !query.is_empty() {
        refuse("URL must not contain a query");
    }
    if !fragment.is_empty() {
        refuse("URL must not contain a fragment");
    }
}

fn check_audiences(issuer: &IssuerConfiguration, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let (audiences, at) = (&issuer.audiences, path.child("audiences"));
    if audiences.is_empty() {
        errors.push(FieldError::required(at.clone(), format!("at least one {at} is required")));
        return;
    }
    for (index, audience) in audiences.iter().enumerate() {
        if audience.is_empty() {
            errors.push(FieldError::required(at.index(index), ""));
        }
        if audiences[..index].contains(audience) {
            errors.push(FieldError::duplicate(at.index(index), audience.clone().into()));
        }
    }
    let (policy, at) = (&issuer.audience_match_policy, path.child("audienceMatchPolicy"));
    let why = match audiences.len() {
        1 if policy.is_empty() => return,
        1 => "audienceMatchPolicy must be empty or MatchAny for single audience",
        _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
    };
    if policy != "MatchAny" {
        errors.push(FieldError::invalid(at, policy.clone().into(), why));
    }
}

fn check_claim_rules(
    rules: &[ClaimValidationRule],
    path: &FieldPath,
    mapping: &mut Mapping,
    errors: &mut Vec<FieldError>,
) {
    let (mut claims, mut expressions) = (BTreeSet::new(), BTreeSet::new());
    for (index, rule) in rules.iter().enumerate() {
        let at = path.index(index);
        let ClaimValidationRule { claim, required_value, expression, message } = rule;
        match (claim.is_empty(), expression.is_empty()) {
            (false, false) => {
                errors.push(FieldError::invalid(at, claim.clone().into(), "claim and expression can't both be set"));
            }
            (true, true) => errors.push(FieldError::required(at, "claim or expression is required")),
            (false, true) => {
                if !message.is_empty() {
                    let why = "may not be specified when claim is set";
                    errors.push(FieldError::invalid(at.child("message"), message.clone().into(), why));
                }
                if !claims.insert(claim) {
                    errors.push(FieldError::duplicate(at.child("claim"), claim.clone().into()));
                }
                mapping.required.push((claim.clone(), required_value.clone()));
            }
            (true, false) => {
                if !required_value.is_empty() {
                    let why = "may not be specified when expression is set";
                    errors.push(FieldError::invalid(at.child("requiredValue"), required_value.clone().into(), why));
                }
                let at = at.child("expression");
                if !expressions.insert(expression) {
                    errors.push(FieldError::duplicate(at, expression.clone().into()));
                } else if let Some(expression) = compiled(expression, Sees::Claims, true, at, errors) {
                    mapping.claim_rules.push(ValidationRule { expression, message: message.clone() });
                }
            }
        }
    }
}

fn check_mappings(mappings: &ClaimMappings, path: &FieldPath, mapping: &mut Mapping, errors: &mut Vec<FieldError>) {
    let at = path.child("username");
    mapping.username = check_source(&mappings.username, &at, true, errors);
    mapping.groups = check_source(&mappings.groups, &path.child("groups"), false, errors);
    let (uid, at) = (&mappings.uid, path.child("uid"));
    mapping.uid = match (uid.claim.is_empty(), uid.expression.is_empty()) {
        (false, false) => {
            errors.push(FieldError::invalid(at, "".into(), "claim and expression can't both be set"));
            None
        }
        (false, true) => Some(Source::Claim { name: uid.claim.clone(), prefix: String::new() }),
        (true, false) => {
            compiled(&uid.expression, Sees::Claims, false, at.child("expression"), errors).map(Source::Expression)
        }
        (true, true) => None,
    };
    let mut keys = BTreeSet::new();
    for (index, extra) in mappings.extra.iter().enumerate() {
        let at = path.child("extra").index(index);
        check_extra_key(&extra.key, &at.child("key"), errors);
        if !keys.insert(&extra.key) {
            errors.push(FieldError::duplicate(at.child("key"), extra.key.clone().into()));
            continue;
        }
        let at = at.child("valueExpression");
        if extra.value_expression.is_empty() {
            errors.push(FieldError::required(at, ""));
        } else if let Some(expression) = compiled(&extra.value_expression, Sees::Claims, false, at, errors) {
            mapping.extra.push((extra.key.clone(), expression));
        }
    }
    let Some(Source::Expression(username)) = &mapping.username else { return };
    let rules = mapping.claim_rules.iter().map(|rule| &rule.expression);
    let mut verifying = rules.chain(mapping.extra.iter().map(|(_, expression)| expression)).chain([username]);
    if username.uses("email") && !verifying.any(|expression| expression.uses("email_verified")) {
        let why = "claims.email_verified must be used in claimMappings.username.expression or \
                   claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used \
                   in claimMappings.username.expression";
        let at = path.child("username").child("expression");
        errors.push(FieldError::invalid(at, mappings.username.expression.clone().into(), why));
    }
}

fn check_source(
    source: &ClaimOrExpression,
    path: &FieldPath,
    required: bool,
    errors: &mut Vec<FieldError>,
) -> Option<Source> {
    let ClaimOrExpression { claim, prefix, expression } = source;
    match (claim.is_empty(), expression.is_empty()) {
        (false, false) => {
            errors.push(FieldError::invalid(path.clone(), "".into(), "claim and expression can't both be set"));
        }
        (true, true) if required => {
            errors.push(FieldError::required(path.clone(), "claim or expression is required"));
        }
        (true, true) => {}
        (true, false) => {
            if let Some(prefix) = prefix {
                let why = "may not be specified when expression is set";
                errors.push(FieldError::invalid(path.child("prefix"), prefix.clone().into(), why));
            }
            let compiled = compiled(expression, Sees::Claims, false, path.child("expression"), errors);
            return compiled.map(Source::Expression);
        }
        (false, true) => {
            let Some(prefix) = prefix else {
                let why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                errors.push(FieldError::required(path.child("prefix"), why));
                return None;
            };
            return Some(Source::Claim { name: claim.clone(), prefix: prefix.clone() });
        }
    }
    None
}

fn check_extra_key(key: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut refuse = |why: String| errors.push(FieldError::invalid(path.clone(), key.into(), why));
    if key.is_empty() {
        errors.push(FieldError::required(path.clone(), ""));
        return;
    }
    let Some((domain, rest)) = key.split_once('/').filter(|(domain, rest)| !domain.is_empty() && !rest.is_empty())
    else {
        refuse("must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned());
        return;
    };
    for why in check_name(domain, NameRule::Subdomain, false) {
        refuse(why);
    }
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "/._~!$&'()*+,;=%:-".contains(letter);
    if !rest.chars().all(allowed) {
        refuse("Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')".to_owned());
    }
    if key.to_lowercase() != key {
        refuse("must be lowercase".to_owned());
    }
    let is_of = |owner: &str| domain == owner || domain.ends_with(&format!(".{owner}"));
    if is_of("k8s.io") || is_of("kubernetes.io") {
        refuse("k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use".to_owned());
    }
}

fn check_user_rules(
    rules: &[UserValidationRule],
    path: &FieldPath,
    mapping: &mut Mapping,
    errors: &mut Vec<FieldError>,
) {
    let mut seen = BTreeSet::new();
    for (index, UserValidationRule { expression, message }) in rules.iter().enumerate() {
        let at = path.index(index).child("expression");
        if expression.is_empty() {
            errors.push(FieldError::required(at, ""));
        } else if !seen.insert(expression) {
            errors.push(FieldError::duplicate(at, expression.clone().into()));
        } else if let Some(expression) = compiled(expression, Sees::User, true, at, errors) {
            mapping.user_rules.push(ValidationRule { expression, message: message.clone() });
        }
    }
}

fn compiled(
    expression: &str,
    sees: Sees,
    is_condition: bool,
    path: FieldPath,
    errors: &mut Vec<FieldError>,
) -> Option<AuthenticationExpression> {
    let refuse = |error: konverge_cel::ExpressionError| {
        errors.push(FieldError::invalid(path, expression.into(), error.detail()));
    };
    AuthenticationExpression::compile(expression, sees, is_condition).map_err(refuse).ok()
}
