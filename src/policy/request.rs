//! The parts of a request that a decision depends on, taken once from the client's head. Pure.

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
    /// The names in its User-Agent, which count if none are configured.
    pub agent_tokens: &'a [ProductToken],
    /// The client's tokens, overriding `identity.product_tokens`. Empty: none.
    pub product_tokens: &'a [ProductToken],
    /// The client, for fairness.
    pub client: ClientId,
    /// The user and the client's address, for people.
    pub user: Option<&'a str>,
    /// The user's budget.
    pub budget: Option<&'a Budget>,
    pub from: Option<IpAddr>,
    /// The address that it will be sent to, for `pace.key: address`; `None` if unknown.
    pub address: Option<IpAddr>,
    /// It will be sent over HTTP/2, if the origin chooses that.
    pub speaks_http2: bool,
    /// It is for a part of a page, which may follow the page at once (`subresources: burst`).
    pub is_subresource: bool,
    /// The client does not have too many waiting requests.
    pub may_wait: bool,
    /// The value of `Prefer: wait`, which lowers `pace.max_wait`.
    pub prefer_wait: Option<Duration>,
    /// It requests robots.txt itself.
    pub reads_robots: bool,
    /// Some hosts are closed to this client, wholly or partly, but not to all. It is not served a robots.txt that another host gave,
    /// but sees the redirect, and may follow it if allowed.
    pub is_confined: bool,
    /// What is remembered of the page: delivered recently (`min_revisit`), or reserved.
    pub again: Again<'a>,
    /// The most that it says it would pay.
    pub promised: Option<Money>,
    /// There may be an answer to it in the cache: it wants no turn before it has looked.
    pub asks_cache: bool,
}

impl<'a> Request<'a> {
    /// A request of no particular client.
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
            reads_robots: false,
            is_confined: false,
            again: Again::Go,
            promised: None,
            asks_cache: false,
        }
    }
}
