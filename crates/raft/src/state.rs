//! The replicated state: keys with values, and the number of the current term. In: commands, in the order of the log. Out: how each
//! ended, and what changed. Pure and the same on every member: limits are part of the commands, so that members with different
//! settings still agree.
//!
//! A command that is sent again, because its answer was lost, is carried out once: the state remembers how the newest commands ended.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use serde::{Deserialize, Serialize};

/// How many commands are remembered. An answer is waited for some seconds, and a command whose time was forgotten is refused, never
/// carried out twice.
const REMEMBERED: usize = 1024;

/// What the log has in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Command {
    /// A member begins to lead.
    BeginTerm {
        /// Who.
        holder: String,
    },
    /// A change of the keys.
    Write(Request),
}

impl Command {
    /// Bytes of it that have no fixed bound.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Command::BeginTerm { holder } => holder.len() as u64,
            Command::Write(Request { write: Write::Put { key, value, .. }, .. }) => size(key, value),
            Command::Write(Request { write: Write::Delete { key, .. }, .. }) => size(key, &[]),
        }
    }
}

/// A change of the keys, as one member asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Which one it is: the process that asks, and its count.
    pub id: (u64, u64),
    /// The index that this member had applied when it began to ask: the command cannot have been carried out before that.
    pub since: u64,
    /// The term that it was begun for, if it was.
    pub term: Option<u64>,
    /// How many bytes keys and values may have together.
    pub limit: u64,
    pub write: Write,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Write {
    Put { key: String, value: Vec<u8>, expected: Expected },
    Delete { key: String, expected: Expected },
}

/// What has to be there for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Expected {
    Anything,
    Nothing,
    Version(u64),
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The entry was not a command.
    None,
    /// The term that begins.
    Begun { number: u64 },
    /// The version of the key now; none if there was nothing to delete.
    Written { version: Option<u64> },
    /// Another version was there.
    Conflict { current: Option<u64> },
    /// The term that it was begun for is over.
    TermOver { current: u64 },
    /// There is no room.
    Full { bytes: u64, limit: u64 },
    /// Whether it was carried out before is not remembered.
    Forgotten,
}

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned {
    /// What was put.
    pub value: Vec<u8>,
    /// Greater with every write, of all keys.
    pub version: u64,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key has this value now.
    Put {
        /// Which.
        key: String,
        /// What.
        value: Versioned,
    },
    /// The key is gone.
    Deleted {
        /// Which.
        key: String,
    },
}

impl Change {
    /// The key that has changed.
    pub fn key(&self) -> &str {
        match self {
            Change::Put { key, .. } | Change::Deleted { key } => key,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The number of the newest term.
    pub term: u64,
    /// Who began it.
    pub holder: String,
    /// The version of the newest write.
    version: u64,
    /// Bytes of keys and values.
    bytes: u64,
    entries: BTreeMap<String, Versioned>,
    /// How the newest requests ended, with the index of each.
    recent: VecDeque<((u64, u64), u64, Outcome)>,
    /// The index of the newest request that is not remembered.
    forgotten: u64,
}

impl State {
    /// Carries out the command at this index of the log.
    pub(crate) fn apply(&mut self, index: u64, command: Command) -> (Outcome, Option<Change>) {
        match command {
            Command::BeginTerm { holder } => {
                self.term += 1;
                self.holder = holder;
                (Outcome::Begun { number: self.term }, None)
            }
            Command::Write(request) => self.request(index, request),
        }
    }

    fn request(&mut self, index: u64, request: Request) -> (Outcome, Option<Change>) {
        if let Some((_, _, outcome)) = self.recent.iter().rev().find(|(id, ..)| *id == request.id) {
            return (outcome.clone(), None);
        }
        if request.since < self.forgotten {
            return (Outcome::Forgotten, None);
        }
        let (outcome, change) = self.write(&request);
        self.recent.push_back((request.id, index, outcome.clone()));
        if self.recent.len() > REMEMBERED
            && let Some((_, index, _)) = self.recent.pop_front()
        {
            self.forgotten = index;
        }
        (outcome, change)
    }

    fn write(&mut self, request: &Request) -> (Outcome, Option<Change>) {
        if request.term.is_some_and(|term| term < self.term) {
            return (Outcome::TermOver { current: self.term }, None);
        }
        let (Write::Put { key, expected, .. } | Write::Delete { key, expected }) = &request.write;
        let current = self.entries.get(key);
        let is_expected = match expected {
            Expected::Anything => true,
            Expected::Nothing => current.is_none(),
            Expected::Version(version) => current.is_some_and(|current| current.version == *version),
        };
        if !is_expected {
            return (Outcome::Conflict { current: current.map(|current| current.version) }, None);
        }
        let before = current.map_or(0, |current| size(key, &current.value));
        match &request.write {
            Write::Put { key, value, .. } => {
                let bytes = self.bytes - before + size(key, value);
                // A write that makes the state smaller always has room, also if the limit was lowered.
                if bytes > request.limit && bytes > self.bytes {
                    return (Outcome::Full { bytes, limit: request.limit }, None);
                }
                self.bytes = bytes;
                self.version += 1;
                let value = Versioned { value: value.clone(), version: self.version };
                self.entries.insert(key.clone(), value.clone());
                (Outcome::Written { version: Some(self.version) }, Some(Change::Put { key: key.clone(), value }))
            }
            Write::Delete { key, .. } => {
                if self.entries.remove(key).is_none() {
                    return (Outcome::Written { version: None }, None);
                }
                self.bytes -= before;
                self.version += 1;
                (Outcome::Written { version: Some(self.version) }, Some(Change::Deleted { key: key.clone() }))
            }
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Versioned> {
        self.entries.get(key)
    }

    /// The keys that begin with this, in order.
    pub(crate) fn list<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a Versioned)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        self.entries.range::<str, _>(from).take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Bytes of keys and values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What a key and its value count as.
pub(crate) fn size(key: &str, value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that numbers its requests.
    #[derive(Default)]
    struct Machine {
        state: State,
        index: u64,
    }

    impl Machine {
        fn ask(&mut self, id: u64, since: u64, term: Option<u64>, write: Write) -> Outcome {
            self.index += 1;
            let request = Request { id: (1, id), since, term, limit: 20, write };
            self.state.apply(self.index, Command::Write(request)).0
        }

        fn write(&mut self, write: Write) -> Outcome {
            let index = self.index;
            self.ask(1000 + index, index, None, write)
        }
    }

    fn put(key: &str, value: &str, expected: Expected) -> Write {
        Write::Put { key: key.into(), value: value.into(), expected }
    }

    fn delete(key: &str) -> Write {
        Write::Delete { key: key.into(), expected: Expected::Anything }
    }

    #[test]
    fn writes_happen_if_what_is_there_is_expected() {
        use Expected::{Anything, Nothing, Version};
        let mut machine = Machine::default();
        let written = |version| Outcome::Written { version };
        for (given, expect) in [
            (put("a", "1", Nothing), written(Some(1))),
            (put("a", "2", Nothing), Outcome::Conflict { current: Some(1) }),
            (put("a", "2", Version(1)), written(Some(2))),
            (put("a", "3", Version(1)), Outcome::Conflict { current: Some(2) }),
            (put("b", "3", Version(1)), Outcome::Conflict { current: None }),
            (put("a", "4", Anything), written(Some(3))),
            (delete("b"), written(None)),
            (delete("a"), written(Some(4))),
            (put("a", "5", Nothing), written(Some(5))),
        ] {
            assert_eq!(machine.write(given.clone()), expect, "{given:?}");
        }
        let listed: Vec<_> = machine.state.list("").map(|(key, value)| (key.as_str(), value.version)).collect();
        assert_eq!(listed, [("a", 5)]);
    }

    #[test]
    fn keys_are_listed_by_prefix() {
        let mut machine = Machine::default();
        for key in ["a", "a/1", "a/2", "b"] {
            machine.write(put(key, "", Expected::Anything));
        }
        let check = |prefix: &str, expect: &[&str]| {
            let keys: Vec<_> = machine.state.list(prefix).map(|(key, _)| key.as_str()).collect();
            assert_eq!(keys, expect, "{prefix}");
        };
        check("a/", &["a/1", "a/2"]);
        check("", &["a", "a/1", "a/2", "b"]);
        check("c", &[]);
    }

    #[test]
    fn a_state_that_is_full_takes_only_what_makes_it_smaller() {
        let mut machine = Machine::default();
        let any = Expected::Anything;
        assert_eq!(machine.write(put("a", &"x".repeat(19), any)), Outcome::Written { version: Some(1) });
        assert_eq!(machine.write(put("b", "x", any)), Outcome::Full { bytes: 22, limit: 20 });
        assert_eq!(machine.write(put("a", "x", any)), Outcome::Written { version: Some(2) });
        assert_eq!(machine.write(put("b", "x", any)), Outcome::Written { version: Some(3) });
        assert_eq!(machine.state.bytes(), 4);
        machine.write(delete("a"));
        assert_eq!(machine.state.bytes(), 2);
    }

    #[test]
    fn a_write_for_an_ended_term_is_refused() {
        let mut machine = Machine::default();
        for number in 1..=2 {
            let begun = machine.state.apply(number, Command::BeginTerm { holder: "web-0".into() }).0;
            assert_eq!(begun, Outcome::Begun { number });
        }
        let write = || put("a", "1", Expected::Anything);
        assert_eq!(machine.ask(1, 0, Some(1), write()), Outcome::TermOver { current: 2 });
        assert_eq!(machine.ask(2, 0, Some(2), write()), Outcome::Written { version: Some(1) });
        assert_eq!(machine.ask(3, 0, None, write()), Outcome::Written { version: Some(2) });
    }

    #[test]
    fn a_request_is_carried_out_once() {
        let mut machine = Machine::default();
        let first = machine.ask(1, 0, None, put("a", "1", Expected::Anything));
        machine.write(put("a", "2", Expected::Anything));
        assert_eq!(machine.ask(1, 0, None, put("a", "1", Expected::Anything)), first);
        assert_eq!(machine.state.get("a").map(|value| value.value.clone()), Some(b"2".to_vec()));
        // Long after it, nobody knows any more, and then it is not carried out.
        for _ in 0..REMEMBERED {
            machine.write(put("a", "3", Expected::Anything));
        }
        assert_eq!(machine.ask(1, 0, None, put("a", "1", Expected::Anything)), Outcome::Forgotten);
    }
}
