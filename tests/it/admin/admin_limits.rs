//! The admin address under those who take their time: nobody holds it, and nobody holds up the end.

use super::address::{ON, asked};
use crate::support::{Client, Proxy, within};
use socket2::{Domain, Socket, Type};
use std::io::Write;
use std::time::Duration;

const IMPATIENT: &str = "admin: { address: '127.0.0.1:0' }\nlimits: { header_timeout: 3s }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_request_head_times_out() {
    let proxy = Proxy::start(IMPATIENT).await;
    let mut clients = [Client::open(proxy.admin_address()).await, Client::open(proxy.admin_address()).await];
    clients[1].send("GET /healthz HTTP/1.1\r\nHost: a\r\n").await;
    for client in &mut clients {
        client.rest().await;
    }
}

/// No single byte is late, but the head as a whole is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dripping_request_head_times_out() {
    let proxy = Proxy::start(IMPATIENT).await;
    let mut client = Client::open(proxy.admin_address()).await;
    client.send("GET /healthz HTTP/1.1\r\nX-Slow: ").await;
    within("the end of the connection", async {
        while client.try_send("x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_closed() {
    let proxy = Proxy::start(IMPATIENT).await;
    let mut client = Client::open(proxy.admin_address()).await;
    for _ in 0..2 {
        assert_eq!(client.get("/healthz", "localhost").await.text(), "ok\n");
    }
    assert_eq!(client.rest().await, b"");
}

/// Clients with half a head each, more than it serves at a time.
async fn held(proxy: &Proxy) -> Vec<Client> {
    let mut held = Vec::new();
    for _ in 0..300 {
        let mut client = Client::open(proxy.admin_address()).await;
        client.send("GET /healthz HTTP/1.1\r\n").await;
        held.push(client);
    }
    held
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_client_is_served_although_others_hold_all_connections() {
    let proxy = Proxy::start(IMPATIENT).await;
    let _held = held(&proxy).await;
    assert_eq!(asked(proxy.admin_address(), "GET", "/healthz", "").await.status(), 200);
}

/// Their timeout is an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_heads_are_closed_to_make_room_for_a_new_client() {
    let proxy = Proxy::start(&format!("{ON}\nlimits: {{ header_timeout: 1h }}")).await;
    let _held = held(&proxy).await;
    assert_eq!(asked(proxy.admin_address(), "GET", "/healthz", "").await.status(), 200);
}

/// A client that asks and asks, and reads no answer.
fn deaf(proxy: &Proxy) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("it may");
    socket.connect(&proxy.admin_address().into()).expect("it listens");
    socket.set_nonblocking(true).expect("it may");
    // More than all buffers take.
    let requests = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    let _ = (&socket).write(requests.as_bytes());
    socket
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn clients_that_do_not_read_are_closed_to_make_room_for_a_new_client() {
    let proxy = Proxy::start(&format!("{ON}\nlimits: {{ header_timeout: 1h }}")).await;
    let _deaf: Vec<Socket> = tokio::task::block_in_place(|| (0..256).map(|_| deaf(&proxy)).collect());
    assert_eq!(asked(proxy.admin_address(), "GET", "/healthz", "").await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_head_does_not_delay_shutdown() {
    let proxy = Proxy::start(&format!("{ON}\nlimits: {{ header_timeout: 1h }}")).await;
    let mut client = Client::open(proxy.admin_address()).await;
    client.send("GET /healthz HTTP/1.1\r\n").await;
    let mut idle = Client::open(proxy.admin_address()).await;
    idle.get("/healthz", "localhost").await;
    within("the end", proxy.shutdown()).await;
}
