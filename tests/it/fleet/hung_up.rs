//! Clients that hang up while the server is asked.

use super::faults::behind_relays;
use super::{comes_to_say, get, pages};
use crate::support::Reply;
use crate::support::redis::Redis;
use redis::AsyncCommands;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::sleep;

/// The client leaves while the server's reply to the payment is on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budget_of_a_client_that_hung_up_is_refunded() {
    let Some(redis) = Redis::start().await else { return };
    let origin = pages(|_| Reply::text("page")).await;
    let fleet = behind_relays(&redis, 1, "pace: { budget: { requests: 10, per: day } }").await;
    let (relay, instance) = &fleet[0];
    comes_to_say(instance, "joined the fleet").await;
    let (page, host) = (origin.url("/page"), origin.authority("a.localhost"));
    assert_eq!(get(instance, &page).await.status(), 200);
    let key = format!("politely:{{{host}}}:budget:day");
    let spent = async || -> u64 { redis.connection().await.hget(&key, "requests").await.expect("it answers") };
    let is = async |wanted: u64| {
        for _ in 0..1000 {
            if spent().await == wanted {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
        panic!("{} are counted, not {wanted}", spent().await);
    };
    is(1).await;
    relay.delay(Duration::ZERO, Duration::from_millis(1000));
    let mut client = TcpStream::connect(instance.address()).await.expect("it listens");
    let head = format!("GET {page} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    client.write_all(head.as_bytes()).await.expect("it reads");
    is(2).await;
    drop(client);
    sleep(Duration::from_millis(1100)).await;
    relay.delay(Duration::ZERO, Duration::ZERO);
    is(1).await;
    assert_eq!(origin.log.count("/page"), 1);
}
