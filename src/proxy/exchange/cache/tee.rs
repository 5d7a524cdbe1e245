//! Copies an origin's content to the cache while it passes to the client.

use super::super::carry::{BodySource, Flow, FlowError, Side};
use super::super::state::Exchange;
use crate::proxy::limits::body_rate::MinRate;
use std::task::{Context, Poll};
use tokio::time::Instant;

impl Exchange<'_> {
    /// Passes the origin's content to the client, and copies it to the cache if it is to be stored.
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
            None => down.poll(cx, from, to, min_rate, now, |_| Ok(())),
            Some(storing) => down.poll(cx, from, to, min_rate, now, |from| {
                storing.push(from.share());
                Ok(())
            }),
        }
    }
}
