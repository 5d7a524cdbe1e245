//! Header fields that say how to serve a request: how long it may wait, and whether it is for a part of a page.

use std::time::Duration;

/// `Prefer: wait=N` (RFC 7240 §4.3).
pub(super) fn prefer_wait(value: &[u8]) -> Option<Duration> {
    std::str::from_utf8(value).ok()?.split(',').find_map(|preference| {
        let (name, seconds) = preference.split(';').next()?.split_once('=')?;
        let seconds = Some(seconds).filter(|_| name.trim().eq_ignore_ascii_case("wait"))?;
        seconds.trim().trim_matches('"').parse().ok().map(Duration::from_secs)
    })
}

/// Whether Sec-Fetch-Dest (Fetch Metadata §2.1) says that the request is for a part of a page. An empty value counts
/// as a page.
pub(super) fn is_subresource(dest: &[u8]) -> bool {
    !PAGES.iter().any(|page| dest.eq_ignore_ascii_case(page.as_bytes()))
}

/// Destinations that are pages. `empty` stands for `fetch()` and similar calls, with which scripts crawl.
const PAGES: [&str; 8] = ["", "document", "iframe", "frame", "fencedframe", "embed", "object", "empty"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_fetch_dest_identifies_subresources() {
        assert!(["image", "script", "style", "font", "Video"].into_iter().all(|dest| is_subresource(dest.as_bytes())));
        let pages = ["document", "iframe", "frame", "embed", "empty", "Document", ""];
        assert!(!pages.into_iter().any(|dest| is_subresource(dest.as_bytes())));
    }

    #[test]
    fn prefer_wait_is_found_among_others() {
        assert_eq!(prefer_wait(b"respond-async, Wait=10; foo"), Some(Duration::from_secs(10)));
        assert_eq!(prefer_wait(b"wait=soon"), None);
    }
}
