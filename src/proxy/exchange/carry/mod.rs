//! The two sides of an exchange, in either version of HTTP. Content goes from one to the other in pieces as it comes; each side
//! frames it as its version has it.

mod ahead;
mod answer;
mod client;
mod flow;
mod http1;
mod http1_client;
mod http2;
mod http2_client;
mod http2_io;
mod origin;
mod own_body;
mod proxy_status;
mod side;

pub use answer::{Added, AnswerHead, KeptHead};
pub use client::Client;
pub use flow::{Flow, Stopped};
pub use http1::{Http1, Sending};
pub use http1_client::Http1Client;
pub use http2::Http2;
pub use http2_client::Http2Client;
pub use origin::{Http1Origin, Http2Origin, Origin};
pub use own_body::OwnBody;
pub use side::{BodySource, Fault, Side};

use std::time::Duration;

/// What is to be done about a head of an answer.
pub enum Next {
    /// It was passed on, another follows.
    Interim,
    /// Its body follows.
    Body,
    /// Another protocol follows.
    Switched,
    /// It confirms what is stored, and is not passed on.
    Confirmed,
}

/// Bytes of bodies that have come.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moved {
    /// From the client.
    pub up: u64,
    /// From the origin.
    pub down: u64,
}

/// What is left of a request that has its answer is passed over for so long: many a client reads nothing before it has sent all.
pub const UNWANTED: Duration = Duration::from_secs(30);
