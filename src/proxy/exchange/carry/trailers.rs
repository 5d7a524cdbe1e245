//! Trailers that are passed on: fields that no trailer may have are removed, as a recipient may merge them with the head (RFC 9110 §6.5).

use super::answer::others;
use crate::http1::{Field, FieldKind};
use crate::policy::override_fields::names_another_url;
use http::{HeaderMap, HeaderValue};

/// Those that go on.
pub(super) fn passed(came: HeaderMap) -> HeaderMap {
    let mut passed = HeaderMap::with_capacity(came.len());
    for (name, value) in &came {
        let field = Field {
            name: name.as_str().as_bytes(),
            value: value.as_bytes(),
            kind: FieldKind::of(name.as_str().as_bytes()),
        };
        if !field.may_trail() || names_another_url(field.name) {
            continue;
        }
        // What is said in our name is ours to say.
        let others = (field.kind == FieldKind::ProxyStatus).then(|| others(field.value));
        match others {
            None => drop(passed.append(name, value.clone())),
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
    fn no_trailer_frames_routes_lets_in_or_speaks_in_our_name() {
        let came = [
            ("x-sum", "9"),
            ("host", "h"),
            ("authorization", "Basic YTpi"),
            ("x-original-url", "/private"),
            ("proxy-status", "politely; error=x, other"),
        ];
        let came = came.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let passed = passed(came.into_iter().collect());
        let passed: Vec<_> = passed.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(passed, [("x-sum", "9"), ("proxy-status", "other")]);
    }
}
