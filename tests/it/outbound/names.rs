//! The name that is asked for is the one that is sent to the origin and verified, whatever stands in it.

use crate::support::binary::preload;
use crate::support::certs::key_pin_as;
use crate::support::client::{Client, get};
use crate::support::websocket::WebSocket;
use crate::support::{Alpn, Binary, Conduct, Origin, Parent, Proxy, Reply, Response, Seen, assert_refused, test_ca};

const NAME: &str = "a_b.c.localhost";
/// The form to which some programs change the name.
const OTHER: &str = "a-b.c.localhost";

fn answer(seen: &Seen) -> Reply {
    match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /no\n"),
        "/ws" => Reply::websocket(),
        path => Reply::text(format!("page {path}")),
    }
}

async fn ask(proxy: &Proxy, origin: &Origin, alpn: &[u8], target: &str) -> Response {
    match alpn {
        b"h2" => proxy.h2(origin, NAME).await.get(&origin.url_at(NAME, target)).await,
        _ => proxy.tls(origin, NAME, &[b"http/1.1"]).await.get(target, &origin.authority(NAME)).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn underscore_in_a_name_is_kept_everywhere() {
    let parent = Parent::start(Conduct::Serve).await;
    for alpn in [Alpn::Both, Alpn::H1] {
        let right = Origin::https_as(test_ca(), &[NAME], alpn, answer).await;
        let wrong = Origin::https_as(test_ca(), &[OTHER], alpn, answer).await;
        let pin = key_pin_as(test_ca(), &right, NAME).await;
        for terms in [
            String::new(),
            format!("hosts: {{ {NAME}: {{ pin: '{pin}' }} }}"),
            format!("egress: {{ upstream_proxy: 'http://127.0.0.1:{}' }}", parent.port()),
        ] {
            let proxy = Proxy::start(&terms).await;
            for inside in [&b"http/1.1"[..], b"h2"] {
                assert_eq!(ask(&proxy, &right, inside, "/x").await.text(), "page /x", "{terms}");
                assert_eq!(ask(&proxy, &right, inside, "/no").await.status(), 403, "robots.txt came: {terms}");
            }
            let client = proxy.tls(&right, NAME, &[b"http/1.1"]).await;
            let (mut socket, _) = WebSocket::open(client, "/ws", &right.authority(NAME)).await.expect("101");
            assert_eq!(socket.echo(b"hello").await, b"hello");
            assert!(right.log.all().iter().all(|seen| seen.sni.as_deref() == Some(NAME)), "{terms}");

            let response = ask(&proxy, &wrong, b"http/1.1", "/x").await;
            let problem = assert_refused(&response, 503, "destination_unavailable", "robots-unreachable");
            assert!(
                problem["detail"].as_str().unwrap().contains(&format!("not valid for {NAME}")) || terms.contains("pin"),
                "{problem}"
            );
            assert!(wrong.log.all().is_empty());
        }
        let proxy = Proxy::start(&format!("hosts: {{ {NAME}: {{ robots: ignore }} }}")).await;
        let response = ask(&proxy, &wrong, b"http/1.1", "/x").await;
        assert_refused(&response, 502, "tls_certificate_error", "tls_certificate_error");
        let mut client = proxy.tls(&wrong, NAME, &[b"http/1.1"]).await;
        client.send(get("/ws", &wrong.authority(NAME)).replacen("\r\n\r\n", "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", 1)).await;
        assert_refused(&client.response().await, 502, "tls_certificate_error", "tls_certificate_error");
        assert!(wrong.log.all().is_empty());
    }
}

/// Every name is this machine's. While there is the file, no thread can be started.
const NO_THREADS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
int pthread_create(pthread_t *thread, const pthread_attr_t *with, void *(*run)(void *), void *argument) {
  int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
  return access(getenv("NO_THREADS"), F_OK) ? create(thread, with, run, argument) : EAGAIN;
}
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
  int (*ask)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
  return ask("127.0.0.1", service, hints, found);
}
"#;

/// Models the limit on processes of a user or a container.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_looked_up_without_new_threads() {
    let origin = Origin::http(answer).await;
    let directory = tempfile::tempdir().unwrap();
    let (library, limit) = (preload(directory.path(), NO_THREADS), directory.path().join("no-threads"));
    let variables = [("LD_PRELOAD", library.to_str().unwrap()), ("NO_THREADS", limit.to_str().unwrap())];
    let proxy = Binary::serve_with("", &variables).await;
    for is_limited in [true, false] {
        if is_limited {
            std::fs::write(&limit, "").unwrap();
        } else {
            std::fs::remove_file(&limit).unwrap();
        }
        for name in ["a.example", "b.example"] {
            let host = origin.authority(name);
            let mut client = Client::open(proxy.address()).await;
            let response = client.get(&format!("http://{host}/open"), &host).await;
            assert_eq!((response.status(), response.text()), (200, "page /open".into()), "{is_limited} {name}");
        }
    }
    proxy.stop().await;
}
