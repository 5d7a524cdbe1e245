//! The error that a file cannot be used: a file that the configuration names, or one of our own files.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::path_places::PathPlaces;

/// An error about a file or its content, with a hint. Never repeats the content.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct UnusableFile {
    what: String,
    hint: String,
    /// The path of the file, if the error is about one.
    path: Option<PathBuf>,
}

impl UnusableFile {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into(), path: None }
    }

    /// What to do about the error.
    pub fn hint(&self) -> &str {
        &self.hint
    }

    pub(crate) fn about(self, path: &Path) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }

    /// Adds the place in the configuration that names the file, if there is one.
    pub(crate) fn placed(mut self, places: &PathPlaces) -> Self {
        if let Some(place) = self.path.take().and_then(|path| places.of_path(&path)) {
            self.what += &format!("\n  --> {place}");
        }
        self
    }
}

/// The hint for an error: `hint`, unless the machine is at a limit, which must then be raised. The limit is recognised by the text `what`,
/// as tempfile and tokio wrap the system's errors.
pub(crate) fn hint_for(what: &str, hint: impl Into<String>) -> String {
    let (hint, is) = (hint.into(), |error: &Errno| {
        let number = error.raw_os_error();
        [format!("(os error {number})"), format!("Os {{ code: {number},")].iter().any(|said| what.contains(said))
    });
    match () {
        () if [Errno::MFILE, Errno::NFILE].iter().any(is) => MORE_FILES.to_owned(),
        // A hint that already says to make room is more specific.
        () if [Errno::FBIG, Errno::NOSPC, Errno::DQUOT].iter().any(is) && !hint.contains("make room") => {
            ROOM.to_owned()
        }
        () => hint,
    }
}

pub(crate) const MORE_FILES: &str = "raise the limit on open files: `ulimit -n`, or `LimitNOFILE` in a systemd unit";
pub(crate) const MORE_PROCESSES: &str = "raise the limit on processes: `ulimit -u`, or `TasksMax` in a systemd unit";
const ROOM: &str = "make room on the disk, or raise the limit on the size of files: `ulimit -f`, or a quota";
