//! What the server's script promises on its own: what comes late frees nothing, and no instant is trusted beyond sense.

use crate::support::redis::Redis;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Script};
use std::time::{Duration, Instant};
use tokio::time::sleep;

const KEY: &str = "politely:{a.example}:lease";
const LEASE: u64 = 1600;
const HOUR: i64 = 3_600_000;
/// What it answers first.
const NONE: i64 = 0;
const LINE: i64 = 2;
const LEASED: i64 = 3;

struct Call<'a> {
    op: &'a str,
    me: &'a str,
    number: u64,
    gap: u64,
    /// Milliseconds since its last start.
    last: &'a str,
    hold: u64,
    backoff: u64,
}

impl<'a> Call<'a> {
    fn new(op: &'a str, me: &'a str, number: u64) -> Self {
        Self { op, me, number, gap: 100, last: "", hold: 0, backoff: 0 }
    }

    /// Place, how long ago the last start and first fetch were, hold, backoff, rivals, when to ask again.
    async fn run(self, redis: &mut MultiplexedConnection) -> Vec<i64> {
        let script = Script::new(include_str!("../../../src/gate/fleet/turn.lua"));
        let mut call = script.key(KEY);
        call.arg(self.op).arg(self.me).arg(self.number).arg(LEASE).arg(self.gap).arg(self.last).arg("");
        call.arg(self.hold).arg(self.backoff).arg("").arg(self.gap).arg(HOUR);
        call.invoke_async(redis).await.expect("it runs")
    }
}

/// All that the key keeps is so much later now.
async fn set_back(redis: &mut MultiplexedConnection, by: i64) {
    let kept: String = redis.get(KEY).await.expect("a key");
    let mut key: serde_json::Value = serde_json::from_str(&kept).expect("JSON");
    for field in ["last", "fetch", "hold", "ends", "from"] {
        key[field] = (key[field].as_i64().expect("a number") + by).into();
    }
    let () = redis.set(KEY, key.to_string()).await.expect("it is stored");
}

async fn take(me: &str, number: u64, redis: &mut MultiplexedConnection) -> i64 {
    Call::new("take", me, number).run(redis).await[0]
}

async fn give(me: &str, number: u64, redis: &mut MultiplexedConnection) {
    Call { last: "0", ..Call::new("give", me, number) }.run(redis).await;
}

#[tokio::test]
async fn one_has_the_lease_and_the_next_in_line_gets_it() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!(take("a", 1, redis).await, LEASED);
    assert_eq!((take("b", 1, redis).await, take("c", 1, redis).await), (LINE, LINE));
    give("a", 1, redis).await;
    // It would like to go on, but others have waited for longer.
    assert_eq!((take("c", 2, redis).await, take("a", 2, redis).await), (LINE, LINE));
    let told = Call::new("take", "b", 2).run(redis).await;
    assert!(told[0] == LEASED && (0..1000).contains(&told[1]), "and learns of the last start: {told:?}");
}

/// Evicted, or by hand.
#[tokio::test]
async fn a_key_that_was_deleted_is_lent_to_who_asks_and_the_one_before_learns_so_when_it_renews() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!(take("a", 1, redis).await, LEASED);
    let () = redis.del(KEY).await.expect("it may");
    assert_eq!(take("b", 1, redis).await, LEASED, "nobody knows of the other");
    assert_eq!(Call::new("keep", "a", 1).run(redis).await[0], NONE);
    assert_eq!(Call { last: "500", ..Call::new("take", "a", 2) }.run(redis).await[0], LINE);
    let told = Call::new("keep", "b", 1).run(redis).await;
    assert!(told[0] == LEASED && told[1] > 400, "and learns of its start: {told:?}");
}

#[tokio::test]
async fn who_lets_a_turn_go_by_holds_up_nobody_and_has_the_next_once_it_asks() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!(take("a", 1, redis).await, LEASED);
    assert_eq!((take("b", 1, redis).await, take("c", 1, redis).await), (LINE, LINE));
    give("a", 1, redis).await;
    let told = Call::new("take", "c", 2).run(redis).await;
    let is_short = (1..=LEASE as i64 * 2 / 3).contains(&told[6]);
    assert!(told[0] == LINE && is_short, "it is for the first, who is cut off: {told:?}");
    sleep(Duration::from_millis(told[6] as u64 + 5)).await;
    let told = Call::new("take", "c", 3).run(redis).await;
    assert!(
        told[0] == LEASED && told[1] > LEASE as i64 * 2 / 3,
        "but not for ever, and it has started nothing: {told:?}"
    );
    assert_eq!((take("a", 2, redis).await, take("b", 2, redis).await), (LINE, LINE));
    give("c", 3, redis).await;
    assert_eq!((take("a", 3, redis).await, take("b", 3, redis).await), (LINE, LEASED));
}

#[tokio::test]
async fn so_has_one_that_never_heard_that_the_lease_was_its_own_unless_it_gives_it_back() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    for gives_back in [false, true] {
        assert_eq!(take("a", 1, redis).await, LEASED);
        assert_eq!((take("b", 1, redis).await, take("c", 1, redis).await), (LINE, LINE));
        sleep(Duration::from_millis(LEASE + 50)).await;
        assert_eq!(take("b", 2, redis).await, LEASED);
        if gives_back {
            give("a", 1, redis).await;
        }
        assert_eq!(take("a", 2, redis).await, LINE);
        give("b", 2, redis).await;
        let (a, c) = if gives_back { (LINE, LEASED) } else { (LEASED, LINE) };
        assert_eq!((take("a", 3, redis).await, take("c", 2, redis).await), (a, c));
        let () = redis.del(KEY).await.expect("it is there");
    }
}

#[tokio::test]
async fn who_never_hears_that_it_has_the_lease_has_it_for_no_longer_by_asking_again() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!((take("a", 1, redis).await, take("b", 1, redis).await), (LEASED, LINE));
    sleep(Duration::from_millis(LEASE / 2)).await;
    let told = Call::new("take", "a", 2).run(redis).await;
    assert!(told[0] == LEASED && (1..=LEASE as i64 / 2).contains(&told[6]), "it is told how long that is: {told:?}");
    let told = Call::new("take", "a", 2).run(redis).await;
    assert!(told[0] == LEASED && told[6] == LEASE as i64, "now it has heard: {told:?}");
    sleep(Duration::from_millis(LEASE / 2)).await;
    assert_eq!(take("a", 3, redis).await, LEASED);
    sleep(Duration::from_millis(LEASE / 2 + 50)).await;
    assert_eq!(take("b", 2, redis).await, LEASED);
}

#[tokio::test]
async fn who_needs_its_turn_no_more_hands_it_on() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!(take("a", 1, redis).await, LEASED);
    assert_eq!((take("b", 1, redis).await, take("c", 1, redis).await), (LINE, LINE));
    give("a", 1, redis).await;
    Call::new("give", "b", 2).run(redis).await;
    assert_eq!((take("b", 3, redis).await, take("c", 2, redis).await), (LINE, LEASED));
}

/// `e` waits behind so many that have been killed since they last asked. How long it asks until it has the lease that `a` gives up.
async fn behind_the_dead(dead: u32, silent: bool, redis: &mut MultiplexedConnection) -> Duration {
    let ask = async |redis: &mut MultiplexedConnection| {
        let told = Call::new("take", "e", 1).run(redis).await;
        sleep(Duration::from_millis(LEASE / 3)).await;
        told
    };
    assert_eq!(take("a", 1, redis).await, LEASED);
    for number in 0..dead {
        assert_eq!(take(&format!("d{number:02}"), 1, redis).await, LINE);
    }
    let told = ask(redis).await;
    assert_eq!((told[0], told[5]), (LINE, i64::from(dead) + 2), "all of them stand in line");
    for _ in 0..if silent { 5 } else { 0 } {
        assert_eq!(Call::new("keep", "a", 1).run(redis).await[0], LEASED);
        ask(redis).await;
    }
    let told = Call::new("take", "e", 1).run(redis).await;
    assert_eq!(told[5], if silent { 2 } else { i64::from(dead) + 2 }, "those that are silent want nothing");
    give("a", 1, redis).await;
    let began = Instant::now();
    while ask(redis).await[0] != LEASED {}
    began.elapsed() - Duration::from_millis(LEASE / 3)
}

#[tokio::test]
async fn twenty_dead_in_line_cost_nothing_once_they_are_silent_and_two_waits_before() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    let cost = behind_the_dead(20, true, redis).await;
    assert!(cost < Duration::from_millis(LEASE / 3), "{cost:?}");
    let () = redis.del(KEY).await.expect("it is there");
    let cost = behind_the_dead(20, false, redis).await;
    assert!(cost < Duration::from_millis(LEASE * 5 / 2), "each would cost two thirds of a lease: {cost:?}");
}

#[tokio::test]
async fn who_was_silent_and_is_not_dead_keeps_its_place() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!(take("a", 1, redis).await, LEASED);
    assert_eq!((take("b", 1, redis).await, take("c", 1, redis).await), (LINE, LINE));
    for _ in 0..5 {
        sleep(Duration::from_millis(LEASE / 3)).await;
        assert_eq!(Call::new("keep", "a", 1).run(redis).await[0], LEASED);
        assert_eq!(take("c", 1, redis).await, LINE);
    }
    give("a", 1, redis).await;
    assert_eq!((take("b", 2, redis).await, take("c", 1, redis).await), (LINE, LEASED));
    assert_eq!(take("a", 2, redis).await, LINE);
    give("c", 1, redis).await;
    assert_eq!((take("a", 2, redis).await, take("b", 2, redis).await), (LINE, LEASED));
}

#[tokio::test]
async fn the_lease_of_one_that_died_goes_to_the_first_in_line() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!(take("a", 1, redis).await, LEASED);
    assert_eq!(take("b", 1, redis).await, LINE);
    let told = Call::new("take", "c", 1).run(redis).await;
    assert!((1..=LEASE as i64).contains(&told[6]), "it is told when to ask again: {told:?}");
    sleep(Duration::from_millis(LEASE + 50)).await;
    assert_eq!((take("c", 2, redis).await, take("b", 2, redis).await), (LINE, LEASED));
}

#[tokio::test]
async fn what_comes_late_neither_frees_nor_takes() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!(take("a", 1, redis).await, LEASED);
    assert_eq!(take("a", 2, redis).await, LEASED, "its first answer was lost");
    give("a", 1, redis).await;
    assert_eq!(take("b", 1, redis).await, LINE, "it was the first lease that was given up");
    assert_eq!(Call::new("keep", "a", 1).run(redis).await[0], NONE);
    assert_eq!(take("a", 1, redis).await, NONE);
    assert_eq!(Call::new("keep", "a", 2).run(redis).await[0], LEASED);
    give("a", 2, redis).await;
    assert_eq!(Call::new("keep", "a", 2).run(redis).await[0], NONE, "it is gone, and does not come back by being kept");
    assert_eq!(take("b", 2, redis).await, LEASED);
}

#[tokio::test]
async fn an_instance_that_died_counts_as_having_started_until_its_lease_ended() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!(take("a", 1, redis).await, LEASED);
    sleep(Duration::from_millis(LEASE + 50)).await;
    let told = Call { gap: 10_000, ..Call::new("take", "b", 1) }.run(redis).await;
    assert!(told[0] == LEASED && (0..1000).contains(&told[1]), "{told:?}");
    // Which cannot be if it had to wait for longer.
    sleep(Duration::from_millis(LEASE + 50)).await;
    let later = Call::new("take", "c", 1).run(redis).await;
    assert!(later[0] == LEASED && later[1] > told[1] + LEASE as i64, "{told:?} {later:?}");
}

#[tokio::test]
async fn after_a_clock_that_was_a_day_ahead_nothing_is_owed_for_a_day() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!(take("a", 1, redis).await, LEASED);
    Call { last: "0", hold: 500, ..Call::new("keep", "a", 1) }.run(redis).await;
    set_back(redis, 24 * HOUR).await;
    let told = Call::new("take", "b", 1).run(redis).await;
    assert!(told[0] == LINE && (0..=100).contains(&told[1]) && (0..=HOUR).contains(&told[3]), "{told:?}");
    sleep(Duration::from_millis(LEASE + 50)).await;
    assert_eq!(take("b", 1, redis).await, LEASED, "the lease has not become longer");
}

#[tokio::test]
async fn after_a_clock_that_was_a_day_ahead_the_last_holder_learns_of_the_start_of_another() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!(take("a", 1, redis).await, LEASED);
    give("a", 1, redis).await;
    assert_eq!(take("b", 1, redis).await, LEASED);
    set_back(redis, 24 * HOUR).await;
    // What it has started under the right time is told against a start of a day ahead.
    give("b", 1, redis).await;
    let told = Call::new("take", "a", 2).run(redis).await;
    assert!(told[0] == LEASED && (0..=100).contains(&told[1]), "it would take that for its own: {told:?}");
}

#[tokio::test]
async fn a_key_is_kept_for_the_longest_gap_that_is_owed() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    for (number, gap) in [(1, 300_000), (2, 100)] {
        Call { gap, ..Call::new("take", "a", number) }.run(redis).await;
        Call { gap, last: "0", ..Call::new("give", "a", number) }.run(redis).await;
    }
    let left: i64 = redis.pttl(KEY).await.expect("milliseconds");
    assert!((200_000..=304_000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_backoff_is_raised_by_all_and_lowered_under_the_lease() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    for (me, backoff, told) in [("a", 2000, 2000), ("b", 1000, 2000), ("b", 4000, 4000)] {
        let answer = Call { backoff, hold: backoff, ..Call::new("give", me, 1) }.run(redis).await;
        assert_eq!(answer[4], told);
        assert!(answer[3] <= told && answer[3] > told - 1000, "{answer:?}");
    }
    assert_eq!(Call { gap: 0, ..Call::new("take", "c", 1) }.run(redis).await[0], LEASED, "it needs the lease now");
}
