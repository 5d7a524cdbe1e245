//! Look-ups shared by concurrent callers, with answers given by the test.

use super::answer::{KEEP, KEEP_OWN_LIMIT, MOST_APART};
use super::share::QUICK;
use super::*;
use dns_lookup::LookupError;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::task::JoinSet;
use tokio::time::sleep;

const A: Option<ClientId> = Some(ClientId(1));
const B: Option<ClientId> = Some(ClientId(2));

/// A resolver for names such as `what-number`, which answers according to `what`; and the number of look-ups.
fn resolver() -> (Resolver, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let resolver = Resolver::asking(Box::new(move |name| {
        let number = count.fetch_add(1, Relaxed);
        Box::pin(async move {
            let what = name.split('-').next().unwrap_or_default();
            sleep(Duration::from_millis(if what == "dead" { 20_000 } else { 10 })).await;
            match what {
                "live" => Ok(vec![IpAddr::from([198, 41, 0, number as u8])]),
                "once" if number == 0 => Ok(vec![IpAddr::from([198, 41, 0, 0])]),
                "limit" => Err(LookupError::new(libc::EAI_AGAIN).into()),
                _ => Err(LookupError::new(libc::EAI_NONAME).into()),
            }
        })
    }));
    (resolver, asked)
}

fn host(name: &str) -> Host {
    Host::parse(name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_look_up_serves_all_requests_at_once() {
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
async fn what_is_old_is_used_while_it_is_looked_up_again() {
    let (resolver, asked) = resolver();
    let first = resolver.lookup(&host("live-1"), A).await.unwrap();
    sleep(KEEP).await;
    assert!(!resolver.is_current(&host("live-1"), &first));
    let began = Instant::now();
    assert_eq!(resolver.lookup(&host("live-1"), A).await.unwrap(), first);
    assert_eq!(began.elapsed(), Duration::ZERO);
    sleep(Duration::from_millis(20)).await;
    assert_ne!(resolver.lookup(&host("live-1"), A).await.unwrap(), first);
    assert_eq!(asked.load(Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_resolver_in_trouble_leaves_what_was_known_for_ten_minutes() {
    let (resolver, _) = resolver();
    let first = resolver.lookup(&host("once-1"), A).await.unwrap();
    for _ in 0..19 {
        sleep(KEEP).await;
        assert_eq!(resolver.lookup(&host("once-1"), A).await.unwrap(), first);
    }
    sleep(KEEP).await;
    assert!(resolver.lookup(&host("once-1"), A).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn dead_names_are_remembered_briefly() {
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
    // Others are answered meanwhile.
    let (dead, live) = (host("dead-2"), host("live-1"));
    let later =
        async { timeout(LOOKUP_TIME, sleep(KEEP_FAILURE)).await.map(|()| resolver.lookup(&live, A)).unwrap().await };
    let (dead, live) = tokio::join!(resolver.lookup(&dead, A), later);
    assert!(live.is_ok() && matches!(dead, Err(ResolveError::TimedOut { is_alone: true, .. })), "{dead:?}");
}

#[tokio::test(start_paused = true)]
async fn what_this_machine_cannot_do_says_nothing_of_the_name() {
    let (resolver, asked) = resolver();
    for _ in 0..2 {
        assert!(matches!(resolver.lookup(&host("limit-1"), A).await, Err(ResolveError::OwnLimit { .. })));
        sleep(KEEP_OWN_LIMIT).await;
    }
    assert_eq!(asked.load(Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn one_client_s_dead_names_hold_up_nobody_else() {
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

/// Slow look-ups do not block quick ones, so that a crawler's live names are resolved.
#[tokio::test(start_paused = true)]
async fn a_hundred_dead_names_hold_up_their_own_client_for_some_seconds_only() {
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

/// Names of one site whose servers are silent wait for each other, and other sites for none of them.
#[tokio::test(start_paused = true)]
async fn five_hundred_dead_names_of_one_site_hold_up_no_new_site_of_their_client() {
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

/// Each is another site's, and waits for as long as its request does.
#[tokio::test(start_paused = true)]
async fn five_hundred_silent_sites_hold_up_a_new_site_of_their_client_for_a_second() {
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
        // Three more of them each second.
        for more in 0..3 {
            all.spawn(dead(500 + 3 * number + more));
            sleep(Duration::from_millis(333)).await;
        }
    }
    all.shutdown().await;
    sleep(Duration::from_secs(60)).await;
    assert!(resolver.0.shares.is_empty() && resolver.0.in_flight.lock().is_empty());
}

/// It is this proxy's limit that it has not begun, and says nothing of the name.
#[tokio::test(start_paused = true)]
async fn a_look_up_that_has_not_begun_is_not_remembered_as_the_names_failure() {
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
fn a_name_that_is_not_there_is_the_sites_trouble_and_what_this_machine_lacks_is_ours() {
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

#[tokio::test(start_paused = true)]
async fn a_name_that_fails_while_others_are_answered_is_the_sites_trouble() {
    let (resolver, _) = resolver();
    let fails = async |name: &str| {
        sleep(KEEP_FAILURE).await;
        resolver.lookup(&host(name), A).await.unwrap_err()
    };
    for _ in 0..5 {
        assert!(matches!(fails("limit-1").await, ResolveError::OwnLimit { .. }), "nobody else is answered");
        assert!(matches!(fails("limit-2").await, ResolveError::OwnLimit { .. }), "all fail");
    }
    resolver.lookup(&host("live-1"), A).await.unwrap();
    for _ in 0..2 {
        assert!(matches!(fails("limit-1").await, ResolveError::Failed { .. }), "it has failed before and after");
    }
    assert!(matches!(fails("limit-3").await, ResolveError::OwnLimit { .. }), "the resolver may be gone by now");
    assert!(matches!(fails("gone-1").await, ResolveError::Failed { .. }));
    assert!(matches!(fails("limit-3").await, ResolveError::Failed { .. }), "that a name is not there is an answer");
    sleep(MOST_APART).await;
    assert!(matches!(fails("limit-3").await, ResolveError::OwnLimit { .. }), "what was long ago says nothing of now");
}

#[tokio::test(start_paused = true)]
async fn names_that_all_fail_when_the_resolver_is_gone_are_no_sites_trouble() {
    let (resolver, _) = resolver();
    for number in 0..10 {
        resolver.lookup(&host(&format!("live-{number}")), A).await.unwrap();
    }
    for _ in 0..10 {
        for number in 0..10 {
            let failed = resolver.lookup(&host(&format!("limit-{number}")), A).await.unwrap_err();
            assert!(matches!(failed, ResolveError::OwnLimit { .. }));
        }
        sleep(KEEP_OWN_LIMIT).await;
    }
}

#[tokio::test(start_paused = true)]
async fn look_ups_that_nobody_waits_for_any_more_are_not_made() {
    let (resolver, asked) = resolver();
    for number in 0..5000 {
        let name = host(&format!("dead-{number}"));
        let lookup = timeout(Duration::ZERO, resolver.lookup(&name, A));
        assert!(lookup.await.is_err());
    }
    sleep(Duration::from_millis(1)).await;
    assert_eq!(resolver.0.in_flight.lock().len(), QUICK, "those that have begun");
    assert_eq!(asked.load(Relaxed), QUICK);
    // A look-up that somebody waits for keeps its place, whoever asked first.
    let name = host("live-1");
    let (first, second) = (resolver.lookup(&name, A), resolver.lookup(&name, B));
    let (first, second) = tokio::join!(timeout(Duration::from_millis(5), first), second);
    assert!(first.is_err() && second.is_ok());
    sleep(Duration::from_secs(100)).await;
    assert!(resolver.0.shares.is_empty() && resolver.0.in_flight.lock().is_empty());
}
