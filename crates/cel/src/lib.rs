//! The rules of custom resources, in the Common Expression Language as Kubernetes has it. Pure: no I/O, no clock, no server.
//!
//! ```text
//! a rule ─▶ lexer ─▶ parser ─▶ check ─┬─▶ estimate: what it can cost at most
//!                      ▲        ▲     └─▶ plan ─▶ eval: what it says of an object, and what that cost
//!            macros ───┘        └─ decl ◀─ schema of the CRD
//! ```
//!
//! [`check_rules`] judges the rules of a definition when it is written; [`RuleSet`] has them compiled, and judges objects.
//! Values borrow from the object; nothing is converted before a rule looks at it. Types, functions, texts and costs are those
//! of Kubernetes 1.36. This crate never knows which server asks.

mod ast;
mod source;
mod stack;

mod lexer;
mod parser;

mod decl;
mod escape;
mod schema;

mod check;
mod functions;
mod types;

mod cost;
mod estimate;

mod eval;
mod library;
mod plan;
mod value;
mod weight;

mod authentication;
mod policy;
mod rules;

pub use authentication::{AuthenticationExpression, Given, Sees};
pub use escape::is_reserved_word;
pub use library::{About, Permission, Permissions, Question, ResourceCheck, Subject, UrlParts};
pub use policy::{Compiled, Composer, Declared, Evaluation, ExpressionError, Inputs, Output, Returns, Stop};
pub use rules::{RuleOutcome, RuleSet, check_defaults, check_rules};
