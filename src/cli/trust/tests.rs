//! A machine of files, with tools that write down what they are asked.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use super::*;

/// A program cannot be run while another thread's child holds it open for writing, so the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

struct Fake {
    _turn: MutexGuard<'static, ()>,
    directory: TempDir,
    machine: UserMachine,
    ca: Ca,
}

impl Fake {
    fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("bin")).unwrap();
        let machine = UserMachine {
            root: at("root"),
            home: Some(at("home")),
            data: None,
            java_home: None,
            path: vec![at("bin")],
        };
        let ca = Ca::open_or_create(&at("ca")).unwrap();
        Self { _turn: turn, directory, machine, ca }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str) {
        let file = self.at(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }

    /// A tool that writes its arguments to `calls`, a file's content in place of its name, then does as the script says.
    fn tool(&self, name: &str, script: &str) {
        let file = self.at("bin").join(name);
        let (calls, pem) = (self.at("calls").display().to_string(), self.ca.path().display());
        fs::write(&file, format!("#!/bin/sh\nline=\"{name}\"; for a; do test -f \"$a\" && cmp -s \"$a\" {pem} && a=PEM; line=\"$line $a\"; done\necho $line >> {calls}\n{script}\n")).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    }

    fn calls(&self) -> String {
        let calls = fs::read_to_string(self.at("calls")).unwrap_or_default();
        let _ = fs::remove_file(self.at("calls"));
        calls.replace(&self.directory.path().display().to_string(), "").replace(&self.ca.mark(), "MARK")
    }

    fn told(&self, steps: Vec<TrustStep>) -> Vec<String> {
        let text = |step: TrustStep| match step.outcome {
            TrustOutcome::Done(what) | TrustOutcome::Nothing(what) => format!("{}: {what}", step.place),
            TrustOutcome::Failed { what, hint } => format!("error: {}: {what} | {hint}", step.place),
        };
        let plain = |line: String| {
            line.replace(&self.directory.path().display().to_string(), "").replace(&self.ca.mark(), "MARK")
        };
        steps.into_iter().map(text).map(plain).collect()
    }

    fn install(&self, only: StoreKind) -> Vec<String> {
        self.told(self.machine.change(TrustChange::Install, &self.ca, &[only]).unwrap())
    }

    fn uninstall(&self, only: StoreKind) -> Vec<String> {
        self.told(self.machine.change(TrustChange::Uninstall, &self.ca, &[only]).unwrap())
    }
}

#[test]
fn debian_gets_a_file_and_its_tool_is_run() {
    let fake = Fake::new();
    fs::create_dir_all(fake.at("root/usr/local/share/ca-certificates")).unwrap();
    fake.tool("update-ca-certificates", "");
    let file = "/root/usr/local/share/ca-certificates/politely-MARK.crt";
    assert_eq!(fake.install(StoreKind::System), [format!("system: wrote {file}, ran update-ca-certificates")]);
    assert_eq!(fake.calls(), "update-ca-certificates\n");
    let written = fake.at(&format!("root/usr/local/share/ca-certificates/politely-{}.crt", fake.ca.mark()));
    assert_eq!(fs::read_to_string(&written).unwrap(), fake.ca.cert_pem());
    assert_eq!(
        fake.install(StoreKind::System),
        [format!("system: {file} was there already, ran update-ca-certificates")]
    );
    fake.tool("update-ca-certificates", "exit 1");
    assert_eq!(fake.install(StoreKind::System), [format!("system: {file} was there already")]);
    fake.tool("update-ca-certificates", "");
    assert_eq!(fake.uninstall(StoreKind::System), [format!("system: removed {file}, ran update-ca-certificates")]);
    assert!(!written.exists());
    assert_eq!(fake.uninstall(StoreKind::System), [format!("system: {file} is not there")]);
}

#[test]
fn fedora_gets_a_file_and_its_tool_is_run() {
    let fake = Fake::new();
    fs::create_dir_all(fake.at("root/etc/pki/ca-trust/source/anchors")).unwrap();
    fake.tool("update-ca-trust", "");
    let file = "/root/etc/pki/ca-trust/source/anchors/politely-MARK.pem";
    assert_eq!(fake.install(StoreKind::System), [format!("system: wrote {file}, ran update-ca-trust")]);
    assert_eq!(fake.calls(), "update-ca-trust\n");
}

#[test]
fn a_system_without_its_tool_or_without_a_store_names_what_to_install() {
    let fake = Fake::new();
    assert_eq!(
        fake.install(StoreKind::System),
        [
            "error: system: no store of a known kind was found | install ca-certificates, or give programs the certificate: `politely ca export`"
        ]
    );
    fs::create_dir_all(fake.at("root/usr/local/share/ca-certificates")).unwrap();
    assert_eq!(
        fake.install(StoreKind::System),
        ["error: system: update-ca-certificates is missing | install the package ca-certificates, which brings it"]
    );
}

#[test]
fn a_tool_that_fails_is_quoted() {
    let fake = Fake::new();
    fs::create_dir_all(fake.at("root/usr/local/share/ca-certificates")).unwrap();
    fake.tool("update-ca-certificates", "echo Updating...; echo no space left >&2; exit 3");
    let told = fake.install(StoreKind::System);
    assert!(told[0].starts_with("error: system: wrote "), "{told:?}");
    assert!(told[0].contains("but update-ca-certificates failed: Updating... | run "), "{told:?}");
}

#[test]
fn every_profile_of_a_browser_gets_it() {
    let fake = Fake::new();
    fake.file("home/.pki/nssdb/cert9.db");
    fake.file("home/.mozilla/firefox/a.default/cert9.db");
    fake.file("home/snap/firefox/common/.mozilla/firefox/b.default/cert9.db");
    fake.file("home/.mozilla/firefox/profiles.ini");
    fake.tool("certutil", "test \"$1\" != -L");
    assert_eq!(
        fake.install(StoreKind::Browsers),
        [
            "browsers: added to /home/.pki/nssdb; restart the browser",
            "browsers: added to /home/.mozilla/firefox/a.default; restart the browser",
            "browsers: added to /home/snap/firefox/common/.mozilla/firefox/b.default; restart the browser",
        ]
    );
    let calls = fake.calls();
    assert!(calls.contains("certutil -A -t C,, -d sql:/home/.pki/nssdb -n politely-MARK -i PEM\n"), "{calls}");
    assert_eq!(calls.lines().count(), 6);
}

#[test]
fn chromiums_places_are_the_old_one_and_that_of_the_users_data() {
    let mut fake = Fake::new();
    fake.file("home/.local/share/pki/nssdb/cert9.db");
    fake.tool("certutil", "test \"$1\" != -L");
    let added = "browsers: added to /home/.local/share/pki/nssdb; restart the browser";
    assert_eq!(fake.install(StoreKind::Browsers), [added]);
    fake.file("home/.pki/nssdb/cert9.db");
    assert_eq!(fake.install(StoreKind::Browsers), ["browsers: added to /home/.pki/nssdb; restart the browser", added]);
    fake.file("data/pki/nssdb/cert9.db");
    fake.machine.data = Some(fake.at("data"));
    assert_eq!(fake.install(StoreKind::Browsers)[1], "browsers: added to /data/pki/nssdb; restart the browser");
}

#[test]
fn a_chromium_that_has_no_database_yet_gets_one() {
    let fake = Fake::new();
    fake.tool("chromium", "");
    fake.tool("certutil", "test \"$1\" != -L");
    assert_eq!(fake.uninstall(StoreKind::Browsers), ["browsers: no database of Chromium's or Firefox's was found"]);
    assert_eq!(
        fake.install(StoreKind::Browsers),
        ["browsers: made /home/.pki/nssdb and added to it; restart the browser"]
    );
    assert!(fake.calls().starts_with("certutil -N --empty-password -d sql:/home/.pki/nssdb\n"));
    fake.tool("certutil", "echo no room >&2; exit 1");
    assert!(
        fake.install(StoreKind::Browsers)[0].starts_with("error: browsers: /home/.pki/nssdb cannot be made: no room")
    );
}

#[test]
fn a_run_of_what_may_start_a_chromium_makes_it_trust_the_authority() {
    let fake = Fake::new();
    let run = |program: &str| {
        let outcomes = fake.machine.before_run(&fake.ca, program.as_ref()).unwrap();
        fake.told(outcomes.into_iter().map(|outcome| TrustStep { place: StoreKind::Browsers, outcome }).collect())
    };
    assert_eq!(run("/usr/bin/python3.11"), [""; 0], "there is no Chromium");
    fake.tool("chromium", "");
    assert_eq!(
        run("chromium"),
        [
            "error: browsers: certutil is missing, which makes Chromium trust the authority | install the package libnss3-tools (Debian) or nss-tools (Fedora), which brings it"
        ]
    );
    assert_eq!(run("python3"), [""; 0], "it may start none");
    fake.tool("certutil", "test \"$1\" != -L");
    fake.file("home/.mozilla/firefox/a.default/cert9.db");
    assert_eq!(run("wget"), [""; 0]);
    assert_eq!(run("python3"), ["browsers: made /home/.pki/nssdb and added to it; restart the browser"]);
    assert!(!fake.calls().contains("firefox"));
    fake.file("home/.local/share/pki/nssdb/cert9.db");
    fake.tool("certutil", "");
    assert_eq!(run("chromium"), [""; 0], "it is there already");
}

#[test]
fn a_browser_that_has_it_is_left_alone_and_one_that_must_lose_it_loses_it() {
    let fake = Fake::new();
    fake.file("home/.pki/nssdb/cert9.db");
    fake.tool("certutil", "");
    assert_eq!(fake.install(StoreKind::Browsers), ["browsers: it was in /home/.pki/nssdb already"]);
    fake.calls();
    assert_eq!(fake.uninstall(StoreKind::Browsers), ["browsers: removed from /home/.pki/nssdb; restart the browser"]);
    assert!(fake.calls().ends_with("certutil -D -d sql:/home/.pki/nssdb -n politely-MARK\n"));
    fake.tool("certutil", "echo locked >&2; test \"$1\" = -L");
    let told = fake.uninstall(StoreKind::Browsers);
    assert_eq!(
        told,
        ["error: browsers: certutil cannot change /home/.pki/nssdb: locked | close the browser and try again"]
    );
}

#[test]
fn browsers_need_certutil_only_if_there_are_any() {
    let fake = Fake::new();
    assert_eq!(fake.install(StoreKind::Browsers), ["browsers: no database of Chromium's or Firefox's was found"]);
    fake.file("home/.pki/nssdb/cert9.db");
    assert_eq!(
        fake.install(StoreKind::Browsers),
        [
            "error: browsers: certutil is missing, which changes /home/.pki/nssdb | install the package libnss3-tools (Debian) or nss-tools (Fedora), which brings it"
        ]
    );
}

#[test]
fn java_is_changed_by_its_keytool() {
    let fake = Fake::new();
    assert_eq!(fake.install(StoreKind::Java), ["java: there is no Java on the PATH"]);
    fake.tool("java", "");
    assert_eq!(
        fake.install(StoreKind::Java),
        [
            "error: java: keytool is missing beside /bin/java | install a JDK or a whole JRE, which brings it, or set JAVA_HOME"
        ]
    );
    fake.tool("keytool", "test \"$1\" != -list");
    assert_eq!(fake.install(StoreKind::Java), ["java: added to the keystore of /bin/keytool as politely-MARK"]);
    let import =
        "keytool -importcert -noprompt -trustcacerts -cacerts -storepass changeit -alias politely-MARK -file PEM\n";
    assert!(fake.calls().ends_with(import));
    fake.tool("keytool", "");
    assert_eq!(fake.uninstall(StoreKind::Java), ["java: removed politely-MARK from the keystore of /bin/keytool"]);
    assert!(fake.calls().ends_with("keytool -delete -cacerts -storepass changeit -alias politely-MARK\n"));
}

#[test]
fn without_a_choice_every_place_is_visited() {
    let fake = Fake::new();
    let places: Vec<StoreKind> =
        fake.machine.change(TrustChange::Install, &fake.ca, &[]).unwrap().iter().map(|step| step.place).collect();
    assert_eq!(places, [StoreKind::System, StoreKind::Browsers, StoreKind::Java]);
    assert!(Path::new("/usr/sbin").is_absolute() && UserMachine::here().path.contains(&PathBuf::from("/usr/sbin")));
}
