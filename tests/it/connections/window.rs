//! How far an HTTP/2 origin may be ahead of those who read. Far away a window is what comes in one round trip.

use super::shared::serve;
use super::{asking, fetch, route, upstream};
use crate::support::{eventually, within};
use politely::upstream::Want;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Answers `/endless` without end and `/finite` with 2 MB; counts the bytes that could be sent.
async fn send<S: AsyncRead + AsyncWrite + Unpin>(stream: S, sent: Arc<AtomicUsize>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let sent = sent.clone();
        tokio::spawn(async move {
            let mut body = respond.send_response(http::Response::new(()), false).unwrap();
            let mut left = if request.uri().path() == "/endless" { usize::MAX } else { FINITE };
            while left > 0 {
                body.reserve_capacity(left.min(16 * 1024));
                let Some(Ok(room)) = poll_fn(|cx| body.poll_capacity(cx)).await else { return };
                left -= room;
                body.send_data(vec![b'x'; room].into(), left == 0).unwrap();
                sent.fetch_add(room, Ordering::Relaxed);
            }
        });
    }
}

/// How far the origin gets ahead shows the size of the window.
#[tokio::test]
async fn fast_lone_reader_gets_a_large_window_on_an_unshared_connection() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let (url, connections) = serve(move |number, stream| {
        let sent = if number == 0 { counted.clone() } else { Arc::default() };
        send(stream, sent)
    })
    .await;
    let upstream = upstream("");
    let route = route(&upstream, &url).await;
    let mut got = fetch(&route, Want::default(), &asking("/endless")).await.unwrap();
    let mut read = 0;
    let ahead = |read: usize| sent.load(Ordering::Relaxed) - read;
    while read < 2 << 20 {
        assert!(ahead(read) < 1 << 19 || read >= 1 << 19, "before anything is known of its reader");
        read += got.body.chunk().await.unwrap().expect("it is endless").len();
    }
    // A WINDOW_UPDATE is sent when half of the window has been read.
    eventually("a large window", || ahead(read) > 2 << 20).await;
    let mut second = fetch(&route, Want::default(), &asking("/finite")).await.unwrap();
    while second.body.chunk().await.unwrap().is_some() {}
    assert_eq!(connections.load(Ordering::Relaxed), 2);
    let end = read + (8 << 20);
    while read < end {
        read += got.body.chunk().await.unwrap().expect("it is endless").len();
    }
    eventually("a large window still", || ahead(read) > 2 << 20).await;
    // With its end the window is small, and the connection everybody's.
    drop(got);
    let mut before = 0;
    within("the end of what is sent", async {
        while std::mem::replace(&mut before, sent.load(Ordering::Relaxed)) != before {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    })
    .await;
    let mut stalled = Vec::new();
    for _ in 0..2 {
        stalled.push(fetch(&route, Want::default(), &asking("/endless")).await.unwrap());
    }
    eventually("two windows", || sent.load(Ordering::Relaxed) - before >= 2 * 256 * 1024).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!((sent.load(Ordering::Relaxed) - before, connections.load(Ordering::Relaxed)), (2 * 256 * 1024, 2));
}

#[tokio::test]
async fn new_streams_during_an_unacknowledged_window_change_do_not_stall_others() {
    let (url, _) = serve(|_, stream| async {
        let (mut read, write) = tokio::io::split(stream);
        let (mut late, delayed) = tokio::io::duplex(1 << 20);
        let delays = async move {
            let mut piece = vec![0; 1 << 16];
            while let Ok(n @ 1..) = read.read(&mut piece).await {
                tokio::time::sleep(DELAY).await;
                if late.write_all(&piece[..n]).await.is_err() {
                    return;
                }
            }
        };
        tokio::join!(delays, send(tokio::io::join(delayed, write), Arc::default()));
    })
    .await;
    let upstream = upstream("");
    let route = route(&upstream, &url).await;
    let mut stalled = vec![fetch(&route, Want::default(), &asking("/endless")).await.unwrap()];
    let mut read = 0;
    while read <= 1 << 20 {
        read += stalled[0].body.chunk().await.unwrap().expect("it is endless").len();
    }
    for _ in 0..30 {
        let mut got = fetch(&route, Want::default(), &asking("/endless")).await.unwrap();
        assert!(got.body.chunk().await.unwrap().is_some());
        stalled.push(got);
    }
    let mut page = fetch(&route, Want::default(), &asking("/finite")).await.unwrap();
    within("a page beside those that stopped reading", async { while page.body.chunk().await.unwrap().is_some() {} })
        .await;
}

const FINITE: usize = 2_000_000;
const DELAY: Duration = Duration::from_millis(20);
