//! Our copy of robots.txt for a client that asks for it (RFC 9111 §5.1).

use super::{Answer, PROXY_STATUS};
use crate::gate::RobotsCopy;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};

/// `conditions`: If-None-Match and If-Modified-Since of the request.
pub fn robots_copy(copy: &RobotsCopy, conditions: &HeaderMap) -> Answer {
    let unchanged = copy.status == 200 && is_unchanged(conditions, copy);
    let status = StatusCode::from_u16(copy.status).unwrap_or(StatusCode::OK);
    let status = if unchanged { StatusCode::NOT_MODIFIED } else { status };
    let body = if unchanged { Bytes::new() } else { copy.body.clone() };
    let mut answer = Answer { status, fields: Vec::with_capacity(256), body };
    answer.field(&header::CONTENT_TYPE, "text/plain; charset=utf-8");
    answer.number(&header::AGE, copy.age);
    answer.field(&PROXY_STATUS, "politely; details=\"from the copy that is kept\"");
    if let Some(etag) = &copy.etag {
        answer.field(&header::ETAG, etag);
    }
    if let Some(modified) = &copy.last_modified {
        answer.field(&header::LAST_MODIFIED, modified);
    }
    answer
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
