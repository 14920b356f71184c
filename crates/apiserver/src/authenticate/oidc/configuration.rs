//! Who issues tokens, and what their claims mean. In: the flags of kube-apiserver that begin with `--oidc-`, or the file of
//! `--authentication-config`. Out: the same configuration for both, with the field names of `apiserver.config.k8s.io`. Whether it
//! makes sense is judged in `validation`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// Who issues tokens besides the server itself, and who is anonymous: an `AuthenticationConfiguration` of
/// `apiserver.config.k8s.io`.
///
/// ```
/// use konverge_apiserver::AuthenticationConfiguration;
/// let configuration = AuthenticationConfiguration::parse(
///     "apiVersion: apiserver.config.k8s.io/v1
/// kind: AuthenticationConfiguration
/// jwt:
/// - issuer: {url: https://login.example.com, audiences: [kubernetes]}
///   claimMappings: {username: {claim: sub, prefix: ''}}",
/// )?;
/// assert_eq!(configuration.jwt.len(), 1);
/// # Ok::<(), konverge_apiserver::AuthenticationConfigError>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthenticationConfiguration {
    api_version: String,
    kind: String,
    /// One for each issuer.
    pub jwt: Vec<JwtConfiguration>,
    /// Who is anonymous; none if the file does not say.
    pub anonymous: Option<AnonymousConfiguration>,
}

/// Why an authentication configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AuthenticationConfigError(pub(super) String);

/// An issuer, and what its tokens say of users: `jwt` of the configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct JwtConfiguration {
    pub(super) issuer: IssuerConfiguration,
    pub(super) claim_validation_rules: Vec<ClaimValidationRule>,
    pub(super) claim_mappings: ClaimMappings,
    pub(super) user_validation_rules: Vec<UserValidationRule>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct IssuerConfiguration {
    pub url: String,
    #[serde(rename = "discoveryURL")]
    pub discovery_url: String,
    /// PEM; empty for the CAs of the system.
    pub certificate_authority: String,
    pub audiences: Vec<String>,
    pub audience_match_policy: String,
    pub egress_selector_type: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ClaimValidationRule {
    pub claim: String,
    pub required_value: String,
    pub expression: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ClaimMappings {
    pub username: ClaimOrExpression,
    pub groups: ClaimOrExpression,
    pub uid: ClaimOrExpression,
    pub extra: Vec<ExtraMapping>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ClaimOrExpression {
    pub claim: String,
    pub prefix: Option<String>,
    pub expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ExtraMapping {
    pub key: String,
    pub value_expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct UserValidationRule {
    pub expression: String,
    pub message: String,
}

/// Who is anonymous: `anonymous` of the configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct AnonymousConfiguration {
    /// Whether requests without a credential are answered at all.
    pub enabled: bool,
    /// For which paths; for all if there are none.
    pub conditions: Vec<AnonymousCondition>,
}

/// A path that may be asked for without a credential.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnonymousCondition {
    /// The whole path.
    pub path: String,
}

/// The flags of kube-apiserver about one OpenID Connect issuer.
#[derive(Clone, Debug, Default)]
pub struct OidcFlags {
    /// `--oidc-issuer-url`
    pub issuer_url: String,
    /// `--oidc-client-id`
    pub client_id: String,
    /// `--oidc-username-claim`; `sub` if it is empty.
    pub username_claim: String,
    /// `--oidc-username-prefix`; `-` for none, empty for the default.
    pub username_prefix: String,
    /// `--oidc-groups-claim`
    pub groups_claim: String,
    /// `--oidc-groups-prefix`
    pub groups_prefix: String,
    /// `--oidc-required-claim`
    pub required_claims: BTreeMap<String, String>,
    /// `--oidc-signing-algs`; `RS256` if there are none.
    pub signing_algs: Vec<String>,
    /// The content of `--oidc-ca-file`, PEM; empty for the CAs of the system.
    pub certificate_authority: String,
}

impl AuthenticationConfiguration {
    /// Reads the file of `--authentication-config`, in YAML or JSON.
    pub fn parse(text: &str) -> Result<Self, AuthenticationConfigError> {
        if text.is_empty() {
            return Err(AuthenticationConfigError("empty config data".to_owned()));
        }
        let unreadable = |why: &dyn std::fmt::Display| AuthenticationConfigError(why.to_string());
        let mut json: Value = serde_saphyr::from_str(text).map_err(|why| unreadable(&why))?;
        remove_nulls(&mut json);
        let read: Self = serde_json::from_value(json).map_err(|why| unreadable(&why))?;
        const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
        let version = read.api_version.strip_prefix("apiserver.config.k8s.io/").unwrap_or_default();
        if !VERSIONS.contains(&version) || read.kind != "AuthenticationConfiguration" {
            return Err(AuthenticationConfigError(format!(
                "no kind {:?} is registered for version {:?}; the file needs \"apiVersion: apiserver.config.k8s.io/v1\" and \
                 \"kind: AuthenticationConfiguration\"",
                read.kind, read.api_version
            )));
        }
        Ok(read)
    }

    /// What flags say in the words of the file.
    pub fn of_flags(flags: OidcFlags) -> Self {
        let claim = if flags.username_claim.is_empty() { "sub".to_owned() } else { flags.username_claim };
        let prefix = match &*flags.username_prefix {
            "-" => String::new(),
            // Two issuers may have a user of the same name, but not of the same address.
            "" if claim != "email" => format!("{}#", flags.issuer_url),
            prefix => prefix.to_owned(),
        };
        let mapped =
            |claim, prefix: String| ClaimOrExpression { claim, prefix: Some(prefix), ..ClaimOrExpression::default() };
        let groups = match flags.groups_claim.is_empty() {
            true => ClaimOrExpression::default(),
            false => mapped(flags.groups_claim, flags.groups_prefix),
        };
        let required = |(claim, required_value)| ClaimValidationRule { claim, required_value, ..Default::default() };
        let issuer = IssuerConfiguration {
            url: flags.issuer_url,
            audiences: vec![flags.client_id],
            certificate_authority: flags.certificate_authority,
            ..IssuerConfiguration::default()
        };
        let jwt = JwtConfiguration {
            issuer,
            claim_validation_rules: flags.required_claims.into_iter().map(required).collect(),
            claim_mappings: ClaimMappings { username: mapped(claim, prefix), groups, ..ClaimMappings::default() },
            user_validation_rules: Vec::new(),
        };
        Self { jwt: vec![jwt], ..Self::default() }
    }
}

/// As in Go, a field that is null is one that is not there.
fn remove_nulls(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}
