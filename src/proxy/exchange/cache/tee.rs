//! An origin's content on its way to the client, of which the cache has a copy.

use super::super::carry::{BodySource, Flow, FlowError, Side, SideError};
use super::super::state::Exchange;
use crate::gate::cache::StoringAnswer;
use crate::proxy::limits::body_rate::MinRate;
use bytes::Bytes;
use http::HeaderMap;
use std::task::{Context, Poll};
use tokio::time::Instant;

impl Exchange<'_> {
    /// The origin's content goes to the client, and into the cache if it is to be stored.
    #[inline]
    pub(in crate::proxy::exchange) fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
        down: &mut Flow,
        from: &mut impl BodySource,
        to: &mut impl Side,
        min_rate: MinRate,
        now: Instant,
    ) -> Poll<Result<(), FlowError>> {
        let min_rate = MinRate { rate: if self.trip.is_endless { 0 } else { min_rate.rate }, ..min_rate };
        match self.cached.as_mut().and_then(|cached| cached.storing.as_mut()) {
            None => down.poll(cx, from, to, min_rate, now),
            Some(storing) => down.poll(cx, &mut Tee { from, to: storing }, to, min_rate, now),
        }
    }
}

/// What is taken of `from` goes into `to` as well.
struct Tee<'a, S> {
    from: &'a mut S,
    to: &'a mut StoringAnswer,
}

impl<S: BodySource> BodySource for Tee<'_, S> {
    fn bytes(&self) -> &[u8] {
        self.from.bytes()
    }

    fn consume(&mut self, n: usize) {
        if n > 0 {
            self.to.push(Bytes::copy_from_slice(&self.from.bytes()[..n]));
        }
        self.from.consume(n);
    }

    fn take(&mut self, n: usize) -> Bytes {
        let taken = self.from.take(n);
        if n > 0 {
            self.to.push(taken.clone());
        }
        taken
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, SideError>> {
        self.from.poll_more(cx)
    }

    fn has_ended(&self) -> bool {
        self.from.has_ended()
    }

    fn is_complete(&self) -> bool {
        self.from.is_complete()
    }

    fn gather(&mut self, cx: &mut Context<'_>) {
        self.from.gather(cx);
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.from.trailers()
    }
}
