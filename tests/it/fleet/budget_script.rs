//! The Lua script of budgets: spending counts only in its own period.

use crate::support::redis::Redis;
use redis::{AsyncCommands, Script};

const KEY: &str = "politely:{a.example}:budget:day";
const DAY: u64 = 86_400;

#[tokio::test]
async fn reported_spending_counts_only_in_its_own_period() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    let script = Script::new(include_str!("../../../src/gate/fleet/budget.lua"));
    let mut spent = Vec::new();
    for (more, heard, ends) in [(1, 0, None), (0, 7, Some(DAY)), (0, 5, None), (1, 3, None)] {
        let kept: Option<u64> = redis.hget(KEY, "ends").await.expect("it answers");
        let ends = ends.unwrap_or(kept.unwrap_or_default());
        let mut call = script.key(KEY);
        call.arg(DAY).arg(more).arg(0).arg("").arg("").arg(heard).arg(0).arg(ends);
        let answer: (u8, u64, u64, u64) = call.invoke_async(redis).await.expect("it runs");
        spent.push(answer.1);
    }
    assert_eq!(spent, [1, 1, 5, 6], "seven were of another day");
}

#[tokio::test]
async fn refund_counts_only_in_the_period_of_its_payment() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    let script = Script::new(include_str!("../../../src/gate/fleet/budget.lua"));
    let mut spent = Vec::new();
    for (more, days_ago) in [(2, 0), (-1, 1), (-1, 0)] {
        let kept: Option<u64> = redis.hget(KEY, "ends").await.expect("it answers");
        let paid = kept.unwrap_or_default() - days_ago * DAY;
        let mut call = script.key(KEY);
        call.arg(DAY).arg(more).arg(0).arg("").arg("").arg(0).arg(0).arg(paid);
        let answer: (u8, u64, u64, u64) = call.invoke_async(redis).await.expect("it runs");
        spent.push(answer.1);
    }
    assert_eq!(spent, [2, 2, 1]);
}

#[tokio::test]
async fn clock_set_back_does_not_renew_the_budget() {
    let Some(redis) = Redis::start().await else { return };
    let redis = &mut redis.connection().await;
    let script = Script::new(include_str!("../../../src/gate/fleet/budget.lua"));
    let mut spent = Vec::new();
    // Days by which the stored period is moved, as if the clock had been.
    for days in [0, 1, 0, -1, 9, -1, -1] {
        let kept: Option<i64> = redis.hget(KEY, "ends").await.expect("it answers");
        if let Some(kept) = kept {
            let () = redis.hset(KEY, "ends", kept + days * DAY as i64).await.expect("it answers");
        }
        let mut call = script.key(KEY);
        call.arg(DAY).arg(1).arg(0).arg(2).arg("").arg(0).arg(0).arg(0);
        let (goes, requests, _, left): (u8, u64, u64, u64) = call.invoke_async(redis).await.expect("it runs");
        spent.push((goes, requests, left > DAY * 1000));
    }
    let (today, tomorrow) = (false, true);
    let told = [
        (1, 1, today),
        (1, 2, tomorrow),
        (0, 2, tomorrow),
        (0, 2, today),
        (0, 2, tomorrow),
        (0, 2, today),
        (1, 1, today),
    ];
    assert_eq!(spent, told);
}
