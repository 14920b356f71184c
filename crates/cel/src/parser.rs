//! From tokens to a tree. In: the text of an expression. Out: its tree with the macros expanded, or issues in the words of
//! cel-go. The limits are those of cel-go: 100,000 characters, and 250 nodes inside each other.

mod depth;
mod literal;
mod macros;

use crate::ast::{Ast, Entry, Expr, Kind, Literal, StructField};
use crate::lexer::{Token, TokenKind, tokens};
use crate::source::{Issues, NOWHERE};
use crate::stack::with_stack_for;

use depth::{Depth, Rule};

/// The longest expression, in characters.
const LONGEST: usize = 100_000;

/// What an operand begins with, and what else can stand there, in the order in which ANTLR lists it.
const TOKENS: [&str; 20] = [
    "'['",
    "']'",
    "'{'",
    "'}'",
    "'('",
    "')'",
    "'.'",
    "','",
    "'-'",
    "'!'",
    "'?'",
    "'true'",
    "'false'",
    "'null'",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
];

const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];

pub(crate) fn parse(text: &str) -> Result<Ast, Issues> {
    let mut issues = Issues::default();
    let length = text.chars().count();
    if length > LONGEST {
        let why = format!("expression code point size exceeds limit: size: {length}, limit {LONGEST}");
        issues.report(NOWHERE, why);
        return Err(issues);
    }
    let tokens = tokens(text, &mut issues);
    let levels = tokens.len().min(depth::LIMIT);
    let mut parser = Parser { tokens, at: 0, issues, offsets: Vec::new(), depth: Depth::default() };
    with_stack_for(levels, || match parser.whole() {
        Ok(root) if parser.issues.is_empty() => Ok(Ast { root, offsets: parser.offsets }),
        _ => Err(parser.issues),
    })
}

/// The rest of the expression cannot be parsed; an issue says why.
struct Stop;

type Parsed<T = Expr> = Result<T, Stop>;

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    issues: Issues,
    offsets: Vec<u32>,
    depth: Depth,
}

impl Parser {
    fn whole(&mut self) -> Parsed {
        let root = self.expr()?;
        if self.peek().kind != TokenKind::End {
            let token = self.peek().clone();
            let found = if self.tokens[self.at + 1].kind == TokenKind::End { "extraneous" } else { "mismatched" };
            self.syntax(token.offset, format!("{found} input '{}' expecting <EOF>", token.text));
        }
        Ok(root)
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.at]
    }

    fn advance(&mut self) -> Token {
        let token = self.tokens[self.at].clone();
        if token.kind != TokenKind::End {
            self.at += 1;
        }
        token
    }

    fn accept(&mut self, symbol: &str) -> Option<Token> {
        self.peek().is(symbol).then(|| self.advance())
    }

    fn expect(&mut self, symbol: &str) -> Parsed<Token> {
        if let Some(token) = self.accept(symbol) {
            return Ok(token);
        }
        let token = self.peek().clone();
        if self.tokens.get(self.at + 1).is_some_and(|next| next.is(symbol)) {
            self.syntax(token.offset, format!("extraneous input '{}' expecting '{symbol}'", token.text));
            self.at += 1;
            return Ok(self.advance());
        }
        // A token that only lacks is added, where what stands there can follow it.
        let added = match symbol {
            ")" | "]" => !begins_operand(&token),
            ":" => begins_operand(&token),
            _ => false,
        };
        if added {
            self.syntax(token.offset, format!("missing '{symbol}' at '{}'", token.text));
            return Err(Stop);
        }
        self.syntax(token.offset, format!("mismatched input '{}' expecting '{symbol}'", token.text));
        Err(Stop)
    }

    /// The end of a list or a map, where a comma could stand, too.
    fn close(&mut self, symbol: &str) -> Parsed<()> {
        if self.accept(symbol).is_some() {
            return Ok(());
        }
        let token = self.peek().clone();
        self.syntax(token.offset, format!("mismatched input '{}' expecting {{'{symbol}', ','}}", token.text));
        Err(Stop)
    }

    /// An operand, or one of these, must follow.
    fn not_at_end(&mut self, others: &[&str]) -> Parsed<()> {
        if self.peek().kind != TokenKind::End {
            return Ok(());
        }
        let offset = self.peek().offset;
        self.syntax(offset, format!("mismatched input '<EOF>' expecting {}", operand(others)));
        Err(Stop)
    }

    fn syntax(&mut self, offset: u32, message: String) {
        self.issues.report(offset, format!("Syntax error: {message}"));
    }

    fn broken(&mut self, offset: u32, message: impl Into<String>) -> Expr {
        self.issues.report(offset, message);
        self.node(offset, Kind::Broken)
    }

    fn id(&mut self, offset: u32) -> u32 {
        self.offsets.push(offset);
        self.offsets.len() as u32 - 1
    }

    fn node(&mut self, offset: u32, kind: Kind) -> Expr {
        let expr = Expr { id: self.id(offset), kind };
        self.depth.measure(&expr);
        expr
    }

    fn call(&mut self, offset: u32, function: &str, args: Vec<Expr>) -> Expr {
        self.node(offset, Kind::Call { target: None, function: function.to_owned(), args })
    }

    fn expr(&mut self) -> Parsed {
        self.within(Rule::Expr, |parser| {
            let condition = parser.logic("||", "_||_", |parser| parser.logic("&&", "_&&_", Self::relation))?;
            let Some(question) = parser.accept("?") else { return Ok(condition) };
            let yes = parser.logic("||", "_||_", |parser| parser.logic("&&", "_&&_", Self::relation))?;
            parser.expect(":")?;
            let no = parser.expr()?;
            Ok(parser.call(question.offset, "_?_:_", vec![condition, yes, no]))
        })
    }

    /// Terms with `&&` or `||` between them, as a balanced tree.
    fn logic(&mut self, symbol: &str, function: &str, term: impl Fn(&mut Self) -> Parsed) -> Parsed {
        let mut terms = vec![Some(term(self)?)];
        let mut operators = Vec::new();
        while let Some(operator) = self.accept(symbol) {
            terms.push(Some(term(self)?));
            operators.push(operator.offset);
        }
        Ok(self.balanced(function, &mut terms, &operators))
    }

    fn balanced(&mut self, function: &str, terms: &mut [Option<Expr>], operators: &[u32]) -> Expr {
        if operators.is_empty() {
            return terms[0].take().expect("each term has one place in the tree");
        }
        let middle = operators.len() / 2;
        let (left, right) = terms.split_at_mut(middle + 1);
        let left = self.balanced(function, left, &operators[..middle]);
        let right = self.balanced(function, right, &operators[middle + 1..]);
        self.call(operators[middle], function, vec![left, right])
    }

    fn relation(&mut self) -> Parsed {
        let operators =
            [("<", "_<_"), ("<=", "_<=_"), (">=", "_>=_"), (">", "_>_"), ("==", "_==_"), ("!=", "_!=_"), ("in", "@in")];
        self.within(Rule::Relation, |parser| parser.chain(Rule::Relation, &operators, Self::sum))
    }

    fn sum(&mut self) -> Parsed {
        self.within(Rule::Calc, |parser| parser.chain(Rule::Calc, &[("+", "_+_"), ("-", "_-_")], Self::product))
    }

    fn product(&mut self) -> Parsed {
        self.chain(Rule::Calc, &[("*", "_*_"), ("/", "_/_"), ("%", "_%_")], Self::unary)
    }

    /// Operands with operators of one rank between them, from left to right.
    fn chain(&mut self, rule: Rule, operators: &[(&str, &str)], operand: fn(&mut Self) -> Parsed) -> Parsed {
        let mut left = operand(self)?;
        while let Some((_, function)) = operators.iter().find(|(symbol, _)| self.peek().is(symbol)) {
            let operator = self.advance();
            let right = self.within(rule, operand)?;
            left = self.call(operator.offset, function, vec![left, right]);
            self.not_too_deep(&left)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        for (symbol, function) in [("!", "!_"), ("-", "-_")] {
            let negative = symbol == "-" && matches!(self.tokens.get(self.at + 1), Some(token) if is_number(token));
            if !self.peek().is(symbol) || negative {
                continue;
            }
            let first = self.advance();
            let mut count = 1;
            while self.peek().is(symbol) && !(symbol == "-" && self.negative_literal()) {
                self.advance();
                count += 1;
            }
            let operand = self.member()?;
            if count % 2 == 0 {
                return Ok(operand);
            }
            return Ok(self.call(first.offset, function, vec![operand]));
        }
        self.member()
    }

    fn negative_literal(&self) -> bool {
        self.peek().is("-") && self.tokens.get(self.at + 1).is_some_and(is_number)
    }

    fn member(&mut self) -> Parsed {
        let mut operand = self.primary()?;
        loop {
            if let Some(dot) = self.accept(".") {
                operand = self.selection(operand, &dot)?;
            } else if let Some(bracket) = self.accept("[") {
                self.not_at_end(&["?"])?;
                let optional = self.accept("?").is_some();
                let index = self.expr()?;
                self.expect("]")?;
                let function = if optional { "_[?_]" } else { "_[_]" };
                operand = self.call(bracket.offset, function, vec![operand, index]);
            } else {
                return Ok(operand);
            }
            self.not_too_deep(&operand)?;
        }
    }

    fn selection(&mut self, operand: Expr, dot: &Token) -> Parsed {
        let optional = self.accept("?").is_some();
        let name = self.peek().clone();
        match name.kind {
            TokenKind::Ident => {}
            TokenKind::Quoted => {
                self.advance();
                self.issues.report(name.offset, "unsupported syntax: '`'");
                return Ok(self.node(dot.offset, Kind::Broken));
            }
            TokenKind::Symbol if matches!(name.text.as_str(), "true" | "false" | "null") => {
                self.syntax(name.offset, format!("mismatched input '{}' expecting IDENTIFIER", name.text));
                return Err(Stop);
            }
            TokenKind::End if optional => {
                let expected = "{IDENTIFIER, ESC_IDENTIFIER}";
                self.syntax(name.offset, format!("mismatched input '<EOF>' expecting {expected}"));
                self.issues.report(name.offset, "unsupported ident kind");
                return Err(Stop);
            }
            TokenKind::End => {
                self.syntax(name.offset, "no viable alternative at input '.'".to_owned());
                return Err(Stop);
            }
            _ => {
                self.syntax(name.offset, format!("no viable alternative at input '.{}'", name.text));
                return Err(Stop);
            }
        }
        self.advance();
        if optional {
            let field = self.node(name.offset, Kind::Literal(Literal::String(name.text)));
            return Ok(self.call(dot.offset, "_?._", vec![operand, field]));
        }
        if let Some(open) = self.accept("(") {
            let args = self.arguments()?;
            return Ok(self.call_or_macro(open.offset, &name.text, Some(operand), args));
        }
        Ok(self.node(dot.offset, Kind::Select { operand: Box::new(operand), field: name.text, test: false }))
    }

    fn arguments(&mut self) -> Parsed<Vec<Expr>> {
        let mut args = Vec::new();
        if self.accept(")").is_some() {
            return Ok(args);
        }
        self.not_at_end(&[")"])?;
        loop {
            args.push(self.expr()?);
            if self.accept(",").is_none() {
                self.expect(")")?;
                return Ok(args);
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        let token = self.peek().clone();
        if token.is("(") {
            self.advance();
            let inner = self.expr()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if token.is("[") {
            self.advance();
            return self.list(token.offset);
        }
        if token.is("{") {
            self.advance();
            return self.map(token.offset);
        }
        if token.is(".") || token.kind == TokenKind::Ident {
            return self.name();
        }
        if let Some(literal) = self.literal() {
            return Ok(literal);
        }
        // A token too many is skipped, as ANTLR does.
        let next = self.tokens.get(self.at + 1).filter(|_| token.kind != TokenKind::End);
        if next.is_some_and(begins_operand) {
            self.syntax(token.offset, format!("extraneous input '{}' expecting {}", token.text, operand(&[])));
            self.advance();
            return self.primary();
        }
        self.syntax(token.offset, format!("mismatched input '{}' expecting {}", token.text, operand(&[])));
        Err(Stop)
    }

    fn name(&mut self) -> Parsed {
        let start = self.peek().offset;
        let dot = if self.accept(".").is_some() { "." } else { "" };
        let token = self.peek().clone();
        if token.kind != TokenKind::Ident {
            self.syntax(token.offset, format!("mismatched input '{}' expecting IDENTIFIER", token.text));
            return Err(Stop);
        }
        if let Some(message) = self.message(dot)? {
            return Ok(message);
        }
        self.advance();
        let open = self.accept("(");
        if RESERVED.contains(&token.text.as_str()) {
            if open.is_some() {
                self.arguments()?;
            }
            return Ok(self.broken(start, format!("reserved identifier: {}", token.text)));
        }
        let name = format!("{dot}{}", token.text);
        match open {
            Some(open) => {
                let args = self.arguments()?;
                Ok(self.call_or_macro(open.offset, &name, None, args))
            }
            None => Ok(self.node(token.offset, Kind::Ident(name))),
        }
    }

    /// `a.b.C{field: value}`, if that is what follows.
    fn message(&mut self, dot: &str) -> Parsed<Option<Expr>> {
        let mut ahead = self.at;
        while self.tokens[ahead].kind == TokenKind::Ident && self.tokens.get(ahead + 1).is_some_and(|t| t.is(".")) {
            ahead += 2;
        }
        let brace = self.tokens.get(ahead + 1);
        let Some(brace) = brace.filter(|t| t.is("{") && self.tokens[ahead].kind == TokenKind::Ident) else {
            return Ok(None);
        };
        let offset = brace.offset;
        let names: String = self.tokens[self.at..=ahead].iter().map(|token| token.text.as_str()).collect();
        self.at = ahead + 2;
        let mut fields = Vec::new();
        while self.accept("}").is_none() {
            let optional = self.accept("?").is_some();
            let field = self.tokens[self.at].text.as_str().into();
            self.advance();
            let offset = self.tokens[self.at].offset;
            self.expect(":")?;
            fields.push(StructField { name: field, value: self.expr()?, optional, offset });
            if self.accept(",").is_none() {
                self.expect("}")?;
                break;
            }
        }
        Ok(Some(self.node(offset, Kind::Struct { name: format!("{dot}{names}"), fields })))
    }

    fn list(&mut self, offset: u32) -> Parsed {
        let mut items = Vec::new();
        let mut optional = Vec::new();
        self.not_at_end(&["]", ",", "?"])?;
        while self.accept("]").is_none() {
            optional.push(self.accept("?").is_some());
            items.push(self.expr()?);
            if self.accept(",").is_none() {
                self.close("]")?;
                break;
            }
        }
        Ok(self.node(offset, Kind::List { items, optional }))
    }

    fn map(&mut self, offset: u32) -> Parsed {
        let mut entries = Vec::new();
        self.not_at_end(&["}", ",", "?"])?;
        while self.accept("}").is_none() {
            let optional = self.accept("?").is_some();
            let key = self.expr()?;
            self.expect(":")?;
            let value = self.expr()?;
            entries.push(Entry { key, value, optional });
            if self.accept(",").is_none() {
                self.close("}")?;
                break;
            }
        }
        Ok(self.node(offset, Kind::Map(entries)))
    }

    fn literal(&mut self) -> Option<Expr> {
        let first = self.peek().clone();
        let negative = self.negative_literal();
        if negative {
            self.advance();
        }
        let token = self.peek().clone();
        let literal = literal::read(&token, negative)?;
        self.advance();
        Some(match literal {
            Ok(literal) => self.node(first.offset, Kind::Literal(literal)),
            Err(why) => self.broken(first.offset, why),
        })
    }

    fn call_or_macro(&mut self, offset: u32, function: &str, target: Option<Expr>, args: Vec<Expr>) -> Expr {
        let height = self.depth.of_call(target.as_ref(), &args);
        let expr = match self.expand(offset, function, target, args) {
            Ok(expanded) => expanded,
            Err((target, args)) => {
                let target = target.map(Box::new);
                self.node(offset, Kind::Call { target, function: function.to_owned(), args })
            }
        };
        // What a macro stands for may be higher than what was written, which alone counts.
        self.depth.set(&expr, height);
        expr
    }
}

fn is_number(token: &Token) -> bool {
    matches!(token.kind, TokenKind::Int | TokenKind::Double)
}

/// What an operand begins with, and these, as ANTLR lists it.
fn operand(others: &[&str]) -> String {
    let extra = ["]", "}", ")", ",", "?"];
    let is_listed = |token: &&str| {
        let symbol = token.trim_matches('\'');
        !extra.contains(&symbol) || others.contains(&symbol)
    };
    format!("{{{}}}", TOKENS.into_iter().filter(|token| is_listed(token)).collect::<Vec<_>>().join(", "))
}

fn begins_operand(token: &Token) -> bool {
    match token.kind {
        TokenKind::Symbol => {
            matches!(token.text.as_str(), "[" | "{" | "(" | "." | "-" | "!" | "true" | "false" | "null")
        }
        TokenKind::End | TokenKind::Quoted => false,
        _ => true,
    }
}
