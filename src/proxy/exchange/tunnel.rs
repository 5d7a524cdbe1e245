//! Tunnels: pass bytes in both directions without parsing them, for an upgraded protocol or a host with
//! `intercept: tunnel`.

use super::carry::{Flow, FlowError, Moved, Side};
use super::per_user::hosts;
use super::state::MAX_TRIES;
use super::{Exchange, Outcome};
use crate::gate::PaceOutcome;
use crate::policy;
use crate::proxy::io::Timer;
use crate::proxy::limits::body_rate::MinRate;
use crate::proxy::respond::Failure;
use crate::upstream::{ReachError, Stream};
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

impl Exchange<'_> {
    /// Connects before the CONNECT is granted, so that a failure can be answered. Only the start is paced. `via`: the
    /// Via fields of the CONNECT.
    pub async fn open_tunnel(&mut self, via: Option<&str>) -> Result<Stream, Outcome> {
        let (proxy, peer, authority) = (self.proxy, self.peer, &self.request.authority);
        let route = loop {
            let listed = self.settings.check_listed(peer.user.as_deref(), authority.host(), "CONNECT");
            listed.map_err(Outcome::Refused)?;
            match proxy.upstream.reach_for(authority, Some(self.client), None, Some(&self.settings)).await {
                Ok(route) => break route,
                Err(ReachError::Denied(denied)) => return Err(Outcome::Refused(denied.into())),
                Err(ReachError::Resolve(error)) => return Err(Outcome::Failed(Failure::from_resolve(&error))),
                Err(ReachError::Reloaded) => self.follow_reload().await,
            }
        };
        let user = peer.user.as_deref();
        let (_waiting, may_wait) = proxy.place_in_line(user);
        let request = self.limited(policy::Request::new(authority, b""), route.paced_at(None), may_wait);
        let hosts = hosts(user);
        let admitted = proxy.gate.admit_connection(&request, hosts, &mut self.trip.gate).await;
        let (mut permit, reported) = admitted.map_err(Outcome::Refused)?;
        reported.into_iter().for_each(|reported| self.report(reported));
        let mut first = None;
        for _ in 0..MAX_TRIES {
            let request = policy::Request { address: route.paced_at(first), ..request };
            let turn = proxy.gate.turn_again(permit, &request, &mut self.trip.gate).await;
            let reported;
            (permit, reported) = turn.map_err(Outcome::Refused)?;
            reported.into_iter().for_each(|reported| self.report(reported));
            let opened = route.tunnel(via, first).await;
            let (origin, address) = opened.map_err(|error| Outcome::Failed(Failure::from_dial(&error)))?;
            first = Some(address);
            if permit.holds_at(authority, route.paced_at(first)) {
                self.trip.upstream = Some((address, false));
                permit.leaves(true);
                permit.note_left();
                permit.outcome = PaceOutcome::Success;
                return Ok(origin);
            }
        }
        Err(Outcome::Failed(Failure::slots_expired()))
    }
}

/// Passes bytes until both directions have ended, one has failed, or nothing moved for `idle`. Updates `moved`. `note`:
/// receives the time when bytes last moved. `check`: sees the client's bytes; its error ends the tunnel before they are forwarded.
pub async fn run<A: Side, B: Side>(
    client: &mut A,
    origin: &mut B,
    (idle, note): (Duration, impl Fn(Instant)),
    timer: &mut Timer,
    moved: &mut Moved,
    mut check: impl FnMut(&[u8]) -> Result<(), FlowError>,
) {
    let at = Instant::now() + idle;
    let (mut up, mut down) = (Flow::new(at), Flow::new(at));
    let any = MinRate { rate: 0, over: idle };
    poll_fn(|cx| {
        loop {
            let before = (up.at, down.at);
            let ups = step(&mut up, cx, client, origin, any, &mut moved.up, |from| check(from.bytes()));
            if matches!(ups, Poll::Ready(Err(_))) {
                return Poll::Ready(());
            }
            let downs = step(&mut down, cx, origin, client, any, &mut moved.down, |_| Ok(()));
            if matches!(downs, Poll::Ready(Err(_))) || ups.is_ready() && downs.is_ready() {
                return Poll::Ready(());
            }
            let at = up.at.max(down.at);
            note(at - idle);
            ready!(timer.poll(cx, at));
            if before == (up.at, down.at) {
                tracing::debug!("the tunnel was idle for {idle:?}: closed");
                return Poll::Ready(());
            }
        }
    })
    .await;
}

/// Polls one direction unless it has ended.
fn step<A: Side, B: Side>(
    flow: &mut Flow,
    cx: &mut Context<'_>,
    from: &mut A,
    to: &mut B,
    any: MinRate,
    moved: &mut u64,
    look: impl FnMut(&A) -> Result<(), FlowError>,
) -> Poll<Result<(), FlowError>> {
    if flow.is_done {
        return Poll::Ready(Ok(()));
    }
    let polled = flow.poll(cx, from, to, any, Instant::now(), look);
    *moved = flow.moved;
    polled
}

#[cfg(test)]
mod tests {
    use super::super::carry::Http1;
    use super::*;
    use crate::proxy::io::Buffer;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::sleep;

    async fn tunnel(mut client: DuplexStream, mut origin: DuplexStream, idle: Duration) {
        let (mut one, mut other) = (Buffer::new(), Buffer::new());
        one.put(b"ahead ");
        let (mut client, mut origin) = (Http1::new(&mut client, &mut one), Http1::new(&mut origin, &mut other));
        client.open();
        origin.open();
        run(&mut client, &mut origin, (idle, |_| ()), &mut Timer::new(), &mut Moved::default(), |_| Ok(())).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_is_forwarded_and_the_other_direction_continues() {
        let ((mut client, ours), (mut origin, theirs)) = (duplex(16), duplex(16));
        let running = tokio::spawn(tunnel(ours, theirs, Duration::from_secs(60)));
        client.write_all(b"up").await.unwrap();
        client.shutdown().await.unwrap();
        let mut got = String::new();
        origin.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "ahead up");
        let long = "down ".repeat(1000);
        let sent = long.clone();
        tokio::spawn(async move { origin.write_all(sent.as_bytes()).await });
        got.clear();
        client.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, long);
        running.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_lasts_while_bytes_arrive() {
        let ((mut client, ours), (origin, theirs)) = (duplex(64), duplex(64));
        let began = Instant::now();
        let running = tokio::spawn(tunnel(ours, theirs, Duration::from_secs(60)));
        for _ in 0..10 {
            sleep(Duration::from_secs(50)).await;
            client.write_all(b"x").await.unwrap();
        }
        running.await.unwrap();
        assert!((560..562).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        drop(origin);
    }
}
