//! Look-ups shared by concurrent callers, with answers given by the test.

use super::answer::{KEEP, KEEP_OWN_LIMIT};
use super::share::{LOOKUPS, QUICK};
use super::*;
use dns_lookup::LookupError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use tokio::task::JoinSet;
use tokio::time::sleep;

const A: Option<ClientId> = Some(ClientId(1));
const B: Option<ClientId> = Some(ClientId(2));

/// A resolver for names such as `what-number`, which answers according to `what`; and the number of look-ups.
fn resolver() -> (Resolver, Arc<AtomicUsize>) {
    let (resolver, asked, _) = resolver_that(true);
    (resolver, asked)
}

/// Whether the resolver is reachable; the number of threads occupied now, and the highest so far.
type ResolverState = Arc<(AtomicBool, [AtomicUsize; 2])>;

fn resolver_that(is_there: bool) -> (Resolver, Arc<AtomicUsize>, ResolverState) {
    let asked = Arc::new(AtomicUsize::new(0));
    let state = Arc::new((AtomicBool::new(is_there), [const { AtomicUsize::new(0) }; 2]));
    let (count, shared) = (asked.clone(), state.clone());
    let resolver = Resolver::asking(Box::new(move |name, family| {
        let is_first = family.is_none() && &*name != "invalid.";
        let number = count.fetch_add(usize::from(is_first), Relaxed);
        let shared = shared.clone();
        Box::pin(async move {
            let (is_there, [threads, most]) = &*shared;
            most.fetch_max(threads.fetch_add(1, Relaxed) + 1, Relaxed);
            let what = name.split('-').next().unwrap_or_default();
            // As in glibc, a query for both families waits for both answers.
            let time = match (what, family) {
                ("dead", _) => 20_000,
                ("stalls", _) if number > 0 => 20_000,
                ("silent", _) | ("no_aaaa", Some(AddrFamily::Inet6)) | ("no_a", None | Some(AddrFamily::Inet)) => {
                    10_010
                }
                ("no_aaaa", None) => 15_000,
                ("lost", None) => 5_000,
                ("lost", Some(AddrFamily::Inet6)) => 50,
                _ => 10,
            };
            sleep(Duration::from_millis(time)).await;
            threads.fetch_sub(1, Relaxed);
            let again = || Err(LookupError::new(libc::EAI_AGAIN).into());
            match what {
                _ if !is_there.load(Relaxed) => again(),
                "live" | "stalls" => Ok(vec![IpAddr::from([198, 41, 0, number as u8])]),
                "once" if number == 0 => Ok(vec![IpAddr::from([198, 41, 0, 0])]),
                "no_a" | "lost" if family == Some(AddrFamily::Inet6) => Ok(vec![V6]),
                "no_aaaa" | "lost" if family != Some(AddrFamily::Inet6) => Ok(vec![V4]),
                "fails" | "silent" | "no_a" | "no_aaaa" => again(),
                "many" => Ok(vec![V4; MOST_ADDRESSES + 1]),
                "limit" => Err(LookupError::new(libc::EAI_MEMORY).into()),
                _ => Err(LookupError::new(libc::EAI_NONAME).into()),
            }
        })
    }));
    (resolver, asked, state)
}

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0x500, 0, 0, 0, 0, 0, 4));

fn host(name: &str) -> Host {
    Host::parse(name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_share_one_look_up() {
    let (resolver, asked) = resolver();
    let mut all = JoinSet::new();
    for client in [A, B, None].repeat(10) {
        let resolver = resolver.clone();
        all.spawn(async move { resolver.lookup(&host("live-1"), client).await.unwrap() });
    }
    let found = all.join_all().await;
    assert!(found.iter().all(|addresses| **addresses == [IpAddr::from([198, 41, 0, 0])]));
    assert_eq!(asked.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn expired_answer_is_renewed_before_use() {
    let (resolver, asked) = resolver();
    let first = resolver.lookup(&host("live-1"), A).await.unwrap();
    sleep(KEEP).await;
    assert!(!resolver.is_current(&host("live-1"), &first));
    let second = resolver.lookup(&host("live-1"), A).await.unwrap();
    assert_ne!(second, first);
    sleep(Duration::from_secs(290)).await;
    assert_ne!(resolver.lookup(&host("live-1"), A).await.unwrap(), second);
    assert_eq!(asked.load(Relaxed), 3);
}

/// RFC 8767 §5. All requests together wait for one slow look-up, and no request waits again until the next look-up.
#[tokio::test(start_paused = true)]
async fn expired_answer_is_used_while_its_renewal_is_slow() {
    let (resolver, asked) = resolver();
    let first = resolver.lookup(&host("stalls-1"), A).await.unwrap();
    sleep(KEEP).await;
    for waits in [RESPONSE_TIME, Duration::ZERO, Duration::ZERO] {
        let began = Instant::now();
        assert_eq!(resolver.lookup(&host("stalls-1"), A).await.unwrap(), first);
        assert_eq!(began.elapsed(), waits);
    }
    sleep(Duration::from_secs(20)).await;
    assert_ne!(resolver.lookup(&host("stalls-1"), A).await.unwrap(), first, "the late answer is used");
    assert_eq!(asked.load(Relaxed), 2);
}

/// RFC 8767 §4: that a name does not exist is an answer.
#[tokio::test(start_paused = true)]
async fn expired_answer_is_not_used_if_the_name_no_longer_exists() {
    let (resolver, _) = resolver();
    resolver.lookup(&host("once-1"), A).await.unwrap();
    sleep(KEEP).await;
    assert!(matches!(resolver.lookup(&host("once-1"), A).await, Err(ResolveError::Failed { .. })));
}

#[tokio::test(start_paused = true)]
async fn expired_answer_is_used_for_ten_minutes_while_the_resolver_fails() {
    let (resolver, _, state) = resolver_that(true);
    let first = resolver.lookup(&host("live-1"), A).await.unwrap();
    state.0.store(false, Relaxed);
    for _ in 0..19 {
        sleep(KEEP).await;
        assert_eq!(resolver.lookup(&host("live-1"), A).await.unwrap(), first);
    }
    sleep(KEEP).await;
    assert!(resolver.lookup(&host("live-1"), A).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn failed_look_ups_are_cached_briefly() {
    let (resolver, asked) = resolver();
    for _ in 0..3 {
        assert!(matches!(resolver.lookup(&host("none-1"), A).await, Err(ResolveError::Failed { .. })));
    }
    assert_eq!(asked.load(Relaxed), 1);
    sleep(KEEP_FAILURE).await;
    assert!(resolver.lookup(&host("none-1"), A).await.is_err());
    assert_eq!(asked.load(Relaxed), 2);
    // A name that does not answer at all is waited for once.
    let began = Instant::now();
    for _ in 0..3 {
        assert!(matches!(resolver.lookup(&host("dead-1"), A).await, Err(ResolveError::TimedOut { .. })));
    }
    assert_eq!(began.elapsed(), LOOKUP_TIME);
    assert_eq!(asked.load(Relaxed), 3);
    // Other names are resolved meanwhile.
    let (dead, live) = (host("dead-2"), host("live-1"));
    let later =
        async { timeout(LOOKUP_TIME, sleep(KEEP_FAILURE)).await.map(|()| resolver.lookup(&live, A)).unwrap().await };
    let (dead, live) = tokio::join!(resolver.lookup(&dead, A), later);
    assert!(live.is_ok() && matches!(dead, Err(ResolveError::TimedOut { is_alone: true, .. })), "{dead:?}");
}

/// Each address would have to be screened, and cached together with the addresses of thousands of names.
#[tokio::test(start_paused = true)]
async fn name_with_over_256_addresses_is_not_resolved() {
    let (resolver, _) = resolver();
    let error = resolver.lookup(&host("many-1"), A).await.unwrap_err();
    assert!(error.to_string().ends_with("it has 257 addresses, more than 256"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn look_up_that_met_an_own_limit_is_repeated_after_a_second() {
    let (resolver, asked) = resolver();
    for _ in 0..2 {
        assert!(matches!(resolver.lookup(&host("limit-1"), A).await, Err(ResolveError::OwnLimit { .. })));
        sleep(KEEP_OWN_LIMIT).await;
    }
    assert_eq!(asked.load(Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn dead_names_of_one_client_do_not_delay_another() {
    let (resolver, _) = resolver();
    let mut all = JoinSet::new();
    for number in 0..300 {
        let resolver = resolver.clone();
        all.spawn(async move { resolver.lookup(&host(&format!("dead-{number}")), A).await.unwrap_err() });
    }
    sleep(Duration::from_millis(1)).await;
    let began = Instant::now();
    resolver.lookup(&host("live-1"), B).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_millis(10));
    sleep(Duration::from_secs(5)).await;
    let began = Instant::now();
    resolver.lookup(&host("live-2"), B).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_millis(10));
    assert_eq!(all.join_all().await.len(), 300);
}

/// Each of these clients has fewer look-ups in flight than the client before it.
#[tokio::test(start_paused = true)]
async fn silent_names_of_many_clients_do_not_delay_another() {
    let (resolver, _, state) = resolver_that(true);
    let mut all = JoinSet::new();
    for client in 1..=5 {
        for number in 0..400 {
            let (resolver, name) = (resolver.clone(), format!("dead-{client}-{number}.example"));
            all.spawn(async move { resolver.lookup(&host(&name), Some(ClientId(client))).await });
        }
        sleep(Duration::from_millis(1)).await;
    }
    for number in 0..40 {
        sleep(Duration::from_millis(997)).await;
        let began = Instant::now();
        resolver.lookup(&host(&format!("live-{number}.example")), Some(ClientId(9))).await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_millis(10), "{number}");
    }
    assert!(state.1[1].load(Relaxed) < LOOKUPS);
    all.shutdown().await;
    sleep(Duration::from_secs(60)).await;
    assert!(resolver.0.shares.is_empty() && resolver.0.in_flight.lock().is_empty());
    assert_eq!(resolver.0.shares.threads.available_permits(), LOOKUPS);
}

/// Slow look-ups do not block quick ones, so that a crawler's live names are resolved.
#[tokio::test(start_paused = true)]
async fn hundred_dead_names_delay_their_own_client_for_less_than_four_seconds() {
    let (resolver, _) = resolver();
    for number in 0..100 {
        let resolver = resolver.clone();
        tokio::spawn(async move { resolver.lookup(&host(&format!("dead-{number}")), A).await });
    }
    sleep(Duration::from_millis(1)).await;
    let began = Instant::now();
    resolver.lookup(&host("live-1"), A).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    sleep(Duration::from_secs(60)).await;
    assert!(resolver.0.shares.is_empty() && resolver.0.in_flight.lock().is_empty());
}

/// Look-ups of one site with silent servers wait for each other; look-ups of other sites do not wait for them.
#[tokio::test(start_paused = true)]
async fn dead_names_of_one_site_do_not_delay_other_sites_of_the_client() {
    let (resolver, _) = resolver();
    let mut all = JoinSet::new();
    for worker in 0..500 {
        let resolver = resolver.clone();
        all.spawn(async move {
            for number in 0..4 {
                resolver.lookup(&host(&format!("dead-{number}-{worker}.evil.example")), A).await.unwrap_err();
            }
        });
    }
    for number in 0..35 {
        sleep(Duration::from_millis(997)).await;
        let began = Instant::now();
        resolver.lookup(&host(&format!("live-{number}.example")), A).await.unwrap();
        assert!(began.elapsed() < Duration::from_millis(100), "{number}: {:?}", began.elapsed());
    }
    all.shutdown().await;
    sleep(Duration::from_secs(60)).await;
    assert!(resolver.0.shares.is_empty() && resolver.0.in_flight.lock().is_empty());
}

/// Every name belongs to a different site, and no look-up is cancelled.
#[tokio::test(start_paused = true)]
async fn silent_sites_delay_another_site_of_the_client_by_about_a_second() {
    let (resolver, _) = resolver();
    let dead = |number: usize| {
        let resolver = resolver.clone();
        async move { resolver.lookup(&host(&format!("dead-{number}.example")), A).await.unwrap_err() }
    };
    let mut all: JoinSet<_> = (0..500).map(dead).collect();
    sleep(Duration::from_millis(1)).await;
    for number in 0..80 {
        let began = Instant::now();
        resolver.lookup(&host(&format!("live-{number}.example")), A).await.unwrap();
        assert!(began.elapsed() < Duration::from_millis(1_100), "{number}: {:?}", began.elapsed());
        // Adds three more silent names each second.
        for more in 0..3 {
            all.spawn(dead(500 + 3 * number + more));
            sleep(Duration::from_millis(333)).await;
        }
    }
    all.shutdown().await;
    sleep(Duration::from_secs(60)).await;
    assert!(resolver.0.shares.is_empty() && resolver.0.in_flight.lock().is_empty());
}

/// A look-up that has not begun has met this proxy's limit, which says nothing about the name.
#[tokio::test(start_paused = true)]
async fn look_up_that_has_not_begun_is_not_cached_as_the_names_failure() {
    let (resolver, asked) = resolver();
    for number in 0..500 {
        let resolver = resolver.clone();
        tokio::spawn(async move { resolver.lookup(&host(&format!("dead-{number}.evil.example")), A).await });
    }
    sleep(Duration::from_millis(1)).await;
    let error = resolver.lookup(&host("live-1.evil.example"), A).await.unwrap_err();
    assert!(matches!(error, ResolveError::OwnLimit { .. }), "{error}");
    sleep(Duration::from_millis(1)).await;
    let begun = asked.load(Relaxed);
    assert!(resolver.lookup(&host("live-1.evil.example"), B).await.is_ok());
    assert!(asked.load(Relaxed) > begun);
}

#[test]
fn resolver_error_codes_distinguish_the_names_faults_from_ours() {
    for (code, fault) in [
        (libc::EAI_NONAME, Whose::Names),
        (libc::EAI_NODATA, Whose::Names),
        // The resolver is missing, unreachable or refuses; or the name's servers fail.
        (libc::EAI_AGAIN, Whose::Unknown),
        (libc::EAI_FAIL, Whose::Unknown),
        (libc::EAI_SYSTEM, Whose::Ours),
        (libc::EAI_MEMORY, Whose::Ours),
    ] {
        assert_eq!(LookupFault::from(LookupError::new(code)).whose, fault, "{code}");
    }
}

/// The system's resolver reports failing name servers and its own unreachable server as the same error.
#[tokio::test(start_paused = true)]
async fn failing_name_servers_are_distinguished_from_an_unreachable_resolver() {
    let (resolver, _, state) = resolver_that(true);
    let (first, second) = (host("fails-1"), host("fails-2"));
    for _ in 0..2 {
        for name in [&first, &second] {
            let failed = resolver.lookup(name, A).await.unwrap_err();
            assert!(failed.to_string().contains("its name servers fail"), "{failed}");
            assert!(matches!(failed, ResolveError::Failed { .. }));
        }
        sleep(KEEP_FAILURE).await;
        state.0.store(false, Relaxed);
        for name in ["fails-1", "fails-2", "live-1", "live-2"] {
            let failed = resolver.lookup(&host(name), A).await.unwrap_err();
            assert!(matches!(failed, ResolveError::NoResolver { .. }), "{failed}");
        }
        sleep(KEEP_OWN_LIMIT).await;
        state.0.store(true, Relaxed);
    }
}

/// RFC 8305 §3. Either family may be the one that answers.
#[tokio::test(start_paused = true)]
async fn name_resolves_although_its_servers_are_silent_for_one_family() {
    let (resolver, _, state) = resolver_that(true);
    for (name, expected) in [("no_aaaa-1", vec![V4]), ("no_a-1", vec![V6]), ("lost-1", vec![V4, V6])] {
        let began = Instant::now();
        let found = resolver.lookup(&host(name), A).await.unwrap();
        assert_eq!(*found, expected, "{name}");
        assert!(began.elapsed() <= SLOW + Duration::from_millis(60), "{name}: {:?}", began.elapsed());
        assert!(resolver.is_current(&host(name), &found));
        // The unanswered queries end without an effect.
        sleep(Duration::from_secs(20)).await;
        assert!(resolver.is_current(&host(name), &found));
    }
    assert_eq!(state.1[0].load(Relaxed), 0);
    assert!(resolver.0.shares.is_empty() && resolver.0.in_flight.lock().is_empty());
    assert_eq!(resolver.0.shares.threads.available_permits(), LOOKUPS);
}

#[tokio::test(start_paused = true)]
async fn slow_names_of_a_client_occupy_at_most_half_of_the_threads() {
    let (resolver, _, state) = resolver_that(true);
    let mut all = JoinSet::new();
    for number in 0..1000 {
        let (resolver, what) = (resolver.clone(), ["silent", "no_a", "no_aaaa"][number % 3]);
        all.spawn(async move { resolver.lookup(&host(&format!("{what}-{number}.example")), A).await });
    }
    all.join_all().await;
    sleep(Duration::from_secs(60)).await;
    let most = state.1[1].load(Relaxed);
    assert!((100..=LOOKUPS / 2).contains(&most), "{most}");
}

/// Requests wait for a silent name only once in its cache time, although the resolver reports the failure a little after our own timeout.
#[tokio::test(start_paused = true)]
async fn silent_name_is_not_looked_up_again_within_its_cache_time() {
    let (resolver, asked) = resolver();
    for second in 0..29 {
        let failed = resolver.lookup(&host("silent-1"), A).await.unwrap_err();
        assert!(matches!(failed, ResolveError::TimedOut { .. }), "{second}: {failed}");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(asked.load(Relaxed), 1);
}

/// The waits for healthy names, one a second, each looked up until there is an answer, or for a minute. Meanwhile, about `rate` look-ups of
/// silent names begin each second, for `names` different names in turn.
async fn waits_beside(names: usize, rate: u32) -> Vec<Duration> {
    let (resolver, _) = resolver();
    let mut random = fastrand::Rng::with_seed(1);
    let flood = {
        let resolver = resolver.clone();
        async move {
            let mut all = JoinSet::new();
            for number in 0.. {
                let (resolver, name) = (resolver.clone(), host(&format!("silent-{}.example", number % names)));
                all.spawn(async move { _ = resolver.lookup(&name, A).await });
                sleep((Duration::from_secs(2) / rate).mul_f64(random.f64())).await;
                while all.try_join_next().is_some() {}
            }
        }
    };
    let healthy = async {
        sleep(Duration::from_secs(120)).await;
        let mut all = JoinSet::new();
        for number in 0..60 {
            let (resolver, name) = (resolver.clone(), host(&format!("live-{number}.example")));
            all.spawn(async move {
                let began = Instant::now();
                let _ = timeout(Duration::from_secs(60), async {
                    while resolver.lookup(&name, A).await.is_err() {
                        sleep(KEEP_OWN_LIMIT).await;
                    }
                })
                .await;
                began.elapsed()
            });
            sleep(Duration::from_secs(1)).await;
        }
        let mut waits = all.join_all().await;
        waits.sort_unstable();
        waits
    };
    tokio::select! { waits = healthy => waits, () = flood => unreachable!("the flood does not end") }
}

/// Thousands of silent names delay nobody once they are known to be silent. Silent names that are looked up only once cannot be told from
/// healthy names before: at more than about 130 / T such look-ups a second, some healthy names wait. T is the 10 s for which each look-up
/// occupies its thread.
#[tokio::test(start_paused = true)]
async fn repeatedly_silent_names_do_not_delay_healthy_ones() {
    for (names, rate) in [(100, 100), (1000, 100), (100_000, 10)] {
        let waits = waits_beside(names, rate).await;
        assert!(waits[59] < Duration::from_millis(1_100), "{names} names, {rate} a second: {waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn look_ups_that_nobody_waits_for_are_cancelled() {
    let (resolver, asked) = resolver();
    for number in 0..5000 {
        let name = host(&format!("dead-{number}"));
        let lookup = timeout(Duration::ZERO, resolver.lookup(&name, A));
        assert!(lookup.await.is_err());
    }
    sleep(Duration::from_millis(1)).await;
    assert_eq!(resolver.0.in_flight.lock().len(), QUICK, "the look-ups that have begun");
    assert_eq!(asked.load(Relaxed), QUICK);
    // A look-up keeps its place while anybody waits for it, even if the first request has left.
    let name = host("live-1");
    let (first, second) = (resolver.lookup(&name, A), resolver.lookup(&name, B));
    let (first, second) = tokio::join!(timeout(Duration::from_millis(5), first), second);
    assert!(first.is_err() && second.is_ok());
    sleep(Duration::from_secs(100)).await;
    assert!(resolver.0.shares.is_empty() && resolver.0.in_flight.lock().is_empty());
}
