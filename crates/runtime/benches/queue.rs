//! What a wakeup costs. Prints nanoseconds a round, the median and the best of several runs, on the processor (Linux
//! only: a busy machine changes these least) and on the wall: `cargo bench -p konverge-runtime --bench queue`. The
//! shapes are those of client-go's and controller-runtime's benchmarks of their work queues. Every figure includes the
//! lock, the hash of the key and the reading of the clock; the first line says what that takes alone.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use konverge_core::ObjectKey;
use konverge_runtime::{Priority, Queue, QueueOptions, Requeue, Wakeup};
use tokio::runtime::Builder;

const KEYS: usize = 100_000;
const RUNS: usize = 9;

fn main() {
    let keys: Vec<ObjectKey> = (0..KEYS).map(|n| ObjectKey::new(Some("team-blue"), &format!("web-{n}"))).collect();
    report("read the clock", 1_000_000, read_clock);
    report("add, get, done: one key", 1_000_000, |rounds| add_get_done(&keys[..1], rounds));
    report("add, get, done: 100 keys", 1_000_000, |rounds| add_get_done(&keys[..100], rounds));
    report("add, get, done: 100,000 keys", 1_000_000, |rounds| add_get_done(&keys, rounds));
    report("add, get, done: one of 100,000 that wait", 1_000_000, |rounds| among_waiting(&keys, rounds));
    report("add: new keys, all priorities", KEYS, |_| add_only(&keys, 1));
    report("add: new once, merged nine times", KEYS * 10, |_| add_only(&keys, 10));
    report("get, done: 100,000 ready keys", KEYS, |_| get_done(&keys));
    report("add after: new keys", KEYS, |_| add_after(&keys, 1));
    report("add after: new once, earlier nine times", KEYS * 10, |_| add_after(&keys, 10));
    for (producers, consumers) in [(4, 8), (8, 8)] {
        let name = format!("{producers} producers, {consumers} consumers: one add");
        report(&name, KEYS * producers, |_| contended(&keys, producers, consumers));
    }
}

fn report(name: &str, rounds: usize, mut run: impl FnMut(usize) -> Span) {
    let mut spans: Vec<Span> = (0..RUNS).map(|_| run(rounds)).collect();
    let mut line = format!("{name:<42}");
    for (what, of) in [("cpu", (|span| span.cpu) as fn(&Span) -> Duration), ("wall", |span| span.wall)] {
        if spans.iter().any(|span| of(span).is_zero()) {
            continue;
        }
        spans.sort_by_key(of);
        let nanos = |span: &Span| of(span).as_nanos() as f64 / rounds as f64;
        line += &format!("   {what} {:>7.1} ns, best {:>7.1}", nanos(&spans[RUNS / 2]), nanos(&spans[0]));
    }
    println!("{line}");
}

/// How long something took.
struct Span {
    wall: Duration,
    cpu: Duration,
}

/// A span that has begun.
struct Since(Instant, Duration);

impl Since {
    fn now() -> Self {
        Self(Instant::now(), on_cpu())
    }

    fn elapsed(&self) -> Span {
        Span { wall: self.0.elapsed(), cpu: on_cpu().saturating_sub(self.1) }
    }
}

/// How long this thread has been on a processor: the first word of its line in the scheduler's statistics.
fn on_cpu() -> Duration {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = line.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

fn read_clock(rounds: usize) -> Span {
    let start = Since::now();
    (0..rounds).for_each(|_| _ = black_box(Instant::now()));
    start.elapsed()
}

fn change(n: usize) -> Wakeup<u32> {
    Wakeup::new(Priority::Change, n as u32)
}

fn block_on<T>(act: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_time().build().expect("a runtime of one thread").block_on(act)
}

/// Round by round: one add, one get, one done. Nothing is allocated after the first round.
fn add_get_done(keys: &[ObjectKey], rounds: usize) -> Span {
    let queue = Queue::new(&QueueOptions::default());
    block_on(rounds_of(&queue, keys, rounds))
}

async fn rounds_of(queue: &Queue<u32>, keys: &[ObjectKey], rounds: usize) -> Span {
    let start = Since::now();
    // A stride that is prime to the number of keys: the next key is never the neighbour in memory.
    let mut at = 0;
    for n in 0..rounds {
        at = (at + 7_919) % keys.len();
        let _ = queue.add(&keys[at], change(n));
        let job = queue.get().await.expect("it is open");
        black_box(job.key());
        job.done(Requeue::Forget);
    }
    start.elapsed()
}

/// The same while every other key waits to run again: a queue as an operator with a requeue interval has it.
fn among_waiting(keys: &[ObjectKey], rounds: usize) -> Span {
    let queue = Queue::new(&QueueOptions::default());
    let (waiting, woken) = keys.split_at(keys.len() / 2);
    for (n, key) in waiting.iter().enumerate() {
        let _ = queue.add(key, change(n).after(Duration::from_secs(300 + n as u64 % 60)));
    }
    block_on(rounds_of(&queue, woken, rounds))
}

fn add_only(keys: &[ObjectKey], times: usize) -> Span {
    let queue = Queue::new(&QueueOptions::default());
    let start = Since::now();
    for _ in 0..times {
        for (n, key) in keys.iter().enumerate() {
            let _ = queue.add(key, Wakeup::new(Priority::ALL[n % 4], n as u32));
        }
    }
    start.elapsed()
}

fn get_done(keys: &[ObjectKey]) -> Span {
    let queue = Queue::new(&QueueOptions::default());
    for (n, key) in keys.iter().enumerate() {
        let _ = queue.add(key, Wakeup::new(Priority::ALL[n % 4], n as u32));
    }
    block_on(async {
        let start = Since::now();
        for _ in keys {
            let job = queue.get().await.expect("it is open");
            job.done(Requeue::Forget);
        }
        start.elapsed()
    })
}

/// Delays in no order; every further round asks for an earlier time, so that each add moves its key.
fn add_after(keys: &[ObjectKey], times: usize) -> Span {
    let queue = Queue::new(&QueueOptions::default());
    let start = Since::now();
    for round in 0..times {
        for (n, key) in keys.iter().enumerate() {
            let millis = 3_600_000 - 300_000 * round + n.wrapping_mul(2_654_435_761) % 200_000;
            let _ = queue.add(key, change(n).after(Duration::from_millis(millis as u64)));
        }
    }
    start.elapsed()
}

/// Each producer is a thread and adds every key once; the consumers are tasks. Until everything is done.
fn contended(keys: &[ObjectKey], producers: usize, consumers: usize) -> Span {
    let queue = Queue::new(&QueueOptions::default());
    let runtime = Builder::new_multi_thread().enable_time().build().expect("a runtime");
    let done = AtomicUsize::new(0);
    let start = Since::now();
    let tasks: Vec<_> = (0..consumers)
        .map(|_| {
            let queue = queue.clone();
            runtime.spawn(async move {
                let mut count = 0;
                while let Some(job) = queue.get().await {
                    job.done(Requeue::Forget);
                    count += 1;
                }
                count
            })
        })
        .collect();
    thread::scope(|scope| {
        for producer in 0..producers {
            let queue = &queue;
            scope.spawn(move || {
                let from = keys.len() / producers * producer;
                for (n, key) in keys[from..].iter().chain(&keys[..from]).enumerate() {
                    let _ = queue.add(key, change(n));
                }
            });
        }
    });
    queue.shutdown();
    for task in tasks {
        done.fetch_add(runtime.block_on(task).expect("a consumer does not panic"), Ordering::Relaxed);
    }
    // Many threads: the time of this one says nothing.
    let elapsed = Span { cpu: Duration::ZERO, ..start.elapsed() };
    assert!(done.into_inner() >= keys.len(), "every key was taken at least once");
    elapsed
}
