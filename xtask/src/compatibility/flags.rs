//! In: the table of flags that the program knows under the name `kube-apiserver`. Out: each with its effect.

use std::path::Path;

const FILE: &str = "crates/cli/data/kube-apiserver/flags.txt";

/// A flag of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flag {
    pub name: String,
    pub effect: Effect,
}

/// What a flag does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Obeyed,
    Nothing,
    /// The server does not start with it.
    Refused,
}

/// Reads the table.
pub(super) fn read(root: &Path) -> Result<Vec<Flag>, String> {
    let text = std::fs::read_to_string(root.join(FILE)).map_err(|error| format!("{FILE}: {error}"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(at, line)| match line.split(' ').collect::<Vec<_>>().as_slice() {
            [name, _] => Ok(Flag { name: (*name).to_owned(), effect: Effect::Nothing }),
            [name, _, "obeyed"] => Ok(Flag { name: (*name).to_owned(), effect: Effect::Obeyed }),
            [name, _, "refused"] => Ok(Flag { name: (*name).to_owned(), effect: Effect::Refused }),
            _ => Err(format!("{FILE} line {}: not `NAME TYPE [obeyed|refused]`: {line}", at + 1)),
        })
        .collect()
}
