//! The stored robots.txt, for a client that requests it (RFC 9111 §5.1).

use super::Answer;
use crate::gate::RobotsCopy;
use crate::http1::{put_field, put_number};
use crate::policy::{Visit, entity_tag};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::time::Instant;

/// Answers with the stored copy. `conditions`: If-None-Match and If-Modified-Since of the request.
pub fn robots_copy(copy: &RobotsCopy, conditions: &HeaderMap) -> Answer {
    let unchanged = copy.status == 200 && is_unchanged(conditions, copy);
    let status = StatusCode::from_u16(copy.status).unwrap_or(StatusCode::OK);
    let status = if unchanged { StatusCode::NOT_MODIFIED } else { status };
    let put_fields = |text: &mut Vec<u8>| {
        text.extend_from_slice(b"content-type: text/plain; charset=utf-8\r\nage: ");
        put_number(text, copy.age);
        text.extend_from_slice(b"\r\nproxy-status: politely; details=\"from the stored copy\"\r\n");
        for (name, value) in [&b"etag"[..], b"last-modified"].into_iter().zip(copy.validators.both()) {
            // Invalid values are left out: an answer without them is better than none.
            if let Some(value) = value.filter(|value| !value.iter().any(u8::is_ascii_control)) {
                put_field(text, name, value);
            }
        }
    };
    Answer::shared(status, put_fields, if unchanged { Bytes::new() } else { copy.body.clone() })
}

/// The 304 for a client that already has the page (`min_revisit`).
pub fn not_modified(visit: &Visit) -> Answer {
    let (fields, age) = visit.repeated(Instant::now());
    let put_fields = |text: &mut Vec<u8>| {
        fields.for_each(|(name, value)| put_field(text, name, value));
        text.extend_from_slice(b"age: ");
        put_number(text, age);
        text.extend_from_slice(b"\r\nproxy-status: politely; details=\"fetched recently (min_revisit)\"\r\n");
    };
    Answer::new(StatusCode::NOT_MODIFIED, put_fields, b"")
}

fn is_unchanged(headers: &HeaderMap, copy: &RobotsCopy) -> bool {
    let tags: Vec<&[u8]> = headers.get_all(header::IF_NONE_MATCH).iter().map(HeaderValue::as_bytes).collect();
    let since = headers.get(header::IF_MODIFIED_SINCE).map(HeaderValue::as_bytes);
    let [etag, modified] = copy.validators.both();
    entity_tag::is_known(&tags, since, etag, modified)
}
