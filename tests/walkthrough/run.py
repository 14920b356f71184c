#!/usr/bin/env python3
"""Does what a page of the guide says, as a reader would, in an empty directory.

    run.py PAGE KONVERGE

A block with a path as its title is written to that file. Other blocks of `sh` are run one after the other in one shell, which ends at the first
command that fails; a command with the comment "refused: TEXT" has to fail, and to say so. A block titled "in another terminal, until it says: TEXT" runs
beside it, from the moment at which the page has it until the end; the page goes on when it says so.

What differs from a reader's machine: `konverge` is the program that is tested, ports are free ones, and dependencies are those of this repository, so
that nothing is downloaded.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
# The first build of a project compiles its dependencies.
READY_WITHIN = 900
ANOTHER_TERMINAL = "in another terminal, until it says: "


def judged(line):
    """A line of a shell; one that is to be refused becomes one that succeeds if it is."""
    command, comment, text = line.partition("# refused: ")
    if not comment:
        return line
    text = text.strip().replace("'", "")
    return f"""{{ ! said=$({command.strip()} 2>&1); }} && echo "$said" && grep -qF '{text}' <<<"$said" """


def blocks(page):
    """(language, title, text) of every block of the page, in order."""
    found = re.finditer(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)
    return [match.groups() for match in found]


class Shell:
    """One shell that keeps its directory and its variables from block to block."""

    def __init__(self, work, environment):
        self.log = work / "other-terminal.log"
        self.marks = work / "mark"
        self.shell = subprocess.Popen(["bash"], cwd=work, env=environment, stdin=subprocess.PIPE, text=True, start_new_session=True)
        self.others = []
        self.send("set -euo pipefail")

    def send(self, text):
        """Runs lines, and returns the directory that the shell is in afterwards."""
        self.marks.unlink(missing_ok=True)
        self.shell.stdin.write(f"{text}\npwd >{self.marks}.new && mv {self.marks}.new {self.marks}\n")
        self.shell.stdin.flush()
        while not self.marks.exists():
            if self.shell.poll() is not None:
                raise SystemExit(f"FAILED: a command ended with {self.shell.returncode}; the newest block was:\n{text}\n{self.other_log()}")
            time.sleep(0.05)
        return Path(self.marks.read_text().strip())

    def beside(self, text, ready, directory, environment):
        with self.log.open("w") as log:
            other = subprocess.Popen(
                ["bash", "-c", f"exec {text.strip()}"], cwd=directory, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self.others.append(other)
        until = time.monotonic() + READY_WITHIN
        while ready not in self.log.read_text():
            if other.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"FAILED: {text.strip()} does not say {ready!r}\n{self.other_log()}")
            time.sleep(0.1)

    def other_log(self):
        return self.log.read_text()[-20_000:] if self.log.exists() else ""

    def close(self):
        for process in [*self.others, self.shell]:
            if process.poll() is None:
                # The whole session: a command of the shell may be running.
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)


def main():
    page, konverge = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    work = Path(tempfile.mkdtemp())
    (work / "bin").mkdir()
    (work / "bin" / "konverge").symlink_to(konverge)
    environment = {
        **os.environ,
        "PATH": f"{work / 'bin'}:{os.environ['PATH']}",
        "CARGO_TARGET_DIR": os.environ.get("CARGO_TARGET_DIR", str(REPOSITORY / "target")),
        "CARGO_NET_OFFLINE": "true",
        "PORT": "0",
    }
    environment.pop("KUBECONFIG", None)
    shell = Shell(work, environment)
    directory, files, commands = work, 0, 0
    try:
        for language, title, text in blocks(page.read_text()):
            if title and title.startswith(ANOTHER_TERMINAL):
                print(f"== beside: {text.strip()}", flush=True)
                shell.beside(text, title.removeprefix(ANOTHER_TERMINAL), directory, environment)
            elif title:
                path = directory / title
                if not path.exists():
                    raise SystemExit(f"FAILED: {title} is not a file of the scaffold; the page would add a file that nothing refers to")
                path.write_text(text)
                files += 1
            elif language == "sh":
                print(f"== {text.strip()}", flush=True)
                directory = shell.send("\n".join(map(judged, text.splitlines())))
                commands += len(text.strip().splitlines())
                if (directory / "Cargo.toml").exists() and not (directory / "Cargo.lock").exists():
                    shutil.copy(REPOSITORY / "Cargo.lock", directory)
        # What the page shows is as the formatter of the project would have it.
        shell.send("cargo fmt --all -- --check")
    finally:
        shell.close()
        shutil.rmtree(work)
    if not files or not commands:
        raise SystemExit("FAILED: the page has no files or no commands")
    print(f"ok {page.name}: {files} files and {commands} commands do what the page says")


main()
