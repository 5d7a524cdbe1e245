//! What a fleet's server is for.

use crate::config::{SecretUrl, Settings};

/// What a server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    /// The paces and budgets, and the copies of robots.txt as well unless they are apart. It knows the instances.
    Paces,
    /// Those copies, and may forget anything.
    Copies,
}

impl Keeps {
    pub fn url(self, settings: &Settings) -> Option<SecretUrl> {
        match self {
            Self::Paces => settings.fleet.paces().cloned(),
            Self::Copies => settings.fleet.copies_apart().cloned(),
        }
    }

    /// The key of those that use it.
    pub fn instances(self) -> &'static str {
        match self {
            Self::Paces => "politely:instances",
            Self::Copies => "politely:copying",
        }
    }
}
