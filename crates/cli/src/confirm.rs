//! A question before something is lost. In: a question. Out: yes or no, from the person at the terminal. Where nobody can be asked, nothing is
//! decided for them.

use std::io::{self, BufRead, IsTerminal, Write};

/// Nobody can be asked.
#[derive(Debug, thiserror::Error)]
#[error("{0}, and nobody can be asked, because standard input is no terminal; pass --yes if you mean it")]
pub(crate) struct NobodyToAsk(pub String);

/// Asks whether to go on, unless the command line has said so. `what` is a sentence about what would happen.
pub(crate) fn confirm(what: &str, yes: bool) -> Result<bool, NobodyToAsk> {
    if yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        return Err(NobodyToAsk(what.to_owned()));
    }
    eprint!("{what}. Go on? [y/N] ");
    // Whether the question is seen does not change that there is no answer yet.
    let _ = io::stderr().flush();
    let mut answer = String::new();
    match io::stdin().lock().read_line(&mut answer) {
        Ok(_) => Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str())),
        Err(_) => Ok(false),
    }
}
