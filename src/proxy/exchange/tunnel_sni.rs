//! The client side of a tunnel, whose TLS handshake must name the tunnel's host: other sites at the same address may
//! not pass unread.

use super::carry::{BodySource, Side, SideError};
use crate::policy::{Authority, Host, Refusal};
use crate::tls::HelloReader;
use bytes::Bytes;
use http::HeaderMap;
use std::task::{Context, Poll, ready};

/// A client whose ClientHello is checked as it passes. Nothing waits for it: in other protocols the server speaks
/// first.
pub(super) struct SniCheckedClient<'a, S> {
    side: &'a mut S,
    host: &'a Host,
    /// Set while a ClientHello may come.
    hello: Option<HelloReader>,
    /// The name in the ClientHello if it is not the host. The ClientHello is not forwarded.
    pub(super) other_name: Option<String>,
}

impl<'a, S: Side> SniCheckedClient<'a, S> {
    /// Checks nothing if the host is an IP address.
    pub(super) fn new(side: &'a mut S, host: &'a Host) -> Self {
        SniCheckedClient { side, host, hello: host.name().map(|_| HelloReader::default()), other_name: None }
    }

    fn check_hello(&mut self) {
        let Some(names) = self.hello.as_mut().and_then(|hello| hello.read(self.side.bytes())) else { return };
        self.hello = None;
        let is_host = |name: &[u8]| str::from_utf8(name).is_ok_and(|name| Host::parse(name).as_ref() == Ok(self.host));
        self.other_name = match names {
            Ok(names) => names.iter().find(|name| !is_host(name)).map(|name| String::from_utf8_lossy(name).into()),
            Err(_) => Some("an unreadable name".to_owned()),
        };
    }
}

impl<S: Side> BodySource for SniCheckedClient<'_, S> {
    fn bytes(&self) -> &[u8] {
        if self.other_name.is_some() { &[] } else { self.side.bytes() }
    }

    fn consume(&mut self, n: usize) {
        self.side.consume(n);
    }

    fn take(&mut self, n: usize) -> Bytes {
        self.side.take(n)
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, SideError>> {
        let is_more = ready!(self.side.poll_more(cx))?;
        if is_more {
            self.check_hello();
        }
        if self.other_name.is_some() { Poll::Ready(Err(SideError::Ended)) } else { Poll::Ready(Ok(is_more)) }
    }

    fn has_ended(&self) -> bool {
        self.side.has_ended()
    }

    fn is_complete(&self) -> bool {
        self.side.is_complete()
    }

    fn gather(&mut self, cx: &mut Context<'_>) {
        self.side.gather(cx);
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.side.trailers()
    }
}

impl<S: Side> Side for SniCheckedClient<'_, S> {
    fn drop_replay(&mut self) {
        self.side.drop_replay();
    }

    fn poll_send<F: BodySource>(&mut self, cx: &mut Context<'_>, from: &mut F) -> Poll<Result<(), SideError>> {
        self.side.poll_send(cx, from)
    }

    fn end(&mut self, trailers: Option<HeaderMap>) {
        self.side.end(trailers);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SideError>> {
        self.side.poll_flush(cx)
    }
}

/// The refusal of a TLS handshake that does not name the host of the CONNECT.
pub(super) fn name_mismatch(connected: &Authority, name: &str) -> Refusal {
    Refusal::AuthorityMismatch {
        connection: connected.to_string().into(),
        request: format!("{name} (the name in the TLS handshake)").into(),
    }
}
