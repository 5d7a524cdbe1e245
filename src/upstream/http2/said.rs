//! What an origin says by ending a stream or the connection, and that we have ended the connection for what it said.

use h2::Reason;

/// Whether the origin says that it has done nothing with the request (RFC 9113 §8.7): then any may be sent again.
pub fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM))
}

/// Whether the origin says that it is asked too much.
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
