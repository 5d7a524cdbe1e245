//! What is known of a request while it is under way.

use super::cached::{CacheTrace, CacheUse};
use super::carry::Moved;
use super::held::HeldPage;
use super::request::Request;
use crate::config::Settings;
use crate::gate::{Account, Permit, Reported};
use crate::policy::{UsageReport, Visit};
use crate::proxy::Proxy;
use crate::proxy::client::Peer;
use crate::signing::SignatureRequest;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What is known of the request under way.
pub struct Exchange<'a> {
    pub proxy: &'a Proxy,
    pub request: &'a Request<'a>,
    pub peer: &'a Peer,
    /// All that is done about it goes by these.
    pub settings: Arc<Settings>,
    pub began: Instant,
    /// Its turn at the host.
    pub(super) permit: Option<Permit>,
    pub(super) signature: Signature,
    /// Its connection to the origin is for this client connection alone.
    pub(super) is_private: bool,
    /// What pages say in their heads is asked.
    pub(super) reads_pages: bool,
    /// The answer's, until its head is known.
    pub(super) held: Option<Box<HeldPage>>,
    /// `None`: the cache is not for this request.
    pub(super) cached: Option<Box<CacheUse>>,
    pub(super) trip: Trip,
    pub(super) is_concluded: bool,
}

/// What has become of the request's signature (Web Bot Auth).
#[derive(Default)]
pub(super) struct Signature {
    /// It left with one of ours.
    pub(super) is_ours: bool,
    /// It came with the client's own.
    pub(super) is_clients: bool,
    /// What the origin has asked for, and the request is sent again with.
    pub(super) asked: Option<SignatureRequest>,
    /// It has been sent again.
    pub(super) is_repeated: bool,
}

/// How a request has fared so far, for the log.
#[derive(Default)]
pub(super) struct Trip {
    pub(super) gate: Account,
    /// In report mode, what would have been.
    pub(super) reported: Option<Reported>,
    /// What the answer says about its use.
    pub(super) noted: Option<Box<UsageReport>>,
    /// The other end of the connection that it was sent on, and whether that was there before. `None`: no head has left.
    pub(super) upstream: Option<(SocketAddr, bool)>,
    /// From when it was sent to the head of the answer.
    pub(super) origin: Option<Duration>,
    /// That the client was answered with by the origin; 0: none.
    pub(super) status: u16,
    pub(super) moved: Moved,
    /// What is remembered of the page once it has been delivered.
    pub(super) visit: Option<Box<(u64, Visit)>>,
    /// `None`: the cache has nothing to do with it.
    pub(super) cache: Option<Box<CacheTrace>>,
}

impl<'a> Exchange<'a> {
    pub fn new(
        proxy: &'a Proxy,
        settings: Arc<Settings>,
        request: &'a Request<'a>,
        peer: &'a Peer,
        began: Instant,
    ) -> Self {
        let trip = Trip { gate: Account::new(proxy.wanted()), ..Trip::default() };
        Exchange {
            proxy,
            request,
            peer,
            settings,
            began,
            permit: None,
            signature: Signature::default(),
            is_private: request.is_private(),
            reads_pages: false,
            held: None,
            cached: CacheUse::of(proxy, request, peer),
            trip,
            is_concluded: false,
        }
    }
}

/// Connections for one request: one that was kept may be dead, one that takes no more streams may be followed by another such, and
/// a turn may be over before there is one.
pub(super) const MAX_TRIES: u32 = 4;
