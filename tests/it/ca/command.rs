//! `politely ca`, the built command.

use super::*;
use crate::support::binary::politely_on_a_terminal;

/// The command `politely ca …`, with a home, a state directory and tools of its own.
fn command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
    let tools = format!("{}:/usr/bin:/bin", home.join("bin").display());
    command.arg("ca").args(arguments).env_clear().env("HOME", home).env("PATH", tools);
    command.env("STATE_DIRECTORY", home.join("state"));
    command
}

/// Exit code, standard output, standard error.
fn run(home: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command(home, arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap().replace(&home.display().to_string(), "HOME");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn done(told: &str) -> (Option<i32>, String, String) {
    (Some(0), told.to_owned(), String::new())
}

#[test]
fn each_ca_command_creates_a_missing_authority() {
    let home = TempDir::new().unwrap();
    assert_eq!(run(home.path(), &["path"]), done("HOME/state/ca/ca.pem\n"));
    let pem = fs::read_to_string(home.path().join("state/ca/ca.pem")).unwrap();
    assert_eq!(run(home.path(), &["export"]), done(&pem));
    let home = TempDir::new().unwrap();
    assert!(run(home.path(), &["export"]).1.starts_with("-----BEGIN CERTIFICATE-----\n"));
    let home = TempDir::new().unwrap();
    let next = "  \
  trust it on this machine:  politely ca install
  trust it in one shell:     eval \"$(politely ca env)\"
  trust it elsewhere:        politely ca export
";
    assert_eq!(run(home.path(), &["init"]), done(&format!("made HOME/state/ca/ca.pem\n{next}")));
    assert_eq!(run(home.path(), &["init"]), done(&format!("exists already: HOME/state/ca/ca.pem\n{next}")));
}

/// An authority of these years, as an earlier version or a wrong clock may have made it.
fn dated(home: &Path, from: i32, until: i32) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let directory = home.join("state/ca");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(directory.join("ca.key"), key.serialize_pem()).unwrap();
    set_mode(&directory.join("ca.key"), 0o600);
}

#[test]
fn expired_authority_is_replaced_by_the_command_in_the_hint() {
    let home = TempDir::new().unwrap();
    dated(home.path(), 1970, 1980);
    let (code, _, told) = run(home.path(), &["path"]);
    assert_eq!(code, Some(2));
    assert!(told.starts_with("error: HOME/state/ca/ca.pem expired on 1980-01-01 00:00 UTC\nhint: the clock says "));
    assert!(told.contains("make another with `politely ca rotate`"), "{told}");
    let (code, told, _) = run(home.path(), &["rotate"]);
    assert_eq!(code, Some(0));
    assert!(told.starts_with("made HOME/state/ca/ca.pem\n"), "{told}");
    assert!(told.ends_with("a running proxy signs with it after `politely reload`\n"), "{told}");
    assert_eq!(run(home.path(), &["path"]), done("HOME/state/ca/ca.pem\n"));
    assert!(home.path().join("state/ca/ca.pem.old").exists() && home.path().join("state/ca/ca.key.old").exists());
}

/// `politely ca rotate` refuses to replace it.
#[test]
fn expired_authority_of_the_operator_is_left_for_them_to_replace() {
    let home = TempDir::new().unwrap();
    dated(home.path(), 1970, 1980);
    let [certificate, key] = ["pem", "key"].map(|name| home.path().join("state/ca/ca").with_extension(name));
    let file = home.path().join("politely.yaml");
    let ca = format!("{{ certificate: '{}', key: '{}' }}", certificate.display(), key.display());
    fs::write(&file, format!("intercept: {{ ca: {ca} }}\n")).unwrap();
    let (code, _, told) = run(home.path(), &["path", "--config", file.to_str().unwrap()]);
    assert_eq!(code, Some(2));
    let cure = "if that is right, replace it and its key (`intercept.ca`), and have clients trust the new one";
    assert!(told.contains(cure) && !told.contains("rotate"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotate_finish_requires_confirmation() {
    let home = TempDir::new().unwrap();
    assert_eq!(run(home.path(), &["path"]).0, Some(0));
    assert_eq!(run(home.path(), &["rotate"]).0, Some(0));
    let state = home.path().join("state");
    let next = state.join("ca/ca.pem.next");
    let variables = [("STATE_DIRECTORY", state.to_str().unwrap())];
    let (code, _, told) = run(home.path(), &["rotate", "--finish"]);
    let lost = "error: clients that do not trust HOME/state/ca/ca.pem.next yet lose HTTPS";
    assert!(code == Some(2) && told.starts_with(lost) && told.contains("rotate --finish --yes"), "{code:?}: {told}");
    assert!(next.exists(), "nobody can be asked");
    let asked = politely_on_a_terminal(&["ca", "rotate", "--finish"], &variables).await;
    assert!(asked.code == 1 && asked.stdout.contains("[y/N] ") && next.exists(), "{}: {}", asked.code, asked.stdout);
    let told = politely_on_a_terminal(&["ca", "rotate", "--finish", "--yes"], &variables).await;
    assert!(told.code == 0 && !told.stdout.contains("[y/N]") && !next.exists(), "{}: {}", told.code, told.stdout);
}

/// How so many of this command end that run at once.
fn at_once(home: &Path, arguments: &[&str], count: usize) -> Vec<Output> {
    let start = || command(home, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let processes: Vec<_> = (0..count).map(|_| start()).collect();
    processes.into_iter().map(|process| process.wait_with_output().unwrap()).collect()
}

/// A second finish would install an authority that no client trusts.
#[test]
fn concurrent_rotate_finish_succeeds_once() {
    let home = TempDir::new().unwrap();
    let file = |name: &str| fs::read_to_string(home.path().join("state/ca").join(name)).unwrap();
    for _ in 0..3 {
        assert_eq!(run(home.path(), &["path"]).0, Some(0));
        assert_eq!(run(home.path(), &["rotate"]).0, Some(0));
        let (now, next) = (file("ca.pem"), file("ca.pem.next"));
        let ended = at_once(home.path(), &["rotate", "--finish", "--yes"], 4);
        let mut codes: Vec<_> = ended.iter().map(|ended| ended.status.code()).collect();
        codes.sort();
        assert_eq!(codes, [Some(0), Some(2), Some(2), Some(2)], "{ended:?}");
        assert_eq!((file("ca.pem"), file("ca.pem.old")), (next, now));
    }
}

#[test]
fn concurrent_rotate_replaces_an_expired_authority_once() {
    let home = TempDir::new().unwrap();
    dated(home.path(), 1970, 1980);
    let file = |name: &str| fs::read_to_string(home.path().join("state/ca").join(name)).unwrap();
    let expired = file("ca.pem");
    for ended in at_once(home.path(), &["rotate"], 4) {
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    }
    assert_eq!(file("ca.pem.old"), expired);
}

/// Several shells may start at once, and a shell without these variables would bypass the proxy.
#[test]
fn concurrent_ca_env_commands_print_the_same() {
    let home = TempDir::new().unwrap();
    for _ in 0..5 {
        let ended = at_once(home.path(), &["env"], 6);
        assert!(ended.iter().all(|it| it.status.success() && it.stdout == ended[0].stdout), "{ended:?}");
    }
}

/// An operator abandons a rotation by deleting its certificate.
#[test]
fn abandoned_rotation_keeps_the_current_key() {
    let home = TempDir::new().unwrap();
    assert_eq!(run(home.path(), &["path"]).0, Some(0));
    let directory = home.path().join("state/ca");
    let key = || fs::read(directory.join("ca.key")).unwrap();
    let before = key();
    assert_eq!(run(home.path(), &["rotate"]).0, Some(0));
    fs::remove_file(directory.join("ca.pem.next")).unwrap();
    for arguments in ["path", "export", "rotate", "path"] {
        let (code, _, told) = run(home.path(), &[arguments]);
        assert_eq!(code, Some(0), "{arguments}: {told}");
        assert!(key() == before, "{arguments}");
    }
}

#[test]
fn authority_that_is_not_yet_valid_is_used_with_a_warning() {
    let home = TempDir::new().unwrap();
    dated(home.path(), 2070, 2080);
    let (code, told, warned) = run(home.path(), &["path"]);
    assert_eq!((code, told.as_str()), (Some(0), "HOME/state/ca/ca.pem\n"));
    assert!(
        warned.starts_with("warning: HOME/state/ca/ca.pem is valid from 2070-01-01 00:00 UTC, and the clock says ")
    );
}

#[test]
fn concurrent_processes_create_one_authority() {
    let home = TempDir::new().unwrap();
    let export = || command(home.path(), &["export"]).stdout(Stdio::piped()).spawn().unwrap();
    let processes: Vec<_> = (0..6).map(|_| export()).collect();
    let exported: HashSet<Vec<u8>> = processes
        .into_iter()
        .map(|process| {
            let output = process.wait_with_output().unwrap();
            assert!(output.status.success());
            output.stdout
        })
        .collect();
    assert_eq!(exported.len(), 1);
    assert_eq!(exported.into_iter().next().unwrap(), fs::read(home.path().join("state/ca/ca.pem")).unwrap());
}

#[test]
fn closed_output_pipe_is_not_an_error() {
    let home = TempDir::new().unwrap();
    let mut process = command(home.path(), &["export"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(process.stdout.take());
    let output = process.wait_with_output().unwrap();
    // The process ends without a message, by exit or, like other tools, by SIGPIPE.
    assert!(matches!(output.status.code(), Some(0) | None) && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn ca_env_makes_a_shell_trust_system_roots_and_our_authority() {
    let home = TempDir::new().unwrap();
    let spaced = home.path().join("it's a home");
    fs::create_dir(&spaced).unwrap();
    let exports = String::from_utf8(command(&spaced, &["env"]).output().unwrap().stdout).unwrap();
    for name in [
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "GIT_SSL_CAINFO",
        "CARGO_HTTP_CAINFO",
        "PIP_CERT",
        "DENO_CERT",
        "HTTPLIB2_CA_CERTS",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
        "PERL_LWP_SSL_CA_FILE",
        "npm_config_cafile",
        "PLAYWRIGHT_FIREFOX_POLICIES_JSON",
        "APT_CONFIG",
        "PHP_INI_SCAN_DIR",
        "JAVA_TOOL_OPTIONS",
        "WGETRC",
        "NODE_OPTIONS",
        "NODE_USE_ENV_PROXY",
        "PERL_LWP_ENV_PROXY",
        "https_proxy",
        "NO_PROXY",
    ] {
        assert!(exports.contains(&format!("export {name}='")), "{exports}");
    }
    assert!(!exports.contains("AWS_CA_BUNDLE"), "rclone fails where it is set: {exports}");
    let script = format!("{exports}\nopenssl verify -CAfile \"$SSL_CERT_FILE\" \"$1\"");
    let certificate = spaced.join("state/ca/ca.pem");
    let shell = Command::new("sh").args(["-c", &script, "sh"]).arg(certificate).output().unwrap();
    assert!(shell.status.success(), "{}", String::from_utf8_lossy(&shell.stderr));
    // A shell that has these already names our own bundle as the system's roots.
    let bundle = spaced.join("state/ca/bundle.pem");
    let before = fs::read(&bundle).unwrap();
    assert!(command(&spaced, &["env"]).env("SSL_CERT_FILE", &bundle).output().unwrap().status.success());
    assert_eq!(fs::read(&bundle).unwrap().len(), before.len());
}

#[test]
fn an_authority_that_cannot_be_used_is_reported_with_a_hint_and_exit_code_2() {
    let home = TempDir::new().unwrap();
    run(home.path(), &["init"]);
    set_mode(&home.path().join("state/ca/ca.key"), 0o640);
    let fault = "\
error: the key HOME/state/ca/ca.key can be read by others (mode 0640)
hint: if nobody can have read it, chmod 600 HOME/state/ca/ca.key; otherwise delete it and its certificate
";
    for action in ["init", "path", "export", "env", "install"] {
        assert_eq!(run(home.path(), &[action]), (Some(2), String::new(), fault.to_owned()), "{action}");
    }
    assert_eq!(run(home.path(), &["steal"]).0, Some(2));
}

/// The machine may trust authorities of a lost state directory.
#[test]
fn uninstall_does_not_create_an_authority() {
    let home = TempDir::new().unwrap();
    let told = "browsers: no database of Chromium's or Firefox's was found\n";
    assert_eq!(run(home.path(), &["uninstall", "--only", "browsers"]), done(told));
    assert!(!home.path().join("state").exists());
}

#[test]
fn install_without_certutil_exits_1_with_a_hint() {
    let home = TempDir::new().unwrap();
    let profile = home.path().join(".mozilla/firefox/a.default");
    fs::create_dir_all(&profile).unwrap();
    fs::write(profile.join("cert9.db"), "").unwrap();
    let none = command(home.path(), &["install", "--only", "browsers"]).env("PATH", home.path()).output().unwrap();
    assert_eq!(none.status.code(), Some(1));
    let told = String::from_utf8(none.stderr).unwrap();
    assert!(told.starts_with("error: browsers: certutil is missing, which is needed to change "), "{told}");
    assert!(
        told.ends_with("hint: install the package libnss3-tools (Debian) or nss-tools (Fedora), which contains it\n")
    );
}
