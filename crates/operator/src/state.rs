//! Values that reconciles and background tasks share: clients, pools, metrics of the operator's own. In: values, one of
//! each type. Out: the value of the type that is asked for.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::sync::Arc;

use konverge_runtime::{Error, Result};

/// One value of each type.
#[derive(Clone, Default)]
pub(crate) struct States(HashMap<TypeId, State>);

#[derive(Clone)]
struct State {
    type_name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

impl States {
    /// Adds a value, in the place of one of the same type.
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, state: T) {
        self.0.insert(TypeId::of::<T>(), State { type_name: type_name::<T>(), value: Arc::new(state) });
    }

    /// These values, and of `shared` those whose types are not among them.
    pub(crate) fn over(&self, shared: &Self) -> Self {
        let mut all = shared.clone();
        all.0.extend(self.0.iter().map(|(id, state)| (*id, state.clone())));
        all
    }

    /// The value of a type. `whose` names whoever should have been given it.
    pub(crate) fn get<T: Send + Sync + 'static>(&self, whose: impl FnOnce() -> String) -> Result<&T> {
        self.0.get(&TypeId::of::<T>()).and_then(|state| state.value.downcast_ref()).ok_or_else(|| {
            let (whose, wanted) = (whose(), type_name::<T>());
            let mut known: Vec<&str> = self.0.values().map(|state| state.type_name).collect();
            known.sort_unstable();
            let known = if known.is_empty() { String::new() } else { format!(", only of {}", known.join(", ")) };
            Error::permanent(format!("{whose} has no state of the type {wanted}{known}; give it one with .state(…)"))
                .reason("StateMissing")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_state_names_the_types_that_there_are() {
        let mut states = States::default();
        let error = |states: &States| states.get::<u8>(|| "the operator".to_owned()).unwrap_err().to_string();
        let message =
            |known: &str| format!("the operator has no state of the type u8{known}; give it one with .state(…)");
        assert_eq!(error(&states), message(""));
        states.insert("text");
        states.insert(Arc::new(7u8));
        assert_eq!(error(&states), message(", only of &str, alloc::sync::Arc<u8>"));
        assert_eq!(**states.get::<Arc<u8>>(String::new).unwrap(), 7);
    }
}
