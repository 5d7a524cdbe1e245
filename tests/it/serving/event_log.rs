//! The log of what happens, as its readers have it.

use crate::support::{Binary, Client, Origin, eventually};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use tokio::process::Command;

async fn get(proxy: &Binary, url: &str) -> u16 {
    Client::open(proxy.address()).await.get(url, url.split('/').nth(2).expect("an absolute URL")).await.status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logged_refusals_are_rate_limited() {
    let origin = Origin::site("User-agent: *\nDisallow: /private\n").await;
    let proxy = Binary::serve("").await;
    for number in 0..30 {
        assert_eq!(get(&proxy, &origin.url(&format!("/private/{number}"))).await, 403);
    }
    eventually("the log", || proxy.output().contains("/private/9")).await;
    let output = proxy.output();
    let told: Vec<_> = output.lines().filter(|line| line.contains("refusal=robots-disallowed")).collect();
    assert!((10..30).contains(&told.len()), "{output}");
    assert!(told[0].contains(" INFO ") && told[0].contains("line 2, `Disallow: /private`"), "{output}");
    assert!(told[0].contains("client=127.0.0.1") && told[0].contains(&origin.url("/private/0")), "{output}");
    assert!(!output.contains("politely::"), "modules are nobody's business: {output}");
    proxy.stop().await;
}

/// The standard error of `serve`, a file. `stream`: makes the value of JOURNAL_STREAM from its device and inode.
async fn journal(log: &str, stream: impl Fn(u64, u64) -> String) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (path, file) = (directory.path().join("politely.yaml"), directory.path().join("stderr"));
    let at = directory.path().display();
    let yaml = format!(
        "listen: [{{ address: '127.0.0.1:0' }}]\nadmin: {{ address: 'off' }}\nstore: {{ directory: '{at}/store' }}\n\
         intercept: {{ ca: {{ directory: '{at}/ca' }} }}\nlog: {{ {log} }}\n"
    );
    std::fs::write(&path, yaml).expect("it is writable");
    let stderr = std::fs::File::create(&file).expect("it is writable");
    let meta = stderr.metadata().expect("it is there");
    let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
    command.args(["serve", "--config"]).arg(&path).env("JOURNAL_STREAM", stream(meta.dev(), meta.ino()));
    let mut child = command.stdout(Stdio::null()).stderr(stderr).kill_on_drop(true).spawn().expect("it is built");
    let text = || std::fs::read_to_string(&file).unwrap_or_default();
    eventually("its start", || text().contains("have to trust")).await;
    let address = text().split("listening on ").nth(1).and_then(|rest| rest.split(['\n', '"']).next()?.parse().ok());
    let mut client = Client::open(address.expect("it says so")).await;
    assert_eq!(client.get("http://10.0.0.1/", "10.0.0.1").await.status(), 403);
    eventually("the refusal", || text().contains("egress-denied")).await;
    let pid = libc::pid_t::try_from(child.id().expect("it runs")).expect("a process id");
    // SAFETY: `kill` takes two integers; the child is not waited for yet, so the id is still its own.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    let _ = child.wait().await;
    text()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn journal_lines_have_severities_and_no_timestamps() {
    let text = journal("access: journal", |device, inode| format!("{device}:{inode}")).await;
    assert!(text.lines().all(|line| line.starts_with("<6>")), "{text}");
    assert!(text.contains("<6>listening on 127.0.0.1:") && text.contains("\n<6>id="), "{text}");
    let json = journal("access: journal, format: json", |device, inode| format!("{device}:{inode}")).await;
    for line in json.lines() {
        let object: serde_json::Value = serde_json::from_str(&line[3..]).expect("an object");
        assert!(object["time"].is_null() && (object["level"] == "info" || object["outcome"] == "refused"), "{line}");
    }
    // Models a service whose standard error was redirected into a file.
    let file = journal("access: journal", |device, inode| format!("{device}:{}", inode + 1)).await;
    assert!(file.lines().all(|line| line.contains("T") && !line.starts_with('<')), "{file}");
}
