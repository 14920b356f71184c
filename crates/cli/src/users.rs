//! Who the users of `konverge apiserver` and `konverge dev` are, and who decides what they may do. In: arguments and the files of
//! the data directory. Out: options of the API server, and the token of the administrator for the kubeconfig. Keys and tokens
//! are made once, kept in files that only their owner can read, and never logged.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use ring::rand::{SecureRandom, SystemRandom};

use konverge_apiserver::{
    Anonymous, Authentication, AuthenticationConfigError, AuthorizationMode, KeyError, ServiceAccountIssuer,
    StaticTokens, TokenFileError, UserInfo, WebhookIdentity,
};
use konverge_serve::{CertificateError, ClientCa};

use crate::data_dir::DataDir;
use crate::issuers::IssuerArgs;
use crate::kubeconfig::write_private;

/// The group whose members may do everything.
const MASTERS: &str = "system:masters";

/// The user of the kubeconfig.
const ADMINISTRATOR: &str = "konverge-admin";

/// Arguments about users.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct UserArgs {
    /// Who decides what users may do, asked in this order
    #[arg(long, value_enum, value_delimiter = ',', default_value = "RBAC", value_name = "MODE[,MODE]")]
    pub authorization_mode: Vec<Mode>,
    /// What requests without a credential may do: everything, what the roles of a cluster let everybody do (public: health and
    /// version), or nothing [default: public; everything for `konverge dev` on a loopback address]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub anonymous: Option<AnonymousRights>,
    /// A file of users with tokens: lines of token,name,uid,"group,group"
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// Believe client certificates of this CA: the common name is the user, organizations are groups
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// The key that signs tokens of service accounts [default: one that is made and kept in the data directory]
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Keys that verify tokens of service accounts; may be repeated [default: the one that signs]
    #[arg(long, value_name = "FILE", requires = "service_account_signing_key_file")]
    pub service_account_key_file: Vec<PathBuf>,
    /// Who issues tokens of service accounts, a URL; may be repeated, then others are believed, too
    #[arg(long, value_name = "URL")]
    pub service_account_issuer: Vec<String>,
    /// Show this certificate to webhooks that ask for one
    #[arg(long, value_name = "FILE", requires = "webhook_client_key")]
    pub webhook_client_certificate: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "webhook_client_certificate")]
    pub webhook_client_key: Option<PathBuf>,
    #[command(flatten)]
    pub issuers: IssuerArgs,
}

/// Who decides what users may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// What roles and bindings allow
    #[value(name = "RBAC")]
    Rbac,
    /// Everything
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    /// Nothing, except for members of system:masters
    #[value(name = "AlwaysDeny")]
    AlwaysDeny,
    /// For users that are nodes, what a kubelet needs: its own node, the pods on it, and what they refer to
    #[value(name = "Node")]
    Node,
}

/// What requests without a credential may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnonymousRights {
    /// Everything. Only on loopback addresses
    Everything,
    /// What roles let system:anonymous do: on a new cluster, read health and version
    Public,
    /// Nothing: they are answered with 401
    Nothing,
}

/// Why the users cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsersError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    TokenFile(#[from] TokenFileError),
    #[error("{}: the key of service accounts cannot be used", path.display())]
    Key { path: PathBuf, source: KeyError },
    #[error("unable to load client CA provider from {}", path.display())]
    ClientCa { path: PathBuf, source: CertificateError },
    #[error("{} and its key cannot be shown to webhooks: {why}", path.display())]
    WebhookIdentity { path: PathBuf, why: String },
    #[error("certificates of the server's own CA cannot be believed")]
    OwnCa { source: CertificateError },
    #[error("failed to load authentication configuration from file {path:?}")]
    AuthenticationFile { path: String, source: AuthenticationConfigError },
    #[error(transparent)]
    Issuers(#[from] AuthenticationConfigError),
    #[error(
        "anonymous: Forbidden: {0} flag cannot be set when anonymous field is configured in authentication configuration file"
    )]
    AnonymousTwice(&'static str),
}

/// Users, as the server and the kubeconfig need them.
pub(crate) struct Users {
    pub authentication: Authentication,
    pub client_ca: Option<ClientCa>,
    /// The token of the administrator.
    pub token: String,
    /// Whether requests without a credential may do everything.
    pub open: bool,
}

impl UserArgs {
    /// The authorizers to ask.
    pub(crate) fn authorization(&self) -> Vec<AuthorizationMode> {
        let mode = |mode: &Mode| match mode {
            Mode::Rbac => AuthorizationMode::Rbac,
            Mode::AlwaysAllow => AuthorizationMode::AlwaysAllow,
            Mode::AlwaysDeny => AuthorizationMode::AlwaysDeny,
            Mode::Node => AuthorizationMode::Node,
        };
        self.authorization_mode.iter().map(mode).collect()
    }

    /// Whether requests without a credential may do everything.
    pub(crate) fn is_open(&self, anonymous: AnonymousRights) -> bool {
        let allows_all = self.authorization_mode.contains(&Mode::AlwaysAllow);
        anonymous == AnonymousRights::Everything || (allows_all && anonymous != AnonymousRights::Nothing)
    }

    /// Reads what the arguments name, and what the data directory keeps. Makes what is not there; without a data directory that
    /// is gone with the process. Client certificates of `own_ca` are believed, too.
    pub(crate) fn load(
        &self,
        anonymous: AnonymousRights,
        data_dir: Option<&DataDir>,
        own_ca: Option<&str>,
    ) -> Result<Users, UsersError> {
        let mut tokens = match &self.token_auth_file {
            Some(path) => read_tokens(path)?,
            None => StaticTokens::default(),
        };
        let token = kept(data_dir.map(DataDir::token), new_token)?;
        let administrator = UserInfo { groups: vec![MASTERS.to_owned()], ..UserInfo::named(ADMINISTRATOR) };
        tokens.add(&token, administrator);
        let service_accounts = match &self.service_account_signing_key_file {
            Some(path) => read_issuer(path, &self.service_account_key_file)?,
            None => {
                let path = data_dir.map(DataDir::service_account_key);
                let pem = kept(path.clone(), ServiceAccountIssuer::generate_key)?;
                let path = path.unwrap_or_default();
                ServiceAccountIssuer::new(&pem, &[]).map_err(|source| UsersError::Key { path, source })?
            }
        };
        let service_accounts = service_accounts.named(self.service_account_issuer.clone(), Vec::new());
        let (jwt, from_file) = self.issuers.token_issuers().load(service_accounts.issuers())?;
        let anonymous = match (from_file, anonymous) {
            (Some(_), _) if self.anonymous.is_some() => return Err(UsersError::AnonymousTwice("--anonymous")),
            (Some(anonymous), _) => anonymous,
            (None, AnonymousRights::Everything) => Anonymous::InGroups(vec![MASTERS.to_owned()]),
            (None, AnonymousRights::Public) => Anonymous::Unprivileged,
            (None, AnonymousRights::Nothing) => Anonymous::Refused,
        };
        let open = match &anonymous {
            Anonymous::InGroups(_) => true,
            Anonymous::Unprivileged | Anonymous::AtPaths(_) => self.authorization_mode.contains(&Mode::AlwaysAllow),
            Anonymous::Refused => false,
        };
        let client_ca = self.client_ca(own_ca)?;
        let authentication = Authentication { tokens, service_accounts, jwt, anonymous };
        Ok(Users { authentication, client_ca, token, open })
    }

    /// The certificate for webhooks that ask for one.
    pub(crate) fn webhook_identity(&self) -> Result<Option<WebhookIdentity>, UsersError> {
        let (Some(path), Some(key)) = (&self.webhook_client_certificate, &self.webhook_client_key) else {
            return Ok(None);
        };
        let identity = WebhookIdentity::from_pem(read(path)?.as_bytes(), read(key)?.as_bytes());
        identity.map(Some).map_err(|why| UsersError::WebhookIdentity { path: path.clone(), why })
    }

    /// The CAs whose client certificates are believed.
    fn client_ca(&self, own_ca: Option<&str>) -> Result<Option<ClientCa>, UsersError> {
        let Some(path) = &self.client_ca_file else {
            let refused = |source| UsersError::OwnCa { source };
            return own_ca.map(|pem| ClientCa::from_pem(pem).map_err(refused)).transpose();
        };
        // The given file is looked at by itself, so that the error names it.
        let given = read_client_ca(path)?;
        let Some(own_ca) = own_ca else { return Ok(Some(given)) };
        let both = format!("{}\n{own_ca}", read(path)?);
        ClientCa::from_pem(&both).map(Some).map_err(|source| UsersError::ClientCa { path: path.clone(), source })
    }
}

/// A user of the program itself: members of `system:masters` may do everything.
pub(crate) fn master(name: &str) -> UserInfo {
    UserInfo { groups: [MASTERS, "system:authenticated"].map(str::to_owned).into(), ..UserInfo::named(name) }
}

/// Reads a token file.
pub(crate) fn read_tokens(path: &Path) -> Result<StaticTokens, UsersError> {
    Ok(StaticTokens::parse(&read(path)?, &path.display().to_string())?)
}

/// Reads the key that signs tokens of service accounts, and those that verify them.
pub(crate) fn read_issuer(signing: &Path, verifying: &[PathBuf]) -> Result<ServiceAccountIssuer, UsersError> {
    let pem = read(signing)?;
    let keys = verifying.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    ServiceAccountIssuer::new(&pem, &keys).map_err(|source| UsersError::Key { path: signing.to_owned(), source })
}

/// Reads the CA of client certificates.
pub(crate) fn read_client_ca(path: &Path) -> Result<ClientCa, UsersError> {
    ClientCa::from_pem(&read(path)?).map_err(|source| UsersError::ClientCa { path: path.to_owned(), source })
}

pub(crate) fn read(path: &Path) -> Result<String, UsersError> {
    fs::read_to_string(path).map_err(|source| UsersError::Read { path: path.to_owned(), source })
}

/// A secret that is kept in a file: the same at each start.
fn kept(path: Option<PathBuf>, make: impl FnOnce() -> String) -> Result<String, UsersError> {
    let Some(path) = path else { return Ok(make()) };
    match fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => Ok(text.trim_end().to_owned()),
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(UsersError::Read { path, source }),
        _ => {
            let made = make();
            let text = format!("{}\n", made.trim_end());
            write_private(&path, &text).map_err(|source| UsersError::Write { path, source })?;
            Ok(made.trim_end().to_owned())
        }
    }
}

/// A random token of 256 bits.
fn new_token() -> String {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_kept_for_their_owner_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("new/token");
        let first = kept(Some(path.clone()), new_token).expect("made");
        assert_eq!(kept(Some(path.clone()), new_token).expect("kept"), first);
        assert_ne!(kept(None, new_token).expect("made"), first);
        assert_eq!(first.len(), 64);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        }
    }
}
