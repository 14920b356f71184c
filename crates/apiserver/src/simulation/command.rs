//! Commands in a simulated container. In: the words of a command. Out: a program that does what annotations prescribe, or one of
//! a few that work on the files of the container and on stdin, or one that says that nothing ran.

use std::sync::Arc;

use crate::streaming::{Exit, Output, Program};

use super::files::{Entry, FileAreas, Files, absolute};
use super::shell::Shell;
use super::tar::{self, Reader, TarError};
use super::{CommandAnswer, Simulation};

/// What is said instead of running a command.
const DID_NOT_RUN: &str = "did not run: ";

/// The largest file that is taken out of an archive.
const MAX_FILE: usize = 8 << 20;

/// The container that commands are for.
#[derive(Clone)]
pub(super) struct Container {
    pub simulation: Arc<Simulation>,
    pub name: String,
    pub files: Files,
    pub tty: bool,
}

/// The program of an `exec`.
pub(crate) fn program(
    simulation: &Arc<Simulation>,
    container: &str,
    files: Files,
    tty: bool,
    command: &[String],
) -> Box<dyn Program> {
    let container = Container { simulation: simulation.clone(), name: container.to_owned(), files, tty };
    match simulation.command(&container.name, command) {
        Err(why) => Box::new(Finished(Some(Output { exit: Some(Exit::Failed(why)), ..Output::default() }))),
        Ok(Some(CommandAnswer { stdout, stderr, exit_code, .. })) => finished(exit_code, &stdout, &stderr),
        Ok(None) => builtin(&container, command),
    }
}

/// How a command ends that nobody sends anything to. Nothing for one that a simulated container cannot run, as a whole or in part: nobody knows
/// whether a real container would ever end it.
pub(crate) fn exit_code(simulation: &Arc<Simulation>, container: &str, command: &[String]) -> Option<i32> {
    let files = Arc::new(FileAreas::default()).of(container.to_owned());
    let container = Container { simulation: simulation.clone(), name: container.to_owned(), files, tty: false };
    let mut program = program(simulation, &container.name, container.files.clone(), false, command);
    let mut output = Output::default();
    program.begin(&mut output);
    if output.exit.is_none() {
        program.stdin_closed(&mut output);
    }
    let not_run = format!("{}{DID_NOT_RUN}", introduction(&container));
    let ran = !String::from_utf8_lossy(&output.stdout).contains(&not_run);
    match output.exit {
        Some(Exit::Code(code)) if ran => Some(code),
        _ => None,
    }
}

/// The container's own process, as an `attach` meets it: a shell if the container reads stdin, and else silence.
pub(crate) fn attached(
    simulation: &Arc<Simulation>,
    container: &str,
    files: Files,
    tty: bool,
    reads_stdin: bool,
) -> Box<dyn Program> {
    let container = Container { simulation: simulation.clone(), name: container.to_owned(), files, tty };
    let shell = reads_stdin.then(|| Shell::of_stdin(container.clone()));
    Box::new(Attached { container, shell })
}

/// One of the programs that a simulated container has.
pub(super) fn builtin(container: &Container, words: &[String]) -> Box<dyn Program> {
    let [name, arguments @ ..] = words else {
        let why = "no command specified".to_owned();
        return Box::new(Finished(Some(Output { exit: Some(Exit::Failed(why)), ..Output::default() })));
    };
    let files = &container.files;
    match (name.rsplit('/').next().unwrap_or_default(), arguments) {
        ("sh" | "bash" | "ash" | "dash", []) => Box::new(Shell::of_stdin(container.clone())),
        ("sh" | "bash" | "ash" | "dash", [flag, script, ..])
            if flag.trim_start_matches(['-', 'e', 'u', 'x', 'l', 'i']) == "c" =>
        {
            Box::new(Shell::of_script(container.clone(), script))
        }
        ("cat", []) => Box::new(Cat),
        ("cat", paths) => cat(files, paths),
        ("echo", [flag, words @ ..]) if flag == "-n" => finished(0, &words.join(" "), ""),
        ("echo", words) => finished(0, &format!("{}\n", words.join(" ")), ""),
        ("true", _) => finished(0, "", ""),
        ("false", _) => finished(1, "", ""),
        ("test", [flag, path]) if matches!(flag.as_str(), "-d" | "-e" | "-f") => {
            let is = match (flag.as_str(), files.get(path)) {
                (_, None) => false,
                ("-d", Some(entry)) => entry == Entry::Directory,
                ("-f", Some(entry)) => entry != Entry::Directory,
                _ => true,
            };
            finished(i32::from(!is), "", "")
        }
        ("ls", paths) if paths.iter().all(|path| !path.starts_with('-')) => ls(files, paths),
        ("tar", arguments) => tar(files, arguments).unwrap_or_else(|| nothing_ran(container, &words.join(" "))),
        _ => nothing_ran(container, &words.join(" ")),
    }
}

/// Echoes a command that no simulated container can run.
pub(super) fn nothing_ran(container: &Container, line: &str) -> Box<dyn Program> {
    finished(0, &format!("{}{DID_NOT_RUN}{line}\n", introduction(container)), "")
}

/// What a simulated container says of itself.
pub(super) fn introduction(Container { simulation, name, .. }: &Container) -> String {
    let Simulation { namespace, name: pod, .. } = &**simulation;
    format!("konverge: pod {namespace}/{pod} is simulated: container {name} ")
}

fn finished(code: i32, stdout: &str, stderr: &str) -> Box<dyn Program> {
    Box::new(Finished(Some(Output { stdout: stdout.into(), stderr: stderr.into(), exit: Some(Exit::Code(code)) })))
}

/// A program that has ended as soon as it begins.
struct Finished(Option<Output>);

impl Program for Finished {
    fn begin(&mut self, output: &mut Output) {
        // A shell may have printed before.
        let Output { stdout, stderr, exit } = self.0.take().unwrap_or_default();
        output.stdout.extend(stdout);
        output.stderr.extend(stderr);
        output.exit = exit;
    }

    fn stdin(&mut self, _: &[u8], _: &mut Output) {}

    fn stdin_closed(&mut self, _: &mut Output) {}
}

/// Copies stdin to stdout.
struct Cat;

impl Program for Cat {
    fn begin(&mut self, _: &mut Output) {}

    fn stdin(&mut self, bytes: &[u8], output: &mut Output) {
        output.stdout.extend_from_slice(bytes);
    }

    fn stdin_closed(&mut self, output: &mut Output) {
        output.exit(0);
    }
}

/// The process of a container, which goes on when its client leaves.
struct Attached {
    container: Container,
    shell: Option<Shell>,
}

impl Attached {
    fn run(&mut self, output: &mut Output, act: impl FnOnce(&mut Shell, &mut Output)) {
        if let Some(shell) = &mut self.shell {
            act(shell, output);
        }
        // How the process exits is not for those who are attached.
        if output.exit.is_some() {
            output.exit(0);
        }
    }
}

impl Program for Attached {
    fn begin(&mut self, output: &mut Output) {
        if self.shell.is_none() {
            output.print(&format!("{}runs nothing that could print\n", introduction(&self.container)));
        }
        self.run(output, |shell, output| shell.begin(output));
    }

    fn stdin(&mut self, bytes: &[u8], output: &mut Output) {
        self.run(output, |shell, output| shell.stdin(bytes, output));
    }

    fn stdin_closed(&mut self, output: &mut Output) {
        self.run(output, |shell, output| shell.stdin_closed(output));
    }

    fn interrupt(&mut self, output: &mut Output) {
        self.run(output, |shell, output| shell.interrupt(output));
    }

    fn killed(&mut self, output: &mut Output) {
        output.exit(0);
    }
}

/// How much one simulated command prints: twice what a container holds. It is in memory until the client has read it.
const MAX_OUTPUT: usize = 16 << 20;
const TOO_MUCH: &str = "a simulated command prints 16 MiB at most";

fn cat(files: &Files, paths: &[String]) -> Box<dyn Program> {
    let mut output = Output { exit: Some(Exit::Code(0)), ..Output::default() };
    for path in paths {
        let why = match files.get(path) {
            Some(Entry::File { content, .. }) if output.stdout.len() + content.len() <= MAX_OUTPUT => {
                output.stdout.extend_from_slice(&content);
                continue;
            }
            Some(Entry::File { .. }) => TOO_MUCH,
            Some(Entry::Directory) => "Is a directory",
            None => "No such file or directory",
        };
        output.complain(&format!("cat: {path}: {why}\n"));
        output.exit(1);
    }
    Box::new(Finished(Some(output)))
}

fn ls(files: &Files, paths: &[String]) -> Box<dyn Program> {
    let mut output = Output { exit: Some(Exit::Code(0)), ..Output::default() };
    let root = ["/".to_owned()];
    for path in if paths.is_empty() { &root } else { paths } {
        match files.get(path) {
            None => {
                output.complain(&format!("ls: {path}: No such file or directory\n"));
                output.exit(1);
            }
            Some(Entry::File { .. }) => output.print(&format!("{path}\n")),
            Some(Entry::Directory) => {
                let top = absolute(path);
                let below = files.tree(path).into_iter().skip(1);
                let mut names: Vec<String> = below
                    .filter_map(|(path, _)| {
                        let rest = path.strip_prefix(&top)?.trim_start_matches('/');
                        rest.split('/').next().map(str::to_owned)
                    })
                    .collect();
                names.dedup();
                names.iter().for_each(|name| output.print(&format!("{name}\n")));
            }
        }
    }
    Box::new(Finished(Some(output)))
}

/// `tar`, as far as `kubectl cp` uses it: with the archive on stdin or stdout.
fn tar(files: &Files, arguments: &[String]) -> Option<Box<dyn Program>> {
    let (mut create, mut extract, mut archive, mut directory) = (false, false, None, "/".to_owned());
    let mut paths = Vec::new();
    let mut arguments = arguments.iter().enumerate();
    while let Some((number, argument)) = arguments.next() {
        if argument.starts_with("--") {
            continue;
        }
        if !argument.starts_with('-') && number > 0 {
            paths.push(argument.clone());
            continue;
        }
        for flag in argument.chars() {
            match flag {
                'c' => create = true,
                'x' => extract = true,
                'f' => archive = arguments.next().map(|(_, name)| name.clone()),
                'C' => directory = arguments.next()?.1.clone(),
                _ => {}
            }
        }
    }
    if archive.as_deref() != Some("-") || create == extract {
        return None;
    }
    Some(match extract {
        true => Box::new(Extract { files: files.clone(), directory, reader: Reader::default() }),
        false => archive_of(files, &directory, &paths),
    })
}

fn archive_of(files: &Files, directory: &str, paths: &[String]) -> Box<dyn Program> {
    let mut output = Output { exit: Some(Exit::Code(0)), ..Output::default() };
    let (mut members, mut total) = (Vec::new(), 0);
    for path in paths {
        let top = if path.starts_with('/') { absolute(path) } else { absolute(&format!("{directory}/{path}")) };
        let tree = files.tree(&top);
        if tree.is_empty() {
            output.complain(&format!("tar: {path}: Cannot stat: No such file or directory\n"));
            output.exit(2);
        }
        if path.starts_with('/') {
            output.complain("tar: Removing leading `/' from member names\n");
        }
        let base = if path.starts_with('/') { "/".to_owned() } else { absolute(directory) };
        total += tree.iter().map(|(path, entry)| path.len() + entry.bytes()).sum::<usize>();
        if total > MAX_OUTPUT {
            output.complain(&format!("tar: {path}: {TOO_MUCH}\n"));
            output.exit(2);
            break;
        }
        members.extend(tree.into_iter().map(|(path, entry)| {
            let name = path.strip_prefix(&base).unwrap_or(&path).trim_start_matches('/');
            (if name.is_empty() { "./".to_owned() } else { name.to_owned() }, entry)
        }));
    }
    if output.exit != Some(Exit::Code(0)) {
        output.complain("tar: Exiting with failure status due to previous errors\n");
    }
    output.stdout = tar::write(&members);
    Box::new(Finished(Some(output)))
}

/// Puts what an archive has into the files of a container.
struct Extract {
    files: Files,
    directory: String,
    reader: Reader,
}

impl Program for Extract {
    fn begin(&mut self, _: &mut Output) {}

    fn stdin(&mut self, bytes: &[u8], output: &mut Output) {
        let put = self.reader.receive(bytes, MAX_FILE).and_then(|members| {
            members.into_iter().try_for_each(|(name, entry)| {
                let path = format!("{}/{name}", self.directory);
                self.files.put(&path, entry).map_err(|why| TarError(format!("{name}: {why}")))
            })
        });
        if let Err(TarError(why)) = put {
            output.complain(&format!("tar: {why}\ntar: Error is not recoverable: exiting now\n"));
            output.exit(2);
        } else if self.reader.has_ended() {
            // Clients of older protocols cannot close stdin.
            output.exit(0);
        }
    }

    fn stdin_closed(&mut self, output: &mut Output) {
        if self.reader.is_within_a_member() {
            output.complain("tar: Unexpected EOF in archive\n");
            output.exit(2);
        } else {
            output.exit(0);
        }
    }
}

#[cfg(test)]
mod tests;
