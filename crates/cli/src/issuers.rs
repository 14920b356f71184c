//! Who issues tokens besides the server itself. In: the flags of kube-apiserver about OpenID Connect, on any of the program's command
//! lines. Out: authenticators, or the refusal in the words of kube-apiserver. Issuers are not asked here: a server starts without
//! them, too.

use std::collections::BTreeMap;
use std::path::PathBuf;

use konverge_apiserver::{Anonymous, AuthenticationConfiguration, JwtAuthenticator, OidcFlags};

use crate::users::{UsersError, read};

/// Who issues tokens: arguments of `konverge apiserver` and `konverge dev`, by the names of kube-apiserver.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct IssuerArgs {
    /// Believe tokens of this OpenID Connect issuer; begins with https
    #[arg(long, value_name = "URL", requires = "oidc_client_id", conflicts_with = "authentication_config")]
    oidc_issuer_url: Option<String>,
    /// The audience that tokens of the issuer have to be for
    #[arg(long, value_name = "ID", requires = "oidc_issuer_url")]
    oidc_client_id: Option<String>,
    /// The claim that is the name of the user [default: sub]
    #[arg(long, value_name = "CLAIM", requires = "oidc_issuer_url")]
    oidc_username_claim: Option<String>,
    /// What is put in front of names; - for nothing [default: the issuer and #, unless the claim is email]
    #[arg(long, value_name = "TEXT", requires = "oidc_issuer_url", allow_hyphen_values = true)]
    oidc_username_prefix: Option<String>,
    /// The claim that has the groups of the user
    #[arg(long, value_name = "CLAIM", requires = "oidc_issuer_url")]
    oidc_groups_claim: Option<String>,
    /// What is put in front of groups
    #[arg(long, value_name = "TEXT", requires = "oidc_issuer_url", allow_hyphen_values = true)]
    oidc_groups_prefix: Option<String>,
    /// A claim that tokens must have, with its value; may be repeated
    #[arg(long, value_name = "CLAIM=VALUE", requires = "oidc_issuer_url", value_parser = pair)]
    oidc_required_claim: Vec<(String, String)>,
    /// How tokens may be signed [default: RS256]
    #[arg(long, value_name = "ALGS", requires = "oidc_issuer_url", value_delimiter = ',')]
    oidc_signing_algs: Vec<String>,
    /// Trust the issuer's certificate if one of these CAs has signed it [default: the CAs of the system]
    #[arg(long, value_name = "FILE", requires = "oidc_issuer_url")]
    oidc_ca_file: Option<PathBuf>,
    /// A file with an AuthenticationConfiguration: several issuers, and who is anonymous. Read once, at the start
    #[arg(long, value_name = "FILE")]
    authentication_config: Option<PathBuf>,
}

/// Who issues tokens.
#[derive(Clone, Debug, Default)]
pub(crate) enum TokenIssuers {
    #[default]
    None,
    /// The flags about one issuer, and the file with its CAs.
    Flags(Box<OidcFlags>, Option<PathBuf>),
    File(PathBuf),
}

impl IssuerArgs {
    /// What the arguments say.
    pub(crate) fn token_issuers(&self) -> TokenIssuers {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        match (&self.authentication_config, &self.oidc_issuer_url) {
            (Some(path), _) => TokenIssuers::File(path.clone()),
            (None, None) => TokenIssuers::None,
            (None, Some(issuer_url)) => {
                let flags = OidcFlags {
                    issuer_url: issuer_url.clone(),
                    client_id: text(&self.oidc_client_id),
                    username_claim: text(&self.oidc_username_claim),
                    username_prefix: text(&self.oidc_username_prefix),
                    groups_claim: text(&self.oidc_groups_claim),
                    groups_prefix: text(&self.oidc_groups_prefix),
                    required_claims: self.oidc_required_claim.iter().cloned().collect(),
                    signing_algs: self.oidc_signing_algs.clone(),
                    certificate_authority: String::new(),
                };
                TokenIssuers::Flags(Box::new(flags), self.oidc_ca_file.clone())
            }
        }
    }
}

impl TokenIssuers {
    /// Reads the files that are named. Gives the authenticators, and who is anonymous if a file says so.
    pub(crate) fn load(&self, own: &[String]) -> Result<(Vec<JwtAuthenticator>, Option<Anonymous>), UsersError> {
        match self {
            Self::None => Ok((Vec::new(), None)),
            Self::Flags(flags, ca) => {
                let mut flags = flags.clone();
                if let Some(path) = ca {
                    flags.certificate_authority = read(path)?;
                }
                let algorithms = flags.signing_algs.clone();
                let configuration = AuthenticationConfiguration::of_flags(*flags);
                Ok((configuration.authenticators(Some(&algorithms), own)?, None))
            }
            Self::File(path) => {
                let shown = || path.display().to_string();
                let configuration = AuthenticationConfiguration::parse(&read(path)?)
                    .map_err(|source| UsersError::AuthenticationFile { path: shown(), source })?;
                let authenticators = configuration.authenticators(None, own)?;
                let anonymous = configuration.anonymous.map(|anonymous| match anonymous.enabled {
                    false => Anonymous::Refused,
                    true if anonymous.conditions.is_empty() => Anonymous::Unprivileged,
                    true => Anonymous::AtPaths(anonymous.conditions.into_iter().map(|at| at.path).collect()),
                });
                Ok((authenticators, anonymous))
            }
        }
    }
}

/// `claim=value`
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (claim, value) = text.split_once('=').ok_or_else(|| format!("malformed pair, expect string=string: {text}"))?;
    Ok((claim.trim().to_owned(), value.trim().to_owned()))
}

/// Pairs of a flag that may be repeated, as kube-apiserver reads them.
pub(crate) fn pairs<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<BTreeMap<String, String>, String> {
    values.into_iter().map(pair).collect()
}
