//! Clients that reject our certificates, for the log and the status. Most do not trust our authority yet, but their own errors do not say
//! so.

use super::super::Proxy;
use crate::policy::is_background;
use crate::tls::Distrust;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

/// The clients that rejected a certificate most recently.
pub struct DistrustedClients {
    kept: Mutex<Vec<Arc<Distrusted>>>,
    /// Pairs of a client and a host. The client trusts the certificate for the host, because it has sent a request over such a connection:
    /// if it closes a later one early, distrust is not the reason.
    accepted: Cache<(IpAddr, Box<str>), ()>,
}

impl Default for DistrustedClients {
    fn default() -> Self {
        DistrustedClients { kept: Mutex::default(), accepted: Cache::new(ACCEPTED) }
    }
}

/// One client's distrust of the certificate for one host.
#[derive(Debug, Clone)]
pub struct Distrusted {
    pub client: IpAddr,
    /// The host as in the CONNECT. For TLS to the proxy itself, the listener's address.
    pub host: Box<str>,
    /// The User-Agent of the CONNECT.
    pub agent: Option<Box<str>>,
    pub how: Distrust,
    /// Time of the last occurrence.
    pub at: SystemTime,
    pub times: u64,
    /// Whether the distrust is certain: the client sent an alert, or closed without an alert more than once.
    pub is_sure: bool,
}

impl Distrusted {
    /// The remedy for this client.
    pub fn cure(&self) -> &'static str {
        self.how.cure(&self.host, self.agent.as_deref())
    }
}

impl DistrustedClients {
    /// The cases, most recent first.
    pub fn latest(&self) -> Vec<Arc<Distrusted>> {
        self.kept.lock().iter().rev().cloned().collect()
    }

    /// Records that the client trusts the certificate for this host.
    pub(super) fn note_accepted(&self, client: IpAddr, host: &str) {
        let client = client.to_canonical();
        self.accepted.insert((client, host.into()), ());
        self.kept.lock().retain(|one| one.how != Distrust::Closed || one.client != client || *one.host != *host);
    }

    /// Adds a case. Returns true if it makes the distrust by this client and host certain.
    fn add(&self, client: IpAddr, host: &str, agent: Option<&str>, how: Distrust) -> bool {
        let mut kept = self.kept.lock();
        let before = kept.iter().position(|one| one.client == client && *one.host == *host);
        let before = before.map(|at| kept.remove(at));
        let times = before.as_ref().map_or(0, |one| one.times) + 1;
        let was_sure = before.as_ref().is_some_and(|one| one.is_sure);
        let is_sure = was_sure || how != Distrust::Closed || times > 1;
        // If the client now closes without an alert, the reason from its earlier alert is kept.
        let how = before.map(|one| one.how).filter(|_| how == Distrust::Closed).unwrap_or(how);
        if kept.len() == KEPT {
            kept.remove(0);
        }
        let (host, agent) = (host.into(), agent.map(Box::from));
        kept.push(Arc::new(Distrusted { client, host, agent, how, at: SystemTime::now(), times, is_sure }));
        is_sure && !was_sure
    }
}

impl Proxy {
    /// Counts each case, and logs a client and host once their distrust is certain, except for hosts that browsers request in the
    /// background. Ignores an early close by a client that has trusted the certificate before.
    pub(super) fn log_distrust(&self, client: SocketAddr, host: &str, agent: Option<&str>, how: Distrust) {
        let client = client.ip().to_canonical();
        if how == Distrust::Closed && self.distrusted.accepted.get(&(client, host.into())).is_some() {
            return;
        }
        self.counters.distrusted(how.slug());
        if self.distrusted.add(client, host, agent, how) && !is_background(host) {
            let (what, cure) = (how.what(), how.cure(host, agent));
            tracing::warn!(%client, host, agent, "a client rejects the certificate for this host: {what}; {cure}");
        }
    }
}

/// Maximum number of remembered cases. `ACCEPTED`: maximum number of remembered pairs of client and host without
/// distrust.
const KEPT: usize = 200;
const ACCEPTED: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn each_client_and_host_is_logged_once() {
        let clients = DistrustedClients::default();
        let add = |client, host| clients.add(client, host, Some("curl/8"), Distrust::UnknownCa);
        assert_eq!([add(HERE, "a"), add(HERE, "a"), add(HERE, "b"), add(HERE, "a")], [true, false, true, false]);
        assert!(add(Ipv4Addr::new(192, 0, 2, 1).into(), "a"));
        let told: Vec<_> =
            clients.latest().iter().map(|one| (one.client == HERE, one.host.to_string(), one.times)).collect();
        assert_eq!(told, [(false, "a".into(), 1), (true, "a".into(), 3), (true, "b".into(), 1)]);
    }

    #[test]
    fn number_of_remembered_clients_is_bounded() {
        let clients = DistrustedClients::default();
        for host in 0..KEPT + 5 {
            clients.add(HERE, &host.to_string(), None, Distrust::UnknownCa);
        }
        assert_eq!(clients.latest().len(), KEPT);
        assert!(!clients.add(HERE, "10", None, Distrust::UnknownCa));
        assert!(clients.add(HERE, "0", None, Distrust::UnknownCa), "the oldest case was forgotten");
    }

    /// Port checks and browsers that preconnect close without an alert.
    #[test]
    fn one_close_without_an_alert_is_not_certain_distrust() {
        let clients = DistrustedClients::default();
        let left = || clients.add(HERE, "a", None, Distrust::Closed);
        assert_eq!([left(), left(), left()], [false, true, false]);
        clients.note_accepted(HERE, "a");
        assert!(clients.latest().is_empty(), "the client had another reason to close");
        assert!(!clients.add(HERE, "b", None, Distrust::Closed) && clients.add(HERE, "b", None, Distrust::UnknownCa));
    }
}
