//! The Lua script of instances: connected, missing and forgotten ones.

use crate::support::redis::Redis;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Script};
use std::time::{SystemTime, UNIX_EPOCH};

const KEY: &str = "politely:instances";
const DAY: i64 = 24 * 3_600_000;
/// Milliseconds until one is missing, and until it is forgotten. Longer than any test takes.
const MISSING: i64 = 600_000;
const FORGOTTEN: i64 = 1_800_000;

/// Connected, all, rank, known before; and others that tell, and the server's time.
type Told = ((u32, u32, u32, bool), u32, u64);

async fn tell(me: &str, what: &str, redis: &mut MultiplexedConnection) -> Told {
    let script = Script::new(include_str!("../../../src/gate/fleet/instances.lua"));
    let mut call = script.key(KEY);
    let call = call.arg(me).arg(MISSING).arg(FORGOTTEN).arg(what);
    let (connected, all, rank, was_there, telling, time) = call.invoke_async(redis).await.expect("it runs");
    ((connected, all, rank, was_there), telling, time)
}

async fn beat(me: &str, redis: &mut MultiplexedConnection) -> (u32, u32, u32, bool) {
    tell(me, "", redis).await.0
}

/// As if these had been silent for more than so many milliseconds longer.
async fn are_silent(names: &[&str], time: i64, redis: &mut MultiplexedConnection) {
    for name in names {
        let () = redis.zincr(KEY, name, -time - 1).await.expect("a set");
    }
}

#[tokio::test]
async fn silent_instance_is_missing_and_later_forgotten() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!((beat("b", redis).await, beat("a", redis).await), ((1, 1, 0, false), (2, 2, 0, false)));
    assert_eq!((beat("c", redis).await, beat("b", redis).await), ((3, 3, 2, false), (3, 3, 1, true)));
    are_silent(&["a", "c"], MISSING, redis).await;
    assert_eq!(beat("b", redis).await, (1, 3, 1, true));
    assert_eq!(beat("a", redis).await, (2, 3, 0, true), "it has its place again");
    are_silent(&["a"], FORGOTTEN, redis).await;
    are_silent(&["c"], FORGOTTEN - MISSING, redis).await;
    assert_eq!(beat("b", redis).await, (1, 1, 0, true));
}

#[tokio::test]
async fn instance_that_leaves_is_not_missing() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!((beat("a", redis).await.1, beat("b", redis).await.1), (1, 2));
    assert_eq!(tell("b", "ends", redis).await.0, (1, 1, 1, true));
    assert_eq!(tell("b", "ends", redis).await.0, (1, 1, 1, false), "as one that had been forgotten");
    assert_eq!(beat("a", redis).await, (1, 1, 0, true));
}

#[tokio::test]
async fn heartbeat_from_before_the_clock_was_set_back_expires() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    assert_eq!((beat("a", redis).await, beat("b", redis).await), ((1, 1, 0, false), (2, 2, 1, false)));
    let () = redis.zincr(KEY, "a", DAY).await.expect("a set");
    assert_eq!(beat("b", redis).await, (2, 2, 1, true));
    // That has brought its heartbeat back to the present.
    are_silent(&["a"], MISSING, redis).await;
    assert_eq!(beat("b", redis).await, (1, 2, 1, true));
}

/// It is known to do so until it says otherwise, ends or is missing, also if the clock is set back meanwhile.
#[tokio::test]
async fn one_that_tells_its_debts_is_counted_by_the_others() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    let telling = async |me: &str, what: &str, redis: &mut MultiplexedConnection| tell(me, what, redis).await.1;
    assert_eq!((telling("a", "tells", redis).await, telling("b", "tells", redis).await), (0, 1));
    assert_eq!(
        (telling("c", "starts", redis).await, telling("a", "", redis).await, telling("b", "", redis).await),
        (2, 1, 0)
    );
    assert_eq!((telling("b", "tells", redis).await, telling("a", "", redis).await), (0, 1));
    let () = redis.zincr(KEY, "b", DAY).await.expect("a set");
    assert_eq!((telling("a", "", redis).await, telling("c", "", redis).await), (1, 1));
    assert_eq!((telling("b", "ends", redis).await, telling("a", "", redis).await), (0, 0));
    assert_eq!((telling("b", "tells", redis).await, telling("a", "", redis).await), (0, 1));
    are_silent(&["b"], MISSING, redis).await;
    assert_eq!(tell("a", "", redis).await.1, 0, "it is missing");
    let () = redis.del(KEY).await.expect("it may");
    assert_eq!((telling("a", "", redis).await, telling("b", "starts", redis).await), (0, 1), "what it told is lost");
}

#[tokio::test]
async fn reply_contains_the_servers_time_in_microseconds() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    let micros = || u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap();
    let (before, (_, _, told), after) = (micros(), tell("a", "", redis).await, micros());
    assert!((before..=after).contains(&told), "{before} {told} {after}");
}
