//! Another time for a process: a small library in C that it is started with. In: how fast its clock runs, and a file that says by how many
//! seconds its wall clock is wrong, which may change while it runs. Where there is no C compiler, there is no such library, and the scenarios
//! say that they did not check clocks.

use std::path::{Path, PathBuf};
use std::process::Command;

/// `clock_gettime` is what Rust's `Instant` and `SystemTime` ask; timeouts of `epoll_wait` are what timers of tokio wait by.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double rate = 1.0;
static long long base;
static volatile long long *wrong;

static long long read_clock(clockid_t clock) {
    struct timespec time;
    syscall(SYS_clock_gettime, clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

__attribute__((constructor)) static void begin(void) {
    const char *given = getenv("CLOCK_RATE"), *path = getenv("CLOCK_WRONG");
    int file = path ? open(path, O_RDONLY) : -1;
    if (given) rate = atof(given);
    base = read_clock(CLOCK_MONOTONIC);
    if (file >= 0) {
        void *map = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
        if (map != MAP_FAILED) wrong = map;
    }
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    struct timespec time;
    long failed = syscall(SYS_clock_gettime, clock, &time);
    if (failed) return failed;
    if (clock == CLOCK_REALTIME && wrong) time.tv_sec += *wrong;
    if (clock == CLOCK_MONOTONIC && base) {
        long long now = time.tv_sec * 1000000000LL + time.tv_nsec;
        long long shown = base + (long long)((now - base) * rate);
        time.tv_sec = shown / 1000000000LL;
        time.tv_nsec = shown % 1000000000LL;
    }
    *out = time;
    return 0;
}

int epoll_wait(int poll, struct epoll_event *events, int most, int timeout) {
    if (timeout > 0) timeout = (int)(timeout / rate);
    return syscall(SYS_epoll_pwait, poll, events, most, timeout, (void *)0, 8);
}
"#;

pub(crate) struct Clocks {
    library: PathBuf,
    folder: PathBuf,
}

impl Clocks {
    /// None without a C compiler.
    pub(crate) fn new(folder: &Path) -> Option<Self> {
        let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
        std::fs::write(&source, SOURCE).unwrap();
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let made = Command::new(compiler).args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).output();
        made.is_ok_and(|made| made.status.success()).then_some(Self { library, folder: folder.to_owned() })
    }

    fn file(&self, ordinal: usize) -> PathBuf {
        self.folder.join(format!("wrong-{ordinal}"))
    }

    /// Has a process of this member see a time that runs at this rate.
    pub(crate) fn give(&self, command: &mut Command, ordinal: usize, rate: f64) {
        self.jump(ordinal, 0);
        command
            .env("LD_PRELOAD", &self.library)
            .env("CLOCK_RATE", rate.to_string())
            .env("CLOCK_WRONG", self.file(ordinal));
    }

    /// From now on, the wall clock of a member is wrong by this much.
    pub(crate) fn jump(&self, ordinal: usize, seconds: i64) {
        use std::io::Write;
        // In place: the process has this very file in its memory.
        let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(self.file(ordinal));
        file.unwrap().write_all(&seconds.to_ne_bytes()).unwrap();
    }
}
