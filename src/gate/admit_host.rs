//! What a request is for: its host, found by name, or that of the request before.

use super::Gate;
use super::pacer::HostQueue;
use super::robots::HostEntry;
use crate::config::{Hosts, Settings};
use crate::policy::{PaceKey, Request, SiteFile};
use std::sync::Arc;

/// What one request of a connection was for: the next is mostly for the same, and need not look for it.
#[derive(Default)]
pub struct LastHost(Option<(Arc<HostEntry>, Arc<HostQueue>)>);

/// Where a request goes to, and what decides on it.
pub(super) struct AdmitHost<'a> {
    pub entry: &'a Arc<HostEntry>,
    pub queue: &'a Arc<HostQueue>,
    /// The client's own, in place of `Settings::hosts`.
    pub hosts: Option<&'a Hosts>,
}

impl Gate {
    pub(super) fn admit_host<'a>(
        &self,
        settings: &Settings,
        request: &Request<'_>,
        hosts: Option<&'a Hosts>,
        last: &'a mut LastHost,
    ) -> AdmitHost<'a> {
        let (by, dialled) = (settings.pace.key, request.address);
        let is_for = |(entry, queue): &(Arc<HostEntry>, Arc<HostQueue>)| {
            entry.authority == *request.authority && queue.key().is_of(by, request.authority, dialled)
        };
        // Neither is evicted while it is in use, so that there are no others of the same name.
        let (entry, queue) = match last.0.take().filter(is_for) {
            Some(same) => {
                self.robots.touch(&same.0);
                last.0.insert(same)
            }
            None => {
                let queue = self.pacer.queue(&PaceKey::new(by, request.authority, dialled));
                last.0.insert((self.robots.host(SiteFile::Robots, request.authority), queue))
            }
        };
        AdmitHost { entry, queue, hosts }
    }
}
