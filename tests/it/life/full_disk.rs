//! A disk without room for the store: serving goes on, and what was learned meanwhile is written as soon as it can be.
//! A limit on the size of files stands for the full disk: it can be set and lifted from outside, without root.

use crate::support::{Binary, Client, Origin, Reply, eventually};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// How long files may get for the process.
fn limit(proxy: &Binary, bytes: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(proxy.pid()).expect("a process id")).expect("it is not 0");
    prlimit(Some(pid), Resource::Fsize, Rlimit { current: bytes, maximum: None }).expect("our own child");
}

async fn fetch(proxy: &Binary, origin: &Origin, hosts: std::ops::Range<usize>) {
    let mut client = Client::open(proxy.address()).await;
    for host in hosts {
        let url = origin.url_at(&format!("h{host}.localhost"), "/private");
        let authority = url.split('/').nth(2).expect("an absolute URL").to_owned();
        assert_eq!(client.get(&url, &authority).await.status(), 403);
    }
}

fn names(directory: &std::path::Path) -> Vec<String> {
    let files = std::fs::read_dir(directory.join("store")).expect("it is there").flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    // Except the pace file, the admin token and the instance name.
    names
        .filter(|name| !name.starts_with("politely.") && !["admin-token", "instance"].contains(&name.as_str()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_recovers_from_a_full_disk_without_losing_data() {
    let origin = super::origin(|_| Reply::text(super::KEEP_OUT)).await;
    let mut proxy = Binary::serve("").await;
    let mut next = 0;
    for round in 1..3 {
        fetch(&proxy, &origin, next..next + 10).await;
        limit(&proxy, Some(4096));
        fetch(&proxy, &origin, next + 10..next + 40).await;
        eventually("the warning", || proxy.output().contains("cannot be written")).await;
        assert!(!names(proxy.directory()).iter().any(|name| name.contains("broken")), "a full disk is no damage");
        limit(&proxy, None);
        eventually("the end of it", || proxy.output().contains("can be written again")).await;
        assert_eq!(proxy.output().matches("cannot be written").count(), 1, "{}", proxy.output());
        next += 40;
        proxy = Binary::serve_in(proxy.kill().await, "").await;
        assert!(!proxy.output().contains("was renamed to"), "{}", proxy.output());
        fetch(&proxy, &origin, 0..next).await;
        assert_eq!(origin.log.count("/robots.txt"), next, "round {round}: all of them were kept");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_unavailable_at_the_start_is_used_later() {
    let origin = super::origin(|_| Reply::text(super::KEEP_OUT)).await;
    let directory = Binary::serve("").await.stop().await;
    // Begun without room: a file where the directory should be.
    let store = directory.path().join("store");
    std::fs::remove_dir_all(&store).expect("it is there");
    std::fs::write(&store, "").expect("it is writable");
    let proxy = Binary::serve_in(directory, "").await;
    fetch(&proxy, &origin, 0..5).await;
    assert!(proxy.output().contains("kept only in memory"), "{}", proxy.output());
    std::fs::remove_file(&store).expect("it is there");
    eventually("the store", || proxy.output().contains("can be written again")).await;
    let proxy = Binary::serve_in(proxy.kill().await, "").await;
    fetch(&proxy, &origin, 0..5).await;
    assert_eq!(origin.log.count("/robots.txt"), 5);
}

/// Uses a small file system of its own, if the machine allows a test to mount one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_incomplete_for_lack_of_space_is_not_treated_as_damaged() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (disk, run) = (directory.path().display(), format!("{} run true", env!("CARGO_BIN_EXE_politely")));
    let script = format!(
        "mount -t tmpfs -o size=24k none {disk} || exit 77; {run}; echo more room >&2; mount -o remount,size=32m {disk}; {run}"
    );
    let store = format!("{disk}/store");
    let mut command = tokio::process::Command::new("unshare");
    command.args(["-rm", "sh", "-c", &script]).env("POLITELY_STORE__DIRECTORY", &store);
    command.env("HOME", directory.path()).env("STATE_DIRECTORY", directory.path().join("state"));
    let told = match command.output().await {
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    let Some((before, after)) = told.split_once("more room") else {
        return eprintln!("skipped: no disk of one's own here: {told}");
    };
    assert!(before.contains("nothing is shared"), "{told}");
    assert!(!after.contains("was renamed to") && !after.contains("cannot") && !after.contains("WARN"), "{told}");
}
