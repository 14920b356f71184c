//! The terminal in front of a program, as a kernel has it. In: the bytes of a client whose own terminal passes every key on. Out:
//! whole lines, the end of the input, interrupts, and what the user sees while typing. Pure.

/// The longest line that can be typed: Linux' limit.
const MAX_LINE: usize = 4096;

/// What a key did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Nothing that the program has to know yet.
    Nothing,
    Line(Vec<u8>),
    /// Ctrl-D on an empty line.
    End,
    Interrupt,
}

/// A line that is being typed.
#[derive(Debug, Default)]
pub(super) struct Terminal {
    line: Vec<u8>,
    /// Within the bytes of a key that has no letter, such as an arrow.
    escape: Escape,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    No,
    Begun,
    Sequence,
}

impl Terminal {
    /// Takes a byte; `echo` is what the user sees of it.
    pub(super) fn key(&mut self, byte: u8, echo: &mut Vec<u8>) -> Key {
        match (self.escape, byte) {
            (Escape::Begun, b'[' | b'O') => self.escape = Escape::Sequence,
            (Escape::Begun, _) => self.escape = Escape::No,
            (Escape::Sequence, b'@'..=b'~') => self.escape = Escape::No,
            (Escape::Sequence, _) => {}
            (Escape::No, 0x1b) => self.escape = Escape::Begun,
            (Escape::No, b'\r' | b'\n') => {
                echo.extend(b"\r\n");
                self.line.push(b'\n');
                return Key::Line(std::mem::take(&mut self.line));
            }
            // Ctrl-C
            (Escape::No, 0x03) => {
                echo.extend(b"^C\r\n");
                self.line.clear();
                return Key::Interrupt;
            }
            // Ctrl-D
            (Escape::No, 0x04) if self.line.is_empty() => return Key::End,
            (Escape::No, 0x04) => return Key::Line(std::mem::take(&mut self.line)),
            // Backspace
            (Escape::No, 0x7f | 0x08) => self.erase(echo),
            // Ctrl-U
            (Escape::No, 0x15) => {
                while !self.line.is_empty() {
                    self.erase(echo);
                }
            }
            (Escape::No, byte) if (byte >= b' ' || byte == b'\t') && self.line.len() < MAX_LINE => {
                self.line.push(byte);
                echo.push(byte);
            }
            (Escape::No, _) => {}
        }
        Key::Nothing
    }

    /// Takes the last letter back, which may be of several bytes.
    fn erase(&mut self, echo: &mut Vec<u8>) {
        let is_letter = |byte: &u8| byte & 0xc0 != 0x80;
        if let Some(letter) = self.line.iter().rposition(is_letter) {
            self.line.truncate(letter);
            echo.extend(b"\x08 \x08");
        } else {
            self.line.clear();
        }
    }
}

/// What a program printed, as a terminal shows it.
pub(super) fn lines(text: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(text.len());
    for byte in text {
        if *byte == b'\n' {
            shown.push(b'\r');
        }
        shown.push(*byte);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed() {
        let line = |text: &str| Key::Line(text.into());
        for (typed, keys, echo) in [
            ("hi\r", vec![line("hi\n")], "hi\r\n"),
            ("hx\x7fi\r", vec![line("hi\n")], "hx\x08 \x08i\r\n"),
            ("\x7f\r", vec![line("\n")], "\r\n"),
            ("ä\x7f\r", vec![line("\n")], "ä\x08 \x08\r\n"),
            ("abc\x15d\r", vec![line("d\n")], "abc\x08 \x08\x08 \x08\x08 \x08d\r\n"),
            ("\x04", vec![Key::End], ""),
            ("ab\x04", vec![line("ab")], "ab"),
            ("ab\x03", vec![Key::Interrupt], "ab^C\r\n"),
            ("\x1b[Aa\x1bOBb\r", vec![line("ab\n")], "ab\r\n"),
            ("\x01\x02a\r", vec![line("a\n")], "a\r\n"),
        ] {
            let (mut terminal, mut shown) = (Terminal::default(), Vec::new());
            let got = typed.bytes().map(|byte| terminal.key(byte, &mut shown));
            let got: Vec<Key> = got.filter(|key| *key != Key::Nothing).collect();
            assert_eq!((got, String::from_utf8_lossy(&shown).as_ref()), (keys, echo), "{typed:?}");
        }
    }

    #[test]
    fn a_line_has_an_end() {
        let (mut terminal, mut shown) = (Terminal::default(), Vec::new());
        for _ in 0..3 * MAX_LINE {
            terminal.key(b'x', &mut shown);
        }
        assert_eq!((terminal.line.len(), shown.len()), (MAX_LINE, MAX_LINE));
    }
}
