//! Tokens that never change. In: the text of a token file: lines of token, user name, user uid, and perhaps groups in quotes.
//! Out: the user of a token. Only hashes of tokens are kept, so that no log or dump shows one, and comparing them reveals
//! nothing by how long it takes.

use std::collections::HashMap;
use std::sync::Arc;

use ring::digest::{SHA256, digest};

use crate::user::UserInfo;

/// Users by their tokens.
#[derive(Clone, Debug, Default)]
pub struct StaticTokens(Arc<HashMap<Hash, UserInfo>>);

type Hash = [u8; 32];

/// Why a token file cannot be used, in the words of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token file '{path}' must have at least 3 columns (token, user name, user uid), found {columns}")]
pub struct TokenFileError {
    path: String,
    columns: usize,
}

impl StaticTokens {
    /// Reads the text of a token file; errors name its path.
    pub fn parse(text: &str, path: &str) -> Result<Self, TokenFileError> {
        let mut tokens = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let columns = columns(line);
            let [token, name, uid, rest @ ..] = columns.as_slice() else {
                return Err(TokenFileError { path: path.to_owned(), columns: columns.len() });
            };
            if token.is_empty() {
                tracing::warn!("a line of the token file has an empty token; it is passed over");
                continue;
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default();
            let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
            let groups = groups.map(str::to_owned).collect();
            tokens.add(token, UserInfo { uid: uid.clone(), groups, ..UserInfo::named(name) });
        }
        Ok(tokens)
    }

    /// Adds the token of a user.
    pub fn add(&mut self, token: &str, user: UserInfo) {
        Arc::make_mut(&mut self.0).insert(hash(token), user);
    }

    pub(super) fn find(&self, token: &str) -> Option<&UserInfo> {
        if self.0.is_empty() { None } else { self.0.get(&hash(token)) }
    }
}

fn hash(token: &str) -> Hash {
    digest(&SHA256, token.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The columns of a line of comma-separated values; a column in quotes may have commas in it.
fn columns(line: &str) -> Vec<String> {
    let mut columns = vec![String::new()];
    let mut in_quotes = false;
    for letter in line.chars() {
        match letter {
            '"' => in_quotes = !in_quotes,
            ',' if !in_quotes => columns.push(String::new()),
            _ => columns.last_mut().expect("there is a column from the beginning").push(letter),
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_at_least_three_columns() {
        let error = StaticTokens::parse("secret,alice\n", "tokens.csv").unwrap_err();
        let expect = "token file 'tokens.csv' must have at least 3 columns (token, user name, user uid), found 2";
        assert_eq!(error.to_string(), expect);
        let tokens = StaticTokens::parse("secret,alice,7\n", "tokens.csv").unwrap();
        assert!(!format!("{tokens:?}").contains("secret"));
    }
}
