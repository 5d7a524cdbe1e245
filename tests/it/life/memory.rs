//! How much memory sites can make their files take.

use crate::support::{Origin, Proxy, Reply, eventually, within};
use tokio::task::JoinSet;

/// A page of each of so many sites, whose long robots.txt is no other's, and a second one, which waits for its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_files_take_no_more_than_configured_however_many_requests_wait() {
    const SITES: usize = 60;
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => {
            let host = seen.field("host").unwrap_or_default();
            let rules = (0..4_000).map(|line| format!("Disallow: /{line}/{host}/a-section-of-the-site\n"));
            Reply::text(format!("User-agent: *\nCrawl-delay: 50\n{}", rules.collect::<String>()))
        }
        _ => Reply::text("page"),
    })
    .await;
    let proxy =
        Proxy::start("{ admin: { address: '127.0.0.1:0' }, store: { memory: 8MiB }, pace: { max_wait: 60s } }").await;
    let proxy = std::sync::Arc::new(proxy);
    let mut waiting = JoinSet::new();
    for number in 0..SITES {
        let host = origin.authority(&format!("h{number}.localhost"));
        assert_eq!(proxy.get(&format!("http://{host}/first")).await.status(), 200);
        let proxy = proxy.clone();
        waiting.spawn(async move { proxy.get(&format!("http://{host}/second")).await.status() });
    }
    eventually("all wait", || proxy.waiting() == SITES).await;
    let url = format!("http://{}/metrics", proxy.admin_address());
    let bytes = async || {
        let metrics = crate::support::curl(&[&url]).await.text();
        let files = metrics.lines().find_map(|line| line.strip_prefix("politely_memory_bytes{of=\"files\"} "));
        files.expect("it is counted").parse::<usize>().expect("a number")
    };
    within("files are given up", async {
        while bytes().await > 9 << 20 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    // Each is decided by its rules again at its turn.
    let ended = within("their turns", waiting.join_all()).await;
    assert_eq!(ended, [200; SITES]);
    assert_eq!(origin.log.count("/robots.txt"), SITES, "what the store has is not fetched again");
}
