//! Room for connections: each takes a file descriptor, one towards the origin a second.

/// Raises this process's soft limit on open files to its hard limit, as far as that goes. The soft limit is 1,024 on
/// most systems, for the sake of programs that use select(2).
pub(crate) fn raise_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit, which getrlimit fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 || limit.rlim_cur >= limit.rlim_max {
        return;
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the pointer is to a live rlimit, which setrlimit only reads.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
        tracing::debug!(error = %std::io::Error::last_os_error(), "cannot raise the limit on open files");
    }
}
