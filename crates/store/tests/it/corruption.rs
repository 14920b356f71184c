//! A disk that lies (R13): any byte flipped, any file cut, grown, emptied or deleted. A store is refused by name or is
//! exactly what it was; never another content, never empty, never a panic.
//!
//! `KONVERGE_MUTATIONS=20000` runs it for longer, `KONVERGE_SEED=7` repeats a run.

use std::{
    collections::BTreeMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use konverge_store::{Change, Commit, Disk, Entry, OpenError, Range, Retention, Revision, Store, conformance::Rng};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Everything that can be read of a store.
#[derive(PartialEq, Debug)]
struct Content {
    oldest: Revision,
    newest: Revision,
    states: Vec<Vec<Entry>>,
    changes: Vec<Change>,
}

impl Content {
    /// From `oldest`, for compaction that was not yet on disk shows more of the past.
    fn of(store: &Disk, oldest: Revision) -> Content {
        let newest = store.revision();
        let at = |at| store.range(Range { at: Some(Revision(at)), ..Range::default() }).expect("readable").entries;
        let mut watch = store.watch("", oldest).expect("can begin");
        let changes = watch.take(usize::MAX).expect("not compacted");
        Content { oldest, newest, states: (oldest.0..=newest.0).map(at).collect(), changes }
    }
}

/// The files of a store, as bytes.
type Image = BTreeMap<String, Vec<u8>>;

fn image(dir: &Path) -> Image {
    let files = fs::read_dir(dir).expect("readable").map(|file| file.expect("an entry").path());
    files
        .map(|path| (path.file_name().expect("a name").to_string_lossy().into(), fs::read(path).expect("readable")))
        .collect()
}

fn lay_out(image: &Image, dir: &Path) {
    for file in fs::read_dir(dir).expect("readable") {
        fs::remove_file(file.expect("an entry").path()).expect("removable");
    }
    for (name, content) in image {
        fs::write(dir.join(name), content).expect("writable");
    }
}

/// A small store with every kind of record, as a clean end and as a kill leave it.
fn samples() -> (Content, [(&'static str, Image); 2]) {
    let home = tempfile::tempdir().expect("a directory");
    let store = Disk::open(home.path(), Retention::default(), Revision::ZERO).expect("a new store");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let commit = |commit: Commit| runtime.block_on(store.commit(commit)).expect("commits");
    for number in 0..40 {
        commit(
            Commit::default().put(format!("/a/{}", number % 9), format!("value {number} {}", "x".repeat(number * 20))),
        );
    }
    commit(Commit::default().put("/large", "y".repeat(20_000)).delete("/a/3").put("/empty", ""));
    store.compact(Revision(20));
    for number in 1..20 {
        commit(Commit::default().put(format!("/b/{number}"), "z").delete(format!("/b/{}", number / 2)));
    }
    let truth = Content::of(&store, Revision(20));
    let killed = image(home.path());
    drop(store);
    (truth, [("killed", killed), ("closed", image(home.path()))])
}

#[derive(Default, Debug)]
struct Tally {
    refused: usize,
    harmless: usize,
}

struct Lab {
    truth: Content,
    dir: tempfile::TempDir,
    tally: Tally,
}

impl Lab {
    fn check(&mut self, what: &str, image: &Image) {
        lay_out(image, self.dir.path());
        if self.opens(what) {
            self.tally.harmless += 1;
        } else {
            // A refusal must not heal the store into another one.
            self.opens(&format!("{what}, second start"));
            self.tally.refused += 1;
        }
    }

    /// True if it opens with the content it should have, false if it is refused as it should be.
    fn opens(&self, what: &str) -> bool {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            Disk::open(self.dir.path(), Retention::default(), Revision::ZERO)
                .map(|store| Content::of(&store, self.truth.oldest))
        }));
        match outcome {
            Ok(Ok(content)) => {
                assert!(content == self.truth, "{what}: opened with other content");
                true
            }
            Ok(Err(OpenError::Damaged { file, .. } | OpenError::Newer { file, .. })) => {
                assert!(file.starts_with(self.dir.path()), "{what}: names a file of the store");
                false
            }
            Ok(Err(other)) => panic!("{what}: refused for a reason that does not help: {other}"),
            Err(_) => panic!("{what}: panicked"),
        }
    }
}

/// redb's header: magic, geometry and the two commit slots.
const HEADER: usize = 320;

#[test]
fn a_damaged_store_is_refused_or_unharmed() {
    let (seed, mutations) = (number("KONVERGE_SEED", 1), number("KONVERGE_MUTATIONS", 200));
    println!("KONVERGE_SEED={seed} KONVERGE_MUTATIONS={mutations}");
    let mut rng = Rng::new(seed);
    let (truth, samples) = samples();
    let mut lab = Lab { truth, dir: tempfile::tempdir().expect("a directory"), tally: Tally::default() };

    for (state, sample) in &samples {
        lab.check(&format!("{state}, untouched"), sample);
    }
    assert_eq!((lab.tally.harmless, lab.tally.refused), (2, 0), "an untouched store opens");
    for (state, sample) in &samples {
        for gone in ["store.redb", "store.mark"] {
            let mut image = sample.clone();
            image.remove(gone).expect("a store has it");
            lab.check(&format!("{state}, without {gone}"), &image);
            image.insert(gone.into(), Vec::new());
            lab.check(&format!("{state}, {gone} emptied"), &image);
        }
    }
    assert_eq!((lab.tally.harmless, lab.tally.refused), (2, 8), "a store without one of its files is refused");

    for at in 0..HEADER {
        let (state, sample) = rng.pick(&samples);
        let mut image = sample.clone();
        let flipped = flip(&mut rng, image.get_mut("store.redb").expect("a store has it"), at);
        lab.check(&format!("seed {seed}, {state}, header: {flipped}"), &image);
    }
    for turn in 0..mutations {
        let (state, sample) = rng.pick(&samples);
        let mut image = sample.clone();
        let name = if rng.once_in(12) { "store.mark" } else { "store.redb" };
        let done = mutate(&mut rng, image.get_mut(name).expect("a store has it"));
        lab.check(&format!("seed {seed}, mutation {turn}, {state}, {name}: {done}"), &image);
    }
    println!("{HEADER} header bytes and {mutations} mutations: {:?}", lab.tally);
}

/// Does one thing to a file that a bad disk, a bad copy or a bad administrator might do, and says what.
fn mutate(rng: &mut Rng, file: &mut Vec<u8>) -> String {
    let length = file.len();
    let at = rng.below(length);
    let end = (at + 1 + rng.below(9000)).min(length);
    match rng.below(10) {
        0 | 1 => flip(rng, file, at % HEADER.min(length)),
        2..6 => {
            // Where something is written; most of a new file is empty.
            let used: Vec<usize> = (0..length).filter(|at| file[*at] != 0).collect();
            let at = *rng.pick(&used);
            flip(rng, file, at)
        }
        6 => {
            file.truncate(at);
            format!("cut to {at} of {length}")
        }
        7 => {
            file[at..end].fill_with(|| rng.next_u64().to_le_bytes()[0]);
            format!("noise in {at}..{end}")
        }
        8 => {
            file[at..end].fill(0);
            format!("zeroes in {at}..{end}")
        }
        _ => {
            file.resize(length + end - at, 0);
            format!("grown by {}", end - at)
        }
    }
}

fn flip(rng: &mut Rng, file: &mut [u8], at: usize) -> String {
    let bit = 1u8 << rng.below(8);
    file[at] ^= bit;
    format!("byte {at} ^ {bit:#04x}")
}
