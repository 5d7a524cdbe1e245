//! Several processes on one machine that use one store: one pace for each host, one fetch of each robots.txt, whoever of
//! them ends and however.

use super::origin;
use crate::support::binary::{Binary, Ended, open, politely_with};
use crate::support::{Client, Origin, Reply, Seen, client, eventually, test_ca};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const GAP: Duration = Duration::from_millis(500);

async fn slow() -> Origin {
    site("0.5").await
}

/// A site with this crawl delay. Paths that begin with `/page/long` are answered after a second.
async fn site(delay: &str) -> Origin {
    let robots = format!("User-agent: *\nCrawl-delay: {delay}\nDisallow: /private\n");
    Origin::http(move |seen| match seen.path() {
        path if path == "/robots.txt" => Reply::text(&robots),
        path if path.starts_with("/page/long") => Reply::text("page").after(Duration::from_secs(1)),
        _ => Reply::text("page"),
    })
    .await
}

/// With its store in this directory.
async fn serve(directory: &Path) -> Binary {
    Binary::serve(&format!("store: {{ directory: '{}' }}", directory.display())).await
}

/// `run` of so many requests one after the other.
async fn run(home: &Path, url: &str, count: usize) -> Ended {
    let script = format!("for i in $(seq {count}); do curl -q -sS -o /dev/null -f {url}/$i || exit 9; done");
    let (home, roots) = (home.to_str().expect("UTF-8"), test_ca().pem_file().to_str().expect("UTF-8"));
    let variables = [
        ("STATE_DIRECTORY", home),
        ("POLITELY_EGRESS__ALLOW", "[127.0.0.0/8]"),
        ("POLITELY_EGRESS__PORTS", "[\"1-65535\"]"),
        ("POLITELY_EGRESS__CA_FILE", roots),
    ];
    politely_with(&["run", "sh", "-c", &script], &variables).await
}

async fn get(proxy: &Binary, url: &str) -> u16 {
    let host = url.split('/').nth(2).expect("an absolute URL").to_owned();
    Client::open(proxy.address()).await.get(url, &host).await.status()
}

/// Asks for page after page until it is dropped, or its proxy is gone.
fn crawl(proxy: &Binary, origin: &Origin, name: &str) -> tokio::task::JoinHandle<()> {
    let (address, host) = (proxy.address(), origin.authority("a.localhost"));
    let url = origin.url(name);
    tokio::spawn(async move {
        for number in 0.. {
            let mut client = Client::open(address).await;
            let request = format!("GET {url}/{number} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            if client.try_send(request).await.is_err() || client.try_head().await.is_none() {
                return;
            }
        }
    })
}

/// Allows no noise, as arrivals are stamped by the kernel.
#[track_caller]
fn assert_gaps(origin: &Origin, gap: Duration, at_least: usize) {
    let gaps = origin.log.gaps("/page");
    assert!(gaps.len() + 1 >= at_least, "{}: {:?}", gaps.len() + 1, origin.log.targets());
    assert!(gaps.iter().all(|&measured| measured >= gap), "{gaps:?}, not {gap:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_and_two_runs_share_one_pace_and_one_robots_fetch() {
    let origin = slow().await;
    let home = tempfile::tempdir().expect("a temporary directory");
    let proxy =
        Binary::serve_with("store: { directory: ~ }", &[("STATE_DIRECTORY", home.path().to_str().expect("UTF-8"))])
            .await;
    let crawl = crawl(&proxy, &origin, "/page/serve");
    let (one, other) = (origin.url("/page/one"), origin.url("/page/other"));
    let (one, other) = tokio::join!(run(home.path(), &one, 7), run(home.path(), &other, 7));
    crawl.abort();
    for ended in [one, other] {
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(!ended.stderr.contains("another `politely`") && !ended.stderr.contains("warn"), "{}", ended.stderr);
    }
    // All of both runs, and some of the third: whose turn it is among those who wait is a matter of luck.
    assert_gaps(&origin, GAP, 16);
    assert_eq!(origin.log.count("/robots.txt"), 1);
    assert!(!proxy.output().contains("another `politely`"), "{}", proxy.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_starts_of_two_runs_are_closer_than_the_delay() {
    let origin = site("0.2").await;
    let home = tempfile::tempdir().expect("a temporary directory");
    let (one, other) = (origin.url("/page/one"), origin.url("/page/other"));
    let (one, other) = tokio::join!(run(home.path(), &one, 20), run(home.path(), &other, 20));
    assert_eq!((one.code, other.code), (0, 0), "{} {}", one.stderr, other.stderr);
    assert_gaps(&origin, Duration::from_millis(200), 40);
    assert_eq!(origin.log.all().len(), 41);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_process_gets_its_share_of_slots() {
    let origin = site("0.1").await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (one, other) = (serve(directory.path()).await, serve(directory.path()).await);
    let crawls = [crawl(&one, &origin, "/page/one"), crawl(&other, &origin, "/page/other")];
    let both = || ["/page/one", "/page/other"].map(|name| origin.log.gaps(name).len());
    eventually("turns of both", || both().iter().all(|count| *count > 15)).await;
    crawls.iter().for_each(tokio::task::JoinHandle::abort);
    assert_gaps(&origin, Duration::from_millis(100), 30);
}

/// Most connections and some answers take longer than the gap, so requests start later than reserved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_reservations_of_other_processes_cause_no_refusals() {
    let late = Duration::from_millis(350);
    let (robots, count) = ("User-agent: *\nCrawl-delay: 0.3\n", AtomicUsize::new(0));
    let answer = move |seen: &Seen| match count.fetch_add(1, Ordering::Relaxed) % 6 {
        _ if seen.path() == "/robots.txt" => Reply::text(robots),
        0 => Reply::text("page"),
        1 => Reply::text("page").after(late).then_close(),
        _ => Reply::text("page").then_close(),
    };
    let origin = Arc::new(Origin::https_after(late, answer).await);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let yaml = format!("store: {{ directory: '{}' }}", directory.path().display());
    let mut clients = JoinSet::new();
    let mut fleet = Vec::new();
    for count in [1, 3, 5] {
        fleet.push(Binary::serve(&yaml).await);
        let address = fleet.last().expect("one").address();
        for _ in 0..count {
            let origin = origin.clone();
            clients.spawn(async move {
                // For each client of this process, each process starts once, hardly a second after the one before.
                let accept = format!("Prefer: wait={}\r\nAccept", 3 * count + 5);
                let request = client::get(&origin.url("/page"), &origin.authority("a.localhost"));
                let request = request.replace("Accept", &accept);
                let mut client = Client::open(address).await;
                let mut refused = Vec::new();
                for _ in 0..30 / count {
                    client.send(request.clone()).await;
                    let status = client.response().await.status();
                    if status != 200 {
                        refused.push((count, status));
                    }
                }
                refused
            });
        }
    }
    let refused = clients.join_all().await.concat();
    assert!(refused.is_empty(), "{} of 90: {refused:?}", refused.len());
    assert_gaps(&origin, Duration::from_millis(300), 60);
}

/// The process is killed under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_is_replaced_and_the_gap_is_kept() {
    let origin = slow().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let first = serve(directory.path()).await;
    let (second, third) = (serve(directory.path()).await, serve(directory.path()).await);
    let crawls = [(&first, "one"), (&second, "two"), (&third, "three")]
        .map(|(proxy, name)| crawl(proxy, &origin, &format!("/page/{name}")));
    let pages = || origin.log.gaps("/page").len();
    eventually("pages", || pages() >= 6).await;
    let (killed, before) = (Instant::now(), pages());
    drop(first.kill().await);
    eventually("the next page", || pages() > before).await;
    assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", killed.elapsed());
    eventually("pages of the others", || pages() >= before + 8).await;
    // Known copies are still used, and new ones are stored by the process that has taken over the store.
    let other = origin_of_rules().await;
    assert_eq!(get(&second, &other.url("/private")).await, 403);
    assert_eq!(get(&third, &other.url("/private")).await, 403);
    crawls.iter().for_each(tokio::task::JoinHandle::abort);
    assert_gaps(&origin, GAP, 14);
    // For the store to be written.
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop((second.kill().await, third.kill().await));
    let last = serve(directory.path()).await;
    assert_eq!(get(&last, &other.url("/private")).await, 403);
    assert_eq!(get(&last, &origin.url("/private")).await, 403);
    assert_eq!((origin.log.count("/robots.txt"), other.log.count("/robots.txt")), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_of_another_process_count_for_new_and_remaining_processes() {
    let origin = site("2").await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let first = serve(directory.path()).await;
    assert_eq!(get(&first, &origin.url("/page/1")).await, 200);
    let second = serve(directory.path()).await;
    assert_eq!(get(&second, &origin.url("/page/2")).await, 200);
    drop(second.stop().await);
    assert_eq!(get(&first, &origin.url("/page/3")).await, 200);
    let third = serve(directory.path()).await;
    drop(first.stop().await);
    assert_eq!(get(&third, &origin.url("/page/4")).await, 200);
    assert_gaps(&origin, Duration::from_secs(2), 4);
    assert_eq!(origin.log.count("/robots.txt"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_holds_all_processes_back() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/page/busy" => Reply::status(503).field("Retry-After", "3"),
        _ => Reply::text("page"),
    })
    .await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (one, other) = (serve(directory.path()).await, serve(directory.path()).await);
    for proxy in [&one, &other] {
        assert_eq!(get(proxy, &origin.url("/page/open")).await, 200);
    }
    assert_eq!(get(&one, &origin.url("/page/busy")).await, 503);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(get(&other, &origin.url("/page/later")).await, 200);
    let gap = origin.log.one("/page/later").at - origin.log.one("/page/busy").at;
    assert!(gap >= Duration::from_secs(3), "{gap:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_process_does_not_block_others() {
    let origin = slow().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (one, other) = (serve(directory.path()).await, serve(directory.path()).await);
    for proxy in [&one, &other] {
        assert_eq!(get(proxy, &origin.url("/page")).await, 200);
    }
    one.signal(libc::SIGSTOP);
    let crawl = crawl(&other, &origin, "/page/alone");
    eventually("pages all the same", || origin.log.gaps("/page/alone").len() > 3).await;
    one.signal(libc::SIGCONT);
    assert_eq!(get(&one, &origin.url("/page/again")).await, 200);
    crawl.abort();
    assert_gaps(&origin, GAP, 7);
}

/// Other processes cannot tell whether it has sent its request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_stopped_during_its_slot_keeps_it_with_a_warning() {
    let origin = slow().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (one, other) = (serve(directory.path()).await, serve(directory.path()).await);
    let long = crawl(&one, &origin, "/page/long/one");
    eventually("its turn", || origin.log.count("/page/long/one/0") == 1).await;
    // Otherwise the process would still hold the fetch lock.
    eventually("the copy of robots.txt", || has_copy(directory.path())).await;
    one.signal(libc::SIGSTOP);
    let next = crawl(&other, &origin, "/page/next");
    let told = format!("(process {}) is suspended while it holds the pacing slot of a.localhost", one.pid());
    eventually("a word of it", || other.output().contains(&told)).await;
    assert_eq!(origin.log.count("/page/next/0"), 0, "nobody else starts");
    one.signal(libc::SIGCONT);
    eventually("the next", || origin.log.count("/page/next/0") == 1).await;
    long.abort();
    next.abort();
    // Nobody waits for one that has ended, stopped as it was.
    let long = crawl(&one, &origin, "/page/long/last");
    eventually("its turn again", || origin.log.count("/page/long/last/0") == 1).await;
    one.signal(libc::SIGSTOP);
    drop(one.kill().await);
    assert_eq!(get(&other, &origin.url("/page/after")).await, 200);
    long.abort();
    assert_gaps(&origin, GAP, 4);
}

/// Batch systems limit the address space, of which allocators reserve more than they use.
#[test]
fn little_address_space_is_enough_for_sharing() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let limited = "ulimit -v 800000; exec \"$0\" run -- true";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_politely")]).env("STATE_DIRECTORY", home.path());
    let output = command.output().expect("a shell");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !told.contains("nothing is shared"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_store_directory_is_logged_and_serving_continues() {
    let origin = origin_of_rules().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "no directory").expect("it is writable");
    let proxy = serve(&file).await;
    assert_eq!(get(&proxy, &origin.url("/private")).await, 403);
    let told = proxy.output();
    assert_eq!(told.matches("nothing is shared").count(), 1, "{told}");
    assert!(told.contains("store.directory"), "{told}");
}

/// For example, the disk may have been full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharing_starts_once_the_store_directory_is_usable() {
    let origin = slow().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = directory.path().join("store");
    std::fs::write(&store, "no directory").expect("it is writable");
    let (one, other) = (serve(&store).await, serve(&store).await);
    let crawls = [(&one, "/page/one"), (&other, "/page/other")].map(|(proxy, name)| crawl(proxy, &origin, name));
    eventually("pages of both", || origin.log.count("/page/one/1") + origin.log.count("/page/other/1") == 2).await;
    std::fs::remove_file(&store).expect("it is ours");
    for proxy in [&one, &other] {
        eventually("a word of it", || proxy.output().contains("paces are shared")).await;
    }
    let alone = origin.log.gaps("/page").len();
    eventually("pages", || origin.log.gaps("/page").len() >= alone + 8).await;
    crawls.iter().for_each(tokio::task::JoinHandle::abort);
    let shared = &origin.log.gaps("/page")[alone + 2..];
    assert!(shared.iter().all(|gap| *gap >= GAP), "{shared:?}");
}

/// Running and new processes share the new file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_pace_file_is_recreated_by_all_processes() {
    let origin = slow().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (one, other) = (serve(directory.path()).await, serve(directory.path()).await);
    let mut crawls = vec![crawl(&one, &origin, "/page/one"), crawl(&other, &origin, "/page/other")];
    let pages = || origin.log.gaps("/page").len();
    eventually("pages", || pages() >= 3).await;
    std::fs::remove_file(directory.path().join("politely.pace7")).expect("it is ours");
    eventually("a word of it", || [&one, &other].iter().all(|proxy| proxy.output().contains("paces are shared"))).await;
    let later = serve(directory.path()).await;
    crawls.push(crawl(&later, &origin, "/page/later"));
    let before = pages();
    eventually("pages of all", || pages() >= before + 8).await;
    crawls.iter().for_each(tokio::task::JoinHandle::abort);
    assert_gaps(&origin, GAP, 10);
    assert!(["one", "other", "later"].iter().all(|name| origin.log.count(&format!("/page/{name}/1")) == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budget_survives_removal_of_the_pace_file() {
    let origin = origin_of_rules().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = format!("store: {{ directory: '{}' }}", directory.path().display());
    let proxy = Binary::serve(&format!("{store}\npace: {{ budget: {{ requests: 3, per: day }} }}")).await;
    for _ in 0..2 {
        assert_eq!(get(&proxy, &origin.url("/page")).await, 200);
    }
    let file = directory.path().join("politely.pace7");
    std::fs::remove_file(&file).expect("it is ours");
    for host in 0.. {
        get(&proxy, &origin.url_at(&format!("h{host}.localhost"), "/page")).await;
        if file.exists() {
            break;
        }
    }
    assert_eq!(get(&proxy, &origin.url("/page")).await, 200);
    assert_eq!(get(&proxy, &origin.url("/page")).await, 429);
}

/// A failed fetch of one run does not count for another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_wait_for_a_silent_site_concurrently() {
    let origin = Origin::http(|_| Reply::silence()).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let home = directory.path().to_str().expect("UTF-8").to_owned();
    let command = Arc::new(["run", "curl", "-q", "-sS", &origin.url("/page")].map(str::to_owned));
    let runs: JoinSet<_> = (0..3)
        .map(|_| {
            let (home, command) = (home.clone(), command.clone());
            async move {
                let patient = [("STATE_DIRECTORY", home.as_str()), ("POLITELY_ROBOTS__TIMEOUT", "10m")];
                let command: Vec<_> = command.iter().map(String::as_str).collect();
                politely_with(&command, &[&open()[..], &patient].concat()).await
            }
        })
        .collect();
    eventually("all to ask", || origin.log.count("/robots.txt") == 3).await;
    drop(runs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_stopped_during_a_robots_fetch_causes_a_warning() {
    let origin = Origin::http(|_| Reply::silence()).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (one, other) = (serve(directory.path()).await, serve(directory.path()).await);
    let first = crawl(&one, &origin, "/page/one");
    eventually("its fetch", || origin.log.count("/robots.txt") == 1).await;
    one.signal(libc::SIGSTOP);
    let next = crawl(&other, &origin, "/page/other");
    let told = format!("(process {}) is suspended while it fetches", one.pid());
    eventually("a word of it", || other.output().contains(&told)).await;
    one.signal(libc::SIGCONT);
    first.abort();
    next.abort();
}

/// Whoever can write to the directory can write anything into the file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_in_the_pace_file_is_tolerated() {
    use std::os::unix::fs::FileExt;
    let origin = slow().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let proxy = serve(directory.path()).await;
    let file = std::fs::File::options().write(true).open(directory.path().join("politely.pace7")).expect("it is there");
    for nonsense in [0xff, 0x01, 0x80] {
        file.write_all_at(&vec![nonsense; 80 << 10], 0).expect("it is writable");
        assert_eq!(get(&proxy, &origin.url("/page")).await, 200);
    }
    assert_gaps(&origin, GAP, 3);
    // Debts may be lost with the garbage.
    let next = serve(directory.path()).await;
    assert_eq!(get(&next, &origin.url("/page")).await, 200);
}

/// For example, the disk may be broken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_with_an_unwritable_pace_file_keeps_its_own_gap() {
    let origin = slow().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let proxy = serve(directory.path()).await;
    let crawls = ["/page/one", "/page/other"].map(|name| crawl(&proxy, &origin, name));
    let pages = || origin.log.gaps("/page").len();
    eventually("pages", || pages() >= 3).await;
    let file = std::fs::File::options().write(true).open(directory.path().join("politely.pace7"));
    file.and_then(|file| file.set_len(0)).expect("it is ours");
    eventually("a word of it", || proxy.output().contains("nothing is shared")).await;
    let before = pages();
    eventually("pages all the same", || pages() >= before + 4).await;
    crawls.iter().for_each(tokio::task::JoinHandle::abort);
    assert_gaps(&origin, GAP, 8);
    assert_eq!(proxy.output().matches("nothing is shared").count(), 1, "{}", proxy.output());
}

/// Whether the store has a copy of any robots.txt.
fn has_copy(directory: &Path) -> bool {
    std::fs::metadata(directory.join("robots.copies.1")).is_ok_and(|file| file.len() > 0)
}

async fn origin_of_rules() -> Origin {
    origin(|_| Reply::text(super::KEEP_OUT)).await
}

/// The other process has a subresource to fetch, which would otherwise follow its page at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_of_one_process_holds_back_bursts_of_another() {
    let directory = tempfile::tempdir().unwrap();
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/busy" => Reply::status(429).field("Retry-After", "100"),
        _ => Reply::text("page"),
    })
    .await;
    let yaml = format!(
        "store: {{ directory: '{}' }}\npace: {{ subresources: burst, max_wait: 1s }}",
        directory.path().display()
    );
    let (one, other) = (Binary::serve(&yaml).await, Binary::serve(&yaml).await);
    assert_eq!(get(&other, &origin.url("/page")).await, 200);
    assert_eq!(get(&one, &origin.url("/busy")).await, 429);
    // All know within 50 ms, unless they are late.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let host = origin.authority("a.localhost");
    let image = format!("GET {} HTTP/1.1\r\nHost: {host}\r\nSec-Fetch-Dest: image\r\n\r\n", origin.url("/image"));
    let mut client = Client::open(other.address()).await;
    client.send(image).await;
    assert_eq!(client.response().await.status(), 429);
    assert_eq!(origin.log.count("/image"), 0);
}
