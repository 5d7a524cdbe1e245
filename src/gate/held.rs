//! Requests that are held now, and how long those before them were: for people who watch.

use super::pacer::Pace;
use crate::policy::Authority;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A request that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRequest {
    pub authority: Authority,
    pub reason: HeldFor,
    /// So long already.
    pub since: Duration,
    /// Until its turn at the latest, if it is the next of its host's. `None`: nobody knows.
    pub left: Option<Duration>,
    /// All that wait for the same host, this one included.
    pub waiting: usize,
}

/// What a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldFor {
    /// robots.txt is being fetched.
    Robots,
    /// The host's turns come so far apart.
    Gap(Duration),
    /// The same, as the host has answered 429 or 503.
    Backoff(Duration),
    /// As many are under way as may be.
    InFlight(u32),
}

impl fmt::Display for HeldFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Robots => f.write_str("its robots.txt is being fetched"),
            Self::Gap(gap) => write!(f, "one request in {} s", gap.as_secs_f32()),
            Self::Backoff(gap) => write!(f, "it asks to be left alone: one request in {:.1} s", gap.as_secs_f32()),
            Self::InFlight(most) => write!(f, "{most} requests are under way"),
        }
    }
}

/// Turns waited for since the start, for 10 ms or longer: those that only had to ask are not held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeldFigures {
    pub requests: u64,
    /// How long in all.
    pub total: Duration,
}

/// All that are held.
#[derive(Default)]
pub(super) struct Held(Mutex<State>);

#[derive(Default)]
struct State {
    /// In the order in which they came.
    now: BTreeMap<u64, One>,
    came: u64,
    figures: HeldFigures,
}

struct One {
    authority: Authority,
    since: Instant,
    /// `None`: it waits for robots.txt.
    turn: Option<(Arc<Pace>, Duration)>,
}

impl HeldFigures {
    fn with(self, held: Duration) -> Self {
        Self { requests: self.requests + 1, total: self.total + held }
    }
}

impl One {
    /// For how long, if that is for a turn, and worth a word.
    fn turn_held(&self) -> Option<Duration> {
        self.turn.as_ref().map(|_| self.since.elapsed()).filter(|held| *held >= LEAST)
    }
}

impl Held {
    /// It waits for its turn, which come `gap` apart.
    pub fn for_turn(&self, authority: &Authority, pace: &Arc<Pace>, gap: Duration) -> Hold<'_> {
        self.enter(authority, Some((pace.clone(), gap)))
    }

    /// It waits for robots.txt.
    pub fn for_robots(&self, authority: &Authority) -> Hold<'_> {
        self.enter(authority, None)
    }

    fn enter(&self, authority: &Authority, turn: Option<(Arc<Pace>, Duration)>) -> Hold<'_> {
        let mut state = self.0.lock();
        state.came += 1;
        let number = state.came;
        state.now.insert(number, One { authority: authority.clone(), since: Instant::now(), turn });
        Hold { held: self, number }
    }

    pub fn figures(&self) -> HeldFigures {
        let state = self.0.lock();
        state.now.values().filter_map(One::turn_held).fold(state.figures, HeldFigures::with)
    }

    /// The one that has waited longest, if for so long.
    pub fn longest(&self, at_least: Duration) -> Option<HeldRequest> {
        let state = self.0.lock();
        let (_, one) = state.now.first_key_value()?;
        let since = one.since.elapsed();
        if since < at_least {
            return None;
        }
        let (authority, turn) = (one.authority.clone(), one.turn.clone());
        drop(state);
        let Some((pace, gap)) = turn else {
            return Some(HeldRequest { authority, reason: HeldFor::Robots, since, left: None, waiting: 1 });
        };
        let figures = pace.figures();
        let reason = match (figures.backoff, figures.owed) {
            (backoff, _) if !backoff.is_zero() => HeldFor::Backoff(gap.max(backoff)),
            (_, owed) if owed.is_zero() && gap.is_zero() => HeldFor::InFlight(figures.in_flight),
            _ => HeldFor::Gap(gap),
        };
        let left = Some(figures.owed).filter(|owed| !owed.is_zero());
        Some(HeldRequest { authority, reason, since, left, waiting: figures.waiting })
    }
}

/// Ends when dropped.
pub(super) struct Hold<'a> {
    held: &'a Held,
    number: u64,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut state = self.held.0.lock();
        if let Some(held) = state.now.remove(&self.number).as_ref().and_then(One::turn_held) {
            state.figures = state.figures.with(held);
        }
    }
}

/// Whoever shares a pace asks another process for its turn, which takes less.
const LEAST: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::pacer::Pacer;
    use crate::gate::store::Store;
    use crate::policy::PaceKey;

    #[test]
    fn the_first_to_come_is_held_longest() {
        let held = Held::default();
        let key = PaceKey::from_text("a.example").expect("a key");
        let pace = Pacer::new(Arc::new(Store::memory()), None).pace(&key);
        let [a, b] = ["https://a.example", "https://b.example"].map(|url| Authority::from_url(url).expect("a URL"));
        assert_eq!(held.longest(Duration::ZERO), None);
        let first = held.for_robots(&a);
        let second = held.for_turn(&b, &pace, Duration::from_secs(5));
        let told = held.longest(Duration::ZERO).expect("it is held");
        assert_eq!((told.authority, told.reason, told.left), (a.clone(), HeldFor::Robots, None));
        assert_eq!(held.longest(Duration::from_secs(60)), None);
        drop(first);
        let told = held.longest(Duration::ZERO).expect("it is held");
        assert_eq!((told.authority, told.reason.to_string()), (b, "one request in 5 s".into()));
        drop(held.for_turn(&a, &pace, Duration::ZERO));
        assert_eq!(held.figures(), HeldFigures::default(), "it had to ask, no more");
        held.0.lock().now.values_mut().for_each(|one| one.since -= Duration::from_secs(3));
        assert_eq!(held.figures().requests, 1, "it is held still");
        drop(second);
        assert_eq!((held.longest(Duration::ZERO), held.figures().requests), (None, 1));
        assert!(held.figures().total >= Duration::from_secs(3));
    }
}
