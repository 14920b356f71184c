//! From text to tokens. In: an expression. Out: its tokens with their positions in characters, and an issue for each
//! character that no token begins with. White space and comments are left out.

use crate::source::Issues;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    End,
    Ident,
    /// An identifier in backquotes.
    Quoted,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    /// An operator, a bracket, or one of `in`, `true`, `false`, `null`.
    Symbol,
}

#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub text: String,
    pub offset: u32,
}

impl Token {
    pub(crate) fn is(&self, symbol: &str) -> bool {
        self.kind == TokenKind::Symbol && self.text == symbol
    }
}

const SYMBOLS: [&str; 27] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*",
    "/", "%", "=", "&", "|",
];
const WORDS: [&str; 4] = ["in", "true", "false", "null"];

pub(crate) fn tokens(text: &str, issues: &mut Issues) -> Vec<Token> {
    let mut lexer = Lexer { text: text.chars().collect(), at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank();
        let offset = lexer.at;
        if lexer.at >= lexer.text.len() {
            tokens.push(Token { kind: TokenKind::End, text: "<EOF>".to_owned(), offset: offset as u32 });
            return tokens;
        }
        match lexer.next() {
            Some(kind) => {
                let text: String = lexer.text[offset..lexer.at].iter().collect();
                tokens.push(Token { kind, text, offset: offset as u32 });
            }
            None => {
                let end = lexer.at.max(offset + 1).min(lexer.text.len());
                let text: String = lexer.text[offset..end].iter().collect();
                let shown = text.replace('\n', "\\n").replace('\t', "\\t").replace('\r', "\\r");
                issues.report(offset as u32, format!("Syntax error: token recognition error at: '{shown}'"));
                lexer.at = end;
            }
        }
    }
}

struct Lexer {
    text: Vec<char>,
    at: usize,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> char {
        self.text.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn skip_blank(&mut self) {
        loop {
            while self.at < self.text.len() && matches!(self.text[self.at], '\t' | ' ' | '\r' | '\n' | '\u{c}') {
                self.at += 1;
            }
            if self.peek(0) != '/' || self.peek(1) != '/' {
                return;
            }
            while self.at < self.text.len() && self.text[self.at] != '\n' {
                self.at += 1;
            }
        }
    }

    /// The kind of the next token, which ends at `self.at` then; `None` where no token is. Then `self.at` is where the
    /// characters that were tried end.
    fn next(&mut self) -> Option<TokenKind> {
        let first = self.peek(0);
        if first.is_ascii_digit() || (first == '.' && self.peek(1).is_ascii_digit()) {
            return Some(self.number());
        }
        if let Some(kind) = self.string() {
            return kind;
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let start = self.at;
            while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == '_' {
                self.at += 1;
            }
            let word: String = self.text[start..self.at].iter().collect();
            return Some(if WORDS.contains(&word.as_str()) { TokenKind::Symbol } else { TokenKind::Ident });
        }
        if first == '`' {
            let start = self.at;
            self.at += 1;
            while self.peek(0).is_ascii_alphanumeric() || "_.-/ ".contains(self.peek(0)) {
                self.at += 1;
            }
            if self.peek(0) == '`' && self.at > start + 1 {
                self.at += 1;
                return Some(TokenKind::Quoted);
            }
            self.at += 1;
            return None;
        }
        let pair: String = self.text[self.at..self.text.len().min(self.at + 2)].iter().collect();
        let symbol = SYMBOLS.iter().find(|symbol| pair.starts_with(**symbol))?;
        // Alone these are no tokens; the next character was tried, too.
        if let "=" | "&" | "|" = *symbol {
            self.at += pair.chars().count();
            return None;
        }
        self.at += symbol.len();
        Some(TokenKind::Symbol)
    }

    fn number(&mut self) -> TokenKind {
        if self.peek(0) == '0' && self.peek(1) == 'x' && self.peek(2).is_ascii_hexdigit() {
            self.at += 2;
            while self.peek(0).is_ascii_hexdigit() {
                self.at += 1;
            }
            return self.unsigned_suffix();
        }
        self.digits();
        let mut double = false;
        if self.peek(0) == '.' && self.peek(1).is_ascii_digit() {
            double = true;
            self.at += 1;
            self.digits();
        }
        if matches!(self.peek(0), 'e' | 'E') {
            let sign = usize::from(matches!(self.peek(1), '+' | '-'));
            if self.peek(1 + sign).is_ascii_digit() {
                double = true;
                self.at += 1 + sign;
                self.digits();
            }
        }
        if double { TokenKind::Double } else { self.unsigned_suffix() }
    }

    fn digits(&mut self) {
        while self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
    }

    fn unsigned_suffix(&mut self) -> TokenKind {
        if matches!(self.peek(0), 'u' | 'U') {
            self.at += 1;
            return TokenKind::Uint;
        }
        TokenKind::Int
    }

    /// `None` where no string begins, `Some(None)` where one begins that never ends.
    fn string(&mut self) -> Option<Option<TokenKind>> {
        let mut quote_at = 0;
        let mut kind = TokenKind::String;
        let mut raw = false;
        if matches!(self.peek(0), 'b' | 'B') {
            kind = TokenKind::Bytes;
            quote_at += 1;
        }
        if matches!(self.peek(quote_at), 'r' | 'R') {
            raw = true;
            quote_at += 1;
        }
        let quote = self.peek(quote_at);
        if !matches!(quote, '"' | '\'') {
            return None;
        }
        let start = self.at + quote_at;
        let triple = self.text.get(start + 1) == Some(&quote) && self.text.get(start + 2) == Some(&quote);
        let long = if triple { self.string_end(start + 3, quote, raw, true) } else { Err(0) };
        match long.or_else(|tried| self.string_end(start + 1, quote, raw, false).map_err(|at| at.max(tried))) {
            Ok(end) => {
                self.at = end;
                Some(Some(kind))
            }
            Err(tried) => {
                self.at = (tried + 1).min(self.text.len());
                Some(None)
            }
        }
    }

    /// Where a string ends; the error is the character that cannot be in it.
    fn string_end(&self, from: usize, quote: char, raw: bool, triple: bool) -> Result<usize, usize> {
        let mut at = from;
        while at < self.text.len() {
            let c = self.text[at];
            if c == '\\' && !raw {
                at += escape_length(&self.text[at..]).map_err(|wrong| at + wrong)?;
                continue;
            }
            if c == quote {
                if !triple {
                    return Ok(at + 1);
                }
                if self.text.get(at + 1) == Some(&quote) && self.text.get(at + 2) == Some(&quote) {
                    return Ok(at + 3);
                }
            }
            if !triple && matches!(c, '\n' | '\r') {
                return Err(at);
            }
            at += 1;
        }
        Err(at)
    }
}

/// How many characters an escape sequence has; the error is the first that cannot be in one.
fn escape_length(text: &[char]) -> Result<usize, usize> {
    let digits = |from: usize, to: usize, radix: u32| {
        let wrong = (from..to).find(|at| !text.get(*at).is_some_and(|digit| digit.is_digit(radix)));
        wrong.map_or(Ok(to), Err)
    };
    match text.get(1).unwrap_or(&'\0') {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Ok(2),
        'x' | 'X' => digits(2, 4, 16),
        'u' => digits(2, 6, 16),
        'U' => digits(2, 10, 16),
        '0'..='3' => digits(2, 4, 8),
        _ => Err(1),
    }
}
