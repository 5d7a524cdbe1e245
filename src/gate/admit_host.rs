//! The host of a request: looked up by name, or reused from the previous request.

use super::Gate;
use super::pacer::HostQueue;
use super::robots::HostEntry;
use crate::config::{Hosts, Settings};
use crate::policy::{PaceKey, Request, SiteFile};
use std::sync::Arc;

/// The host of the previous request on a connection. Most requests are for the same host as the request before, and then need no lookup.
#[derive(Default, Clone)]
pub struct LastHost(Option<(Arc<HostEntry>, Arc<HostQueue>)>);

/// The host of a request: its robots.txt entry, its queue, and the settings that apply.
pub(super) struct AdmitHost<'a> {
    pub entry: &'a Arc<HostEntry>,
    pub queue: &'a Arc<HostQueue>,
    /// The client's own settings, in place of `Settings::hosts`.
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
        // An entry in use is not evicted, so the table has no second entry of the same name.
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
