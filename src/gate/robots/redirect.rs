//! Computes where a redirect of robots.txt leads (RFC 9309 §2.3.1.2). Pure; the loop that follows redirects is in `refresh/ask.rs`.

use super::fetch::Reply;
use crate::policy::manners::challenge;
use crate::policy::resolved;
use crate::robots::access::{AccessKind, from_status};
use http::header;
use percent_encoding::{CONTROLS, percent_encode};
use std::borrow::Cow;
use url::Url;

/// Why a redirect cannot be followed. Then the file is unavailable, which allows everything (§2.3.1.3).
pub(super) type DeadEnd = &'static str;

/// The URLs visited so far, beginning with the authority's own robots.txt.
#[derive(Debug, Clone)]
pub(super) struct Trail(Vec<Url>);

impl Trail {
    pub fn new(start: Url) -> Self {
        Trail(vec![start])
    }

    /// The URL to request now.
    pub fn current(&self) -> &Url {
        self.0.last().expect("a trail begins with its start")
    }

    /// Whether any redirect was followed.
    pub fn is_redirected(&self) -> bool {
        self.0.len() > 1
    }

    /// Whether the current URL is on another host than the first.
    pub fn is_away(&self) -> bool {
        host(self.current()) != host(&self.0[0])
    }

    /// Bytes on the heap.
    pub fn heap_size(&self) -> usize {
        self.0.iter().map(|url| size_of::<Url>() + url.as_str().len()).sum()
    }

    /// Follows the redirect in an answer. `None`: the answer is not a redirect, or is marked as a challenge.
    pub fn after(&mut self, reply: &Reply) -> Option<Result<(), DeadEnd>> {
        if from_status(reply.status) != AccessKind::Redirect || challenge(|name| reply.headers.get(name)).is_some() {
            return None;
        }
        let location = reply.headers.get(header::LOCATION).map(|value| escaped(value.as_bytes()));
        Some(self.follow(location.as_deref()))
    }

    /// Follows one redirect. Credentials in the URL are not sent, and a fragment is not part of a request.
    fn follow(&mut self, location: Option<&str>) -> Result<(), DeadEnd> {
        let mut next = location.and_then(|location| resolved(self.current(), location)).ok_or(NOWHERE)?;
        if !matches!(next.scheme(), "http" | "https") || next.host_str().is_none_or(str::is_empty) {
            return Err(NOWHERE);
        }
        // These calls cannot fail, as the URL has a host.
        let _ = (next.set_username(""), next.set_password(None));
        next.set_fragment(None);
        if self.0.contains(&next) {
            return Err(LOOP);
        }
        if self.0.len() > MAX_HOPS {
            return Err(TOO_MANY);
        }
        self.0.push(next);
        Ok(())
    }
}

/// The host; `http` and `https` on their default ports count as the same.
fn host(url: &Url) -> (Option<&str>, Option<u16>) {
    (url.host_str().map(|name| name.strip_suffix('.').unwrap_or(name)), url.port())
}

/// Percent-encodes bytes that are not UTF-8, as they have to be sent.
fn escaped(location: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(location) {
        Ok(text) => text.into(),
        Err(_) => percent_encode(location, CONTROLS).into(),
    }
}

const NOWHERE: DeadEnd = "no Location, or not an http(s) URL";
const LOOP: DeadEnd = "to a URL already visited";
const TOO_MANY: DeadEnd = "more than five redirects";
const MAX_HOPS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn trail() -> Trail {
        Trail::new(Url::parse("http://a.example/robots.txt").unwrap())
    }

    #[test]
    fn five_redirects_are_followed_but_not_six() {
        let mut trail = trail();
        for hop in 1..=5 {
            assert_eq!(trail.follow(Some(&format!("/{hop}"))), Ok(()));
        }
        assert_eq!(trail.current().as_str(), "http://a.example/5");
        assert_eq!(trail.follow(Some("/6")), Err(TOO_MANY));
    }

    #[test]
    fn location_may_be_relative_or_name_another_authority() {
        let mut trail = trail();
        assert!(!trail.is_redirected());
        for (location, becomes) in [
            ("r.txt", "http://a.example/r.txt"),
            ("//b.example/x", "http://b.example/x"),
            ("https://C.example:443/x?y#z", "https://c.example/x?y"),
            ("https://user:secret@d.example/", "https://d.example/"),
        ] {
            trail.follow(Some(location)).unwrap();
            assert_eq!(trail.current().as_str(), becomes);
        }
        assert!(trail.is_redirected());
    }

    #[test]
    fn location_bytes_that_are_not_utf8_are_percent_encoded() {
        for (location, becomes) in [
            (&b"/donn\xe9es.txt"[..], "http://a.example/donn%E9es.txt"),
            ("/donn\u{e9}es.txt".as_bytes(), "http://a.example/donn%C3%A9es.txt"),
            (b"/%e9?\xff\xe9", "http://a.example/%e9?%FF%E9"),
        ] {
            let mut headers = http::HeaderMap::new();
            headers.insert(header::LOCATION, http::HeaderValue::from_bytes(location).unwrap());
            let (asked, version) = (std::time::SystemTime::now(), crate::policy::HttpVersion::Http1);
            let reply =
                Reply { asked, status: 302, headers, body: Default::default(), version, wanted: None, through: None };
            let mut trail = trail();
            assert_eq!(trail.after(&reply), Some(Ok(())), "{becomes}");
            assert_eq!(trail.current().as_str(), becomes);
        }
    }

    #[test]
    fn loops_and_dead_ends_are_reported() {
        assert_eq!(trail().follow(Some("/robots.txt")), Err(LOOP));
        assert_eq!(trail().follow(Some("#x")), Err(LOOP));
        assert_eq!(trail().follow(None), Err(NOWHERE));
        assert_eq!(trail().follow(Some("ftp://a.example/robots.txt")), Err(NOWHERE));
        assert_eq!(trail().follow(Some("http://")), Err(NOWHERE));
        for length in [1, 100_000] {
            let name = "\u{4e00}.".repeat(length);
            for location in ["http://NAME/", "//NAME", "http:NAME?x", "\\\\user@NAME:80", "http://NAME#/"] {
                let led = trail().follow(Some(&location.replace("NAME", &name)));
                assert_eq!(led.is_ok(), length == 1, "{length} {location}");
            }
        }
        assert_eq!(trail().follow(Some(&format!("/x?{}", "y".repeat(60_000)))), Ok(()), "a path may be long");
        let mut trail = trail();
        trail.follow(Some("/a")).unwrap();
        assert_eq!(trail.follow(Some("http://a.example/robots.txt")), Err(LOOP));
    }
}
