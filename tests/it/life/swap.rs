//! Copies renewed thousands of times a second under those who decide by them: everybody sees whole copies, none older
//! than one already used, and nobody waits.

use arc_swap::ArcSwap;
use http::HeaderMap;
use politely::config::Settings;
use politely::gate::{Admitted, Gate};
use politely::policy::{Authority, HostRules, Refusal, Request};
use politely::upstream::{OriginRoots, Upstream};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

const BITS: u32 = 24;
/// In a second or less where the machine has nothing else to do.
const SWAPS: u32 = 5000;

fn gate(directory: &Path) -> Arc<Gate> {
    let yaml = format!("store: {{ directory: '{}', memory: 1MiB }}", directory.display());
    let settings = Settings::parse("test.yaml", &yaml).expect("the line above");
    let roots = politely::tls::roots::bundle(None).unwrap();
    let roots = OriginRoots { store: roots.store, pem: roots.pem.into() };
    let upstream = Arc::new(Upstream::new(&Arc::new(settings.clone()), roots, Vec::new()).unwrap());
    Arc::new(Gate::open(Arc::new(ArcSwap::from_pointee(settings)), upstream))
}

fn authority(number: usize) -> Authority {
    Authority::from_url(&format!("https://h{number}.example")).expect("a URL")
}

/// Says its version twice: in a pattern that always matches [`target`], a star for each bit, and in a sitemap.
fn robots(version: u32) -> String {
    let bits: String = (0..BITS).map(|bit| if version >> bit & 1 == 1 { "*a" } else { "a" }).collect();
    format!("User-agent: *\nDisallow: /p{bits}\nSitemap: https://s/{version}\n")
}

fn target() -> String {
    format!("/p{}", "a".repeat(BITS as usize))
}

fn version_of(pattern: &str) -> u32 {
    let mut bits = pattern.strip_prefix("/p").expect("our pattern").split('a');
    (0..BITS).map(|bit| u32::from(bits.next() == Some("*")) << bit).sum()
}

/// The version that a request is decided by.
async fn admitted(gate: &Gate, authority: &Authority, target: &str) -> u32 {
    admitted_if_kept(gate, authority, target).await.expect("it is kept")
}

/// As [`admitted`]. `None`: the copy was lost, as the disk did not keep up, and cannot be fetched again here.
async fn admitted_if_kept(gate: &Gate, authority: &Authority, target: &str) -> Option<u32> {
    match gate.admit(&Request::new(authority, target.as_bytes()), None).await {
        Err(Refusal::Disallowed { rule: Some(rule), .. }) => Some(version_of(&rule.value)),
        Err(Refusal::RobotsUnreachable { .. }) => None,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("every version disallows it"),
    }
}

/// The version of a copy, after checking that all parts are of that version.
async fn explained(gate: &Gate, authority: &Authority, target: &str) -> u32 {
    let request = Request::new(authority, target.as_bytes());
    let why = gate.explain(&request, &HostRules::new(Arc::default()), None).await.expect("an explanation");
    let version = version_of(&why.line.expect("a rule").value);
    assert_eq!(why.sitemaps, [format!("https://s/{version}")], "half of one copy and half of another");
    version
}

fn at_once<T>(what: &str, future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("{what} waits"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_see_whole_copies_in_order_without_waiting() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (gate, authority, target) = (gate(directory.path()), authority(0), target());
    gate.insert(&authority, 200, &HeaderMap::new(), robots(0).as_bytes());
    let (used, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    let runtime = tokio::runtime::Handle::current();
    let decisions = thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let _runtime = runtime.enter();
                    let mut decisions = 0;
                    while !stop.load(Ordering::Relaxed) {
                        for explain in [false, true] {
                            let least = used.load(Ordering::SeqCst);
                            let version = match explain {
                                false => at_once("admission", admitted(&gate, &authority, &target)),
                                true => at_once("an explanation", explained(&gate, &authority, &target)),
                            };
                            assert!(version >= least, "version {version} after {least} was used");
                            used.fetch_max(version, Ordering::SeqCst);
                            decisions += 1;
                        }
                    }
                    decisions
                })
            })
            .collect();
        let _runtime = runtime.enter();
        for version in 1..=SWAPS {
            gate.insert(&authority, 200, &HeaderMap::new(), robots(version).as_bytes());
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().expect("no reader failed")).sum::<u32>()
    });
    assert!(decisions > 100, "{decisions} decisions");
    assert_eq!(at_once("the last", admitted(&gate, &authority, &target)), SWAPS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_request_is_judged_by_the_rules_at_its_start() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (gate, authority) = (gate(directory.path()), authority(0));
    let teach = |rules: &str| {
        let text = format!("User-agent: *\nCrawl-delay: 0.5\n{rules}");
        gate.insert(&authority, 200, &HeaderMap::new(), text.as_bytes());
    };
    teach("Allow: /");
    let first = gate.admit(&Request::new(&authority, b"/first"), None).await;
    let Ok(Admitted::Go { mut permit, .. }) = first else { panic!("nothing is owed yet") };
    permit.leaves(false);
    let (closed, open) = (Request::new(&authority, b"/closed"), Request::new(&authority, b"/open"));
    let (mut closed, mut open) = (pin!(gate.admit(&closed, None)), pin!(gate.admit(&open, None)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(closed.as_mut().poll(&mut context).is_pending() && open.as_mut().poll(&mut context).is_pending());
    drop(permit);
    teach("Disallow: /closed");
    let refused = closed.await.err().expect("refused by the new rules");
    assert!(matches!(refused, Refusal::Disallowed { .. }), "{refused:?}");
    assert!(matches!(open.await, Ok(Admitted::Go { .. })), "still allowed");
}

/// There are more authorities than fit into memory, so copies are evicted and reloaded all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_reloaded_from_the_store_is_not_older() {
    const HOSTS: usize = 4000;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (gate, target) = (gate(directory.path()), Arc::new(target()));
    let taught: Arc<Vec<AtomicU32>> = Arc::new((0..HOSTS).map(|_| AtomicU32::new(0)).collect());
    for host in 0..HOSTS {
        gate.insert(&authority(host), 200, &HeaderMap::new(), robots(0).as_bytes());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (gate, target, taught, stop) = (gate.clone(), target.clone(), taught.clone(), stop.clone());
        readers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let host = fastrand::usize(..HOSTS);
                let least = taught[host].load(Ordering::SeqCst);
                let version = admitted_if_kept(&gate, &authority(host), &target).await.unwrap_or(least);
                assert!(version >= least, "host {host}: version {version} after {least} was in force");
                tokio::task::yield_now().await;
            }
        });
    }
    let (start, mut fewest) = (Instant::now(), HOSTS);
    while start.elapsed() < Duration::from_secs(4) {
        let host = fastrand::usize(..HOSTS);
        let version = taught[host].load(Ordering::SeqCst) + 1;
        // Each host has a file of its own from its first change on.
        let text = format!("{}# {host} {}\n", robots(version), "filler ".repeat(100));
        gate.insert(&authority(host), 200, &HeaderMap::new(), text.as_bytes());
        taught[host].store(version, Ordering::SeqCst);
        fewest = fewest.min(gate.figures().robots.authorities);
        tokio::task::yield_now().await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(reader) = readers.join_next().await {
        reader.expect("no reader failed");
    }
    assert!(fewest < HOSTS / 2, "memory held them all: {fewest}");
}
