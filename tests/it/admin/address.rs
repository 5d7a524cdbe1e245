//! The admin address: what it says, what it does, and whom it refuses.

use crate::life::{KEEP_OUT, origin};
use crate::support::binary::{politely, politely_on_a_terminal, politely_with};
use crate::support::{ADMIN_TOKEN, Binary, Client, Origin, Proxy, Reply, Response};
use serde_json::Value;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub const ON: &str = "admin: { address: '127.0.0.1:0' }";

pub async fn asked(address: SocketAddr, method: &str, target: &str, fields: &str) -> Response {
    let mut client = Client::open(address).await;
    let host =
        if fields.to_ascii_lowercase().contains("host:") { String::new() } else { format!("Host: {address}\r\n") };
    let token = if fields.contains("Authorization:") { String::new() } else { shown(ADMIN_TOKEN) };
    client.send(format!("{method} {target} HTTP/1.1\r\n{host}{token}{fields}\r\n")).await;
    client.response_to(method).await
}

fn shown(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

pub async fn json(address: SocketAddr, method: &str, target: &str) -> Value {
    let response = asked(address, method, target, "").await;
    serde_json::from_slice(&response.body).unwrap_or_else(|_| panic!("{target}: {}", response.text()))
}

/// Waits until both requests are counted: that is after the end of the answer, which the client sees a moment earlier.
async fn counted(admin: SocketAddr) {
    while json(admin, "GET", "/api/v1/status").await["requests"]["forwarded"] == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// docs/metrics.md: an item begins with name, type and labels.
fn every_sample_has_the_labels_that_its_page_names(samples: &str) {
    let page = include_str!("../../../docs/metrics.md");
    let known = |name: &str| {
        let item = page.lines().find_map(|line| line.strip_prefix(&format!("- `{name}` (")));
        let labels = item.and_then(|item| item.split("): ").next())?;
        Some(labels.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
    };
    for sample in samples.lines().filter(|line| !line.starts_with('#')) {
        let (name, labels) = sample.split_once('{').unwrap_or((sample.split(' ').next().expect("a name"), ""));
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| known(name.strip_suffix(end)?));
        let known = known(name).or(of_histogram).unwrap_or_else(|| panic!("{name} has no row"));
        let labels = labels.split('"').step_by(2).filter_map(|label| label.trim_start_matches(',').strip_suffix('='));
        for label in labels.filter(|label| *label != "le") {
            assert!(known.iter().any(|known| known == label), "{label} of {name} is not in its row");
        }
    }
}

pub fn escaped(authority: &str) -> String {
    authority.replace(':', "%3A").replace('/', "%2F")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_shows_mode_listeners_counters_and_hosts() {
    let origin = origin(|_| Reply::text(format!("{KEEP_OUT}Crawl-delay: 0.5\nSitemap: http://a/s\n"))).await;
    let proxy = Proxy::start(&format!("{ON}\nhosts: {{ denied.example: {{ intercept: deny }} }}")).await;
    let admin = proxy.admin_address();
    assert_eq!(asked(admin, "GET", "/healthz", "").await.text(), "ok\n");
    assert_eq!(asked(admin, "GET", "/readyz", "").await.status(), 200);
    assert_eq!(proxy.get(&origin.url("/private")).await.status(), 403);
    assert_eq!(proxy.get(&origin.url("/open")).await.status(), 200);

    counted(admin).await;
    let status = json(admin, "GET", "/api/v1/status").await;
    assert_eq!(status["listen"][0], proxy.address().to_string());
    assert_eq!((&status["mode"], &status["requests"]["forwarded"]), (&"enforce".into(), &1.into()));
    assert_eq!(status["requests"]["refused"]["robots-disallowed"], 1);
    assert_eq!((&status["robots"]["authorities"], &status["robots"]["fetched"]), (&1.into(), &1.into()));
    let authority = origin.url("");
    assert_eq!(status["authorities"][0]["authority"], authority);

    let told = json(admin, "GET", &format!("/api/v1/authorities/{}", escaped(&authority))).await;
    assert_eq!((&told["access"], &told["status"], &told["failures"]), (&"rules".into(), &200.into(), &0.into()));
    assert!(told["robots_txt"].as_str().is_some_and(|text| text.starts_with(KEEP_OUT)), "{told}");
    assert_eq!(told["sitemaps"][0], "http://a/s");
    assert!(told["expires_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{told}");
    assert_eq!(json(admin, "GET", "/api/v1/authorities").await[0]["authority"], authority);
    assert_eq!(asked(admin, "GET", "/api/v1/authorities/unknown.example", "").await.status(), 404);
    assert_eq!(asked(admin, "GET", "/api/v1/authorities/a%20b", "").await.status(), 400);

    let why = format!("/api/v1/explain?url={}&product_token=ExampleBot", origin.url("/private?x"));
    let why = json(admin, "GET", &why).await;
    assert_eq!((&why["allowed"], &why["rule"]["line"], &why["crawl_delay"]), (&false.into(), &2.into(), &0.5.into()));
    let denied = json(admin, "GET", "/api/v1/explain?url=https://denied.example/").await;
    assert_eq!((&denied["allowed"], &denied["reason"]), (&false.into(), &"operator-denied".into()));
    assert_eq!(asked(admin, "GET", "/api/v1/explain?url=x", "").await.status(), 400);
    assert_eq!(asked(admin, "GET", "/api/v1/explain", "").await.status(), 400);
    assert_eq!(asked(admin, "POST", "/api/v1/reload", "").await.status(), 409, "it has no file");
    assert_eq!(asked(admin, "GET", "/nowhere", "").await.status(), 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_and_client_setup_files_are_served() {
    let origin = origin(|_| Reply::text(KEEP_OUT)).await;
    let proxy = Proxy::start(ON).await;
    let admin = proxy.admin_address();
    for target in ["/private", "/private", "/open"] {
        proxy.get(&origin.url(target)).await;
    }
    counted(admin).await;
    let metrics = asked(admin, "GET", "/metrics", "").await;
    assert_eq!(metrics.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        "politely_requests_total{outcome=\"robots-disallowed\"} 2",
        "politely_requests_total{outcome=\"forwarded\"} 1",
        "politely_robots_fetches_total{result=\"answered\"} 1",
        "politely_authorities 1",
        "politely_waiting 0",
    ] {
        assert!(metrics.text().lines().any(|told| told == line), "{line}: {}", metrics.text());
    }
    every_sample_has_the_labels_that_its_page_names(&metrics.text());
    let open = asked(admin, "GET", "/metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n").await;
    assert!(open.field("content-type").is_some_and(|kind| kind.starts_with("application/openmetrics-text")));
    assert!(open.text().ends_with("# EOF\n") && open.text().contains("# TYPE politely_requests counter\n"));
    assert!(metrics.text().contains("# TYPE politely_requests_total counter\n") && !metrics.text().contains("# EOF"));
    let pem = std::fs::read_to_string(proxy.ca_pem_path()).expect("the authority is made at the start");
    assert_eq!(asked(admin, "GET", "/ca.pem", "").await.text(), pem);
    let pac = asked(admin, "GET", "/proxy.pac", "").await.text();
    assert!(pac.contains(&format!("PROXY {}", proxy.address())), "{pac}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_fetches_again_at_once() {
    let (changed, fetches) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (now, count) = (changed.clone(), fetches.clone());
    let origin = origin(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        if now.load(Ordering::SeqCst) { Reply::text("") } else { Reply::text(KEEP_OUT) }
    })
    .await;
    let proxy = Proxy::start(ON).await;
    assert_eq!(proxy.get(&origin.url("/private")).await.status(), 403);
    changed.store(true, Ordering::SeqCst);
    assert_eq!(proxy.get(&origin.url("/private")).await.status(), 403);
    let admin = proxy.admin_address();
    let target = format!("/api/v1/authorities/{}/refresh", escaped(&origin.url("")));
    assert_eq!(asked(admin, "GET", &target, "").await.status(), 405, "looking changes nothing");
    let told = json(admin, "POST", &target).await;
    assert_eq!((&told["access"], &told["robots_txt"]), (&"rules".into(), &"".into()));
    assert_eq!(proxy.get(&origin.url("/private")).await.status(), 200);
    assert_eq!(fetches.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refresh_refused_by_egress_does_not_mark_the_site_unreachable() {
    let origin = origin(|_| Reply::text(KEEP_OUT)).await;
    let proxy = Proxy::start(&format!("{ON}\negress: {{ deny: [127.0.0.0/8, '::1/128'] }}")).await;
    let target = format!("/api/v1/authorities/{}/refresh", escaped(&origin.url("")));
    let told = asked(proxy.admin_address(), "POST", &target, "").await;
    assert!(told.status() == 503 && told.text().contains("egress"), "{}", told.text());
    proxy.reload(ON).unwrap();
    assert_eq!(proxy.get(&origin.url("/open")).await.status(), 200);
    assert_eq!(origin.log.count("/robots.txt"), 1);
}

/// Also with the operator's own token: a page of another site may have learnt it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_from_other_origins_and_with_unknown_host_names_are_refused() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), ADMIN_TOKEN).expect("it is writable");
    let file = file.path().display();
    for (yaml, named) in [
        (ON.to_owned(), 421),
        (format!("admin: {{ address: '127.0.0.1:0', token_file: '{file}' }}"), 421),
        (format!("admin: {{ address: '127.0.0.1:0', token_file: '{file}', hosts: [proxy.example] }}"), 200),
    ] {
        let proxy = Proxy::start(&yaml).await;
        let admin = proxy.admin_address();
        for (fields, status) in [
            ("Host: localhost\r\n".to_owned(), 200),
            ("Host: [::1]:80\r\n".to_owned(), 200),
            (format!("Host: {admin}\r\nOrigin: http://{admin}\r\nSec-Fetch-Site: same-origin\r\n"), 200),
            ("Host: proxy.example\r\n".to_owned(), named),
            ("Host: Proxy.Example:8443\r\nOrigin: https://proxy.example:8443\r\n".to_owned(), named),
            ("Host: a.proxy.example\r\n".to_owned(), 421),
            ("Host: evil.example\r\n".to_owned(), 421),
            (format!("Host: evil.example:{}\r\n", admin.port()), 421),
            ("Host: localhost\r\nHost: evil.example\r\n".to_owned(), 400),
            (format!("Host: {admin}\r\nOrigin: http://evil.example\r\n"), 403),
            (format!("Host: {admin}\r\nOrigin: null\r\n"), 403),
            (format!("Host: {admin}\r\nSec-Fetch-Site: cross-site\r\n"), 403),
            (format!("Host: {admin}\r\nSec-Fetch-Site: same-site\r\n"), 403),
        ] {
            for target in ["/healthz", "/api/v1/status", "/ca.pem"] {
                let got = asked(admin, "GET", target, &fields).await;
                let status = if status == 400 && got.status() == 421 { 421 } else { status };
                assert_eq!(got.status(), status, "{target} {fields} {yaml}");
                assert!(status != 421 || got.text().contains("`admin.hosts`"), "{}", got.text());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_can_add_admin_hosts_but_not_a_wildcard_for_all() {
    let proxy = Binary::serve(ON).await;
    let admin: SocketAddr = proxy.admin().parse().expect("an address");
    let named = "Host: proxy.example\r\n";
    assert_eq!(asked(admin, "GET", "/healthz", named).await.status(), 421);
    let reloaded = proxy.reload("admin: { address: '127.0.0.1:0', hosts: ['*.example'] }").await;
    assert_eq!((reloaded.code, reloaded.stdout.as_str()), (0, "reloaded: admin.hosts\n"), "{reloaded:?}");
    assert_eq!(asked(admin, "GET", "/healthz", named).await.status(), 200);
    let reloaded = proxy.reload("admin: { address: '127.0.0.1:0', hosts: ['*'] }").await;
    assert!(reloaded.code != 0 && reloaded.stderr.contains("DNS rebinding"), "{reloaded:?}");
    assert_eq!(asked(admin, "GET", "/healthz", "Host: evil.test\r\n").await.status(), 421);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_requires_the_token() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), "s3cret\n").expect("it is writable");
    let yaml = format!("admin: {{ address: '127.0.0.1:0', token_file: '{}' }}", file.path().display());
    let proxy = Proxy::start(&yaml).await;
    let admin = proxy.admin_address();
    for (fields, status) in [
        ("Authorization:\r\n", 401),
        ("Authorization: Bearer s3cre\r\n", 401),
        ("Authorization: Bearer s3cret\r\n", 200),
    ] {
        for target in ["/api/v1/status", "/api/v1/decisions", "/api/v1/held", "/api/v1/config", "/api/v1/authorities"] {
            assert_eq!(asked(admin, "GET", target, fields).await.status(), status, "{target} {fields}");
        }
        for target in ["/", "/healthz", "/readyz", "/metrics", "/ca.pem", "/proxy.pac"] {
            assert_eq!(asked(admin, "GET", target, fields).await.status(), 200, "on loopback: {target} {fields}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_other_interfaces_only_health_is_shown_without_the_token() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), "s3cret\n").expect("it is writable");
    let yaml = format!("admin: {{ address: '0.0.0.0:0', token_file: '{}' }}", file.path().display());
    let proxy = Proxy::start(&yaml).await;
    let admin = SocketAddr::from(([127, 0, 0, 1], proxy.admin_address().port()));
    for (target, status) in
        [("/metrics", 401), ("/ca.pem", 401), ("/proxy.pac", 401), ("/healthz", 200), ("/readyz", 200)]
    {
        assert_eq!(asked(admin, "GET", target, "Authorization:\r\n").await.status(), status, "{target}");
        assert_eq!(asked(admin, "GET", target, &shown("s3cret")).await.status(), 200, "{target}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_admin_token_is_created_and_found_by_commands() {
    let store = tempfile::tempdir().expect("a temporary directory");
    let path = store.path().join("new");
    let at = path.to_str().expect("UTF-8");
    let proxy = Binary::serve(&format!("{ON}\nstore: {{ directory: '{at}' }}")).await;
    crate::support::eventually("its address", || proxy.output().contains("admin address")).await;
    let admin = admin_of(&proxy).to_string();
    let token = std::fs::read_to_string(path.join("admin-token")).expect("it is made");
    assert_ne!(token.trim(), ADMIN_TOKEN);
    let mode = std::fs::metadata(path.join("admin-token")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let told = politely_with(&["status", "--admin", &admin], &[("POLITELY_STORE__DIRECTORY", at)]).await;
    assert!(told.code == 0 && told.stdout.ends_with(&format!("dashboard: http://{admin}/\n")), "{told:?}");
    assert!(!told.stdout.contains(token.trim()), "what is no terminal may be a file");
    let stranger = politely(&["status", "--admin", &admin]).await;
    assert!(stranger.code == 2 && stranger.stderr.contains("--token-file"), "{stranger:?}");
    let shown = politely_on_a_terminal(&["status", "--admin", &admin], &[("POLITELY_STORE__DIRECTORY", at)]).await;
    assert!(shown.stdout.contains(&format!("dashboard: http://{admin}/#{}", token.trim())), "{shown:?}");
    assert!(!proxy.output().contains(token.trim()));
    proxy.stop().await;
}

/// A directory with the token's file name prevents storing it, like a full disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_could_not_be_stored_is_made_at_a_reload() {
    let store = tempfile::tempdir().expect("a temporary directory");
    let file = store.path().join("admin-token");
    std::fs::create_dir(&file).expect("it is writable");
    let yaml = format!("{ON}\nstore: {{ directory: '{}' }}", store.path().display());
    let proxy = Proxy::start(&yaml).await;
    let admin = proxy.admin_address();
    assert_eq!(asked(admin, "GET", "/api/v1/status", "").await.status(), 401);
    proxy.reload(&yaml).expect("it is valid");
    std::fs::remove_dir(&file).expect("it is empty");
    proxy.reload(&yaml).expect("it is valid");
    let token = std::fs::read_to_string(&file).expect("it is made");
    assert_eq!(asked(admin, "GET", "/api/v1/status", &shown(token.trim())).await.status(), 200);
    proxy.reload(&yaml).expect("it is valid");
    assert_eq!(asked(admin, "GET", "/api/v1/status", &shown(token.trim())).await.status(), 200);
}

/// While the proxy does not run, any user of the machine can take its port.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_do_not_send_the_token_to_another_users_process() {
    use std::io::{Read, Write};
    // SAFETY: it takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root can act as another user");
    }
    let store = tempfile::tempdir().expect("a temporary directory");
    let at = store.path().to_str().expect("UTF-8");
    std::fs::write(store.path().join("admin-token"), "s3cret\n").expect("it is writable");
    for (user, is_sent) in [(61184, false), (0, true)] {
        let listening = std::thread::spawn(move || {
            // SAFETY: it takes an integer, and holds for this thread alone.
            unsafe { libc::setfsuid(user) };
            std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free")
        });
        let listener = listening.join().expect("it listens");
        let admin = listener.local_addr().expect("it is bound").to_string();
        let heard = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("it is asked");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("a head");
                head.push(byte[0]);
            }
            stream.write_all(b"HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\n{}").expect("it reads");
            String::from_utf8(head).expect("ASCII")
        });
        let told = politely_with(&["status", "--admin", &admin], &[("POLITELY_STORE__DIRECTORY", at)]).await;
        assert_eq!(heard.join().expect("it was asked").contains("s3cret"), is_sent, "{user}");
        let says = told.stderr.contains("is not sent to a process of the user 61184");
        assert_eq!((told.code, says), (2, !is_sent), "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxied_request_to_the_admin_address_is_refused_as_a_loop() {
    let proxy = Proxy::start(ON).await;
    let refused = proxy.get(&format!("http://{}/api/v1/status", proxy.admin_address())).await;
    assert_eq!(refused.status(), 508, "{}", refused.text());
}

pub fn admin_of(proxy: &Binary) -> SocketAddr {
    let output = proxy.output();
    let told = output.split("admin address http://").nth(1).expect("serve tells it");
    told.split('/').next().and_then(|address| address.parse().ok()).expect("an address")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_and_refresh_commands_use_the_admin_api() {
    let origin = origin(|_| Reply::text(KEEP_OUT)).await;
    let proxy = Binary::serve(ON).await;
    crate::support::eventually("its address", || proxy.output().contains("admin address")).await;
    let admin = admin_of(&proxy).to_string();
    let url = origin.url("/private");
    assert_eq!(Client::open(proxy.address()).await.get(&url, &origin.authority("a.localhost")).await.status(), 403);
    let file = proxy.directory().join("store/admin-token");
    let with_token = ["--admin", &admin, "--token-file", file.to_str().expect("UTF-8")];
    let ask = async |command: &[&str]| politely(&[command, &with_token].concat()).await;
    let status = ask(&["status"]).await;
    assert_eq!(status.code, 0, "{status:?}");
    assert!(status.stdout.contains("1 robots-disallowed") && status.stdout.contains(&origin.url("")), "{status:?}");
    let status = ask(&["status", "--format", "json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&status.stdout).expect("JSON")["mode"], "enforce");
    let refresh = ask(&["refresh", &origin.url("")]).await;
    assert_eq!((refresh.code, origin.log.count("/robots.txt")), (0, 2), "{refresh:?}");
    let nobody = ask(&["refresh", "http://127.0.0.1:1"]).await;
    assert!(
        nobody.code == 1 && nobody.stdout.contains("until the next fetch succeeds: nothing is allowed"),
        "{nobody:?}"
    );
    let wrong = ask(&["refresh", "a b"]).await;
    assert!(wrong.code == 2 && wrong.stderr.contains("hint: "), "{wrong:?}");
    proxy.stop().await;
    let gone = politely(&["status", "--admin", &admin]).await;
    assert!(gone.code == 2 && gone.stderr.contains("check that a proxy is running"), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refresh_reports_a_licence_file_that_cannot_be_fetched() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("License: http://127.0.0.1:1/license.xml\n"),
        _ => Reply::status(404),
    })
    .await;
    let enforced = "identity: { purpose: [ai-train] }\nusage: { license: enforce }";
    let proxy = Binary::serve(&format!("{ON}\n{enforced}")).await;
    crate::support::eventually("its address", || proxy.output().contains("admin address")).await;
    let (admin, file) = (admin_of(&proxy).to_string(), proxy.directory().join("store/admin-token"));
    let with_token = ["--admin", &admin, "--token-file", file.to_str().expect("UTF-8")];
    let refresh = politely(&[&["refresh", &origin.url("")][..], &with_token].concat()).await;
    assert!(refresh.code == 1 && refresh.stdout.contains("\nhttp://127.0.0.1:1/license.xml: "), "{refresh:?}");
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_endpoint_applies_the_file_or_returns_its_faults() {
    let proxy = Binary::serve(ON).await;
    crate::support::eventually("its address", || proxy.output().contains("admin address")).await;
    let admin = admin_of(&proxy);
    let file = proxy.directory().join("politely.yaml");
    let good = std::fs::read_to_string(&file).expect("it is there");
    std::fs::write(&file, format!("{good}\nmode: report\n")).expect("it is writable");
    assert_eq!(asked(admin, "POST", "/api/v1/reload", "").await.status(), 200);
    assert_eq!(json(admin, "GET", "/api/v1/status").await["mode"], "report");
    std::fs::write(&file, format!("{good}\nmod: enforce\n")).expect("it is writable");
    let refused = asked(admin, "POST", "/api/v1/reload", "").await;
    assert_eq!(refused.status(), 422);
    assert!(refused.text().contains("did you mean `mode`"), "{}", refused.text());
    assert_eq!(json(admin, "GET", "/api/v1/status").await["mode"], "report");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_port_in_use_is_reported_with_a_hint() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = taken.local_addr().expect("bound");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let yaml = format!("listen: [{{ address: '127.0.0.1:0' }}]\nadmin: {{ address: '{address}' }}\n");
    std::fs::write(file.path(), yaml).expect("it is writable");
    let ended = politely(&["serve", "--config", file.path().to_str().expect("UTF-8")]).await;
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.stderr.contains("admin") && ended.stderr.contains("address: off"), "{ended:?}");
}
