//! What is fuzzed: a name, what its inputs begin with, and a function that runs one.

use crate::targets;

/// Runs an input and says in a few words what it led to. It panics if the input shows a fault.
pub(crate) type Runner = Box<dyn FnMut(&[u8]) -> String>;

/// Something that reads bytes of others.
pub(crate) struct Target {
    pub name: &'static str,
    /// What is read, for people.
    pub about: &'static str,
    /// Inputs that are fine, or nearly.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Pieces that mean something to the target; mutations put them in.
    pub words: &'static [&'static str],
    /// Makes what runs inputs, once for a whole run.
    pub make: fn() -> Runner,
}

impl Target {
    /// The target of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Target> {
        targets::ALL.iter().find(|target| target.name == name)
    }
}
