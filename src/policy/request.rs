//! The parts of a request that a decision depends on: made once from the client's head. Pure.

use std::net::IpAddr;
use std::time::Duration;

use super::pace::ClientId;
use super::{Again, Authority, Budget, Money};
use crate::robots::ProductToken;

/// A request that wants to go.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub authority: &'a Authority,
    /// Path and query as sent.
    pub target: &'a [u8],
    /// The names in its User-Agent, which count where no others are configured.
    pub agent_tokens: &'a [ProductToken],
    /// The client's own, in place of `identity.product_tokens`. Empty: it has none.
    pub product_tokens: &'a [ProductToken],
    /// Among whom it takes turns.
    pub client: ClientId,
    /// Who that is, for people: the user, and where it comes from.
    pub user: Option<&'a str>,
    /// The user's own.
    pub budget: Option<&'a Budget>,
    pub from: Option<IpAddr>,
    /// Where it will be sent, for `pace.key: address`; `None` where that is not known.
    pub address: Option<IpAddr>,
    /// As it will come to the origin, if that is its choice.
    pub speaks_http2: bool,
    /// It is for a part of a page, which `subresources: burst` lets follow the page.
    pub is_subresource: bool,
    /// The client has not too many requests waiting already.
    pub may_wait: bool,
    /// `Prefer: wait`, which lowers `pace.max_wait`.
    pub prefer_wait: Option<Duration>,
    /// It asks for robots.txt itself.
    pub reads_robots: bool,
    /// There are hosts that are closed to this client, or in part, and not to all: instead of a robots.txt that another host has given,
    /// it sees where the redirect leads, and may ask there if it may.
    pub is_confined: bool,
    /// What is remembered of its page: that it was delivered not long ago (`min_revisit`), or has reserved its use.
    pub again: Again<'a>,
    /// The most that it says it would pay.
    pub promised: Option<Money>,
}

impl<'a> Request<'a> {
    /// Nobody's in particular.
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
        }
    }
}
