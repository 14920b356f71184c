//! What several evaluations share. In: the variables of a policy and what the authorizer has answered. Out: the values of the
//! variables, each evaluated when the first expression asks for it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use konverge_schema::Budget;

use crate::library::Permissions;
use crate::plan::Program;
use crate::value::{Answer, Value};

use super::{COST_LIMIT, Fault, evaluate_in};

/// The variables of a policy, and what the authorizer has answered.
pub(crate) struct Scope<'a> {
    pub programs: BTreeMap<&'a str, &'a Result<Program, String>>,
    /// What the programs see.
    pub inputs: Vec<Option<Value<'a>>>,
    pub permissions: &'a Permissions,
    values: RefCell<BTreeMap<&'a str, Answer<'a>>>,
    /// What the variables have cost since somebody last asked.
    cost: Cell<u64>,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(
        programs: BTreeMap<&'a str, &'a Result<Program, String>>,
        inputs: Vec<Option<Value<'a>>>,
        permissions: &'a Permissions,
    ) -> Self {
        Self { programs, inputs, permissions, values: RefCell::default(), cost: Cell::default() }
    }

    /// How many nodes of variables can be inside each other, where each variable uses the one before it.
    pub(crate) fn levels(&self) -> usize {
        self.programs.values().filter_map(|program| program.as_ref().ok()).map(|program| program.levels).sum()
    }

    pub(crate) fn take_cost(&self) -> u64 {
        self.cost.take()
    }

    /// The value of a variable; none if there is no variable of this name.
    pub(super) fn variable(&self, name: &str, budget: &'a Budget) -> Result<Option<Answer<'a>>, Fault> {
        if let Some(value) = self.values.borrow().get(name) {
            return Ok(Some(value.clone()));
        }
        let Some((name, program)) = self.programs.get_key_value(name) else { return Ok(None) };
        let failed = |how: &str, why: &str| Err(format!("composited variable {name:?} fails to {how}: {why}").into());
        let value = match program {
            Err(why) => failed("compile", why),
            Ok(program) => {
                let (value, cost) = evaluate_in(program, &self.inputs, Some(self), budget);
                self.cost.set(self.cost.get().saturating_add(cost));
                match value {
                    Ok(value) => Ok(value),
                    Err(Fault::Error(why)) => failed("evaluate", &why),
                    Err(Fault::CostLimit) => failed("evaluate", COST_LIMIT),
                    Err(fault) => return Err(fault),
                }
            }
        };
        self.values.borrow_mut().insert(name, value.clone());
        Ok(Some(value))
    }
}
