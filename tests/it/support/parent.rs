//! An upstream proxy for the proxy: resolves every name to loopback, logs requests, and misbehaves on request.

use super::authority::test_ca;
use super::message::{Head, Source, lossy};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How it treats requests.
#[derive(Clone, Debug)]
pub enum Conduct {
    /// Like a correct proxy.
    Serve,
    /// Like a correct proxy, but only for clients with this `user:password`.
    Ask(&'static str),
    /// Sends these bytes and closes.
    Say(&'static str),
    /// Sends nothing.
    Hang,
}

/// A running upstream proxy; dropping it ends it.
pub struct Parent {
    address: SocketAddr,
    tls: bool,
    asked: Arc<Mutex<Vec<Head>>>,
    connections: Arc<Mutex<usize>>,
    accepting: JoinHandle<()>,
}

impl Parent {
    pub async fn start(conduct: Conduct) -> Self {
        Self::listen(conduct, false).await
    }

    /// Starts one with TLS, as `localhost`.
    pub async fn start_tls(conduct: Conduct) -> Self {
        Self::listen(conduct, true).await
    }

    async fn listen(conduct: Conduct, tls: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free loopback port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let acceptor = tokio_rustls::TlsAcceptor::from(test_ca().server_config(&["localhost"], &[]));
        let (asked, connections) = (Arc::<Mutex<Vec<Head>>>::default(), Arc::<Mutex<usize>>::default());
        let (log, count) = (asked.clone(), connections.clone());
        let accepting = tokio::spawn(async move {
            let mut tasks = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                *count.lock().unwrap() += 1;
                let (log, conduct, acceptor) = (log.clone(), conduct.clone(), acceptor.clone());
                tasks.spawn(async move {
                    if !tls {
                        serve(stream, &conduct, &log).await;
                    } else if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, &conduct, &log).await;
                    }
                });
            }
        });
        Self { address, tls, asked, connections, accepting }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The URL for `egress.upstream_proxy`, with `user` before the host (`alice:secret@`, or nothing).
    pub fn url(&self, user: &str) -> String {
        format!("{}://{user}localhost:{}", if self.tls { "https" } else { "http" }, self.port())
    }

    /// The requests received: start line and fields.
    pub fn asked(&self) -> Vec<Head> {
        self.asked.lock().unwrap().clone()
    }

    /// The start lines of the requests received.
    pub fn lines(&self) -> Vec<String> {
        self.asked().iter().map(|head| lossy(&head.start_line)).collect()
    }

    pub fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, conduct: &Conduct, log: &Mutex<Vec<Head>>) {
    let mut client = Source::new(stream);
    while let Some(bytes) = client.until(b"\r\n\r\n").await {
        let head = Head::parse(&bytes);
        log.lock().unwrap().push(head.clone());
        let refused = match conduct {
            Conduct::Serve => None,
            Conduct::Ask(user) if head.field("proxy-authorization") == Some(&basic(user)) => None,
            Conduct::Ask(_) => {
                Some("HTTP/1.1 407 Who are you\r\nProxy-Authenticate: Basic realm=\"p\"\r\nContent-Length: 0\r\n\r\n")
            }
            Conduct::Say(bytes) => Some(*bytes),
            Conduct::Hang => {
                while client.fill().await {}
                return;
            }
        };
        if let Some(refused) = refused {
            client.inner.write_all(refused.as_bytes()).await.ok();
            client.inner.shutdown().await.ok();
            return;
        }
        let line = lossy(&head.start_line);
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if method == "CONNECT" {
            return tunnel(client, target).await;
        }
        if !pass(&mut client, &head, method, target).await {
            return;
        }
    }
}

async fn tunnel<S: AsyncRead + AsyncWrite + Unpin>(mut client: Source<S>, target: &str) {
    let Ok(mut origin) = dial(target).await else {
        client.inner.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").await.ok();
        return;
    };
    client.inner.write_all(b"HTTP/1.1 200 OK\r\nX-Parent: yes\r\n\r\n").await.ok();
    client.inner.flush().await.ok();
    origin.write_all(&client.ahead).await.ok();
    tokio::io::copy_bidirectional(&mut client.inner, &mut origin).await.ok();
}

/// Forwards one request without a body, and its answer with a length. False: the connection cannot continue.
async fn pass<S: AsyncRead + AsyncWrite + Unpin>(
    client: &mut Source<S>,
    head: &Head,
    method: &str,
    target: &str,
) -> bool {
    let rest = target.strip_prefix("http://").unwrap_or_else(|| panic!("not absolute-form: {target}"));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if path.is_empty() { "*" } else { path };
    let Ok(origin) = dial(authority).await else {
        client.inner.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").await.ok();
        return true;
    };
    let mut origin = Source::new(origin);
    let mut request = format!("{method} {path} HTTP/1.1\r\n");
    for (name, value) in head.fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("proxy-authorization")) {
        request += &format!("{name}: {value}\r\n");
    }
    origin.inner.write_all((request + "X-Parent: yes\r\n\r\n").as_bytes()).await.ok();
    let Some(answer) = origin.until(b"\r\n\r\n").await else { return false };
    let framing = Head::parse(&answer).framing(method);
    let mut all = answer;
    tokio::time::timeout(Duration::from_secs(20), origin.body(framing, |piece| all.extend_from_slice(piece)))
        .await
        .ok();
    client.inner.write_all(&all).await.is_ok() && client.inner.flush().await.is_ok()
}

async fn dial(authority: &str) -> std::io::Result<TcpStream> {
    let port = authority.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(80);
    TcpStream::connect(("127.0.0.1", port)).await
}

fn basic(user: &str) -> String {
    use base64::Engine;
    format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(user))
}
