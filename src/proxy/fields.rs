//! Header fields on their way through (RFC 9110 §7.6), and those we read or write ourselves. Called by `forward`.

use super::respond::Answer;
use crate::gate::RobotsCopy;
use crate::policy::override_fields::NAMES_ANOTHER_URL;
use crate::policy::retry_after;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::{Error, ErrorType, OrErr, Result};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Our name in Via (RFC 9110 §7.6.3), by which a loop is known.
pub(super) struct Via {
    name: Arc<str>,
}

impl Via {
    pub fn new(name: &Arc<str>) -> Self {
        Via { name: name.clone() }
    }

    pub fn line(&self, received: Version) -> String {
        let version = match received {
            Version::HTTP_10 => "1.0",
            Version::HTTP_2 => "2",
            _ => "1.1",
        };
        format!("{version} {}", self.name)
    }

    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        self.is_among(headers.get_all(header::VIA).iter().map(HeaderValue::as_bytes))
    }

    pub fn is_among<'a>(&self, lines: impl IntoIterator<Item = &'a [u8]>) -> bool {
        // Octet by octet: what another proxy wrote beside our name must not hide it.
        let members = lines.into_iter().flat_map(|line| line.split(|&byte| byte == b','));
        members.into_iter().any(|member| {
            let mut words = member.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            words.nth(1).is_some_and(|name| name.eq_ignore_ascii_case(self.name.as_bytes()))
        })
    }
}

/// RFC 9113 §8.2.3: cookies that h2 split are one field on HTTP/1.
pub(super) fn join_cookies(request: &mut RequestHeader) -> Result<()> {
    if request.headers.get_all(header::COOKIE).iter().nth(1).is_none() {
        return Ok(());
    }
    let crumbs: Vec<_> = request.headers.get_all(header::COOKIE).iter().map(|crumb| crumb.as_bytes()).collect();
    let joined = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])).or_err(ErrorType::InvalidHTTPHeader, "Cookie")?;
    request.insert_header(header::COOKIE, joined)
}

/// What is left of the client's hop after `head::read` (HTTP/2 may carry it all the same).
pub(super) fn strip_request(request: &mut RequestHeader) {
    for name in ["proxy-authorization", "proxy-connection", "keep-alive"].iter().chain(&NAMES_ANOTHER_URL) {
        request.remove_header(*name);
    }
}

/// A body whose framing we do not know cannot be handed on (RFC 9112 §6.1).
pub(super) fn check_framing(response: &ResponseHeader) -> Result<()> {
    let mut codings = response.headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        (Some(_), _) => {
            Err(Error::explain(ErrorType::InvalidHTTPHeader, "a Transfer-Encoding other than chunked").into_up())
        }
    }
}

/// Takes away what an origin meant for its hop, and what it says in our name.
pub(super) fn strip_response(response: &mut ResponseHeader) {
    const HOP_BY_HOP: [&str; 6] =
        ["keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authentication-info", "trailer", "upgrade"];
    // Framing and what pingora itself handles stays, even if Connection names it.
    const KEPT: [&str; 6] =
        ["close", "keep-alive", "connection", "transfer-encoding", "content-length", "cache-control"];
    let named: Vec<String> = response
        .headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty() && !KEPT.contains(&name.as_str()))
        .collect();
    for name in named.iter().map(String::as_str).chain(HOP_BY_HOP) {
        response.remove_header(name);
    }
    let status: Vec<_> = response.headers.get_all(PROXY_STATUS).iter().cloned().collect();
    if status.is_empty() {
        return;
    }
    response.remove_header(PROXY_STATUS);
    for value in status {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let others: Vec<_> = members(&value).filter(|member| !is_ours(member)).collect();
        if !others.is_empty() {
            // It came as this field's value a moment ago.
            let _ = response.append_header("Proxy-Status", others.join(", "));
        }
    }
}

/// The members of a list (RFC 9651 §3.1); commas within strings part nothing.
fn members(list: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = list.split(move |c| {
        let quote = c == '"' && !escaped;
        quoted ^= quote;
        escaped = quoted && c == '\\' && !escaped;
        c == ',' && !quoted
    });
    parts.map(str::trim).filter(|member| !member.is_empty())
}

fn is_ours(member: &str) -> bool {
    let name = member.split(';').next().unwrap_or_default().trim();
    name.trim_matches('"').eq_ignore_ascii_case("politely")
}

/// How long the origin asks us to stay away.
pub(super) fn asked_to_wait(response: &ResponseHeader) -> Option<Duration> {
    retry_after(response.headers.get(header::RETRY_AFTER)?.as_bytes(), SystemTime::now())
}

/// How many more proxies may forward it (RFC 9110 §7.6.2).
pub(super) fn max_forwards(request: &RequestHeader) -> Option<u32> {
    if !matches!(request.method, Method::OPTIONS | Method::TRACE) {
        return None;
    }
    request.headers.get(header::MAX_FORWARDS)?.to_str().ok()?.trim().parse().ok()
}

/// The answer to one that may be forwarded no further.
pub(super) fn last_forward(request: &RequestHeader) -> Result<Answer> {
    let status = if request.method == Method::OPTIONS { 200 } else { 405 };
    Answer::content(ResponseHeader::build(status, Some(2))?, Bytes::new())
}

/// `Prefer: wait=N` (RFC 7240 §4.3).
pub(super) fn prefer_wait(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all("prefer").iter().filter_map(|line| line.to_str().ok());
    let preferences = lines.flat_map(|line| line.split(','));
    preferences
        .filter_map(|preference| {
            let (name, value) = preference.split(';').next()?.split_once('=')?;
            let seconds =
                name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"').parse().ok())?;
            seconds.map(Duration::from_secs)
        })
        .next()
}

/// Whether this is for a part of a page by Sec-Fetch-Dest (Fetch Metadata §2.1), rather than for something that is or
/// may be a page itself. What does not say is a page.
pub(super) fn is_subresource(headers: &HeaderMap) -> bool {
    let Some(dest) = headers.get("sec-fetch-dest") else { return false };
    !PAGES.iter().any(|page| dest.as_bytes().eq_ignore_ascii_case(page.as_bytes()))
}

/// `empty` is `fetch()` and the like: what a script crawls with.
const PAGES: [&str; 8] = ["", "document", "iframe", "frame", "fencedframe", "embed", "object", "empty"];

/// Whether this asks for the very file that we keep a copy of.
pub(super) fn reads_robots(request: &RequestHeader) -> bool {
    request.raw_path() == b"/robots.txt" && matches!(request.method, Method::GET | Method::HEAD)
}

/// Our copy of robots.txt for a client that asks for it (RFC 9111 §5.1).
pub(super) fn robots_copy(request: &RequestHeader, copy: &RobotsCopy) -> Result<Answer> {
    let unchanged = copy.status == 200 && is_unchanged(&request.headers, copy);
    let status = if unchanged { 304 } else { copy.status };
    let mut head = ResponseHeader::build(status, Some(8))?;
    head.insert_header(header::CONTENT_TYPE, "text/plain; charset=utf-8")?;
    head.insert_header(header::AGE, copy.age)?;
    head.insert_header("Proxy-Status", "politely; details=\"from the copy that is kept\"")?;
    if let Some(etag) = &copy.etag {
        head.insert_header(header::ETAG, &**etag)?;
    }
    if let Some(modified) = &copy.last_modified {
        head.insert_header(header::LAST_MODIFIED, &**modified)?;
    }
    Answer::content(head, if unchanged { Default::default() } else { copy.body.clone() })
}

/// RFC 9110 §13.2.2: If-None-Match decides if it is there, else If-Modified-Since.
fn is_unchanged(headers: &HeaderMap, copy: &RobotsCopy) -> bool {
    let mut tags = headers.get_all(header::IF_NONE_MATCH).iter().peekable();
    if tags.peek().is_some() {
        let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
        let ours = copy.etag.as_deref().map(strong);
        let mut tags = tags.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
        return tags.any(|tag| tag.trim() == "*" || ours.as_ref().is_some_and(|ours| strong(tag) == *ours));
    }
    let date = |text: &str| httpdate::parse_http_date(text.trim()).ok();
    let since = headers.get(header::IF_MODIFIED_SINCE).and_then(|value| date(value.to_str().ok()?));
    let modified = copy.last_modified.as_deref().and_then(date);
    matches!((modified, since), (Some(modified), Some(since)) if modified <= since)
}

const PROXY_STATUS: &str = "proxy-status";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_parted_at_commas_outside_strings() {
        let list = r#"politely; details="a, \"b, c", other; x="\\", "politely""#;
        let found: Vec<_> = members(list).collect();
        assert_eq!(found, [r#"politely; details="a, \"b, c""#, r#"other; x="\\""#, r#""politely""#]);
        assert_eq!(found.iter().filter(|member| is_ours(member)).count(), 2);
    }

    #[test]
    fn our_name_in_via_is_found_whatever_stands_beside_it() {
        let via = Via::new(&"politely-1234abcd".into());
        for line in [
            via.line(Version::HTTP_11),
            format!("1.0 x, HTTP/2 {} (y)", via.name.to_uppercase()),
            format!("1.1 \u{fc}, 1.1\t{}", via.name),
        ] {
            let mut headers = HeaderMap::new();
            headers.append("via", HeaderValue::from_bytes(line.as_bytes()).unwrap());
            assert!(via.is_in(&headers), "{line}");
        }
        let mut headers = HeaderMap::new();
        headers.append("via", "1.1 politely-0, 1.1 other".parse().unwrap());
        assert!(!via.is_in(&headers));
    }

    #[test]
    fn parts_of_a_page_are_told_by_sec_fetch_dest() {
        let is = |dest: &'static str| {
            is_subresource(&HeaderMap::from_iter([("sec-fetch-dest".parse().unwrap(), dest.parse().unwrap())]))
        };
        assert!(["image", "script", "style", "font", "Video"].into_iter().all(is));
        assert!(!["document", "iframe", "frame", "embed", "empty", "Document", ""].into_iter().any(is));
        assert!(!is_subresource(&HeaderMap::new()));
    }

    #[test]
    fn prefer_wait_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append("prefer", "respond-async, Wait=10; foo".parse().unwrap());
        assert_eq!(prefer_wait(&headers), Some(Duration::from_secs(10)));
        headers.insert("prefer", "wait=soon".parse().unwrap());
        assert_eq!(prefer_wait(&headers), None);
    }
}
