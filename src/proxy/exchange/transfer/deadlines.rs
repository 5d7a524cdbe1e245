//! The deadlines of a request in flight, for client and origin.

use super::super::carry::{Client, Origin};
use super::super::carry_error::CarryError;
use super::Carry;
use crate::gate::Permit;
use crate::proxy::respond::Failure;
use std::time::Duration;
use tokio::time::Instant;

impl<C: Client, O: Origin> Carry<'_, '_, C, O> {
    /// When to check whether the client has stalled. `None`: the proxy does not wait for the client, or the request has no slot.
    pub(super) fn window_ends(&self) -> Option<Instant> {
        let has_turn = self.head_written && self.exchange.permit.as_deref().is_some_and(Permit::has_turn);
        (has_turn && (self.answered || !self.is_origins_turn())).then(|| self.window.0 + self.stall)
    }

    /// Whether the client stalled in the last window.
    pub(super) fn has_stalled(&self) -> bool {
        let is_waited_for = if self.answered { self.down.is_held_up } else { !self.up.is_held_up };
        let moved = self.up.moved + self.down.moved - self.window.1;
        is_waited_for && u128::from(moved) * 1000 < STALL_RATE * self.stall.as_millis()
    }

    /// Deadline for progress of the answer. Earlier for a half-closed client: the proxy notices that such a client has gone only when it
    /// sends something.
    pub(super) fn down_ends(&self) -> Instant {
        if let Some(held) = self.exchange.held.as_ref().filter(|held| held.released.is_none()) {
            return held.until;
        }
        match self.answered && self.is_sent() && self.client.is_half_closed() && !self.down.is_held_up {
            true => self.down.at.min(self.down.at + HALF_CLOSED_TIMEOUT - self.min_rate.over),
            false => self.down.at,
        }
    }

    /// Whether the rest of the answer is awaited.
    pub(super) fn awaits_answer(&self) -> bool {
        (self.is_origins_turn() || self.answered) && !self.down.is_done
    }

    /// The error for a request that is too slow or has stalled, which names the side at fault.
    pub(super) fn slow_request(&self) -> CarryError {
        match self.up.is_held_up {
            true => Failure::write_timeout(self.min_rate.over).into(),
            false => Failure::slow_request().into(),
        }
    }

    /// Handles a deadline that has passed.
    #[cold]
    pub(super) fn on_deadline(&mut self) -> Result<(), CarryError> {
        if !self.is_origins_turn() && self.now >= self.up.at {
            if self.answered {
                self.send_stopped = Some(None);
                return Ok(());
            }
            return Err(self.slow_request());
        }
        if self.awaits_answer() && self.now >= self.down_ends() {
            if self.exchange.held.as_mut().is_some_and(|held| held.give_up()) {
                return Ok(());
            }
            if self.now < self.down.at {
                return Err(CarryError::client_gone());
            }
            return Err(match (self.answered, self.down.is_held_up) {
                (false, _) => Failure::answer_timeout(self.min_rate.over).into(),
                (true, true) => CarryError::cut("the client stopped reading"),
                (true, false) => CarryError::cut("the origin stopped in the middle of its answer"),
            });
        }
        Ok(())
    }
}

/// Time without progress of the answer after which a half-closed client counts as gone.
const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes per second below which a client counts as stalled.
const STALL_RATE: u128 = 1024;
