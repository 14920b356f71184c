//! How the kernel backs this process's memory.

/// Asks Linux not to back this process with huge pages. After a load, objects that stay are spread over memory that is
/// mostly free; the kernel would fill those gaps again, two megabytes at a time, and an idle server would grow.
#[cfg(target_os = "linux")]
pub(crate) fn avoid() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "the kernel may back this process with huge pages");
    }
}

/// Other systems have no such setting.
#[cfg(not(target_os = "linux"))]
pub(crate) fn avoid() {}
