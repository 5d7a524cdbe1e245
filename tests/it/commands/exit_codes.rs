//! The command line as a user types it: exit codes, output streams, and clear error messages.

use super::ROBOTS;
use crate::support::binary::{Ended, open, politely, politely_in_shell, politely_with, politely_with_files, preload};
use crate::support::{Alpn, Origin};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

async fn run(command: &[&str]) -> Ended {
    politely_with(&[&["run", "--"], command].concat(), &open()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_needs_no_flag_on_curl() {
    let plain = Origin::site(ROBOTS).await;
    let tls = Origin::tls_site(Alpn::Both, ROBOTS).await;
    for origin in [&plain, &tls] {
        let ended = run(&["curl", "-q", "-sS", &origin.url("/open")]).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (0, "page /open"), "{}", ended.stderr);
        let ended = run(&["curl", "-q", "-sS", "-f", &origin.url("/private")]).await;
        assert_eq!(ended.code, 22, "curl's own code for a 403: {}", ended.stderr);
        assert_eq!(origin.log.pages(), ["/open"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_exits_with_the_status_of_its_command() {
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)] {
        let ended = run(&["sh", "-c", script]).await;
        assert_eq!(ended.code, code, "{script}: {}", ended.stderr);
    }
    let missing = run(&["/no/such/command"]).await;
    assert!(matches!(missing.code, 2 | 126 | 127), "{}", missing.code);
    assert!(missing.stderr.contains("/no/such/command"), "{}", missing.stderr);
}

/// Holds for any file that cannot be opened: another path would not help.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lack_of_descriptors_is_reported_with_the_ulimit_hint() {
    let mut failed = 0;
    for most in 5..24 {
        let Ended { code, stderr, .. } = politely_with_files(most, &["run", "true"]).await;
        let Some((_, error)) = stderr.split_once("error: ").filter(|(_, error)| error.contains("Too many open files"))
        else {
            continue;
        };
        let is_told = error.contains("\nhint: raise the limit on open files: `ulimit -n`");
        assert!(code == 2 && is_told, "{most}: {code}: {stderr}");
        failed += 1;
    }
    assert!(failed > 3, "{failed}");
}

const FEW_THREADS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
int pthread_create(pthread_t *thread, const pthread_attr_t *with, void *(*run)(void *), void *argument) {
  static int begun;
  int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
  return __atomic_fetch_add(&begun, 1, __ATOMIC_RELAXED) < atoi(getenv("THREADS")) ? create(thread, with, run, argument) : EAGAIN;
}
"#;

/// The proxy needs one thread for the log, four for the runtime, and one for blocking work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lack_of_threads_is_reported_with_the_ulimit_hint() {
    let directory = tempfile::tempdir().unwrap();
    let library = preload(directory.path(), FEW_THREADS);
    let variables = [&open()[..], &[("LD_PRELOAD", library.to_str().unwrap()), ("TOKIO_WORKER_THREADS", "4")]].concat();
    for threads in ["0", "1", "2", "4", "5"] {
        let few = [&variables[..], &[("THREADS", threads)]].concat();
        for command in [&["run", "true"][..], &["serve", "--listen", "127.0.0.1:0"]] {
            let Ended { code, stderr, .. } = politely_with(command, &few).await;
            let hint =
                "Resource temporarily unavailable (os error 11)\nhint: raise the limit on processes: `ulimit -u`";
            assert!(code == 2 && stderr.contains(hint) && !stderr.contains("panicked"), "{threads}: {code}: {stderr}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unwritable_output_is_an_error_but_a_closed_pipe_is_not() {
    for arguments in [
        &["demo"][..],
        &["explain", "http://a.example/robots.txt", "--robots", "/dev/null"],
        &["explain", "http://a.example/robots.txt", "--robots", "/dev/null", "--format", "json"],
        &["completions", "bash"],
        &["man"],
        &["print", "config"],
    ] {
        let full = politely_in_shell("\"$0\" \"$@\" > /dev/full", arguments).await;
        let said = "error: cannot write the output: No space left on device (os error 28)\nhint: make room";
        assert!(full.code == 2 && full.stderr.starts_with(said), "{arguments:?}: {full:?}");
    }
    let unread = politely_in_shell("{ \"$0\" \"$@\"; echo $? >&2; } | true", &["demo"]).await;
    assert_eq!(unread.stderr, "141\n", "as SIGPIPE ends others");
}

const BEFORE_1970: &str = r#"
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *to) {
  int failed = (int)syscall(SYS_clock_gettime, clock, to);
  if (!failed && clock == CLOCK_REALTIME) to->tv_sec -= 3000000000;
  return failed;
}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_before_1970_is_an_error_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let library = preload(directory.path(), BEFORE_1970);
    let variables = [&open()[..], &[("LD_PRELOAD", library.to_str().unwrap())]].concat();
    for command in [&["serve"][..], &["run", "true"]] {
        let ended = politely_with(command, &variables).await;
        let is_told =
            ended.stderr.contains("the clock shows a time before 1970: 19") && ended.stderr.contains("hint: ");
        assert!(ended.code == 2 && is_told && !ended.stderr.contains("panicked"), "{}: {}", ended.code, ended.stderr);
    }
}

/// The cache and the evidence each lock a file in their directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_file_at_the_lock_path_is_reported_with_a_hint() {
    let is_root = rustix::process::geteuid().is_root();
    for key in ["POLITELY_CACHE__DIRECTORY", "POLITELY_EVIDENCE__DIRECTORY"] {
        for what in ["another's", "directory", "pipe", "socket", "other name"] {
            let home = tempfile::tempdir().unwrap();
            let (directory, lock) = (home.path().join("kept"), home.path().join("kept/lock"));
            std::fs::create_dir(&directory).unwrap();
            match what {
                "another's" if !is_root => continue,
                "another's" => {
                    std::fs::write(&lock, "").unwrap();
                    std::os::unix::fs::chown(&lock, Some(61184), Some(61184)).unwrap();
                }
                "directory" => std::fs::create_dir(&lock).unwrap(),
                "pipe" => assert!(std::process::Command::new("mkfifo").arg(&lock).status().unwrap().success()),
                "socket" => drop(std::os::unix::net::UnixListener::bind(&lock).unwrap()),
                _ => {
                    std::fs::write(home.path().join("other"), "").unwrap();
                    std::fs::hard_link(home.path().join("other"), &lock).unwrap();
                }
            }
            let own = [(key, directory.to_str().unwrap()), ("POLITELY_ADMIN__ADDRESS", "off")];
            let variables = [&open()[..], &own].concat();
            let (before, mut told) = (lock.symlink_metadata().unwrap(), Vec::new());
            for command in ["check", "serve"] {
                let ended = politely_with(&[command], &variables).await;
                let is_told = ended.stderr.contains(&format!("{}: ", lock.display()))
                    && ended.stderr.contains("remove it, or make the user");
                assert!(ended.code != 0 && is_told, "{command}, {key}, {what}: {}: {}", ended.code, ended.stderr);
                let after = lock.symlink_metadata().unwrap();
                let of = |it: &std::fs::Metadata| (it.ino(), it.mode(), it.uid());
                assert_eq!(of(&before), of(&after), "{command}, {key}, {what}");
                told.push(ended.stderr);
            }
            // The log may say more before it.
            assert!(told[1].ends_with(&told[0]), "{key}, {what}: {told:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_reports_an_address_that_is_not_an_admin_address() {
    let proxy = crate::support::Proxy::start("").await;
    let origin = Origin::site(ROBOTS).await;
    for address in [proxy.address().to_string(), origin.authority("127.0.0.1")] {
        let ended = politely(&["status", "--admin", &address]).await;
        assert!(ended.code == 2 && ended.stderr.contains("admin address"), "{}: {}", ended.code, ended.stderr);
    }
}

/// The system accepts connections even for a stopped process. The commands themselves are suspended and continued, as by a shell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_and_reload_time_out_with_a_hint() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (status, reload) = (["status", "--admin", &address], ["reload", "--admin", &address]);
    let script = "\"$0\" \"$@\" & child=$!; sleep 0.5; kill -STOP $child; kill -CONT $child; wait $child";
    let (status, reload) = tokio::join!(politely_in_shell(script, &status), politely_in_shell(script, &reload));
    for ended in [status, reload] {
        let is_told = ended.stderr.contains("no answer within 10 s") && ended.stderr.contains("stopped or overloaded");
        assert!(ended.code == 2 && is_told, "{}: {}", ended.code, ended.stderr);
    }
}

/// If the terminal is closed, the command must not stay behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_forwards_sighup() {
    let nohup = "trap '' HUP; exec \"$0\" run -q sh -c 'kill -HUP $PPID; kill -HUP $$; sleep 0.2; exit 7'";
    let ignoring = run(&["sh", "-c", nohup, env!("CARGO_BIN_EXE_politely")]).await;
    assert_eq!(ignoring.code, 7, "what nohup has it ignore stays ignored: {}", ignoring.stderr);
    // The test itself may run with SIGHUP ignored.
    let hearing = ["env", "--default-signal=HUP", env!("CARGO_BIN_EXE_politely"), "run", "-q", "sh", "-c"];
    let script = "trap 'exit 9' HUP; kill -HUP $PPID; for i in $(seq 100); do sleep 0.1; done";
    let ended = run(&[&hearing[..], &[script]].concat()).await;
    assert_eq!(ended.code, 9, "{}", ended.stderr);
}

/// By default, they would end the proxy that the command uses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_forwards_user_defined_signals() {
    for name in ["USR1", "USR2", "ALRM"] {
        let default = ["env", &format!("--default-signal={name}"), env!("CARGO_BIN_EXE_politely"), "run", "sh", "-c"];
        let script = |then: &str| format!("{then}; kill -{name} $PPID; for i in $(seq 100); do sleep 0.1; done");
        let ended = run(&[&default[..], &[&script(&format!("trap 'exit 9' {name}"))]].concat()).await;
        assert_eq!(ended.code, 9, "{name}: {}", ended.stderr);
        let ended = run(&[&default[..], &[&script(":")]].concat()).await;
        assert!(ended.code > 128 && !ended.stderr.contains("bypassed"), "{name}: {}: {}", ended.code, ended.stderr);
        let ignoring = format!("trap '' {name}; exec \"$0\" run -q sh -c 'kill -{name} $PPID $$; sleep 0.2; exit 7'");
        let ended = run(&["sh", "-c", &ignoring, env!("CARGO_BIN_EXE_politely")]).await;
        assert_eq!(ended.code, 7, "{name}: what is ignored stays so: {}", ended.stderr);
    }
}

/// In a container, `run` may be process 1, which inherits orphaned processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_as_process_1_leaves_no_zombies() {
    let first = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
    if run(&[&first[..], &["true"]].concat()).await.code != 0 {
        return eprintln!("skipped: this system has no process namespaces for us");
    }
    let script = "[ $(cat /proc/1/comm) = politely ] || exit 3; (sleep 0.1 & echo $! > \"$HOME/orphan\"); read orphan < \"$HOME/orphan\"; \
         for i in $(seq 100); do [ -d /proc/$orphan ] || exit 7; sleep 0.1; done; exit 4";
    let ended = run(&[&first[..], &[env!("CARGO_BIN_EXE_politely"), "run", "-q", "sh", "-c", script]].concat()).await;
    assert_eq!(ended.code, 7, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_tmpdir_is_reported() {
    for command in [&["run", "true"][..], &["demo"], &["ca", "install"]] {
        let Ended { code, stderr, .. } = politely_with(command, &[("TMPDIR", "/no/such/directory")]).await;
        assert!(code == 2 && stderr.contains("TMPDIR"), "{command:?}: {code}: {stderr}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relative_path_in_a_deleted_directory_is_a_usage_error() {
    let script = "cd \"$(mktemp -d)\"; rmdir \"$PWD\"; \"$0\" \"$@\"";
    let Ended { code, stderr, .. } = politely_in_shell(script, &["run", "--evidence", "kept", "true"]).await;
    let is_told = stderr.starts_with("error: --evidence: ") && stderr.contains("\nhint: give an absolute path");
    assert!(code == 2 && is_told, "{code}: {stderr}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn isolation_in_a_deleted_directory_is_reported() {
    let script = "cd \"$(mktemp -d)\"; rmdir \"$PWD\"; \"$0\" \"$@\"";
    let ended = politely_in_shell(script, &["run", "--isolate", "true"]).await;
    assert!(ended.code == 2 && ended.stderr.contains("hint: the current directory was deleted"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_sets_proxy_and_trust_variables() {
    let script = "env; echo; cat \"$SSL_CERT_FILE\"";
    let variables = [&open()[..], &[("NO_PROXY", "a.localhost"), ("no_proxy", "*")]].concat();
    let ended = politely_with(&["run", "--", "sh", "-c", script], &variables).await;
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let value = |name: &str| {
        let line = ended.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.map(str::to_owned)
    };
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        for name in [name.to_owned(), name.to_uppercase()] {
            let proxy = value(&name).unwrap_or_else(|| panic!("no {name}"));
            assert!(proxy.starts_with("http://127.0.0.1:"), "{name}={proxy}");
        }
    }
    for name in ["no_proxy", "NO_PROXY"] {
        // Chromium goes round the proxy for this machine unless it is told so.
        assert_eq!(value(name).as_deref(), Some("<-loopback>"));
    }
    assert_eq!(value("NODE_USE_ENV_PROXY").as_deref(), Some("1"));
    assert!(value("SSL_CERT_FILE").is_some_and(|path| path.starts_with('/')));
    assert!(ended.stdout.contains("BEGIN CERTIFICATE"));
    assert!(!ended.stdout.contains("PRIVATE KEY"), "never the key");
}

/// Browsers are controlled over loopback, which the proxy refuses unless egress allows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_sets_no_proxy_for_loopback_unless_egress_allows_it() {
    let shown = ["run", "sh", "-c", "echo $NO_PROXY $no_proxy; echo $JAVA_TOOL_OPTIONS"];
    let ended = politely(&shown).await;
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines[0], "localhost,127.0.0.1,::1 localhost,127.0.0.1,::1", "{}", ended.stderr);
    assert!(lines[1].contains("-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=") && !lines[1].contains("nonProxyHosts"));
    let ended = politely_with(&shown, &open()).await;
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines[0], "<-loopback> <-loopback>", "{}", ended.stderr);
    assert!(lines[1].contains("-Dhttp.nonProxyHosts="));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_accepts_a_command_with_options_without_double_dash() {
    let origin = Origin::site(ROBOTS).await;
    let arguments = ["run", "--product-token", "FooBot", "curl", "-q", "-sS", &origin.url("/open")];
    let ended = politely_with(&arguments, &open()).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "page /open"), "{}", ended.stderr);
}

/// These settings are for the clients of a service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_ignores_the_services_access_log_and_listeners() {
    let origin = Origin::site(ROBOTS).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (file, log) = (directory.path().join("politely.yaml"), directory.path().join("access.log"));
    let text = format!(
        "listen: [{{ address: 127.0.0.1:1 }}]\nadmin: {{ address: 127.0.0.1:2 }}\naccess: {{ clients: [192.0.2.0/24] }}\n\
         log: {{ access: {} }}\n",
        log.display()
    );
    std::fs::write(&file, text).expect("it is writable");
    let arguments = ["run", "--config", file.to_str().unwrap(), "curl", "-q", "-sS", &origin.url("/open")];
    let ended = politely_with(&arguments, &open()).await;
    assert_eq!((ended.code, ended.stdout.as_str(), log.exists()), (0, "page /open", false), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_warns_if_no_request_used_the_proxy() {
    let ended = run(&["true"]).await;
    assert!(ended.stderr.contains("nothing came through the proxy"), "{}", ended.stderr);
    assert!(ended.stderr.contains("hint: "), "{}", ended.stderr);
    let origin = Origin::site(ROBOTS).await;
    let private = origin.url("/private");
    let verbose = politely_with(&["run", "-v", "curl", "-q", "-sS", &private], &open()).await;
    let told = verbose.stderr.lines().find(|line| line.starts_with(&format!("politely: {private}: ")));
    assert!(told.is_some_and(|line| line.contains("`Disallow: /private`")), "{}", verbose.stderr);
    let times = verbose.stderr.lines().filter(|line| line.contains(&private) && line.contains("Disallow: ")).count();
    assert_eq!(times, 1, "{}", verbose.stderr);
    let quiet = politely_with(&["run", "-q", "true"], &open()).await;
    let said = "politely: warning: nothing came through the proxy; ";
    assert!(quiet.code == 0 && quiet.stderr.starts_with(said), "warnings are said all the same: {}", quiet.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn isolated_command_reaches_sites_only_through_the_proxy() {
    let plain = Origin::site(ROBOTS).await;
    let tls = Origin::tls_site(Alpn::Both, ROBOTS).await;
    for origin in [&plain, &tls] {
        let url = origin.url("/open");
        let isolated = async |script: String| politely_with(&["run", "--isolate", "sh", "-c", &script], &open()).await;
        let through = isolated(format!("curl -q -sS {url}; exit 5")).await;
        if through.stderr.contains("cannot isolate") {
            assert_eq!(through.code, 2);
            eprintln!("skipped: this system lets nobody isolate a command here");
            return;
        }
        assert_eq!((through.code, through.stdout.as_str()), (5, "page /open"), "{}", through.stderr);
        let private = origin.url("/private");
        let around = isolated(format!("curl -q -sSk --noproxy '*' {private}")).await;
        assert_eq!(around.code, 7, "curl's own code for a host that it cannot connect to: {}", around.stderr);
        assert!(around.stderr.contains("nothing came through the proxy"), "{}", around.stderr);
        assert!(!around.stderr.contains("it went round"), "it could not: {}", around.stderr);
        assert_eq!(origin.log.pages(), ["/open"]);
    }
    // Longer than the name of a socket may be.
    let temporary = tempfile::Builder::new().prefix(&"t".repeat(200)).tempdir().expect("a temporary directory");
    let there = [&open()[..], &[("TMPDIR", temporary.path().to_str().expect("a UTF-8 path"))]].concat();
    let ended = politely_with(&["run", "--isolate", "curl", "-q", "-sS", &plain.url("/open")], &there).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "page /open"), "{}", ended.stderr);
    let missing = politely_with(&["run", "--isolate", "/no/such/command"], &open()).await;
    assert!(missing.code == 127 && missing.stderr.contains("/no/such/command"), "{}: {}", missing.code, missing.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_holds_requests_longer_than_serve_unless_max_wait_is_set() {
    let origin = Origin::site("User-agent: *\nCrawl-delay: 3\n").await;
    let script =
        format!("for page in 1 2; do curl -q -sS -o /dev/null -w '%{{http_code}} ' {}/$page; done", origin.url(""));
    let command = ["sh", "-c", &script];
    let short = [&open()[..], &[("POLITELY_PACE__MAX_WAIT", "1s")]].concat();
    let patient = politely_with(&[&["run"], &command[..]].concat(), &short).await;
    assert_eq!(patient.stdout, "200 200 ", "{}", patient.stderr);
    let hurried = politely_with(&["run", "--max-wait", "1s", "sh", "-c", &script], &open()).await;
    assert_eq!(hurried.stdout, "200 429 ");
    let wrong = politely_with(&["run", "--max-wait", "soon", "true"], &open()).await;
    assert!(wrong.code == 2 && wrong.stderr.contains("soon"), "{}", wrong.stderr);
}

/// wget with GnuTLS, as in Debian, reads its roots only from its start-up file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_adds_to_the_users_settings_of_wget() {
    let own = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(own.path(), "tries = 3").expect("it is writable");
    let variables = [&open()[..], &[("WGETRC", own.path().to_str().expect("UTF-8"))]].concat();
    let ended = politely_with(&["run", "--", "sh", "-c", "cat \"$WGETRC\"; echo $SSL_CERT_FILE"], &variables).await;
    let lines: Vec<_> = ended.stdout.lines().collect();
    let (bundle, settings) = lines.split_last().expect("several lines");
    assert_eq!(settings[0], "tries = 3");
    assert!(settings.contains(&format!("ca_certificate = {bundle}").as_str()), "{settings:?}");
    assert_eq!(std::fs::read_to_string(own.path()).expect("it is there"), "tries = 3", "the user's own stays as it is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_applies_the_product_token_option() {
    let origin = Origin::site(ROBOTS).await;
    let url = origin.url("/foo");
    let arguments = ["run", "--product-token", "FooBot", "--", "curl", "-q", "-sS", "-f", &url];
    assert_eq!(politely_with(&arguments, &open()).await.code, 22);
    assert_eq!(run(&["curl", "-q", "-sS", "-f", &url]).await.code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_usage_is_2_and_help_is_0() {
    for arguments in [&["bogus"][..], &["serve", "--bogus"], &["run"], &["explain"], &["serve", "--listen", "nonsense"]]
    {
        let ended = politely(arguments).await;
        assert_eq!(ended.code, 2, "{arguments:?}: {}", ended.stderr);
        assert!(ended.stdout.is_empty() && ended.stderr.contains("error"), "{arguments:?}: {}", ended.stderr);
    }
    for arguments in [&["--help"][..], &["--version"], &["serve", "--help"], &["run", "--help"]] {
        let ended = politely(arguments).await;
        assert_eq!((ended.code, ended.stdout.is_empty()), (0, false), "{arguments:?}");
    }
}

/// `error: what`, `--> file:line:col`, `hint: what to do`.
#[track_caller]
fn assert_fault(ended: &Ended, codes: &[i32], file: &Path, place: &str, what: &str) {
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(codes.contains(&ended.code), "{}: {said}", ended.code);
    for part in ["error", &format!("{}:{place}", file.display()), "hint", what] {
        assert!(said.contains(part), "no {part:?} in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_the_configuration_are_shown_with_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("politely.yaml");
    let path = file.to_str().unwrap();
    for (text, place, what) in [
        ("mode: enforce\npace:\n  max_wiat: 10s\n", "3:3", "max_wiat"),
        ("mode: enforce\nmode: report\n", "2:", "mode"),
        ("pace:\n  max_wait: soon\n", "2:", "soon"),
        ("listen: [{ address: 'nowhere' }]\n", "1:", "nowhere"),
        ("listen: [{ address: '0.0.0.0:3128' }]\n", "1:", "access"),
        ("pace: [\n", "1:", ""),
    ] {
        std::fs::write(&file, text).unwrap();
        assert_fault(&politely(&["check", "--config", path]).await, &[1, 2], &file, place, what);
        assert_fault(&politely(&["serve", "--config", path]).await, &[2], &file, place, what);
        // `run` takes no listeners from the file.
        if !text.starts_with("listen") {
            let ended = politely(&["run", "--config", path, "--", "true"]).await;
            assert_fault(&ended, &[2], &file, place, what);
        }
    }
    let both = "pace:\n  max_wiat: 10s\nmode: enfroce\n";
    std::fs::write(&file, both).unwrap();
    let ended = politely(&["check", "--config", path]).await;
    for place in ["2:3", "3:7"] {
        assert_fault(&ended, &[1, 2], &file, place, "");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_configuration_is_valid() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/politely.yaml");
    let ended = politely(&["check", "--config", file]).await;
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_configuration_file_is_named() {
    for arguments in [&["serve"][..], &["check"]] {
        let ended = politely(&[arguments, &["--config", "/no/such/file.yaml"]].concat()).await;
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        assert!(ended.stderr.contains("/no/such/file.yaml"), "{}", ended.stderr);
    }
    // Others than us may name variables so.
    let ended = politely_with(&["check"], &[("POLITELY_PACE__MAX_WIAT", "1s")]).await;
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(ended.code == 0 && said.contains("POLITELY_PACE__MAX_WIAT"), "{}: {said}", ended.code);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn port_in_use_is_named() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = politely(&["serve", "--listen", &address]).await;
    assert!(ended.code != 0 && ended.code != 70, "{}", ended.code);
    assert!(ended.stderr.contains(&address) && ended.stderr.contains("in use"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_authority_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca");
    let made = politely_with(&["ca", "init"], &[("POLITELY_INTERCEPT__CA__DIRECTORY", ca.to_str().unwrap())]).await;
    assert_eq!(made.code, 0, "{}", made.stderr);
    for entry in std::fs::read_dir(&ca).unwrap() {
        std::fs::write(entry.unwrap().path(), "not PEM at all").unwrap();
    }
    let variables = [("POLITELY_INTERCEPT__CA__DIRECTORY", ca.to_str().unwrap()), ("POLITELY_ADMIN__ADDRESS", "off")];
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["run", "--", "true"], &["ca", "export"]] {
        let ended = politely_with(arguments, &variables).await;
        assert!(ended.code != 0 && ended.code != 70, "{arguments:?}: {}", ended.code);
        assert!(ended.stderr.contains(ca.to_str().unwrap()), "{arguments:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_authority_can_be_found_and_exported() {
    let directory = tempfile::tempdir().unwrap();
    let variables = [("POLITELY_INTERCEPT__CA__DIRECTORY", directory.path().to_str().unwrap())];
    let path = politely_with(&["ca", "path"], &variables).await;
    assert_eq!(path.code, 0, "{}", path.stderr);
    let file = path.stdout.trim_end();
    let pem = std::fs::read_to_string(file).expect("made if there was none");
    let export = politely_with(&["ca", "export"], &variables).await;
    assert_eq!((export.code, export.stdout.trim()), (0, pem.trim()));
    assert!(!pem.contains("PRIVATE KEY"));
    let env = politely_with(&["ca", "env"], &variables).await;
    assert!(env.code == 0 && env.stdout.contains("export SSL_CERT_FILE="), "{}", env.stdout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demo_removes_its_temporary_files() {
    let script = "export TMPDIR=\"$HOME/t\"; mkdir \"$TMPDIR\"; \"$0\" demo | head -1 > \"$HOME/out\"; ls -A \"$TMPDIR\"; : > \"$HOME/out\"; \
        \"$0\" demo > \"$HOME/out\" & until [ -s \"$HOME/out\" ]; do sleep 0.05; done; kill $!; wait $!; echo $?; ls -A \"$TMPDIR\"";
    let ended = politely_in_shell(script, &[]).await;
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("143\n", ""));
}

/// The reader may have been stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demo_with_a_blocked_output_pipe_ends_on_signals() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let script = format!(
            "cd \"$HOME\"; mkdir t; export TMPDIR=\"$HOME/t\"; mkfifo pipe; exec 3<> pipe; dd if=/dev/zero bs=4096 of=pipe oflag=nonblock 2> dd; \
             env --default-signal=INT \"$0\" demo >&3 & until [ \"$(ls -A t)\" ]; do sleep 0.05; done; sleep 1; kill -{signal} $!; wait $!; \
             echo $?; ls -A t"
        );
        assert_eq!(politely_in_shell(&script, &[]).await.stdout, format!("{code}\n"), "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demo_shows_a_refusal_and_a_wait_over_http_and_https() {
    let ended = politely(&["demo"]).await;
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    for part in ["http://", "https://", "200", "403", "Disallow", "Crawl-delay"] {
        assert!(ended.stdout.to_lowercase().contains(&part.to_lowercase()), "no {part}: {}", ended.stdout);
    }
}
