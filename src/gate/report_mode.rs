//! The decisions that report mode reports but does not enforce.

use crate::policy::Refusal;
use std::fmt;
use std::time::Duration;

/// The action that `mode: enforce` would have taken.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reported {
    /// `enforce` would have refused the request.
    Refused(Box<Refusal>),
    /// `enforce` would have held the request for this long.
    Held(Duration),
}

impl From<Refusal> for Reported {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl Reported {
    /// Stable label in logs and metrics.
    pub fn slug(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.slug(),
            Self::Held(_) => "held",
        }
    }
}

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Held(wait) => write!(f, "it would have waited {:.3} s for its crawl-delay", wait.as_secs_f64()),
        }
    }
}
