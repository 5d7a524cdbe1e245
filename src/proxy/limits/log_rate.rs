//! Rate limit on log lines that clients can cause at will. Pure.

use parking_lot::Mutex;
use std::time::{Duration, SystemTime};

/// Allows a few lines in each window and counts the rest.
#[derive(Default)]
pub struct LogRate(Mutex<State>);

#[derive(Default)]
struct State {
    since: Option<SystemTime>,
    logged: u32,
    left_out: u64,
}

impl LogRate {
    /// Decides on a line. `Some`: log it; the number is how many lines were dropped before. `None`: drop it.
    pub fn allow(&self, now: SystemTime) -> Option<u64> {
        let mut state = self.0.lock();
        // A clock that was set back starts a new window.
        let passed = state.since.and_then(|since| now.duration_since(since).ok());
        if passed.is_none_or(|passed| passed >= WINDOW) {
            (state.since, state.logged) = (Some(now), 0);
        }
        if state.logged == MAX_LINES {
            state.left_out += 1;
            return None;
        }
        state.logged += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

const WINDOW: Duration = Duration::from_secs(10);
const MAX_LINES: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_in_ten_seconds_are_logged_and_the_others_counted() {
        let (rate, now) = (LogRate::default(), SystemTime::now());
        assert!((0..10).all(|_| rate.allow(now) == Some(0)));
        assert!((0..7).all(|_| rate.allow(now + Duration::from_secs(9)).is_none()));
        assert_eq!(rate.allow(now + WINDOW), Some(7));
        assert_eq!(rate.allow(now), Some(0), "the clock was set back");
    }
}
