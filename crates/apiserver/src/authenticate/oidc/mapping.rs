//! How the claims of a token become a user. In: claims that were verified. Out: a user, or why there is none, in the words of
//! kube-apiserver. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use konverge_cel::{AuthenticationExpression, Given};
use konverge_schema::go_quote;

use super::claims::Claims;
use crate::user::UserInfo;

/// The extra information by which audit logs recognise a credential.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Where the parts of a user come from, and what has to be true of the claims and of the user.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    pub username: Option<Source>,
    pub groups: Option<Source>,
    pub uid: Option<Source>,
    pub extra: Vec<(String, AuthenticationExpression)>,
    /// Claims that must have a value.
    pub required: Vec<(String, String)>,
    pub claim_rules: Vec<ValidationRule>,
    pub user_rules: Vec<ValidationRule>,
}

/// Where a part of a user comes from.
#[derive(Debug)]
pub(super) enum Source {
    Claim { name: String, prefix: String },
    Expression(AuthenticationExpression),
}

/// What has to be true, and what is said if it is not.
#[derive(Debug)]
pub(super) struct ValidationRule {
    pub expression: AuthenticationExpression,
    pub message: String,
}

impl Mapping {
    /// The claim that groups are in.
    pub(super) fn groups_claim(&self) -> Option<&str> {
        match &self.groups {
            Some(Source::Claim { name, .. }) => Some(name),
            _ => None,
        }
    }

    /// The user of a token with these claims.
    pub(super) fn user(&self, claims: &Claims) -> Result<UserInfo, String> {
        let seen = Value::Object(claims.0.clone());
        let user = UserInfo {
            name: self.name(claims, &seen)?,
            groups: self.groups(claims, &seen)?,
            uid: self.uid(claims, &seen)?,
            extra: self.extra(claims, &seen)?,
        };
        self.check_required(claims)?;
        let of_claims = |why: String| format!("oidc: error evaluating claim validation expression: {why}");
        check_rules(&self.claim_rules, &seen).map_err(of_claims)?;
        if !self.user_rules.is_empty() {
            let UserInfo { name, uid, groups, extra } = &user;
            let seen = json!({"username": name, "uid": uid, "groups": groups, "extra": extra});
            let of_user = |why: String| format!("oidc: error evaluating user info validation rule: {why}");
            check_rules(&self.user_rules, &seen).map_err(of_user)?;
        }
        Ok(user)
    }

    fn name(&self, claims: &Claims, seen: &Value) -> Result<String, String> {
        match &self.username {
            Some(Source::Expression(expression)) => {
                let failed = |why: String| format!("oidc: error evaluating username claim expression: {why}");
                match expression.evaluate(seen).map_err(failed)? {
                    Given::Text(name) if name.is_empty() => {
                        Err("oidc: empty username via CEL expression is not allowed".to_owned())
                    }
                    Given::Text(name) => Ok(name),
                    _ => Err(failed("username claim expression must return a string".to_owned())),
                }
            }
            Some(Source::Claim { name, prefix }) => {
                let value = claims.required_text(name);
                let value = value.map_err(|why| format!("oidc: parse username claims {}: {why}", go_quote(name)))?;
                // Somebody who only says that an address is theirs is not believed.
                if name == "email"
                    && let Some(verified) = claims.flag("email_verified")
                    && !verified.map_err(|why| format!("oidc: parse 'email_verified' claim: {why}"))?
                {
                    return Err("oidc: email not verified".to_owned());
                }
                Ok(format!("{prefix}{value}"))
            }
            None => Err("oidc: parse username claims \"\": claim not present".to_owned()),
        }
    }

    fn groups(&self, claims: &Claims, seen: &Value) -> Result<Vec<String>, String> {
        match &self.groups {
            None => Ok(Vec::new()),
            Some(Source::Claim { name, prefix }) => {
                let groups = claims.texts(name).unwrap_or(Ok(Vec::new()));
                let groups = groups.map_err(|why| format!("oidc: parse groups claim {}: {why}", go_quote(name)))?;
                Ok(groups.into_iter().map(|group| format!("{prefix}{group}")).collect())
            }
            Some(Source::Expression(expression)) => {
                let failed = |why: String| format!("oidc: error evaluating group claim expression: {why}");
                texts(expression.evaluate(seen).map_err(failed)?).map_err(failed)
            }
        }
    }

    fn uid(&self, claims: &Claims, seen: &Value) -> Result<String, String> {
        match &self.uid {
            None => Ok(String::new()),
            Some(Source::Claim { name, .. }) => {
                claims.required_text(name).map_err(|why| format!("oidc: parse uid claim {}: {why}", go_quote(name)))
            }
            Some(Source::Expression(expression)) => {
                let failed = |why: String| format!("oidc: error evaluating uid claim expression: {why}");
                match expression.evaluate(seen).map_err(failed)? {
                    Given::Text(uid) => Ok(uid),
                    _ => Err(failed("uid claim expression must return a string".to_owned())),
                }
            }
        }
    }

    fn extra(&self, claims: &Claims, seen: &Value) -> Result<BTreeMap<String, Vec<String>>, String> {
        let mut extra = BTreeMap::new();
        if let Some(Ok(id)) = claims.text("jti").filter(|id| id.as_ref().is_ok_and(|id| !id.is_empty())) {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, expression) in &self.extra {
            let source = expression.source();
            let failed = |why| format!("oidc: error evaluating extra claim expression: {source}: {why}");
            let values = texts(expression.evaluate(seen)?).map_err(failed)?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        Ok(extra)
    }

    fn check_required(&self, claims: &Claims) -> Result<(), String> {
        for (name, wanted) in &self.required {
            if !claims.has(name) {
                return Err(format!("oidc: required claim {name} not present in ID token"));
            }
            let value = claims.required_text(name).map_err(|why| format!("oidc: parse claim {name}: {why}"))?;
            if value != *wanted {
                return Err(format!(
                    "oidc: required claim {name} value does not match. Got = {value}, want = {wanted}"
                ));
            }
        }
        Ok(())
    }
}

fn check_rules(rules: &[ValidationRule], seen: &Value) -> Result<(), String> {
    for ValidationRule { expression, message } in rules {
        match expression.evaluate(seen)? {
            Given::Bool(true) => {}
            Given::Bool(false) => {
                return Err(format!("validation expression '{}' failed: {message}", expression.source()));
            }
            _ => return Err("validation expression must return a boolean".to_owned()),
        }
    }
    Ok(())
}

/// A text or a list of texts. Those that are empty are not there.
fn texts(given: Given) -> Result<Vec<String>, String> {
    let mut texts = match given {
        Given::Text(text) => vec![text],
        Given::Texts(texts) => texts,
        Given::Null => Vec::new(),
        Given::Bool(_) | Given::Other => {
            return Err("expression must return a string or a list of strings".to_owned());
        }
    };
    texts.retain(|text| !text.is_empty());
    Ok(texts)
}
