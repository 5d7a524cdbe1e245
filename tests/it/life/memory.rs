//! How much memory sites can make their files take.

use crate::support::{Binary, Client, Origin, Proxy, Reply, eventually, within};
use std::io::Write;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Sites with long robots.txt files that all differ.
pub async fn sites(crawl_delay: u64) -> Origin {
    Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => {
            let host = seen.field("host").unwrap_or_default();
            let rules = (0..4_000).map(|line| format!("Disallow: /{line}/{host}/a-section-of-the-site\n"));
            Reply::text(format!("User-agent: *\nCrawl-delay: {crawl_delay}\n{}", rules.collect::<String>()))
        }
        _ => Reply::text("page"),
    })
    .await
}

async fn bytes_of_files(proxy: &Proxy) -> usize {
    let metrics = crate::support::curl(&[&format!("http://{}/metrics", proxy.admin_address())]).await.text();
    let files = metrics.lines().find_map(|line| line.strip_prefix("politely_memory_bytes{of=\"files\"} "));
    files.expect("it is counted").parse::<f64>().expect("a number") as usize
}

/// Each site is asked for one page, and for a second one, which waits for its slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_files_stay_within_store_memory_while_requests_wait() {
    const SITES: usize = 60;
    let origin = sites(600).await;
    let yaml =
        "{ admin: { address: '127.0.0.1:0' }, store: { memory: 8MiB }, pace: { max_wait: 1h, max_crawl_delay: 1h } }";
    let proxy = Arc::new(Proxy::start(yaml).await);
    let mut waiting = JoinSet::new();
    for number in 0..SITES {
        let host = origin.authority(&format!("h{number}.localhost"));
        assert_eq!(proxy.get(&format!("http://{host}/first")).await.status(), 200);
        let proxy = proxy.clone();
        waiting.spawn(async move { proxy.get(&format!("http://{host}/second")).await.status() });
    }
    eventually("all wait", || proxy.waiting() == SITES).await;
    within("files are given up", async {
        while bytes_of_files(&proxy).await > 9 << 20 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(proxy.waiting(), SITES);
}

/// The rules come from the store, or from the site if nothing is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_request_reloads_rules_evicted_from_memory() {
    for (store, fetches) in [("memory: 1MiB", 1), ("memory: 1MiB, disk: 0", 2)] {
        let origin = sites(10).await;
        let yaml =
            format!("{{ admin: {{ address: '127.0.0.1:0' }}, store: {{ {store} }}, pace: {{ max_wait: 60s }} }}");
        let proxy = Arc::new(Proxy::start(&yaml).await);
        let host = origin.authority("h.localhost");
        assert_eq!(proxy.get(&format!("http://{host}/first")).await.status(), 200);
        let (waits, url) = (proxy.clone(), format!("http://{host}/second"));
        let second = tokio::spawn(async move { waits.get(&url).await.status() });
        eventually("it waits", || proxy.waiting() == 1).await;
        // Others take its place.
        let others = (0..4).map(|number| format!("http://{}/", origin.authority(&format!("h{number}.localhost"))));
        for url in others {
            assert_eq!(proxy.get(&url).await.status(), 200);
        }
        assert_eq!(within("its turn", second).await.expect("no panic"), 200);
        let robots = origin.log.of("/robots.txt").into_iter().filter(|seen| seen.field("host") == Some(&host));
        assert_eq!(robots.count(), fetches, "{store}");
    }
}

/// Each body has two kilobytes on the wire, so bodies arrive faster than they are compiled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_waiting_to_be_compiled_stay_within_store_memory() {
    const SITES: usize = 300;
    let rules = gzip(&format!("User-agent: *\n{}", "Disallow: /a-section*of/the*site\n".repeat(14_000)));
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => {
            let of = gzip(&format!("# {}\n", seen.field("host").unwrap_or_default()));
            Reply::text([&of[..], &rules].concat()).field("Content-Encoding", "gzip")
        }
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Binary::serve("store: { memory: 8MiB }").await;
    let before = proxy.peak_kib();
    let mut pages = JoinSet::new();
    for number in 0..SITES {
        let (address, host) = (proxy.address(), origin.authority(&format!("h{number}.localhost")));
        pages.spawn(async move { Client::open(address).await.get(&format!("http://{host}/page"), &host).await });
    }
    let pages = pages.join_all().await;
    let taken = proxy.peak_kib() - before;
    let refused = pages.iter().filter(|page| page.status() == 503 && page.text().contains("out-of-resources")).count();
    let passed = pages.iter().filter(|page| page.status() == 200).count();
    assert!(passed > 0 && passed + refused == SITES, "{passed} passed, {refused} refused");
    // Half of the cores compile one each. The allocator keeps what is freed for a second.
    let most = (80 << 10) + std::thread::available_parallelism().map_or(1, usize::from) as u64 * (4 << 10);
    assert!(taken < most, "{taken} KiB more, {passed} passed, {refused} refused");
}

/// One client gets half of the sixteen places, and each file is read within `robots.timeout`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_long_files_at_once_are_all_read() {
    let rules = format!("User-agent: *\n{}", "Disallow: /a-section*of/the*site\n".repeat(14_000));
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(format!("# {}\n{rules}", seen.field("host").unwrap_or_default())),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Binary::serve("store: { memory: 8MiB }\nrobots: { timeout: 2m }").await;
    let mut pages = JoinSet::new();
    for number in 0..80 {
        let (address, host) = (proxy.address(), origin.authority(&format!("h{number}.localhost")));
        pages.spawn(async move { Client::open(address).await.get(&format!("http://{host}/page"), &host).await });
    }
    for page in pages.join_all().await {
        assert_eq!(page.status(), 200, "{}", page.text());
    }
    assert_eq!(origin.log.count("/robots.txt"), 80, "none is asked twice");
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).expect("memory");
    encoder.finish().expect("memory")
}
