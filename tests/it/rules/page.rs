//! Usage preferences in the HTML head of a page (docs/usage.md): a refusing page is not delivered, others pass unchanged.

use crate::support::reply::{Content, Delimit};
use crate::support::{Alpn, H2Client, Origin, Proxy, RawOrigin, Reply, Response, Seen, assert_refused};
use std::io::Write;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PURPOSE: &str = "identity: { purpose: [ai-train], product_tokens: [FooBot] }";
const CODINGS: [&str; 5] = ["identity", "gzip", "br", "zstd", "deflate"];

/// A page of some 200 KB that does not compress to nothing.
fn page(meta: &str) -> Vec<u8> {
    let noise = (0..20_000_u32).map(|n| format!("{:08x}\n", n.wrapping_mul(2_654_435_761))).collect::<String>();
    format!("<!doctype html>\n<html><head><title>caf\u{e9} \u{4e2d}</title>{meta}</head><body>{noise}</body></html>")
        .into()
}

fn coded(coding: &str, bytes: &[u8]) -> Vec<u8> {
    encode(coding, bytes, true)
}

/// `is_all`: else more can follow.
fn encode(coding: &str, bytes: &[u8], is_all: bool) -> Vec<u8> {
    fn written<W: Write>(mut encoder: W, bytes: &[u8]) -> W {
        encoder.write_all(bytes).unwrap();
        encoder.flush().unwrap();
        encoder
    }
    let level = flate2::Compression::fast();
    match coding {
        "gzip" => {
            let encoder = written(flate2::write::GzEncoder::new(Vec::new(), level), bytes);
            if is_all { encoder.finish().unwrap() } else { encoder.get_ref().clone() }
        }
        "deflate" => {
            let encoder = written(flate2::write::ZlibEncoder::new(Vec::new(), level), bytes);
            if is_all { encoder.finish().unwrap() } else { encoder.get_ref().clone() }
        }
        "br" => {
            let encoder = written(brotli::CompressorWriter::new(Vec::new(), 4096, 4, 22), bytes);
            if is_all { encoder.into_inner() } else { encoder.get_ref().clone() }
        }
        "zstd" => {
            let encoder = written(zstd::Encoder::new(Vec::new(), 3).unwrap(), bytes);
            if is_all { encoder.finish().unwrap() } else { encoder.get_ref().clone() }
        }
        _ => bytes.to_vec(),
    }
}

fn html(body: impl AsRef<[u8]>) -> Reply {
    Reply::status(200).field("Content-Type", "text/html; charset=utf-8").body(body)
}

/// `/no/CODING` and `/yes/CODING`, in chunks where the query says so.
fn answers(seen: &Seen) -> Reply {
    let target = String::from_utf8_lossy(&seen.target).into_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let Some((says, coding)) = path[1..].split_once('/') else { return Reply::text("") };
    let meta =
        if says == "no" { "<meta name=\"robots\" content=\"noai\">" } else { "<meta name=otherbot content=noai>" };
    let framing = match query {
        "chunked" => Delimit::Chunked,
        "close" => Delimit::Close,
        _ => Delimit::Length,
    };
    let reply = html(coded(coding, &page(meta))).framed(framing).field("X-Odd-Case", "as it came");
    if coding == "identity" { reply } else { reply.field("Content-Encoding", coding) }
}

fn assert_no(response: &Response, context: &str) {
    let problem = assert_refused(response, 403, "http_request_denied", "usage-disallowed");
    assert_eq!((&problem["purpose"], &problem["rule"]), (&"ai-train".into(), &"meta robots: noai".into()), "{context}");
    assert!(!response.text().contains("<head>"), "{context}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_with_a_refusing_meta_tag_is_withheld_and_others_pass_unchanged() {
    let (plain, tls) = (Origin::http(answers).await, Origin::https(Alpn::Both, answers).await);
    let proxy = Proxy::start(PURPOSE).await;
    let (direct, inside) = (H2Client::known(proxy.client().await).await, proxy.h2(&tls, "a.localhost").await);
    let mut refused = 0;
    for (origin, http2) in [(&plain, None), (&plain, Some(&direct)), (&tls, Some(&inside))] {
        for coding in CODINGS {
            for framing in ["length", "chunked", "close"] {
                let get = async |says: &str| {
                    let url = origin.url(&format!("/{says}/{coding}?{framing}"));
                    match http2 {
                        Some(client) => client.get(&url).await,
                        None => proxy.get(&url).await,
                    }
                };
                let context = format!("{coding} {framing} {}", http2.is_some());
                assert_no(&get("no").await, &context);
                refused += 1;
                let response = get("yes").await;
                assert_eq!(response.status(), 200, "{context}");
                assert!(response.body == coded(coding, &page("<meta name=otherbot content=noai>")), "{context}");
                assert_eq!(response.field("x-odd-case"), Some("as it came"), "{context}");
                assert_eq!(
                    response.field("content-encoding"),
                    Some(coding).filter(|it| *it != "identity"),
                    "{context}"
                );
            }
        }
    }
    assert_eq!(refused, 45);
    let raw = proxy.get(&plain.url("/yes/identity")).await;
    assert!(raw.head.start_line.starts_with(b"HTTP/1.1 200"), "{raw:?}");
    // The refusal is remembered.
    assert_eq!(plain.log.count("/no/gzip?length"), 1, "it was asked for over HTTP/1 and HTTP/2");
}

/// Any answer that some client shows as a page is inspected, and nothing beside a reservation lifts it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusing_meta_tags_are_found_in_unusual_answers() {
    let no = "<head><template></head></template><noscript></head></noscript><meta name=robots content=noai></head>";
    let utf_16: Vec<u8> = no.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let part = |range: &str| Reply { status: 206, ..html(no) }.field("Content-Range", range);
    let named = |name: &str| html(no).field("Connection", name).then_close();
    let plain = |coding: &str, body: &str| html(body).field("Content-Encoding", coding);
    let typed = |kind: &str, body: &[u8]| Reply::status(200).field("Content-Type", kind).body(body);
    let xml = |head: &str| format!("<html xmlns='http://www.w3.org/1999/xhtml'><head>{head}</head><body/></html>");
    let tag = "<meta name='robots' content='no&#97;i'/>";
    // Behind so many lines of each field that nobody would send.
    let lines = |last: &str| {
        let fields = ["X-Robots-Tag: all", "Content-Usage: x=y", "Robots-Tag: *;all", "Content-Signal: search=yes"];
        let fields = fields.iter().chain(&["TDM-Reservation: 0"]);
        let all = fields.flat_map(|line| vec![*line; 20]).chain([last]).map(|line| line.split_once(": ").unwrap());
        all.fold(Reply::text("x"), |reply, (name, value)| reply.field(name, value))
    };
    let xhtml = |head: &str| typed("application/xhtml+xml", xml(head).as_bytes());
    let subset = format!("<!DOCTYPE html [ <!ENTITY a '</head><body>'> ]>{}", xml(tag));
    let prefix = "<h:html xmlns:h='http://www.w3.org/1999/xhtml'><h:head><h:meta name='robots' content='noai'/></h:head></h:html>";
    let parts = format!(
        "--x\r\nContent-Type: text/html\r\nContent-Range: bytes 9-21/100\r\n\r\n</head><body>\r\n\
         --x\r\nContent-Type: text/html\r\nContent-Range: bytes 0-43/100\r\n\r\n{no}\r\n--x--\r\n"
    );
    let hints = format!(
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{no}",
        no.len()
    );
    let hop_coding = html(coded("br", no.as_bytes())).field("Connection", "content-encoding");
    let mut checksum = coded("gzip", no.as_bytes());
    *checksum.iter_mut().rev().nth(5).unwrap() ^= 1;
    let answers = [
        ("two-types", typed("text/plain", no.as_bytes()).field("Content-Type", "text/html")),
        ("list", typed("text/plain, text/html", no.as_bytes())),
        ("checksum", html(checksum).field("Content-Encoding", "gzip")),
        ("hop", Reply::text("x").field("Connection", "X-Robots-Tag").field("X-Robots-Tag", "noai").then_close()),
        ("hop-type", named("Content-Type")),
        ("hop-coding", hop_coding.field("Content-Encoding", "br").then_close()),
        ("part", part("bytes 0-43/100")),
        ("part-without-range", Reply { status: 206, ..html(no) }),
        ("part-with-two", part("bytes 5-9/100").field("Content-Range", "bytes 0-43/100")),
        ("middle-not-asked-for", part("bytes 5-43/100")),
        ("parts", Reply { status: 206, ..typed("multipart/byteranges; boundary=x", parts.as_bytes()) }),
        ("gzip", plain("gzip", no)),
        ("br", plain("br", no)),
        ("deflate", plain("deflate", no)),
        ("zstd", plain("zstd", no)),
        ("mark", html([&b"\xff\xfe\0\0"[..], &utf_16].concat())),
        ("utf-16-label", typed("text/html; charset=utf-16", no.as_bytes())),
        ("utf-32-label", typed("text/html; charset=utf-32", no.as_bytes())),
        ("unicode", typed("text/html; charset=unicode", &utf_16)),
        ("spaces", typed("text/html; charset = 'utf-16le'", &utf_16)),
        ("cdata", xhtml(&format!("<script><![CDATA[ > </head><body> ]]></script>{tag}"))),
        ("instruction", xhtml(&format!("<?x > </head><body> ?>{tag}"))),
        ("nested", xhtml(&format!("<x:head xmlns:x='urn:x'></x:head>{tag}"))),
        ("subset", typed("application/xhtml+xml", subset.as_bytes())),
        ("prefix", typed("application/xhtml+xml", prefix.as_bytes())),
        ("hints", Reply::raw(hints)),
        ("behind-head", html(format!("<head></head>{tag}"))),
        ("body", html(format!("<body><p>{tag}"))),
        ("no-type", Reply::status(200).body(no)),
        ("empty-type", typed("", no.as_bytes())),
        ("word", typed("html", no.as_bytes())),
        ("spaced", typed("text / html", no.as_bytes())),
        ("more", typed("text/html charset=utf-8", no.as_bytes())),
        ("unknown-type", typed("unknown/unknown", no.as_bytes())),
        ("unknown-subtype", typed("application/unknown", no.as_bytes())),
        ("any-type", typed("*/*", no.as_bytes())),
        ("xml", typed("application/xml; charset=utf-8", xml(tag).as_bytes())),
        ("text-xml", typed("text/xml", xml(tag).as_bytes())),
        ("feed", typed("application/atom+xml", xml(tag).as_bytes())),
        ("mixed", typed("multipart/x-mixed-replace; boundary=x", format!("--x\r\n\r\n{no}").as_bytes())),
        ("gzip-once", html(coded("gzip", no.as_bytes())).field("Content-Encoding", "gzip, gzip")),
        ("br-not", html(coded("gzip", no.as_bytes())).field("Content-Encoding", "br, gzip")),
        (
            "members",
            html([coded("gzip", b"").repeat(300), coded("gzip", no.as_bytes())].concat())
                .field("Content-Encoding", "gzip"),
        ),
        ("gz", html(coded("gzip", no.as_bytes()))),
        ("late-line", lines("X-Robots-Tag: noai")),
        ("late-usage", lines("Content-Usage: train-ai=n")),
        ("late-list", lines("Robots-Tag: *;noai")),
        ("late-signal", lines("Content-Signal: ai-train=no")),
        ("late-mining", lines("TDM-Reservation: 1")),
        ("late-tag", html(format!("{}{tag}", "<meta name=robots content=all>".repeat(100)))),
        ("long-line", Reply::text("x").field("X-Robots-Tag", format!("{}, noai", "x".repeat(10_000)))),
        ("long-list", Reply::text("x").field("Robots-Tag", format!("a;x=\"{}\", *;noai", "x".repeat(20_000)))),
        ("long-usage", Reply::text("x").field("Content-Usage", format!("x=\"{}\", train-ai=n", "x".repeat(10_000)))),
        ("latin-1", Reply::raw(&b"HTTP/1.1 200 OK\r\nX-Robots-Tag: caf\xe9, noai\r\nContent-Length: 1\r\n\r\nx"[..])),
        (
            "second",
            typed("text/html", xml(&format!("<title/>{tag}")).as_bytes())
                .field("Content-Type", "application/xhtml+xml"),
        ),
        (
            "first",
            typed("application/xhtml+xml", format!("<head><title></head><body></title>{no}").as_bytes())
                .field("Content-Type", "text/html"),
        ),
    ];
    let targets = answers.each_ref().map(|(target, _)| *target);
    let origin = Origin::http(move |seen| {
        let path = seen.path();
        let answer = answers.iter().find(|(target, _)| *target == &path[1..]);
        answer.map_or_else(|| Reply::text(""), |(_, reply)| reply.clone())
    })
    .await;
    let proxy = Proxy::start(PURPOSE).await;
    let mut hidden = Vec::new();
    for target in targets {
        let url = origin.url(&format!("/{target}"));
        let status = match target.starts_with("part") {
            true => proxy.curl(&["-r", "0-", &url]).await.status(),
            false => proxy.get(&url).await.status(),
        };
        match status {
            403 => _ = assert_refused(&proxy.get(&url).await, 403, "http_request_denied", "usage-disallowed"),
            _ => hidden.push(target),
        }
    }
    assert_eq!(hidden, [""; 0]);
}

/// Some client may show such an answer as a page, but politely cannot read it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_page_is_refused_with_its_own_reason() {
    let yes = b"<head></head><body>page</body>";
    let coded_as = |names: &str, body: Vec<u8>| html(body).field("Content-Encoding", names);
    let five = (0..5).fold(yes.to_vec(), |body, _| coded("gzip", &body));
    let answers = [
        ("five", coded_as("gzip, gzip, gzip, gzip, gzip", five), "more than 4 content codings"),
        ("quoted", coded_as("\"gzip\"", coded("gzip", yes)), "the content coding \"\\\"gzip\\\"\" is not supported"),
        ("unknown", coded_as("dcb", coded("br", yes)), "the content coding \"dcb\" is not supported"),
        ("not", coded_as("gzip", coded("zstd", yes)), "the gzip body is damaged"),
        ("not-twice", coded_as("zstd, gzip", coded("gzip", &[1; 100])), "the zstd body is damaged"),
        (
            "control",
            coded_as("unknown", b"\x01<head></head>".to_vec()),
            "the content coding \"unknown\" is not supported",
        ),
        ("window", coded_as("br", vec![0x11, 0x1e, 0, 0]), "the br body asks for too large a window"),
        (
            "ways",
            Reply::status(200)
                .field("Content-Type", "text/html; xml")
                .body("\x1b$B\x1b(B<noscript><!-- </noscript> -->".repeat(2_200)),
            "reading the body in every way that clients may read it",
        ),
    ];
    let rows = answers.each_ref().map(|(target, _, why)| (*target, *why));
    let origin = Origin::http(move |seen| {
        let path = seen.path();
        let answer = answers.iter().find(|(target, ..)| *target == &path[1..]);
        answer.map_or_else(|| Reply::text(""), |(_, reply, _)| reply.clone())
    })
    .await;
    let proxy = Proxy::start(PURPOSE).await;
    let reporting = Proxy::start(&format!("{PURPOSE}\nusage: {{ page: report }}")).await;
    let without = Proxy::start("").await;
    for (target, why) in rows {
        let url = origin.url(&format!("/{target}"));
        let refused = proxy.get(&url).await;
        let problem = assert_refused(&refused, 403, "http_request_denied", "usage-unreadable");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{target}: {problem}");
        let reported = reporting.get(&url).await;
        let told = reported.head.proxy_status_parameter("details").unwrap_or_default();
        assert!(reported.status() == 200 && told.contains("cannot be read"), "{target}: {told}");
        assert_eq!(without.get(&url).await.status(), 200, "{target}");
    }
    assert_eq!(reporting.counts().reported["usage-unreadable"], rows.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_page_counts_in_byte_budgets() {
    let mut unknown = coded("br", &page(""));
    unknown.truncate(30_000);
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => html(unknown.clone()).field("Content-Encoding", "dcb"),
    })
    .await;
    let proxy = Proxy::start(&format!("{PURPOSE}\npace: {{ budget: {{ bytes: 40KiB, per: day }} }}")).await;
    for status in [403, 403, 429] {
        assert_eq!(proxy.get(&origin.url("/x")).await.status(), status);
    }
    assert_eq!(origin.log.count("/x"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn non_html_answers_and_requests_without_a_purpose_are_not_inspected() {
    let no = "<head><meta name=robots content=noai></head>";
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/text" => Reply::text(no),
        "/part" => Reply { status: 206, ..html(no).field("Content-Range", "bytes 1-44/100") },
        "/not-modified" => Reply { status: 304, ..html("") },
        "/error" => Reply { status: 404, ..html(no) },
        "/empty" => html(""),
        "/typed" => Reply::status(200).field("Content-Type", "application/json, text/css").body(no),
        "/odd" => html(no).field("Content-Encoding", "unknown"),
        "/damaged" => html(no).field("Content-Encoding", "gzip"),
        "/page" => html(no),
        _ => Reply::text(""),
    })
    .await;
    let proxy = Proxy::start(PURPOSE).await;
    for (target, status) in [("/text", 200), ("/not-modified", 304), ("/error", 404), ("/empty", 200), ("/typed", 200)]
    {
        let response = proxy.get(&origin.url(target)).await;
        assert_eq!(response.status(), status, "{target}");
    }
    let part = proxy.curl(&["-r", "1-", &origin.url("/part")]).await;
    assert_eq!(part.status(), 206, "the middle of a page has no head");
    // Some servers write a charset there, or name a coding that they have not applied.
    for target in ["/odd", "/damaged"] {
        assert_eq!(proxy.get(&origin.url(target)).await.status(), 403, "{target}");
    }
    let head = proxy.curl(&["-I", &origin.url("/page")]).await;
    assert_eq!((head.code, head.status()), (0, 200), "HEAD has no page");
    assert_eq!(proxy.get(&origin.url("/page")).await.status(), 403);
    for yaml in ["", "identity: { purpose: [search] }", &format!("{PURPOSE}\nusage: {{ page: ignore }}")] {
        let proxy = Proxy::start(yaml).await;
        let response = proxy.get(&origin.url("/page")).await;
        assert_eq!((response.status(), response.text().as_str()), (200, no), "{yaml}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_in_report_mode_is_delivered_and_reported() {
    let origin = Origin::http(answers).await;
    for yaml in ["usage: { page: report }", "mode: report"] {
        let proxy = Proxy::start(&format!("{PURPOSE}\n{yaml}")).await;
        let response = proxy.get(&origin.url("/no/br")).await;
        assert!(response.status() == 200 && response.field("content-encoding") == Some("br"), "{yaml}");
        let told = response.head.proxy_status_parameter("details").unwrap_or_default();
        assert!(told.contains("`ai-train`") && told.contains("meta robots: noai"), "{yaml}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn html_head_in_small_pieces_is_read() {
    let drip = |end: &'static str| {
        let pieces = [
            "<html><head>",
            "<title>slow</tit",
            "le><meta name=",
            "tdm-reservation",
            " content=",
            end,
            "<body>",
            "text",
        ];
        move |seen: &Seen| match seen.path().as_str() {
            "/page" => {
                Reply { body: Content::Drip(pieces.map(|it| it.into()).into(), Duration::from_millis(20)), ..html("") }
                    .framed(Delimit::Chunked)
            }
            _ => Reply::text(""),
        }
    };
    for (end, status) in [("1></head>", 403), ("0></head>", 200)] {
        let (plain, tls) = (Origin::http(drip(end)).await, Origin::https(Alpn::Both, drip(end)).await);
        let proxy = Proxy::start(PURPOSE).await;
        let inside = proxy.h2(&tls, "a.localhost").await;
        for response in [proxy.get(&plain.url("/page")).await, inside.get(&tls.url("/page")).await] {
            assert_eq!(response.status(), status, "{end}");
            assert_eq!(response.text().ends_with("<body>text"), status == 200, "{end}");
        }
    }
}

/// Sends a beginning, and nothing more.
async fn stalled(begins: impl Into<Vec<u8>>) -> RawOrigin {
    let begins = begins.into();
    RawOrigin::start(move |mut stream, _| {
        let begins = begins.clone();
        async move {
            let mut asked = [0; 4096];
            let _ = stream.read(&mut asked).await;
            let _ = stream.write_all(&begins).await;
            while stream.read(&mut asked).await.is_ok_and(|n| n > 0) {}
        }
    })
    .await
}

const STALLS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100\r\n\r\n<head><title>a";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_html_head_times_out() {
    let origin = stalled(STALLS).await;
    let proxy = Proxy::start(&format!("{PURPOSE}\nhosts: {{ a.localhost: {{ robots: ignore }} }}")).await;
    let mut client = proxy.client().await;
    client.send(format!("GET {} HTTP/1.1\r\nHost: a.localhost\r\n\r\n", origin.url("/"))).await;
    assert_eq!(client.head().await.status(), 200, "what is not known refuses nothing");
    while !client.glance(Duration::from_secs(1)).await.ends_with(b"<title>a") {}
}

/// It is not held until the read limit or the end. Another page, with an endless head, is requested before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_is_forwarded_once_its_html_head_is_complete() {
    let proxy = Proxy::start(&format!(
        "{PURPOSE}\nusage: {{ tdmrep: ignore }}\nhosts: {{ a.localhost: {{ robots: ignore }} }}"
    ))
    .await;
    let ask = async |origin: &RawOrigin| {
        let mut client = proxy.client().await;
        client.send(format!("GET {} HTTP/1.1\r\nHost: a.localhost\r\n\r\n", origin.url("/"))).await;
        client
    };
    for coding in CODINGS {
        for (begun, status) in [
            ("<head><meta name=otherbot content=noai></head><body>so far", 200),
            ("<!doctype html><meta name=otherbot content=noai><p>so far", 200),
            ("<head><meta name=robots content=noai></head><body>so far", 403),
        ] {
            let begun = encode(coding, begun.as_bytes(), false);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: {coding}\r\nContent-Length: 9999\r\n\r\n"
            );
            let origin = stalled([head.as_bytes(), &begun].concat()).await;
            let endless = stalled(STALLS).await;
            let mut waiting = ask(&endless).await;
            while endless.open_connections() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let mut client = ask(&origin).await;
            tokio::select! {
                biased;
                answer = client.head() => assert_eq!(answer.status(), status, "{coding}"),
                _ = waiting.head() => panic!("{coding}: it was not waited for less than for the other"),
            }
            while status == 200 && !client.glance(Duration::from_secs(1)).await.ends_with(&begun) {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_leaving_while_the_html_head_is_read_cancels_the_request() {
    let origin = stalled(STALLS).await;
    let proxy = Proxy::start(&format!("{PURPOSE}\nhosts: {{ a.localhost: {{ robots: ignore }} }}")).await;
    let mut client = proxy.client().await;
    client.send(format!("GET {} HTTP/1.1\r\nHost: a.localhost\r\n\r\n", origin.url("/"))).await;
    while origin.open_connections() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(client);
    while origin.open_connections() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_truncated_in_its_html_head_is_truncated_for_the_client() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/page" => html("<head><title>a").framed(Delimit::Short(50)),
        _ => Reply::text(""),
    })
    .await;
    let proxy = Proxy::start(PURPOSE).await;
    let got = proxy.curl(&[&origin.url("/page")]).await;
    assert_eq!((got.code, got.status()), (18, 200), "curl: transfer closed with outstanding read data remaining");
}

/// The body takes long to decode, and all places for that are taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_is_withheld_if_no_decoder_is_free() {
    let costly = coded("gzip", b"").repeat(9_000);
    let body = [costly, coded("gzip", b"<head></head><body>")].concat();
    let answer = move |seen: &Seen| match (seen.path().as_str(), seen.field("host").unwrap_or_default()) {
        ("/robots.txt", host) if host.starts_with("b.") => Reply::text(&body).field("Content-Encoding", "gzip"),
        ("/held" | "/stored", _) => html(&body).field("Content-Encoding", "gzip").field("Cache-Control", "max-age=600"),
        _ => Reply::text(""),
    };
    let origin = Origin::http(answer).await;
    let directory = tempfile::tempdir().unwrap();
    let cache = format!("cache: {{ directory: '{}', size: 100MiB }}\n", directory.path().join("pages").display());
    let url = |path: &str| origin.url(path);
    // The page is stored for clients without a purpose.
    let proxy = Proxy::start_in(directory, &cache).await;
    for _ in 0..2 {
        assert_eq!(proxy.get(&url("/stored")).await.status(), 200);
    }
    let directory = proxy.shutdown().await;
    let without = |settings: &mut politely::config::Settings| settings.limits.workers = Some(0);
    let proxy = Proxy::start_with(directory, &format!("{cache}{PURPOSE}"), without).await;
    let urls = [url("/held"), url("/stored"), url("/held").replace("a.localhost", "b.localhost")];
    let (held, stored, robots) = tokio::join!(proxy.get(&urls[0]), proxy.get(&urls[1]), proxy.get(&urls[2]));
    for (what, refused) in [("held", held), ("stored", stored), ("robots.txt", robots)] {
        let problem = assert_refused(&refused, 503, "connection_limit_reached", "out-of-resources");
        assert!(problem["detail"].as_str().unwrap().contains("decoded"), "{what}: {problem}");
    }
    assert_eq!((origin.log.count("/held"), origin.log.count("/stored")), (1, 1));
}
