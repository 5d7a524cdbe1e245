//! What a server has to keep: scripts, and what is owed.

use super::{comes_to_say, get, instances, site};
use crate::support::redis::Redis;

async fn info(redis: &Redis, section: &str) -> String {
    redis::cmd("INFO").arg(section).query_async(&mut redis.connection().await).await.expect("it answers")
}

/// To a server far away that would make three round trips of the first call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_script_is_called_before_the_server_has_it() {
    let Some(redis) = Redis::start().await else { return };
    let origin = site("0.1").await;
    let fleet = instances(&redis, 1, "pace: { budget: { requests: 10 } }").await;
    comes_to_say(&fleet[0], "joined the fleet").await;
    assert_eq!(get(&fleet[0], &origin.url("/page")).await.status(), 200);
    assert!(redis.script_calls().await >= 4, "each has been called");
    let errors = info(&redis, "errorstats").await;
    assert!(!errors.contains("NOSCRIPT"), "{errors}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_may_evict_what_is_owed_is_warned_of() {
    let Some(redis) = Redis::start().await else { return };
    for (name, value) in [("maxmemory", "100mb"), ("maxmemory-policy", "volatile-lru")] {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg(name).arg(value);
        let () = set.query_async(&mut redis.connection().await).await.expect("it may");
    }
    let fleet = instances(&redis, 1, "").await;
    comes_to_say(&fleet[0], "set `maxmemory-policy noeviction`").await;
}
