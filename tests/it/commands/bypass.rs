//! Warnings of `run` about processes that bypass the proxy while others use it.

use crate::support::binary::{open, politely_with};
use crate::support::{Origin, Reply, within};
use serde_json::Value;
use tokio::process::Command;

/// A site whose page `/silent` is never answered.
async fn site() -> Origin {
    Origin::http(|seen| if seen.path() == "/silent" { Reply::silence() } else { Reply::text("page") }).await
}

/// The messages of `run`, which the script also finds in the file `said`, and the report.
async fn run(flags: &[&str], script: &str) -> (String, Value) {
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 2> said", "sh", env!("CARGO_BIN_EXE_politely"), "run", "--report", "json=report"]);
    command.args(flags).args(["sh", "-c", script]).envs(open()).current_dir(home.path()).kill_on_drop(true);
    command.env("HOME", home.path()).env("XDG_CACHE_HOME", home.path()).env("STATE_DIRECTORY", home.path());
    assert!(within("its end", command.status()).await.expect("a shell").success());
    let read = |name| std::fs::read_to_string(home.path().join(name)).expect("it was written");
    (read("said"), serde_json::from_str(&read("report")).expect("JSON"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bypassing_child_causes_a_warning_although_others_use_the_proxy() {
    let origin = site().await;
    let [page, silent] = ["/page", "/silent"].map(|path| origin.url(path));
    for (flags, direct, cure) in [
        (&[][..], format!("curl -q -s --noproxy '*' {silent}"), "hint: if the program does not read HTTPS_PROXY"),
        // Models a program that starts another with a minimal environment.
        (&["-q"], format!("env -i PATH=\"$PATH\" curl -q -s {silent}"), "hint: it was started without HTTPS_PROXY"),
    ] {
        let script = format!(
            "curl -q -s -o page {page}; {direct} & direct=$!; until grep -q bypassed said; do sleep 0.1; done; kill $direct"
        );
        let (said, report) = run(flags, &script).await;
        let warning = format!(
            ") bypassed the proxy: it connected to {}, and robots.txt was not applied\n{cure}",
            origin.address()
        );
        assert!(said.contains("politely: warning: curl (") && said.contains(&warning), "{said}");
        assert!(said.contains("`--isolate`"), "{said}");
        assert_eq!(report["bypassed"]["address"], origin.address().to_string(), "{report}");
        assert_eq!(report["requests"]["forwarded"], 1, "{report}");
    }
}

/// Its connection to the proxy is open for seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_that_uses_the_proxy_causes_no_bypass_warning() {
    let origin = Origin::site("User-agent: *\nCrawl-delay: 1\n").await;
    let urls = ["/1", "/2", "/3"].map(|path| format!(" -o page {}", origin.url(path))).concat();
    let (said, report) = run(&[], &format!("curl -q -s{urls}")).await;
    assert!(!said.contains("warning") && report["bypassed"].is_null(), "{said}{report}");
    assert_eq!(report["requests"]["forwarded"], 3, "{report}");
}

/// The inner run applies robots.txt and reports bypasses itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_run_is_not_reported_as_a_bypass() {
    let origin = site().await;
    let politely = env!("CARGO_BIN_EXE_politely");
    let script = format!("{politely} run -q curl -q -s {}", origin.url("/page"));
    let (said, report) = run(&[], &script).await;
    assert!(!said.contains("bypassed") && report["bypassed"].is_null(), "{said}{report}");
    let within = ["run", "--isolate", politely, "run", "--isolate", "true"];
    let said = politely_with(&within, &open()).await.stderr;
    match said.contains("without --isolate the command only") {
        true => eprintln!("skipped: {said}"),
        false => assert!(said.contains("\nhint: an outer `politely run --isolate`"), "{said}"),
    }
}
