//! The log of an origin: every request, from its first byte on.

use super::message::{Body, lossy};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    /// The request target, byte for byte (`:path` on h2).
    pub target: Vec<u8>,
    /// The Host field, or `:authority` on h2.
    pub host: String,
    pub fields: Vec<(String, String)>,
    /// HTTP/1 only: the head as received.
    pub head: Vec<u8>,
    pub body: Body,
    /// When the head was complete, by the kernel's clock.
    pub at: Instant,
    /// Number of the connection, from 0 for each origin.
    pub connection: usize,
    pub protocol: Protocol,
    /// The server name of the TLS handshake.
    pub sni: Option<String>,
    /// What was wrong with the request, if it was refused with 400 ([`super::strict`]).
    pub refused: Option<&'static str>,
    /// Whether the connection or stream ended before the whole answer was sent.
    pub cut: bool,
}

impl Seen {
    pub fn path(&self) -> String {
        lossy(&self.target)
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "{name} came {} times: {all:?}", all.len());
        all.first().copied()
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.fields.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }
}

/// The requests of one origin. Cheap to clone; clones share the log.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<Seen>>>);

impl Log {
    pub fn all(&self) -> Vec<Seen> {
        self.0.lock().expect("no test panics with the log in hand").clone()
    }

    /// The requests for this target.
    pub fn of(&self, target: &str) -> Vec<Seen> {
        self.all().into_iter().filter(|seen| seen.target == target.as_bytes()).collect()
    }

    /// The one request for this target.
    pub fn one(&self, target: &str) -> Seen {
        let mut seen = self.of(target);
        assert_eq!(seen.len(), 1, "requests for {target}; all: {:?}", self.targets());
        seen.remove(0)
    }

    pub fn count(&self, target: &str) -> usize {
        self.of(target).len()
    }

    /// The targets in order of arrival, including robots.txt.
    pub fn targets(&self) -> Vec<String> {
        self.all().iter().map(Seen::path).collect()
    }

    /// The targets without robots.txt and tdmrep.json.
    pub fn pages(&self) -> Vec<String> {
        let files = ["/robots.txt", "/.well-known/tdmrep.json"];
        self.targets().into_iter().filter(|target| !files.contains(&target.as_str())).collect()
    }

    /// The times between consecutive requests whose target begins with `prefix`.
    pub fn gaps(&self, prefix: &str) -> Vec<Duration> {
        self.starts(prefix).windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// The arrival times of requests whose target begins with `prefix`, in order.
    pub fn starts(&self, prefix: &str) -> Vec<Instant> {
        let all = self.all();
        let mut starts: Vec<Instant> =
            all.iter().filter(|seen| seen.path().starts_with(prefix)).map(|seen| seen.at).collect();
        starts.sort_unstable();
        starts
    }

    pub(super) fn begin(&self, seen: Seen) -> usize {
        let mut log = self.0.lock().expect("no test panics with the log in hand");
        log.push(seen);
        log.len() - 1
    }

    pub(super) fn update(&self, index: usize, change: impl FnOnce(&mut Seen)) {
        change(&mut self.0.lock().expect("no test panics with the log in hand")[index]);
    }

    pub(super) fn get(&self, index: usize) -> Seen {
        self.0.lock().expect("no test panics with the log in hand")[index].clone()
    }
}
