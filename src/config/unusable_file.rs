//! Why a file that the configuration names, or one of ours, cannot be used.

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
