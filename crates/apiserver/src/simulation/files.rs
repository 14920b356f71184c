//! The files that `kubectl cp` put into simulated containers. They are in memory, within bounds, and gone when the container
//! restarts or the server does, as the files of a container are. Paths are absolute and without dots. Pure, but for its lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// How much one container may hold: enough for configuration and test data.
const MAX_CONTAINER_BYTES: usize = 8 << 20;
const MAX_CONTAINER_FILES: usize = 1024;

/// How much all containers together may hold. Beyond that, the container that was not used for longest loses its files.
const MAX_BYTES: usize = 64 << 20;

/// What a file or directory costs beside its content.
const ENTRY_BYTES: usize = 256;

/// The files of all containers.
#[derive(Debug, Default)]
pub(crate) struct FileAreas(Mutex<Areas>);

#[derive(Debug, Default)]
struct Areas {
    areas: BTreeMap<String, Area>,
    uses: u64,
}

#[derive(Debug, Default)]
struct Area {
    entries: BTreeMap<String, Entry>,
    last_use: u64,
}

/// A file or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    File { mode: u32, content: Bytes },
    Directory,
}

impl Entry {
    pub(crate) fn bytes(&self) -> usize {
        ENTRY_BYTES + if let Entry::File { content, .. } = self { content.len() } else { 0 }
    }
}

impl Area {
    fn bytes(&self) -> usize {
        self.entries.iter().map(|(path, entry)| path.len() + entry.bytes()).sum()
    }
}

/// The files of one container.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    areas: Arc<FileAreas>,
    key: String,
}

impl FileAreas {
    /// The files of a container, by an id that is new whenever the container starts.
    pub(crate) fn of(self: &Arc<Self>, container_id: String) -> Files {
        Files { areas: self.clone(), key: container_id }
    }
}

impl Files {
    /// Puts a file or a directory, or says why there is no room.
    pub(crate) fn put(&self, path: &str, entry: Entry) -> Result<(), String> {
        let path = absolute(path);
        let mut areas = self.areas.0.lock();
        areas.uses += 1;
        let now = areas.uses;
        let area = areas.areas.entry(self.key.clone()).or_default();
        area.last_use = now;
        let replaced = area.entries.get(&path);
        let others = area.bytes() - replaced.map_or(0, |entry| path.len() + entry.bytes());
        let full = replaced.is_none() && area.entries.len() >= MAX_CONTAINER_FILES;
        if full || others + path.len() + entry.bytes() > MAX_CONTAINER_BYTES {
            return Err(format!(
                "no space left: a simulated container holds {} MiB in {MAX_CONTAINER_FILES} files",
                MAX_CONTAINER_BYTES >> 20
            ));
        }
        area.entries.insert(path, entry);
        while areas.areas.values().map(Area::bytes).sum::<usize>() > MAX_BYTES {
            let oldest = areas.areas.iter().min_by_key(|(_, area)| area.last_use).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            areas.areas.remove(&oldest);
        }
        Ok(())
    }

    /// A file or directory. The directories above what was put are there, too, and so is the root.
    pub(crate) fn get(&self, path: &str) -> Option<Entry> {
        let path = absolute(path);
        self.read(|entries| {
            let below = || entries.keys().any(|other| is_below(other, &path));
            entries.get(&path).cloned().or_else(|| (path == "/" || below()).then_some(Entry::Directory))
        })
    }

    /// A file or directory with everything below it, by path.
    pub(crate) fn tree(&self, path: &str) -> Vec<(String, Entry)> {
        let path = absolute(path);
        let Some(top) = self.get(&path) else { return Vec::new() };
        let below = self.read(|entries| {
            let below = entries.iter().filter(|(other, _)| is_below(other, &path));
            below.map(|(path, entry)| (path.clone(), entry.clone())).collect::<Vec<_>>()
        });
        [(path, top)].into_iter().chain(below).collect()
    }

    fn read<T>(&self, read: impl FnOnce(&BTreeMap<String, Entry>) -> T) -> T {
        let mut areas = self.areas.0.lock();
        areas.uses += 1;
        let now = areas.uses;
        match areas.areas.get_mut(&self.key) {
            Some(area) => {
                area.last_use = now;
                read(&area.entries)
            }
            None => read(&BTreeMap::new()),
        }
    }
}

fn is_below(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    path.strip_prefix(directory).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

/// A path from the root, without `.` and `..`, which never lead above it.
pub(crate) fn absolute(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: usize) -> Entry {
        Entry::File { mode: 0o644, content: vec![b'x'; bytes].into() }
    }

    #[test]
    fn paths_are_absolute() {
        for (path, expect) in
            [("a/b", "/a/b"), ("/a//b/", "/a/b"), ("./a/../b", "/b"), ("../../etc", "/etc"), ("", "/"), (".", "/")]
        {
            assert_eq!(absolute(path), expect, "{path}");
        }
    }

    #[test]
    fn files_are_kept_by_container() {
        let areas = Arc::new(FileAreas::default());
        let (one, other) = (areas.of("one".into()), areas.of("other".into()));
        one.put("tmp/a/b", file(3)).expect("room");
        assert_eq!(one.get("/tmp/a/b"), Some(file(3)));
        assert_eq!(
            (one.get("/tmp"), one.get("/tm"), one.get("/")),
            (Some(Entry::Directory), None, Some(Entry::Directory))
        );
        assert_eq!(other.get("/tmp/a/b"), None);
        let paths = |path: &str| one.tree(path).into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        assert_eq!(paths("/tmp"), ["/tmp", "/tmp/a/b"]);
        assert_eq!(paths("/tmp/a/b"), ["/tmp/a/b"]);
        assert!(paths("/other").is_empty());
    }

    #[test]
    fn room_is_limited() {
        let areas = Arc::new(FileAreas::default());
        let files = areas.of("one".into());
        files.put("/a", file(MAX_CONTAINER_BYTES - 2 * ENTRY_BYTES)).expect("room");
        assert!(files.put("/b", file(ENTRY_BYTES)).is_err());
        files.put("/a", file(MAX_CONTAINER_BYTES / 2)).expect("it replaces the first one");
        files.put("/b", file(ENTRY_BYTES)).expect("room again");
        for number in 0..20 {
            areas.of(number.to_string()).put("/a", file(MAX_CONTAINER_BYTES / 2)).expect("room");
        }
        assert_eq!(files.get("/a"), None, "the container that was not used for longest made room");
        assert!(areas.of("19".into()).get("/a").is_some());
    }
}
