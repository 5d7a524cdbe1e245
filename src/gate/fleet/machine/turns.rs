//! Each key's turns among the processes of a machine: which of them has the lease, without which nothing starts under a
//! delay, and what starts have to keep their distance from. Pure: what `turn.lua` is for a fleet, kept by one of them.

use crate::gate::fleet::{LeaseOp, LeaseRequest, LeaseStatus, Message, Place};
use crate::policy::pace::LastStarts;
use std::collections::HashMap;
use std::mem::take;
use std::time::{Duration, Instant};

/// A process, as who keeps the turns knows it.
pub(super) type Member = u64;

/// For one member, or all but one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum To {
    One(Member),
    AllBut(Member),
}

/// All keys in which anything is owed or wanted.
#[derive(Default)]
pub(super) struct Turns {
    keys: HashMap<Box<str>, Key>,
    /// When they were taken over from one that is gone, and whose last starts nobody knows.
    taken_over: Option<Instant>,
    /// What the members are to hear of.
    pub letters: Vec<(To, Message)>,
    sweep_at: usize,
}

#[derive(Default)]
struct Key {
    lease: Option<Lease>,
    last: Option<Mark>,
    fetch: Option<Mark>,
    hold: Option<Instant>,
    backoff: Duration,
    /// Who waits for the lease.
    line: Vec<Member>,
    /// Nothing of this matters any more.
    forgotten: Option<Instant>,
}

struct Lease {
    owner: Member,
    /// Of the request it was taken by; 0: it has been passed on, and is to be taken up.
    number: u64,
    ends: Instant,
    /// Nothing starts under it before.
    from: Instant,
}

/// A start, and whose: `None` of one that is gone.
#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    by: Option<Member>,
}

impl Turns {
    /// `at`: whoever kept them before has just gone, and may have started anything until then.
    pub fn taken_over(at: Instant) -> Self {
        Self { taken_over: Some(at), ..Self::default() }
    }

    /// What a member asks and reports, and how it stands then.
    pub fn ask(&mut self, me: Member, name: &str, request: &LeaseRequest, now: Instant) -> LeaseStatus {
        let known = self.keys.remove(name);
        let was_known = known.is_some();
        let mark = self.taken_over.map(|at| Mark { at, by: None });
        let mut key = known.unwrap_or_else(|| Key { last: mark, fetch: mark, ..Key::default() });
        let mut letters = take(&mut self.letters);
        let mut post = |to, message| letters.push((to, message));
        key.end_lease_that_ended(name, now, &mut post);
        // What is said of a lease that has been given up, or taken anew, comes too late.
        let LeaseRequest { op, number, gap, .. } = *request;
        let owned = key.lease.as_ref().filter(|lease| lease.owner == me);
        let is_mine = owned
            .is_some_and(|lease| if op == LeaseOp::Take { number >= lease.number } else { number == lease.number });
        let is_owner = owned.is_some();
        let has_news = key.learn(me, request, is_mine, now);
        let place = match op {
            LeaseOp::Give => {
                key.line.retain(|member| *member != me);
                if is_mine || key.lease.as_ref().is_some_and(|lease| lease.owner == me && lease.number == 0) {
                    key.pass_on(name, now, &mut post);
                }
                Place::None
            }
            LeaseOp::Take | LeaseOp::Keep if is_mine => Place::Leased,
            LeaseOp::Keep => Place::None,
            LeaseOp::Take if is_owner => Place::None,
            LeaseOp::Take if gap.is_zero() && key.backoff.is_zero() && key.hold.is_none_or(|hold| hold <= now) => {
                key.line.retain(|member| *member != me);
                Place::Free
            }
            LeaseOp::Take => match &key.lease {
                Some(lease) => {
                    let left = lease.ends - now;
                    if !key.line.contains(&me) {
                        key.line.push(me);
                    }
                    Place::Line(left)
                }
                None => Place::Leased,
            },
        };
        if place == Place::Leased {
            let last = key.last.map_or(now, |last| last.at + gap.max(key.backoff));
            let from = now.max(last).max(key.hold.unwrap_or(now));
            key.lease = Some(Lease { owner: me, number, ends: now + LEASE, from });
        }
        if has_news {
            post(To::AllBut(me), Message::Pace { key: name.into() });
        }
        self.letters = letters;
        let others = |mark: Option<Mark>| mark.filter(|mark| mark.by != Some(me)).map(|mark| mark.at);
        let status = LeaseStatus {
            place,
            starts: LastStarts {
                last_start: others(key.last),
                last_fetch: others(key.fetch),
                hold: key.hold.filter(|hold| *hold > now),
            },
            backoff: key.backoff,
            rivals: u32::try_from(key.line.len() + 1).unwrap_or(u32::MAX),
        };
        if place != Place::Free || was_known || !request.matters.is_zero() {
            let held_for = if key.lease.is_some() { LEASE + gap.max(key.backoff) } else { Duration::ZERO };
            let matters = now + request.matters.min(request.most + HOUR).max(held_for + LEASE);
            key.forgotten = key.forgotten.map(|until| until.min(now + request.most + HOUR)).max(Some(matters));
            self.keys.insert(name.into(), key);
            self.sweep(now);
        }
        status
    }

    /// A member is gone. What it had started nobody can say.
    pub fn gone(&mut self, member: Member, now: Instant) {
        let mut letters = take(&mut self.letters);
        for (name, key) in &mut self.keys {
            key.line.retain(|waits| *waits != member);
            if let Some(lease) = key.lease.as_mut().filter(|lease| lease.owner == member) {
                lease.ends = now;
                key.end_lease_that_ended(name, now, &mut |to, message| letters.push((to, message)));
            }
        }
        self.letters = letters;
    }

    /// Whether nothing is owed or wanted that only these know of. `longest`: nobody owes more.
    pub fn are_idle(&mut self, now: Instant, longest: Duration) -> bool {
        self.forget(now);
        self.keys.is_empty() && self.taken_over.is_none_or(|at| now > at + longest)
    }

    fn forget(&mut self, now: Instant) {
        self.keys.retain(|_, key| key.lease.is_some() || key.forgotten.is_some_and(|at| at > now));
    }

    fn sweep(&mut self, now: Instant) {
        if self.keys.len() > self.sweep_at {
            self.forget(now);
            self.sweep_at = (2 * self.keys.len()).max(LEAST_SWEPT);
        }
    }
}

impl Key {
    /// Takes note of what is reported. True: it holds others back.
    fn learn(&mut self, me: Member, request: &LeaseRequest, is_mine: bool, now: Instant) -> bool {
        let LastStarts { last_start, last_fetch, hold } = request.starts;
        for (mark, told) in [(&mut self.last, last_start), (&mut self.fetch, last_fetch)] {
            // A start counts as no later than what is ahead of it by the way of a packet.
            if let Some(at) = told.map(|at| at.min(now + AHEAD))
                && mark.is_none_or(|mark| at > mark.at)
            {
                *mark = Some(Mark { at, by: Some(me) });
            }
        }
        let mut has_news = false;
        if let Some(hold) = hold.map(|hold| hold.min(now + request.most)).filter(|hold| *hold > now)
            && self.hold.is_none_or(|known| hold > known)
        {
            (self.hold, has_news) = (Some(hold), true);
        }
        let backoff = request.backoff.min(HOUR);
        has_news |= backoff > self.backoff;
        if is_mine && request.is_exact || backoff > self.backoff {
            self.backoff = backoff;
        }
        has_news
    }

    fn end_lease_that_ended(&mut self, name: &str, now: Instant, post: &mut impl FnMut(To, Message)) {
        let Some(Lease { ends, from, .. }) = self.lease.as_ref().filter(|lease| lease.ends <= now) else { return };
        // It may have started until then, unless it had to wait for longer.
        if from < ends && self.last.is_none_or(|last| *ends > last.at) {
            self.last = Some(Mark { at: *ends, by: None });
        }
        self.pass_on(name, now, post);
    }

    /// To the first in line, who has so long to take it up, and else has to ask again.
    fn pass_on(&mut self, name: &str, now: Instant, post: &mut impl FnMut(To, Message)) {
        self.lease = None;
        if !self.line.is_empty() {
            let (owner, ends) = (self.line.remove(0), now + RESERVED);
            self.lease = Some(Lease { owner, number: 0, ends, from: ends });
            post(To::One(owner), Message::Pace { key: name.into() });
        }
    }
}

/// For how long a lease outlives its member, which renews it every second: stopped, or cut off.
const LEASE: Duration = Duration::from_secs(3);
const RESERVED: Duration = Duration::from_millis(500);
/// A start is told before it has arrived.
const AHEAD: Duration = Duration::from_millis(10);
const HOUR: Duration = Duration::from_secs(3600);
const LEAST_SWEPT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const A: Member = 1;
    const B: Member = 2;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn request(op: LeaseOp, number: u64, gap: u64) -> LeaseRequest {
        LeaseRequest {
            op,
            number,
            gap: ms(gap),
            starts: LastStarts::default(),
            backoff: Duration::ZERO,
            is_exact: false,
            owed: Duration::ZERO,
            matters: Duration::ZERO,
            most: HOUR,
        }
    }

    fn started(op: LeaseOp, number: u64, gap: u64, at: Instant) -> LeaseRequest {
        let starts = LastStarts { last_start: Some(at), ..LastStarts::default() };
        LeaseRequest { starts, matters: ms(gap), is_exact: true, ..request(op, number, gap) }
    }

    fn told(to: Member) -> [(To, Message); 1] {
        [(To::One(to), Message::Pace { key: "a".into() })]
    }

    #[test]
    fn one_has_the_lease_and_the_next_has_it_with_the_last_start() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        assert_eq!(turns.ask(A, "a", &request(LeaseOp::Take, 1, 3000), now).place, Place::Leased);
        let waits = turns.ask(B, "a", &request(LeaseOp::Take, 1, 3000), now);
        assert_eq!((waits.place, waits.rivals), (Place::Line(LEASE), 2));
        assert_eq!(turns.ask(A, "a", &request(LeaseOp::Keep, 1, 3000), now).rivals, 2, "it hears of who waits");
        assert_eq!(turns.letters, []);
        turns.ask(A, "a", &started(LeaseOp::Give, 1, 3000, now), now + ms(10));
        assert_eq!(take(&mut turns.letters), told(B));
        // Who gave it up stands behind.
        assert!(matches!(turns.ask(A, "a", &request(LeaseOp::Take, 2, 3000), now + ms(11)).place, Place::Line(_)));
        let has = turns.ask(B, "a", &request(LeaseOp::Take, 1, 3000), now + ms(12));
        assert_eq!((has.place, has.starts.last_start), (Place::Leased, Some(now)));
    }

    #[test]
    fn without_a_delay_nobody_needs_one_and_nothing_is_kept() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        assert_eq!(turns.ask(A, "a", &request(LeaseOp::Take, 1, 0), now).place, Place::Free);
        assert!(turns.are_idle(now, HOUR));
        // Until the origin asks for time.
        let starts = LastStarts { hold: Some(now + ms(5000)), ..LastStarts::default() };
        let refused = LeaseRequest { starts, backoff: ms(1000), matters: ms(6000), ..request(LeaseOp::Give, 2, 0) };
        turns.ask(A, "a", &refused, now);
        assert_eq!(take(&mut turns.letters), [(To::AllBut(A), Message::Pace { key: "a".into() })]);
        let told = turns.ask(B, "a", &request(LeaseOp::Take, 1, 0), now);
        assert_eq!((told.place, told.starts.hold, told.backoff), (Place::Leased, Some(now + ms(5000)), ms(1000)));
    }

    #[test]
    fn who_is_gone_leaves_the_lease_and_may_have_started_until_then() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        turns.ask(A, "a", &request(LeaseOp::Take, 1, 3000), now);
        turns.ask(B, "a", &request(LeaseOp::Take, 1, 3000), now);
        turns.gone(A, now + ms(700));
        assert_eq!(take(&mut turns.letters), told(B));
        let has = turns.ask(B, "a", &request(LeaseOp::Take, 1, 3000), now + ms(701));
        assert_eq!((has.place, has.starts.last_start), (Place::Leased, Some(now + ms(700))));
        // Not if its turn was yet to come.
        turns.ask(A, "a", &request(LeaseOp::Take, 2, 3000), now + ms(800));
        turns.gone(B, now + ms(900));
        let has = turns.ask(A, "a", &request(LeaseOp::Take, 2, 3000), now + ms(900));
        assert_eq!((has.place, has.starts.last_start), (Place::Leased, Some(now + ms(700))));
    }

    #[test]
    fn a_lease_that_is_not_renewed_ends_and_one_that_is_not_taken_up_is_passed_on() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        for member in [A, B, 3] {
            turns.ask(member, "a", &request(LeaseOp::Take, 1, 1000), now);
        }
        let late = now + LEASE + ms(1);
        assert_eq!(turns.ask(3, "a", &request(LeaseOp::Take, 2, 1000), late).place, Place::Line(RESERVED));
        assert_eq!(take(&mut turns.letters), told(B));
        let later = late + RESERVED;
        assert_eq!(turns.ask(3, "a", &request(LeaseOp::Take, 2, 1000), later).place, Place::Leased);
        assert_eq!(turns.ask(A, "a", &request(LeaseOp::Keep, 1, 1000), later).place, Place::None, "it comes too late");
    }

    #[test]
    fn taken_over_every_delay_is_owed_once() {
        let now = Instant::now();
        let mut turns = Turns::taken_over(now);
        let has = turns.ask(A, "a", &request(LeaseOp::Take, 1, 3000), now + ms(100));
        assert_eq!((has.place, has.starts.last_start), (Place::Leased, Some(now)));
        assert_eq!(turns.ask(A, "b", &request(LeaseOp::Take, 2, 0), now + ms(100)).place, Place::Free);
        assert!(!turns.are_idle(now + ms(5000), HOUR));
    }

    #[test]
    fn what_matters_no_more_is_forgotten() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        turns.ask(A, "a", &request(LeaseOp::Take, 1, 1000), now);
        turns.ask(A, "a", &started(LeaseOp::Give, 1, 20_000, now), now);
        assert!(!turns.are_idle(now + ms(19_000), HOUR));
        assert!(turns.are_idle(now + ms(21_000), HOUR));
    }
}
