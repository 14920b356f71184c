//! What the developer passes to the operator behind `--`, as the words of `env` are: variables first, then flags. In: words. Out: both. Pure.

/// Variables and flags of an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub variables: Vec<(String, String)>,
    pub flags: Vec<String>,
}

impl Invocation {
    /// Words such as `RUST_LOG=debug --namespace shop`.
    pub(crate) fn new(words: impl IntoIterator<Item = String>) -> Self {
        let mut invocation = Self::default();
        for word in words {
            match variable(&word).filter(|_| invocation.flags.is_empty()) {
                Some((name, value)) => invocation.variables.push((name.to_owned(), value.to_owned())),
                None => invocation.flags.push(word),
            }
        }
        invocation
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.variables.is_empty() && self.flags.is_empty()
    }
}

/// The name and the value, if a word sets a variable.
fn variable(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    let is_name = name.starts_with(is_letter) && name.chars().all(|one| is_letter(one) || one.is_ascii_digit());
    is_name.then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_come_before_flags() {
        let check = |words: &str, variables: &str, flags: &str| {
            let found = Invocation::new(words.split_whitespace().map(str::to_owned));
            let set: Vec<String> = found.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
            assert_eq!((set.join(" "), found.flags.join(" ")), (variables.to_owned(), flags.to_owned()), "{words}");
        };
        check("", "", "");
        check("RUST_LOG=a=debug PORT= --x", "RUST_LOG=a=debug PORT=", "--x");
        check("--x A=1", "", "--x A=1");
        check("--x=1 A=1", "", "--x=1 A=1");
        check("1A=1", "", "1A=1");
        check("=1", "", "=1");
    }
}
