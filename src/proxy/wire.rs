//! Heads and octets that we write ourselves. Called by `respond`, `upgrade` and `origin_head`.

use bytes::{BufMut, BytesMut};
use pingora::http::ResponseHeader;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// Writes all of it, as long as something is taken now and then.
pub(super) async fn send(client: &mut (impl AsyncWrite + Unpin), octets: &[u8], wait: Duration) -> io::Result<()> {
    let sent = async {
        client.write_all(octets).await?;
        client.flush().await
    };
    timeout(wait, sent).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// The head of an answer of HTTP/1.1.
pub(super) fn to_wire(head: &ResponseHeader) -> BytesMut {
    let mut out = BytesMut::with_capacity(512);
    let reason = head.status.canonical_reason().unwrap_or_default();
    out.put_slice(format!("HTTP/1.1 {} {reason}\r\n", head.status.as_u16()).as_bytes());
    head.header_to_h1_wire(&mut out);
    out.put_slice(b"\r\n");
    out
}
