//! The head of a request as received, in either HTTP version.

use crate::config::{Settings, User};
use crate::http1::RequestHead;
use crate::upstream::OutgoingFields;
use http::HeaderMap;

/// The head of a request.
#[derive(Clone, Copy)]
pub enum Head<'a> {
    Http1(&'a RequestHead<'a>),
    Http2(&'a HeaderMap),
}

impl<'a> Head<'a> {
    pub fn outgoing(self) -> OutgoingFields<'a> {
        match self {
            Head::Http1(head) => OutgoingFields::Http1(head),
            Head::Http2(fields) => OutgoingFields::Http2(fields),
        }
    }

    /// Passes each field that goes on to the origin. What ends with the client's hop decides nothing that the origin is to know.
    pub fn each(&self, take: &mut dyn FnMut(&[u8], &[u8])) {
        self.outgoing().each_passed(take);
    }

    /// All fields of this name as one (RFC 9110 §5.3).
    pub fn joined(&self, name: &[u8]) -> Option<Vec<u8>> {
        joined(name, |take| self.each(take))
    }

    /// The fields of these names.
    pub fn fields_named(&self, names: &[http::HeaderName]) -> HeaderMap {
        let mut found = HeaderMap::new();
        let mut note = |name: &[u8], value: &[u8]| {
            let named = names.iter().find(|it| it.as_str().as_bytes().eq_ignore_ascii_case(name));
            if let Some((name, value)) = named.zip(http::HeaderValue::from_bytes(value).ok()) {
                found.append(name, value);
            }
        };
        self.each(&mut note);
        found
    }
}

/// A request's fields as the origin receives them: by these its answers differ (Vary).
#[derive(Clone, Copy)]
pub struct SentFields<'a> {
    head: Head<'a>,
    /// Replaces the client's User-Agent.
    agent: Option<&'a str>,
}

impl<'a> SentFields<'a> {
    pub fn of(head: Head<'a>, settings: &'a Settings, user: Option<&'a User>) -> Self {
        SentFields { head, agent: settings.user_agent(user) }
    }

    pub fn each(&self, take: &mut dyn FnMut(&[u8], &[u8])) {
        self.head.each(&mut |name, value| {
            if self.agent.is_none() || !name.eq_ignore_ascii_case(USER_AGENT) {
                take(name, value);
            }
        });
        if let Some(agent) = self.agent {
            take(USER_AGENT, agent.as_bytes());
        }
    }
}

const USER_AGENT: &[u8] = b"user-agent";

/// All fields of this name as one (RFC 9110 §5.3). `each`: passes names and values.
pub fn joined(name: &[u8], each: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]))) -> Option<Vec<u8>> {
    let mut joined = None::<Vec<u8>>;
    each(&mut |it, value| {
        if it.eq_ignore_ascii_case(name) {
            joined = Some(joined.take().map_or_else(|| value.to_vec(), |before| [&before, &b", "[..], value].concat()));
        }
    });
    joined
}
