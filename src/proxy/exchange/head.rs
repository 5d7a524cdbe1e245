//! The fields of a request, by name and as the origin receives them.

use crate::config::{Settings, User};
use crate::upstream::OutgoingFields;
use http::HeaderMap;

impl OutgoingFields<'_> {
    /// Joins all fields of this name into one value (RFC 9110 §5.3).
    pub fn joined(&self, name: &[u8]) -> Option<Vec<u8>> {
        joined(name, |take| self.each_passed(take))
    }

    /// Collects the fields of these names.
    pub fn fields_named(&self, names: &[http::HeaderName]) -> HeaderMap {
        let mut found = HeaderMap::new();
        let mut note = |name: &[u8], value: &[u8]| {
            let named = names.iter().find(|it| it.as_str().as_bytes().eq_ignore_ascii_case(name));
            if let Some((name, value)) = named.zip(http::HeaderValue::from_bytes(value).ok()) {
                found.append(name, value);
            }
        };
        self.each_passed(&mut note);
        found
    }
}

/// A request's fields as the origin receives them, to compare with Vary.
#[derive(Clone, Copy)]
pub struct SentFields<'a> {
    fields: OutgoingFields<'a>,
    /// The User-Agent that replaces the client's.
    agent: Option<&'a str>,
}

impl<'a> SentFields<'a> {
    pub fn of(fields: OutgoingFields<'a>, settings: &'a Settings, user: Option<&'a User>) -> Self {
        SentFields { fields, agent: settings.user_agent(user) }
    }

    pub fn each(&self, take: &mut dyn FnMut(&[u8], &[u8])) {
        self.fields.each_passed(&mut |name, value| {
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

/// Joins all fields of this name into one value (RFC 9110 §5.3). `each`: passes each name and value to its argument.
pub fn joined(name: &[u8], each: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]))) -> Option<Vec<u8>> {
    let mut joined = None::<Vec<u8>>;
    each(&mut |it, value| {
        if it.eq_ignore_ascii_case(name) {
            joined = Some(joined.take().map_or_else(|| value.to_vec(), |before| [&before, &b", "[..], value].concat()));
        }
    });
    joined
}
