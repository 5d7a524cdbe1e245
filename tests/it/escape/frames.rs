//! HTTP/2 frames as bytes (RFC 9113 §4.1), for what no client library would send. Header blocks are literals without
//! Huffman coding or indexing (RFC 7541 §6.2.2).

use crate::support::{Client, Origin, Proxy, test_ca};
use std::time::Duration;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("small").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            // RFC 7541 §5.1: an integer with a prefix of seven bits.
            match text.len() {
                length @ 0..127 => out.push(u8::try_from(length).expect("below 127")),
                length => {
                    out.push(127);
                    let mut left = length - 127;
                    while left >= 128 {
                        out.push(u8::try_from(left % 128).expect("below 128") | 128);
                        left /= 128;
                    }
                    out.push(u8::try_from(left).expect("below 128"));
                }
            }
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

/// The fields of a GET.
pub fn get<'a>(authority: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", "GET"), (":scheme", "https"), (":authority", authority), (":path", path)]
}

/// After preface and settings.
async fn begin(client: &mut Client) {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    client.send([&preface[..], &frame(SETTINGS, 0, 0, &[]), &frame(SETTINGS, 1, 0, &[])].concat()).await;
}

/// A connection straight to the origin.
pub async fn straight(origin: &Origin) -> Client {
    let client = Client::open(origin.address()).await;
    let mut client = client.tls("a.localhost", test_ca().pem_file(), &[b"h2"]).await;
    begin(&mut client).await;
    client
}

/// An intercepted connection on which h2 was agreed, after preface and settings.
pub async fn open(proxy: &Proxy, origin: &Origin) -> Client {
    let mut client = proxy.tls(origin, "a.localhost", &[b"h2"]).await;
    begin(&mut client).await;
    client
}

/// The peer's reaction to the frames sent on a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// A response's head came: its block, coded by the peer.
    Answered(Vec<u8>),
    Reset,
    /// GOAWAY, or the end of the connection.
    Closed,
    Nothing,
}

/// Reads frames until something happens to the stream.
pub async fn taken(client: &mut Client, stream: u32) -> Taken {
    let reading = async {
        loop {
            while client.source.ahead.len() < 9 {
                if !client.source.fill().await {
                    return Taken::Closed;
                }
            }
            let head = client.source.take(9);
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            while client.source.ahead.len() < length {
                if !client.source.fill().await {
                    return Taken::Closed;
                }
            }
            let payload = client.source.take(length);
            let at = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            match head[3] {
                HEADERS if at == stream => return Taken::Answered(payload),
                RST_STREAM if at == stream => return Taken::Reset,
                GOAWAY => return Taken::Closed,
                _ => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), reading).await.unwrap_or(Taken::Nothing)
}

/// Whether the answer's status is 200: index 8 of HPACK's static table, always first.
pub fn is_ok(taken: &Taken) -> bool {
    has_status(taken, 0x88)
}

/// Whether it is 400, index 12.
pub fn is_bad_request(taken: &Taken) -> bool {
    has_status(taken, 0x8c)
}

fn has_status(taken: &Taken, index: u8) -> bool {
    matches!(taken, Taken::Answered(block) if block.first() == Some(&index) || block.get(..2) == Some(&[0x20, index]))
}
