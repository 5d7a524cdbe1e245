//! Trailers on their way: whoever merges them with the head must not be told there what no trailer may say (RFC 9110 §6.5).

use super::answer::others;
use crate::http1::{Field, FieldKind};
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
        if !field.may_trail() {
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
