//! Our copy of a robots.txt, served to clients that request the file.

use super::robots::HostEntry;
use crate::policy::{Access, Request, Validators};
use bytes::Bytes;
use std::time::SystemTime;

/// Our copy of a robots.txt.
#[derive(Debug)]
#[non_exhaustive]
pub struct RobotsCopy {
    pub status: u16,
    pub body: Bytes,
    pub validators: Validators,
    /// Seconds since the copy was fetched or confirmed.
    pub age: u64,
}

/// The copy to serve. `None`: there is no copy that this client may see.
pub(super) fn as_served(host: &HostEntry, request: &Request<'_>, now: SystemTime) -> Option<RobotsCopy> {
    let entry = host.load();
    let (answer, _) = entry.usable(now).filter(|(answer, _)| !(answer.is_foreign && request.is_confined))?;
    let (status, body) = match &answer.access {
        Access::Rules(robots) => (200, Bytes::from_owner(robots.shared_source())),
        // After a redirect that could not be followed, there is neither a file nor a URL to redirect clients to.
        Access::Missing if (300..400).contains(&answer.status) => (404, Bytes::new()),
        Access::Missing | Access::Reservations(_) | Access::Licenses(_) => (answer.status, Bytes::new()),
    };
    Some(RobotsCopy { status, body, validators: answer.validators.clone(), age: answer.freshness.age(now) })
}
