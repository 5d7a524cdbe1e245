//! Held requests, as the status and metrics show them.

use crate::policy::Authority;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// A request that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldRequest {
    pub authority: Authority,
    pub url: Box<str>,
    pub user: Option<Box<str>>,
    pub from: Option<IpAddr>,
    pub reason: HeldFor,
    /// Time held so far.
    pub since: Duration,
    /// Estimated time until its slot. `None`: unknown.
    pub left: Option<Duration>,
    /// Requests waiting for slots of the same host, including this one. 1 if this one waits for robots.txt.
    pub waiting: usize,
}

/// The reason why a request is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldFor {
    /// The host's robots.txt is being fetched.
    Robots,
    /// The gap between starts at the host.
    Gap(Duration),
    /// The gap, lengthened because the host answers slowly.
    Adaptive { gap: Duration, latency: Duration },
    /// The gap, lengthened because the host answered 429 or 503.
    Backoff(Duration),
    /// The host refused `refusals` requests in a row and is paused.
    Paused { refusals: u32 },
    /// The allowed number of requests is in flight.
    InFlight(u32),
}

impl HeldFor {
    /// Stable label for scripts.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Robots => "robots-txt",
            Self::Gap(_) => "gap",
            Self::Adaptive { .. } => "adaptive",
            Self::Backoff(_) => "backoff",
            Self::Paused { .. } => "paused",
            Self::InFlight(_) => "in-flight",
        }
    }

    /// The gap, if the request waits for one.
    pub fn gap(self) -> Option<Duration> {
        match self {
            Self::Gap(gap) | Self::Adaptive { gap, .. } | Self::Backoff(gap) => Some(gap),
            Self::Robots | Self::Paused { .. } | Self::InFlight(_) => None,
        }
    }
}

impl fmt::Display for HeldFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Robots => f.write_str("its robots.txt is being fetched"),
            Self::Gap(gap) => write!(f, "crawl-delay {} s", gap.as_secs_f32()),
            Self::Adaptive { gap, latency } => {
                let (gap, latency) = (gap.as_secs_f32(), latency.as_secs_f32());
                write!(f, "adaptive delay {gap:.1} s, as the host takes {latency:.2} s to answer")
            }
            Self::Backoff(gap) => write!(f, "backing off {:.1} s after 429 or 503", gap.as_secs_f32()),
            Self::Paused { refusals } => write!(f, "host paused after {refusals} refusals in a row"),
            Self::InFlight(most) => write!(f, "{most} in flight, as many as are allowed"),
        }
    }
}

/// Counts of waits for slots since the start. Waits below 10 ms do not count: in such a wait, the request only asks the fleet for its slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldFigures {
    /// Number of requests that were held. A retry counts as a request of its own.
    pub requests: u64,
    /// Time during which at least one request was held.
    pub time: Duration,
    /// Number of requests whose client left while they were held; `longest_given_up`: the longest time for which such a request had waited.
    pub given_up: u64,
    pub longest_given_up: Duration,
}
