//! Failed TLS with clients: rejections of our certificate are reported, and our own rejections give the reason.

use crate::support::certs::client_config;
use crate::support::{Alpn, Binary, Client, Origin, Proxy, eventually, test_ca, within};
use serde_json::Value;
use std::net::SocketAddr;
use std::process::Stdio;
use tokio::process::Command;

const ON: &str = "admin: { address: '127.0.0.1:0' }";

async fn asked(admin: SocketAddr, target: &str) -> String {
    let mut client = Client::open(admin).await;
    let token = crate::support::ADMIN_TOKEN;
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {admin}\r\nAuthorization: Bearer {token}\r\n\r\n")).await;
    client.response().await.text()
}

/// The status, once it shows this many rejections.
async fn distrusted(admin: SocketAddr, total: u64) -> Value {
    loop {
        let told =
            serde_json::from_str::<Value>(&asked(admin, "/api/v1/status").await).expect("JSON")["distrusted"].take();
        if told["total"].as_u64() >= Some(total) {
            return told;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// openssl through the proxy, with nothing on its standard input; what it said.
async fn openssl(arguments: &[&str]) -> String {
    let mut command = Command::new("openssl");
    command.arg("s_client").args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = within("the end of openssl", command.output()).await.expect("openssl is installed");
    [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_rejecting_our_certificate_is_logged_once_with_a_hint() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Binary::serve(ON).await;
    let (url, address) = (proxy.url(), proxy.address());
    for _ in 0..3 {
        let refused = crate::support::curl(&["-x", &url, &origin.url("/x")]).await;
        assert_eq!(refused.code, 60, "curl's own code for a certificate that it does not trust");
    }
    // A close without an alert may have another reason, unless the client never sends a request.
    let connect = async |host: &str| {
        let client = Client::connect(address, &origin.authority(host)).await;
        client.tls(host, &proxy.ca_pem_path(), &[b"http/1.1"]).await
    };
    let mut content = connect("c.localhost").await;
    assert_eq!(content.get("/x", &origin.authority("c.localhost")).await.status(), 200);
    for host in ["b.localhost", "c.localhost", "c.localhost", "b.localhost"] {
        drop(connect(host).await);
    }
    eventually("the log of both", || proxy.output().matches("rejects the certificate").count() == 2).await;
    let output = proxy.output();
    let lines: Vec<_> = output.lines().filter(|line| line.contains("rejects the certificate")).collect();
    assert!(lines[0].contains("WARN") && lines[0].contains("unknown_ca") && lines[0].contains("--cacert"), "{output}");
    assert!(lines[0].contains(&origin.url("")), "{output}");
    assert!(lines[1].contains("when it saw the certificate") && lines[1].contains("politely ca install"), "{output}");
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_certificates_are_counted_and_shown_in_status() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start(ON).await;
    let admin = proxy.admin_address();
    for flags in [&["--tls-max", "1.2"][..], &["--http1.1"]] {
        let url = proxy.url();
        let refused = crate::support::curl(&[flags, &["-x", &url, &origin.url("/x")]].concat()).await;
        assert_eq!(refused.code, 60, "{}", refused.stderr);
    }
    let told = distrusted(admin, 2).await;
    let one = &told["clients"][0];
    assert_eq!((&one["how"], &one["times"], &one["client"]), (&"unknown-ca".into(), &2.into(), &"127.0.0.1".into()));
    assert_eq!(one["host"], origin.url(""));
    assert!(one["user_agent"].as_str().is_some_and(|agent| agent.starts_with("curl/")), "{one}");
    assert!(one["cure"].as_str().is_some_and(|cure| cure.contains("--cacert")), "{one}");
    let metrics = asked(admin, "/metrics").await;
    assert!(metrics.contains("politely_distrusted_total{how=\"unknown-ca\"} 2"), "{metrics}");

    // rustls sends another alert; clients that accept the certificate are not counted.
    let client = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
    assert!(client.tls_with("a.localhost", client_config(test_ca().pem_file(), &[])).await.is_err());
    assert_eq!(
        proxy.tls(&origin, "a.localhost", &[]).await.get("/x", &origin.authority("a.localhost")).await.status(),
        200
    );
    let told = distrusted(admin, 3).await;
    assert_eq!((&told["total"], told["clients"].as_array().map(Vec::len)), (&3.into(), Some(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_handshake_ends_with_the_right_alert() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("").await;
    let (proxy, target) = (proxy.address().to_string(), origin.authority("a.localhost"));
    for (flags, alert) in [
        (&["-servername", "not a name"][..], "alert unrecognized name|alert illegal parameter|alert decode error"),
        (&["-servername", "-.localhost"], "alert unrecognized name|alert illegal parameter|alert decode error"),
        (&["-alpn", "spdy/3"], "alert no application protocol"),
        (&["-cipher", "AES128-SHA", "-tls1_2"], "alert handshake failure"),
        (&["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"], "alert protocol version|alert handshake failure"),
    ] {
        let said = openssl(&[&["-proxy", &proxy, "-connect", &target], flags].concat()).await;
        assert!(alert.split('|').any(|alert| said.contains(alert)), "{flags:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_client_certificate_ends_with_the_right_alert() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let files = ["certificate.pem", "key.pem"].map(|name| directory.path().join(name));
    let (certificate, key) = test_ca().pem_pair("proxy.localhost");
    files.iter().zip([certificate, key]).for_each(|(file, text)| std::fs::write(file, text).expect("it is writable"));
    let client_ca = test_ca().pem_file().display();
    let listen = format!(
        "listen: [{{ address: '127.0.0.1:0', tls: {{ certificate: '{}', key: '{}', client_ca: '{client_ca}' }} }}]",
        files[0].display(),
        files[1].display()
    );
    let proxy = Proxy::start(&listen).await;
    let address = proxy.address().to_string();
    for version in ["-tls1_2", "-tls1_3"] {
        for _ in 0..5 {
            let said = openssl(&["-connect", &address, version, "-ign_eof"]).await;
            let alerts = ["certificate required", "handshake failure", "bad certificate"];
            assert!(alerts.iter().any(|alert| said.contains(alert)), "{version}: {said}");
        }
    }
}

/// `openssl x509 -req` without `-extfile` makes version 1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_of_version_1_is_refused_with_a_line_of_the_log() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (certificate, key) = test_ca().pem_pair("proxy.localhost");
    std::fs::write(at("proxy.pem"), certificate).and_then(|()| std::fs::write(at("proxy.key"), key)).expect("writable");
    let script = "cd \"$0\" && new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes' && \
                  $new -x509 -subj /CN=clients -keyout ca.key -out ca.pem && $new -subj /CN=old -keyout old.key -out old.csr && \
                  openssl x509 -req -in old.csr -CA ca.pem -CAkey ca.key -set_serial 1 -out old.pem";
    let made = Command::new("sh").arg("-c").arg(script).arg(directory.path()).output().await.expect("a shell");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let listen = format!(
        "listen: [{{ address: '127.0.0.1:0', tls: {{ certificate: '{}', key: '{}', client_ca: '{}' }} }}]",
        at("proxy.pem"),
        at("proxy.key"),
        at("ca.pem")
    );
    let proxy = Binary::serve(&listen).await;
    let address = proxy.address().to_string();
    let said = openssl(&["-connect", &address, "-cert", &at("old.pem"), "-key", &at("old.key"), "-ign_eof"]).await;
    assert!(said.contains("alert"), "{said}");
    openssl(&["-connect", &address, "-ign_eof"]).await;
    for why in ["the certificate is not accepted: unsupported cert version", "the client sent no certificate"] {
        let line = format!("a client's certificate was refused (`client_ca`): {why}");
        eventually(&line, || proxy.output().contains(&line)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alpn_http_1_0_is_served() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("").await;
    let got = proxy.curl(&["--http1.0", &origin.url("/x")]).await;
    assert_eq!((got.code, got.text().as_str()), (0, "page /x"), "{}", got.stderr);
    let said = openssl(&[
        "-proxy",
        &proxy.address().to_string(),
        "-connect",
        &origin.authority("a.localhost"),
        "-alpn",
        "http/1.0",
    ])
    .await;
    assert!(said.contains("ALPN protocol: http/1.0"), "{said}");
}
