//! Runs a table of attacks and reports those that came through, by name.

use crate::support::{Client, Origin, Proxy, Response, within};

/// The attacks of one table.
#[derive(Default)]
pub struct Siege {
    tried: usize,
    fallen: Vec<String>,
}

impl Siege {
    /// Records one attack. `wrong`: the fault of its result, if any.
    pub fn tried(&mut self, name: impl Into<String>, wrong: Option<String>) {
        self.tried += 1;
        if let Some(wrong) = wrong {
            self.fallen.push(format!("{}: {wrong}", name.into()));
        }
    }

    /// At least this many were tried, and none came through.
    pub fn withstood(self, at_least: usize) {
        assert!(self.tried >= at_least, "only {} attempts", self.tried);
        let (tried, fallen) = (self.tried, self.fallen);
        assert!(fallen.is_empty(), "{} of {tried} came through:\n{}", fallen.len(), fallen.join("\n"));
    }
}

/// How a request gets to the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Absolute-form on the proxy's own port.
    Plain,
    /// Plain HTTP inside CONNECT.
    Tunnel,
    /// TLS inside CONNECT.
    Tls,
}

pub const WAYS: [Way; 3] = [Way::Plain, Way::Tunnel, Way::Tls];

impl Way {
    /// A connection on which requests to `a.localhost` at this origin can be sent.
    pub async fn open(self, proxy: &Proxy, origin: &Origin) -> Client {
        match self {
            Self::Plain => proxy.client().await,
            Self::Tunnel => Client::connect(proxy.address(), &origin.authority("a.localhost")).await,
            Self::Tls => proxy.tls(origin, "a.localhost", &[b"http/1.1"]).await,
        }
    }

    /// The request target for this path.
    pub fn target(self, origin: &Origin, path: &str) -> String {
        match self {
            Self::Plain => origin.url(path),
            Self::Tunnel | Self::Tls => path.to_owned(),
        }
    }
}

/// Bytes sent on a connection, and all that comes back for them as far as one answer goes. `None`: it was closed.
pub async fn shoot(client: &mut Client, bytes: impl AsRef<[u8]>) -> Option<Response> {
    client.try_send(bytes).await.ok();
    let head = client.try_head().await?;
    let mut body = Default::default();
    client.read_body(&head, "GET", &mut body).await;
    Some(Response { head, body: body.kept, trailers: body.trailers })
}

/// What is wrong unless the answer has one of these statuses and is the proxy's own. The end of the connection is a
/// refusal too.
pub fn refused(answer: Option<&Response>, statuses: &[u16]) -> Option<String> {
    let answer = answer?;
    if !statuses.contains(&answer.status()) {
        return Some(format!("status {}: {}", answer.status(), answer.text()));
    }
    (!answer.head.names_the_proxy()).then(|| format!("not the proxy's own answer: {:?}", answer.head))
}

/// All that comes until the peer closes; fails if it keeps the connection open.
pub async fn rest(client: &mut Client) -> Vec<u8> {
    within("the proxy to close", client.rest()).await
}
