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
#[non_exhaustive]
pub enum TokenFileError {
    /// A line lacks something.
    #[error("token file '{path}' must have at least 3 columns (token, user name, user uid), found {columns}")]
    Columns {
        /// The file.
        path: String,
        /// What there is.
        columns: usize,
    },
    /// Quotes are where none may be, so nobody can say what belongs to which column.
    #[error("token file '{path}': parse error on line {line}, column {column}: {why}")]
    Quotes {
        /// The file.
        path: String,
        /// Where, from one.
        line: usize,
        /// The byte there, from one.
        column: usize,
        /// In the words of Go.
        why: &'static str,
    },
}

impl StaticTokens {
    /// Reads the text of a token file; errors name its path.
    pub fn parse(text: &str, path: &str) -> Result<Self, TokenFileError> {
        let mut tokens = Self::default();
        let records = records(text).map_err(|(line, column, why)| {
            let path = path.to_owned();
            TokenFileError::Quotes { path, line, column, why }
        })?;
        for columns in records {
            let [token, name, uid, rest @ ..] = columns.as_slice() else {
                return Err(TokenFileError::Columns { path: path.to_owned(), columns: columns.len() });
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

const BARE: &str = "bare \" in non-quoted-field";
const MISPLACED: &str = "extraneous or missing \" in quoted-field";

fn hash(token: &str) -> Hash {
    digest(&SHA256, token.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The records of comma-separated values, as Go reads them: a column that begins with a quote ends with one, and has commas, line breaks
/// and, doubled, quotes in it; other columns have none. The error is a line, a byte of it, and what is wrong there.
fn records(text: &str) -> Result<Vec<Vec<String>>, (usize, usize, &'static str)> {
    let (mut records, mut columns, mut column) = (Vec::new(), Vec::new(), String::new());
    let mut letters = text.char_indices().peekable();
    let (mut line, mut line_begins, mut column_begins) = (1, 0, true);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\r' if letters.peek().is_some_and(|(_, next)| *next == '\n') => continue,
            '\n' => {
                if !columns.is_empty() || !column_begins {
                    columns.push(std::mem::take(&mut column));
                    records.push(std::mem::take(&mut columns));
                }
                (line, line_begins, column_begins) = (line + 1, at + 1, true);
                continue;
            }
            ',' => {
                columns.push(std::mem::take(&mut column));
                column_begins = true;
                continue;
            }
            '"' if column_begins => loop {
                match letters.next() {
                    Some((_, '"')) if letters.next_if(|(_, next)| *next == '"').is_some() => column.push('"'),
                    Some((at, '"')) => match letters.peek() {
                        None | Some((_, ',' | '\n' | '\r')) => break,
                        Some(_) => return Err((line, at - line_begins + 1, MISPLACED)),
                    },
                    Some((at, '\n')) => {
                        (line, line_begins) = (line + 1, at + 1);
                        column.push('\n');
                    }
                    Some((_, letter)) => column.push(letter),
                    None => {
                        // Go says where the last line ends.
                        let text = text.strip_suffix('\n').unwrap_or(text);
                        let last = text.rsplit('\n').next().unwrap_or_default().len();
                        let ended = usize::from(line_begins > text.len());
                        return Err((line - ended, last + ended + 1, MISPLACED));
                    }
                }
            },
            '"' => return Err((line, at - line_begins + 1, BARE)),
            letter => column.push(letter),
        }
        column_begins = false;
    }
    if !columns.is_empty() || !column_begins {
        columns.push(column);
        records.push(columns);
    }
    Ok(records)
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

    #[test]
    fn columns_are_those_of_go() {
        let check = |text: &str, expect: &[&[&str]]| assert_eq!(records(text).unwrap(), expect, "{text}");
        check("a,b,c\n\nd,e,f,\"g,h\"\r\n", &[&["a", "b", "c"], &["d", "e", "f", "g,h"]]);
        check("a,b,\"say \"\"hi\"\"\nx\",", &[&["a", "b", "say \"hi\"\nx", ""]]);
        check("a,\"\",c", &[&["a", "", "c"]]);
        for (text, line, column, why) in [
            ("tok1,bob,u1,\"dev\ntok2,root,u2,\"system:masters\"\n", 2, 14, MISPLACED),
            ("tok1,bob,u1,\"dev\ntok2,root,u2,system:masters\n", 2, 29, MISPLACED),
            ("tok1,bob,u1,\"dev\"x,\"system:masters\"\n", 1, 17, MISPLACED),
            ("tok1,bob,u1,de\"v,system:masters\n", 1, 15, BARE),
        ] {
            assert_eq!(records(text), Err((line, column, why)), "{text}");
        }
    }
}
