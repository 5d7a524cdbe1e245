//! Why a file that the configuration names, or one of ours, cannot be used.

use rustix::io::Errno;

/// What is wrong with a file, or with what is made of it, and what to do about it. Never repeats its content.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct UnusableFile {
    what: String,
    hint: String,
}

impl UnusableFile {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into() }
    }

    /// What to do about it.
    pub fn hint(&self) -> &str {
        &self.hint
    }

    /// With the place in the configuration that names the file; empty: nowhere.
    pub(crate) fn named_at(mut self, place: &str) -> Self {
        if !place.is_empty() {
            self.what += &format!("\n  --> {place}");
        }
        self
    }
}

/// What to do about an error: `hint`, unless there are no descriptors left, against which nothing else helps. The text tells, as tempfile
/// wraps the system's errors.
pub(crate) fn hint_for(what: &str, hint: impl Into<String>) -> String {
    let is_limit =
        [Errno::MFILE, Errno::NFILE].iter().any(|error| what.contains(&format!("(os error {})", error.raw_os_error())));
    if is_limit { MORE_FILES.to_owned() } else { hint.into() }
}

pub(crate) const MORE_FILES: &str = "raise the limit on open files: `ulimit -n`, or `LimitNOFILE` in a systemd unit";
