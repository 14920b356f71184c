//! Match conditions: expressions that all have to be true before a policy is evaluated or a webhook is called. In: compiled
//! conditions and a request. Out: whether they match, or why that is unknown.

use konverge_cel::{Compiled, Composer, Declared, Evaluation, Output, Returns, Stop};
use serde_json::Value;

/// The match conditions of one policy or webhook.
#[derive(Debug)]
pub(crate) struct MatchConditions(Vec<Compiled>);

/// What match conditions say of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Matching {
    Yes,
    /// A condition is false, or has failed where failures are ignored.
    No,
    /// No condition is false, and at least one has failed.
    Failed(String),
}

impl MatchConditions {
    /// Compiles a list of `MatchCondition`.
    pub(crate) fn compile(composer: &Composer, conditions: &Value, declared: Declared) -> Self {
        let conditions = conditions.as_array().into_iter().flatten();
        let compile = |condition: &Value| {
            composer.compile(condition["expression"].as_str().unwrap_or_default(), Returns::Bool, declared)
        };
        Self(conditions.map(compile).collect())
    }

    /// Whether all conditions are true. `fail` says whether an error refuses the request.
    pub(crate) fn matches<'a>(&'a self, evaluation: Evaluation<'a>, fail: bool) -> Result<Matching, Stop> {
        let mut evaluation = evaluation.of_match_conditions();
        let unknown = |why: String| if fail { Matching::Failed(why) } else { Matching::No };
        // All are evaluated before one of them decides.
        let mut results = Vec::with_capacity(self.0.len());
        for condition in &self.0 {
            match evaluation.evaluate(condition) {
                Ok(result) => results.push(result),
                Err(stop @ Stop::OutOfCost) => return Ok(unknown(stop.to_string())),
                Err(stop) => return Err(stop),
            }
        }
        if results.contains(&Ok(Output::Bool(false))) {
            return Ok(Matching::No);
        }
        let mut errors: Vec<String> = Vec::new();
        for why in results.into_iter().filter_map(Result::err) {
            if !errors.contains(&why) {
                errors.push(why);
            }
        }
        Ok(match errors.len() {
            0 => Matching::Yes,
            1 => unknown(errors.remove(0)),
            _ => unknown(format!("[{}]", errors.join(", "))),
        })
    }
}
