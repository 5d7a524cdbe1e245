//! Real servers, where this machine has them.

use super::{get, route, upstream};
use crate::support::{free_port, test_ca, within};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::task::JoinSet;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn start(mut command: Command, port: u16) -> Option<Server> {
    let server = Server(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?);
    within("the server's start", async {
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    Some(server)
}

fn pair(directory: &Path) {
    let (certificate, key) = test_ca().pem_pair("a.localhost");
    std::fs::write(directory.join("cert.pem"), certificate).unwrap();
    std::fs::write(directory.join("key.pem"), key).unwrap();
}

async fn twenty_rounds_of_ten(url: &str, expected: &str) {
    let upstream = upstream("");
    let route = route(&upstream, url).await;
    for _ in 0..20 {
        let mut all = JoinSet::new();
        for _ in 0..10 {
            let route = route.clone();
            all.spawn(async move { get(&route, "/page").await.map(|(status, body, _)| (status, body)) });
        }
        for got in all.join_all().await {
            assert_eq!(got.unwrap(), (200, expected.to_owned()));
        }
    }
}

#[tokio::test]
async fn nginx_with_http2_that_closes_after_three_requests() {
    let directory = tempfile::tempdir().unwrap();
    pair(directory.path());
    for streams in [128, 1] {
        let port = free_port();
        let conf = format!(
            "daemon off; master_process off; pid nginx.pid; error_log error.log; events {{}}\n\
             http {{ access_log off; client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t; \
             scgi_temp_path t; server {{ listen 127.0.0.1:{port} ssl http2; keepalive_requests 3; \
             http2_max_concurrent_streams {streams}; ssl_certificate cert.pem; ssl_certificate_key key.pem; \
             location / {{ return 200 fine; }} }} }}"
        );
        std::fs::write(directory.path().join("nginx.conf"), conf).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(directory.path()).args(["-c", "nginx.conf", "-e", "error.log"]);
        let Some(_server) = start(command, port).await else { return };
        twenty_rounds_of_ten(&format!("https://a.localhost:{port}"), "fine").await;
    }
}

#[tokio::test]
async fn node_with_http2() {
    let directory = tempfile::tempdir().unwrap();
    pair(directory.path());
    let port = free_port();
    let script = format!(
        "const fs = require('fs'); require('http2').createSecureServer({{ cert: fs.readFileSync('cert.pem'), \
         key: fs.readFileSync('key.pem'), allowHTTP1: true, settings: {{ maxConcurrentStreams: 1 }} }}, \
         (request, response) => setTimeout(() => response.end('fine ' + request.httpVersion), 2)).listen({port}, '127.0.0.1')"
    );
    let mut command = Command::new("node");
    command.current_dir(directory.path()).args(["-e", &script]);
    let Some(_server) = start(command, port).await else { return };
    twenty_rounds_of_ten(&format!("https://a.localhost:{port}"), "fine 2.0").await;
}
