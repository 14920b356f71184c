//! Transparent huge pages: off for this program, on for the processes that it starts.
//!
//! The allocator switches them off before `main` begins (mimalloc's feature `no_thp`). After a load, objects that stay are
//! spread over memory that is mostly free; the kernel would fill those gaps again, two megabytes at a time, and an idle
//! server would grow. Children inherit the setting, and a compiler or an operator is slower with it.

/// Starts a process that may use huge pages. It inherits the setting of this process at that moment, so the setting is
/// changed while `start` runs.
#[cfg(target_os = "linux")]
pub(crate) fn allow_for_child<T>(start: impl FnOnce() -> T) -> T {
    use rustix::thread::{disable_transparent_huge_pages, transparent_huge_pages_are_disabled};

    // While one child is started, another thread must not restore the setting.
    static STARTING: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _starting = STARTING.lock();
    if !transparent_huge_pages_are_disabled().unwrap_or(false) {
        return start();
    }
    let set = |disable: bool| {
        if let Err(error) = disable_transparent_huge_pages(disable) {
            tracing::debug!(%error, disable, "the setting of huge pages cannot be changed");
        }
    };
    set(false);
    let child = start();
    set(true);
    child
}

/// Other systems have no such setting.
#[cfg(not(target_os = "linux"))]
pub(crate) fn allow_for_child<T>(start: impl FnOnce() -> T) -> T {
    start()
}
