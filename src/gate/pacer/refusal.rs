//! What is said to a request that does not get a turn.

use crate::policy::Refusal;
use crate::policy::pace::{ARRIVAL, Refused};
use std::time::Duration;

/// What a refusal says: the gap as it was asked for.
pub(super) fn refusal(refused: Refused, max_wait: Duration) -> Refusal {
    let refused = match refused {
        Refused::TooLong { retry_after } => {
            // As long as it is over `max_wait`, or the wait was not for the gap.
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
