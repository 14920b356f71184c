//! Values that reconciles and background tasks share: clients, pools, metrics of the operator's own. In: values, one of
//! each type. Out: the value of the type that is asked for.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::sync::Arc;

use konverge_runtime::{Error, Result};

/// One value of each type.
#[derive(Clone, Default)]
pub(crate) struct States(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl States {
    /// Adds a value, in the place of one of the same type.
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, state: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(state));
    }

    /// These values, and of `shared` those whose types are not among them.
    pub(crate) fn over(&self, shared: &Self) -> Self {
        let mut all = shared.clone();
        all.0.extend(self.0.iter().map(|(id, state)| (*id, state.clone())));
        all
    }

    /// The value of a type. `whose` names whoever should have been given it.
    pub(crate) fn get<T: Send + Sync + 'static>(&self, whose: impl FnOnce() -> String) -> Result<&T> {
        self.0.get(&TypeId::of::<T>()).and_then(|state| state.downcast_ref()).ok_or_else(|| {
            let (whose, wanted) = (whose(), type_name::<T>());
            Error::permanent(format!("{whose} has no state of the type {wanted}; give it one with .state(…)"))
                .reason("StateMissing")
        })
    }
}
