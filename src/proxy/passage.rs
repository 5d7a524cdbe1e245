//! One request's state on its way through pingora. Made and filled by `forward`.

use super::failure::Failure;
use super::meter::Meter;
use crate::gate::{Permit, Reported};
use crate::policy::Authority;
use crate::upstream::Route;
use std::net::IpAddr;
use tokio::time::Instant;

/// What is known of the request under way.
pub(super) struct Passage {
    pub began: Instant,
    pub authority: Option<Authority>,
    pub client: Option<IpAddr>,
    pub permit: Option<Permit>,
    /// In report mode, what would have been.
    pub reported: Option<Reported>,
    pub refused: Option<&'static str>,
    pub route: Option<Route>,
    pub attempts: usize,
    /// Interim answers (1xx) so far.
    pub interim: u32,
    /// How the first attempt to connect failed.
    pub failure: Option<Failure>,
    /// The bodies on their way.
    pub sending: Option<Meter>,
    pub receiving: Option<Meter>,
}

impl Passage {
    pub fn begin() -> Self {
        Passage {
            began: Instant::now(),
            authority: None,
            client: None,
            permit: None,
            reported: None,
            refused: None,
            route: None,
            attempts: 0,
            interim: 0,
            failure: None,
            sending: None,
            receiving: None,
        }
    }
}
