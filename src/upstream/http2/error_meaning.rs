//! What an HTTP/2 error means: signals from the origin, and connections that we closed because of an invalid message.

use h2::Reason;

/// Whether the origin reports that it has not processed the request (RFC 9113 §8.7), so that any request may be repeated.
pub fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM))
}

/// Whether the origin reports an excessive load (ENHANCE_YOUR_CALM).
pub fn asks_for_calm(error: &h2::Error) -> bool {
    error.is_remote() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM)
}

/// Whether the connection was ended for all because of one of its streams: by us, for a field that the origin may not send, which its
/// server may have passed on from somebody else; or by the origin, for a request: nginx does so where a field is too large for it.
pub fn is_broken_off(error: &h2::Error) -> bool {
    error.is_go_away() && error.reason() != Some(Reason::NO_ERROR)
}

/// Whether the origin wants the request over HTTP/1.1.
pub fn wants_http1(error: &h2::Error) -> bool {
    error.is_remote() && error.reason() == Some(Reason::HTTP_1_1_REQUIRED)
}
