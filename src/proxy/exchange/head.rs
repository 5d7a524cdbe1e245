//! The head of a request as received, in either HTTP version.

use crate::http1::RequestHead;
use http::HeaderMap;

/// The head of a request.
#[derive(Clone, Copy)]
pub enum Head<'a> {
    Http1(&'a RequestHead<'a>),
    Http2(&'a HeaderMap),
}

impl<'a> Head<'a> {
    /// Passes each field.
    pub fn each(&self, take: &mut dyn FnMut(&[u8], &[u8])) {
        match self {
            Head::Http1(head) => head.fields.iter().for_each(|field| take(field.name, field.value)),
            Head::Http2(fields) => {
                fields.iter().for_each(|(name, value)| take(name.as_str().as_bytes(), value.as_bytes()))
            }
        }
    }

    /// All fields of this name as one (RFC 9110 §5.3).
    pub fn joined(&self, name: &[u8]) -> Option<Vec<u8>> {
        joined(name, |take| self.each(take))
    }

    /// The fields of these names.
    pub fn fields_named(&self, names: &[http::HeaderName]) -> HeaderMap {
        let mut found = HeaderMap::new();
        let mut note = |name: &[u8], value: &[u8]| {
            let named = names.iter().find(|it| it.as_str().as_bytes().eq_ignore_ascii_case(name));
            if let Some((name, value)) = named.zip(http::HeaderValue::from_bytes(value).ok()) {
                found.append(name, value);
            }
        };
        self.each(&mut note);
        found
    }
}

/// All fields of this name as one (RFC 9110 §5.3). `each`: passes names and values.
pub fn joined(name: &[u8], each: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]))) -> Option<Vec<u8>> {
    let mut joined = None::<Vec<u8>>;
    each(&mut |it, value| {
        if it.eq_ignore_ascii_case(name) {
            joined = Some(joined.take().map_or_else(|| value.to_vec(), |before| [&before, &b", "[..], value].concat()));
        }
    });
    joined
}
