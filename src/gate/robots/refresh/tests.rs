//! Tests of fetches: panics, 304 answers, copies of different age, long files, and a store that is behind.

use super::ask::FetchHop;
use super::*;
use crate::gate::compute::tests::all_places;
use crate::gate::compute::{Workers, rethrown};
use crate::gate::fleet::{Fleet, MachineLink};
use crate::gate::pacer::Pacer;
use crate::gate::robots::{FetchReason, RobotsCache};
use crate::gate::store::tests::unwritten;
use crate::gate::store::{Store, digest};
use crate::policy::freshness::Freshness;
use crate::policy::{Access, Authority, HttpVersion, SiteAnswer};
use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(in crate::gate::robots) fn cache() -> Arc<RobotsCache> {
    cache_with(Settings::default())
}

fn cache_with(settings: Settings) -> Arc<RobotsCache> {
    cache_of(settings, Store::default(), None)
}

/// A cache that may ask sites on the loopback interface.
pub(in crate::gate::robots) fn cache_of(settings: Settings, store: Store, fleet: Option<Fleet>) -> Arc<RobotsCache> {
    let upstream = Arc::new(crate::upstream::tests::upstream(LOOPBACK));
    let pacer = Arc::new(Pacer::new(Fleet::alone()));
    let settings = Arc::new(ArcSwap::from_pointee(settings));
    RobotsCache::new(
        upstream,
        pacer,
        (Arc::new(store), fleet.map_or_else(Fleet::alone, Arc::new), Workers::new(Some(1))),
        settings,
    )
}

#[tokio::test]
async fn panic_counts_as_a_failed_fetch_that_is_not_repeated_at_once() {
    let cache = cache();
    let host = cache.host(SiteFile::Robots, &Authority::from_url("https://a.example").unwrap());
    let apart = async { tokio::task::spawn_blocking(|| panic!("while reading")).await.map_err(rethrown) };
    assert!(cache.or_failed(&host, apart).await.is_none());
    let entry = host.load_full();
    let trouble = entry.trouble.as_ref().expect("the failure is noted");
    assert_eq!((trouble.failures, &*trouble.why), (1, "an internal error of the proxy"));
    assert!(!entry.may_fetch(SystemTime::now()), "the fetch is not repeated at once");
    assert_eq!(cache.figures().failed, [1, 0, 0]);
    assert_eq!(cache.or_failed(&host, async { 7 }).await, Some(7));
}

/// Of several requests that find no copy at the same time, the last may order a fetch after the first fetch has ended.
#[tokio::test]
async fn copy_that_has_just_arrived_is_not_fetched_again() {
    let (cache, authority) = (cache(), Authority::from_url("https://a.example").unwrap());
    cache.insert(&authority, 200, &http::HeaderMap::new(), b"");
    let host = cache.host(SiteFile::Robots, &authority);
    for reason in [FetchReason::FirstUse, FetchReason::Renewal] {
        let asked = [(); 3].map(|()| cache.refresh(&host, Order::background(reason)));
        assert_eq!(cache.fetches.len(), 0);
        for fetching in asked {
            fetching.end().now_or_never().expect("the fetch has ended").unwrap();
        }
    }
    let [first, second] = [(); 2].map(|()| cache.refresh(&host, Order::background(FetchReason::Anew)));
    assert_eq!(cache.fetches.len(), 1, "`Anew` fetches whatever copy exists");
    drop((first, second));
}

type Fields = &'static [(&'static str, &'static str)];

/// The entry after these answers.
fn known_after(answers: &[(u16, Fields)]) -> Arc<Entry> {
    let (cache, authority) = (cache(), Authority::from_url("https://a.example").unwrap());
    for (status, fields) in answers {
        let fields = fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        cache.insert(&authority, *status, &fields.collect(), b"");
    }
    cache.host(SiteFile::Robots, &authority).load_full()
}

/// RFC 9110 §13.1, RFC 9111 §4.3.4.
#[tokio::test]
async fn status_304_confirms_only_a_200_with_matching_validators() {
    let (tag, date): (Fields, Fields) = (&[("etag", "\"a\"")], &[("last-modified", "Mon, 01 Jan 2024 00:00:00 GMT")]);
    for (status, copy, answer, is_confirmed) in [
        (200, tag, tag, true),
        (200, tag, &[][..], true),
        (200, tag, &[("etag", "W/\"a\"")], true),
        (200, tag, &[("etag", "\"b\"")], false),
        (200, date, date, true),
        (200, date, &[("last-modified", "Tue, 02 Jan 2024 00:00:00 GMT")], false),
        (200, date, tag, false),
        // The copy has no validators, so no condition was sent.
        (200, &[], &[], false),
        (200, &[], tag, false),
        // Not a 200: there is no file, or not the file itself.
        (404, tag, tag, false),
        (204, tag, tag, false),
        (299, date, &[], false),
    ] {
        let known = known_after(&[(status, copy), (304, answer)]);
        assert_eq!(known.trouble.is_none(), is_confirmed, "{status} {copy:?} {answer:?}");
    }
    // After a failure, the request has no conditions.
    assert!(known_after(&[(200, tag), (503, &[]), (304, tag)]).trouble.is_some());
}

/// RFC 9111 §3.2.
#[tokio::test]
async fn lifetime_stays_unless_a_304_changes_it() {
    let copy: Fields = &[("etag", "\"a\""), ("cache-control", "max-age=600")];
    for (copy, answer, seconds) in [
        (copy, &[][..], 600),
        (copy, &[("age", "100")], 600),
        (copy, &[("cache-control", "public")], 600),
        (copy, &[("cache-control", "max-age=900")], 900),
        (copy, &[("expires", "0")], 300),
        (&copy[..1], &[], 86_400),
    ] {
        let known = known_after(&[(200, copy), (304, answer), (304, answer)]);
        let freshness = known.answer.as_ref().unwrap().freshness;
        let lifetime = freshness.expires_at().duration_since(freshness.validated_at()).unwrap();
        assert_eq!(lifetime.as_secs(), seconds, "{answer:?}");
    }
}

fn fetch_of(reason: FetchReason) -> Fetch {
    let fetch = Fetch::default();
    if reason != FetchReason::FirstUse {
        fetch.begin();
    }
    fetch
}

/// The gap between fetches at a host whose robots.txt asks `ours` for a crawl-delay of 7 s, and others for 3 s.
fn gap_at(configured: &str) -> Duration {
    let settings = Settings::parse("politely.yaml", configured).unwrap();
    let cache = cache_with(settings.clone());
    let authority = Authority::from_url("https://a.example").unwrap();
    let file = b"User-agent: ours\nCrawl-delay: 7\n\nUser-agent: *\nCrawl-delay: 3\n";
    cache.insert(&authority, 200, &http::HeaderMap::new(), file);
    let fetch = fetch_of(FetchReason::Renewal);
    let order = Order::background(FetchReason::Renewal);
    let hop = FetchHop { settings: &settings, order: &order, first: &authority, is_first_fetch: false, fetch: &fetch };
    cache.terms(&hop, &authority).gap()
}

#[tokio::test]
async fn fetch_keeps_the_crawl_delay_of_the_configured_product_token() {
    for (configured, gap) in [
        ("", 3),
        ("identity: { product_tokens: [ours] }", 7),
        ("identity: { user_agent: 'ours/1.0 (+https://ours.example)' }", 7),
        ("identity: { user_agent: 'others/1.0' }", 3),
        ("hosts: { a.example: { product_tokens: [ours] } }", 7),
        ("hosts: { a.example: { crawl_delay: 9s } }", 9),
    ] {
        assert_eq!(gap_at(configured), Duration::from_secs(gap), "{configured}");
    }
}

/// A copy validated this many seconds ago, or in the future, by a clock that was ahead.
fn copy(age: i64) -> Entry {
    let (now, by) = (SystemTime::now(), Duration::from_secs(age.unsigned_abs()));
    let freshness = Freshness::new(if age < 0 { now + by } else { now - by }, Duration::from_secs(DAY as u64), 0.0);
    Entry::answered(SiteAnswer::new(Access::Missing, 404, freshness))
}

#[test]
fn copy_validated_later_is_newer() {
    let (early, late) = (copy(60), copy(30));
    assert!(is_older(&early, &late) && !is_older(&late, &early));
    assert!(is_newer(&late, &early) && !is_newer(&early, &late));
    let failed = early.failed(SystemTime::now(), "status 503", None, 0.0);
    assert!(is_older(&failed, &late), "a failure does not make a copy newer");
    assert!(is_newer(&early, &Entry::default()), "any copy is newer than an unknown entry");
}

#[test]
fn copies_validated_within_a_second_are_neither_older_nor_newer() {
    let half_a_second = copy(30).answer.map(|answer| {
        let later = answer.freshness.validated_at() + Duration::from_millis(500);
        Entry::answered(SiteAnswer { freshness: Freshness::new(later, Duration::from_secs(DAY as u64), 0.0), ..answer })
    });
    for same in [copy(30), half_a_second.expect("the entry has an answer")] {
        assert!(!is_older(&copy(30), &same) && !is_newer(&copy(30), &same));
        assert!(!is_older(&same, &copy(30)) && !is_newer(&same, &copy(30)));
    }
}

/// A clock that was ahead was later corrected or set back.
#[test]
fn copy_dated_in_the_future_is_not_newer_than_a_current_one() {
    for ahead in [-60, -10 * DAY] {
        assert!(!is_older(&copy(0), &copy(ahead)), "{ahead} s");
        assert!(!is_older(&copy(8), &copy(ahead)), "{ahead} s, and our copy is as of a request 8 s ago");
    }
}

const DAY: i64 = 24 * 3600;
const TAKER: Taker = Taker::of(BACKGROUND);

/// An answer with a file of this many preferences.
fn answer(lines: usize) -> Fetched {
    answered(format!("User-agent: *\n{}", "Content-Usage: /x train-ai=n\n".repeat(lines)).into())
}

fn answered(body: Bytes) -> Fetched {
    let (asked, headers) = (SystemTime::now(), http::HeaderMap::new());
    let reply = Reply { asked, status: 200, headers, body, version: HttpVersion::Http1, wanted: None, through: None };
    Fetched::Answer { reply, is_conditional: false, is_redirected: false, is_foreign: false, asked_again: None }
}

#[tokio::test]
async fn long_file_waits_for_a_place_to_be_parsed() {
    let cache = cache();
    let read = |lines| cache.read(SiteFile::Robots, Arc::default(), answer(lines), Arc::default(), TAKER);
    let all = all_places(&cache.workers);
    let mut long = std::pin::pin!(read(1_000));
    assert!((&mut long).now_or_never().is_none());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!((&mut long).now_or_never().is_none() && cache.files.count(SiteFile::Robots) == 0, "a long file waits");
    assert!(read(1).now_or_never().flatten().is_some(), "a short file needs no place");
    drop(all);
    assert!(long.await.is_some());
}

/// The limit on places holds however many sites have long files, fetched or from the fleet.
#[tokio::test]
async fn long_body_keeps_its_place_until_it_is_compiled() {
    let cache = cache();
    let all = all_places(&cache.workers);
    let hold = || cache.long_bodies.hold(vec![b'#'; 17 << 10], None, TAKER).ok();
    let mut waiting = Vec::new();
    for body in (0..1_000).map_while(|_| hold()) {
        let mut read = Box::pin(cache.read(SiteFile::Robots, Arc::default(), answered(body), Arc::default(), TAKER));
        assert!((&mut read).now_or_never().is_none());
        waiting.push(read);
    }
    // 64 MiB of bodies of 500 KiB, half of them for one client.
    assert_eq!(waiting.len(), 66);
    assert!(cache.long_bodies.hold(vec![b'#'; 16 << 10], None, TAKER).is_ok(), "a short file needs no place");
    drop(waiting.pop());
    let place = cache
        .long_bodies
        .place(TAKER, &SiteTime::new(Duration::ZERO, Duration::ZERO))
        .now_or_never()
        .expect("a place is free")
        .unwrap();
    assert!(hold().is_none());
    let copy = cache.long_bodies.hold(vec![b'#'; 17 << 10], Some(place), TAKER);
    drop(copy.ok().expect("the place that was waited for"));
    drop(hold().expect("a fetch that is given up gives its place back"));
    drop(all);
    for read in waiting {
        assert!(read.await.is_some());
    }
    let held: Vec<_> = (0..1_000).map_while(|_| hold()).collect();
    assert_eq!(held.len(), 66, "all places are given back");
}

/// Another instance's limit may be higher, and whoever can write to the fleet's server can write anything.
#[tokio::test]
async fn copy_longer_than_any_fetched_file_is_ignored() {
    let cache = cache();
    let most = cache.settings.load().robots.parse_options().max_text();
    for (length, is_read) in [(most, true), (most + 1, false)] {
        let body = vec![b'#'; length];
        let read = cache.read_copy(SiteFile::Robots, TAKER, move |_, parse| {
            let access = parse(digest(&body), &|accepts| accepts(body.len()).then(|| body.clone()))?;
            Some(Arc::new(Entry::answered(SiteAnswer::new(
                access,
                200,
                Freshness::new(SystemTime::now(), Duration::ZERO, 0.0),
            ))))
        });
        assert_eq!(read.await.is_some(), is_read, "{length}");
    }
}

/// Copies come from the store or from the fleet.
#[tokio::test]
async fn long_copy_waits_for_a_place_without_delaying_short_ones() {
    let cache = cache();
    let read = |lines: usize| {
        let body = "User-agent: *\nDisallow: /x\n".repeat(lines).into_bytes();
        cache.read_copy(SiteFile::Robots, TAKER, move |_, parse| {
            let access = parse(digest(&body), &|accepts| accepts(body.len()).then(|| body.clone()))?;
            let freshness = Freshness::new(SystemTime::now(), Duration::from_secs(60), 0.0);
            Some(Arc::new(Entry::answered(SiteAnswer::new(access, 200, freshness))))
        })
    };
    let all = all_places(&cache.workers);
    let mut long = std::pin::pin!(read(1_000));
    let waited = tokio::time::timeout(Duration::from_millis(200), &mut long).await;
    assert!(waited.is_err() && cache.files.count(SiteFile::Robots) == 0, "a long file waits");
    assert!(read(1).await.is_some(), "a short file needs no place");
    let mut more: Vec<_> = (1_001..1_021).map(|lines| Box::pin(read(lines))).collect();
    for wait in &mut more {
        let waited = tokio::time::timeout(Duration::from_millis(20), wait).await;
        assert!(waited.is_err(), "each of twenty long files waits");
    }
    let short = tokio::time::timeout(Duration::from_secs(10), read(2)).await;
    assert!(short.is_ok_and(|read| read.is_some()), "a short file does not wait for the long ones");
    drop((all, more));
    let read_now = long.await.expect("the long file is read");
    let all = all_places(&cache.workers);
    assert!(read(1_000).await.is_some(), "a long file in memory does not wait");
    drop((all, read_now));
}

/// A site that answers when the test wants it to.
async fn site(cache: &Arc<RobotsCache>) -> (TcpListener, Arc<HostEntry>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = Authority::from_url(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    (listener, cache.host(SiteFile::Robots, &authority))
}

async fn asked(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut head).await.unwrap() > 0, "the request ended early");
    }
    stream
}

fn begin(cache: &Arc<RobotsCache>, host: &Arc<HostEntry>) -> JoinHandle<Result<(), Refusal>> {
    begin_for(FetchReason::Renewal, cache, host)
}

fn begin_for(reason: FetchReason, cache: &Arc<RobotsCache>, host: &Arc<HostEntry>) -> JoinHandle<Result<(), Refusal>> {
    let (cache, host) = (cache.clone(), host.clone());
    tokio::spawn(async move {
        let (fetch, order) = (fetch_of(reason), Order::background(reason));
        cache.refresh_now(&host, &order, &fetch).await
    })
}

/// Returns when a fetch waits for the store.
async fn waits_for_store(cache: &RobotsCache) {
    let free = || std::iter::from_fn(|| cache.unstored.take(TAKER).now_or_never()).collect::<Vec<_>>().len();
    while free() == 8 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn copy_arriving_during_a_wait_for_the_store_is_not_overwritten_by_an_older_one() {
    let cache = cache_of(Settings::default(), unwritten(), None);
    let (listener, host) = site(&cache).await;
    cache.store.fall_behind();
    let fetching = begin(&cache, &host);
    waits_for_store(&cache).await;
    cache.store.catch_up();
    let mut stream = asked(&listener).await;
    cache.store.fall_behind();
    stream.write_all(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    while cache.figures().failed == [0; 3] {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    cache.keep(&host, Arc::new(copy(0)));
    cache.store.catch_up();
    fetching.await.unwrap().unwrap();
    assert!(host.load().answer.is_some(), "the failure is the older one");
}

/// Another process may have a faster disk.
#[tokio::test]
async fn fetch_waiting_for_the_store_leaves_its_host_to_the_fleet() {
    let directory = tempfile::tempdir().unwrap();
    let machine = || MachineLink::open(Some(directory.path()), Duration::from_secs(60));
    let fleet = || Fleet::on_machine(machine(), Arc::default());
    let (cache, other) = (cache_of(Settings::default(), unwritten(), Some(fleet())), Arc::new(fleet()));
    let (listener, host) = site(&cache).await;
    cache.store.fall_behind();
    let fetching = begin(&cache, &host);
    waits_for_store(&cache).await;
    let claim = tokio::time::timeout(Duration::from_secs(3), other.claim(host.name(), Acceptable::Fresh, None)).await;
    assert!(matches!(claim, Ok(Ok(Claim::Fetch(..)))), "the fetch is not claimed before it can begin");
    drop(claim);
    cache.store.catch_up();
    let mut stream = asked(&listener).await;
    cache.store.fall_behind();
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    let claim =
        tokio::time::timeout(Duration::from_millis(300), other.claim(host.name(), Acceptable::Fresh, None)).await;
    assert!(claim.is_err(), "the right is held until others find the copy in the store");
    cache.store.catch_up();
    fetching.await.unwrap().unwrap();
    assert!(host.load().answer.is_some());
    cache.store.catch_up();
    assert!(matches!(other.claim(host.name(), Acceptable::Fresh, None).await, Ok(Claim::Fetch(..))));
}

#[tokio::test]
async fn missing_place_for_a_body_is_not_a_failure_of_the_site() {
    let settings = Settings::parse("politely.yaml", "robots: { timeout: 1s }").unwrap();
    let cache = cache_with(settings);
    let (listener, host) = site(&cache).await;
    let hold = || cache.long_bodies.hold(vec![b'#'; 17 << 10], None, TAKER).ok();
    let held: Vec<_> = (0..1_000).map_while(|_| hold()).collect();
    let fetching = begin(&cache, &host);
    let mut stream = asked(&listener).await;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n").await.unwrap();
    stream.write_all(&[b'#'; 20_000]).await.unwrap();
    let fetched = fetching.await.unwrap();
    assert!(matches!(fetched, Err(Refusal::OwnLimit { .. })), "{fetched:?}");
    assert!(is_unknown(&host.load()), "the site has answered, so no failure is noted");
    drop(held);
}

/// Places are taken, for example, if hundreds of sites with long files are asked at once.
#[tokio::test]
async fn first_fetch_waits_for_a_place_beyond_its_sites_time() {
    let cache = cache_with(Settings::parse("politely.yaml", "robots: { timeout: 3s }").unwrap());
    let (listener, host) = site(&cache).await;
    let hold = || cache.long_bodies.hold(vec![b'#'; 17 << 10], None, TAKER).ok();
    let held: Vec<_> = (0..1_000).map_while(|_| hold()).collect();
    let fetching = begin_for(FetchReason::FirstUse, &cache, &host);
    let mut stream = asked(&listener).await;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n").await.unwrap();
    stream.write_all(&[b'#'; 20_000]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(!fetching.is_finished());
    drop(held);
    fetching.await.unwrap().unwrap();
    assert!(host.load().answer.is_some());
}

/// Hundreds of sites may be slow at once.
#[tokio::test]
async fn fetch_in_flight_takes_little_memory() {
    let cache = cache();
    let host = cache.host(SiteFile::Robots, &Authority::from_url("https://a.example").unwrap());
    let (fetch, order) = (fetch_of(FetchReason::Renewal), Order::background(FetchReason::Renewal));
    let all = size_of_val(&cache.refresh_now(&host, &order, &fetch));
    let alone = size_of_val(&cache.refresh_alone(&host, &order, &fetch));
    assert!(all + alone < 6 * 1024, "{all} and {alone} bytes");
}

/// Only one process fetches, even on file systems that cannot tell what is in memory, such as `/dev/shm`.
#[tokio::test(flavor = "multi_thread")]
async fn only_one_of_several_processes_fetches_wherever_the_store_is() {
    for place in [std::env::temp_dir(), "/dev/shm".into()].into_iter().filter(|place| place.is_dir()) {
        let directory = tempfile::tempdir_in(place).unwrap();
        let mut settings = Settings::default();
        settings.store.directory = Some(directory.path().to_owned());
        let process = |_| {
            let machine = MachineLink::open(Some(directory.path()), Duration::from_secs(60));
            let store = Arc::new(Store::open(&settings.store));
            let upstream = Arc::new(crate::upstream::tests::upstream(LOOPBACK));
            let fleet = Arc::new(Fleet::on_machine(machine, store.clone()));
            let (pacer, settings) =
                (Arc::new(Pacer::new(Fleet::alone())), Arc::new(ArcSwap::from_pointee(settings.clone())));
            RobotsCache::new(upstream, pacer, (store, fleet, Workers::new(Some(1))), settings)
        };
        let caches: Vec<_> = (0..4).map(process).collect();
        let (listener, host) = site(&caches[0]).await;
        let begin = |cache| begin_for(FetchReason::FirstUse, cache, &cache.host(SiteFile::Robots, &host.authority));
        let fetching: Vec<_> = caches.iter().map(begin).collect();
        let answers = async {
            for fetches in 1.. {
                let mut stream = asked(&listener).await;
                assert_eq!(fetches, 1);
                let head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n#x";
                stream.write_all(head).await.unwrap();
            }
        };
        let all = async {
            for one in fetching {
                one.await.unwrap().unwrap();
            }
        };
        tokio::select! { () = answers => {}, () = all => {} }
    }
}

const LOOPBACK: &str = "egress: { allow: [127.0.0.0/8], ports: ['1-65535'] }";
