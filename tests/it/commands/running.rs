//! Messages of `run`: the progress line while requests are held, and the summary at the end.

use crate::support::binary::open;
use crate::support::binary::{Ended, politely_in_shell, politely_on_a_terminal, politely_with};
use crate::support::{Alpn, Binary, Origin, Proxy, Reply, within};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};

const SLOW: &str = "User-agent: *\nCrawl-delay: 3\nDisallow: /private\n";

/// A script that fetches the URLs one after the other with one curl.
fn fetch(urls: &[String]) -> String {
    format!("curl -q -s{}; ", urls.iter().map(|url| format!(" -o /dev/null {url}")).collect::<String>())
}

async fn run(flags: &[&str], script: &str) -> Ended {
    politely_with(&[&["run"], flags, &["sh", "-c", script]].concat(), &open()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_summary_lists_rules_waits_and_failures() {
    let origin = Origin::site(SLOW).await;
    // Nobody listens on the discard port here.
    let nobody = "http://a.localhost:9";
    let pages = ["/private", "/private/2", "/1", "/2"].map(|path| origin.url(path));
    let ended = run(&[], &fetch(&[&pages[..], &[format!("{nobody}/x")]].concat())).await;
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let robots = origin.url("/robots.txt");
    for part in [
        "politely: 5 requests, 2 forwarded",
        "2 robots-disallowed",
        &format!("  2 by {robots}:3 `Disallow: /private`\n    {}\n    {}\n", pages[0], pages[1]),
    ] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    // The first has to ask for its turn, which counts too where the machine has much to do.
    let held = ["  1 held for a crawl-delay, during ", "  2 held for a crawl-delay, during "];
    assert!(held.iter().any(|part| ended.stderr.contains(part)), "{}", ended.stderr);
    // Its robots.txt is unreachable, too.
    let unread = format!(
        "  1 by {nobody}/robots.txt `it could not be read (connecting to {nobody}: Connection refused (os error 111))`\n    {nobody}/x"
    );
    assert!(ended.stderr.contains(&unread), "{}", ended.stderr);
}

/// Other settings are passed on, for a `politely` that the command may start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn environment_of_the_command_contains_no_secrets_of_the_configuration() {
    let mut variables = open();
    variables.extend([
        ("POLITELY_EGRESS__UPSTREAM_PROXY", "http://a:s3cret@127.0.0.1:9"),
        ("POLITELY_EGRES__UPSTREAM_PROXY", "http://a:s3cret@127.0.0.1:9"),
        ("POLITELY_PASSWORD", "s3cret"),
        ("POLITELY_PACE__QUEUE", "7"),
    ]);
    for flags in [&[][..], &["--isolate"]] {
        let ended = politely_with(&[&["run", "-q"], flags, &["sh", "-c", "env >&2"]].concat(), &variables).await;
        if ended.stderr.contains("cannot isolate") {
            eprintln!("skipped: {}", ended.stderr);
            continue;
        }
        assert!(ended.stderr.contains("\nPOLITELY_PACE__QUEUE=7\n"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("s3cret"), "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fresh_run_ignores_stored_copies_whatever_the_site_answers() {
    let answer = Arc::new(AtomicU16::new(200));
    let status = answer.clone();
    let origin = Origin::http(move |seen| match (seen.path().as_str(), status.load(Ordering::Relaxed)) {
        ("/robots.txt", 200) => Reply::text(""),
        ("/robots.txt", 302) => Reply::status(302).field("Location", "http://192.0.2.1:9/robots.txt"),
        ("/robots.txt", status) => Reply::status(status),
        _ => Reply::text("page"),
    })
    .await;
    let home = tempfile::tempdir().unwrap();
    let kept = ["XDG_CACHE_HOME", "STATE_DIRECTORY"].map(|name| (name, home.path().to_str().unwrap()));
    let (variables, url) = ([&open()[..], &kept].concat(), origin.url("/x"));
    let fetch = ["curl", "-q", "-s", "-o", "/dev/null", "-w", "%{http_code}", &url];
    let run = async |flags: &[&str]| politely_with(&[&["run", "-q"], flags, &fetch].concat(), &variables).await.stdout;
    assert_eq!(run(&[]).await, "200");
    for status in [500, 302] {
        answer.store(status, Ordering::Relaxed);
        assert_eq!(run(&["--fresh"]).await, "503", "{status}");
        assert_eq!(run(&[]).await, "200", "the copy is kept for others: {status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_lists_urls_refused_for_max_wait_with_a_hint() {
    let origin = Origin::site(SLOW).await;
    let pages = ["/1", "/2"].map(|path| origin.url(path));
    let ended = run(&["--max-wait", "1s"], &fetch(&pages)).await;
    assert!(ended.stderr.contains(&format!("    {}", pages[1])), "{}", ended.stderr);
    let hint = ended.stderr.split_once("hint: `--max-wait ").and_then(|(_, hint)| hint.split_once("s` or more"));
    // The gap is three seconds, however long the first took.
    assert!(hint.is_some_and(|(seconds, _)| ["2", "3"].contains(&seconds)), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_lists_rejected_certificates_with_a_hint() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let script =
        format!("curl -q -s --cacert /etc/hostname {0}; curl -q -s --cacert /dev/null {0}; exit 0", origin.url("/x"));
    let own = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x -keyout /dev/null -out $HOME/own.pem 2>/dev/null; ";
    let script = format!("{own}{}", script.replace("/etc/hostname", "$HOME/own.pem"));
    let ended = run(&[], &script).await;
    let part = format!("the certificate for {} was rejected 2 times: it does not trust the authority", origin.url(""));
    assert!(ended.stderr.contains(&part) && ended.stderr.contains("--cacert"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("nothing came through"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_json_contains_the_summary() {
    let origin = Origin::site(SLOW).await;
    let script = fetch(&["/private", "/1", "/2"].map(|path| origin.url(path))) + "exit 7";
    let ended = run(&["--report", "json"], &script).await;
    let told: Value =
        serde_json::from_str(ended.stderr.trim()).unwrap_or_else(|error| panic!("{error}: {}", ended.stderr));
    assert_eq!((ended.code, &told["exit_code"], &told["program"]), (7, &7.into(), &"sh".into()));
    let requests = &told["requests"];
    assert_eq!((&requests["total"], &requests["forwarded"]), (&3.into(), &2.into()), "{told}");
    assert_eq!(requests["refused"]["robots-disallowed"], 1, "{told}");
    // The first has to ask for its turn, which counts too where the machine has much to do.
    assert!([Some(1), Some(2)].contains(&told["held"]["requests"].as_u64()), "{told}");
    let rule = &told["rules"][0];
    let file = origin.url("/robots.txt");
    assert_eq!((&rule["file"], &rule["line"], &rule["rule"]), (&file.into(), &3.into(), &"Disallow: /private".into()));

    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("report.json");
    let ended = run(&["-q", "--report", &format!("json={}", file.display())], &script).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (7, ""));
    let told: Value = serde_json::from_slice(&std::fs::read(&file).expect("it was written")).expect("JSON");
    assert_eq!(told["exit_code"], 7);
    for wrong in ["text", "json=/no/such/directory/x"] {
        assert_eq!(run(&["--report", wrong], "true").await.code, 2, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_to_an_open_descriptor_is_appended_after_the_commands_output() {
    for (to, redirected) in [
        ("/dev/stdout", ">"),
        ("/dev/stdout", ">>"),
        ("//dev/stdout", ">"),
        ("/proc/self/fd/1", ">"),
        ("$HOME/link", ">"),
        ("$HOME/out", ">"),
        ("/dev/fd/3", "3>"),
    ] {
        let script = format!(
            "echo before > \"$HOME/out\"; ln -s /dev/stdout \"$HOME/link\"; \
             \"$0\" run -q --report \"json={to}\" sh -c \"echo {}\" {redirected} \"$HOME/out\"; cat \"$HOME/out\"",
            if to == "/dev/fd/3" { "command >&3" } else { "command" }
        );
        let ended = politely_in_shell(&script, &[]).await;
        let before = if redirected == ">>" { "before\n" } else { "" };
        assert!(ended.stdout.starts_with(&format!("{before}command\n{{\n")), "{to} {redirected}: {ended:?}");
    }
}

/// A crawl may take days, so the error must not come at its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unwritable_report_is_refused_before_the_command_runs() {
    for to in ["/dev/fd/3", "/dev/stdin", "$HOME/in", "$HOME"] {
        let script = format!(
            "echo before > \"$HOME/in\"; \"$0\" run -q --report \"json={to}\" sh -c 'echo ran' 3< \"$HOME/in\" < \"$HOME/in\"; \
             echo $?; cat \"$HOME/in\""
        );
        let ended = politely_in_shell(&script, &[]).await;
        assert_eq!(ended.stdout, "2\nbefore\n", "{to}: {ended:?}");
        assert!(ended.stderr.contains("error: cannot write the report: "), "{to}: {ended:?}");
    }
}

/// curl prefers a proxy in its own file to one in a variable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curlrc_of_the_user_does_not_bypass_the_proxy() {
    let origin = Origin::site(SLOW).await;
    let home = tempfile::tempdir().expect("a temporary directory");
    for line in ["proxy = http://127.0.0.1:9", "noproxy = *"] {
        std::fs::write(home.path().join(".curlrc"), format!("{line}\nuser-agent = x\n")).expect("it is writable");
        let variables = [&open()[..], &[("CURL_HOME", home.path().to_str().expect("UTF-8"))]].concat();
        let script = format!("curl -s -o /dev/null -w '%{{http_code}}' {}", origin.url("/private"));
        let ended = politely_with(&["run", "sh", "-c", &script], &variables).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (0, "403"), "{line}: {}", ended.stderr);
    }
}

/// The command had no time to make a request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_ended_by_a_signal_is_not_reported_as_a_bypass() {
    for (script, code) in [
        ("kill -TERM $PPID; exec sleep 60", 143),
        ("kill -INT $$", 130),
        // Once `sleep` runs: a shell that has just forked it, and it itself before it is `sleep`, pass SIGINT over.
        ("(sleep 0.5; kill -INT $PPID) & sleep 60", 130),
        ("ulimit -c 0; kill -QUIT $PPID; sleep 60", 131),
        ("exit 129", 129),
    ] {
        let ended = run(&[], script).await;
        assert_eq!(ended.code, code, "{script}: {}", ended.stderr);
        assert!(ended.stderr.contains("ended before any request came through"), "{script}: {}", ended.stderr);
        assert!(!ended.stderr.contains("warning") && !ended.stderr.contains("hint"), "{script}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_that_continues_after_a_signal_is_not_reported_as_ended() {
    for signal in ["HUP", "INT", "TERM"] {
        // `run` is the grandparent of the script.
        let run_itself = "$(cut -d ' ' -f 4 /proc/$PPID/stat)";
        let wait = "for i in $(seq 100); do test -n \"$n\" || sleep 0.1; done; sleep 0.3";
        let script = format!("trap 'n=7' {signal}; kill -{signal} {run_itself}; {wait}; exit $((n+1))");
        let ended = run(&[], &script).await;
        let said = &ended.stderr;
        assert_eq!(ended.code, 8, "{signal}: {said}");
        assert!(!said.contains("it was ended") && said.contains("nothing came through"), "{signal}: {said}");
    }
}

/// The environment may name a proxy, and whoever set it should know that it is not used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unused_proxy_causes_a_warning() {
    let variable = ("HTTPS_PROXY", "http://proxy.example:3128");
    for (flags, variables, is_told) in [
        (&[][..], &[variable][..], true),
        (&["-q"], &[variable], true),
        (&["-q", "--report", "json"], &[variable], false),
        (&[], &[("HTTPS_PROXY", "")], false),
        (&[], &[variable, ("POLITELY_EGRESS__UPSTREAM_PROXY", "http://127.0.0.1:1")], false),
    ] {
        let ended = politely_with(&[&["run"], flags, &["true"]].concat(), variables).await;
        let told = ended.stderr.contains("the proxy in HTTPS_PROXY is not used");
        assert_eq!((ended.code, told), (0, is_told), "{flags:?} {variables:?}: {}", ended.stderr);
    }
}

/// No `--max-wait` would help.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_shows_the_visit_time_of_a_closed_site() {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let opens = (since_epoch.as_secs() / 3600 + 8) % 24;
    let hours = format!("{opens:02}00-{opens:02}30");
    let origin = Origin::site(&format!("User-agent: *\nVisit-time: {hours}\n")).await;
    let variables = [&open()[..], &[("POLITELY_ROBOTS__VISIT_TIME", "enforce")]].concat();
    let ended = politely_with(&["run", "sh", "-c", &fetch(&[origin.url("/1")])], &variables).await;
    let told = format!("  1 by {} `Visit-time: {hours} (UTC)`", origin.url("/robots.txt"));
    assert!(ended.stderr.contains(&told) && !ended.stderr.contains("--max-wait"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_line_does_not_mix_with_the_progress_line() {
    let origin = Origin::site("User-agent: *\nCrawl-delay: 6\n").await;
    let [first, second] = ["/1", "/2"].map(|path| fetch(&[origin.url(path)]));
    let foreign = "curl -q -s --noproxy '' --proxy socks4://${http_proxy#http://} http://a.localhost/";
    let script = format!("{first} ({second}) & sleep 4; {foreign}; wait");
    let shown =
        politely_on_a_terminal(&["run", "-v", "sh", "-c", &script.replace('\'', "'\\''")], &open()).await.stdout;
    let line = shown.lines().find(|line| line.contains("SOCKS4 is not served")).unwrap_or_else(|| panic!("{shown}"));
    let begun = line.trim_end().rsplit('\r').next().expect("one at least");
    assert!(shown.contains("1 page every") && !begun.contains("1 page every"), "{shown}");
}

/// It is shown on terminals, which can rewrite it, and with `-v`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_line_shows_host_delay_and_wait() {
    let origin = Origin::site("User-agent: *\nCrawl-delay: 5\n").await;
    let script = fetch(&["/1", "/2"].map(|path| origin.url(path)));
    let host = origin.url("").replace("http://", "");
    let line = format!("politely: 1 page every 5 s at {host}, next in ");
    let (environment, plain, silent) = (open(), ["run", "sh", "-c", &script], ["run", "-q", "sh", "-c", &script]);
    let (shown, quiet, piped, verbose) = tokio::join!(
        politely_on_a_terminal(&plain, &environment),
        politely_on_a_terminal(&silent, &environment),
        run(&[], &script),
        run(&["-v"], &script),
    );
    let shown_lines: Vec<_> = shown.stdout.split("\r\u{1b}[K").filter(|part| part.starts_with(&line)).collect();
    assert!(
        !shown_lines.is_empty() && shown_lines.iter().all(|line| line.ends_with(" s, 1 done\r")),
        "{}",
        shown.stdout
    );
    assert!(shown.stdout.contains("\r\u{1b}[Kpolitely: 2 requests"), "the line is gone at the end: {}", shown.stdout);
    assert_eq!(quiet.stdout, "");
    assert!(!piped.stderr.contains("1 page every") && !piped.stderr.contains('\u{1b}'), "{}", piped.stderr);
    assert!(verbose.stderr.contains(&line) && !verbose.stderr.contains('\u{1b}'), "{}", verbose.stderr);
}

/// The command shares the terminal, and its output must start on an empty line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_line_is_cleared_before_the_answer_is_delivered() {
    let pages = |path: &str| Reply::text(path).after(Duration::from_secs(2));
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nCrawl-delay: 5\n"),
        path => pages(path),
    })
    .await;
    let [first, second] = ["/1", "/2"].map(|path| origin.url(path));
    let script = format!("curl -q -s -w \"\\n\" {first} {second}");
    let shown = politely_on_a_terminal(&["run", "sh", "-c", &script], &open()).await.stdout;
    assert!(shown.contains("politely: 1 page every 5 s"), "{shown:?}");
    let before = shown.split("/2\r\n").next().expect("one at least");
    assert!(before.ends_with("\r\u{1b}[K"), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_line_fits_80_columns() {
    let origin = Origin::site("User-agent: *\nCrawl-delay: 30\n").await;
    let [first, others @ ..] =
        ["/1", "/2", "/3", "/4"].map(|path| format!("curl -q -s -m 4 -o /dev/null {}", origin.url(path)));
    let script = format!("{first}; {} wait", others.map(|other| format!("({other}) &")).join(" "));
    let shown = politely_on_a_terminal(&["run", "sh", "-c", &script], &open()).await.stdout;
    let lines: Vec<_> = shown.split("\r\u{1b}[K").filter(|part| part.starts_with("politely: about ")).collect();
    let host = origin.url("").replace("http://", "");
    assert!(!lines.is_empty(), "{shown}");
    for line in lines {
        let is_whole = line.starts_with("politely: about 9") || line.starts_with("politely: about 8");
        assert!(is_whole && line.contains(&format!(" s for 3 waiting at {host}")) && line.len() < 80, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_reports_clients_that_left_the_queue_with_a_hint() {
    let origin = Origin::site("User-agent: *\nCrawl-delay: 30\n").await;
    let first = fetch(&[origin.url("/1")]);
    let impatient = format!("curl -q -s -m 2 -o /dev/null {}", origin.url("/2"));
    // In the middle of a run, and together with it.
    for rest in [format!("{impatient}; sleep 1"), format!("exec {impatient}")] {
        let script = first.clone() + &rest;
        let (text, json) = tokio::join!(run(&[], &script), run(&["--report", "json"], &script));
        // The two seconds are curl's, not those in the queue.
        let told = [(1, 1), (2, 1), (3, 1), (3, 2)].map(|(after, most)| {
            format!(
                "\n  1 request given up by the client, after {after} s in the queue\n  hint: give the client a longer \
                 timeout; or pass `--max-wait {most}s`"
            )
        });
        let is_told = told.iter().any(|told| text.stderr.contains(told));
        assert!(is_told && !text.stderr.contains("draining"), "{rest}: {}", text.stderr);
        let told: Value = serde_json::from_str(json.stderr.trim()).expect("JSON");
        assert_eq!((&told["held"]["given_up"], &told["requests"]["client_gone"]), (&1.into(), &1.into()), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_waits_are_reported_as_elapsed_time() {
    let origin = Origin::site("User-agent: *\nCrawl-delay: 4\n").await;
    let others = ["/2", "/3"].map(|path| format!("({}) &", fetch(&[origin.url(path)])));
    let ended = run(&["--report", "json"], &format!("{} {} wait", fetch(&[origin.url("/1")]), others.join(" "))).await;
    let told: Value = serde_json::from_str(ended.stderr.trim()).expect("JSON");
    let [held, took] = [&told["held"]["seconds"], &told["seconds"]].map(|time| time.as_f64().expect("a number"));
    // Each alone: 4 and 8 s; or 4, 4 and 8, where the first had to wait as well. Less, as they may have begun late.
    assert!(told["held"]["requests"].as_u64() >= Some(2) && held > 5.0 && held < took, "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_reports_missing_and_unknown_purposes() {
    let origin = Origin::site("User-agent: *\nContent-Usage: train-ai=n\nAllow: /\n").await;
    let script = fetch(&[origin.url("/1")]);
    let missing = "\n  1 site stated usage preferences, which were not applied, as no purpose is declared\n  hint: `--purpose ai-train`";
    let unknown = "\n  the purpose `ai-trian` is unknown: ";
    for (flags, is_missing, is_unknown) in
        [(&[][..], true, false), (&["--purpose", "ai-trian"], false, true), (&["--purpose", "ai-train"], false, false)]
    {
        let silent = [flags, &["-q", "--report", "json"]].concat();
        let (text, json) = tokio::join!(run(flags, &script), run(&silent, &script));
        let said = [missing, unknown].map(|part| text.stderr.contains(part));
        assert_eq!(said, [is_missing, is_unknown], "{}", text.stderr);
        let told: Value = serde_json::from_str(json.stderr.trim()).expect("JSON");
        let purpose = &told["purpose"];
        assert_eq!(purpose["missing"], if is_missing { json!([origin.url("")]) } else { json!([]) }, "{told}");
        assert_eq!(purpose["unknown"], if is_unknown { json!(["ai-trian"]) } else { json!([]) }, "{told}");
        assert_eq!(purpose["declared"].as_array().map(Vec::len), Some(flags.len() / 2), "{told}");
    }
    let none = Origin::site("User-agent: *\nAllow: /\n").await;
    let ended = run(&[], &fetch(&[none.url("/1")])).await;
    assert!(!ended.stderr.contains("purpose"), "{}", ended.stderr);
}

/// The failure may be over, and a user is waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_robots_fetch_of_an_earlier_run_is_retried_at_once() {
    let origin = Origin::tls_site(Alpn::Both, "User-agent: *\nDisallow: /private\n").await;
    let cache = tempfile::tempdir().expect("a temporary directory");
    let kept = ("XDG_CACHE_HOME", cache.path().to_str().expect("UTF-8"));
    let url = origin.url("/open");
    let command = ["run", "curl", "-q", "-sS", "-o", "/dev/null", "-w", "%{http_code}", &url];
    let all = [&open()[..], &[kept]].concat();
    // The origin's authority is not known.
    let without: Vec<_> = all.iter().filter(|(name, _)| !name.ends_with("CA_FILE")).copied().collect();
    assert_eq!(politely_with(&command, &without).await.stdout, "503");
    let then = politely_with(&command, &all).await;
    assert_eq!(then.stdout, "200", "{}", then.stderr);
    assert_eq!(origin.log.pages(), ["/open"]);
}

/// For example, cron may start a run for one page each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_with_one_request_renews_a_stale_robots_txt() {
    let is_closed = Arc::new(AtomicBool::new(false));
    let closed = is_closed.clone();
    let robots = move || if closed.load(Ordering::Relaxed) { "User-agent: *\nDisallow: /\n" } else { "" };
    let origin = Origin::http(move |_| Reply::text(robots())).await;
    let home = tempfile::tempdir().expect("a temporary directory");
    let state = home.path().join("state");
    let short = [("POLITELY_ROBOTS__MIN_TTL", "1s"), ("POLITELY_ROBOTS__MAX_TTL", "1s")];
    let kept = [("STATE_DIRECTORY", state.to_str().expect("UTF-8"))];
    let (all, url) = ([&open()[..], &short, &kept].concat(), origin.url("/open"));
    let command = ["run", "curl", "-q", "-sS", "-o", "/dev/null", "-w", "%{http_code}", &url];
    assert_eq!(politely_with(&command, &all).await.stdout, "200");
    is_closed.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(politely_with(&command, &all).await.stdout, "403");
    assert_eq!(origin.log.count("/robots.txt"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fresh_run_fetches_robots_txt_again() {
    let origin = Origin::site("User-agent: *\nDisallow: /private\n").await;
    let home = tempfile::tempdir().expect("a temporary directory");
    let state = home.path().join("state");
    let kept = [("STATE_DIRECTORY", state.to_str().expect("UTF-8"))];
    let url = origin.url("/open");
    for (flags, fetched) in [(&[][..], 1), (&[], 1), (&["--fresh"], 2), (&["--fresh"], 3), (&[], 3)] {
        let command = [&["run"], flags, &["curl", "-q", "-sS", "-o", "/dev/null", &url]].concat();
        let ended = politely_with(&command, &[&open()[..], &kept].concat()).await;
        assert_eq!((ended.code, origin.log.count("/robots.txt")), (0, fetched), "{flags:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("WARN"), "{}", ended.stderr);
    }
}

/// The machine has neither an authority nor a configuration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ca_env_from_fetches_the_certificate_from_a_running_proxy() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("admin: { address: '127.0.0.1:0' }").await;
    let state = tempfile::tempdir().expect("a temporary directory");
    let here = [("STATE_DIRECTORY", state.path().to_str().expect("UTF-8"))];
    let from = format!("http://{}", proxy.admin_address());
    let env = politely_with(&["ca", "env", "--from", &from], &here).await;
    assert_eq!(env.code, 0, "{}", env.stderr);
    let script = format!("{}\ncurl -q -sS --noproxy '' {}", env.stdout, origin.url("/x"));
    let output = tokio::process::Command::new("sh").arg("-c").arg(&script).output().await.expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "page /x", "{}{}", String::from_utf8_lossy(&output.stderr), env.stdout);
    assert!(!state.path().join("ca").exists(), "none was made here");
    let resolved = format!("http://localhost:{}", proxy.admin_address().port());
    for right in [resolved, format!("http://{}", proxy.address())] {
        assert_eq!(politely_with(&["ca", "env", "--from", &right], &here).await.code, 0, "{right}");
    }
    for wrong in ["http://127.0.0.1:9", "nowhere"] {
        let ended = politely_with(&["ca", "env", "--from", wrong], &here).await;
        assert!(ended.code == 2 && ended.stdout.is_empty(), "{wrong}: {} {}", ended.code, ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ca_env_from_does_not_send_our_token_to_another_proxy() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [ours, theirs] = ["ours", "theirs"].map(|name| {
        let file = directory.path().join(name);
        std::fs::write(&file, name).expect("it is writable");
        file.to_str().expect("UTF-8").to_owned()
    });
    let other = Origin::http(|_| Reply::status(404).then_close()).await;
    let env = ["ca", "env", "--from", &format!("http://{}", other.address())];
    let shown = || -> Vec<_> {
        let seen = other.log.all();
        seen.iter().filter_map(|seen| seen.field("authorization").map(str::to_owned)).collect()
    };
    let variables = [("POLITELY_ADMIN__TOKEN_FILE", ours.as_str())];
    assert_eq!(politely_with(&env, &variables).await.code, 2);
    assert!(!other.log.all().is_empty() && shown().is_empty(), "{:?}", shown());
    politely_with(&[&env[..], &["--token-file", &theirs]].concat(), &variables).await;
    assert!(!shown().is_empty() && shown().iter().all(|token| token == "Bearer theirs"), "{:?}", shown());
}

/// The user's settings for wget and apt may contain passwords.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_copied_by_ca_env_are_readable_only_by_the_user() {
    let proxy = Proxy::start("admin: { address: '127.0.0.1:0' }").await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (own, state) = (directory.path().join("own"), directory.path().join("state"));
    std::fs::write(&own, "password = secret").expect("it is writable");
    let [own, state] = [&own, &state].map(|path| path.to_str().expect("UTF-8"));
    let variables = [("WGETRC", own), ("APT_CONFIG", own), ("STATE_DIRECTORY", state)];
    let from = format!("http://{}", proxy.admin_address());
    for from in [&[][..], &["--from", &from]] {
        let env = politely_with(&[&["ca", "env"], from].concat(), &variables).await;
        for name in ["WGETRC", "APT_CONFIG"] {
            let line = env.stdout.lines().find_map(|line| line.strip_prefix(&format!("export {name}='")));
            let file = Path::new(line.expect("it is set").trim_end_matches('\''));
            let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
            assert!(std::fs::read_to_string(file).expect("it is ours").starts_with("password = secret"));
            assert_eq!((mode(file), mode(file.parent().expect("absolute"))), (0o600, 0o700), "{}", file.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_uses_the_crawler_of_the_last_run() {
    let robots = "User-agent: ExampleBot\nDisallow: /private\n";
    let origin = Origin::site(robots).await;
    let state = tempfile::tempdir().expect("a temporary directory");
    let file = state.path().join("robots.txt");
    std::fs::write(&file, robots).expect("it is writable");
    let (state, file) = (state.path().to_str().expect("UTF-8"), file.to_str().expect("UTF-8"));
    let variables = [&open()[..], &[("STATE_DIRECTORY", state)]].concat();
    let explain = ["explain", "https://a.example/private/x", "--robots", file];
    let before = politely_with(&explain, &variables).await;
    assert!(before.code == 0 && !before.stdout.contains("last `politely run`"), "{}", before.stdout);
    let ended =
        politely_with(&["run", "curl", "-qs", "-A", "ExampleBot/1.0", &origin.url("/private/x")], &variables).await;
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let after = politely_with(&explain, &variables).await;
    assert!(after.code == 1 && after.stdout.contains("the crawler of the last `politely run`"), "{}", after.stdout);
    let other = politely_with(&[&explain[..], &["--product-token", "OtherBot"]].concat(), &variables).await;
    assert!(other.code == 0 && !other.stdout.contains("last `politely run`"), "{}", other.stdout);
}

/// The name of the command, `sh`, does not tell what it starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_lends_trust_to_browsers_started_by_a_script() {
    let tools = tempfile::tempdir().expect("a temporary directory");
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").expect("it is set"));
    let home = tools.path().to_str().expect("UTF-8");
    // Written by another process: while a child of ours had them open, they could not be run.
    let write = "cd \"$0\" && printf '#!/bin/sh\necho \"$1\" >> \"$HOME/calls\"; test \"$1\" != -L\n' | tee certutil > chromium && \
                 chmod +x certutil chromium";
    let written = tokio::process::Command::new("sh").arg("-c").arg(write).arg(tools.path()).status().await;
    assert!(written.expect("a shell").success());
    let variables = [("PATH", path.as_str()), ("HOME", home)];
    let ended = politely_with(&["run", "-q", "sh", "-c", "tr '\n' ' ' < \"$HOME/calls\""], &variables).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "-N -L -A "), "{}", ended.stderr);
}

/// Ctrl-C reaches the whole process group, at any moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_run_removes_trust_from_browsers() {
    for (step, code) in [("-A", 130), ("-D", 0)] {
        let tools = tempfile::tempdir().expect("a temporary directory");
        // Written by another process: while a child of ours had them open, they could not be run.
        let script = format!(
            "cd {}; cat > certutil <<'END'
#!/bin/sh
case $1 in
    -N) touch .pki/nssdb/cert9.db ;;
    -A) echo \"$5 C,,\" > lent ;;
esac
test $1 != {step} || kill -INT -$(cut -d ' ' -f 5 /proc/$PPID/stat)
case $1 in
    -D) rm lent ;;
    -L) test $2 != -n && cat lent ;;
    -K) false ;;
esac
END
            cp certutil chromium; chmod +x certutil chromium
            exec env --default-signal=INT HOME=\"$PWD\" PATH=\"$PWD:$PATH\" setsid -w \"$0\" \"$@\"",
            tools.path().display()
        );
        let ended = politely_in_shell(&script, &["run", "-q", "test", "-e", "lent"]).await;
        assert_eq!((ended.code, tools.path().join("lent").exists()), (code, false), "{step}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_reports_a_run_with_only_tunnels() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let variables = [&open()[..], &[("POLITELY_INTERCEPT__HOSTS", "{\"a.localhost\": tunnel}")]].concat();
    let url = origin.url("/x");
    let ended = politely_with(&["run", "curl", "-q", "-sSk", &url], &variables).await;
    assert_eq!(ended.stdout, "page /x", "{}", ended.stderr);
    assert!(ended.stderr.contains("only tunnels") && !ended.stderr.contains("bypassed"), "{}", ended.stderr);
}

/// Without a signal, processes that the command left behind may finish.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signal_after_the_commands_end_ends_the_run() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let begun = directory.path().to_owned();
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        path => {
            std::fs::write(begun.join(&path[1..]), "").expect("it is writable");
            Reply::silence()
        }
    })
    .await;
    let variables = [&open()[..], &[("POLITELY_LIMITS__DRAIN_TIMEOUT", "1h")]].concat();
    for signal in ["INT", "TERM"] {
        // TERM is passed on until the command has ended.
        let script = format!(
            "trap '' TERM; curl -q -s {} > /dev/null 2>&1 & until test -e {}/{signal}; do sleep 0.05; done; \
             while kill -{signal} $PPID; do sleep 0.1; done > /dev/null 2>&1 & exit 3",
            origin.url(&format!("/{signal}")),
            directory.path().display(),
        );
        let ended = politely_with(&["run", "sh", "-c", &script], &variables).await;
        assert!(ended.code == 3 && ended.stderr.contains("politely: "), "{signal}: {}: {}", ended.code, ended.stderr);
    }
}

/// The program or another tool may have set them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_starts_with_invalid_proxy_variables() {
    if tokio::process::Command::new("node").arg("--version").output().await.is_err() {
        return eprintln!("skipped: there is no Node.js here");
    }
    for proxy in ["no URL", "proxy.example:3128", "socks5h://127.0.0.1:1", "http://127.0.0.1"] {
        let script = format!("https_proxy='{proxy}' node -e 'console.log(1)'");
        let ended = politely_with(&["run", "sh", "-c", &script], &[]).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (0, "1\n"), "{proxy}: {}", ended.stderr);
    }
}

/// With an agent of its own, without one, and with the proxy requested explicitly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_uses_the_proxy_with_any_http_agent() {
    if tokio::process::Command::new("node").arg("--version").output().await.is_err() {
        return eprintln!("skipped: there is no Node.js here");
    }
    let origin = Origin::site("User-agent: *\nDisallow: /private\n").await;
    let script = "
        const http = require('http');
        const { hostname, port } = new URL(process.env.http_proxy);
        const get = (url, options) => new Promise((done) => http.get(url, options, (response) => {
            response.resume().on('end', () => done(`${response.statusCode} ${'via' in response.headers}`));
        }));
        const [own, none, itself] = ['/own', '/none', '/itself'].map((path) => process.argv[1] + path);
        Promise.all([
            get(own, { agent: new http.Agent({ keepAlive: true }) }), get(none, { agent: false }),
            get(`http://${hostname}:${port}`, { path: itself, agent: new http.Agent() }),
        ]).then((said) => { console.log(said.join()); process.exit(); });";
    let ended = politely_with(&["run", "node", "-e", script, &origin.url("")], &open()).await;
    assert_eq!(ended.stdout, "200 true,200 true,200 true\n", "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ca_env_and_run_set_the_same_variables() {
    let env = politely_with(&["ca", "env"], &[]).await;
    let exported =
        env.stdout.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('=')).map(|(name, _)| name);
    let exported: BTreeSet<_> = exported.collect();
    let script = "env | grep -aE '^[A-Za-z0-9_]+=' | cut -d= -f1";
    let bare = tokio::process::Command::new("sh").arg("-c").arg(script).output().await.expect("a shell");
    let bare = String::from_utf8_lossy(&bare.stdout).into_owned();
    let known: BTreeSet<_> = bare
        .lines()
        .chain(["HOME", "STATE_DIRECTORY", "XDG_CACHE_HOME", "NO_COLOR", "_", "PWD", "SHLVL", "OLDPWD"])
        .collect();
    let ended = politely_with(&["run", "-q", "sh", "-c", script], &[]).await;
    let set: BTreeSet<_> = ended.stdout.lines().filter(|name| !known.contains(name)).collect();
    let exported: BTreeSet<_> = exported.into_iter().filter(|name| !known.contains(name)).collect();
    assert_eq!(set, exported);
    assert!(exported.contains("NODE_OPTIONS") && exported.contains("WGETRC") && exported.contains("https_proxy"));
}

/// Most uses need no configuration file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_of_run_override_the_environment() {
    let origin = Origin::site("User-agent: *\nContent-Usage: train-ai=n\nAllow: /\n").await;
    let home = tempfile::tempdir().expect("a temporary directory");
    let kept = home.path().join("kept");
    let flags = ["--contact", "https://a.example/bot", "--purpose", "ai-train", "--min-delay", "1s", "--evidence"];
    let flags = [&flags[..], &[kept.to_str().expect("plain"), "--set", "log.level=error"]].concat();
    let ended = run(&flags, &fetch(&[origin.url("/1")])).await;
    assert!(ended.stderr.contains("politely: 1 request, 0 forwarded, 1 usage-disallowed"), "{}", ended.stderr);
    let fetch = origin.log.one("/robots.txt");
    assert!(fetch.field("user-agent").is_some_and(|agent| agent.contains("https://a.example/bot")), "{fetch:?}");
    assert!(std::fs::read_dir(&kept).expect("it was made").count() > 0);
    let ended = run(&["--min-delay", "10"], "true").await;
    assert!(
        ended.stderr.starts_with("error: the duration `10` lacks its unit\n  --> --min-delay\n"),
        "{}",
        ended.stderr
    );
    let ended = run(&["--set", "nothing"], "true").await;
    assert!(ended.stderr.contains("write `KEY=VALUE`, such as `pace.min_delay=2s`"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_counts_requests_still_held_when_the_run_was_ended() {
    let origin = Origin::site("User-agent: *\nCrawl-delay: 90\n").await;
    let [first, others @ ..] = ["/1", "/2", "/3", "/4"].map(|path| fetch(&[origin.url(path)]));
    let script = format!("{first} {} wait", others.map(|other| format!("({other}) &")).join(" "));
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_politely"));
    command.args(["run", "-v", "sh", "-c", &script]).envs(open()).env("HOME", home.path());
    command.env("XDG_CACHE_HOME", home.path()).env("STATE_DIRECTORY", home.path()).stderr(std::process::Stdio::piped());
    let mut run = command.kill_on_drop(true).spawn().expect("it is built");
    let mut lines = BufReader::new(run.stderr.take().expect("piped")).lines();
    let mut until = async |part: &str| {
        let find = async {
            loop {
                let line = lines.next_line().await.expect("text").unwrap_or_else(|| panic!("no {part}"));
                if line.contains(part) {
                    return;
                }
            }
        };
        within(part, find).await;
    };
    until(" for 3 waiting at ").await;
    let pid = run.id().expect("not waited for yet").cast_signed();
    // SAFETY: two numbers; the child is not waited for yet.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    until("  3 requests still waiting when the command was ended").await;
    within("its end", run.wait()).await.expect("our child");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_made_by_run_are_writable_only_by_the_user() {
    let script = format!(
        "umask 000; {} run sh -c 'find \"$(dirname $SSL_CERT_FILE)\" ! -type l -printf \"%m %y\\n\" | sort -u'",
        env!("CARGO_BIN_EXE_politely")
    );
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", &script]).env("HOME", home.path()).env("XDG_CACHE_HOME", home.path());
    let output = within("its end", command.env("STATE_DIRECTORY", home.path()).output()).await.expect("sh is there");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "600 f\n644 f\n755 d\n", "{output:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_run_removes_the_files_of_a_killed_run() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let variables = [("TMPDIR", directory.path().to_str().expect("UTF-8"))];
    let kept = || std::fs::read_dir(directory.path()).expect("it is there").count();
    // The supervisor ends the command when `run` is gone.
    let ended = politely_with(&["run", "sh", "-c", "kill -9 $(cut -d ' ' -f 4 /proc/$PPID/stat)"], &variables).await;
    assert_eq!((ended.code, kept()), (-1, 1), "{}", ended.stderr);
    let ended = politely_with(&["run", "true"], &variables).await;
    assert_eq!((ended.code, kept()), (0, 0), "{}", ended.stderr);
}

/// The machine's configuration file is read, except its directories, which belong to the service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_applies_evidence_and_cache_variables_but_not_the_services_directories() {
    let ask = |variable: &str| {
        let script = format!(
            "cd \"$HOME\" && mkdir -p etc/politely && \
             echo \"{{evidence: {{directory: $PWD/service/e}}, cache: {{directory: $PWD/service/c}}}}\" > etc/politely/politely.yaml && \
             mount -t overlay overlay -o lowerdir=\"$PWD/etc:/etc\" /etc && export {variable} && \"$0\" run -q true; ls -d mine service"
        );
        async move { politely_in_shell("exec unshare -rm sh -c \"$1\" \"$0\"", &[&script]).await.stdout }
    };
    if !ask("POLITELY_EVIDENCE__DIRECTORY=\"$PWD/mine\"").await.starts_with("mine") {
        return eprintln!("skipped: nothing can be laid over /etc here");
    }
    for variable in ["POLITELY_EVIDENCE=\"{directory: $PWD/mine}\"", "POLITELY_CACHE__DIRECTORY=\"$PWD/mine\"", "ANY=1"]
    {
        let made = if variable == "ANY=1" { "" } else { "mine\n" };
        assert_eq!(ask(variable).await, made, "{variable}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_directory_that_is_not_utf8_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let script = "cd \"$0\"; \"$1\" run --evidence \"$(printf 'ev\\377il')\" true; echo $? >&2; ls -A \"$0\"";
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", script]).arg(directory.path()).arg(env!("CARGO_BIN_EXE_politely"));
    let home = tempfile::tempdir().expect("a temporary directory");
    command.env("HOME", home.path()).env("XDG_CACHE_HOME", home.path()).env("STATE_DIRECTORY", home.path());
    let output = within("its end", command.output()).await.expect("sh is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.stdout.is_empty() && said.contains("is not UTF-8") && said.ends_with("\n2\n"), "{output:?}");
}

/// Files with the authority's certificate are readable by everybody, as the command may become another user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_files_copied_by_run_are_readable_only_by_the_user() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [own, policies] = ["own", "policies.json"].map(|name| directory.path().join(name));
    std::fs::write(&own, "password = secret\n").expect("it is writable");
    std::fs::write(&policies, "{}").expect("it is writable");
    let [own, policies] = [&own, &policies].map(|path| path.to_str().expect("UTF-8"));
    let theirs = [("WGETRC", own), ("APT_CONFIG", own), ("PLAYWRIGHT_FIREFOX_POLICIES_JSON", policies)];
    let script = "stat -Lc %a $WGETRC $APT_CONFIG $PLAYWRIGHT_FIREFOX_POLICIES_JSON $SSL_CERT_FILE; head -n 1 -q $WGETRC $APT_CONFIG";
    let ended = politely_with(&["run", "sh", "-c", script], &theirs).await;
    let text = "password = secret\n".repeat(2);
    assert_eq!(ended.stdout, format!("600\n600\n600\n644\n{text}"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn html_robots_txt_is_warned_of_once_and_listed_in_the_summary() {
    let origin = Origin::site("<!DOCTYPE html>\n<title>Not found</title>\n").await;
    let script = fetch(&["/1", "/2", "/3"].map(|path| origin.url(path)));
    let (text, json) = tokio::join!(run(&[], &script), run(&["-q", "--report", "json"], &script));
    assert_eq!(text.stderr.matches("robots.txt is an HTML page").count(), 2, "{}", text.stderr);
    let line = format!("\n  {} is an HTML page, which usually contains no rules\n", origin.url("/robots.txt"));
    assert!(format!("{}\n", text.stderr).contains(&line), "{}", text.stderr);
    let told: Value = serde_json::from_str(json.stderr.trim()).expect("JSON");
    assert_eq!(told["html_robots"], Value::from(vec![origin.url("/robots.txt")]));
    let explained = politely_with(&["explain", &origin.url("/1")], &open()).await.stdout;
    assert!(explained.contains(&format!("note:{}", line.trim_end().trim_start_matches("\n "))), "{explained}");
}

/// Whether rustls or OpenSSL rejects it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn untrusted_origin_certificate_is_reported_with_a_hint() {
    let own =
        "openssl req -x509 -key key.pem -subj /CN=a.localhost -addext subjectAltName=DNS:a.localhost -out cert.pem";
    let first =
        "openssl req -new -key key.pem -subj /CN=a.localhost | openssl x509 -req -signkey key.pem -out cert.pem";
    for made in [own, &format!("{own} -addext basicConstraints=critical,CA:FALSE"), first] {
        let script = format!(
            "cd $HOME; openssl ecparam -name prime256v1 -genkey -noout -out key.pem; ({made}) 2> made || cat made >&2
            openssl s_server -accept 127.0.0.1:0 -cert cert.pem -key key.pem -www > served 2>&1 & server=$!
            for _ in $(seq 100); do port=$(sed -n 's/^ACCEPT .*://p' served); [ -n \"$port\" ] && break; sleep 0.1; done
            curl -q -s -o page https://a.localhost:$port/; kill $server; exit 0"
        );
        let ended = run(&[], &script).await;
        let hint = "hint: `--set egress.ca_file=FILE` trusts an authority of your own, \
            `--set 'hosts={\"a.localhost\": {verify: off}}'` any certificate";
        assert!(ended.stderr.contains(hint), "{made}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_groups_background_requests_of_browsers_in_one_line() {
    let nobody = ("POLITELY_EGRESS__UPSTREAM_PROXY", "http://127.0.0.1:9");
    let ask = |hosts: &[&str]| fetch(&hosts.iter().map(|host| format!("http://{host}/x")).collect::<Vec<_>>());
    let hosts = ["update.googleapis.com", "connectivitycheck.gstatic.com", "detectportal.firefox.com"];
    let own = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x -keyout key -out own.pem 2> made";
    let distrusted = format!("cd $HOME; {own}; curl -q -s --cacert own.pem https://clients2.google.com/; exit 0");
    let script = ask(&hosts) + &distrusted;
    for (flags, said) in [
        (&["run"] as &[&str], "\n  3 background requests of the browser refused"),
        (&["run", "-q", "--report", "json"], "\"background_refused\":3"),
    ] {
        let ended = politely_with(&[flags, &["sh", "-c", &script]].concat(), &[nobody]).await;
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
        let named = hosts.into_iter().chain(["clients2.google.com", "WARN"]).find(|word| ended.stderr.contains(word));
        assert_eq!(named, None, "{}", ended.stderr);
    }
    let ended = politely_with(&["run", "sh", "-c", &ask(&["a.example"])], &[nobody]).await;
    assert!(ended.stderr.contains("WARN") && ended.stderr.contains("a.example"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_of_loopback_suggests_the_egress_setting() {
    let script =
        "curl -q -s --noproxy '' -o /dev/null http://127.0.0.1:8000/; curl -q -s -o /dev/null http://10.1.2.3/";
    let ended =
        politely_with(&["run", "sh", "-c", &format!("{script}; exit 0")], &[("POLITELY_EGRESS__PORTS", "[80, 8000]")])
            .await;
    let said = "2 refused: 127.0.0.1 is not a public address\n  hint: `--set 'egress.allow=[127.0.0.0/8, \"::1\"]'` opens this machine";
    assert!(ended.stderr.contains(said) && ended.stderr.contains("NO_PROXY"), "{}", ended.stderr);
    let round = politely_with(&["run", "true"], &[]).await;
    let opens = "`--set 'egress.allow=[127.0.0.0/8]'`, and `--set 'egress.ports=[80, 443, 8000]'` if its port is 8000";
    assert!(round.stderr.contains(opens), "{}", round.stderr);
    let open = ["run", "--set", "egress.allow=[127.0.0.0/8, \"::1\"]", "true"];
    assert_eq!(politely_with(&open, &[]).await.code, 0);
    let set = ["egress.allow=[127.0.0.0/8]", "egress.ports=[80, 8000-8002]"];
    let url = "http://127.0.0.1:81/";
    let closed = ["run", "--set", set[0], "--set", set[1], "curl", "-q", "-s", "--noproxy", "", "-o", "/dev/null", url];
    let ended = politely_with(&closed, &[]).await;
    assert!(ended.stderr.contains("`--set 'egress.ports=[80, 8000-8002, 81]'` opens them"), "{}", ended.stderr);
}

/// The inner run does not see the process of the outer one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_inside_an_isolated_run_can_use_its_proxy_as_upstream() {
    let origin = Origin::site("User-agent: *\nDisallow: /private\nCrawl-delay: 0.5\n").await;
    let state = tempfile::tempdir().unwrap();
    let variables = [("STATE_DIRECTORY", state.path().to_str().unwrap())];
    let variables = [&open()[..], &variables, &[("POLITELY_EGRESS__ALLOW", "[127.0.0.0/8, '::1']")]].concat();
    let urls = ["/1", "/2", "/private"].map(|path| format!(" -o /dev/null {}", origin.url(path))).concat();
    let script = format!(
        "export POLITELY_EGRESS__UPSTREAM_PROXY=$http_proxy\n\
         exec \"$0\" run --max-wait 10s curl -q -s -w '%{{http_code}} ' {urls}"
    );
    let outer = ["run", "--isolate", "sh", "-c", &script, env!("CARGO_BIN_EXE_politely")];
    let ended = politely_with(&outer, &variables).await;
    if ended.stderr.contains("cannot isolate") {
        eprintln!("skipped: this system lets nobody isolate a command here");
        return;
    }
    assert_eq!(ended.stdout, "200 200 403 ", "{}", ended.stderr);
}

/// Each of the two would otherwise wait for slots reserved by the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_can_use_an_upstream_proxy_with_the_same_state_directory() {
    let origin = Origin::site("User-agent: *\nDisallow: /private\nCrawl-delay: 0.5\n").await;
    let proxy = Binary::serve("").await;
    let (store, way) = (proxy.directory().join("store"), format!("http://{}", proxy.address()));
    let variables = [("STATE_DIRECTORY", store.to_str().unwrap()), ("POLITELY_EGRESS__UPSTREAM_PROXY", &*way)];
    let variables = [&open()[..], &variables, &[("POLITELY_EGRESS__ALLOW", "[127.0.0.0/8, '::1']")]].concat();
    let urls = ["/1", "/2", "/private"].map(|path| format!(" -o /dev/null {}", origin.url(path))).concat();
    let script = format!("curl -q -s -w '%{{http_code}} ' {urls}");
    let ended = politely_with(&["run", "--max-wait", "10s", "sh", "-c", &script], &variables).await;
    assert_eq!(ended.stdout, "200 200 403 ", "{}", ended.stderr);
}
