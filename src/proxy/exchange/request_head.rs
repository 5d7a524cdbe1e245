//! The head of a client's request, whatever the version. All of it is the client's, byte for byte.

use crate::http1::RequestHead;
use http::HeaderMap;

/// The head that it was read from.
#[derive(Clone, Copy)]
pub enum Head<'a> {
    Http1(&'a RequestHead<'a>),
    Http2(&'a HeaderMap),
}

impl<'a> Head<'a> {
    /// The fields of these names.
    pub fn fields_named(&self, names: &[http::HeaderName]) -> HeaderMap {
        let mut found = HeaderMap::new();
        let mut note = |name: &[u8], value: &[u8]| {
            let named = names.iter().find(|it| it.as_str().as_bytes().eq_ignore_ascii_case(name));
            if let Some((name, value)) = named.zip(http::HeaderValue::from_bytes(value).ok()) {
                found.append(name, value);
            }
        };
        match self {
            Head::Http1(head) => head.fields.iter().for_each(|field| note(field.name, field.value)),
            Head::Http2(fields) => {
                fields.iter().for_each(|(name, value)| note(name.as_str().as_bytes(), value.as_bytes()))
            }
        }
        found
    }
}
