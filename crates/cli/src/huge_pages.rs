//! Transparent huge pages: off for a server, on for the processes that it starts.

/// Asks Linux not to back this process with huge pages. After a load, objects that stay are spread over memory that is
/// mostly free; the kernel would fill those gaps again, two megabytes at a time, and an idle server would grow.
#[cfg(target_os = "linux")]
pub(crate) fn avoid() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "the kernel may back this process with huge pages");
    }
}

/// Starts a child process that may use huge pages, such as a compiler or an operator. A child inherits the setting of this
/// process at the moment it is started, so the setting is changed for that moment.
#[cfg(target_os = "linux")]
pub(crate) fn allow_for_child<T>(spawn: impl FnOnce() -> T) -> T {
    use rustix::thread::{disable_transparent_huge_pages, transparent_huge_pages_are_disabled};

    // While one child is started, another thread must not restore the setting.
    static STARTING: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _starting = STARTING.lock();
    if !transparent_huge_pages_are_disabled().unwrap_or(false) {
        return spawn();
    }
    if let Err(error) = disable_transparent_huge_pages(false) {
        tracing::debug!(%error, "a child process is started without huge pages");
    }
    let child = spawn();
    avoid();
    child
}

/// Other systems have no such setting.
#[cfg(not(target_os = "linux"))]
pub(crate) fn avoid() {}

/// Other systems have no such setting.
#[cfg(not(target_os = "linux"))]
pub(crate) fn allow_for_child<T>(spawn: impl FnOnce() -> T) -> T {
    spawn()
}
