//! Names whose servers answer some questions and not others, or with errors, behind the system's resolver.

use crate::support::binary::Binary;
use crate::support::client::Client;
use crate::support::{Origin, Reply, Response, assert_refused, within};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;

const A: u8 = 1;
const AAAA: u8 = 28;

/// The server's answer (RFC 1035 §4.1), by the first label of the name. `None`: no answer.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let what = question.get(13..13 + usize::from(*question.get(12)?))?;
    let end = 12 + question[12..].iter().position(|byte| *byte == 0)? + 5;
    let (code, address): (u8, &[u8]) = match (what, *question.get(end - 3)?) {
        (b"no-aaaa", AAAA) | (b"no-a", A) => return None,
        (b"no-aaaa" | b"live", A) => (0, &[127, 0, 0, 1]),
        (b"no-a", AAAA) => (0, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        (b"live", AAAA) => (0, &[]),
        (b"fails", _) => (2, &[]),
        _ => (3, &[]),
    };
    let mut message =
        [&question[..2], &[0x81, 0x80 | code, 0, 1, 0, u8::from(!address.is_empty()), 0, 0, 0, 0]].concat();
    message.extend(&question[12..end]);
    if !address.is_empty() {
        message.extend([0xc0, 12, 0, question[end - 3], 0, 1, 0, 0, 0, 60, 0, address.len() as u8]);
        message.extend(address);
    }
    Some(message)
}

/// A proxy that looks names up at a server of the test's own, which lives as long as the task. `None`: this takes root.
async fn proxy(yaml: &str) -> Option<(Binary, tokio::task::JoinHandle<()>)> {
    let address: IpAddr = Ipv4Addr::new(127, fastrand::u8(1..), fastrand::u8(..), fastrand::u8(1..255)).into();
    let Ok(socket) = UdpSocket::bind((address, 53)).await else {
        eprintln!("skipped: no port 53 for this user");
        return None;
    };
    let server = tokio::spawn(async move {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question).await {
            if let Some(message) = answer(&question[..length]) {
                let _ = socket.send_to(&message, from).await;
            }
        }
    });
    let Some(proxy) = Binary::serve_with_resolver(address, yaml).await else {
        eprintln!("skipped: no resolver of one's own here");
        return None;
    };
    Some((proxy, server))
}

async fn ask(proxy: &Binary, origin: &Origin, name: &str) -> Response {
    let host = origin.authority(name);
    Client::open(proxy.address()).await.get(&format!("http://{host}/open"), &host).await
}

/// curl and the system's resolver wait for fifteen seconds before they use the other family.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_with_a_silent_server_for_one_address_family_is_served() {
    let origin = Origin::http(|_| Reply::text("page")).await;
    let Some((proxy, _server)) = proxy("").await else { return };
    let began = Instant::now();
    let response = within("the page", ask(&proxy, &origin, "no-aaaa.example")).await;
    assert_eq!(response.status(), 200, "{}", response.text());
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    // The origin does not listen there.
    let response = within("no page", ask(&proxy, &origin, "no-a.example")).await;
    let problem = assert_refused(&response, 503, "destination_unavailable", "robots-unreachable");
    assert!(!problem["detail"].as_str().unwrap().contains("resolve"), "{problem}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servfail_is_attributed_to_the_site_unless_the_resolver_is_down() {
    let origin = Origin::http(|_| Reply::text("page")).await;
    let Some((proxy, server)) = proxy("hosts: { fails.example: { robots: ignore } }").await else { return };
    let response = ask(&proxy, &origin, "fails.example").await;
    let problem = assert_refused(&response, 502, "dns_error", "dns_error");
    assert!(problem["detail"].as_str().unwrap().contains("its name servers fail"), "{problem}");
    let response = ask(&proxy, &origin, "fails.other.example").await;
    let problem = assert_refused(&response, 503, "destination_unavailable", "robots-unreachable");
    assert!(problem["retry_after"].as_u64() > Some(1), "{problem}");
    server.abort();
    let _ = server.await;
    let response = ask(&proxy, &origin, "fails.third.example").await;
    assert_refused(&response, 503, "connection_limit_reached", "out-of-resources");
    assert_eq!(origin.log.all().len(), 0);
}
