//! Which names are those of secrets. In: a name of a field, a variable or a flag. Out: yes or no. Pure.

/// What the names of secrets have in them, in lower case and without separators.
const PARTS: [&str; 24] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "token",
    "secret",
    "credential",
    "apikey",
    "accesskey",
    "privatekey",
    "signingkey",
    "encryptionkey",
    "sshkey",
    "accountkey",
    "clientkey",
    "tlskey",
    "authorization",
    "bearer",
    "cookie",
    "connectionstring",
    "kubeconfig",
    "dockerconfig",
    "htpasswd",
    "pgpass",
];

/// Names that end with `key` and are no secrets.
const PUBLIC_KEYS: [&str; 6] = ["topologykey", "publickey", "partitionkey", "labelkey", "sortkey", "foreignkey"];

/// How names end that say where a secret is, or something about it.
const REFERENCES: [&str; 18] = [
    "name",
    "names",
    "ref",
    "refs",
    "namespace",
    "path",
    "file",
    "seconds",
    "selector",
    "type",
    "policy",
    "mode",
    "kind",
    "mount",
    "count",
    "version",
    "limit",
    "ttl",
];

fn plain(name: &str) -> String {
    name.chars().filter(|one| one.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Whether values of this name are secrets.
pub(super) fn is_sensitive(name: &str) -> bool {
    let name = plain(name);
    let is_key = name.ends_with("key") && name != "key" && !PUBLIC_KEYS.iter().any(|public| name.ends_with(public));
    is_key || PARTS.iter().any(|part| name.contains(part))
}

/// Whether a name says where a secret is: `secretName`, `tokenPath`, `passwordRef`.
pub(super) fn is_reference(name: &str) -> bool {
    let name = plain(name);
    // The user of a name is a part of a credential.
    name != "username" && REFERENCES.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_and_of_references() {
        for (name, sensitive, reference) in [
            ("password", true, false),
            ("DB_PASSWORD", true, false),
            ("PGPASSWORD", true, false),
            ("apiKey", true, false),
            ("aws-secret-access-key", true, false),
            ("authToken", true, false),
            ("client-key-data", true, false),
            ("secretName", true, true),
            ("tokenPath", true, true),
            ("secretKeyRef", true, true),
            ("tokenExpirationSeconds", true, true),
            ("topologyKey", false, false),
            ("key", false, false),
            ("replicas", false, false),
            ("image", false, false),
            ("encryption_key", true, false),
            ("masterKey", true, false),
            ("publicKey", false, false),
        ] {
            assert_eq!((is_sensitive(name), is_reference(name)), (sensitive, reference), "{name}");
        }
    }
}
