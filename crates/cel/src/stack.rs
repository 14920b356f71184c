//! Room for deep expressions. An expression may nest 250 levels, and parsing, checking and evaluating it recurse as deep. That
//! takes more stack than the threads of a runtime or of a test have, and a stack that overflows ends the process.

/// Up to this many levels fit into every stack.
const SHALLOW: usize = 32;

/// What a level takes at most: 20 KiB without optimization. It is reserved, and used only where it is needed.
const BYTES_PER_LEVEL: usize = 64 * 1024;

/// Computes something that recurses this deep; on a thread of its own if it could need more stack than there is.
pub(crate) fn with_stack_for<T: Send>(levels: usize, compute: impl FnOnce() -> T + Send) -> T {
    if levels <= SHALLOW {
        return compute();
    }
    let builder = std::thread::Builder::new().name("cel".to_owned()).stack_size(levels * BYTES_PER_LEVEL);
    std::thread::scope(|scope| {
        let thread = builder.spawn_scoped(scope, compute).expect("the system has room for a thread");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
