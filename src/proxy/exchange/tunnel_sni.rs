//! Checks that the TLS handshake in a tunnel names the tunnel's host, so that no traffic to other sites at the same
//! address passes unread.

use super::carry::{FlowError, SideError};
use crate::policy::{Authority, Host, Refusal};
use crate::tls::HelloReader;

/// Checks a ClientHello as it passes. No bytes are held back for it: in other protocols the server speaks first.
pub(super) struct SniCheck<'a> {
    host: &'a Host,
    /// The reader of the ClientHello; `None` once no ClientHello can follow.
    hello: Option<HelloReader>,
    /// The name in the ClientHello, if it is not the host.
    pub(super) other_name: Option<String>,
}

impl<'a> SniCheck<'a> {
    /// Creates the check, which accepts everything if the host is an IP address.
    pub(super) fn new(host: &'a Host) -> Self {
        SniCheck { host, hello: host.name().map(|_| HelloReader::default()), other_name: None }
    }

    /// Checks the client's next bytes.
    ///
    /// # Errors
    /// The bytes complete a ClientHello with another name, and must not be forwarded.
    pub(super) fn check(&mut self, bytes: &[u8]) -> Result<(), FlowError> {
        let Some(names) = self.hello.as_mut().and_then(|hello| hello.read(bytes)) else { return Ok(()) };
        self.hello = None;
        let is_host = |name: &[u8]| str::from_utf8(name).is_ok_and(|name| Host::parse(name).as_ref() == Ok(self.host));
        self.other_name = match names {
            Ok(names) => names.iter().find(|name| !is_host(name)).map(|name| String::from_utf8_lossy(name).into()),
            Err(_) => Some("an unreadable name".to_owned()),
        };
        if self.other_name.is_some() { Err(FlowError::Source(SideError::Ended)) } else { Ok(()) }
    }
}

/// The refusal of a TLS handshake that does not name the host of the CONNECT.
pub(super) fn name_mismatch(connected: &Authority, name: &str) -> Refusal {
    Refusal::AuthorityMismatch {
        connection: connected.to_string().into(),
        request: format!("{name} (the name in the TLS handshake)").into(),
    }
}
