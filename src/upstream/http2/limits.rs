//! The limits on heads and trailers, which are those of HTTP/1.

use crate::http1::{BodyError, HeadError, MAX_FIELDS, within_trailer_limits};
use http::HeaderMap;

/// Checks a head. `line`: length of its first line in HTTP/1, as far as the peer determines it.
pub fn check_head(line: usize, fields: &HeaderMap, limit: usize) -> Result<(), HeadError> {
    match () {
        () if line + size(fields) > limit => Err(HeadError::TooLarge { limit }),
        () if fields.len() > MAX_FIELDS => Err(HeadError::TooManyFields),
        () => Ok(()),
    }
}

pub fn check_trailers(fields: &HeaderMap) -> Result<(), BodyError> {
    within_trailer_limits(fields.len(), size(fields)).map_err(BodyError::Malformed)
}

/// Size of the fields in bytes, as HTTP/1 would write them.
fn size(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum()
}
