//! The roles of a fleet's server.

use crate::config::{SecretUrl, Settings};

/// The data that a server keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    /// Paces, budgets and the list of instances, and the copies of robots.txt unless another server has them.
    Paces,
    /// Copies of robots.txt, which the server may lose.
    Copies,
}

impl Keeps {
    pub fn url(self, settings: &Settings) -> Option<SecretUrl> {
        match self {
            Self::Paces => settings.fleet.paces().cloned(),
            Self::Copies => settings.fleet.copies_apart().cloned(),
        }
    }

    /// The key of the list of instances.
    pub fn instances(self) -> &'static str {
        match self {
            Self::Paces => "politely:instances",
            Self::Copies => "politely:copying",
        }
    }
}
