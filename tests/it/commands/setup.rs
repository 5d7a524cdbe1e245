//! What the proxy serves its own clients: the certificate that they have to trust, through the proxy, while another is
//! rotated in, and on a machine that is not the proxy's.

use crate::support::binary::{Binary, Ended, politely_reading, politely_with};
use crate::support::origin::pages;
use crate::support::{Alpn, Origin, curl, within};
use argon2::{Argon2, Params, PasswordHasher};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use std::fs;
use std::path::{Path, PathBuf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn ca(home: &Path, arguments: &[&str]) -> Ended {
    let file = home.join("politely.yaml");
    let config = ["--config", file.to_str().expect("a UTF-8 path")];
    politely_with(&[&["ca"], arguments, &config].concat(), &[]).await
}

fn certificate(home: &Path) -> String {
    fs::read_to_string(home.join("ca/ca.pem")).expect("it has been made")
}

async fn through(proxy: &Binary, arguments: &[&str]) -> String {
    let got = curl(&[&["-x", &proxy.url()], arguments].concat()).await;
    assert_eq!((got.code, got.status()), (0, 200), "{arguments:?}: {}", got.stderr);
    got.text()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn setup_page_serves_certificate_and_instructions() {
    let proxy = Binary::serve("").await;
    let pem = certificate(proxy.directory());
    assert_eq!(through(&proxy, &["http://politely.invalid/ca.pem"]).await, pem);
    let plain = through(&proxy, &["http://politely.invalid/"]).await;
    for part in ["SHA-256 ", "Debian, Ubuntu:\n    sudo curl -fo ", "http://politely.invalid/ca.pem", "Windows", "Java"]
    {
        assert!(plain.contains(part), "{part}: {plain}");
    }
    let page = through(&proxy, &["-H", "Accept: text/html", "http://politely.invalid/"]).await;
    assert!(page.starts_with("<!doctype html>") && page.contains("<a href=\"/ca.pem\">"), "{page}");
    assert!(!page.contains("HOST"), "{page}");
    let der = proxy.directory().join("ca.crt");
    through(&proxy, &["-o", der.to_str().unwrap(), "http://politely.invalid/ca.crt"]).await;
    let mut openssl = tokio::process::Command::new("openssl");
    openssl.args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]).arg(&der);
    let shown = String::from_utf8(openssl.output().await.unwrap().stdout).unwrap();
    let fingerprint = shown.trim().rsplit('=').next().unwrap();
    assert!(plain.contains(fingerprint), "{fingerprint}: {plain}");

    assert!(proxy.curl(&["https://politely.invalid/"]).await.text().contains("SHA-256"), "over TLS too");
    for (arguments, status) in [
        (&["http://politely.invalid/other"][..], 404),
        (&["-d", "x", "http://politely.invalid/"], 405),
        (&["-I", "http://politely.invalid/"], 200),
    ] {
        let got = proxy.curl(arguments).await;
        assert_eq!(got.status(), status, "{arguments:?}");
        assert!(
            got.head().field("proxy-status").is_some_and(|status| status.starts_with("politely;")),
            "{arguments:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn setup_host_is_configurable_and_requires_credentials() {
    let hash = Argon2::from(Params::new(8, 1, 1, None).unwrap()).hash_password(b"correct").unwrap();
    let users = format!("access: {{ users: [{{ name: alice, password: '{hash}' }}] }}");
    let yaml = format!("admin: {{ address: '127.0.0.1:0' }}\nintercept: {{ setup_host: proxy.example }}\n{users}");
    let proxy = Binary::serve(&yaml).await;
    let url = "http://proxy.example/ca.pem";
    assert_eq!(proxy.curl(&[url]).await.status(), 407);
    assert_eq!(through(&proxy, &["-U", "alice:correct", url]).await, certificate(proxy.directory()));
    assert_eq!(proxy.curl(&["-U", "alice:correct", "http://politely.invalid/ca.pem"]).await.status(), 503);

    let named = [("POLITELY_INTERCEPT__SETUP_HOST", "proxy.example")];
    let from = |url: String| async move { politely_with(&["ca", "env", "--from", &url], &named).await };
    let ended = from(proxy.url()).await;
    assert!(ended.code == 2 && ended.stderr.contains("requires a user name and password"), "{}", ended.stderr);
    let url = proxy.url().replace("http://", "http://alice:correct@");
    let ended = from(url.clone()).await;
    assert!(ended.stdout.contains(&format!("export https_proxy='{url}'\n")), "{}{}", ended.stdout, ended.stderr);
    let token = proxy.directory().join("store/admin-token");
    let admin = ["--admin", &proxy.admin(), "--token-file", token.to_str().unwrap()];
    let status = proxy.asked(&[&["status"][..], &admin].concat(), &[]).await;
    assert!(status.code == 0 && !status.stdout.contains("bad-request"), "{}{}", status.stdout, status.stderr);
}

/// The other machine knows only the proxy's address: no admin address, no files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ca_env_on_another_machine_gets_the_certificate_through_the_proxy() {
    let origin = Origin::https(Alpn::Both, pages("")).await;
    let proxy = Binary::serve("").await;
    let home = tempfile::tempdir().unwrap();
    let script = "eval \"$(\"$0\" ca env --from \"$1\")\" && exec curl -q -sS \"$2\"";
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_politely"), &proxy.url(), &origin.url("/open")]);
    shell.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home.path());
    // Otherwise NO_PROXY would exclude loopback.
    shell.env("POLITELY_EGRESS__ALLOW", "[127.0.0.0/8]");
    let output = shell.env("STATE_DIRECTORY", home.path().join("state")).output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "page /open", "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(origin.log.pages(), ["/open"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotation_publishes_the_next_authority_before_it_signs() {
    let origin = Origin::https(Alpn::Both, pages("")).await;
    let proxy = Binary::serve("admin: { address: '127.0.0.1:0' }").await;
    let home = proxy.directory().to_owned();
    let old = certificate(&home);
    let nothing = ca(&home, &["rotate", "--finish"]).await;
    assert!(nothing.code == 2 && nothing.stderr.contains("no rotation has begun"), "{}", nothing.stderr);

    let begun = ca(&home, &["rotate"]).await;
    assert_eq!(begun.code, 0, "{}", begun.stderr);
    assert!(begun.stdout.contains("continues to sign") && begun.stdout.contains("rotate --finish"), "{}", begun.stdout);
    assert!(ca(&home, &["rotate"]).await.stdout.starts_with("exists already: "));
    let next = fs::read_to_string(home.join("ca/ca.pem.next")).unwrap();
    let both = format!("{old}{next}");
    assert_eq!(ca(&home, &["export"]).await.stdout, both);
    assert_eq!(through(&proxy, &["http://politely.invalid/ca.pem"]).await, both, "without a restart");
    let [old_file, both_file] = [("old.pem", &old), ("both.pem", &both)].map(|(name, pem)| {
        let file: PathBuf = home.join(name);
        fs::write(&file, pem).unwrap();
        file.to_str().unwrap().to_owned()
    });
    for trusts in [&old_file, &both_file] {
        assert_eq!(through(&proxy, &["--cacert", trusts, &origin.url("/a")]).await, "page /a");
    }

    let finished = ca(&home, &["rotate", "--finish", "--yes"]).await;
    assert!(finished.stdout.starts_with("signs from now on: "), "{}{}", finished.stdout, finished.stderr);
    assert_eq!(certificate(&home), next);
    assert_eq!(fs::read_to_string(home.join("ca/ca.pem.old")).unwrap(), old);
    // The proxy signs with the old one until it is told.
    assert_eq!(through(&proxy, &["http://politely.invalid/ca.pem"]).await, both);
    assert_eq!(ca(&home, &["export"]).await.stdout, format!("{next}{old}"));
    assert_eq!(through(&proxy, &["--cacert", &old_file, &origin.url("/b")]).await, "page /b");
    let told = proxy.asked(&["reload"], &[]).await;
    assert_eq!((told.code, &*told.stdout), (0, "reloaded: intercept.ca\n"), "{told:?}");
    assert_eq!(through(&proxy, &["--cacert", &both_file, &origin.url("/c")]).await, "page /c");
    let late = curl(&["-x", &proxy.url(), "--cacert", &old_file, &origin.url("/d")]).await;
    assert_eq!(late.code, 60, "{}", late.stderr);
    assert_eq!(ca(&home, &["export"]).await.stdout, next, "nobody signs with the old one any more");
    assert_eq!(proxy.asked(&["reload"], &[]).await.stdout, "reloaded: nothing has changed\n");

    // An unusable certificate file changes nothing.
    fs::write(home.join("ca/ca.pem"), &old).unwrap();
    let refused = proxy.asked(&["reload"], &[]).await;
    assert!(refused.code == 1 && refused.stderr.contains("does not belong to the certificate"), "{refused:?}");
    assert_eq!(through(&proxy, &["--cacert", &both_file, &origin.url("/e")]).await, "page /e");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authority_expiring_within_a_month_causes_warnings() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("ca");
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.not_before = time::OffsetDateTime::now_utc() - time::Duration::days(300);
    params.not_after = time::OffsetDateTime::now_utc() + time::Duration::days(29);
    fs::write(place.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(place.join("ca.key"), key.serialize_pem()).unwrap();
    fs::set_permissions(place.join("ca.key"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();

    let proxy = Binary::serve_in(directory, "admin: { address: '127.0.0.1:0' }").await;
    assert!(proxy.output().contains("ca.pem expires on "), "{}", proxy.output());
    let file = proxy.directory().join("politely.yaml");
    let checked = politely_with(&["check", "--config", file.to_str().unwrap()], &[]).await;
    assert!(
        checked.stdout.contains("  warning: ") && checked.stdout.contains("ca.pem expires on "),
        "{}",
        checked.stdout
    );
    let output = proxy.output();
    let admin = output.split("admin address http://").nth(1).unwrap().split('/').next().unwrap();
    let status = politely_with(&["status", "--config", file.to_str().unwrap(), "--admin", admin], &[]).await;
    assert!(status.stdout.contains("ca.pem expires on "), "{}{}", status.stdout, status.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hash_password_output_is_accepted_by_the_configuration() {
    let origin = Origin::site("").await;
    for line in ["s3cret: \u{fc}\n", "s3cret: \u{fc}", "s3cret: \u{fc}\r\n"] {
        let hashed = politely_reading(&["hash-password"], line.as_bytes()).await;
        assert!(hashed.code == 0 && hashed.stdout.starts_with("$argon2id$"), "{hashed:?}");
        let proxy =
            Binary::serve(&format!("access: {{ users: [{{ name: a, password: '{}' }}] }}", hashed.stdout.trim())).await;
        let url = origin.url("/x");
        let answered = async |user: &str| curl(&["-x", &proxy.url(), "--proxy-user", user, &url]).await.status();
        assert_eq!((answered("a:s3cret: \u{fc}").await, answered("a:other").await), (200, 407), "{line:?}");
    }
    for (bad, what) in
        [("", "the password is empty"), ("\n", "the password is empty"), ("a\nb\n", "more than one line")]
    {
        let refused = politely_reading(&["hash-password"], bad.as_bytes()).await;
        assert!(refused.code == 2 && refused.stderr.contains(what), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signal_during_the_password_prompt_restores_the_terminal() {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGALRM] {
        let ask = format!(
            "sh -c 'echo pid=$$; exec {} hash-password'; echo ended=$?; stty -a",
            env!("CARGO_BIN_EXE_politely")
        );
        let mut command = tokio::process::Command::new("script");
        command.args(["-qec", &ask, "/dev/null"]).kill_on_drop(true);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut script = command.spawn().expect("script is installed");
        let (mut output, mut shown, mut is_sent) = (script.stdout.take().expect("piped"), String::new(), false);
        let mut buffer = [0; 4096];
        loop {
            let count = within("the terminal", output.read(&mut buffer)).await.unwrap_or(0);
            if count == 0 {
                break;
            }
            shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
            if !is_sent && shown.contains("Password: ") {
                let pid = shown.split_once("pid=").and_then(|(_, rest)| rest.lines().next()).expect("it says so");
                // SAFETY: passes numbers.
                assert_eq!(unsafe { libc::kill(pid.trim().parse().expect("a number"), signal) }, 0);
                is_sent = true;
            }
        }
        assert!(shown.contains(&format!("ended={}", 128 + signal)), "{shown}");
        assert!(shown.contains(" echo ") && shown.contains("isig"), "{signal}: {shown}");
        assert!(!shown.contains("-echo ") && !shown.contains("-isig"), "{signal}: {shown}");
    }
}

/// The typed password is not echoed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn password_prompt_asks_twice_and_restores_the_terminal() {
    let binary = env!("CARGO_BIN_EXE_politely");
    for (typed, told) in [
        (&["ab\u{3}"][..], "error: interrupted"),
        (&["ab\n", "ac\n"], "error: the two passwords differ"),
        (&["a\tb\n", "a\tb\n"], "a control character"),
        (&["\u{4}", "\u{4}"], "the password is empty"),
        (&["secret\n", "secret\n"], "$argon2id$"),
    ] {
        let mut command = tokio::process::Command::new("script");
        command.args(["-qec", &format!("{binary} hash-password; stty -a"), "/dev/null"]).kill_on_drop(true);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut script = command.spawn().expect("script is installed");
        let (mut input, mut output) = (script.stdin.take().expect("piped"), script.stdout.take().expect("piped"));
        let mut shown = String::new();
        let mut buffer = [0; 4096];
        let mut read = async |shown: &mut String| {
            let count = within("the terminal", output.read(&mut buffer)).await.unwrap_or(0);
            shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
            count > 0
        };
        for (prompt, text) in ["Password: ", "Again: "].into_iter().zip(typed) {
            while !shown.contains(prompt) {
                assert!(read(&mut shown).await, "{shown}");
            }
            input.write_all(text.as_bytes()).await.expect("it reads");
        }
        while read(&mut shown).await {}
        assert!(shown.contains(told) && !shown.contains("secret"), "{shown}");
        for mode in ["isig", "icanon", "echo"] {
            assert!(shown.contains(&format!(" {mode} ")) || shown.contains(&format!("\n{mode} ")), "{mode}: {shown}");
        }
    }
}
