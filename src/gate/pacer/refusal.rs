//! The refusal of a request that does not get a slot.

use crate::policy::Refusal;
use crate::policy::pace::{ARRIVAL, Refused};
use std::time::Duration;

/// Returns the refusal, without the arrival margin.
pub(super) fn refusal(refused: Refused, max_wait: Duration) -> Refusal {
    let refused = match refused {
        Refused::TooLong { retry_after } => {
            // Keeps the margin if the rest does not exceed `max_wait`.
            let asked = retry_after.saturating_sub(ARRIVAL);
            Refused::TooLong { retry_after: if asked > max_wait { asked } else { retry_after } }
        }
        Refused::Paused { retry_after, refusals } => {
            Refused::Paused { retry_after: retry_after.saturating_sub(ARRIVAL), refusals }
        }
        Refused::Full { .. } => refused,
    };
    refused.into_refusal(max_wait)
}
