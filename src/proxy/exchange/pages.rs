//! Recognizes parts of pages without `Sec-Fetch-Dest`, which browsers do not send over http. The proxy remembers pages that
//! it just delivered to a client. A request is for a part of a page if its Referer names such a page, and if Accept or the
//! file name shows an image, style, script or font.

use super::request::Request;
use crate::config::{Settings, Subresources};
use crate::policy::pace::ClientId;
use crate::policy::usage::page::media_type;
use http::header;
use quick_cache::sync::Cache;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::time::Instant;

/// Pages that were delivered recently, by client and URL.
pub struct Pages {
    keys: RandomState,
    handed: Cache<u64, Instant>,
}

impl Default for Pages {
    fn default() -> Self {
        Pages { keys: RandomState::new(), handed: Cache::new(KEPT) }
    }
}

impl Pages {
    /// Whether the settings treat parts of pages differently.
    pub fn are_wanted(settings: &Settings) -> bool {
        settings.pace.subresources == Subresources::Burst
    }

    /// Whether the answer is a page, or a style sheet, which names fonts and images.
    pub fn is_one(content_type: &[u8]) -> bool {
        let kinds = [&b"text/html"[..], b"application/xhtml+xml", b"text/css"];
        kinds.iter().any(|kind| media_type(content_type).eq_ignore_ascii_case(kind))
    }

    pub fn hand(&self, client: ClientId, request: &Request<'_>, now: Instant) {
        // In requests to other hosts, browsers shorten Referer to the origin.
        for page in [request.url(), request.authority.url("/")] {
            self.handed.insert(self.key(client, page.as_bytes()), now);
        }
    }

    /// Whether Referer names a recently delivered page.
    pub fn lead_to(&self, client: ClientId, request: &Request<'_>, now: Instant) -> bool {
        let referers = request.head.fields_named(&[header::REFERER]);
        referers.get(header::REFERER).is_some_and(|page| {
            self.handed.get(&self.key(client, page.as_bytes())).is_some_and(|handed| now < handed + LATELY)
        })
    }

    fn key(&self, client: ClientId, page: &[u8]) -> u64 {
        self.keys.hash_one((client.0, page))
    }
}

/// Whether Accept shows that the request is for a part of a page. If it accepts anything, as in crawlers' requests, the file name decides.
pub fn is_part(accept: Option<&[u8]>, target: &[u8]) -> bool {
    let accept = accept.unwrap_or(b"*/*");
    let first = accept.split(|byte| matches!(byte, b',' | b';')).next().unwrap_or_default().trim_ascii();
    if first == b"*/*" {
        let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
        return NAMES.iter().any(|name| path.ends_with(name.as_bytes()));
    }
    let is_kind = |kind: &str| first.get(..kind.len()).is_some_and(|it| it.eq_ignore_ascii_case(kind.as_bytes()));
    KINDS.into_iter().any(is_kind) && memchr::memmem::find(accept, b"html").is_none()
}

/// Prefixes of the media type that comes first in Accept when a browser requests a part of a page.
const KINDS: [&str; 5] = ["image/", "text/css", "font/", "audio/", "video/"];
/// File name endings of parts that browsers request with `Accept: */*`.
const NAMES: [&str; 7] = [".js", ".mjs", ".css", ".woff", ".woff2", ".ttf", ".otf"];
const KEPT: usize = 10_000;
/// Time for a browser to request a page's parts.
const LATELY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subresources_are_recognised_by_accept_or_file_name() {
        let browser = "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8";
        for (accept, target) in [
            (browser, "/i"),
            ("text/css,*/*;q=0.1", "/s"),
            ("*/*", "/s.js?v=1"),
            ("*/*", "/f.woff2"),
            ("Image/*", "/x"),
        ] {
            assert!(is_part(Some(accept.as_bytes()), target.as_bytes()), "{accept} {target}");
        }
        let page = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
        for (accept, target) in [(page, "/s.js"), ("*/*", "/page"), ("*/*", "/photo.jpg"), ("image/*, text/html", "/x")]
        {
            assert!(!is_part(Some(accept.as_bytes()), target.as_bytes()), "{accept} {target}");
        }
        assert!(is_part(None, b"/s.css") && !is_part(None, b"/"));
    }
}
