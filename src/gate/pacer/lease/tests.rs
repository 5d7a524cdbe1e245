//! A lease through links that break, in simulated time.

use super::*;
use crate::policy::pace::{ClientId, NextTurn, PaceOutcome, Phase, Terms, Turn};

const LEASE: Duration = Duration::from_secs(3);

/// An instance that has the lease of a key with a delay of 100 ms, for which another waits, and more requests than it
/// can let go.
struct Instance {
    schedule: Schedule,
    lease: FleetLease,
    now: Instant,
    numbers: u64,
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Instance {
    fn leased() -> Self {
        let mut instance = Self::waiting();
        let take = instance.call().expect("it asks");
        assert_eq!(take.op, LeaseOp::Take);
        instance.answer(&take, TurnPlace::Leased(LEASE));
        instance
    }

    fn waiting() -> Self {
        let (schedule, lease) = (Schedule::default(), FleetLease::default());
        let mut instance = Self { schedule, lease, now: Instant::now(), numbers: 0 };
        instance.link(1);
        for client in 0..100 {
            let terms = Terms { crawl_delay: ms(100), ..Terms::default() };
            assert!(matches!(
                instance.schedule.request(instance.now, ClientId(client), &terms, || ()),
                Turn::Wait { .. }
            ));
        }
        instance
    }

    /// To this server; those that may have forgotten are settled after a second.
    fn link(&mut self, link: u64) {
        let settled_at = (link > 1).then(|| self.now + ms(1000));
        self.lease.follow(&mut self.schedule, Reach { link, settled_at, ..Reach::default() }, self.now);
    }

    /// Over another connection, to the first.
    fn reconnect(&mut self) {
        self.lease.changed();
        self.link(1);
    }

    fn call(&mut self) -> Option<LeaseRequest> {
        self.lease.call(&self.schedule, self.now, || {
            self.numbers += 1;
            self.numbers
        })
    }

    fn answer(&mut self, request: &LeaseRequest, place: TurnPlace) {
        self.answer_with(request, place, Observed::default());
    }

    fn answer_with(&mut self, request: &LeaseRequest, place: TurnPlace, observed: Observed) {
        let status = LeaseStatus { place, starts: LastStarts::default(), backoff: Duration::ZERO, observed, rivals: 2 };
        self.lease.answered(&mut self.schedule, request, Some(status), self.now, self.now);
    }

    /// How many start, one after the other, in so long a time over this connection.
    fn starts_in(&mut self, time: Duration, link: u64) -> usize {
        let (mut starts, end) = (0, self.now + time);
        while self.now < end {
            self.link(link);
            if let NextTurn::Start((), slot) = self.schedule.poll(self.now) {
                self.lease.started(&slot, self.now);
                self.lease.ended(&slot, true);
                self.schedule.finished(|| self.now, slot, PaceOutcome::Success);
                starts += 1;
            }
            self.now += ms(10);
        }
        starts
    }
}

#[test]
fn nothing_starts_late_under_a_lease_that_is_not_renewed() {
    let mut instance = Instance::leased();
    assert_eq!(instance.starts_in(ms(3000), 1), 20, "what starts last has a second of the lease to end in");
}

#[test]
fn nor_under_one_that_has_ended_while_the_machine_slept() {
    let mut instance = Instance::leased();
    assert_eq!(instance.starts_in(ms(100), 1), 1);
    let slept = |slept| Reach { link: 1, slept: ms(slept), ..Reach::default() };
    instance.lease.follow(&mut instance.schedule, slept(60_000), instance.now);
    assert_eq!(instance.schedule.poll(instance.now + ms(200)), NextTurn::WaitUntil(instance.now + ms(60_000 - 100)));
    let take = instance.call().expect("it asks again");
    assert_eq!((take.op, take.number), (LeaseOp::Take, 1));
    // It sleeps while it asks.
    instance.lease.follow(&mut instance.schedule, slept(65_000), instance.now);
    instance.answer(&take, TurnPlace::Leased(LEASE));
    assert_eq!(instance.call().map(|call| call.op), Some(LeaseOp::Take), "the answer says nothing any more");
}

#[test]
fn nor_under_what_is_left_of_one_whose_answers_were_lost_before_it_is_renewed() {
    let mut instance = Instance::waiting();
    let take = instance.call().expect("it asks");
    instance.answer(&take, TurnPlace::Leased(ms(1300)));
    assert_eq!(instance.starts_in(ms(1000), 1), 3);
    let again = instance.call().expect("it ends soon");
    assert_eq!((again.op, again.number), (LeaseOp::Take, 1));
    instance.answer(&again, TurnPlace::Leased(LEASE));
    assert_eq!(instance.starts_in(ms(1000), 1), 10);
}

#[test]
fn when_the_server_is_lost_nothing_starts_before_all_have_noticed_and_then_each_in_its_own_part() {
    let mut instance = Instance::waiting();
    let take = instance.call().expect("it asks");
    instance.answer(&take, TurnPlace::Queued(LEASE));
    let lost = instance.now + ms(1000);
    for later in [0, 150] {
        instance.now = lost + ms(later);
        let alone = Some(Phase { instances: 2, rank: 1, epoch: lost - ms(1000) });
        let reach = Reach { alone, settled_at: Some(lost + ms(2000)), ..Reach::default() };
        instance.lease.follow(&mut instance.schedule, reach, instance.now);
        assert_eq!(instance.schedule.poll(instance.now), NextTurn::WaitUntil(lost + ms(2100)));
    }
}

#[test]
fn an_instance_that_was_cut_off_gives_the_lease_back_and_has_no_second_share() {
    let mut instance = Instance::leased();
    instance.starts_in(ms(4100), 1);
    instance.link(2);
    let give = instance.call().expect("it does not wait for others");
    assert_eq!((give.op, give.number), (LeaseOp::Give, 1));
    instance.answer(&give, TurnPlace::None);
    instance.now += ms(1000);
    assert_eq!(instance.call().map(|call| (call.op, call.number)), Some((LeaseOp::Take, 2)));
}

#[test]
fn nor_has_it_if_the_server_took_the_lease_for_its_own_all_the_time() {
    let mut instance = Instance::leased();
    instance.starts_in(ms(2500), 1);
    instance.link(2);
    instance.lease.changed();
    assert!(instance.call().is_none(), "others may have it by now, and tell the server first");
    instance.now += ms(1000);
    let take = instance.call().expect("they have");
    assert_eq!((take.op, take.number), (LeaseOp::Take, 1));
    instance.answer(&take, TurnPlace::Leased(LEASE));
    instance.starts_in(ms(700), 2);
    assert_eq!(instance.call().map(|call| call.op), Some(LeaseOp::Give));
}

#[test]
fn nor_has_it_if_the_server_was_out_of_reach_meanwhile() {
    let mut instance = Instance::leased();
    instance.starts_in(ms(2500), 1);
    instance.link(0);
    instance.now += ms(1700);
    instance.link(2);
    let give = instance.call().expect("it does not wait for others");
    assert_eq!((give.op, give.number), (LeaseOp::Give, 1));
}

#[test]
fn what_gives_it_up_is_said_until_it_is_heard_and_nothing_starts_meanwhile() {
    let mut instance = Instance::leased();
    for _ in 0..3 {
        // Renewed in good time until the share ends.
        instance.starts_in(ms(1100), 1);
        let keep = instance.call().expect("it is renewed");
        assert_eq!(keep.op, LeaseOp::Keep);
        instance.answer(&keep, TurnPlace::Leased(LEASE));
    }
    instance.starts_in(ms(900), 1);
    let give = instance.call().expect("the share has ended");
    assert_eq!(give.op, LeaseOp::Give);
    assert_eq!(instance.starts_in(ms(100), 1), 0);
    instance.lease.answered(&mut instance.schedule, &give, None, instance.now, instance.now);
    assert_eq!(instance.starts_in(ms(600), 1), 0, "it may have been heard");
    assert_eq!(instance.call().map(|call| (call.op, call.number)), Some((LeaseOp::Give, 1)));
}

#[test]
fn a_connection_that_is_made_again_to_a_server_that_remembers_costs_neither_the_lease_nor_the_place() {
    let mut instance = Instance::leased();
    instance.reconnect();
    let keep = instance.call().expect("what the server has said meanwhile is lost");
    assert_eq!((keep.op, keep.number), (LeaseOp::Keep, 1));
    // What is answered over the next is the answer still.
    instance.reconnect();
    instance.answer(&keep, TurnPlace::Leased(LEASE));
    assert_eq!(instance.starts_in(ms(1000), 1), 10);
}

#[test]
fn and_a_waiting_process_asks_at_once_over_it_and_not_after_a_second() {
    let mut instance = Instance::waiting();
    let take = instance.call().expect("it asks");
    instance.answer(&take, TurnPlace::Queued(ms(3000)));
    assert!(instance.call().is_none(), "the fleet says when its turn has come");
    instance.reconnect();
    let again = instance.call().expect("it may have been");
    assert_eq!(again.op, LeaseOp::Take);
    instance.reconnect();
    instance.answer(&again, TurnPlace::Leased(LEASE));
    assert_eq!(instance.starts_in(ms(1000), 1), 10, "it was asked of the same server");
}

#[test]
fn a_waiting_process_finds_its_turn_in_time_though_nothing_wakes_it() {
    let mut instance = Instance::waiting();
    let take = instance.call().expect("it asks");
    instance.answer(&take, TurnPlace::Queued(LEASE));
    // The other gives the lease up now. It stays with who is first in line for two thirds of a lease.
    instance.now += LEASE / 3 + ms(5);
    let again = instance.call().expect("there is half of that time left to ask in");
    assert_eq!(again.op, LeaseOp::Take);
    instance.answer(&again, TurnPlace::Leased(LEASE));
    assert_eq!(instance.starts_in(ms(1000), 1), 10);
}

#[test]
fn what_others_have_seen_to_pass_is_not_raised_again_by_one_that_has_yet_to_hear_of_it() {
    let mut instance = Instance::waiting();
    let take = instance.call().expect("it asks");
    let (slow, good) = (Observed { latency: ms(3000), refusals: 2 }, Observed { latency: ms(200), refusals: 0 });
    instance.answer_with(&take, TurnPlace::Leased(LEASE), slow);
    // The lease ends unrenewed, another has it meanwhile, and finds the host well again.
    instance.now += LEASE;
    let again = instance.call().expect("it asks again");
    assert_eq!((again.op, again.is_exact, again.observed), (LeaseOp::Take, false, Observed::default()));
    instance.answer_with(&again, TurnPlace::Leased(LEASE), good);
    assert_eq!(instance.schedule.observed(), good);
    instance.now += LEASE;
    instance.schedule.adopt_observed(Observed { refusals: 1, ..good });
    let raises = instance.call().expect("it asks again");
    assert_eq!(raises.observed, Observed { latency: Duration::ZERO, refusals: 1 }, "what it has seen since");
}

#[test]
fn a_lease_of_which_the_server_knows_nothing_is_taken_again_with_all_that_is_known() {
    let mut instance = Instance::leased();
    instance.starts_in(ms(100), 1);
    instance.schedule.adopt(LastStarts::default(), ms(500));
    let keep = instance.call().expect("the backoff is news");
    assert_eq!(keep.op, LeaseOp::Keep);
    instance.answer_with(&keep, TurnPlace::Leased(LEASE), Observed::default());
    let last = instance.schedule.last_starts();
    instance.schedule.adopt(LastStarts::default(), ms(500));
    instance.now += ms(1000);
    instance.link(1);
    let keep = instance.call().expect("it is to be renewed");
    assert_eq!((keep.op, keep.starts), (LeaseOp::Keep, LastStarts::default()), "it has been reported");
    instance.answer(&keep, TurnPlace::None);
    assert_eq!(instance.starts_in(ms(10), 1), 0, "nothing starts");
    let take = instance.call().expect("it asks at once");
    assert_eq!((take.op, take.starts, take.backoff), (LeaseOp::Take, last, ms(500)));
}
