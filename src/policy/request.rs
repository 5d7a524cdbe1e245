//! The parts of a request that a decision depends on, taken once from the head of the client's request. Pure.

use std::net::IpAddr;
use std::time::Duration;

use super::pace::ClientId;
use super::{Again, Authority, Budget, Money};
use crate::robots::ProductToken;

/// A request to decide on.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub authority: &'a Authority,
    /// Path and query as sent.
    pub target: &'a [u8],
    /// The product tokens in the request's User-Agent, used if no tokens are configured.
    pub agent_tokens: &'a [ProductToken],
    /// The client's tokens, overriding `identity.product_tokens`. Empty: none.
    pub product_tokens: &'a [ProductToken],
    /// The client, for the round robin between clients.
    pub client: ClientId,
    /// The user's name.
    pub user: Option<&'a str>,
    /// The user's budget.
    pub budget: Option<&'a Budget>,
    /// The client's address.
    pub from: Option<IpAddr>,
    /// The address that the request will be sent to, for `pace.key: address`; `None` if unknown.
    pub address: Option<IpAddr>,
    /// Whether the request may be sent over HTTP/2, if the origin chooses HTTP/2.
    pub speaks_http2: bool,
    /// Whether the request is for a subresource of a page, which may follow the page at once (`subresources: burst`).
    pub is_subresource: bool,
    /// Whether the client has few enough waiting requests to add another one.
    pub may_wait: bool,
    /// The value of `Prefer: wait`, which lowers `pace.max_wait`.
    pub prefer_wait: Option<Duration>,
    /// Whether the request is a GET or HEAD of robots.txt itself.
    pub reads_robots: bool,
    /// Whether this client may not use some hosts, or parts of hosts, that others may use. Such a client is not served a robots.txt that
    /// came from another host: it receives the redirect, which it may follow if allowed.
    pub is_confined: bool,
    /// How to answer, given an earlier answer for the page that was delivered recently (`min_revisit`) or reserved the page.
    pub again: Again<'a>,
    /// The highest price that the request offers to pay.
    pub promised: Option<Money>,
    /// Whether the cache may have an answer to the request. If so, the cache is consulted before a slot is requested.
    pub asks_cache: bool,
}

impl<'a> Request<'a> {
    /// A GET without a particular client.
    pub fn new(authority: &'a Authority, target: &'a [u8]) -> Self {
        Request {
            authority,
            target,
            agent_tokens: &[],
            product_tokens: &[],
            client: ClientId(0),
            user: None,
            budget: None,
            from: None,
            address: None,
            speaks_http2: false,
            is_subresource: false,
            may_wait: true,
            prefer_wait: None,
            reads_robots: *target == *b"/robots.txt",
            is_confined: false,
            again: Again::Go,
            promised: None,
            asks_cache: false,
        }
    }
}
