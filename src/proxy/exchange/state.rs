//! The state of a request in flight.

use super::cache::{CacheTrace, CacheUse};
use super::carry::{Moved, Replay};
use super::page_buffer::HeldPage;
use super::request::Request;
use crate::config::Settings;
use crate::gate::{Account, Permit, Reported};
use crate::policy::pace::ClientId;
use crate::policy::{UsageReport, Visit};
use crate::proxy::Proxy;
use crate::proxy::client::Peer;
use crate::signing::SignatureRequest;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A request in flight.
pub struct Exchange<'a> {
    pub proxy: &'a Proxy,
    pub request: &'a Request<'a>,
    pub peer: &'a Peer,
    pub(super) client: ClientId,
    /// The settings that apply to this request.
    pub settings: Arc<Settings>,
    pub began: Instant,
    /// The pacing slot.
    pub(super) permit: Option<Box<Permit>>,
    pub(super) signature: Signature,
    /// Whether the origin connection serves this client connection only.
    pub(super) is_private: bool,
    /// Whether heads of pages are checked for usage preferences.
    pub(super) reads_pages: bool,
    /// Whether the rules use what the proxy remembers about the page.
    pub(super) looks_back: bool,
    /// The held answer, until the page's head is known.
    pub(super) held: Option<Box<HeldPage>>,
    /// `None`: the cache does not apply.
    pub(super) cached: Option<Box<CacheUse>>,
    /// Whether the client accepts only a stored answer (`only-if-cached`).
    pub(super) only_stored: bool,
    pub(super) replay: Replay,
    pub(super) trip: Trip,
    pub(super) is_concluded: bool,
}

/// State of the request's signature (Web Bot Auth).
#[derive(Default)]
pub(super) struct Signature {
    /// Whether the proxy signed the request.
    pub(super) is_ours: bool,
    /// Whether the client signed the request.
    pub(super) is_clients: bool,
    /// The origin's challenge, which the repeated request answers.
    pub(super) asked: Option<SignatureRequest>,
    /// Whether the request was repeated.
    pub(super) is_repeated: bool,
}

/// Progress of a request, for the log.
#[derive(Default)]
pub(super) struct Trip {
    pub(super) gate: Account,
    /// Decisions that report mode, or the mode of a signal, did not enforce.
    pub(super) reported: Vec<Reported>,
    /// Usage preferences of the answer.
    pub(super) usage_report: Option<Box<UsageReport>>,
    /// Address of the origin connection, and whether it was reused. `None`: no head was sent.
    pub(super) upstream: Option<(SocketAddr, bool)>,
    /// When the request was sent, the last time if it was repeated.
    pub(super) sent: Option<Instant>,
    /// Time from sending the request to the head of the answer.
    pub(super) origin: Option<Duration>,
    /// Status of the origin's last answer, delivered or not; 0: none.
    pub(super) origin_status: u16,
    /// Status of the answer that was sent to the client; 0: none.
    pub(super) status: u16,
    pub(super) moved: Moved,
    /// Whether the answer is an endless stream, such as of events, for which no minimum rate applies.
    pub(super) is_endless: bool,
    /// Whether the client was sent all content that the answer announced. The client may leave then, even before the end of the body.
    pub(super) is_delivered: bool,
    /// The visit to store once the page has been delivered.
    pub(super) visit: Option<Box<(u64, Visit)>>,
    /// `None`: the cache is not involved.
    pub(super) cache: Option<Box<CacheTrace>>,
}

impl Trip {
    /// Adds a decision that is not enforced. Decisions with a Retry-After come last.
    pub(super) fn report(&mut self, reported: Reported) {
        let waits = |it: &Reported| match it {
            Reported::Refused(refusal) => refusal.retry_after().is_some(),
            Reported::Held(_) => true,
        };
        let place = self.reported.iter().position(|before| waits(before) && !waits(&reported));
        self.reported.insert(place.unwrap_or(self.reported.len()), reported);
    }
}

impl<'a> Exchange<'a> {
    pub fn new(
        proxy: &'a Proxy,
        settings: Arc<Settings>,
        request: &'a Request<'a>,
        peer: &'a Peer,
        began: Instant,
    ) -> Self {
        let mut trip = Trip::default();
        trip.gate.detail = proxy.account_detail();
        let (cached, only_stored) = CacheUse::of(proxy, request, peer);
        Exchange {
            proxy,
            request,
            peer,
            client: peer.client(),
            settings,
            began,
            permit: None,
            signature: Signature::default(),
            is_private: request.is_private(),
            reads_pages: false,
            looks_back: false,
            held: None,
            cached,
            only_stored,
            replay: Replay::default(),
            trip,
            is_concluded: false,
        }
    }

    /// Whether the answer may be for this client alone, because of the request or its private connection. The cache with its
    /// shared fetches, `min_revisit` and reservations ignore such an answer.
    pub(super) fn is_for_one(&self) -> bool {
        self.is_private || self.request.is_for_one()
    }

    /// Notes that the request uses a private connection, so that the cache does not apply: the origin may answer differently.
    pub(super) fn keep_private(&mut self) {
        self.is_private = true;
        self.cached = None;
    }
}

/// Maximum number of attempts for one request: pooled connections may be dead or take no more streams, and a slot may expire before a
/// connection is open.
pub(super) const MAX_TRIES: u32 = 4;
