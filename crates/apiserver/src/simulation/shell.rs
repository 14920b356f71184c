//! The shell of a simulated container. In: lines, from stdin or from `sh -c`. Out: what their commands print. It knows `;`, `&&`,
//! `||`, quotes, comments and `exit`; a line with anything else that shells know is echoed as a whole. It never runs a program.

use std::collections::VecDeque;

use crate::streaming::{Exit, Output, Program};

use super::command::{Container, builtin, introduction, nothing_ran};

/// The longest line.
const MAX_LINE: usize = 64 << 10;

/// What a shell that was interrupted, or whose command was, has for an exit code.
const INTERRUPTED: i32 = 130;

/// A shell.
pub(super) struct Shell {
    container: Container,
    /// What is run first.
    script: Option<String>,
    reads_stdin: bool,
    /// What came of stdin and was not read.
    input: Vec<u8>,
    input_ended: bool,
    /// The rest of the line.
    commands: VecDeque<Command>,
    /// The command that reads stdin now.
    running: Option<Box<dyn Program>>,
    /// How the last command exited.
    code: i32,
    prompted: bool,
}

/// A command of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Command {
    when: When,
    words: Vec<String>,
}

/// When it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// If the last one succeeded.
    And,
    /// If the last one failed.
    Or,
}

impl Shell {
    /// A shell that reads lines from stdin, with a prompt on a terminal.
    pub(super) fn of_stdin(container: Container) -> Self {
        Self {
            container,
            script: None,
            reads_stdin: true,
            input: Vec::new(),
            input_ended: false,
            commands: VecDeque::new(),
            running: None,
            code: 0,
            prompted: false,
        }
    }

    /// A shell that runs a script.
    pub(super) fn of_script(container: Container, script: &str) -> Self {
        Self { reads_stdin: false, script: Some(script.to_owned()), ..Self::of_stdin(container) }
    }

    /// Reads the commands of a line or script. One that this shell does not understand is echoed.
    fn read(&mut self, text: &str, output: &mut Output) {
        match parse(text) {
            Some(commands) => self.commands = commands,
            None => {
                self.running = Some(nothing_ran(&self.container, text.trim_end()));
                self.run(output, |program, output| program.begin(output));
            }
        }
    }

    /// Goes on until a command, or the shell itself, waits for stdin.
    fn advance(&mut self, output: &mut Output) {
        while self.running.is_none() && output.exit.is_none() {
            if let Some(command) = self.commands.pop_front() {
                self.start(&command, output);
            } else if !self.reads_stdin {
                output.exit(self.code);
            } else if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                self.prompted = false;
                self.read(&String::from_utf8_lossy(&line), output);
            } else if self.input_ended {
                let rest = std::mem::take(&mut self.input);
                self.reads_stdin = false;
                self.read(&String::from_utf8_lossy(&rest), output);
            } else {
                if self.container.tty && !self.prompted {
                    output.print(&format!("{} (simulated) $ ", self.container.name));
                    self.prompted = true;
                }
                return;
            }
        }
    }

    fn start(&mut self, command: &Command, output: &mut Output) {
        let skipped = match command.when {
            When::Always => false,
            When::And => self.code != 0,
            When::Or => self.code == 0,
        };
        if skipped {
            return;
        }
        match command.words.as_slice() {
            [] => {}
            [exit] if exit == "exit" => output.exit(self.code),
            [exit, code, ..] if exit == "exit" => match code.parse::<i32>() {
                Ok(code) => output.exit(code & 0xff),
                Err(_) => {
                    output.complain(&format!("sh: exit: Illegal number: {code}\n"));
                    output.exit(2);
                }
            },
            words => {
                self.running = Some(builtin(&self.container, words));
                self.run(output, |program, output| program.begin(output));
                if self.input_ended {
                    self.run(output, |program, output| program.stdin_closed(output));
                }
            }
        }
    }

    /// Lets the running command do something; the shell goes on when it has exited.
    fn run(&mut self, output: &mut Output, act: impl FnOnce(&mut dyn Program, &mut Output)) {
        let Some(program) = &mut self.running else { return };
        act(&mut **program, output);
        self.code = match output.exit.take() {
            None => return,
            Some(Exit::Code(code)) => code,
            Some(Exit::Failed(why)) => {
                output.complain(&format!("sh: {why}\n"));
                126
            }
        };
        self.running = None;
    }
}

impl Program for Shell {
    fn begin(&mut self, output: &mut Output) {
        if self.container.tty && self.reads_stdin {
            let introduction = introduction(&self.container);
            output.print(&format!(
                "{introduction}runs no program. This shell has cat, echo, ls, tar, test and exit, and echoes other commands.\n"
            ));
        }
        if let Some(script) = self.script.take() {
            self.read(&script, output);
        }
        self.advance(output);
    }

    fn stdin(&mut self, bytes: &[u8], output: &mut Output) {
        if self.running.is_some() {
            self.run(output, |program, output| program.stdin(bytes, output));
        } else if self.reads_stdin {
            self.input.extend_from_slice(bytes);
            if self.input.len() > MAX_LINE && !self.input[..MAX_LINE].contains(&b'\n') {
                output.complain("sh: line too long\n");
                output.exit(2);
            }
        }
        self.advance(output);
    }

    fn stdin_closed(&mut self, output: &mut Output) {
        // On a terminal the end of the input is for who reads now, and there may be more.
        if !self.container.tty || self.running.is_none() {
            self.input_ended = true;
        }
        self.run(output, |program, output| program.stdin_closed(output));
        self.advance(output);
    }

    fn interrupt(&mut self, output: &mut Output) {
        (self.running, self.code, self.prompted) = (None, INTERRUPTED, false);
        self.commands.clear();
        self.advance(output);
    }
}

/// The commands of a line or script; nothing if there is something in it that this shell does not know.
fn parse(text: &str) -> Option<VecDeque<Command>> {
    let mut commands = VecDeque::from([Command { when: When::Always, words: Vec::new() }]);
    let mut word: Option<String> = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let last = commands.back_mut()?;
        match character {
            '\'' => {
                let text = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '\'' => break,
                        other => text.push(other),
                    }
                }
            }
            '"' => {
                let text = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '"' => break,
                        '$' | '`' => return None,
                        '\\' => match characters.next()? {
                            escaped @ ('"' | '\\' | '$' | '`') => text.push(escaped),
                            other => text.extend(['\\', other]),
                        },
                        other => text.push(other),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(characters.next()?),
            '#' if word.is_none() => while characters.next_if(|next| *next != '\n').is_some() {},
            ' ' | '\t' | '\r' => last.words.extend(word.take()),
            ';' | '\n' | '&' | '|' => {
                let when = match character {
                    '&' | '|' if characters.next_if_eq(&character).is_none() => return None,
                    '&' => When::And,
                    '|' => When::Or,
                    _ => When::Always,
                };
                last.words.extend(word.take());
                commands.push_back(Command { when, words: Vec::new() });
            }
            '<' | '>' | '(' | ')' | '$' | '`' | '*' | '?' => return None,
            other => word.get_or_insert_default().push(other),
        }
    }
    commands.back_mut()?.words.extend(word);
    Some(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        for (text, expect) in [
            ("ls -l /", Some("ls,-l,/")),
            ("echo 'a b' \"c d\" e\\ f", Some("echo,a b,c d,e f")),
            ("a; b && c || d\ne", Some("a ;b &&c ||d ;e")),
            ("echo '' x", Some("echo,,x")),
            ("# nothing\na # more", Some(" ;a")),
            ("a 'b;c'#d", Some("a,b;c#d")),
            ("", Some("")),
            ("a | b", None),
            ("a &", None),
            ("a > b", None),
            ("echo $HOME", None),
            ("echo \"$HOME\"", None),
            ("echo '$HOME'", Some("echo,$HOME")),
            ("echo 'a", None),
        ] {
            let got = parse(text).map(|commands| {
                let commands = commands.iter().enumerate().map(|(number, command)| {
                    let sign = match command.when {
                        When::Always if number == 0 => "",
                        When::Always => " ;",
                        When::And => " &&",
                        When::Or => " ||",
                    };
                    format!("{sign}{}", command.words.join(","))
                });
                commands.collect::<String>()
            });
            assert_eq!(got.as_deref(), expect, "{text:?}");
        }
    }
}
