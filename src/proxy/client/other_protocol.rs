//! Connections that do not begin with an HTTP/1 request. SOCKS5 is served; a client of another protocol receives an error
//! in that protocol.

use super::super::Proxy;
use super::super::exchange::request::Unread;
use super::super::exchange::{Outcome, conclude_unread};
use super::connection::Connection;
use super::socks;
use super::wire::{NOT_HTTP, TLS_HANDSHAKE};
use crate::policy::Refusal;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

/// Whether the first byte belongs to another protocol.
#[inline]
pub fn is_other_protocol(input: &[u8]) -> bool {
    matches!(input, [SOCKS4 | SOCKS5 | TLS_HANDSHAKE, ..])
}

/// Whether the input begins with a complete line of SSH or SMTP. Any other line is answered as a malformed request.
pub fn is_no_request(input: &[u8]) -> bool {
    let start = &input[..input.len().min(LONGEST_GREETING)];
    let line = start.iter().position(|&byte| byte == b'\n').map(|end| &start[..end]);
    line.is_some_and(|line| line.starts_with(b"SSH-") || line.starts_with(b"EHLO ") || line.starts_with(b"HELO "))
}

/// Serves the connection to its end.
pub async fn serve(proxy: &Arc<Proxy>, mut connection: Box<Connection>) {
    let began = Instant::now();
    let inside = connection.peer.tunnel.as_ref().map(|tunnel| tunnel.authority.to_string());
    // The reason, and an answer that this kind of client understands.
    let (what, answer) = match connection.input.bytes() {
        [SOCKS5, ..] if inside.is_none() => return socks::serve(proxy, connection).await,
        [SOCKS5, ..] => ("SOCKS inside a CONNECT is not served", SOCKS5_NO),
        [SOCKS4, ..] => ("SOCKS4 is not served: have the client use SOCKS5 (socks5h://) or HTTP", SOCKS4_NO),
        [first, ..] if *first != TLS_HANDSHAKE => (NOT_HTTP, &[][..]),
        _ => (
            "TLS on a listener without `tls`: write http:// in the client's proxy URL, or configure `tls` for the listener",
            ALERT,
        ),
    };
    // No answer has a body.
    let (unread, refused) = (Unread { is_head: true, accept: None, url: inside }, Refusal::bad_request(what));
    conclude_unread(proxy, &unread, Outcome::Refused(refused), &connection.peer, began);
    let at = began + proxy.settings.load().limits.header_timeout;
    let Connection { wire, timer, .. } = &mut *connection;
    if let Some(Ok(())) = timer.limit(at, wire.write_all(answer)).await {
        connection.linger(proxy).await;
    }
}

/// Maximum length of an SSH identification line in bytes (RFC 4253 §4.2).
const LONGEST_GREETING: usize = 255;
const SOCKS4: u8 = 4;
const SOCKS5: u8 = 5;
/// SOCKS5 reply: no acceptable method.
const SOCKS5_NO: &[u8] = &[5, 0xff];
/// SOCKS4 reply: request rejected or failed.
const SOCKS4_NO: &[u8] = &[0, 91, 0, 0, 0, 0, 0, 0];
/// A fatal alert, handshake_failure (RFC 8446 §6).
const ALERT: &[u8] = &[0x15, 3, 1, 0, 2, 2, 40];
