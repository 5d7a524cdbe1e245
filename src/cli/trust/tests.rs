//! A simulated machine of files, with tools that record their arguments.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use super::loan::Loan;
use super::*;

/// A program cannot be run while a forked child of another thread holds it open for writing, so the tests run one at a time.
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
            patience: Duration::from_secs(60),
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

    /// A tool that writes its arguments to `calls`, with `PEM` in place of a file that contains the authority's certificate, then runs the
    /// script.
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
        self.told(self.machine.install(&self.ca, &[only]).unwrap())
    }

    fn uninstall(&self, only: StoreKind) -> Vec<String> {
        let own = OwnEntries::of(vec![self.ca.cert_der().clone()]);
        self.told(self.machine.uninstall(&own, &[only]))
    }
}

#[test]
fn install_on_debian_writes_a_file_and_runs_the_tool() {
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
        [format!("system: {file} existed already, ran update-ca-certificates")]
    );
    fake.tool("update-ca-certificates", "exit 1");
    assert_eq!(fake.install(StoreKind::System), [format!("system: {file} existed already")]);
    fake.tool("update-ca-certificates", "");
    assert_eq!(fake.uninstall(StoreKind::System), [format!("system: removed {file}, ran update-ca-certificates")]);
    assert!(!written.exists());
    let none = "system: the authority is not in /root/usr/local/share/ca-certificates";
    assert_eq!(fake.uninstall(StoreKind::System), [none]);
}

/// Includes authorities that a rotation, the loss of the state directory or killed runs have left.
#[test]
fn uninstall_removes_all_our_authorities_and_nothing_else() {
    let fake = Fake::new();
    fake.certutil();
    let (system, policies) = ("root/usr/local/share/ca-certificates", "root/etc/firefox/policies");
    let theirs =
        ["theirs.crt", "politely-.crt", "politely-corporate.crt", "politely-feed.crt", "politely-0badcafe.pem"];
    for name in theirs.iter().chain(&["politely-1dd26317.crt", "politely-0253a7bc.crt"]) {
        fake.file(&format!("{system}/{name}"));
    }
    fake.tool("update-ca-certificates", "");
    let removed = ["0253a7bc", "1dd26317"].map(|mark| format!("/{system}/politely-{mark}.crt")).join(" ");
    let told = format!("system: removed {removed}, ran update-ca-certificates");
    assert_eq!(fake.uninstall(StoreKind::System), [told]);
    let mut left: Vec<_> = fs::read_dir(fake.at(system)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(
        left,
        ["politely-.crt", "politely-0badcafe.pem", "politely-corporate.crt", "politely-feed.crt", "theirs.crt"]
    );

    fake.file(&format!("{CHROMIUMS}/cert9.db"));
    let held = "theirs u,u,u\npolitely-corporate C,,\npolitely-1dd26317 C,,\nrun-of-politely-0badcafe C,,\n";
    fs::write(fake.at(CHROMIUMS).join("cert9.db"), held).unwrap();
    fake.file(&format!("{policies}/politely-1dd26317.pem"));
    let install = ["/theirs.pem", fake.at(policies).join("politely-1dd26317.pem").to_str().unwrap()].map(str::to_owned);
    let all = serde_json::json!({ "policies": { "Certificates": { "Install": install } } });
    fs::write(fake.at(policies).join("policies.json"), all.to_string()).unwrap();
    let told = fake.uninstall(StoreKind::Browsers);
    let removed = [format!("/{CHROMIUMS}; restart the browser"), format!("/{policies}/policies.json")];
    assert_eq!(told, removed.map(|place| format!("browsers: removed from {place}")));
    assert_eq!(fake.held(CHROMIUMS).as_deref(), Some("theirs u,u,u\npolitely-corporate C,,\n"));
    let left = fs::read_to_string(fake.at(policies).join("policies.json")).unwrap();
    assert!(left.contains("/theirs.pem") && !left.contains("politely-"), "{left}");

    let list = "test \"$1\" = -list || exit 0; echo 'Your keystore contains 2 entries'; echo; for a in theirs politely-1dd26317 debian:politely-0badcafe.pem debian:politely-feed.pem; do \
                echo \"$a, Jun 24, 2025, trustedCertEntry, \"; echo 'Certificate fingerprint (SHA-256): EB:C5'; done";
    fake.tool("keytool", list);
    let told = "java: removed politely-1dd26317, debian:politely-0badcafe.pem from the keystore of /bin/keytool";
    assert_eq!(fake.uninstall(StoreKind::Java), [told]);
    assert_eq!(
        fake.calls().matches("keytool -delete -cacerts -storepass changeit -alias politely-1dd26317").count(),
        1
    );
    fake.tool("keytool", "echo password was incorrect; exit 1");
    let told = &fake.uninstall(StoreKind::Java)[0];
    assert!(told.starts_with("error: java: /bin/keytool cannot change its keystore: password was incorrect"), "{told}");
}

/// The setup page (at `intercept.setup_host`) recommends the name `politely`, which others may use, too.
#[test]
fn uninstall_removes_an_entry_named_politely_only_if_it_is_this_authority() {
    let fake = Fake::new();
    let other = Ca::open_or_create(&fake.at("other")).unwrap();
    let system = "root/usr/local/share/ca-certificates";
    fs::create_dir_all(fake.at(system)).unwrap();
    fake.file(&format!("{CHROMIUMS}/cert9.db"));
    fake.tool("update-ca-certificates", "");
    let [place, chromiums] = [format!("/{system}"), format!("/{CHROMIUMS}")];
    for (pem, is_own) in [
        (other.cert_pem().to_owned(), false),
        ([fake.ca.cert_pem(), other.cert_pem()].concat(), false),
        (String::new(), false),
        (fake.ca.cert_pem().to_owned(), true),
    ] {
        let file = fake.at(system).join("politely.crt");
        fs::write(&file, &pem).unwrap();
        let named = fake.at("named");
        fs::write(&named, &pem).unwrap();
        let named = named.display();
        fake.tool("certutil", &format!("case \"$*\" in *-a*) cat {named};; -L*) echo 'politely C,,';; esac"));
        fake.tool(
            "keytool",
            &format!(
                "case $1 in -exportcert) cat {named};; -list) echo politely, Jun 24, 2025, trustedCertEntry,;; esac"
            ),
        );
        let told = [StoreKind::System, StoreKind::Browsers, StoreKind::Java].map(|kind| fake.uninstall(kind).concat());
        assert_eq!(file.exists(), !is_own, "{pem}");
        let expected = match is_own {
            true => [
                format!("system: removed {place}/politely.crt, ran update-ca-certificates"),
                format!("browsers: removed from {chromiums}; restart the browser"),
                "java: removed politely from the keystore of /bin/keytool".to_owned(),
            ],
            false => [
                format!("system: the authority is not in {place}"),
                format!("browsers: the authority is not in {chromiums}"),
                "java: the authority is not in the keystore of /bin/keytool".to_owned(),
            ],
        };
        assert_eq!(told, expected, "{pem}");
    }
}

#[test]
fn uninstall_continues_after_a_failure() {
    let fake = Fake::new();
    let (system, policies) = ("root/usr/local/share/ca-certificates", "root/etc/firefox/policies");
    let marks = ["00000000", "11111111", "22222222"];
    for directory in [system, policies] {
        let extension = if directory == system { "crt" } else { "pem" };
        marks.iter().for_each(|mark| fake.file(&format!("{directory}/politely-{mark}.{extension}")));
        let middle = fake.at(directory).join(format!("politely-11111111.{extension}"));
        fs::remove_file(&middle).unwrap();
        fs::create_dir(&middle).unwrap();
    }
    fake.tool("update-ca-certificates", "");
    let [first, middle, last] = marks.map(|mark| format!("/{system}/politely-{mark}.crt"));
    let told = fake.uninstall(StoreKind::System);
    assert_eq!(told[0], format!("system: removed {first} {last}, ran update-ca-certificates"));
    let hint = format!(" | sudo rm {middle} && sudo /bin/update-ca-certificates");
    assert!(told[1].starts_with(&format!("error: system: {middle}: ")) && told[1].ends_with(&hint), "{told:?}");

    fake.certutil();
    fake.file(&format!("{CHROMIUMS}/cert9.db"));
    let held = marks.map(|mark| format!("politely-{mark} C,,\n")).concat();
    fs::write(fake.at(CHROMIUMS).join("cert9.db"), held).unwrap();
    let script = fs::read_to_string(fake.at("bin/certutil")).unwrap();
    let refuses = "case \"$*\" in *-D*11111111*) echo in use >&2; exit 1;; esac\nop=$1";
    fake.tool("certutil", &script.split_once("op=$1").map(|(_, rest)| format!("{refuses}{rest}")).unwrap());
    let told = fake.uninstall(StoreKind::Browsers);
    assert_eq!(fake.held(CHROMIUMS).as_deref(), Some("politely-11111111 C,,\n"));
    assert!(told[0].starts_with(&format!("error: browsers: certutil cannot change /{CHROMIUMS}: in use")), "{told:?}");
    assert_eq!(told[1], format!("browsers: removed from /{policies}/policies.json"));
    assert!(told[2].starts_with(&format!("error: browsers: /{policies}/politely-11111111.pem: ")), "{told:?}");
    let left: Vec<_> = fs::read_dir(fake.at(policies)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["politely-11111111.pem"]);

    let entries = marks.map(|mark| format!("echo politely-{mark}, Jun 24, 2025, trustedCertEntry,\n")).concat();
    let refuses = "*-delete*11111111) echo in use; exit 1;;";
    fake.tool("keytool", &format!("case \"$*\" in -list*) {entries};; {refuses} esac"));
    let told = fake.uninstall(StoreKind::Java);
    assert_eq!(told[0], "java: removed politely-00000000, politely-22222222 from the keystore of /bin/keytool");
    assert!(told[1].starts_with("error: java: /bin/keytool cannot change its keystore: in use"), "{told:?}");
}

/// A store that cannot be read may contain an entry of ours.
#[test]
fn a_store_that_cannot_be_listed_is_a_failure() {
    let fake = Fake::new();
    fake.tool("update-ca-certificates", "");
    // Root may list every directory, but nobody can follow a loop of symbolic links.
    let in_a_loop = |place: &str| {
        let place = fake.at(place);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&place, &place).unwrap();
    };
    in_a_loop("home/.mozilla");
    in_a_loop("home/.pki");
    in_a_loop("root/etc/firefox");
    let told = fake.uninstall(StoreKind::Browsers);
    let places = ["home/.pki/nssdb", "home/.mozilla/firefox", "root/etc/firefox/policies"];
    assert_eq!(told.len(), places.len(), "{told:?}");
    for (told, place) in told.iter().zip(places) {
        assert!(told.starts_with(&format!("error: browsers: /{place} cannot be read: ")), "{told}");
    }
}

/// keytool of Java 8 has no option `-cacerts`.
#[test]
fn java_8_keystore_beside_keytool_is_used() {
    let fake = Fake::new();
    fake.file("jre/lib/security/cacerts");
    fake.tool("keytool", "");
    assert_eq!(fake.uninstall(StoreKind::Java), ["java: the authority is not in the keystore of /bin/keytool"]);
    assert_eq!(fake.calls(), "keytool -list -keystore /jre/lib/security/cacerts -storepass changeit\n");
}

#[test]
fn install_on_fedora_writes_a_file_and_runs_the_tool() {
    let fake = Fake::new();
    fs::create_dir_all(fake.at("root/etc/pki/ca-trust/source/anchors")).unwrap();
    fake.tool("update-ca-trust", "");
    let file = "/root/etc/pki/ca-trust/source/anchors/politely-MARK.pem";
    assert_eq!(fake.install(StoreKind::System), [format!("system: wrote {file}, ran update-ca-trust")]);
    assert_eq!(fake.calls(), "update-ca-trust\n");
}

#[test]
fn missing_store_or_tool_is_reported_with_the_package() {
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
        ["error: system: update-ca-certificates is missing | install the package ca-certificates, which contains it"]
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
fn install_adds_the_authority_to_every_browser_profile() {
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
    assert!(calls.contains("certutil -A -t C,, -n politely-MARK -i PEM -d sql:/home/.pki/nssdb\n"), "{calls}");
    assert_eq!(calls.lines().count(), 9);
}

#[test]
fn chromium_databases_are_found_in_both_locations() {
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
fn install_creates_a_missing_chromium_database() {
    let fake = Fake::new();
    fake.tool("chromium", "");
    fake.tool("certutil", "test \"$1\" != -L");
    assert_eq!(fake.uninstall(StoreKind::Browsers), ["browsers: no database of Chromium's or Firefox's was found"]);
    assert_eq!(
        fake.install(StoreKind::Browsers),
        ["browsers: made /home/.pki/nssdb and added to it; restart the browser"]
    );
    assert!(fake.calls().contains("certutil -N --empty-password -d sql:/home/.pki/nssdb\n"));
    fake.tool("certutil", "echo no room >&2; exit 1");
    assert!(
        fake.install(StoreKind::Browsers)[0]
            .starts_with("error: browsers: /home/.pki/nssdb cannot be created: no room")
    );
}

impl Fake {
    /// A certutil that stores names in the database file.
    fn certutil(&self) {
        let script = r#"op=$1; n=; while [ $# -gt 0 ]; do case $1 in -n) n=$2;; -d) d=${2#sql:};; esac; shift; done
            f=$d/cert9.db
            case $op in
            -N) : > $f; : > $d/key4.db; : > $d/pkcs11.txt;;
            -A) echo "$n C,," >> $f;;
            -D) grep -q "^$n " $f || exit 1; grep -v "^$n " $f > $f.new; mv $f.new $f;;
            -L) if [ "$n" ]; then grep -q "^$n " $f; else printf '\nCertificate Nickname   Trust Attributes\n      SSL,S/MIME,JAR/XPI\n\n'; cat $f; fi;;
            -K) exit 255;;
            esac"#;
        self.tool("certutil", script);
    }

    fn run(&self) -> (Option<Loan>, Vec<TrustOutcome>) {
        self.run_within(Duration::from_secs(60))
    }

    /// `patience`: time limit of all tools.
    fn run_within(&self, patience: Duration) -> (Option<Loan>, Vec<TrustOutcome>) {
        let (root, home, path) = (self.at("root"), Some(self.at("home")), vec![self.at("bin")]);
        let machine = UserMachine { root, home, data: None, java_home: None, path, patience };
        loan::lend(machine, &self.ca, &self.at("cache")).unwrap()
    }

    /// The content of the database, or `None` if it does not exist.
    fn held(&self, database: &str) -> Option<String> {
        let held = fs::read_to_string(self.at(database).join("cert9.db")).ok()?;
        Some(held.replace(&self.ca.mark(), "MARK"))
    }
}

const CHROMIUMS: &str = "home/.pki/nssdb";
const FIREFOXS: &str = "home/.mozilla/firefox/a.default";

#[test]
fn run_removes_its_authority_from_browser_databases() {
    let fake = Fake::new();
    let (loan, failed) = fake.run();
    assert!(loan.is_none() && failed.is_empty() && !fake.at("cache").exists(), "there is no browser");
    fake.certutil();
    fake.tool("chromium", "");
    fake.file(&format!("{FIREFOXS}/cert9.db"));
    fs::write(fake.at(FIREFOXS).join("cert9.db"), "theirs u,u,u\n").unwrap();
    for _ in 0..2 {
        let (loan, failed) = fake.run();
        assert_eq!(failed, []);
        assert_eq!(fake.held(CHROMIUMS).as_deref(), Some("run-of-politely-MARK C,,\n"));
        assert_eq!(fake.held(FIREFOXS).as_deref(), Some("theirs u,u,u\nrun-of-politely-MARK C,,\n"));
        drop(loan);
        assert_eq!(fake.held(FIREFOXS).as_deref(), Some("theirs u,u,u\n"));
        assert!(!fake.at("home/.pki").exists(), "the database of the run is removed");
    }
}

#[test]
fn last_run_removes_the_authority_including_that_of_a_killed_run() {
    let fake = Fake::new();
    fake.certutil();
    fake.file(&format!("{CHROMIUMS}/cert9.db"));
    fs::write(fake.at(CHROMIUMS).join("cert9.db"), "run-of-politely-another C,,\n").unwrap();
    let (first, second) = (fake.run().0, fake.run().0);
    drop(first);
    assert!(fake.held(CHROMIUMS).unwrap().ends_with("run-of-politely-MARK C,,\n"));
    drop(second);
    assert_eq!(fake.held(CHROMIUMS).as_deref(), Some(""));
}

#[test]
fn installed_authority_survives_a_run() {
    let fake = Fake::new();
    fake.certutil();
    fake.tool("chromium", "");
    let (loan, _) = fake.run();
    assert_eq!(fake.install(StoreKind::Browsers), ["browsers: added to /home/.pki/nssdb; restart the browser"]);
    drop(loan);
    assert_eq!(
        fake.held(CHROMIUMS).as_deref(),
        Some("politely-MARK C,,\n"),
        "the database of the run stays, as it is in use"
    );
    drop(fake.run());
    assert_eq!(fake.held(CHROMIUMS).as_deref(), Some("politely-MARK C,,\n"));
}

#[test]
fn database_that_cannot_be_changed_is_left_unchanged() {
    let fake = Fake::new();
    fake.file(&format!("{CHROMIUMS}/cert9.db"));
    assert!(matches!(&*fake.run().1, [TrustOutcome::Failed { what, .. }] if what.starts_with("certutil is missing")));
    fake.tool("certutil", "test \"$1\" != -L && test \"$1\" != -A || exit 1");
    assert!(
        matches!(&*fake.run().1, [TrustOutcome::Failed { what, .. }] if what.starts_with("certutil cannot change"))
    );
    let undone = "certutil -D -n run-of-politely-MARK -d sql:/home/.pki/nssdb -f /dev/null\n";
    assert!(fake.calls().contains(undone), "nobody is asked for a password");
}

#[test]
fn hanging_certutil_is_killed_and_not_restarted() {
    let fake = Fake::new();
    fake.file(&format!("{CHROMIUMS}/cert9.db"));
    fake.file(&format!("{FIREFOXS}/cert9.db"));
    fake.tool("certutil", "exec sleep 600");
    let (loan, failed) = fake.run_within(Duration::from_secs(2));
    let says = |outcome: &TrustOutcome| matches!(outcome, TrustOutcome::Failed { what, .. } if what.contains("bin/certutil did not end in time"));
    assert!(failed.len() == 2 && failed.iter().all(says), "{failed:?}");
    assert_eq!(fake.calls().lines().count(), 1, "no call for the other database");
    drop(loan);
    assert_eq!(fake.calls().lines().count(), 1, "no call at the end of the run");
}

/// The browser may have put the user's own certificates into the database since the run created it.
#[test]
fn database_made_by_run_is_kept_if_its_content_is_unknown() {
    let fake = Fake::new();
    fake.tool("chromium", "");
    fake.certutil();
    let (loan, failed) = fake.run();
    assert!(failed.is_empty() && fake.held(CHROMIUMS).is_some(), "{failed:?}");
    fake.tool("certutil", "exit 1");
    drop(loan);
    assert!(fake.held(CHROMIUMS).is_some());
    fake.certutil();
    drop(fake.run());
    assert_eq!(fake.held(CHROMIUMS), None, "the next run removes it");
}

/// Each call alone ends in time, but not all of them together.
#[test]
fn certutil_calls_share_one_time_limit() {
    let fake = Fake::new();
    (0..10).for_each(|number| fake.file(&format!("home/.mozilla/firefox/{number}.default/cert9.db")));
    fake.tool("certutil", "sleep 0.2; test \"$1\" != -L");
    let (_loan, failed) = fake.run_within(Duration::from_millis(900));
    let says = |outcome: &TrustOutcome| matches!(outcome, TrustOutcome::Failed { what, .. } if what.contains("did not end in time"));
    assert!(failed.iter().any(says), "{failed:?}");
}

#[test]
fn install_skips_and_uninstall_clears_databases_with_the_authority() {
    let fake = Fake::new();
    fake.file("home/.pki/nssdb/cert9.db");
    fake.tool("certutil", &format!("echo politely-{} C,,", fake.ca.mark()));
    assert_eq!(fake.install(StoreKind::Browsers), ["browsers: the authority was in /home/.pki/nssdb already"]);
    fake.calls();
    assert_eq!(fake.uninstall(StoreKind::Browsers), ["browsers: removed from /home/.pki/nssdb; restart the browser"]);
    assert!(fake.calls().ends_with("certutil -D -n politely-MARK -d sql:/home/.pki/nssdb\n"));
    let is_locked = "test \"$1\" = -L || { echo locked >&2; exit 1; }";
    fake.tool("certutil", &format!("{is_locked}; echo politely-{} C,,", fake.ca.mark()));
    let told = fake.uninstall(StoreKind::Browsers);
    assert_eq!(
        told,
        ["error: browsers: certutil cannot change /home/.pki/nssdb: locked | close the browser and try again"]
    );
}

#[test]
fn certutil_is_required_only_if_a_browser_exists() {
    let fake = Fake::new();
    assert_eq!(fake.install(StoreKind::Browsers), ["browsers: no database of Chromium's or Firefox's was found"]);
    fake.file("home/.pki/nssdb/cert9.db");
    assert_eq!(
        fake.install(StoreKind::Browsers),
        ["error: browsers: certutil is missing, which is needed to change /home/.pki/nssdb | install the package \
             libnss3-tools (Debian) or nss-tools (Fedora), which contains it"]
    );
}

#[test]
fn firefox_policy_installs_the_authority_in_new_profiles() {
    let fake = Fake::new();
    fake.tool("firefox", "");
    let policies = fake.at("root/etc/firefox/policies");
    let read = || fs::read_to_string(policies.join("policies.json")).ok();
    let added = "browsers: added to /root/etc/firefox/policies/policies.json, for new profiles of Firefox";
    assert_eq!(fake.install(StoreKind::Browsers)[1], added);
    let certificate = policies.join(format!("politely-{}.pem", fake.ca.mark()));
    assert_eq!(fs::read_to_string(&certificate).unwrap(), fake.ca.cert_pem());
    let removed = "browsers: removed from /root/etc/firefox/policies/policies.json";
    assert_eq!(fake.uninstall(StoreKind::Browsers)[1], removed);
    assert_eq!((read(), certificate.exists()), (None, false), "the file is removed, as it had no other entry");
    assert_eq!(fake.uninstall(StoreKind::Browsers).len(), 1);
    // The entries of an administrator stay.
    let theirs = r#"{"policies": {"Certificates": {"Install": ["/theirs.pem"]}, "DisableAppUpdate": true}}"#;
    fs::write(policies.join("policies.json"), theirs).unwrap();
    for _ in 0..2 {
        assert_eq!(fake.install(StoreKind::Browsers)[1], added);
    }
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let both = json(&read().unwrap())["policies"]["Certificates"]["Install"].clone();
    assert_eq!(both, serde_json::json!(["/theirs.pem", certificate.to_str().unwrap()]));
    fake.uninstall(StoreKind::Browsers);
    assert_eq!(json(&read().unwrap()), json(theirs));
    fs::write(policies.join("policies.json"), "[").unwrap();
    let told = &fake.install(StoreKind::Browsers)[1];
    assert!(told.starts_with("error: browsers: /root/etc/firefox/policies/policies.json cannot be changed"), "{told}");
    assert_eq!(read().as_deref(), Some("["));
}

/// A file that is replaced whole stays as it was if the disk is full.
#[test]
fn policy_file_is_replaced_atomically_with_its_mode() {
    let fake = Fake::new();
    fake.tool("firefox", "");
    let policies = fake.at("root/etc/firefox/policies/policies.json");
    fs::create_dir_all(policies.parent().unwrap()).unwrap();
    let (target, theirs) = (fake.at("theirs.json"), r#"{"policies": {"DisableAppUpdate": true}}"#);
    fs::write(&target, theirs).unwrap();
    fs::set_permissions(&target, Permissions::from_mode(0o640)).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&target, Some(61_184), Some(61_185)).unwrap();
    }
    std::os::unix::fs::symlink(&target, &policies).unwrap();
    let about = || target.metadata().map(|it| (it.mode(), it.uid(), it.gid())).unwrap();
    let before = about();
    let present = || fs::read_to_string(&target).unwrap();
    for is_there in [true, false] {
        let (open, now) = (fs::File::open(&policies).unwrap(), present());
        if is_there {
            fake.install(StoreKind::Browsers)
        } else {
            fake.uninstall(StoreKind::Browsers)
        };
        assert_eq!(io::read_to_string(open).unwrap(), now, "{is_there}");
        assert_eq!(present().contains(&fake.ca.mark()), is_there);
        assert!(policies.is_symlink() && about() == before, "{is_there}: {:?}", about());
    }
}

#[test]
fn java_keystore_is_changed_by_keytool() {
    let fake = Fake::new();
    assert_eq!(fake.install(StoreKind::Java), ["java: there is no Java on the PATH"]);
    fake.tool("java", "");
    assert_eq!(
        fake.install(StoreKind::Java),
        [
            "error: java: keytool is missing beside /bin/java | install a JDK or a whole JRE, which contains it, or set JAVA_HOME"
        ]
    );
    fake.tool("keytool", "test \"$1\" != -list");
    assert_eq!(fake.install(StoreKind::Java), ["java: added to the keystore of /bin/keytool as politely-MARK"]);
    let import =
        "keytool -importcert -noprompt -trustcacerts -cacerts -storepass changeit -alias politely-MARK -file PEM\n";
    assert!(fake.calls().ends_with(import));
    fake.tool("keytool", &format!("echo politely-{}, Jun 24, 2025, trustedCertEntry,", fake.ca.mark()));
    assert_eq!(fake.uninstall(StoreKind::Java), ["java: removed politely-MARK from the keystore of /bin/keytool"]);
    assert!(fake.calls().ends_with("keytool -delete -cacerts -storepass changeit -alias politely-MARK\n"));
}

#[test]
fn install_without_only_visits_every_store() {
    let fake = Fake::new();
    let places: Vec<StoreKind> = fake.machine.install(&fake.ca, &[]).unwrap().iter().map(|step| step.place).collect();
    assert_eq!(places, [StoreKind::System, StoreKind::Browsers, StoreKind::Java]);
    assert!(Path::new("/usr/sbin").is_absolute() && UserMachine::here().path.contains(&PathBuf::from("/usr/sbin")));
}

/// With `sudo -E`, root's `HOME` is another user's. A database there could name any library for certutil to load.
#[test]
fn root_leaves_databases_of_other_users_alone() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: this needs root");
    }
    let fake = Fake::new();
    fake.tool("chromium", "");
    fake.tool("certutil", "");
    fake.tool("keytool", "");
    let home = fake.at("home");
    fs::create_dir_all(home.join(".pki/nssdb")).unwrap();
    fs::write(home.join(".pki/nssdb/cert9.db"), "").unwrap();
    std::os::unix::fs::chown(&home, Some(1234), Some(1234)).unwrap();
    for told in [fake.install(StoreKind::Browsers), fake.uninstall(StoreKind::Browsers)] {
        let why = "/home/.pki/nssdb: root changes and runs nothing in /home, which belongs to the user 1234";
        assert!(told.iter().any(|step| step.contains(why)), "{told:?}");
    }
    std::os::unix::fs::chown(fake.at("bin"), Some(1234), None).unwrap();
    let told = fake.install(StoreKind::Java);
    assert!(told[0].contains("which belongs to the user 1234"), "{told:?}");
    assert_eq!(fake.calls(), "");
}
