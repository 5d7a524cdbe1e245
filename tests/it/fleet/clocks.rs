//! The server's clock is set back by a day: nothing lasts for that day, and no start is early.

use super::{all, assert_apart, get, instances, site};
use crate::support::Origin;
use crate::support::redis::Redis;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Script};
use std::time::{Duration, Instant};

const DAY: i64 = 24 * 3_600_000;
const COPY: &str = "politely:{http://a.example}:copy";
const FETCHING: &str = "politely:{http://a.example}:fetch";
/// For how long whoever fetches has the right to.
const HELD: i64 = 5000;
/// Most bytes of a copy.
const LONGEST: usize = 100;

/// Every page from each, and how long that takes.
async fn rounds(fleet: &[super::Binary], origin: &Origin, count: usize) -> Duration {
    let began = Instant::now();
    for _ in 0..count {
        assert!(all(fleet, &origin.url("/page")).await.iter().all(|response| response.status() == 200));
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_set_back_by_a_day_keeps_the_pace_without_delay() {
    let Some(redis) = Redis::start().await else { return };
    let origin = site("0.3").await;
    let fleet = instances(&redis, 2, "").await;
    rounds(&fleet, &origin, 2).await;
    redis.step_clock(-DAY).await;
    let time = rounds(&fleet, &origin, 4).await;
    assert!(time < Duration::from_secs(15), "8 starts take 2.4 s: {time:?}");
    assert_eq!(get(&fleet[0], &origin.url_at("b.localhost", "/other")).await.status(), 200);
    assert_apart(&origin.log.starts("/page"), Duration::from_millis(300));
}

/// All keys of the server have expired then, as after a loss of its data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_set_ahead_by_a_day_keeps_the_pace_without_delay() {
    let Some(redis) = Redis::start().await else { return };
    let origin = site("0.3").await;
    let fleet = instances(&redis, 2, "").await;
    rounds(&fleet, &origin, 2).await;
    redis.step_clock(DAY).await;
    rounds(&fleet, &origin, 1).await;
    let before = origin.log.pages().len();
    let time = rounds(&fleet, &origin, 4).await;
    assert!(time < Duration::from_secs(15), "{time:?}");
    assert_apart(&origin.log.starts("/page").split_off(before), Duration::from_millis(300));
}

/// State, milliseconds (the copy's age, or how long to wait), copy.
async fn copy(me: &str, wanted: &str, age: i64, redis: &mut MultiplexedConnection) -> (i64, i64, Vec<u8>) {
    let script = Script::new(include_str!("../../../src/gate/fleet/copy.lua"));
    let mut call = script.key(COPY);
    let call = call.key(FETCHING).arg(me).arg(wanted).arg(LONGEST).arg(age).arg(HELD);
    let (state, age, wait, _, copy): (i64, i64, i64, i64, Vec<u8>) = call.invoke_async(redis).await.expect("it runs");
    (state, if state == ANOTHER { wait } else { age }, copy)
}

/// One as of the server's time `at`, fresh for a day, with a right that was given at `granted`. Returns the answer's state.
async fn put(text: &str, at: i64, granted: i64, redis: &mut MultiplexedConnection) -> i64 {
    let script = Script::new(include_str!("../../../src/gate/fleet/copy.lua"));
    let mut put = script.key(COPY);
    let put = put.key(FETCHING).arg("a").arg("put").arg(DAY).arg(text).arg(30 * DAY).arg(at).arg(granted).arg(0);
    let (state, ..): (i64, i64, i64, i64, Vec<u8>) = put.invoke_async(redis).await.expect("it runs");
    state
}

/// Moves the times of the copy by `by`. Returns when it was made.
async fn move_copy(by: i64, redis: &mut MultiplexedConnection) -> i64 {
    let script = Script::new(
        "local at, fresh_until, copy = cmsgpack.unpack(redis.call('GET', KEYS[1]))
         redis.call('SET', KEYS[1], cmsgpack.pack(at + ARGV[1], fresh_until + ARGV[1], copy))
         return at + ARGV[1]",
    );
    script.key(COPY).arg(by).invoke_async(redis).await.expect("there is one")
}

/// No server's time: as of now.
const FAR: i64 = 1 << 52;
const HERE: i64 = 0;
const FETCH: i64 = 1;
const ANOTHER: i64 = 2;
const DONE: i64 = 3;
const OUTDATED: i64 = 4;

#[tokio::test]
async fn copy_dated_in_the_future_is_fetched_again() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    put("copy", FAR, 0, redis).await;
    assert!(matches!(copy("b", "look", 0, redis).await, (HERE, 0..60_000, copy) if copy == b"copy"));
    move_copy(DAY, redis).await;
    assert_eq!(copy("b", "look", 0, redis).await.0, FETCH, "nobody knows how old it is");
    assert_eq!(copy("c", "anew", DAY, redis).await.0, ANOTHER, "nor is it what was waited for");
}

#[tokio::test]
async fn overlong_copy_is_fetched_again() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    put(&"x".repeat(LONGEST), FAR, 0, redis).await;
    for wanted in ["take", "look"] {
        assert_eq!(copy("b", wanted, 0, redis).await.2.len(), LONGEST);
    }
    put(&"x".repeat(LONGEST + 1), FAR, FAR, redis).await;
    for (wanted, state) in [("take", DONE), ("look", FETCH), ("anew", FETCH)] {
        assert!(matches!(copy("b", wanted, DAY, redis).await, (is, _, copy) if is == state && copy.is_empty()));
    }
}

#[tokio::test]
async fn copy_stored_after_losing_the_fetch_lock_does_not_replace_a_newer_one() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    put("newer", FAR, 0, redis).await;
    let at = move_copy(0, redis).await;
    assert_eq!(put("of a right from before", FAR, at - 1, redis).await, OUTDATED);
    assert!(matches!(copy("b", "take", 0, redis).await, (HERE, _, copy) if copy == b"newer"));
    assert_eq!(put("of a later right", FAR, at, redis).await, DONE);
    assert!(matches!(copy("b", "take", 0, redis).await, (HERE, _, copy) if copy == b"of a later right"));
    move_copy(DAY, redis).await;
    put("as of now", FAR, 0, redis).await;
    assert!(matches!(copy("b", "take", 0, redis).await, (HERE, _, copy) if copy == b"as of now"));
}

#[tokio::test]
async fn fetch_lock_is_released_by_its_holder_alone() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!(copy("a:1", "look", 0, redis).await.0, FETCH);
    assert_eq!(copy("a:1", "look", 0, redis).await.0, FETCH, "a repeated call");
    assert_eq!(copy("a:2", "look", 0, redis).await.0, ANOTHER, "two fetches of one instance are told apart");
    for other in ["a:2", "b:1"] {
        copy(other, "give", 0, redis).await;
        assert_eq!(copy("b:1", "look", 0, redis).await.0, ANOTHER);
    }
    copy("a:1", "give", 0, redis).await;
    assert_eq!(copy("b:1", "look", 0, redis).await.0, FETCH);
}

#[tokio::test]
async fn fetch_lock_lifetime_is_capped_after_a_clock_step() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!(copy("a", "look", 0, redis).await.0, FETCH);
    let () = redis.pexpire(FETCHING, DAY).await.expect("a key");
    let (state, left, _) = copy("b", "look", 0, redis).await;
    assert!(state == ANOTHER && left <= HELD, "{left}");
    let left: i64 = redis.pttl(FETCHING).await.expect("a key");
    assert!(left <= HELD, "{left}");
}
