//! Reloads: applied settings, settings that require a restart, and atomicity.

use crate::support::binary::{Ended, politely, politely_with};
use crate::support::client::get;
use crate::support::{
    ADMIN_TOKEN, Alpn, Binary, Client, Origin, Proxy, Reply, TestCa, at_once, curl, eventually, free_port, test_ca,
    within,
};
use argon2::{Argon2, Params, PasswordHasher};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpStream;

const ADMIN: &str = "admin: { address: '127.0.0.1:0' }";

async fn api(binary: &Binary, arguments: &[&str], path: &str) -> (u16, Value) {
    let got =
        curl(&[arguments, &["--oauth2-bearer", ADMIN_TOKEN, &format!("http://{}{path}", binary.admin())]].concat())
            .await;
    (got.status(), serde_json::from_slice(&got.stdout).unwrap_or_else(|_| Value::String(got.text())))
}

async fn gauge(binary: &Binary, name: &str) -> f64 {
    let (_, Value::String(text)) = api(binary, &[], "/metrics").await else { panic!("no text") };
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect("the gauge is there");
    line.parse().unwrap()
}

fn said(ended: &Ended) -> (i32, &str) {
    (ended.code, ended.stdout.as_str())
}

async fn status(proxy: SocketAddr, origin: &Origin) -> u16 {
    Client::open(proxy).await.get(&origin.url("/x"), &origin.authority("a.localhost")).await.status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_command_lists_changed_keys_and_exits_0() {
    let binary = Binary::serve(ADMIN).await;
    assert_eq!(said(&binary.reload(ADMIN).await), (0, "reloaded: nothing has changed\n"));
    let all = format!(
        "{ADMIN}\nmode: report\npace: {{ max_wait: 5s }}\nlimits: {{ idle_timeout: 5s }}\n\
         intercept: {{ leaf_cache: 7 }}\nstore: {{ memory: 2MiB, disk: 3MiB }}\nlog: {{ level: debug }}"
    );
    let changed = "reloaded: intercept.leaf_cache, limits.idle_timeout, log.level, mode, pace.max_wait, store.disk, store.memory\n";
    assert_eq!(said(&binary.reload(&all).await), (0, changed));
    let (_, config) = api(&binary, &[], "/api/v1/config").await;
    assert_eq!((&config["mode"], &config["store"]["disk"]), (&"report".into(), &"3MiB".into()));
    let (status, told) = api(&binary, &["-X", "POST"], "/api/v1/reload").await;
    assert_eq!((status, &told["reloaded"], &told["changed"]), (200, &true.into(), &Value::Array(Vec::new())));
    binary.stop().await;
}

/// A file that is written in place is empty for a moment; on a full disk, for longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_of_an_emptied_file_is_refused() {
    let binary = Binary::serve(ADMIN).await;
    for (times, empty) in [(1, ""), (2, "# The first comment.\n")] {
        std::fs::write(binary.file(), empty).expect("it is writable");
        binary.signal(libc::SIGHUP);
        eventually("the refusal", || binary.output().matches("politely.yaml is empty").count() == times).await;
    }
    assert_eq!(said(&binary.reload(ADMIN).await), (0, "reloaded: nothing has changed\n"), "all has stayed as it was");
    binary.stop().await;
}

/// A tool that passes secrets through a pipe may never write to it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_does_not_wait_for_a_pipe() {
    let binary = Binary::serve(ADMIN).await;
    std::fs::remove_file(binary.file()).expect("it is there");
    rustix::fs::mkfifoat(rustix::fs::CWD, binary.file(), 0o600.into()).expect("a pipe");
    binary.signal(libc::SIGHUP);
    eventually("the refusal", || binary.output().contains("politely.yaml is a pipe")).await;
    std::fs::remove_file(binary.file()).expect("it is there");
    assert_eq!(said(&binary.reload(ADMIN).await), (0, "reloaded: nothing has changed\n"), "all has stayed as it was");
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_that_was_empty_at_the_start_can_be_reloaded() {
    let binary = Binary::serve_empty(&[("POLITELY_LISTEN", "[{ address: '127.0.0.1:0' }]")]).await;
    let reloaded = |times| binary.output().matches("configuration reloaded").count() == times;
    binary.signal(libc::SIGHUP);
    eventually("a reload", || reloaded(1)).await;
    for (times, text) in [(2, "mode: report\n"), (3, "")] {
        std::fs::write(binary.file(), text).expect("it is writable");
        binary.signal(libc::SIGHUP);
        eventually("another", || reloaded(times)).await;
    }
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_require_a_restart_are_named_and_not_reported_as_reloaded() {
    let binary = Binary::serve(ADMIN).await;
    let at_start = gauge(&binary, "politely_config_last_reload_success_timestamp_seconds").await;
    assert!(at_start > 1.7e9, "{at_start}");
    assert_eq!(gauge(&binary, "politely_config_last_reload_successful").await, 1.0);
    let there = binary.directory().join("elsewhere");
    let yaml = format!(
        "admin: {{ address: '127.0.0.1:1' }}\nmode: report\nfleet: redis://127.0.0.1:1/\n\
         store: {{ directory: {there} }}\npace: {{ key: site }}",
        there = there.display()
    );
    for changed in ["mode", "nothing has changed"] {
        let ended = binary.reload(&yaml).await;
        let named = "needs a restart: admin.address, store.directory, pace.key, fleet.url\n";
        assert_eq!(said(&ended), (1, &*format!("reloaded: {changed}\n{named}")), "{ended:?}");
    }
    let (status, told) = api(&binary, &["-X", "POST"], "/api/v1/reload").await;
    assert_eq!((status, &told["reloaded"], &told["needs_restart"][0]), (200, &false.into(), &"admin.address".into()));
    assert_eq!(gauge(&binary, "politely_config_last_reload_successful").await, 0.0);
    let (_, config) = api(&binary, &[], "/api/v1/config").await;
    assert_eq!((&config["mode"], &config["fleet"]["url"]), (&"report".into(), &Value::Null), "what is in force");
    assert_eq!(config["admin"]["address"], "127.0.0.1:0");
    let (_, status) = api(&binary, &[], "/api/v1/status").await;
    let why = "needs a restart: admin.address, store.directory, pace.key, fleet.url";
    assert_eq!(status["reload_failure"]["error"], why);
    binary.signal(libc::SIGHUP);
    let line = "not reloaded in full: admin.address, store.directory, pace.key, fleet.url needs a restart";
    eventually("the line of SIGHUP", || binary.output().matches(line).count() == 4).await;
    assert!(!binary.output().contains("configuration reloaded"), "{}", binary.output());
    binary.reload(ADMIN).await;
    assert_eq!(gauge(&binary, "politely_config_last_reload_successful").await, 1.0);
    assert!(gauge(&binary, "politely_config_last_reload_success_timestamp_seconds").await >= at_start);
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_of_a_faulty_file_is_refused_and_changes_nothing() {
    let binary = Binary::serve(ADMIN).await;
    let (_, status) = api(&binary, &[], "/api/v1/status").await;
    assert_eq!(status["reload_failure"], Value::Null, "{status}");
    let ended = binary.reload(&format!("{ADMIN}\nmode: report\npace: {{ max_wait: soon }}")).await;
    assert!(ended.code == 1 && ended.stderr.contains("soon") && ended.stderr.contains("not reloaded"), "{ended:?}");
    let (_, status) = api(&binary, &[], "/api/v1/status").await;
    let error = status["reload_failure"]["error"].as_str().expect("it failed");
    assert!(error.contains("politely.yaml:") && error.ends_with(":13: `soon` is not a duration"), "{error:?}");
    let said = binary.asked(&["status"], &[]).await.stdout;
    assert!(
        said.contains("the older configuration is in force (") && said.contains(&format!("Z): {error}\n")),
        "{said}"
    );
    assert_eq!(gauge(&binary, "politely_config_last_reload_successful").await, 0.0);
    let ended = binary.asked(&["reload"], &[]).await;
    assert!(ended.code == 1 && ended.stderr.contains("soon") && ended.stderr.contains("not reloaded"), "{ended:?}");
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("listen: [{{ address: '127.0.0.1:0' }}, {{ address: '{}' }}]", busy.local_addr().unwrap());
    let ended = binary.reload(&format!("{ADMIN}\nmode: report\n{listen}")).await;
    assert!(ended.code == 1 && ended.stderr.contains("cannot listen on"), "{ended:?}");
    let (_, config) = api(&binary, &[], "/api/v1/config").await;
    assert_eq!((&config["mode"], config["listen"].as_array().unwrap().len()), (&"enforce".into(), 1));
    let said = binary.asked(&["status"], &[]).await.stdout;
    assert!(said.contains("in force (") && said.contains("Z): cannot listen on"), "{said}");
    binary.reload(ADMIN).await;
    let said = binary.asked(&["status"], &[]).await.stdout;
    assert!(!said.contains("in force"), "{said}");
    assert_eq!(politely(&["reload", "--admin", "127.0.0.1:1"]).await.code, 2);
    binary.stop().await;
}

/// The file may have changed since, and the environment may differ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_find_the_running_proxy_regardless_of_file_and_environment() {
    let binary = Binary::serve(ADMIN).await;
    let elsewhere = binary.directory().join("elsewhere");
    let strange = [("POLITELY_MODE", "nonsense"), ("POLITELY_STORE__DIRECTORY", elsewhere.to_str().unwrap())];
    for variables in [&[][..], &strange] {
        let ended = binary.asked(&["status"], variables).await;
        assert!(ended.code == 0 && ended.stdout.contains(&binary.admin()), "{ended:?}");
    }
    let token = elsewhere.with_extension("token");
    std::fs::write(&token, "another").unwrap();
    let other = format!("admin: {{ address: '127.0.0.1:1', token_file: {} }}", token.display());
    binary.rewrite(&format!("{other}\nmode: report"));
    let ended = binary.asked(&["reload"], &strange).await;
    assert_eq!(said(&ended), (1, "reloaded: mode\nneeds a restart: admin.address, admin.token_file\n"), "{ended:?}");
    assert_eq!(binary.asked(&["refresh", "http://127.0.0.1:1"], &[]).await.code, 1, "its answer: unreachable");
    let other_file = politely(&["status", "--config", token.to_str().unwrap()]).await;
    assert_eq!(other_file.code, 2, "{other_file:?}");

    // Killed, it cannot tidy up behind it.
    let faulty = "pace: { max_wait: soon }";
    binary.rewrite(faulty);
    let directory = binary.kill().await;
    let [file, state] = [directory.path().join("politely.yaml"), directory.path().join("state")];
    assert_eq!(std::fs::read_dir(state.join("running")).unwrap().count(), 1);
    let gone =
        politely_with(&["reload", "--config", file.to_str().unwrap()], &[("STATE_DIRECTORY", state.to_str().unwrap())])
            .await;
    assert_eq!(gone.code, 2, "{gone:?}");
    assert!(
        gone.stderr.contains("soon") && gone.stderr.contains("no running proxy was found for this file"),
        "{gone:?}"
    );
    let binary = Binary::serve_in(directory, ADMIN).await;
    assert_eq!(binary.asked(&["status"], &[]).await.code, 0);
    let directory = binary.stop().await;
    assert_eq!(std::fs::read_dir(directory.path().join("state/running")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_opens_and_closes_listeners() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/slow" => Reply::text("done").after(Duration::from_millis(700)),
        _ => Reply::text(""),
    })
    .await;
    let binary = Binary::serve(ADMIN).await;
    let first = binary.address();
    let both = format!("{ADMIN}\nlisten: [{{ address: '127.0.0.1:0' }}, {{ address: '127.0.0.2:0' }}]");
    assert_eq!(said(&binary.reload(&both).await), (0, "reloaded: listen\n"));
    eventually("the line of the second", || binary.listening().len() == 2).await;
    let [_, second] = binary.listening()[..] else { panic!("{}", binary.output()) };
    assert_eq!((status(first, &origin).await, status(second, &origin).await), (200, 200));
    let mut idle = Client::open(first).await;
    assert_eq!(idle.get(&origin.url("/x"), &origin.authority("a.localhost")).await.status(), 200);
    let mut busy = Client::open(first).await;
    busy.send(get(&origin.url("/slow"), &origin.authority("a.localhost"))).await;
    eventually("the request", || origin.log.count("/slow") == 1).await;
    let one = format!("{ADMIN}\nlisten: [{{ address: '127.0.0.2:0' }}]");
    assert_eq!(said(&binary.reload(&one).await), (0, "reloaded: listen\n"));
    within("the first to be closed", async {
        while TcpStream::connect(first).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(idle.rest().await.is_empty(), "a connection that is idle ends");
    assert_eq!(busy.response().await.text(), "done", "what is under way does not");
    assert!(within("its end", busy.rest()).await.is_empty());
    assert_eq!(status(second, &origin).await, 200);
    let (_, told) = api(&binary, &[], "/api/v1/status").await;
    assert_eq!(told["listen"], serde_json::json!([second.to_string()]));
    let pac = curl(&[&format!("http://{}/proxy.pac", binary.admin())]).await;
    assert!(pac.text().contains(&second.to_string()), "{}", pac.text());
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listener_can_be_widened_and_narrowed_on_the_same_port() {
    let origin = Origin::site("").await;
    let port = free_port();
    let narrow = format!("{ADMIN}\nlisten: [{{ address: '127.0.0.1:{port}' }}]");
    let wide = format!("{ADMIN}\nlisten: [{{ address: '0.0.0.0:{port}' }}]\naccess: {{ clients: [127.0.0.0/8] }}");
    let binary = Binary::serve(&narrow).await;
    let elsewhere = SocketAddr::from(([127, 0, 0, 9], port));
    for _ in 0..3 {
        let ended = binary.reload(&wide).await;
        assert_eq!(said(&ended), (0, "reloaded: access.clients, listen\n"), "{ended:?}");
        assert_eq!((status(binary.address(), &origin).await, status(elsewhere, &origin).await), (200, 200));
        let ended = binary.reload(&narrow).await;
        assert_eq!(said(&ended), (0, "reloaded: access.clients, listen\n"), "{ended:?}");
        assert_eq!(status(binary.address(), &origin).await, 200);
        within("the wide one to be closed", async {
            while TcpStream::connect(elsewhere).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
    binary.stop().await;
}

/// The file names no address: only the inherited socket shows that the listener is public.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_rules_cannot_be_removed_while_a_listener_is_public() {
    let origin = Origin::site("").await;
    let socket = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let here = SocketAddr::from(([127, 0, 0, 1], socket.local_addr().unwrap().port()));
    let open = format!("{ADMIN}\nlisten: [{{ address: fd:politely }}]");
    let guarded = format!("{open}\naccess: {{ clients: [192.0.2.0/24] }}");
    let binary = Binary::serve_on(&socket, &guarded).await;
    assert_eq!(status(here, &origin).await, 403);
    let ended = binary.reload(&open).await;
    assert!(ended.code == 1 && ended.stderr.contains("could use this proxy"), "{ended:?}");
    assert_eq!(status(here, &origin).await, 403, "all stays as it was");
    // The inherited socket can be given up and taken again.
    let other = format!("{ADMIN}\nlisten: [{{ address: '127.0.0.1:0' }}]");
    assert_eq!(binary.reload(&other).await.code, 0);
    eventually("its line", || binary.listening().len() == 2).await;
    assert_eq!(status(*binary.listening().last().unwrap(), &origin).await, 200);
    assert_eq!(binary.reload(&guarded).await.code, 0);
    assert_eq!(status(here, &origin).await, 403);
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_applies_renewed_certificates_and_tls_settings() {
    let origin = Origin::site("").await;
    let files = tempfile::tempdir().unwrap();
    let (certificate, key) = (files.path().join("proxy.pem"), files.path().join("proxy.key"));
    let renew = || {
        let (chain, secret) = test_ca().pem_pair("localhost");
        std::fs::write(&certificate, chain).unwrap();
        std::fs::write(&key, secret).unwrap();
    };
    renew();
    let tls = |more: &str| {
        let (certificate, key) = (certificate.display(), key.display());
        format!(
            "{ADMIN}\nlisten: [{{ address: '127.0.0.1:0', tls: {{ certificate: {certificate}, key: {key}{more} }} }}]"
        )
    };
    let binary = Binary::serve(&tls("")).await;
    let shown = async || {
        let client = Client::open(binary.address()).await.tls("localhost", test_ca().pem_file(), &[b"http/1.1"]).await;
        client.peer_certificates()
    };
    let before = shown().await;
    renew();
    let ended = binary.reload(&tls("")).await;
    assert_eq!(said(&ended), (0, "reloaded: listen[0].tls.certificate, listen[0].tls.key\n"), "{ended:?}");
    assert_ne!(shown().await, before);
    let mut kept = Client::open(binary.address()).await.tls("localhost", test_ca().pem_file(), &[b"http/1.1"]).await;
    assert_eq!(kept.get(&origin.url("/x"), &origin.authority("a.localhost")).await.status(), 200);
    let clients = TestCa::new("clients");
    let ended = binary.reload(&tls(&format!(", client_ca: {}", clients.pem_file().display()))).await;
    assert_eq!(said(&ended), (0, "reloaded: listen\n"), "{ended:?}");
    let mut nobody = Client::open(binary.address()).await.tls("localhost", test_ca().pem_file(), &[b"http/1.1"]).await;
    let _ = nobody.try_send(get(&origin.url("/x"), &origin.authority("a.localhost"))).await;
    assert!(nobody.try_head().await.is_none(), "a certificate is wanted now");
    assert!(kept.try_head().await.is_none(), "also of who has shown none before");
    std::fs::write(&key, "no key").unwrap();
    let ended = binary.reload(&tls("")).await;
    assert!(ended.code == 1 && ended.stderr.contains("proxy.key"), "{ended:?}");
    assert_eq!(binary.reload(ADMIN).await.code, 0);
    assert_eq!(status(binary.address(), &origin).await, 200, "without TLS");
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_applies_changed_egress_ca_file() {
    let origin = Origin::https(Alpn::Both, |_| Reply::text("")).await;
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("roots.pem");
    let other = TestCa::new("another authority");
    std::fs::copy(other.pem_file(), &file).unwrap();
    let yaml = format!("{ADMIN}\negress: {{ ca_file: {} }}", file.display());
    let binary = Binary::serve(&yaml).await;
    let asked = async || binary.curl(&[&origin.url("/x")]).await.status();
    // robots.txt cannot be had, so it is 503 and not 502.
    assert_eq!(asked().await, 503);
    std::fs::copy(test_ca().pem_file(), &file).unwrap();
    assert_eq!(said(&binary.reload(&yaml).await), (0, "reloaded: egress.ca_file\n"));
    let token = binary.directory().join("store/admin-token");
    let token = token.to_str().unwrap();
    politely(&["refresh", &origin.url(""), "--admin", &binary.admin(), "--token-file", token]).await;
    assert_eq!(asked().await, 200);
    let opened = gauge(&binary, "politely_origin_connects_total{result=\"ok\"}").await;
    std::fs::copy(other.pem_file(), &file).unwrap();
    assert_eq!(said(&binary.reload(&yaml).await), (0, "reloaded: egress.ca_file\n"));
    assert_eq!(asked().await, 502, "its robots.txt is still good, its certificate is not");
    assert!(opened > 0.0, "{opened}");
    assert_eq!(gauge(&binary, "politely_origin_connects_total{result=\"ok\"}").await, opened, "counts go on");
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_removing_a_user_ends_her_tunnels() {
    let hash = Argon2::from(Params::new(8, 1, 1, None).unwrap()).hash_password(b"alice").unwrap().to_string();
    let users = |alice: &str| format!("{ADMIN}\naccess: {{ users: [{{ name: {alice}, password: '{hash}' }}] }}");
    let origin = Origin::https(Alpn::Both, |_| Reply::text("")).await;
    let binary = Binary::serve(&users("alice")).await;
    let host = origin.authority("a.localhost");
    let credentials = BASE64_STANDARD.encode("alice:alice");
    let tunnel = async || {
        let mut client = Client::open(binary.address()).await;
        let connect =
            format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic {credentials}\r\n\r\n");
        client.send(connect).await;
        assert_eq!(client.head().await.status(), 200);
        client
    };
    let mut h1 = tunnel().await.tls("a.localhost", &binary.ca_pem_path(), &[b"http/1.1"]).await;
    let h2 = tunnel().await.tls("a.localhost", &binary.ca_pem_path(), &[b"h2"]).await;
    let h2 = crate::support::H2Client::over(h2).await;
    let url = origin.url("/x");
    assert_eq!((h1.get("/x", &host).await.status(), h2.get(&url).await.status()), (200, 200));
    assert_eq!(binary.reload(&format!("{}\nmode: report", users("alice"))).await.code, 0);
    assert_eq!((h1.get("/x", &host).await.status(), h2.get(&url).await.status()), (200, 200), "she is in it still");
    assert_eq!(binary.reload(&users("bob")).await.code, 0);
    assert_eq!((h1.get("/x", &host).await.status(), h2.get(&url).await.status()), (403, 403));
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloaded_max_connections_applies_at_once() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/held" => Reply::silence(),
        _ => Reply::text("page"),
    })
    .await;
    let binary = Binary::serve(&format!("{ADMIN}\nlimits: {{ max_connections: 1 }}")).await;
    let mut first = Client::open(binary.address()).await;
    // Busy: an idle one would make room.
    first.send(get(&origin.url("/held"), &origin.authority("a.localhost"))).await;
    eventually("its request", || origin.log.count("/held") == 1).await;
    let mut second = Client::open(binary.address()).await;
    second.send(get(&origin.url("/x"), &origin.authority("a.localhost"))).await;
    assert!(second.glance(Duration::from_millis(200)).await.is_empty(), "it waits for room");
    assert_eq!(said(&binary.reload(ADMIN).await), (0, "reloaded: limits.max_connections\n"));
    assert_eq!(second.response().await.status(), 200);
    drop(first);
    binary.stop().await;
}

/// Many reloads run at once, by signal and by command: in the end, the last file is in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_reloads_do_not_interleave() {
    let binary = Binary::serve(ADMIN).await;
    let file = binary.directory().join("politely.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let write = |number: usize| {
        let yaml = format!("{text}pace: {{ queue: {number} }}\nlimits: {{ max_connections: {number} }}\n");
        let new = Path::new(&file).with_extension("new");
        std::fs::write(&new, yaml).unwrap();
        std::fs::rename(new, &file).unwrap();
    };
    write(1000);
    api(&binary, &["-X", "POST"], "/api/v1/reload").await;
    for number in 1001..1040 {
        write(number);
        binary.signal(libc::SIGHUP);
        let ((status, _), (_, config)) =
            tokio::join!(api(&binary, &["-X", "POST"], "/api/v1/reload"), api(&binary, &[], "/api/v1/config"));
        assert_eq!(status, 200);
        assert_eq!(config["pace"]["queue"], config["limits"]["max_connections"]);
    }
    let (_, config) = api(&binary, &[], "/api/v1/config").await;
    assert_eq!(config["pace"]["queue"], 1039);
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloaded_egress_rules_apply_to_held_requests() {
    at_once(["egress: { methods: [HEAD] }", "egress: { allow: [192.0.2.0/24] }"].map(|forbids| async move {
        let origin = Origin::site("User-agent: *\nCrawl-delay: 3\n").await;
        let proxy = Proxy::start("").await;
        let [first, second] = ["/a", "/b"];
        assert_eq!(proxy.get(&origin.url(first)).await.status(), 200);
        let mut held = proxy.client().await;
        held.send(get(&origin.url(second), &origin.authority("a.localhost"))).await;
        eventually("it is held", || proxy.waiting() == 1).await;
        proxy.reload(forbids).unwrap();
        let refused = held.response().await;
        assert!(refused.status() == 403 && refused.text().contains("egress-denied"), "{}", refused.text());
        assert_eq!((origin.log.count(first), origin.log.count(second)), (1, 0));
    }))
    .await;
}

/// The files with the users may be lost: a volume is not mounted, or a deployment has emptied a directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn require_user_without_users_refuses_everybody() {
    let (origin, directory) = (Origin::site("").await, tempfile::tempdir().unwrap());
    let team = directory.path().join("conf.d/team.yaml");
    let hash = Argon2::from(Params::new(8, 1, 1, None).unwrap()).hash_password(b"alice").unwrap().to_string();
    let users = format!("access: {{ users: [{{ name: alice, password: '{hash}' }}] }}");
    std::fs::create_dir(team.parent().unwrap()).unwrap();
    std::fs::write(&team, &users).unwrap();
    let main = |access: &str| format!("{ADMIN}\ninclude: [conf.d]\naccess: {access}");
    let required = main("{ require_user: true, clients: [127.0.0.0/8] }");
    let binary = Binary::serve_in(directory, &required).await;
    let (host, url) = (origin.authority("a.localhost"), origin.url("/x"));
    let header = format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode("alice:alice"));
    let credentials = header.as_str();
    let asked = async |credentials: &str| {
        let mut client = Client::open(binary.address()).await;
        client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{credentials}\r\n")).await;
        client.response().await.status()
    };
    let by_socks = async || {
        let through = format!("socks5h://{}", binary.address());
        curl(&["-x", &through, &url]).await.code == 0
    };
    assert_eq!((asked(credentials).await, asked("").await), (200, 407));
    let mut tunnel = Client::open(binary.address()).await;
    tunnel.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{credentials}\r\n")).await;
    assert_eq!(tunnel.head().await.status(), 200);
    assert_eq!(tunnel.get("/x", &host).await.status(), 200);

    std::fs::remove_file(&team).unwrap();
    let warning = "nobody is let in: there is no user, and `access.require_user` is true";
    let ended = binary.reload(&required).await;
    let (first, rest) = ended.stdout.split_once('\n').unwrap();
    assert_eq!((ended.code, first), (0, "reloaded: access.users"), "{ended:?}");
    assert!(rest.starts_with(&format!("warning: {warning}\n  hint: ")), "{ended:?}");
    eventually("its line", || binary.output().contains(warning)).await;
    assert_eq!((asked(credentials).await, asked("").await), (407, 407));
    assert_eq!(tunnel.get("/x", &host).await.status(), 403);
    assert!(!by_socks().await, "SOCKS");

    // Without `require_user`, any client that may connect may use the proxy.
    assert_eq!(binary.reload(&main("{ clients: [127.0.0.0/8] }")).await.code, 0);
    assert_eq!((asked("").await, by_socks().await), (200, true));
    std::fs::write(&team, &users).unwrap();
    assert_eq!(said(&binary.reload(&required).await), (0, "reloaded: access.require_user, access.users\n"));
    assert_eq!((asked(credentials).await, asked("").await), (200, 407));
    binary.stop().await;
}
