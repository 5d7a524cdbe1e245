//! A disk that is too slow for the store: fetches wait for it, and no page is turned away.

use super::memory::sites;
use crate::support::binary::preload;
use crate::support::{Binary, Client};
use tokio::task::JoinSet;

/// A write of the store takes 30 ms, and leaves a file that says that there was one.
const SLOW: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
  close(open(getenv("SLOWED"), O_CREAT | O_WRONLY, 0600));
  usleep(30000);
  return syscall(SYS_pwrite64, fd, bytes, length, at);
}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_disk_causes_no_extra_fetches_or_lost_pages() {
    const SITES: usize = 90;
    let origin = sites(0).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let library = preload(directory.path(), SLOW);
    let yaml = "store: { memory: 64MiB }\npace: { max_wait: 120s }\n";
    let slowed = directory.path().join("slowed");
    let [library, mark] = [&library, &slowed].map(|path| path.to_str().expect("UTF-8"));
    let proxy = Binary::serve_with(yaml, &[("LD_PRELOAD", library), ("SLOWED", mark)]).await;
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
    assert!(slowed.exists(), "the store writes otherwise");
    assert!(!proxy.output().contains("does not keep up"), "{}", proxy.output());
    assert_eq!(origin.log.count("/robots.txt"), SITES);
}
