//! What an answer to robots.txt means for what is known (RFC 9309 §2.3.1, RFC 9111). Called by `rulebook`.

use super::files::Files;
use crate::config::{Fallback, Settings};
use crate::gate::fetch::Fetched;
use crate::policy::freshness::{CacheFields, Freshness, Limits};
use crate::policy::{Access, Answer, Entry, Validators, retry_after};
use crate::robots::access::{AccessKind, from_status};
use http::{HeaderMap, HeaderName, header};
use std::time::{Duration, SystemTime};

/// What is known after a fetch (RFC 9309 §2.3.1).
pub(super) fn next(old: &Entry, fetched: &Fetched, files: &Files, settings: &Settings, now: SystemTime) -> Entry {
    let robots = &settings.robots;
    let fallback = |access| match access {
        Fallback::Allow => Access::AllowAll,
        Fallback::Disallow => Access::DisallowAll,
    };
    let (status, headers, body) = match fetched {
        Fetched::Answer { status, headers, body } => (*status, headers, body),
        Fetched::DeadEnd { status, why } => {
            tracing::debug!(?why, "the redirects of robots.txt lead nowhere");
            let headers = HeaderMap::new();
            let freshness = freshness(&headers, settings, now);
            let (access, validators) = (fallback(robots.on_unavailable), Validators::default());
            return Entry::answered(Answer { access, status: *status, freshness, validators });
        }
        Fetched::Unreachable(why) => return old.failed(now, why, None, fastrand::f64()),
        Fetched::NoTurn { retry_after } => {
            return old.failed(now, "the host's pace left no time to ask for it", *retry_after, fastrand::f64());
        }
    };
    let (freshness, validators) = (freshness(headers, settings, now), validators(headers));
    if status == 304
        && let Some(entry) = old.confirmed(freshness, validators.clone())
    {
        return entry;
    }
    let access = match from_status(status) {
        AccessKind::Rules => Access::Rules(files.intern(body, &robots.parse_options())),
        AccessKind::AllowAll if matches!(status, 401 | 403) => fallback(robots.on_auth_error),
        AccessKind::AllowAll => fallback(robots.on_unavailable),
        AccessKind::Redirect | AccessKind::DisallowAll => {
            let wait = asked_to_wait(headers, now);
            return old.failed(now, &format!("status {status}"), wait, fastrand::f64());
        }
    };
    Entry::answered(Answer { access, status, freshness, validators })
}

fn freshness(headers: &HeaderMap, settings: &Settings, now: SystemTime) -> Freshness {
    let field = |name: HeaderName| headers.get(name).map(|value| value.as_bytes());
    let control: Vec<_> = headers.get_all(header::CACHE_CONTROL).iter().map(|value| value.as_bytes()).collect();
    let fields = CacheFields {
        cache_control: &control,
        expires: field(header::EXPIRES),
        date: field(header::DATE),
        age: field(header::AGE),
    };
    let limits = Limits { min_ttl: settings.robots.min_ttl, max_ttl: settings.robots.max_ttl };
    Freshness::new(now, fields.lifetime(now, &limits), fastrand::f64())
}

fn validators(headers: &HeaderMap) -> Validators {
    let field = |name: HeaderName| headers.get(name)?.to_str().ok();
    Validators::new(field(header::ETAG), field(header::LAST_MODIFIED))
}

pub(super) fn asked_to_wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    retry_after(headers.get(header::RETRY_AFTER)?.as_bytes(), now)
}
