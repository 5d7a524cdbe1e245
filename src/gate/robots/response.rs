//! Turns the answer to a fetch of a robots.txt, tdmrep.json or licence file into an entry (RFC 9309 §2.3.1, RFC 9111).

use super::fetch::Reply;
use super::intern::Intern;
use super::redirect::DeadEnd;
use crate::config::Settings;
use crate::policy::freshness::{CacheFields, Freshness, FreshnessLimits};
use crate::policy::{self, Access, AskedAgain, Entry, SiteAnswer, SiteFile, Validators, manners, retry_after};
use crate::robots::access::{AccessKind, from_status};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::time::{Duration, SystemTime};

/// How a fetch ended.
#[derive(Debug)]
pub(super) enum Fetched {
    /// Any final answer: with a 3xx status only if that is 304, or if the answer is marked as a challenge.
    Answer {
        reply: Reply,
        /// Whether the validators of our copy were sent, so that a 304 is about that copy.
        is_conditional: bool,
        /// Whether a redirect was followed.
        is_redirected: bool,
        /// Whether a redirect led to another host.
        is_foreign: bool,
        asked_again: Option<AskedAgain>,
    },
    /// The redirects cannot be followed, so the file is unavailable (§2.3.1.2).
    DeadEnd { asked: SystemTime, status: u16, why: DeadEnd },
    /// No answer: DNS, TCP, TLS, timeout, truncated body.
    Unreachable(String),
}

impl Fetched {
    /// Whether our copy stays in use: it was confirmed, or no other could be fetched.
    pub fn needs_copy(&self) -> bool {
        match self {
            Self::Answer { reply, .. } => matches!(reply.status, 304 | 429 | 500..) || reply.maybe_of().is_some(),
            Self::DeadEnd { .. } => false,
            Self::Unreachable(_) => true,
        }
    }
}

/// The entry after a fetch.
pub(super) fn interpret_response(
    file: SiteFile,
    old: &Entry,
    fetched: &Fetched,
    files: &Intern,
    settings: &Settings,
    now: SystemTime,
) -> Entry {
    let (reply, is_conditional, is_redirected, is_foreign, asked_again) = match fetched {
        Fetched::Answer { reply, is_conditional, is_redirected, is_foreign, asked_again } => {
            (reply, *is_conditional, *is_redirected, *is_foreign, *asked_again)
        }
        Fetched::DeadEnd { asked, status, why } => {
            tracing::debug!(why, "the redirects of {} cannot be followed", file.name());
            let freshness = freshness(file, &HeaderMap::new(), settings, *asked, None);
            return Entry::answered(SiteAnswer::new(Access::Missing, *status, freshness));
        }
        Fetched::Unreachable(why) => return old.failed(now, why, None, fastrand::f64()),
    };
    let Reply { asked, status, headers, body, .. } = reply;
    let status = *status;
    if let Some(field) = manners::challenge(|name| headers.get(name)) {
        let why = format!("status {status}, and `{field}` says that it is a challenge");
        return old.failed(now, &why, asked_to_wait(headers, now), fastrand::f64());
    }
    let freshness = |confirmed| freshness(file, headers, settings, *asked, confirmed);
    // A site that redirects cannot validate the file of another one.
    let validators = if is_redirected { Validators::default() } else { validators(headers) };
    if status == 304
        && is_conditional
        && let Some(entry) = old.confirmed(&validators, |lifetime| freshness(Some(lifetime)))
    {
        return entry;
    }
    if status == 206 && !is_whole(headers, body.len() as u64, settings.robots.max_size) {
        // Treated as truncated: a missing rule would not be obeyed.
        return old.failed(now, "status 206: only a part of the file", None, fastrand::f64());
    }
    if let Some(upstream_proxy) = reply.maybe_of() {
        let why = format!("status {status}, which may come from {upstream_proxy} itself");
        return old.failed(now, &why, asked_to_wait(headers, now), fastrand::f64());
    }
    let access = match from_status(status) {
        AccessKind::Rules => match files.intern(file, body, &settings.robots.parse_options()) {
            Access::Rules(robots) if robots.is_unreadable() => {
                return old.failed(now, "its encoding is unknown: save it as UTF-8", None, fastrand::f64());
            }
            access => access,
        },
        AccessKind::AllowAll => Access::Missing,
        AccessKind::Redirect | AccessKind::DisallowAll => {
            let wait = asked_to_wait(headers, now);
            let after = if is_redirected { " after a redirect" } else { "" };
            return old.failed(now, &format!("status {status}{after}"), wait, fastrand::f64());
        }
    };
    // With validators, a 304 would keep the cut copy even after the limit was raised.
    let is_cut = matches!(&access, Access::Rules(robots) if robots.is_cut());
    let validators = if is_cut { Validators::default() } else { validators };
    let freshness = freshness(None);
    Entry::answered(SiteAnswer { access, status, asked_again, is_foreign, freshness, validators })
}

/// The freshness of an answer. Its age counts from when the request was sent (RFC 9111 §4.2.3). `confirmed`: the lifetime of the copy that
/// a 304 confirms.
fn freshness(
    file: SiteFile,
    headers: &HeaderMap,
    settings: &Settings,
    asked: SystemTime,
    confirmed: Option<Duration>,
) -> Freshness {
    let fields = CacheFields::read(|take| {
        headers.iter().for_each(|(name, value)| take(name.as_str().as_bytes(), value.as_bytes()));
    });
    let (min_ttl, max_ttl) = (settings.robots.min_ttl, settings.robots.max_ttl);
    // A licence file may be on another site, which must not be asked more often than the robots.txt that names the file is renewed.
    let min_ttl = if matches!(file, SiteFile::License(_)) { max_ttl } else { min_ttl };
    let limits = FreshnessLimits { min_ttl, max_ttl };
    Freshness::new(asked, fields.lifetime(asked, confirmed, &limits), fastrand::f64())
}

pub(super) fn validators(headers: &HeaderMap) -> Validators {
    let field = |name: HeaderName| headers.get(name)?.to_str().ok();
    Validators::new(field(header::ETAG), field(header::LAST_MODIFIED))
}

/// Whether a 206 answer contains the whole file (RFC 9110 §15.3.7), and all of it has arrived: if the content ends with the connection,
/// only its length reveals truncation. An encoded body reveals it when it is decoded.
fn is_whole(headers: &HeaderMap, come: u64, limit: u64) -> bool {
    let mut ranges = headers.get_all(header::CONTENT_RANGE).iter();
    let (Some(range), None) = (ranges.next(), ranges.next()) else { return false };
    policy::whole_range(range.as_bytes()).is_some_and(|length| {
        come == length || come > limit && length > limit || come > 0 && headers.contains_key(header::CONTENT_ENCODING)
    })
}

pub(super) fn asked_to_wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let fields: Vec<_> = headers.get_all(header::RETRY_AFTER).iter().map(HeaderValue::as_bytes).collect();
    retry_after(&fields.join(&b','), headers.get(header::DATE).map(HeaderValue::as_bytes), now)
}
