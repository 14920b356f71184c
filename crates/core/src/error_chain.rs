//! Errors with their causes. In: an error. Out: the error and everything that caused it, as an iterator or as one line of
//! text. Every crate prints chains through this file, so that they look the same in logs and on a terminal.

use std::error::Error;
use std::fmt;

/// An error followed by its causes, outermost first.
///
/// `io::Error::source` skips the error that an `io::Error` wraps and answers with the source behind it; this iterator
/// yields the wrapped error as well.
pub fn error_chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        wrapped.map(|wrapped| wrapped as &(dyn Error + 'static)).or_else(|| (*error).source())
    })
}

/// Displays an error and its causes on one line, separated by `: `. A cause is left out if the text so far ends with it,
/// because many errors repeat their cause at the end of their own message.
///
/// ```
/// use konverge_core::ErrorChain;
///
/// let error = "x".parse::<u8>().unwrap_err();
/// assert_eq!(ErrorChain(&error).to_string(), "invalid digit found in string");
/// ```
pub struct ErrorChain<'e>(
    /// The outermost error.
    pub &'e (dyn Error + 'static),
);

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        for cause in error_chain(self.0).skip(1).map(ToString::to_string) {
            if !text.ends_with(&cause) {
                text.push_str(": ");
                text.push_str(&cause);
            }
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{message}")]
    struct Layer {
        message: &'static str,
        source: Option<Box<dyn Error + Send + Sync>>,
    }

    fn layer(message: &'static str, source: impl Into<Option<Box<dyn Error + Send + Sync>>>) -> Box<Layer> {
        Box::new(Layer { message, source: source.into() })
    }

    #[test]
    fn causes_are_printed_once() {
        let check = |error: Box<Layer>, expect: &str| assert_eq!(ErrorChain(&*error).to_string(), expect);
        check(layer("alone", None), "alone");
        let deep = layer("middle", layer("bottom", None) as Box<dyn Error + Send + Sync>);
        check(layer("top", deep as Box<dyn Error + Send + Sync>), "top: middle: bottom");
        let repeated = layer("disk full", None) as Box<dyn Error + Send + Sync>;
        check(layer("cannot write: disk full", repeated), "cannot write: disk full");
        // Words that happen to stand in the message do not make the cause known.
        let inside = layer("not found", None) as Box<dyn Error + Send + Sync>;
        check(layer("the kind was not found on the server", inside), "the kind was not found on the server: not found");
        let empty = layer("", None) as Box<dyn Error + Send + Sync>;
        check(layer("the cause says nothing", empty), "the cause says nothing");
    }

    #[test]
    fn the_error_that_an_io_error_wraps_is_a_link_of_the_chain() {
        let wrapped = io::Error::other(layer("wrapped", layer("bottom", None) as Box<dyn Error + Send + Sync>));
        assert!(error_chain(&wrapped).any(|error| error.is::<Box<Layer>>() || error.is::<Layer>()));
        assert_eq!(ErrorChain(&wrapped).to_string(), "wrapped: bottom");
    }
}
