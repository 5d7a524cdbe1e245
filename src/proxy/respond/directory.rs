//! The directory of signing keys, for those who verify signatures.

use super::Answer;
use crate::http1::put_field;
use crate::proxy::io::Scratch;
use crate::signing::Published;
use http::StatusCode;

pub fn directory(Published { fields, body }: &Published) -> Answer {
    let mut text = Scratch::new();
    for (name, value) in fields {
        put_field(&mut text, name.as_bytes(), value.as_bytes());
    }
    let body_at = text.len();
    text.extend_from_slice(body.as_bytes());
    Answer::new(StatusCode::OK, text, body_at)
}
