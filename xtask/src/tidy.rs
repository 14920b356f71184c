//! Checks of this repository that no compiler makes. In: the files that git tracks. Out: the problems, one line each. Every
//! check is a pure function of the tree, with tests on made-up trees. It never changes a file.

use std::path::Path;

mod architecture;
mod decisions;
mod edges;
mod modules;
mod rust_code;
mod text;
mod tree;
mod walks;

use tree::Tree;

/// A check: the rule, and a function that finds violations of it.
type Check = (&'static str, fn(&Tree) -> Vec<String>);

const CHECKS: [Check; 12] = [
    ("crates depend only on what ARCHITECTURE.md allows", edges::check),
    ("ARCHITECTURE.md shows the edges that are checked", architecture::edges),
    ("ARCHITECTURE.md names every crate", architecture::crates),
    ("ARCHITECTURE.md names only what exists", architecture::paths),
    ("the walks of ARCHITECTURE.md name functions that exist", walks::check),
    ("every .rs file is part of a crate", modules::orphans),
    ("every .rs file opens with a //! header", modules::headers),
    ("nothing is unfinished or switched off", text::unfinished),
    ("no path of somebody's machine", text::machine_paths),
    ("no huge file", text::huge),
    ("there is a changelog", decisions::changelog),
    ("every decision is in the list of decisions", decisions::linked),
];

/// Runs every check on the repository at `root`.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let tree = Tree::of_repository(root)?;
    let mut problems = 0;
    for (name, check) in CHECKS {
        let found = check(&tree);
        if !found.is_empty() {
            println!("{name}:");
            found.iter().for_each(|problem| println!("  {problem}"));
        }
        problems += found.len();
    }
    match problems {
        0 => {
            println!("{} files, {} checks, all tidy", tree.len(), CHECKS.len());
            Ok(())
        }
        1 => Err("1 thing is untidy".into()),
        many => Err(format!("{many} things are untidy")),
    }
}
