//! What the reconciles of a kind share besides the cluster: clients, pools, metrics of the operator's own. In: values, one
//! of each type. Out: the one of the type that is asked for.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::sync::Arc;

use konverge_runtime::{Error, Result};

/// One value of each type.
#[derive(Clone, Default)]
pub(crate) struct States(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl States {
    /// Adds a value; one of the same type gives way.
    pub fn insert<T: Send + Sync + 'static>(&mut self, state: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(state));
    }

    pub fn get<T: Send + Sync + 'static>(&self, kind: &str) -> Result<&T> {
        self.0.get(&TypeId::of::<T>()).and_then(|state| state.downcast_ref()).ok_or_else(|| {
            let wanted = type_name::<T>();
            Error::permanent(format!(
                "the operator of {kind} has no state of the type {wanted}; give it one with .state(…)"
            ))
            .reason("StateMissing")
        })
    }
}
