//! Bodies of robots.txt as they come, well-formed or not.

use super::{KEEP_OUT, Means, meaning, origin, site};
use crate::support::binary::politely;
use crate::support::reply::{Content, Delimit};
use crate::support::{Alpn, Binary, Client, Origin, Proxy, Reply, at_once, eventually, test_ca};
use std::io::Write;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn br(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    brotli::CompressorWriter::new(&mut out, 4096, 0, 22).write_all(bytes).expect("memory");
    out
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("memory")
}

/// Encoded, so many MiB of line ends after [`KEEP_OUT`].
fn bomb(mebibytes: usize) -> Vec<u8> {
    let mut bytes = KEEP_OUT.as_bytes().to_vec();
    bytes.resize(bytes.len() + (mebibytes << 20), b'\n');
    bytes.extend_from_slice(b"Disallow: /late\n");
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_txt_is_read_in_every_framing() {
    let proxy = Proxy::start("").await;
    let (length, text) = (KEEP_OUT.len(), KEEP_OUT);
    let replies = [
        ("length", Reply::text(text)),
        ("chunked", Reply::text(text).framed(Delimit::Chunked)),
        ("trailers", Reply::text(text).trailer("X-Sum", "1")),
        ("closed", Reply::text(text).framed(Delimit::Close)),
        ("HTTP/1.0", Reply::raw(format!("HTTP/1.0 200 OK\r\n\r\n{text}"))),
        ("no type", Reply::status(200).body(text)),
        ("no reason", Reply::raw(format!("HTTP/1.1 200 \r\nContent-Length: {length}\r\n\r\n{text}"))),
        ("small chunks", Reply::drip(&["User-agent", ": *\nDis", "allow: /private", "\n"], Duration::from_millis(20))),
        ("extension", {
            Reply::raw(format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{length:x};a=b\r\n{text}\r\n0\r\n\r\n"
            ))
        }),
        ("more than announced", {
            Reply::raw(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}Allow: /private\n"))
        }),
        ("BOM", Reply::text(format!("\u{feff}{text}"))),
        ("CR", Reply::text(text.replace('\n', "\r"))),
        ("600 fields", (0..600).fold(Reply::text(text), |reply, number| reply.field(format!("X-{number}"), "1"))),
        ("odd type", Reply::text(text).field("Content-Disposition", "attachment")),
    ];
    for (name, reply) in replies {
        let origin = origin(move |_| reply.clone()).await;
        assert_eq!(meaning(&proxy, &origin).await, Means::Rules, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn body_that_is_not_a_robots_txt_has_no_rules() {
    let proxy = Proxy::start("").await;
    for (name, body) in [
        ("empty", Vec::new()),
        ("HTML", b"<!DOCTYPE html><html><p>Disallow: /private</p></html>".to_vec()),
        ("noise", (0..=255).cycle().take(10_000).collect()),
    ] {
        let origin = origin(move |_| Reply::text(&body)).await;
        assert_eq!(meaning(&proxy, &origin).await, Means::AllowAll, "{name}");
    }
}

/// The encoding that Windows text editors call "Unicode".
fn utf16(bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    format!("\u{feff}{KEEP_OUT}").encode_utf16().flat_map(bytes).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn utf16_is_decoded() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let proxy = Proxy::start("").await;
    for (name, body) in [("LE", utf16(u16::to_le_bytes)), ("BE", utf16(u16::to_be_bytes))] {
        let file = directory.path().join(name);
        std::fs::write(&file, &body).expect("it is writable");
        let origin = origin(move |_| Reply::text(&body)).await;
        assert_eq!(meaning(&proxy, &origin).await, Means::Rules, "{name}");
        let shown = proxy.get(&origin.url("/robots.txt")).await;
        assert!(shown.text().ends_with(KEEP_OUT), "{name}: {}", shown.text());
        let linted = politely(&["lint", &file.to_string_lossy()]).await;
        assert!(linted.stdout.contains("UTF-16"), "{name}: {}", linted.stdout);
    }
}

/// Non-ASCII characters at the beginning do not hide the encoding; an unreadable file is not a file without rules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn utf16_and_utf32_files_are_decoded_or_disallow_everything() {
    let proxy = Proxy::start("").await;
    let encoded = |text: &str| {
        let two = |bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
        let four = |bytes: fn(u32) -> [u8; 4]| text.chars().flat_map(|char| bytes(char.into())).collect::<Vec<u8>>();
        [two(u16::to_le_bytes), two(u16::to_be_bytes), four(u32::to_le_bytes), four(u32::to_be_bytes)]
    };
    for begin in ["", "\u{feff}", "# \u{442}\u{435}\u{441}\u{442}\n", "\u{4e00}\u{4e00}\n", "\u{fc}\n", "\u{1f600}\n"] {
        for (number, body) in encoded(&format!("{begin}{KEEP_OUT}")).into_iter().enumerate() {
            let origin = origin(move |_| Reply::text(&body)).await;
            assert_eq!(meaning(&proxy, &origin).await, Means::Rules, "{begin:?} in encoding {number}");
        }
    }
    let [le, be, wide, _] = encoded(KEEP_OUT);
    let text = KEEP_OUT.as_bytes();
    // Models a file that a program with another encoding has appended to.
    for (name, body) in [
        ("text and UTF-16", [text, &le[..]].concat()),
        ("a byte and UTF-16", [b"\n", &le[..]].concat()),
        ("both orders", [&le[..], &be[..]].concat()),
        ("two lengths", [&le[..], &wide[..]].concat()),
        (
            "line ends of bytes",
            le.iter().flat_map(|byte| if *byte == b'\n' { vec![b'\r', b'\n'] } else { vec![*byte] }).collect(),
        ),
        ("a wrong mark", [b"\xfe\xff", &le[..]].concat()),
    ] {
        let origin = origin(move |_| Reply::text(&body)).await;
        assert_eq!(meaning(&proxy, &origin).await, Means::Unreachable, "{name}");
    }
}

/// HTML contains no rules, and the site's owner may not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn html_in_place_of_robots_txt_is_warned_of_once_per_host() {
    for kind in ["text/plain", "text/html; charset=utf-8"] {
        let page = "\n<!DOCTYPE html><html><title>Not here</title></html>";
        let origin = origin(move |_| Reply::text(page).field("Content-Type", kind)).await;
        let proxy = Binary::serve("robots: { min_ttl: 1s, max_ttl: 1s }").await;
        let get = async |host: &str| {
            let mut client = Client::open(proxy.address()).await;
            client.get(&origin.url_at(host, "/open"), &origin.authority(host)).await.status()
        };
        assert_eq!((get("a.localhost").await, get("b.localhost").await), (200, 200));
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert_eq!((get("a.localhost").await, get("b.localhost").await), (200, 200));
        eventually("the renewals", || origin.log.count("/robots.txt") == 4).await;
        let is_warning = |line: &&str| line.contains("WARN") && line.contains("HTML");
        eventually("the warnings", || proxy.output().lines().filter(is_warning).count() >= 2).await;
        for host in ["a.localhost", "b.localhost"] {
            let warned = proxy.output().lines().filter(is_warning).filter(|line| line.contains(host)).count();
            assert_eq!(warned, 1, "{kind} {host}: {}", proxy.output());
        }
        proxy.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_codings_are_decoded_in_order_and_unknown_ones_are_unreachable() {
    let proxy = Proxy::start("").await;
    let text = KEEP_OUT.as_bytes();
    for (coding, body, means) in [
        ("gzip", gzip(text), Means::Rules),
        ("x-GZIP", gzip(text), Means::Rules),
        ("br", br(text), Means::Rules),
        ("zstd", zstd(text), Means::Rules),
        ("identity", text.to_vec(), Means::Rules),
        ("", text.to_vec(), Means::Rules),
        ("br, gzip", gzip(&br(text)), Means::Rules),
        ("zstd, br, gzip", gzip(&br(&zstd(text))), Means::Rules),
        ("gzip", [gzip(&text[..10]), gzip(&text[10..])].concat(), Means::Rules),
        // A compressed file on the site's disk, sent without Content-Encoding.
        ("", gzip(&gzip(text)), Means::Rules),
        ("identity", gzip(text), Means::Rules),
        (" ,", gzip(text), Means::Rules),
        ("gzip", gzip(&gzip(text)), Means::Rules),
        ("gzip, br", gzip(&br(text)), Means::Unreachable),
        ("gzip", text.to_vec(), Means::Unreachable),
        ("gzip", gzip(text)[..20].to_vec(), Means::Unreachable),
        ("zstd", zstd(text)[..20].to_vec(), Means::Unreachable),
        // Plain text with a wrong Content-Encoding can be read.
        ("compress", text.to_vec(), Means::Rules),
        ("aws-chunked", text.to_vec(), Means::Rules),
        ("utf-8", text.to_vec(), Means::Rules),
        ("UTF-16", utf16(u16::to_le_bytes), Means::Rules),
        // Really compressed, the file cannot be read: its rules are unknown, not missing.
        ("compress", b"\x1f\x9d\x90".to_vec(), Means::Unreachable),
        ("xz", b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4\x46".to_vec(), Means::Unreachable),
        ("lz4", b"\x04\x22\x4d\x18\x64\x40\xa7".to_vec(), Means::Unreachable),
        ("caf\u{e9}", br(text), Means::Unreachable),
        ("bzip2, gzip", gzip(b"BZh91AY&SY\0\x17"), Means::Unreachable),
        ("gzip, gzip, gzip, gzip, gzip", gzip(&gzip(&gzip(&gzip(&gzip(text))))), Means::Unreachable),
    ] {
        let origin = origin(move |_| Reply::text(&body).field("Content-Encoding", coding)).await;
        assert_eq!(meaning(&proxy, &origin).await, means, "{coding}");
    }
    let split = gzip(&br(text));
    let origin =
        origin(move |_| Reply::text(&split).field("Content-Encoding", "br").field("Content-Encoding", "gzip")).await;
    assert_eq!(meaning(&proxy, &origin).await, Means::Rules, "in two fields");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compression_bombs_are_cut_at_max_size() {
    let proxy = Proxy::start("").await;
    let whole = bomb(300);
    let (gzipped, br, zstd) = (gzip(&whole), br(&whole), zstd(&whole));
    drop(whole);
    let encoded = [("gzip", gzipped), ("br, gzip", gzip(&br)), ("br", br), ("zstd", zstd)];
    for (coding, body) in encoded {
        let origin = origin(move |_| Reply::text(&body).field("Content-Encoding", coding)).await;
        let start = Instant::now();
        assert_eq!(meaning(&proxy, &origin).await, Means::Rules, "{coding}");
        assert_eq!(proxy.get(&origin.url("/late")).await.status(), 200, "{coding}: beyond the limit");
        assert!(start.elapsed() < Duration::from_secs(8), "{coding}: {:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_txt_is_read_up_to_512_000_bytes() {
    let proxy = Proxy::start("").await;
    let late = b"Disallow: /late\n";
    for (total, status) in [(512_000, 403), (512_001, 403), (512_002, 200), (614_400, 200)] {
        let mut text = format!("{KEEP_OUT}#").into_bytes();
        text.resize(total - late.len() - 1, b'x');
        text.push(b'\n');
        text.extend_from_slice(late);
        // The line that the limit goes through is dropped; its end may be beyond.
        let origin = origin(move |_| Reply::text(&text)).await;
        assert_eq!(meaning(&proxy, &origin).await, Means::Rules, "{total}");
        assert_eq!(proxy.get(&origin.url("/late")).await.status(), status, "{total}");
    }
    for framing in [Delimit::Length, Delimit::Chunked, Delimit::Close] {
        let endless = origin(move |_| Reply::pattern(4 << 30).framed(framing)).await;
        let start = Instant::now();
        assert_eq!(meaning(&proxy, &endless).await, Means::AllowAll);
        assert!(start.elapsed() < Duration::from_secs(8), "{framing:?}: {:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_txt_of_an_h2_only_origin_is_read() {
    let proxy = Proxy::start("").await;
    let replies = [
        ("plain", Reply::text(KEEP_OUT), Means::Rules),
        ("gzip", Reply::text(gzip(KEEP_OUT.as_bytes())).field("content-encoding", "gzip"), Means::Rules),
        ("redirect", Reply::redirect("/elsewhere"), Means::AllowAll),
        ("reset", Reply::reset(), Means::Unreachable),
        ("gone", Reply::status(404), Means::AllowAll),
        ("broken", Reply::status(503), Means::Unreachable),
        ("endless", Reply::pattern(1 << 30), Means::AllowAll),
    ];
    for (name, reply, means) in replies {
        let robots = site(move |_| reply.clone());
        let origin = Origin::https(Alpn::H2, robots).await;
        let via = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
        let mut via = via;
        let host = origin.authority("a.localhost");
        let (private, open) = (via.get("/private", &host).await, via.get("/open", &host).await);
        let expected = match means {
            Means::Rules => (403, 200),
            Means::AllowAll => (200, 200),
            Means::Unreachable => (503, 503),
        };
        assert_eq!((private.status(), open.status()), expected, "{name}: {}", private.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_robots_answers_end_at_the_deadline() {
    let drip = |pieces: usize| vec![b"#".to_vec(); pieces];
    let dripping = move |framing| Reply {
        body: Content::Drip(drip(1200), Duration::from_millis(100)),
        framing,
        ..Reply::text("")
    };
    let hints = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(20_000);
    let replies = [
        ("silence", Reply::silence()),
        ("late head", Reply::text(KEEP_OUT).after(Duration::from_secs(120))),
        ("dripping length", dripping(Delimit::Length)),
        ("dripping chunks", dripping(Delimit::Chunked)),
        ("dripping to the end", dripping(Delimit::Close)),
        ("only hints", Reply { then: crate::support::reply::Then::KeepAlive, ..Reply::raw(hints) }),
    ];
    at_once(replies.map(|(name, reply)| async move {
        let origin = origin(move |_| reply.clone()).await;
        let proxy = Proxy::start("robots: { timeout: 1s }").await;
        let start = Instant::now();
        assert_eq!(meaning(&proxy, &origin).await, Means::Unreachable, "{name}");
        assert!(start.elapsed() < Duration::from_secs(10), "{name}: {:?}", start.elapsed());
        assert_eq!(origin.log.count("/robots.txt"), 1, "{name}");
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_robots_answer_heads_are_unreachable() {
    let proxy = Proxy::start("robots: { timeout: 3s }").await;
    let huge = format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(4 << 20));
    let many = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", "X-Y: z\r\n".repeat(20_000));
    for (name, bytes) in [
        ("noise", "\u{0}\u{1}\u{2}\r\n\r\n".to_owned()),
        ("a huge field", huge),
        ("too many fields", many),
        ("two lengths", format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\n{KEEP_OUT}")),
        ("a length that is none", format!("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{KEEP_OUT}")),
        ("chunks that are none", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nUser".to_owned()),
        ("cut in a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nUser-agent: *\n".to_owned()),
        ("cut in the body", format!("HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{KEEP_OUT}")),
        ("nothing", String::new()),
    ] {
        let origin = origin(move |_| Reply::raw(&bytes)).await;
        assert_eq!(meaning(&proxy, &origin).await, Means::Unreachable, "{name}");
    }
}

/// Over TLS, only close_notify distinguishes an end from a truncation (RFC 9112 §9.8). Rules could be missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_delimited_tls_file_without_close_notify_is_truncated() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free loopback port");
    let port = listener.local_addr().expect("it is bound").port();
    let names = ["goodbye.localhost", "length.localhost", "cut.localhost"];
    let acceptor = tokio_rustls::TlsAcceptor::from(test_ca().server_config(&names, &[b"http/1.1"]));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut head = vec![0; 4096];
            let read = stream.read(&mut head).await.unwrap_or_default();
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            let body = if head.starts_with("GET /robots.txt") { KEEP_OUT } else { "page" };
            let length = match head.contains("Host: length.") {
                true => format!("Content-Length: {}\r\n", body.len()),
                false => String::new(),
            };
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{length}\r\n{body}").as_bytes()).await.ok();
            stream.flush().await.ok();
            if head.contains("Host: goodbye.") {
                stream.shutdown().await.ok();
            }
        }
    });
    // With rustls, and with OpenSSL.
    let rows = names.into_iter().zip([200, 200, 503]).flat_map(|(host, status)| {
        [String::new(), format!("hosts: {{ {host}: {{ tls: legacy }} }}")]
            .map(|configuration| (configuration, host, status))
    });
    for (configuration, host, status) in rows {
        let proxy = Proxy::start(&configuration).await;
        let authority = format!("{host}:{port}");
        let get = async |path: &str| {
            let client = Client::connect(proxy.address(), &authority).await;
            let mut client = client.tls(host, &proxy.ca_pem_path(), &[b"http/1.1"]).await;
            client.send(format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await;
            client.response().await
        };
        let page = get("/open").await;
        assert_eq!(page.status(), status, "{host} {configuration}: {}", page.text());
        assert_eq!(page.text().contains("close_notify"), status == 503, "{}", page.text());
        assert_eq!(get("/private").await.status(), if status == 503 { 503 } else { 403 }, "{host}");
    }
}
