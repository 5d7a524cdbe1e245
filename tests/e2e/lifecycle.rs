//! From the first line of the log to the last exit code: start, readiness, drain, end.

use crate::support::client::get;
use crate::support::{Alpn, Binary, Client, Origin, Proxy, Reply, Seen, eventually, within};
use std::time::{Duration, Instant};
use tokio::net::{TcpStream, UnixDatagram};

fn slow(seen: &Seen) -> Reply {
    match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/slow" => Reply::text("done").after(Duration::from_millis(1500)),
        "/drip" => Reply::drip(&["a", "b", "c", "d"], Duration::from_millis(400)),
        "/silence" => Reply::silence(),
        _ => Reply::text("page"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_lets_what_is_in_flight_end_and_exits_0() {
    let plain = Origin::http(slow).await;
    let tls = Origin::https(Alpn::Both, slow).await;
    let mut binary = Binary::serve("").await;
    let host = plain.authority("a.localhost");
    let mut head = Client::open(binary.address()).await;
    head.send(get(&plain.url("/slow"), &host)).await;
    let mut body = Client::open(binary.address()).await;
    body.send(get(&plain.url("/drip"), &host)).await;
    let inside = Client::connect(binary.address(), &tls.authority("a.localhost")).await;
    let mut inside = inside.tls("a.localhost", &binary.ca_pem_path(), &[b"http/1.1"]).await;
    inside.send(get("/slow", &tls.authority("a.localhost"))).await;
    let h2 = Client::connect(binary.address(), &tls.authority("a.localhost")).await;
    let h2 = crate::support::H2Client::over(h2.tls("a.localhost", &binary.ca_pem_path(), &[b"h2"]).await).await;
    let url = tls.url("/slow");
    let h2 = tokio::spawn(async move { h2.get(&url).await });
    eventually("the requests", || plain.log.pages().len() == 2 && tls.log.pages().len() == 2).await;
    binary.signal(libc::SIGTERM);
    assert_eq!(head.response().await.text(), "done");
    assert_eq!(body.response().await.text(), "abcd");
    assert_eq!(inside.response().await.text(), "done");
    assert_eq!(h2.await.unwrap().text(), "done");
    // The connections are kept by us; it must not wait for that.
    assert_eq!(binary.ended().await.code(), Some(0), "{}", binary.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_do_not_delay_the_end() {
    let plain = Origin::http(slow).await;
    let tls = Origin::https(Alpn::Both, slow).await;
    let binary = Binary::serve("").await;
    let host = plain.authority("a.localhost");
    let _fresh = Client::open(binary.address()).await;
    let mut kept = Client::open(binary.address()).await;
    assert_eq!(kept.get(&plain.url("/x"), &host).await.status(), 200);
    let _tunnel = Client::connect(binary.address(), &host).await;
    let inside = Client::connect(binary.address(), &tls.authority("a.localhost")).await;
    let inside = inside.tls("a.localhost", &binary.ca_pem_path(), &[b"h2"]).await;
    let inside = crate::support::H2Client::over(inside).await;
    assert_eq!(inside.get(&tls.url("/x")).await.status(), 200);
    let start = Instant::now();
    binary.stop().await;
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

/// Nobody has asked for anything yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_only_begun_is_closed_at_once() {
    let origin = Origin::site("").await;
    let binary = Binary::serve("limits: { drain_timeout: 1h, header_timeout: 1h }").await;
    let mut head = Client::open(binary.address()).await;
    head.send("GET http://a.localhost/ HTTP/1.1\r\nHo").await;
    let mut hello = Client::connect(binary.address(), &origin.authority("a.localhost")).await;
    hello.send(b"\x16\x03\x01\x02").await;
    let mut inside = Client::connect(binary.address(), &origin.authority("a.localhost")).await;
    inside.send("GET / HTTP/1.1\r\nHo").await;
    let mut socks = Client::open(binary.address()).await;
    socks.send([5, 1]).await;
    within("the end", binary.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_never_ends_is_cut_after_the_drain_timeout() {
    let origin = Origin::http(slow).await;
    let binary = Binary::serve("limits: { drain_timeout: 1s }\nintercept: { hosts: { 'b.localhost': tunnel } }").await;
    let mut hanging = Client::open(binary.address()).await;
    hanging.send(get(&origin.url("/silence"), &origin.authority("a.localhost"))).await;
    let mut tunnel = Client::connect(binary.address(), &origin.authority("b.localhost")).await;
    tunnel.send(get("/silence", "b.localhost")).await;
    eventually("the requests", || origin.log.count("/silence") == 2).await;
    let start = Instant::now();
    binary.stop().await;
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_answered_at_the_end() {
    let origin = Origin::site("User-agent: *\nCrawl-delay: 50\n").await;
    let mut binary = Binary::serve("limits: { drain_timeout: 5s }").await;
    let host = origin.authority("a.localhost");
    let mut client = Client::open(binary.address()).await;
    assert_eq!(client.get(&origin.url("/1"), &host).await.status(), 200);
    client.send(get(&origin.url("/2"), &host)).await;
    assert!(client.glance(Duration::from_millis(300)).await.is_empty(), "it waits");
    binary.signal(libc::SIGTERM);
    let answer = client.response().await;
    assert_eq!(answer.status(), 503, "{}", answer.text());
    assert!(answer.field("retry-after").is_some());
    assert_eq!(binary.ended().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_admitted_after_the_signal() {
    let origin = Origin::http(slow).await;
    let mut binary = Binary::serve("").await;
    let mut client = Client::open(binary.address()).await;
    client.send(get(&origin.url("/slow"), &origin.authority("a.localhost"))).await;
    eventually("the request", || origin.log.count("/slow") == 1).await;
    binary.signal(libc::SIGTERM);
    within("the listener to close", async {
        while TcpStream::connect(binary.address()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(client.response().await.text(), "done", "while one is still being served");
    assert_eq!(binary.ended().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_request_to_the_admin_address_holds_nothing_up() {
    let proxy = Proxy::start("admin: { address: '127.0.0.1:0' }").await;
    let mut half = Client::open(proxy.admin_address()).await;
    half.send("GET /healthz HTTP/1.1\r\nHo").await;
    let start = Instant::now();
    proxy.shutdown().await;
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_it_as_well() {
    let mut binary = Binary::serve("").await;
    binary.signal(libc::SIGINT);
    assert_eq!(binary.ended().await.code(), Some(0), "{}", binary.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn systemd_is_told_when_it_is_ready_and_when_it_stops() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let binary = Binary::serve_with("", &[("NOTIFY_SOCKET", path.to_str().unwrap())]).await;
    let mut said = String::new();
    let mut buffer = [0; 4096];
    let mut hear = async |wanted: &str| {
        within(wanted, async {
            while !said.contains(wanted) {
                let length = socket.recv(&mut buffer).await.unwrap();
                said.push_str(&String::from_utf8_lossy(&buffer[..length]));
                said.push('\n');
            }
        })
        .await;
    };
    hear("READY=1").await;
    binary.stop().await;
    hear("STOPPING=1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_authority_survives_a_restart() {
    let origin = Origin::https(Alpn::H1, slow).await;
    let first = Binary::serve("").await;
    let before = std::fs::read(first.ca_pem_path()).unwrap();
    let directory = first.stop().await;
    let second = Binary::serve_in(directory, "").await;
    assert_eq!(std::fs::read(second.ca_pem_path()).unwrap(), before);
    assert_eq!(second.curl(&[&origin.url("/x")]).await.status(), 200);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_process_a_shutdown_frees_the_port() {
    let proxy = Proxy::start("").await;
    let address = proxy.address();
    proxy.shutdown().await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_listens_on_all_its_addresses() {
    let origin = Origin::http(slow).await;
    let proxy = Proxy::start("listen: [{ address: '127.0.0.1:0' }, { address: '127.0.0.2:0' }]").await;
    assert_eq!(proxy.addresses().len(), 2);
    for address in proxy.addresses() {
        let mut client = Client::open(*address).await;
        assert_eq!(client.get(&origin.url("/x"), &origin.authority("a.localhost")).await.status(), 200);
    }
}
