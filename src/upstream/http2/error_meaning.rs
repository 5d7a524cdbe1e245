//! Interpretation of HTTP/2 errors: signals from the origin, and connections closed because of an invalid message.

use h2::Reason;

/// Whether the origin reports that it has not processed the request (RFC 9113 §8.7), so that any request may be repeated.
pub fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM))
}

/// Whether the origin reports an excessive load (ENHANCE_YOUR_CALM).
pub fn asks_for_calm(error: &h2::Error) -> bool {
    error.is_remote() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM)
}

/// Whether one stream's error ended the whole connection. Either we ended it because of an invalid field in an answer, which the server may
/// have forwarded from another server; or the origin ended it because of a request, as nginx does if a field is too large.
pub fn is_broken_off(error: &h2::Error) -> bool {
    error.is_go_away() && error.reason() != Some(Reason::NO_ERROR)
}

/// Whether the origin wants the request over HTTP/1.1.
pub fn wants_http1(error: &h2::Error) -> bool {
    error.is_remote() && error.reason() == Some(Reason::HTTP_1_1_REQUIRED)
}
