//! SOCKS5 replies (RFC 1928 §6).

use http::StatusCode;

/// Reply to a granted request.
pub const GRANTED: [u8; 10] = reply(0);

/// Reply for an answer with this HTTP status.
pub fn refused(status: StatusCode) -> [u8; 10] {
    reply(match status {
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => HOST_UNREACHABLE,
        _ if status.is_client_error() => NOT_ALLOWED,
        _ => FAILURE,
    })
}

/// A reply with this code. Its bound address is 0.0.0.0:0, because clients do not use it.
pub(super) const fn reply(code: u8) -> [u8; 10] {
    [VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

pub(super) const VERSION: u8 = 5;
pub(super) const IPV4: u8 = 1;
pub(super) const FAILURE: u8 = 1;
pub(super) const NOT_ALLOWED: u8 = 2;
const HOST_UNREACHABLE: u8 = 4;
pub(super) const BAD_COMMAND: u8 = 7;
pub(super) const BAD_ADDRESS: u8 = 8;
