//! The task of one HTTP/2 connection to an origin: transfers the frames, and checks that the origin is alive.

use super::error_meaning::is_broken_off;
use super::vitals::Vitals;
use super::window::Window;
use crate::upstream::stream::Stream;
use crate::upstream::write_batch::Gathered;
use bytes::Bytes;
use h2::client::Connection as Carrier;
use h2::{Ping, PingPong};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Transfers frames until the origin closes the connection or does not respond, or until there was no stream for `idle()`. `leave` is
/// called when the connection takes no more requests, and `broken_off` when one stream's error has ended the whole connection.
pub(super) async fn carry(
    mut carrier: Carrier<Gathered<Stream>, Bytes>,
    mut ping: PingPong,
    vitals: Arc<Vitals>,
    idle: impl Fn() -> Duration,
    leave: impl Fn(),
    broken_off: impl Fn(),
) {
    // The PONG comes after the origin's settings, and thus shows that they have arrived, even if they change nothing.
    let mut asked = ping.send_ping(Ping::opaque()).ok().map(|()| Instant::now());
    let mut idle_since = Instant::now();
    let mut is_closing = false;
    let mut window = Window::default();
    loop {
        let is_idle = vitals.streams() == 0;
        let next = match asked {
            Some(asked) => asked.max(vitals.heard()) + PONG_TIME,
            None if is_closing => idle_since + CLOSE_TIME,
            None if is_idle => idle_since + idle(),
            None => vitals.heard() + SILENCE,
        };
        tokio::select! {
            // The connection is polled first, so that the other branches know about all frames that have arrived.
            biased;
            ended = poll_fn(|cx| poll_carrier(&mut carrier, &vitals, cx)) => {
                if let Err(error) = ended {
                    if is_broken_off(&error) {
                        broken_off();
                    }
                    tracing::debug!(%error, "an HTTP/2 connection to an origin ended");
                }
                break;
            }
            pong = poll_fn(|cx| ping.poll_pong(cx)), if asked.is_some() => {
                asked = None;
                if pong.is_ok() {
                    vitals.set(&vitals.is_known);
                }
            }
            () = vitals.turned.notified() => {
                idle_since = Instant::now();
                window.fit(&mut carrier, &vitals);
            }
            () = sleep_until(next) => match (asked, is_idle) {
                // Other bytes than a PONG have arrived, which also show that the origin is alive.
                (Some(_), _) if vitals.heard() + PONG_TIME > Instant::now() => {}
                (Some(_), _) => {
                    tracing::debug!("an HTTP/2 connection to an origin does not respond: closed");
                    break;
                }
                (None, false) if !is_closing => {
                    asked = ping.send_ping(Ping::opaque()).ok().map(|()| Instant::now());
                }
                (None, true) if !is_closing => {
                    // The connection ends by itself once nobody can send on it.
                    is_closing = true;
                    idle_since = Instant::now();
                    leave();
                }
                (None, true) => break,
                (None, false) => idle_since = Instant::now(),
            },
        }
    }
    // Streams in flight fail when the carrier is dropped.
    vitals.set(&vitals.is_over);
    leave();
}

/// Polls the connection. Settings that limit the number of streams are noticed at once: not every origin answers a PING.
fn poll_carrier(
    carrier: &mut Carrier<Gathered<Stream>, Bytes>,
    vitals: &Vitals,
    cx: &mut Context<'_>,
) -> Poll<Result<(), h2::Error>> {
    let polled = Pin::new(&mut *carrier).poll(cx);
    if !vitals.is_known.load(Relaxed) && carrier.max_concurrent_send_streams() != FIRST_STREAMS {
        vitals.set(&vitals.is_known);
    }
    polled
}

/// Streams allowed until the origin has sent its limit: more could be refused.
pub(super) const FIRST_STREAMS: usize = 1;
/// Time without received bytes after which a connection with streams is sent a PING.
const SILENCE: Duration = Duration::from_secs(15);
/// Time after a PING within which bytes must arrive.
const PONG_TIME: Duration = Duration::from_secs(10);
const CLOSE_TIME: Duration = Duration::from_secs(5);
