//! Trailers in either version of HTTP.

use super::proxy_status::others;
use crate::http1::{Field, FieldKind};
use crate::policy::override_fields::is_disguised;
use http::{HeaderMap, HeaderValue};

/// Trailers to forward, without fields that are not allowed in trailers: a recipient may merge them into the head
/// (RFC 9110 §6.5).
pub(super) fn passed_trailers(came: HeaderMap) -> HeaderMap {
    let mut passed = HeaderMap::with_capacity(came.len());
    for (name, value) in &came {
        let field = Field {
            name: name.as_str().as_bytes(),
            value: value.as_bytes(),
            kind: FieldKind::of(name.as_str().as_bytes()),
        };
        if !field.may_trail() || is_disguised(field.name) {
            continue;
        }
        // Removes members of Proxy-Status and Cache-Status that claim to be from this proxy.
        let others = (field.kind == FieldKind::ProxyStatus).then(|| others(field.value));
        match others {
            // RFC 9113 §8.2.1: white space around a value is malformed.
            None => drop(HeaderValue::from_bytes(field.value.trim_ascii()).map(|value| passed.append(name, value))),
            Some(others) if others.is_empty() => {}
            Some(others) => drop(HeaderValue::from_str(&others).map(|value| passed.append(name, value))),
        }
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    #[test]
    fn trailers_cannot_frame_route_authenticate_reserve_or_speak_in_our_name() {
        let came = [
            ("x-sum", " 9\t"),
            ("host", "h"),
            ("authorization", "Basic YTpi"),
            ("x-original-url", "/private"),
            ("proxy-status", "politely; error=x, other"),
            ("cache-status", "politely; hit"),
            ("x-robots-tag", "noai"),
            ("robots-tag", "*;noai"),
            ("content-usage", "train-ai=n"),
            ("content-signal", "ai-train=no"),
            ("tdm-reservation", "1"),
            ("link", "</l>; rel=license"),
        ];
        let came = came.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let passed = passed_trailers(came.into_iter().collect());
        let passed: Vec<_> = passed.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(passed, [("x-sum", "9"), ("proxy-status", "other")]);
    }
}
