//! Connections that do not begin with an HTTP/1 request: SOCKS5 is served; other protocols are answered at once, in their own form, and
//! logged in one line, instead of waiting for an answer that never comes.

use super::super::Proxy;
use super::connection::Connection;
use super::socks;
use super::wire::TLS_HANDSHAKE;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

/// Another protocol, known by how it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    Socks4,
    Socks5,
    Tls,
}

impl Foreign {
    #[inline]
    pub fn of(input: &[u8]) -> Option<Self> {
        match input {
            [4, ..] => Some(Self::Socks4),
            [5, ..] => Some(Self::Socks5),
            [TLS_HANDSHAKE, ..] => Some(Self::Tls),
            _ => None,
        }
    }

    /// What to do about it, and what a client of this kind understands.
    fn rejection(self) -> (&'static str, &'static [u8]) {
        match self {
            Self::Socks5 => ("SOCKS inside a CONNECT is not served", SOCKS5_NO),
            Self::Socks4 => ("SOCKS4 is not served: have the client use SOCKS5 (socks5h://) or HTTP", SOCKS4_NO),
            Self::Tls => (
                "TLS on a listener without `tls`: write http:// in the client's proxy URL, or configure `tls` for the listener",
                ALERT,
            ),
        }
    }
}

/// To the end of the connection.
pub async fn serve(proxy: &Arc<Proxy>, mut connection: Connection, foreign: Foreign) {
    if foreign == Foreign::Socks5 && connection.peer.tunnel.is_none() {
        return socks::serve(proxy, connection).await;
    }
    let (what, answer) = foreign.rejection();
    tracing::info!(client = %connection.peer.address, "{what}");
    let at = Instant::now() + proxy.settings.load().limits.header_timeout;
    let Connection { wire, timer, .. } = &mut connection;
    if let Some(Ok(())) = timer.limit(at, wire.write_all(answer)).await {
        connection.linger(proxy).await;
    }
}

/// No method is acceptable.
const SOCKS5_NO: &[u8] = &[5, 0xff];
/// "Request rejected or failed".
const SOCKS4_NO: &[u8] = &[0, 91, 0, 0, 0, 0, 0, 0];
/// A fatal alert, handshake_failure (RFC 8446 §6).
const ALERT: &[u8] = &[0x15, 3, 1, 0, 2, 2, 40];
