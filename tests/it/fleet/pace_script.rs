//! The server's script does what its twin does, by which the tests in simulated time are made.

use crate::support::redis::Redis;
use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Script};
use std::time::Duration;

#[path = "../../../src/gate/fleet/pace_twin.rs"]
mod twin;
use twin::{Entry, Told, pace};

const KEY: &str = "politely:{a.example}:pace";
const SECOND: i64 = 1_000_000;
const NOTHING: [i64; 21] = {
    let mut numbers = [0; 21];
    numbers[12] = -1;
    numbers[19] = 3600 * SECOND;
    numbers
};

async fn ask(me: u64, numbers: &[i64; 21], redis: &mut MultiplexedConnection) -> [i64; 10] {
    let script = Script::new(include_str!("../../../src/gate/fleet/pace.lua"));
    let mut call = script.key(KEY);
    call.arg(me);
    for number in numbers {
        call.arg(number);
    }
    let answer: Vec<i64> = call.invoke_async(redis).await.expect("it runs");
    answer.try_into().expect("ten numbers")
}

/// Anything that may be asked about now; `known`: instants of answers before.
fn any(now: i64, known: &[i64]) -> [i64; 21] {
    let some = |most: i64| if fastrand::u8(..3) == 0 { fastrand::i64(0..=most) } else { 0 };
    let instant = || match fastrand::u8(..4) {
        0 => known.get(fastrand::usize(..known.len().max(1))).copied().unwrap_or(0),
        1 => now + fastrand::i64(-SECOND..SECOND),
        _ => 0,
    };
    let late = instant();
    let level = || fastrand::i64(0..3) * SECOND / 2;
    [
        fastrand::i64(0..4),
        [0, SECOND / 5, SECOND, 30 * SECOND][fastrand::usize(..4)],
        some(SECOND / 4),
        some(SECOND / 100),
        i64::from(fastrand::u8(..4) == 0),
        instant(),
        instant(),
        late,
        late + some(SECOND),
        instant(),
        instant(),
        if fastrand::u8(..8) == 0 { some(SECOND) } else { 0 },
        if fastrand::u8(..4) == 0 { some(SECOND) } else { -1 },
        level(),
        level(),
        level(),
        level(),
        fastrand::i64(0..3),
        fastrand::i64(0..3),
        3600 * SECOND,
        some(SECOND / 2),
    ]
}

#[tokio::test]
async fn lua_script_matches_its_rust_model() {
    let Some(server) = Redis::start().await else { return };
    let redis = &mut server.connection().await;
    let client = redis::Client::open(server.url()).expect("a good URL");
    let mut messages = client.get_async_pubsub().await.expect("it listens");
    messages.subscribe("politely:all").await.expect("it may");
    let mut messages = messages.into_on_message();
    let (mut entry, mut known, mut now) = (None::<Entry>, vec![0], 0);
    for round in 0..4000 {
        if round % 200 == 199 {
            // The key is deleted, or the clock is set back by an hour.
            match round % 400 == 199 {
                true => (entry, _) = (None, redis.del::<_, ()>(KEY).await.expect("it may")),
                false => {
                    entry.iter_mut().for_each(|entry| entry.set_ahead(3600 * SECOND));
                    server.step_clock(-3_600_000).await;
                }
            }
        }
        let (me, numbers) = (fastrand::u64(1..4), any(now, &known));
        let answer = ask(me, &numbers, redis).await;
        now = answer[0];
        let before = entry.clone();
        let (expected, told) = pace(&mut entry, now, me, &numbers);
        assert_eq!(answer, expected, "{round}: {me} {numbers:?} {before:?}");
        for told in told {
            let message = tokio::time::timeout(Duration::from_secs(10), messages.next()).await;
            let text: String = message.expect("it is told").expect("one").get_payload().expect("text");
            let words = match told {
                Told::Pace => format!("pace {me} a.example"),
                Told::Wait { off, busy, way } => format!("wait {me} {off} {busy} {way} a.example"),
            };
            assert_eq!(text, words, "{round}");
        }
        known.extend([answer[1], answer[1] + numbers[3], answer[2]]);
        known.drain(..known.len().saturating_sub(12));
    }
}

#[tokio::test]
async fn key_expires_after_the_longest_gap() {
    let Some(server) = Redis::start().await else { return };
    let redis = &mut server.connection().await;
    for (number, gap) in [(1, 300 * SECOND), (2, SECOND / 10)] {
        ask(1, &[&[number, gap][..], &NOTHING[2..]].concat().try_into().expect("21"), redis).await;
    }
    let left: i64 = redis.pttl(KEY).await.expect("milliseconds");
    assert!((305_000..=310_000).contains(&left), "{left}");
    ask(1, &NOTHING, redis).await;
    let () = redis.del(KEY).await.expect("it may");
    ask(1, &NOTHING, redis).await;
    assert!(!redis.exists::<_, bool>(KEY).await.expect("it answers"), "of nothing nothing is kept");
}

/// Each killed instance has one start reserved, which is not used.
#[tokio::test]
async fn each_killed_instance_costs_one_gap() {
    let Some(server) = Redis::start().await else { return };
    let redis = &mut server.connection().await;
    let reserve = |number: i64| [&[number, SECOND][..], &NOTHING[2..]].concat().try_into().expect("21");
    let mut last = ask(1, &reserve(1), redis).await[1];
    for dead in 2..=21 {
        let start = ask(dead, &reserve(1), redis).await[1];
        assert_eq!(start, last + SECOND);
        last = start;
    }
    let [now, next, ..] = ask(1, &reserve(2), redis).await;
    assert_eq!(next, last + SECOND);
    assert!(next - now <= 21 * SECOND, "{}", next - now);
}
