//! Commands of simulated containers: what they print, and how they exit.

use serde_json::json;

use super::*;

fn container(annotations: serde_json::Value) -> (Arc<Simulation>, Files) {
    let pod = json!({"metadata": {"name": "web", "namespace": "shop", "annotations": annotations}});
    (Arc::new(Simulation::of(&pod)), Arc::new(FileAreas::default()).of("id".into()))
}

/// Runs a command with this stdin until it exits, or its stdin does.
fn run(program: &mut dyn Program, stdin: &str) -> Output {
    let mut output = Output::default();
    program.begin(&mut output);
    for byte in stdin.as_bytes().chunks(5) {
        if output.exit.is_none() {
            program.stdin(byte, &mut output);
        }
    }
    if output.exit.is_none() {
        program.stdin_closed(&mut output);
    }
    output
}

fn said(output: &Output) -> (String, String, Option<Exit>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.exit.clone())
}

#[test]
fn commands_without_a_prescription() {
    let (simulation, files) = container(json!({}));
    files.put("/etc/app/config", Entry::File { mode: 0o644, content: "x=1\n".into() }).expect("room");
    let ran = |line: &str| format!("konverge: pod shop/web is simulated: container main did not run: {line}\n");
    let nothing = ran("ls -l /");
    let piped = ran("env | sort");
    let hello = "hello, hello, hello";
    for (command, stdin, stdout, stderr, code) in [
        (&["ls", "-l", "/"][..], "", nothing.as_str(), "", 0),
        (&["cat"], hello, hello, "", 0),
        (&["/bin/cat", "/etc/app/config"], "", "x=1\n", "", 0),
        (&["cat", "/none", "/etc"], "", "", "cat: /none: No such file or directory\ncat: /etc: Is a directory\n", 1),
        (&["ls", "/etc"], "", "app\n", "", 0),
        (&["ls", "/none"], "", "", "ls: /none: No such file or directory\n", 1),
        (&["echo", "a", "b"], "", "a b\n", "", 0),
        (&["true"], "", "", "", 0),
        (&["false"], "", "", "", 1),
        (&["test", "-d", "/etc"], "", "", "", 0),
        (&["test", "-d", "/etc/app/config"], "", "", "", 1),
        (&["test", "-f", "/etc/app/config"], "", "", "", 0),
        (&["sh", "-c", "exit 3"], "", "", "", 3),
        (&["bash", "-ec", "echo a; false || echo b && exit 4"], "", "a\nb\n", "", 4),
        (&["sh", "-c", "false"], "", "", "", 1),
        (&["sh", "-c", "cat; echo end"], "in\n", "in\nend\n", "", 0),
        (&["sh", "-c", "env | sort"], "", piped.as_str(), "", 0),
        (&["sh"], "echo one\necho two\nexit 5\necho three\n", "one\ntwo\n", "", 5),
        (&["sh"], "echo one\nfalse", "one\n", "", 1),
        (&["sh"], "exit soon\n", "", "sh: exit: Illegal number: soon\n", 2),
        (&["tar", "cf", "-", "/none"], "", "", "", 2),
    ] {
        let words: Vec<String> = command.iter().map(|word| (*word).into()).collect();
        let output = run(&mut *program(&simulation, "main", files.clone(), false, &words), stdin);
        let (got, complaint, exit) = said(&output);
        assert_eq!(exit, Some(Exit::Code(code)), "{command:?} {complaint}");
        if command[0] != "tar" {
            assert_eq!((got.as_str(), complaint.as_str()), (stdout, stderr), "{command:?}");
        }
    }
}

#[test]
fn prescribed_commands() {
    let (simulation, files) = container(json!({
        "simulate.konverge.dev/exec": r#"[{"command": "sh*", "stdout": "out\n", "stderr": "err\n", "exitCode": 7}]"#,
    }));
    let words = ["sh".to_owned(), "-c".to_owned(), "anything".to_owned()];
    let output = run(&mut *program(&simulation, "main", files.clone(), true, &words), "");
    assert_eq!(said(&output), ("out\n".into(), "err\n".into(), Some(Exit::Code(7))));
    let (broken, files) = container(json!({"simulate.konverge.dev/exec": "no list"}));
    let output = run(&mut *program(&broken, "main", files, false, &words), "");
    assert!(matches!(output.exit, Some(Exit::Failed(why)) if why.contains("simulate.konverge.dev/exec is not valid")));
}

/// What `kubectl cp` does in both directions.
#[test]
fn files_are_copied() {
    let (simulation, files) = container(json!({}));
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let file = Entry::File { mode: 0o600, content: "hello\n".into() };
    let archive = tar::write(&[("dir".into(), Entry::Directory), ("dir/file".into(), file.clone())]);
    let extract = |archive: &[u8], closes: bool| {
        let mut program = program(&simulation, "main", files.clone(), false, &words("tar -xmf - -C /tmp"));
        let mut output = Output::default();
        program.begin(&mut output);
        archive.chunks(700).for_each(|piece| program.stdin(piece, &mut output));
        if closes && output.exit.is_none() {
            program.stdin_closed(&mut output);
        }
        said(&output)
    };
    assert_eq!(extract(&archive, false), (String::new(), String::new(), Some(Exit::Code(0))));
    assert_eq!(files.get("/tmp/dir/file"), Some(file.clone()));
    assert_eq!(extract(&archive[..1300], true).2, Some(Exit::Code(2)), "it broke off");
    assert_eq!(extract(&[b'x'; 1024], true).2, Some(Exit::Code(2)), "it is none");
    let output = run(&mut *program(&simulation, "main", files.clone(), false, &words("tar cf - tmp/dir/file")), "");
    assert_eq!(output.stdout, tar::write(&[("tmp/dir/file".into(), file.clone())]));
    let output = run(&mut *program(&simulation, "main", files.clone(), false, &words("tar cf - /tmp/dir")), "");
    assert_eq!(output.stdout, tar::write(&[("tmp/dir".into(), Entry::Directory), ("tmp/dir/file".into(), file)]));
    assert_eq!(output.stderr, b"tar: Removing leading `/' from member names\n");
}

#[test]
fn a_shell_on_a_terminal() {
    let (simulation, files) = container(json!({}));
    let mut shell = program(&simulation, "main", files, true, &["sh".to_owned()]);
    let mut step = |act: &dyn Fn(&mut dyn Program, &mut Output)| {
        let mut output = Output::default();
        act(&mut *shell, &mut output);
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.exit)
    };
    let prompt = "main (simulated) $ ";
    let (first, _) = step(&|shell, output| shell.begin(output));
    assert!(first.starts_with("konverge: pod shop/web is simulated") && first.ends_with(prompt), "{first}");
    assert_eq!(step(&|shell, output| shell.stdin(b"echo hi\n", output)), (format!("hi\n{prompt}"), None));
    assert_eq!(step(&|shell, output| shell.stdin(b"\n", output)), (prompt.to_owned(), None));
    assert_eq!(step(&|shell, output| shell.stdin(b"cat\n", output)), (String::new(), None));
    assert_eq!(step(&|shell, output| shell.stdin(b"typed\n", output)), ("typed\n".to_owned(), None));
    assert_eq!(step(&|shell, output| shell.stdin_closed(output)), (prompt.to_owned(), None), "only cat has ended");
    assert_eq!(step(&|shell, output| shell.stdin(b"cat\n", output)), (String::new(), None));
    assert_eq!(step(&|shell, output| shell.interrupt(output)), (prompt.to_owned(), None));
    assert_eq!(step(&|shell, output| shell.stdin_closed(output)), (String::new(), Some(Exit::Code(130))));
}

#[test]
fn exit_codes_of_commands_that_nobody_is_attached_to() {
    let check = |annotations: serde_json::Value, command: &[&str], expect: Option<i32>| {
        let (simulation, _) = container(annotations);
        let words: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(exit_code(&simulation, "main", &words), expect, "{command:?}");
    };
    check(json!({}), &["sh", "-c", "echo x; exit 3"], Some(3));
    check(json!({}), &["sh"], Some(0));
    check(json!({}), &["cat"], Some(0));
    check(json!({}), &["false"], Some(1));
    // These may run for ever.
    check(json!({}), &["sleep", "1d"], None);
    check(json!({}), &["sh", "-c", "echo x && sleep 1d; exit 3"], None);
    check(json!({}), &["sh", "-c", "while true; do date; done"], None);
    check(json!({"simulate.konverge.dev/exec-exit-code": "4"}), &["sleep", "1d"], Some(4));
}
