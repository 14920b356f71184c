//! Questions to a person at a terminal. In: what a flag said, if it was there. Out: an answer that passes its check. Without a terminal
//! nobody is asked: then the error names the flag.

use std::io::{self, BufRead, IsTerminal, Write};

use super::ScaffoldError;
use super::names::BadName;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    /// The flag that answers it: `--domain`.
    pub flag: &'static str,
    /// What it is about, as a noun.
    pub what: &'static str,
    /// An answer that would be good.
    pub example: &'static str,
}

/// Asks questions.
pub(crate) struct Asker<R, W> {
    input: R,
    output: W,
    may_ask: bool,
}

/// Asks at the terminal of this process, if it has one.
pub(crate) fn terminal() -> Asker<io::StdinLock<'static>, io::Stderr> {
    let may_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
    Asker { input: io::stdin().lock(), output: io::stderr(), may_ask }
}

impl<R: BufRead, W: Write> Asker<R, W> {
    /// What was given, or what a person answers. An answer that does not pass the check is asked for again.
    pub(crate) fn text(
        &mut self,
        given: Option<&str>,
        question: Question,
        check: impl Fn(&str) -> Result<String, BadName>,
    ) -> Result<String, ScaffoldError> {
        if let Some(given) = given {
            return Ok(check(given)?);
        }
        let Question { what, example, .. } = question;
        loop {
            let answer = self.line(question, &format!("{what}, such as {example}: "))?;
            match check(&answer) {
                Ok(answer) => return Ok(answer),
                Err(bad) => self.say(&format!("{bad}\n")),
            }
        }
    }

    /// Whether a person says yes. Without a terminal it is no.
    pub(crate) fn yes(&mut self, question: Question) -> Result<bool, ScaffoldError> {
        if !self.may_ask {
            return Ok(false);
        }
        loop {
            let answer = self.line(question, &format!("{}? [y/n] ", question.what))?;
            match answer.to_ascii_lowercase().as_str() {
                "y" | "yes" => return Ok(true),
                "n" | "no" | "" => return Ok(false),
                _ => self.say("y or n, please\n"),
            }
        }
    }

    /// Whether somebody is there to be asked.
    pub(crate) fn may_ask(&self) -> bool {
        self.may_ask
    }

    fn line(&mut self, question: Question, prompt: &str) -> Result<String, ScaffoldError> {
        let Question { flag, what, example } = question;
        let missing = || ScaffoldError::Missing { flag, what, example };
        if !self.may_ask {
            return Err(missing());
        }
        self.say(prompt);
        let mut line = String::new();
        match self.input.read_line(&mut line) {
            Ok(read) if read > 0 => Ok(line.trim().to_owned()),
            _ => Err(missing()),
        }
    }

    fn say(&mut self, text: &str) {
        // Who does not see the question does not answer it either.
        let _ = self.output.write_all(text.as_bytes()).and_then(|()| self.output.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::super::names;
    use super::*;

    const KIND: Question = Question { flag: "--kind", what: "The kind", example: "Memcached" };

    #[track_caller]
    fn check(may_ask: bool, given: Option<&str>, typed: &str, expect: &str, expect_said: &str) {
        let mut asker = Asker { input: typed.as_bytes(), output: Vec::new(), may_ask };
        let found = asker.text(given, KIND, names::kind).unwrap_or_else(|error| error.to_string());
        let said = String::from_utf8(asker.output).expect("text");
        assert!(found.contains(expect) && said.contains(expect_said), "{found}\n{said}");
        assert!(may_ask || said.is_empty(), "nobody is there: {said}");
    }

    #[test]
    fn texts() {
        check(true, Some("Shop"), "", "Shop", "");
        check(true, Some("shop"), "Shop\n", "cannot be the kind", "");
        check(true, None, "Shop\n", "Shop", "The kind, such as Memcached: ");
        check(true, None, "shop\n Shop \n", "Shop", "begins with a capital");
        check(true, None, "shop\n", "--kind is missing", "begins with a capital");
        check(false, None, "Shop\n", "--kind is missing: the kind, such as --kind Memcached", "");
    }

    #[test]
    fn yes_or_no() {
        for (may_ask, typed, expect) in [
            (true, "y\n", true),
            (true, "what?\nYES\n", true),
            (true, "\n", false),
            (true, "no\n", false),
            (false, "y\n", false),
        ] {
            let mut asker = Asker { input: typed.as_bytes(), output: Vec::new(), may_ask };
            assert_eq!(asker.yes(KIND).expect("an answer"), expect, "{typed}");
        }
    }
}
