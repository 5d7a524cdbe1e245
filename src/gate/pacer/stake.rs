//! What an instance has at stake with a key in its fleet: turns, a place in the line, news to tell. Pure: says when the
//! fleet is to be asked, and tells the lane who gives its turns. Kept by `pace`.

use crate::gate::fleet::{Event, KEPT, Place, Reach, Standing, Told};
use crate::policy::pace::{Giver, Lane, Outcome, Share, Slot};
use std::time::{Duration, Instant};

/// One key's stake.
#[derive(Debug, Default)]
pub(super) struct Stake {
    /// The connection over which it was got; 0: there is none.
    connection: u64,
    /// The fleet has said how the key stands, and no refusal has been published since.
    known: bool,
    /// There is a place in the line.
    in_line: bool,
    /// The fleet has given a turn, from then on.
    turn_at: Option<Instant>,
    /// The number of the slot that has used it, until it gives it up.
    in_turn: Option<u64>,
    /// Expected for the next turn.
    not_before: Option<Instant>,
    rivals: u32,
    /// Told so long after the last call, turn and place are still ours.
    kept_until: Option<Instant>,
    renew_at: Option<Instant>,
    events: Vec<Event>,
    /// The lane owes more than the fleet knows of.
    owes: bool,
    calling: bool,
    /// A turn came while the fleet was being asked; who knows which of both was first.
    nudged: bool,
}

impl Stake {
    /// Takes note of whether the fleet can be asked, and tells the lane.
    pub fn follow<W>(&mut self, lane: &mut Lane<W>, reach: Reach, now: Instant) {
        match reach {
            Reach::Parted { instances } => {
                if self.connection != 0 {
                    // The fleet frees what it has given in a while; what it is not told it learns from our debts.
                    *self = Self { in_turn: self.in_turn, calling: self.calling, ..Self::default() };
                }
                lane.given_by(Giver::Parted { instances });
            }
            Reach::Joined(connection) => {
                if self.connection != connection {
                    let (in_turn, calling) = (self.in_turn, self.calling);
                    *self = Self { connection, in_turn, calling, rivals: 1, ..Self::default() };
                }
                // Whoever was stopped for a while has lost what was not renewed.
                if self.turn_at.is_some() && self.kept_until.is_none_or(|until| until <= now) {
                    self.turn_at = None;
                }
                let turn = self.turn_at.is_some_and(|at| at <= now);
                let Self { known, not_before, rivals, .. } = *self;
                lane.given_by(Giver::Fleet(Share { known, turn, not_before, rivals }));
            }
        }
    }

    /// What there is to tell and to ask now.
    pub fn call<W>(&mut self, lane: &Lane<W>, now: Instant) -> Option<Told> {
        if self.connection == 0 {
            return None;
        }
        let want = lane.wants_turn();
        if self.turn_at.is_some() && self.in_turn.is_none() && lane.waiting() == 0 {
            // Whom it was for has gone.
            self.turn_at = None;
            self.events.push(Event { gives_up: true, first_fetch: false, left: None, outcome: None });
        }
        let wants = want.filter(|_| !self.has_turn());
        let debt = lane.debt(now).filter(|_| self.owes || !self.known);
        let due = self.is_at_stake() && self.renew_at.is_none_or(|at| at <= now);
        let news = !self.events.is_empty() || debt.is_some() || self.nudged;
        if !(news || due || wants.is_some() != self.in_line) {
            return None;
        }
        (self.calling, self.nudged, self.owes) = (true, false, false);
        self.renew_at = Some(now + RENEW);
        Some(Told {
            wants,
            hold: debt.map_or(Duration::ZERO, |debt| debt.until - now),
            backoff: debt.map_or(Duration::ZERO, |debt| debt.backoff),
            in_turn: self.in_turn.is_some(),
            events: std::mem::take(&mut self.events),
        })
    }

    /// What the fleet has answered to what was told at `told`.
    pub fn answered<W>(&mut self, lane: &mut Lane<W>, connection: u64, standing: Option<Standing>, told: Instant) {
        self.calling = false;
        // Another connection knows nothing of this one's places.
        if let Some(standing) = standing.filter(|_| connection == self.connection) {
            self.take_up(lane, standing, told, Instant::now());
        }
    }

    /// The fleet has given a turn unasked.
    pub fn given<W>(&mut self, lane: &mut Lane<W>, standing: Standing, now: Instant) {
        if self.calling {
            self.nudged = true;
        } else {
            self.take_up(lane, standing, now, now);
        }
    }

    /// An origin has refused another instance: how the key stands is to be asked.
    pub fn forget(&mut self) {
        self.known = false;
    }

    /// The lane has been told to hold back, by none of its own requests.
    pub fn owes(&mut self) {
        self.owes = true;
    }

    /// A turn is used.
    pub fn started(&mut self, slot: &Slot) {
        if slot.is_shared() {
            self.turn_at = None;
            self.in_turn = Some(slot.number());
        }
    }

    /// The request has left. Who need not be alone gives the turn up.
    pub fn left(&mut self, slot: &Slot, at: Instant) -> bool {
        let gives_up = self.in_turn == Some(slot.number()) && !slot.is_exclusive();
        if gives_up {
            self.in_turn = None;
            let first_fetch = slot.is_first_fetch();
            self.tell(Event { gives_up, first_fetch, left: Some(at), outcome: None });
        }
        gives_up
    }

    /// The request has ended. True: the fleet is to hear of it.
    pub fn ended(&mut self, slot: &Slot, left: Option<Instant>, outcome: Outcome) -> bool {
        let gives_up = self.in_turn == Some(slot.number());
        let is_news = gives_up || matches!(outcome, Outcome::Backoff { .. });
        if is_news {
            if gives_up {
                self.in_turn = None;
            }
            let left = left.filter(|_| outcome != Outcome::Unused);
            self.tell(Event { gives_up, first_fetch: slot.is_first_fetch(), left, outcome: Some(outcome) });
        }
        is_news && self.connection != 0
    }

    /// When there is something to do again.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let renew = self.renew_at.filter(|_| self.is_at_stake());
        let turn = self.turn_at.filter(|at| *at > now);
        [renew, turn].into_iter().flatten().min()
    }

    /// Whether something would be lost with nobody looking after it.
    pub fn is_at_stake(&self) -> bool {
        self.connection != 0 && (self.in_line || self.has_turn())
    }

    /// Whether a request is in flight in the fleet's turn.
    pub fn is_in_turn(&self) -> bool {
        self.in_turn.is_some()
    }

    fn has_turn(&self) -> bool {
        self.turn_at.is_some() || self.in_turn.is_some()
    }

    fn tell(&mut self, event: Event) {
        // Without a connection there is nobody to tell; the lane remembers what it owes.
        if self.connection != 0 {
            self.events.push(event);
        }
    }

    fn take_up<W>(&mut self, lane: &mut Lane<W>, standing: Standing, told: Instant, now: Instant) {
        let Standing { place, hold, backoff, rivals } = standing;
        lane.adopt(now, hold, backoff);
        (self.known, self.rivals) = (true, rivals);
        (self.in_line, self.turn_at, self.not_before) = (false, None, None);
        (self.kept_until, self.renew_at) = (Some(told + KEPT), Some(told + RENEW));
        match place {
            Place::None | Place::Free => {}
            Place::Line(wait) => (self.in_line, self.not_before) = (true, Some(now + wait)),
            // It is the one in use.
            Place::Turn(_) if self.in_turn.is_some() => {}
            Place::Turn(wait) => (self.turn_at, self.not_before) = (Some(now + wait), Some(now + wait)),
        }
    }
}

/// Often enough that a lost call does no harm.
const RENEW: Duration = Duration::from_millis(1500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pace::{Client, Next, Terms, Ticket, Turn};

    const JOINED: Reach = Reach::Joined(1);

    /// An instance's end of one key.
    struct Host {
        zero: Instant,
        lane: Lane<()>,
        stake: Stake,
    }

    impl Host {
        fn new() -> Self {
            let mut host = Host { zero: Instant::now(), lane: Lane::default(), stake: Stake::default() };
            host.follow(JOINED, 0);
            host
        }

        fn at(&self, ms: u64) -> Instant {
            self.zero + Duration::from_millis(ms)
        }

        fn follow(&mut self, reach: Reach, ms: u64) {
            let now = self.at(ms);
            self.stake.follow(&mut self.lane, reach, now);
        }

        fn waits(&mut self, ms: u64) -> Ticket {
            let terms = Terms { crawl_delay: Duration::from_secs(1), ..Terms::default() };
            match self.lane.request(self.at(ms), Client(1), &terms, || ()) {
                Turn::Wait { ticket, .. } => ticket,
                other => panic!("{other:?}"),
            }
        }

        fn call(&mut self, ms: u64) -> Option<Told> {
            self.stake.call(&self.lane, self.at(ms))
        }

        fn answered(&mut self, place: Place, ms: u64) {
            let (standing, told) = (standing(place), self.at(ms));
            self.stake.answered(&mut self.lane, 1, Some(standing), told);
        }

        fn starts(&mut self, ms: u64) -> Slot {
            self.follow(JOINED, ms);
            match self.lane.poll(self.at(ms)) {
                Next::Start((), slot) => {
                    self.stake.started(&slot);
                    slot
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn standing(place: Place) -> Standing {
        Standing { place, hold: Duration::ZERO, backoff: Duration::ZERO, rivals: 1 }
    }

    #[test]
    fn one_call_for_a_turn_and_one_that_ends_it_and_asks_for_the_next() {
        let mut host = Host::new();
        host.waits(0);
        assert!(host.call(0).is_some_and(|told| told.wants.is_some() && told.events.is_empty()));
        host.answered(Place::Turn(Duration::ZERO), 0);
        let slot = host.starts(5);
        assert!(host.call(10).is_none(), "nothing is new");
        host.waits(10);
        assert!(host.call(10).is_none(), "it has the turn still");
        assert!(host.stake.ended(&slot, Some(host.at(5)), Outcome::Success));
        let now = host.at(20);
        host.lane.finished(|| now, slot, Outcome::Success);
        let told = host.call(20).expect("the end");
        assert!(told.wants.is_some() && told.events[0].gives_up && told.events[0].left == Some(host.at(5)));
    }

    #[test]
    fn a_turn_that_nobody_wants_any_more_is_given_back() {
        let mut host = Host::new();
        let ticket = host.waits(0);
        host.call(0);
        host.answered(Place::Turn(Duration::from_secs(1)), 0);
        assert_eq!(host.lane.cancel(ticket), Some(()));
        let told = host.call(100).expect("it is given back");
        assert_eq!((told.wants, told.events[0].gives_up, told.events[0].left), (None, true, None));
        host.answered(Place::None, 100);
        assert!(host.call(100).is_none() && !host.stake.is_at_stake());
    }

    #[test]
    fn what_is_held_is_renewed_and_what_was_not_is_lost() {
        let mut host = Host::new();
        host.waits(0);
        host.call(0);
        host.answered(Place::Turn(Duration::from_secs(30)), 0);
        assert_eq!(host.stake.next(host.at(0)), Some(host.at(1500)));
        assert!(host.call(1500).is_some_and(|told| told.wants.is_none() && told.events.is_empty()));
        host.answered(Place::Turn(Duration::from_secs(28)), 1500);
        // The process was stopped meanwhile: somebody else may have the turn by now.
        host.follow(JOINED, 40_000);
        assert!(host.call(40_000).is_some_and(|told| told.wants.is_some()));
    }

    #[test]
    fn a_turn_that_comes_while_asking_is_asked_for_again() {
        let mut host = Host::new();
        host.waits(0);
        host.call(0);
        let now = host.at(0);
        host.stake.given(&mut host.lane, standing(Place::Turn(Duration::ZERO)), now);
        // Said before the turn was given.
        host.answered(Place::Line(Duration::from_secs(1)), 0);
        assert!(host.call(1).is_some_and(|told| told.wants.is_some()));
    }

    #[test]
    fn another_connection_is_told_what_is_owed_and_what_is_in_flight() {
        let mut host = Host::new();
        host.waits(0);
        host.call(0);
        host.answered(Place::Turn(Duration::ZERO), 0);
        let slot = host.starts(5);
        host.follow(Reach::Parted { instances: 3 }, 100);
        assert!(host.call(100).is_none(), "there is nobody to tell");
        host.follow(Reach::Joined(2), 200);
        let told = host.call(200).expect("all that is known");
        assert!(told.in_turn && told.hold > Duration::from_millis(700), "{told:?}");
        // An answer over the old connection says nothing.
        host.answered(Place::Turn(Duration::ZERO), 200);
        assert!(host.stake.ended(&slot, None, Outcome::Failure));
    }

    #[test]
    fn a_refusal_is_told_whoever_has_the_turn() {
        let mut host = Host::new();
        let Turn::Wait { .. } = host.lane.request(host.at(0), Client(1), &Terms::default(), || ()) else {
            panic!("it asks first");
        };
        host.call(0);
        host.answered(Place::Free, 0);
        let slot = host.starts(0);
        assert!(!slot.is_shared());
        let outcome = Outcome::Backoff { retry_after: None };
        assert!(host.stake.ended(&slot, Some(host.at(1)), outcome));
        assert!(host.call(2).is_some_and(|told| !told.events[0].gives_up && told.events[0].outcome == Some(outcome)));
        let other = host.stake.ended(&slot, Some(host.at(1)), Outcome::Success);
        assert!(!other, "a success is none of the fleet's business without a turn");
    }
}
