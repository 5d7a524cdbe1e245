//! A disk that is too slow for the store: fetches wait for it, and no page is turned away.

use super::memory::sites;
use crate::support::binary::preload;
use crate::support::{Binary, Client};
use tokio::task::JoinSet;

const SLOW: &str = r#"
#include <sys/syscall.h>
#include <unistd.h>
int fdatasync(int fd) {
  usleep(400000);
  return (int)syscall(SYS_fdatasync, fd);
}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_file_is_fetched_once_and_each_page_delivered_however_slow_the_disk_is() {
    const SITES: usize = 90;
    let origin = sites(0).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let library = preload(directory.path(), SLOW);
    let yaml = "store: { memory: 64MiB }\npace: { max_wait: 120s }\n";
    let proxy = Binary::serve_with(yaml, &[("LD_PRELOAD", library.to_str().expect("UTF-8"))]).await;
    let mut all = JoinSet::new();
    for worker in 0..15 {
        let (address, sites) = (proxy.address(), (worker..SITES).step_by(15));
        let urls: Vec<_> = sites.map(|number| origin.url_at(&format!("h{number}.localhost"), "/page")).collect();
        all.spawn(async move {
            let mut client = Client::open(address).await;
            for url in urls {
                for page in 0..2 {
                    let authority = url.split('/').nth(2).expect("an absolute URL");
                    assert_eq!(client.get(&url, authority).await.status(), 200, "{url} {page}");
                }
            }
        });
    }
    while let Some(done) = all.join_next().await {
        done.expect("no panic");
    }
    assert!(!proxy.output().contains("does not keep up"), "{}", proxy.output());
    assert_eq!(origin.log.count("/robots.txt"), SITES);
}
