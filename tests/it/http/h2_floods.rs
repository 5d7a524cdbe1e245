//! Frames of HTTP/2 that move nothing, without end (RFC 9113 §10.5): whoever sends them loses the connection.

use crate::support::h2_client::request;
use crate::support::{Client, H2Client, Origin, Proxy, test_ca, within};
use bytes::Bytes;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

type Stream = tokio_rustls::server::TlsStream<tokio::net::TcpStream>;

const LIMITS: &str = "hosts: { '*': { robots: ignore } }\nlimits: { idle_timeout: 120s, read_timeout: 120s }";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status: 200`, of HPACK's static table.
const OK: &[u8] = &[0x88];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Reads one frame: its head and its payload.
async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> Option<([u8; 9], Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut payload).await.ok()?;
    Some((head, payload))
}

/// An origin over TLS: what it does with its only connection.
async fn origin<F: Future<Output = ()> + Send + 'static>(serve: impl FnOnce(Stream) -> F + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = tokio_rustls::TlsAcceptor::from(test_ca().server_config(&["a.localhost"], &[b"h2"]));
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(mut stream) = acceptor.accept(stream).await else { return };
        stream.read_exact(&mut [0; 24]).await.unwrap();
        let settings = [frame(SETTINGS, 0, 0, b""), frame(SETTINGS, 1, 0, b"")].concat();
        stream.write_all(&settings).await.unwrap();
        serve(stream).await;
    });
    port
}

async fn client(proxy: &Proxy, port: u16) -> H2Client {
    let client = Client::connect(proxy.address(), &format!("a.localhost:{port}")).await;
    H2Client::over(client.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await).await
}

/// Some MiB of it, or until the other end closes; then waits for that.
async fn flood(stream: impl AsyncRead + AsyncWrite, piece: &[u8]) {
    let (mut read, mut write) = tokio::io::split(stream);
    let batch = piece.repeat((64 << 10) / piece.len());
    let sends = async {
        for _ in 0..64 {
            if write.write_all(&batch).await.is_err() || write.flush().await.is_err() {
                return;
            }
        }
        std::future::pending::<()>().await;
    };
    let reads = async { while let Ok(1..) = read.read(&mut [0; 16 << 10]).await {} };
    tokio::select! { () = sends => {} () = reads => {} }
}

/// Whether the flood ended well before `idle_timeout`.
async fn ends(name: &'static str, flood: impl Future<Output = ()>) -> (&'static str, bool) {
    (name, tokio::time::timeout(Duration::from_secs(40), flood).await.is_ok())
}

async fn all_end(mut floods: JoinSet<(&'static str, bool)>, count: usize) {
    let mut names = Vec::new();
    while let Some(ended) = floods.join_next().await {
        let (name, is_closed) = ended.unwrap();
        assert!(is_closed, "{name}: still open");
        names.push(name);
    }
    assert_eq!(names.len(), count);
}

fn ways() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("windows", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("settings", frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff])),
        ("pings", frame(6, 0, 0, b"01234567")),
        ("answers to no ping", frame(6, 1, 0, b"01234567")),
        ("priorities", frame(2, 0, 1, &[0, 0, 0, 3, 16])),
        ("unknown frames", frame(0xbe, 0, 0, &[0; 5])),
        ("unknown frames of 1 KiB", frame(0xbe, 0, 0, &[0; 1 << 10])),
    ]
}

/// On an idle pooled connection, and beside an answer that never ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flooding_origin_loses_its_connection() {
    let proxy = Proxy::start(LIMITS).await;
    let on_stream = vec![
        ("interim answers", frame(HEADERS, END_HEADERS, 1, &[0x08, 3, b'1', b'0', b'3'])),
        ("empty data", frame(DATA, 0, 1, b"")),
        ("padded data of nothing", frame(DATA, 8, 1, &[3, 0, 0, 0])),
    ];
    let (mut floods, mut asked) = (JoinSet::new(), Vec::new());
    for (is_open, (name, piece)) in [false, true]
        .into_iter()
        .flat_map(|is_open| ways().into_iter().map(move |way| (is_open, way)))
        .chain(on_stream.into_iter().map(|way| (true, way)))
    {
        let (tell, told) = oneshot::channel();
        let port = origin(move |mut stream| async move {
            while let Some((head, _)) = read_frame(&mut stream).await {
                if head[3] == HEADERS {
                    let end = if is_open { 0 } else { END_STREAM };
                    if name != "interim answers" {
                        stream.write_all(&frame(HEADERS, END_HEADERS | end, 1, OK)).await.unwrap();
                    }
                    break;
                }
            }
            tell.send(ends(name, flood(stream, &piece)).await).ok();
        })
        .await;
        floods.spawn(async move { told.await.expect("it was asked") });
        let h2 = client(&proxy, port).await;
        asked.push(h2.send(request("GET", &format!("https://a.localhost:{port}/x")), true).await);
    }
    all_end(floods, 17).await;
}

/// The client leaves during a download, and the origin sends on after our reset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_sending_on_after_a_reset_loses_its_connection() {
    let proxy = Proxy::start(LIMITS).await;
    let (tell, told) = oneshot::channel();
    let port = origin(move |mut stream| async move {
        while let Some((head, _)) = read_frame(&mut stream).await {
            match head[3] {
                HEADERS => stream.write_all(&frame(HEADERS, END_HEADERS, 1, OK)).await.unwrap(),
                3 => break,
                _ => {}
            }
        }
        let data = frame(DATA, 0, 1, &[0; 16 << 10]);
        let (mut read, mut write) = tokio::io::split(stream);
        let sends = async { while write.write_all(&data).await.is_ok() {} };
        let reads = async { while let Ok(1..) = read.read(&mut [0; 16 << 10]).await {} };
        let flood = async {
            tokio::select! { () = sends => {} () = reads => {} }
        };
        tell.send(ends("data", flood).await).ok();
    })
    .await;
    let h2 = client(&proxy, port).await;
    let download = h2.send(request("GET", &format!("https://a.localhost:{port}/x")), true).await.head().await;
    assert_eq!(download.status(), 200);
    drop(download);
    assert!(told.await.unwrap().1, "still open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flooding_client_loses_its_connection() {
    let proxy = Proxy::start(LIMITS).await;
    let mut floods = JoinSet::new();
    for (name, piece) in ways() {
        let mut client = proxy.client().await;
        client.send([&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, b"")].concat()).await;
        floods.spawn(ends(name, async move { flood(client.source.inner, &piece).await }));
    }
    all_end(floods, 7).await;
}

/// Go's server opened both windows after every few bytes of an upload.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_small_window_updates_of_an_origin_are_not_a_flood() {
    const LENGTH: usize = 2 << 20;
    let proxy = Proxy::start(LIMITS).await;
    let port = origin(|mut stream| async move {
        let mut come = 0;
        while let Some((head, payload)) = read_frame(&mut stream).await {
            let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let mut out = Vec::new();
            for piece in payload.chunks(32).filter(|_| head[3] == DATA) {
                let more = (piece.len() as u32).to_be_bytes();
                out.extend([frame(WINDOW_UPDATE, 0, 0, &more), frame(WINDOW_UPDATE, 0, id, &more)].concat());
                come += piece.len();
            }
            if (head[3], head[4] & 1) == (6, 0) {
                out = frame(6, 1, 0, &payload);
            }
            if come == LENGTH && head[3] == DATA {
                out.extend(frame(HEADERS, END_HEADERS | END_STREAM, id, OK));
            }
            if stream.write_all(&out).await.is_err() {
                return;
            }
        }
    })
    .await;
    let h2 = client(&proxy, port).await;
    let sent = h2.exchange(request("POST", &format!("https://a.localhost:{port}/x")), &[b'x'; LENGTH]);
    assert_eq!(within("the answer", sent).await.unwrap().status(), 200);
}

/// Content in pieces of 8 bytes, as much of it as a window of 256 KiB takes.
fn crumbs(stream: u32) -> Vec<u8> {
    frame(DATA, 0, stream, b"crumbs. ").repeat((256 << 10) / 8)
}

/// A client whose answers may not begin to come, which is the slowest of readers.
async fn stalled(proxy: &Proxy, port: u16) -> h2::client::SendRequest<Bytes> {
    let client = Client::connect(proxy.address(), &format!("a.localhost:{port}")).await;
    let client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await;
    let (send, connection) =
        h2::client::Builder::new().initial_window_size(0).handshake(client.source.inner).await.unwrap();
    tokio::spawn(connection);
    send
}

/// The window bounds the data held for a stalled reader, even in frames of 8 bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_stopping_amid_small_frames_do_not_cut_other_answers() {
    const READERS: usize = 6;
    for is_page in [false, true] {
        let rules = "hosts: { '*': { robots: ignore } }\npace: { max_concurrent: 50 }\nlimits: { read_timeout: 120s }";
        let purpose = if is_page { "\nidentity: { purpose: [ai-input] }" } else { "" };
        let proxy = Proxy::start(&format!("{rules}{purpose}")).await;
        let port = origin(move |mut stream| async move {
            let (mut seen, mut first) = (0, 0);
            while let Some((head, payload)) = read_frame(&mut stream).await {
                let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                let mut out = match (head[3], head[4]) {
                    // `content-type: text/html`
                    (HEADERS, _) if is_page => {
                        frame(HEADERS, END_HEADERS, id, &[OK, b"\x0f\x10\x09text/html"].concat())
                    }
                    (HEADERS, _) => frame(HEADERS, END_HEADERS, id, OK),
                    (6, 0) => frame(6, 1, 0, &payload),
                    _ => continue,
                };
                if head[3] == HEADERS {
                    seen += 1;
                    first = if seen == 1 { id } else { first };
                    out.extend(if seen > 1 { crumbs(id) } else { Vec::new() });
                    out.extend(if seen > READERS { frame(DATA, END_STREAM, first, b"whole") } else { Vec::new() });
                }
                if stream.write_all(&out).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
        })
        .await;
        let reader = client(&proxy, port).await;
        let url = format!("https://a.localhost:{port}/x");
        let whole = reader.send(request("GET", &url), true).await;
        let mut send = stalled(&proxy, port).await;
        let mut waiting = Vec::new();
        for _ in 0..READERS {
            send = send.ready().await.unwrap();
            waiting.push(send.send_request(request("GET", &url), true).unwrap());
        }
        assert_eq!(whole.response().await.unwrap().text(), "whole");
    }
}

/// Uploads of a client wait for their slots, and then for an origin that does not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_uploads_in_small_frames_do_not_cut_other_streams() {
    for delay in ["0s", "100s"] {
        let rules = format!("hosts: {{ 'a.localhost': {{ robots: ignore, crawl_delay: {delay} }} }}");
        let proxy = Proxy::start(&format!("{rules}\npace: {{ max_wait: 200s, max_concurrent: 50 }}")).await;
        let port = origin(|mut stream| async move { while read_frame(&mut stream).await.is_some() {} }).await;
        let site = Origin::site("").await;
        let h2 = H2Client::known(proxy.client().await).await;
        let mut uploads = Vec::new();
        for _ in 0..6 {
            let mut upload = h2.send(request("POST", &format!("https://a.localhost:{port}/x")), false).await;
            for _ in 0..(64 << 10) / 8 {
                upload.queue(b"crumbs. ");
            }
            uploads.push(upload);
        }
        for _ in 0..3 {
            assert_eq!(h2.get(&site.url_at("b.localhost", "/x")).await.status(), 200, "{delay}");
        }
    }
}
