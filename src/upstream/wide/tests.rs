//! Origins that reject rustls, OpenSSL or both: how often and at which addresses they are tried. And origins that never stop sending.

use super::{ThreadWait, WideTls};
use crate::fair_places::Taker;
use crate::policy::pace::ClientId;
use crate::policy::{Authority, Scheme};
use crate::upstream::endpoint::{Endpoint, Idle};
use crate::upstream::stream::Stream;
use crate::upstream::tests::upstream;
use crate::upstream::{DialError, DialFault, KNOWN_ROUTES, Upstream, Want};
use openssl::pkey::PKey;
use openssl::ssl::{SslAcceptor, SslMethod, SslStream};
use openssl::x509::X509;
use rustix::time::{ClockId, clock_gettime};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OnceCell;
use tokio::task::yield_now;
use tokio::time::{Instant, advance};

const HOST: &str = "many.example";
const LOOPBACK: &str = "egress: { allow: [127.0.0.0/8], ports: ['1-65535'] }";
/// A fatal alert, handshake_failure.
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];

/// One port at three addresses, and the number of connections to each. Each connection is sent `said` and closed.
async fn three(said: &'static [u8]) -> (u16, Arc<[AtomicUsize; 3]>) {
    let counts = Arc::<[AtomicUsize; 3]>::default();
    let listeners = loop {
        let first = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        if let Ok(second) = TcpListener::bind(("127.0.0.3", port)).await
            && let Ok(third) = TcpListener::bind(("127.0.0.4", port)).await
        {
            break [first, second, third];
        }
    };
    let port = listeners[0].local_addr().unwrap().port();
    for (at, listener) in listeners.into_iter().enumerate() {
        let counts = counts.clone();
        tokio::spawn(async move {
            while let Ok((mut tcp, _)) = listener.accept().await {
                counts[at].fetch_add(1, Relaxed);
                hello(&mut tcp).await;
                let _ = tcp.write_all(said).await;
            }
        });
    }
    (port, counts)
}

/// Reads a whole ClientHello, as closing with unread data would reset the connection.
async fn hello(tcp: &mut TcpStream) {
    let mut head = [0; 5];
    tcp.read_exact(&mut head).await.unwrap();
    let mut rest = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    tcp.read_exact(&mut rest).await.unwrap();
}

async fn dial(upstream: &Upstream, port: u16) -> DialError {
    let authority = Authority::new(Scheme::Https, HOST, Some(port)).unwrap();
    upstream.reach_for(&authority, None, None, None).await.unwrap().connect(Want::default(), None).await.err().unwrap()
}

#[tokio::test]
async fn host_that_refused_rustls_and_openssl_is_next_asked_with_rustls_only() {
    for (said, first, second) in [(&ALERT[..], [2, 0, 0], [3, 0, 0]), (&[], [2, 2, 2], [3, 3, 3])] {
        let (port, counts) = three(said).await;
        let upstream = upstream(LOOPBACK);
        let addresses = [2, 3, 4].map(|last| IpAddr::from([127, 0, 0, last]));
        upstream.resolver.remember(HOST, &addresses);
        let came = || counts.each_ref().map(|count| count.load(Relaxed));
        let error = dial(&upstream, port).await;
        assert!(error.kind.is_of_tls(), "{error}");
        assert_eq!(came(), first, "{error}");
        assert_eq!(dial(&upstream, port).await, error);
        assert_eq!(came(), second, "{error}");
    }
}

/// Models a server whose TLS was upgraded.
#[tokio::test]
async fn rustls_is_tried_again_after_openssl_has_failed() {
    let (port, counts) = three(&ALERT).await;
    let upstream = upstream(LOOPBACK);
    upstream.resolver.remember(HOST, &[IpAddr::from([127, 0, 0, 2])]);
    let authority = Authority::new(Scheme::Https, HOST, Some(port)).unwrap();
    upstream.reach_for(&authority, None, None, None).await.unwrap().0.endpoint.tls.note_wide();
    for came in [1, 3, 4] {
        dial(&upstream, port).await;
        assert_eq!(counts[0].load(Relaxed), came);
    }
}

#[tokio::test(start_paused = true)]
async fn rustls_and_openssl_attempts_share_one_deadline() {
    // The blocked thread keeps the paused clock from advancing while the test only waits for bytes.
    let (hold, held) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || held.recv());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let upstream = upstream(&format!("{LOOPBACK}\nlimits: {{ connect_timeout: 4s }}"));
    upstream.resolver.remember(HOST, &[IpAddr::from([127, 0, 0, 1])]);
    let dialled = tokio::spawn(async move { dial(&upstream, port).await });
    let (mut usual, _) = listener.accept().await.unwrap();
    hello(&mut usual).await;
    advance(Duration::from_secs(3)).await;
    usual.write_all(&ALERT).await.unwrap();
    let (mut wide, _) = listener.accept().await.unwrap();
    hello(&mut wide).await;
    assert!(!dialled.is_finished());
    advance(Duration::from_secs(2)).await;
    for _ in 0..100 {
        yield_now().await;
    }
    assert!(dialled.is_finished(), "five seconds have passed; the deadline was four");
    assert_eq!(dialled.await.unwrap().kind, DialFault::TimedOut);
    drop(hold);
}

/// Connects to a TLS server with these groups. Returns our stream, the server's stream, and the server's CPU time.
async fn shaken(groups: &str) -> (Stream, SslStream<std::net::TcpStream>, Duration) {
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let mut acceptor = SslAcceptor::mozilla_modern_v5(SslMethod::tls_server()).unwrap();
    acceptor.set_certificate(&X509::from_der(made.cert.der()).unwrap()).unwrap();
    acceptor.set_private_key(&PKey::private_key_from_der(&made.signing_key.serialize_der()).unwrap()).unwrap();
    acceptor.set_groups_list(groups).unwrap();
    let acceptor = acceptor.build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let server = listener.accept().await.unwrap().0.into_std().unwrap();
    server.set_nonblocking(false).unwrap();
    let accepted = tokio::task::spawn_blocking(move || {
        let before = thread_time();
        let server = acceptor.accept(server).unwrap();
        (server, thread_time() - before)
    });
    let terms = Arc::new(WideTls {
        roots: made.cert.pem().into(),
        verify: false,
        pins: Vec::new(),
        identity: None,
        legacy: false,
        context: OnceCell::new(),
    });
    let authority = Authority::new(Scheme::Https, "a.example", None).unwrap();
    let stream = terms
        .connect(Stream::Tcp(tcp), authority.host(), false, Taker::of(ClientId(1)), &ThreadWait::default())
        .await
        .unwrap();
    let (server, computed) = accepted.await.unwrap();
    (stream, server, computed)
}

/// CPU time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Both sides compute equally long, but this runtime's only thread does none of the computing.
#[tokio::test]
async fn openssl_handshake_is_computed_on_other_threads() {
    let before = thread_time();
    let (_stream, _server, computed) = shaken("ffdhe4096").await;
    let here = thread_time() - before;
    assert!(here < computed / 4, "{here:?} here, {computed:?} by the server");
}

/// Connects to a TLS server, which then sends this many session tickets (RFC 8446 §4.6.1).
async fn ticketed(tickets: usize) -> Stream {
    unsafe extern "C" {
        fn SSL_new_session_ticket(ssl: *mut std::ffi::c_void) -> std::ffi::c_int;
    }
    let (stream, mut server, _) = shaken("X25519").await;
    for _ in 0..tickets {
        // SAFETY: a reference of this crate is the library's pointer, and nothing else uses the connection.
        unsafe { SSL_new_session_ticket(std::ptr::from_ref(server.ssl()).cast_mut().cast()) };
        server.do_handshake().unwrap();
    }
    // Leaked, so that the connection stays open.
    std::mem::forget(server);
    stream
}

/// The check whether a connection is idle must not read tickets without end.
#[tokio::test]
async fn connection_with_endless_tickets_is_not_reused() {
    for (tickets, is_kept) in [(0, true), (4, true), (300, false)] {
        let (endpoint, address) = (Endpoint::new(Arc::default()), "127.0.0.1:443".parse().unwrap());
        let stream = ticketed(tickets).await;
        endpoint.put(Idle { stream, address, since: Instant::now(), private: None });
        let taken = endpoint.take(Duration::from_secs(60), false, None, None).await;
        assert_eq!(taken.is_some(), is_kept, "{tickets}");
    }
}

#[tokio::test]
async fn number_of_remembered_hosts_is_bounded() {
    for (hosts, bound) in [(100_u32, 100), (100_000, KNOWN_ROUTES)] {
        let upstream = upstream(LOOPBACK);
        let mut endpoints = Vec::new();
        for host in 0..hosts {
            let [_, a, b, c] = host.to_be_bytes();
            let authority = Authority::new(Scheme::Https, &format!("127.{}.{b}.{c}", a + 1), None).unwrap();
            let endpoint = upstream.reach_for(&authority, None, None, None).await.unwrap().0.endpoint.clone();
            endpoint.tls.note_refusal(([127, 0, 0, 1], 443).into(), DialError::new(DialFault::Alert, "refused"));
            endpoints.push(Arc::downgrade(&endpoint));
        }
        let known = endpoints.iter().filter(|endpoint| endpoint.strong_count() > 0).count();
        assert!(known <= bound, "{known} of {hosts}");
        assert!(known >= bound / 2, "{known} of {hosts}");
    }
}
