//! The two sides of an exchange, in either version of HTTP. HTTP/1 on both sides is handed on as it is framed; between the versions
//! content goes in pieces.

mod answer;
mod client;
mod flow;
mod http1;
mod http1_client;
mod http2;
mod http2_client;
mod http2_io;
mod origin;
mod side;

pub use answer::{Added, AnswerHead};
pub use client::Client;
pub use flow::{Flow, Stopped};
pub use http1::{Http1, Sending};
pub use http1_client::Http1Client;
pub use http2::Http2;
pub use http2_client::Http2Client;
pub use origin::{Http1Origin, Http2Origin, Origin};
pub use side::{Fault, Side};

use std::time::Duration;

/// What is to be done about a head of an answer.
pub enum Next {
    /// It was passed on, another follows.
    Interim,
    /// Its body follows. `raw`: with its framing.
    Body { raw: bool },
    /// Another protocol follows.
    Switched,
}

/// Bytes of bodies that have come, with what framing is left as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moved {
    /// From the client.
    pub up: u64,
    /// From the origin.
    pub down: u64,
}

/// What is left of a request that has its answer is passed over for so long: many a client reads nothing before it has sent all.
pub const UNWANTED: Duration = Duration::from_secs(30);
