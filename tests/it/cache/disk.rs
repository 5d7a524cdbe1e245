//! The cache's files: over a restart, damaged, torn, without room.

use super::{caching, fresh, is_hit, pages, with, with_cache};
use crate::support::{Binary, Client, Proxy, Reply, Seen, eventually};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The files of answers.
fn files(directory: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(directory).unwrap().flatten().map(|folder| folder.path());
    let folders = folders.filter(|path| path.is_dir() && path.file_name().unwrap().len() == 2);
    folders.flat_map(|folder| fs::read_dir(folder).unwrap().flatten().map(|file| file.path())).collect()
}

fn unfinished(directory: &Path) -> usize {
    fs::read_dir(directory.join("unfinished")).unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_page_survives_a_restart_unless_damaged() {
    let origin = pages(|_| fresh("page")).await;
    let (proxy, directory) = caching("").await;
    assert_eq!(with(&mut proxy.client().await, &origin, "GET", "/page", "").await.status(), 200);
    eventually("it is stored", || files(directory.path()).len() == 1).await;
    proxy.shutdown().await;
    let whole = fs::read(files(directory.path()).remove(0)).unwrap();
    let damaged = |at: usize| {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        damaged
    };
    let torn = whole[..whole.len() - 1].to_vec();
    let body = whole.windows(4).rposition(|window| window == b"page").unwrap();
    let damages = [damaged(whole.len() - 1), damaged(body), damaged(60), torn, Vec::new(), b"something else".to_vec()];
    for (number, content) in std::iter::once(whole.clone()).chain(damages).enumerate() {
        fs::write(files(directory.path()).remove(0), content).unwrap();
        let proxy = Proxy::start(&with_cache(directory.path(), "")).await;
        let response = with(&mut proxy.client().await, &origin, "GET", "/page", "").await;
        assert_eq!((response.text().as_str(), is_hit(&response)), ("page", number == 0), "case {number}");
        assert_eq!(origin.log.count("/page"), 1 + number);
        eventually("it is stored, in a file of its own", || files(directory.path()).len() == 1).await;
        proxy.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_long_entry_is_cut_and_fetched_the_next_time() {
    let origin = pages(|_| Reply::pattern(1 << 20).field("Cache-Control", "max-age=600")).await;
    let (proxy, directory) = caching("").await;
    assert_eq!(proxy.curl(&[&origin.url("/page")]).await.stdout.len(), 1 << 20);
    eventually("it is stored", || files(directory.path()).len() == 1).await;
    let file = files(directory.path()).remove(0);
    let mut content = fs::read(&file).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(&file, content).unwrap();
    let part = |range: String| {
        let (proxy, url) = (&proxy, origin.url("/page"));
        async move { proxy.curl(&["-r", &range, &url]).await }
    };
    for sound in [0..10, 300_000..300_001, (1 << 20) - 1..1 << 20] {
        let part = part(format!("{}-{}", sound.start, sound.end - 1)).await;
        assert_eq!((part.code, part.stdout.len()), (0, sound.len()), "nothing else is read: {}", part.stderr);
    }
    assert_eq!(origin.log.count("/page"), 1);
    let cut = part(format!("{}-{}", middle - 300, middle - 290)).await;
    assert!(cut.code != 0 && cut.stdout.is_empty(), "damaged: {}", cut.stderr);
    let again = proxy.curl(&[&origin.url("/page")]).await;
    assert_eq!((again.code, again.stdout.len(), origin.log.count("/page")), (0, 1 << 20, 2));
    eventually("it is stored", || files(directory.path()).len() == 1).await;
    let file = files(directory.path()).remove(0);
    let mut content = fs::read(&file).unwrap();
    content[middle] ^= 1;
    fs::write(&file, content).unwrap();
    let cut = proxy.curl(&[&origin.url("/page")]).await;
    assert!(cut.code != 0 && cut.stdout.len() < 1 << 20, "{}", cut.stderr);
    let again = proxy.curl(&[&origin.url("/page")]).await;
    assert_eq!((again.code, again.stdout.len(), origin.log.count("/page")), (0, 1 << 20, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_during_storing_leaves_no_servable_entry() {
    let site = |seen: &Seen| match seen.path().as_str() {
        "/slow" => {
            let piece = "x".repeat(300_000);
            Reply::drip(&[&*piece; 100], Duration::from_millis(100)).field("Cache-Control", "max-age=600")
        }
        _ => fresh("page"),
    };
    let origin = pages(site).await;
    let directory = tempfile::tempdir().unwrap();
    let yaml = with_cache(directory.path(), "");
    let proxy = Binary::serve(&yaml).await;
    let mut client = Client::open(proxy.address()).await;
    assert_eq!(with(&mut client, &origin, "GET", "/page", "").await.status(), 200);
    client
        .send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", origin.url("/slow"), origin.authority("a.localhost")))
        .await;
    eventually("some of it is written", || {
        let files = fs::read_dir(directory.path().join("unfinished")).unwrap().flatten();
        files.filter_map(|file| file.metadata().ok()).any(|data| data.len() > 500_000)
    })
    .await;
    drop(proxy.kill().await);
    assert_eq!((unfinished(directory.path()), files(directory.path()).len()), (1, 1));
    let proxy = Binary::serve(&yaml).await;
    eventually("the cache", || proxy.output().contains("the cache is ready")).await;
    assert_eq!((unfinished(directory.path()), files(directory.path()).len()), (0, 1));
    let mut client = Client::open(proxy.address()).await;
    assert!(is_hit(&with(&mut client, &origin, "GET", "/page", "").await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_leaving_during_storing_leaves_no_entry() {
    let origin = pages(|_| {
        let piece = "x".repeat(300_000);
        Reply::drip(&[&*piece; 100], Duration::from_millis(50)).field("Cache-Control", "max-age=600")
    })
    .await;
    let (proxy, directory) = caching("").await;
    let mut client = proxy.client().await;
    client
        .send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", origin.url("/slow"), origin.authority("a.localhost")))
        .await;
    eventually("it is being written", || unfinished(directory.path()) == 1).await;
    drop(client);
    eventually("it is removed", || unfinished(directory.path()) == 0).await;
    assert_eq!(files(directory.path()).len(), 0);
}

/// Building the index reads only names, sizes and times of the files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn index_of_100_000_pages_is_built_without_delaying_requests() {
    const PAGES: u32 = 100_000;
    let origin = pages(|_| fresh("page")).await;
    let directory = tempfile::tempdir().unwrap();
    (0..256).for_each(|folder| fs::create_dir(directory.path().join(format!("{folder:02x}"))).unwrap());
    for number in 0..PAGES {
        let name = format!("{:08x}{:024x}-0", number.wrapping_mul(2_654_435_761), number);
        fs::File::create(directory.path().join(&name[..2]).join(&name)).unwrap();
    }
    let yaml = with_cache(directory.path(), "admin: { address: '127.0.0.1:0' }");
    let proxy = Binary::serve(&yaml).await;
    let mut client = Client::open(proxy.address()).await;
    assert_eq!(with(&mut client, &origin, "GET", "/page", "").await.text(), "page");
    eventually("the cache", || proxy.output().contains("the cache is ready")).await;
    let said = proxy.output();
    let line = said.lines().find(|line| line.contains("the cache is ready")).unwrap();
    assert!(line.contains(&format!("entries={PAGES}")), "{line}");
    println!("{line}; resident at most {} KiB", proxy.peak_kib());
    with(&mut client, &origin, "GET", "/other", "").await;
    assert!(is_hit(&with(&mut client, &origin, "GET", "/other", "").await));
}

/// A limit on the file size stands for the full disk: it can be set and lifted from outside, without root.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_pages_are_served_without_being_stored() {
    let origin = pages(|_| Reply::pattern(1 << 20).field("Cache-Control", "max-age=600")).await;
    let directory = tempfile::tempdir().unwrap();
    let proxy = Binary::serve(&with_cache(directory.path(), "")).await;
    let pid = Pid::from_raw(i32::try_from(proxy.pid()).unwrap()).unwrap();
    let limit = |bytes| prlimit(Some(pid), Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    limit(Some(100_000));
    for number in 0..5 {
        let curl = proxy.curl(&[&origin.url("/page")]).await;
        assert_eq!((curl.code, curl.stdout.len(), origin.log.count("/page")), (0, 1 << 20, number + 1));
    }
    eventually("the complaint", || proxy.output().contains("answers cannot be stored")).await;
    assert_eq!(proxy.output().matches("answers cannot be stored").count(), 1, "{}", proxy.output());
    eventually("nothing is left", || unfinished(directory.path()) == 0).await;
    limit(None);
    proxy.curl(&[&origin.url("/page")]).await;
    assert!(proxy.curl(&[&origin.url("/page")]).await.head().field("cache-status").unwrap().contains("hit"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_evicts_least_recently_used_entries_beyond_its_size() {
    let origin = pages(|_| Reply::text("x".repeat(100_000)).field("Cache-Control", "max-age=600")).await;
    let directory = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(&format!("cache: {{ directory: '{}', size: 1MiB }}", directory.path().display())).await;
    let client = &mut proxy.client().await;
    let on_disk = || files(directory.path()).iter().map(|file| file.metadata().unwrap().blocks() * 512).sum::<u64>();
    for number in 0..30 {
        assert!(!is_hit(&with(client, &origin, "GET", &format!("/{number}"), "").await), "{number}");
        let first = with(client, &origin, "GET", "/0", "").await;
        assert!(is_hit(&first), "{number}: it is used all the time");
    }
    eventually("what is evicted is gone", || on_disk() <= 1 << 20).await;
    assert!(files(directory.path()).len() >= 8, "{}", files(directory.path()).len());
    assert!(!is_hit(&with(client, &origin, "GET", "/1", "").await));
    let large = pages(|_| Reply::text("x".repeat(200_000)).field("Cache-Control", "max-age=600")).await;
    for _ in 0..2 {
        assert!(!is_hit(&with(client, &large, "GET", "/large", "").await), "an eighth is the most");
    }
}

/// Uses a small file system of its own, if the machine allows a test to mount one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_evicts_least_recently_used_entries() {
    let origin = pages(|_| Reply::text("x".repeat(100_000)).field("Cache-Control", "max-age=600")).await;
    let directory = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size=1m none '{}'", directory.path().display());
    let Some(proxy) = Binary::serve_mounted(&mount, &with_cache(directory.path(), "")).await else {
        return eprintln!("skipped: no disk of one's own here");
    };
    let client = &mut Client::open(proxy.address()).await;
    for number in 0..30 {
        assert!(!is_hit(&with(client, &origin, "GET", &format!("/{number}"), "").await), "{number}");
        assert!(is_hit(&with(client, &origin, "GET", &format!("/{number}"), "").await), "{number}");
        assert!(is_hit(&with(client, &origin, "GET", "/0", "").await), "{number}: it is used all the time");
    }
    assert!(!is_hit(&with(client, &origin, "GET", "/1", "").await));
    assert!(!proxy.output().contains("cannot be stored"), "{}", proxy.output());
}
