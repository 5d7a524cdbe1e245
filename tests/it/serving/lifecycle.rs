//! From the first line of the log to the last exit code: start, readiness, drain, end.

use crate::support::client::get;
use crate::support::message::Body;
use crate::support::{Alpn, Binary, Client, Origin, Proxy, Reply, Seen, eventually, within};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddress;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
async fn sigterm_drains_requests_in_flight_and_exits_0() {
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
async fn idle_connections_do_not_delay_shutdown() {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_closes_incomplete_requests_soon() {
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
async fn shutdown_cuts_endless_requests_after_drain_timeout() {
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
async fn shutdown_answers_held_requests() {
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
async fn shutdown_accepts_no_new_connections() {
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
async fn incomplete_admin_request_does_not_delay_shutdown() {
    let proxy = Proxy::start("admin: { address: '127.0.0.1:0' }").await;
    let mut half = Client::open(proxy.admin_address()).await;
    half.send("GET /healthz HTTP/1.1\r\nHo").await;
    let start = Instant::now();
    proxy.shutdown().await;
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigint_shuts_down_and_exits_0() {
    let mut binary = Binary::serve("").await;
    binary.signal(libc::SIGINT);
    assert_eq!(binary.ended().await.code(), Some(0), "{}", binary.output());
}

/// Operators of nginx stop it by SIGQUIT.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigquit_drains_and_exits_0() {
    let origin = Origin::http(slow).await;
    let mut binary = Binary::serve("").await;
    let mut client = Client::open(binary.address()).await;
    client.send(get(&origin.url("/slow"), &origin.authority("a.localhost"))).await;
    eventually("the request", || origin.log.count("/slow") == 1).await;
    binary.signal(libc::SIGQUIT);
    assert_eq!(client.response().await.text(), "done");
    assert_eq!(binary.ended().await.code(), Some(0), "{}", binary.output());
}

/// Some servers reopen their logs or upgrade on these signals: the log names the alternative.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigusr1_sigusr2_and_sigalrm_are_logged_and_ignored() {
    let origin = Origin::http(slow).await;
    let mut binary = Binary::serve("").await;
    let host = origin.authority("a.localhost");
    let mut client = Client::open(binary.address()).await;
    let others = [(libc::SIGUSR1, "SIGUSR1"), (libc::SIGUSR2, "SIGUSR2"), (libc::SIGALRM, "SIGALRM")];
    for (signal, name) in others {
        binary.signal(signal);
        let line = format!("{name} does nothing here");
        eventually(&line, || binary.output().contains(&line)).await;
        assert!(binary.output().contains("SIGHUP reloads"), "{}", binary.output());
        assert_eq!(client.get(&origin.url("/x"), &host).await.status(), 200);
    }
    client.send(get(&origin.url("/slow"), &host)).await;
    eventually("the request", || origin.log.count("/slow") == 1).await;
    binary.signal(libc::SIGTERM);
    eventually("the drain", || binary.output().contains("for active requests")).await;
    for (signal, _) in others {
        binary.signal(signal);
    }
    assert_eq!(client.response().await.text(), "done", "nor do they cut anything off at the end");
    assert_eq!(binary.ended().await.code(), Some(0), "{}", binary.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn systemd_is_notified_when_it_is_ready_and_when_it_stops() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    is_notified(path.to_str().unwrap(), &UnixAddress::from_pathname(&path).unwrap()).await;
    let name = format!("politely-{}", std::process::id());
    is_notified(&format!("@{name}"), &UnixAddress::from_abstract_name(&name).unwrap()).await;
}

async fn is_notified(name: &str, address: &UnixAddress) {
    let socket = std::os::unix::net::UnixDatagram::bind_addr(address).unwrap();
    socket.set_nonblocking(true).unwrap();
    let socket = UnixDatagram::from_std(socket).unwrap();
    let binary = Binary::serve_with("", &[("NOTIFY_SOCKET", name)]).await;
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
async fn shutdown_in_process_frees_the_port() {
    let proxy = Proxy::start("").await;
    let address = proxy.address();
    proxy.shutdown().await;
    // Not at once: a process that another test is just starting has it open until its program runs.
    within("the port to be free", async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_listen_addresses_are_served() {
    let origin = Origin::http(slow).await;
    let proxy = Proxy::start("listen: [{ address: '127.0.0.1:0' }, { address: '127.0.0.2:0' }]").await;
    assert_eq!(proxy.addresses().len(), 2);
    for address in proxy.addresses() {
        let mut client = Client::open(address).await;
        assert_eq!(client.get(&origin.url("/x"), &origin.authority("a.localhost")).await.status(), 200);
    }
}

/// A connection that was idle for longer may be closed at the end of a process, which waits for half a second.
const MOST_IDLE: Duration = Duration::from_millis(300);

/// A connection for each request, so that each is accepted by the one or the other; and one that is kept for as long as it may.
async fn load(address: SocketAddr, url: String, host: String, is_over: Arc<AtomicBool>) -> (usize, Vec<String>) {
    let (mut answered, mut errors) = (0, Vec::new());
    let mut kept: Option<(Client, Instant)> = None;
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let mut fresh = Client::open(address).await;
        let is_sent = fresh.try_send(get(&url, &host)).await.is_ok();
        let is_late = began.elapsed() > MOST_IDLE;
        if !is_late && (!is_sent || fresh.try_head().await.is_none_or(|it| it.status() != 200)) {
            errors.push(format!("a fresh connection, after {answered}"));
        }
        let now = Instant::now();
        let (mut client, since) = match kept.take().filter(|(_, since)| since.elapsed() < MOST_IDLE / 2) {
            Some(kept) => kept,
            None => (Client::open(address).await, now),
        };
        let is_sent = client.try_send(get(&url, &host)).await.is_ok();
        let is_late = since.elapsed() > MOST_IDLE;
        match if is_sent { client.try_head().await } else { None } {
            Some(head) if head.status() == 200 => {
                let mut body = Body::default();
                client.read_body(&head, "GET", &mut body).await;
                kept = (!head.lists("connection", "close")).then(|| (client, Instant::now()));
            }
            other if !is_late => errors.push(format!("a kept connection, after {answered}: {other:?}")),
            _ => {}
        }
        answered += 2;
    }
    (answered, errors)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handover_on_the_same_socket_loses_no_request() {
    let origin = Origin::http(slow).await;
    let tls = Origin::https(Alpn::Both, slow).await;
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let yaml = "listen: [{ address: fd:politely }]\nlimits: { max_idle_connections: 1000 }";
    let mut old = Binary::serve_on(&socket, yaml).await;
    let is_over = Arc::<AtomicBool>::default();
    let clients: Vec<_> = (0..8)
        .map(|_| tokio::spawn(load(address, origin.url("/x"), origin.authority("a.localhost"), is_over.clone())))
        .collect();
    let curl = tokio::spawn({
        let (is_over, url, tls, ca) = (is_over.clone(), origin.url("/x"), tls.url("/x"), old.ca_pem_path());
        async move {
            let proxy = format!("http://{address}");
            let mut failed = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                // Whose certificate it is depends on which of the two takes it.
                for arguments in [&[&*url][..], &["-k", &tls]] {
                    let got = crate::support::curl(&[&["-x", &proxy], arguments].concat()).await;
                    if got.code != 0 || got.status() != 200 {
                        failed.push(format!("{arguments:?}: {got:?}"));
                    }
                }
            }
            drop(ca);
            failed
        }
    });
    for _ in 0..3 {
        let before = origin.log.pages().len();
        eventually("load", || origin.log.pages().len() > before + 100).await;
        let new = Binary::serve_on(&socket, yaml).await;
        old.signal(libc::SIGTERM);
        assert_eq!(old.ended().await.code(), Some(0), "{}", old.output());
        old = new;
    }
    let before = origin.log.pages().len();
    eventually("load", || origin.log.pages().len() > before + 100).await;
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        let (answered, errors) = client.await.unwrap();
        assert!(answered > 0 && errors.is_empty(), "{answered}: {errors:?}");
    }
    let failed = curl.await.unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    old.stop().await;
}

#[test]
fn systemd_socket_unit_uses_the_default_listen_address() {
    let unit = include_str!("../../../systemd/politely.socket");
    let [listener] = &politely::config::Settings::default().listen[..] else { panic!("one") };
    assert!(unit.contains(&format!("\nListenStream={}\n", listener.address)), "{unit}");
    assert!(unit.contains("\nFileDescriptorName=politely\n"), "{unit}");
}

/// systemd may start the new process after the old one has ended: clients wait in the socket's backlog.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_connecting_between_two_processes_is_answered_by_the_second() {
    let origin = Origin::http(slow).await;
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // A socket unit for the very address that the file names.
    let yaml = format!("listen: [{{ address: '{}' }}]", socket.local_addr().unwrap());
    Binary::serve_on(&socket, &yaml).await.stop().await;
    let mut client = Client::open(socket.local_addr().unwrap()).await;
    client.send(get(&origin.url("/x"), &origin.authority("a.localhost"))).await;
    let second = Binary::serve_on(&socket, &yaml).await;
    assert_eq!(client.response().await.status(), 200);
    second.stop().await;
}

/// Its clients would wait without being accepted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inherited_socket_not_in_listen_causes_a_warning() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let [unnamed, named] = ["127.0.0.1:0", "fd:politely"]
        .map(|listen| format!("listen: [{{ address: '{listen}' }}]\nadmin: {{ address: '127.0.0.1:0' }}"));
    let binary = Binary::serve_on(&socket, &unnamed).await;
    let warning = format!("the socket `politely`, {address}, which `listen` does not name");
    assert!(binary.output().contains(&warning), "{}", binary.output());
    for _ in 0..2 {
        assert_eq!(binary.reload(&unnamed).await.code, 0);
    }
    eventually("both reloads", || binary.output().matches("configuration reloaded").count() == 2).await;
    assert_eq!(binary.output().matches(&warning).count(), 1, "it is known: {}", binary.output());
    binary.stop().await;
    let binary = Binary::serve_on(&socket, &named).await;
    assert!(!binary.output().contains("does not name"), "{}", binary.output());
    assert_eq!(binary.reload(&unnamed).await.code, 0);
    eventually("the warning", || binary.output().contains(&warning)).await;
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inherited_socket_that_is_not_a_tcp_listener_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let sockets: [std::os::fd::OwnedFd; 3] = [
        std::os::unix::net::UnixListener::bind(directory.path().join("socket")).unwrap().into(),
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into(),
        connected.into(),
    ];
    let listen = [("POLITELY_LISTEN", "[{address: fd:politely}]"), ("POLITELY_ADMIN__ADDRESS", "off")];
    for socket in sockets {
        let ended = Binary::refused_on(&socket, &listen).await;
        let told = "the socket `politely` from systemd is not a listening TCP socket";
        assert!(ended.code == 2 && ended.stderr.contains(told), "{}: {}", ended.code, ended.stderr);
        assert!(ended.stderr.contains("hint: the socket unit needs `ListenStream=`"), "{}", ended.stderr);
    }
}

const ADMIN: &str = "admin: { address: '127.0.0.1:0' }";

async fn readiness(binary: &Binary) -> u16 {
    crate::support::curl(&[&format!("http://{}/readyz", binary.admin())]).await.status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_delay_serves_on_while_readyz_fails() {
    let origin = Origin::http(slow).await;
    let mut binary = Binary::serve(&format!("{ADMIN}\nlimits: {{ shutdown_delay: 1h }}")).await;
    let host = origin.authority("a.localhost");
    let mut kept = Client::open(binary.address()).await;
    assert_eq!(kept.get(&origin.url("/x"), &host).await.field("connection"), None);
    assert_eq!(readiness(&binary).await, 200);
    let status = async |more: &[&str]| binary.asked(&[&["status"], more].concat(), &[]).await.code;
    assert_eq!((status(&[]).await, status(&["--ready"]).await), (0, 0));
    binary.signal(libc::SIGTERM);
    within("readiness to end", async {
        while readiness(&binary).await != 503 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!((status(&[]).await, status(&["--ready"]).await), (0, 1), "alive, and not ready");
    let last = kept.get(&origin.url("/x"), &host).await;
    assert_eq!((last.status(), last.field("connection")), (200, Some("close")), "it is told to go elsewhere");
    let mut new = Client::open(binary.address()).await;
    assert_eq!(new.get(&origin.url("/x"), &host).await.status(), 200);
    binary.signal(libc::SIGTERM);
    assert_eq!(binary.ended().await.code(), Some(0), "a second signal ends it at once: {}", binary.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_signal_exits_at_once() {
    let origin = Origin::http(slow).await;
    for second in [libc::SIGTERM, libc::SIGINT] {
        let mut binary = Binary::serve(&format!("{ADMIN}\nlimits: {{ drain_timeout: 1h }}")).await;
        let mut hanging = Client::open(binary.address()).await;
        let before = origin.log.count("/silence");
        hanging.send(get(&origin.url("/silence"), &origin.authority("a.localhost"))).await;
        eventually("the request", || origin.log.count("/silence") > before).await;
        binary.signal(libc::SIGTERM);
        eventually("the first signal", || binary.output().contains("waiting up to 3600 s for active requests")).await;
        assert_eq!(readiness(&binary).await, 503, "the admin address answers until the end");
        binary.signal(second);
        assert_eq!(binary.ended().await.code(), Some(0), "{}", binary.output());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_requests_due_within_drain_timeout_are_sent() {
    let origin = Origin::site("User-agent: *\nCrawl-delay: 1\n").await;
    let mut binary = Binary::serve("limits: { drain_timeout: 20s }").await;
    let host = origin.authority("a.localhost");
    let mut clients = Vec::new();
    for number in 0..4 {
        let mut client = Client::open(binary.address()).await;
        client.send(get(&origin.url(&format!("/{number}")), &host)).await;
        clients.push(client);
    }
    eventually("the first", || !origin.log.pages().is_empty()).await;
    binary.signal(libc::SIGTERM);
    for client in &mut clients {
        assert_eq!(client.response().await.status(), 200);
    }
    assert_eq!(binary.ended().await.code(), Some(0), "{}", binary.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_stream_does_not_delay_shutdown() {
    let binary = Binary::serve(ADMIN).await;
    let address: SocketAddr = binary.admin().parse().unwrap();
    let mut watching = Client::open(address).await;
    watching
        .send(format!(
            "GET /api/v1/decisions HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n\
             Authorization: Bearer {}\r\n\r\n",
            crate::support::ADMIN_TOKEN
        ))
        .await;
    assert_eq!(watching.head().await.status(), 200);
    let mut half = Client::open(address).await;
    half.send("GET /healthz HTTP/1.1\r\nHo").await;
    let start = Instant::now();
    binary.stop().await;
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

/// A lookup in the system's resolver cannot be cancelled, so the process exits without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_name_lookup_does_not_delay_shutdown() {
    let home = tempfile::tempdir().unwrap();
    let [source, library, asked] = ["hangs.c", "hangs.so", "asked"].map(|name| home.path().join(name));
    let hangs = "#include <fcntl.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
        int getaddrinfo(void) { creat(getenv(\"ASKED\"), 0600); for (;;) pause(); }\n";
    std::fs::write(&source, hangs).unwrap();
    // The linker of every build of ours is there.
    let mut cc = tokio::process::Command::new("cc");
    assert!(cc.args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().await.unwrap().success());
    let preload = [("LD_PRELOAD", library.to_str().unwrap()), ("ASKED", asked.to_str().unwrap())];
    let ask = async |binary: &Binary| {
        let mut client = Client::open(binary.address()).await;
        client.send(get("http://hangs.example/", "hangs.example")).await;
        eventually("the look-up", || std::fs::remove_file(&asked).is_ok()).await;
        client
    };
    let mut binary = Binary::serve_with("limits: { drain_timeout: 1h }", &preload).await;
    let _held = ask(&binary).await;
    binary.signal(libc::SIGTERM);
    eventually("the drain", || binary.output().contains("for active requests")).await;
    binary.signal(libc::SIGTERM);
    assert_eq!(binary.ended().await.code(), Some(0), "{}", binary.output());

    let mut binary = Binary::serve_with("limits: { drain_timeout: 200ms }", &preload).await;
    let _held = ask(&binary).await;
    binary.signal(libc::SIGTERM);
    assert_eq!(binary.ended().await.code(), Some(0), "{}", binary.output());
}

/// Such work may occupy all blocking threads for minutes.
#[test]
fn blocking_work_does_not_delay_shutdown() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).max_blocking_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let origin = Origin::site("").await;
        let directory = tempfile::tempdir().unwrap();
        let evidence = directory.path().join("evidence");
        let proxy = Proxy::start(&format!("evidence: {{ directory: '{}' }}", evidence.display())).await;
        assert_eq!(proxy.get(&origin.url("/open")).await.status(), 200);
        let (_until, busy) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || busy.recv());
        proxy.shutdown().await;
        let files = std::fs::read_dir(&evidence).unwrap().map(|file| file.unwrap().path());
        let mut segments = files.filter(|path| path.extension().is_some_and(|it| it == "jsonl"));
        assert!(std::fs::read_to_string(segments.next().unwrap()).unwrap().contains(r#""type":"stop""#));
    });
}
