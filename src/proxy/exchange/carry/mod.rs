//! The two sides of an exchange, in either HTTP version. Content passes in pieces; each side frames it for its
//! version.

mod answer;
mod client;
mod flow;
mod http1;
mod http1_client;
mod http2;
mod http2_client;
mod http2_io;
mod local_body;
#[cfg(test)]
mod narrow;
mod origin;
mod proxy_status;
mod receive_queue;
mod replay;
mod side;
mod trailers;

pub use answer::{Added, AnswerHead, KeptHead};
pub use client::Client;
pub use flow::{Flow, FlowError};
pub use http1::{Http1, Sending};
pub use http1_client::Http1Client;
pub use http2::Http2;
pub use http2_client::Http2Client;
pub use local_body::LocalBody;
pub use origin::{Http1Origin, Http2Origin, Origin};
pub use replay::Replay;
pub use side::{BodySource, Side, SideError};

use std::time::Duration;

/// What follows an answer's head.
pub enum AfterHead {
    /// An interim head was forwarded; another head follows.
    Interim,
    /// The body follows.
    Body,
    /// Another protocol follows.
    Switched,
    /// The stored answer is confirmed; this head is not forwarded.
    Confirmed,
}

/// Body bytes received.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moved {
    /// From the client.
    pub up: u64,
    /// From the origin.
    pub down: u64,
}

/// How long to drain the rest of a request that was answered early: many clients read nothing before they have sent the whole request.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
