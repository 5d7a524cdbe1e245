//! Requests signed by the operator (Web Bot Auth): what leaves with a signature, what does not, and where the keys are told.

use crate::support::binary::{politely, politely_with};
use crate::support::client::get;
use crate::support::websocket::WebSocket;
use crate::support::{Alpn, Client, Conduct, Origin, Parent, Proxy, Reply, Seen, test_ca};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tempfile::TempDir;

const AGENT: &str = "https://bot.example";
const DIRECTORY: &str = "/.well-known/http-message-signatures-directory";

/// Keys in files, and the settings that sign by the first.
pub struct Keys {
    home: TempDir,
    directory: Value,
}

impl Keys {
    pub async fn make(names: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        for name in names {
            let made = politely(&["identity", "keygen", home.path().join(name).to_str().unwrap()]).await;
            assert_eq!(made.code, 0, "{made:?}");
        }
        let mut keys = Keys { home, directory: Value::Null };
        let others: Vec<_> = names[1..].iter().map(|name| keys.path(name).display().to_string()).collect();
        let variables = [
            ("POLITELY_IDENTITY__SIGNATURE__KEY", keys.path(names[0]).display().to_string()),
            ("POLITELY_IDENTITY__SIGNATURE__OTHER_KEYS", format!("{others:?}")),
            ("POLITELY_IDENTITY__SIGNATURE__AGENT", AGENT.to_owned()),
        ];
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let told = politely_with(&["identity", "directory"], &variables).await;
        keys.directory = serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{told:?}"));
        keys
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn settings(&self, name: &str, more: &str) -> String {
        format!("identity: {{ signature: {{ key: '{}', agent: '{AGENT}', {more} }} }}", self.path(name).display())
    }

    fn public(&self, id: &str) -> Vec<u8> {
        let keys = self.directory["keys"].as_array().unwrap();
        let key = keys.iter().find(|key| key["kid"] == id).unwrap_or_else(|| panic!("{id} is not in the directory"));
        BASE64_URL_SAFE_NO_PAD.decode(key["x"].as_str().unwrap()).unwrap()
    }

    /// Checks the signature as RFC 9421 §3.2 has it, by the text alone; returns the key's name.
    pub fn verify(&self, seen: &Seen) -> String {
        self.verify_with(seen, "")
    }

    /// Verifies a signature that also covers this line.
    fn verify_with(&self, seen: &Seen, line: &str) -> String {
        let (agent, input) = (seen.field("signature-agent").unwrap(), seen.field("signature-input").unwrap());
        let signature = seen.field("signature").unwrap();
        assert_eq!(agent, format!("sig1=\"{AGENT}\""));
        let parameters = input.strip_prefix("sig1=").unwrap();
        let base = format!(
            "\"@authority\": {}\n\"signature-agent\";key=\"sig1\": \"{AGENT}\"\n{line}\"@signature-params\": {parameters}",
            seen.host
        );
        let id = parameters.split(";keyid=\"").nth(1).unwrap().split('"').next().unwrap();
        let bytes =
            BASE64_STANDARD.decode(signature.strip_prefix("sig1=:").unwrap().strip_suffix(':').unwrap()).unwrap();
        UnparsedPublicKey::new(&ED25519, self.public(id)).verify(base.as_bytes(), &bytes).expect("it is good");
        id.to_owned()
    }
}

pub fn is_signed(seen: &Seen) -> bool {
    let fields = ["signature", "signature-input", "signature-agent"].map(|name| seen.field(name).is_some());
    assert!(fields.iter().all(|is_there| *is_there == fields[0]), "all of it or nothing: {:?}", seen.fields);
    fields[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_robots_fetches_are_signed_in_both_http_versions() {
    let keys = Keys::make(&["a"]).await;
    for origin in [
        Origin::site("").await,
        Origin::tls_site(Alpn::H1, "").await,
        Origin::tls_site(Alpn::H2, "").await,
        Origin::tls_site(Alpn::Both, "").await,
    ] {
        let proxy = Proxy::start(&keys.settings("a", "")).await;
        for flag in ["--http1.1", "--http2"] {
            for _ in 0..2 {
                let got = proxy.curl(&[flag, &origin.url("/x?y")]).await;
                assert_eq!((got.code, got.status()), (0, 200), "{}", got.stderr);
            }
            assert_eq!(proxy.curl(&[flag, "-d", "body", &origin.url("/x?y")]).await.status(), 200);
        }
        let all = origin.log.all();
        assert_eq!((all.len(), origin.log.count("/robots.txt")), (7, 1));
        all.iter().for_each(|seen| drop(keys.verify(seen)));
    }
}

/// Cloudflare's pay per crawl accepts only signed prices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn price_fields_are_covered_by_the_signature() {
    let keys = Keys::make(&["a"]).await;
    for origin in [Origin::site("").await, Origin::tls_site(Alpn::H1, "").await, Origin::tls_site(Alpn::H2, "").await] {
        let proxy = Proxy::start(&keys.settings("a", "")).await;
        for (flag, name) in [("--http1.1", "Crawler-Max-Price"), ("--http2", "crawler-exact-price")] {
            let (price, url) = (format!("{name}: USD 0.01"), origin.url(&format!("/{name}")));
            assert_eq!(proxy.curl(&[flag, "-H", &price, &url]).await.status(), 200);
            let seen = origin.log.one(&format!("/{name}"));
            assert_eq!(seen.field(name), Some("USD 0.01"));
            let name = name.to_ascii_lowercase();
            assert!(seen.field("signature-input").unwrap().contains(&format!(r#" "{name}");"#)));
            keys.verify_with(&seen, &format!("\"{name}\": USD 0.01\n"));
        }
        assert_eq!(proxy.curl(&[&origin.url("/plain")]).await.status(), 200);
        keys.verify(&origin.log.one("/plain"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirected_robots_fetch_is_signed_for_its_target() {
    let keys = Keys::make(&["a"]).await;
    let other = Origin::site("User-agent: *\nDisallow: /no\n").await;
    let there = other.url_at("b.localhost", "/robots.txt");
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::redirect(there.clone()),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start(&keys.settings("a", "")).await;
    assert_eq!(proxy.get(&origin.url("/no")).await.status(), 403);
    let hop = other.log.one("/robots.txt");
    assert_eq!(hop.host, other.authority("b.localhost"));
    keys.verify(&hop);
    keys.verify(&origin.log.one("/robots.txt"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_a_key_and_client_signatures_are_left_alone() {
    let keys = Keys::make(&["a"]).await;
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    proxy.get(&origin.url("/off")).await;
    assert!(origin.log.all().iter().all(|seen| !is_signed(seen)));

    let proxy = Proxy::start(&keys.settings("a", "")).await;
    for (name, value) in [("Signature", "x=:AA==:"), ("signature-input", "x=()"), ("SIGNATURE-AGENT", "\"https://me\"")]
    {
        let target = format!("/{name}");
        let mut client = proxy.client().await;
        let host = origin.authority("a.localhost");
        client.send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n{name}: {value}\r\n\r\n", origin.url(&target))).await;
        assert_eq!(client.response().await.status(), 200);
        let seen = origin.log.one(&target);
        let signature = seen.fields.iter().filter(|(name, _)| name.to_ascii_lowercase().starts_with("signature"));
        assert_eq!(signature.collect::<Vec<_>>(), [&(name.to_owned(), value.to_owned())]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_is_signed_but_tunnelled_data_is_not() {
    let keys = Keys::make(&["a"]).await;
    let origin = Origin::http(|seen| if seen.path() == "/ws" { Reply::websocket() } else { Reply::text("") }).await;
    let proxy = Proxy::start(&keys.settings("a", "")).await;
    let (mut socket, _) =
        WebSocket::open(proxy.client().await, &origin.url("/ws"), &origin.authority("a.localhost")).await.expect("101");
    assert_eq!(socket.echo(b"hello").await, b"hello");
    keys.verify(&origin.log.one("/ws"));

    let secret = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start(&format!("{}\nintercept: {{ default: tunnel }}", keys.settings("a", ""))).await;
    let client = crate::support::Client::connect(proxy.address(), &secret.authority("a.localhost")).await;
    let mut client = client.tls("a.localhost", test_ca().pem_file(), &[b"http/1.1"]).await;
    client.send(get("/x", &secret.authority("a.localhost"))).await;
    assert_eq!(client.response().await.status(), 200);
    assert!(!is_signed(&secret.log.one("/x")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_through_an_upstream_proxy_is_signed_only_for_the_origin() {
    let keys = Keys::make(&["a"]).await;
    for origin in [Origin::site("").await, Origin::tls_site(Alpn::H1, "").await] {
        let parent = Parent::start(Conduct::Serve).await;
        let yaml = format!("{}\negress: {{ upstream_proxy: '{}' }}", keys.settings("a", ""), parent.url(""));
        let proxy = Proxy::start(&yaml).await;
        assert_eq!(proxy.curl(&[&origin.url("/x")]).await.status(), 200);
        keys.verify(&origin.log.one("/x"));
        keys.verify(&origin.log.one("/robots.txt"));
        let connects = parent.asked().into_iter().filter(|head| head.start_line.starts_with(b"CONNECT"));
        assert!(connects.into_iter().all(|head| head.field("signature").is_none()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signing_key_can_be_replaced_by_reload() {
    let keys = Keys::make(&["old", "new"]).await;
    let origin = Origin::site("").await;
    let settings =
        |name: &str, other: &str| keys.settings(name, &format!("other_keys: ['{}']", keys.path(other).display()));
    let proxy = Proxy::start(&settings("old", "new")).await;
    proxy.get(&origin.url("/1")).await;
    proxy.reload(&settings("new", "old")).unwrap();
    proxy.get(&origin.url("/2")).await;
    let [one, two] = ["/1", "/2"].map(|target| keys.verify(&origin.log.one(target)));
    assert_ne!(one, two);

    std::fs::set_permissions(keys.path("new"), PermissionsExt::from_mode(0o644)).unwrap();
    let refused = proxy.reload(&settings("new", "old")).unwrap_err();
    assert!(refused.contains("can be read by users other than its owner (mode 0644)"), "{refused}");
    proxy.get(&origin.url("/3")).await;
    assert_eq!(keys.verify(&origin.log.one("/3")), two, "all stays as it was");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signature_card_and_addresses_are_served_with_the_key_directory() {
    let keys = Keys::make(&["a"]).await;
    let identity =
        keys.settings("a", "").replacen("{ ", "{ product_tokens: [ExampleBot], addresses: [192.0.2.0/24], ", 1);
    let yaml = format!(
        "listen: [{{ address: '127.0.0.1:0', directory: true }}]\nadmin: {{ address: '127.0.0.1:0' }}\n{identity}"
    );
    let proxy = Proxy::start(&yaml).await;
    for address in [proxy.address(), proxy.admin_address()] {
        let get = async |path: &str| Client::open(address).await.get(path, "bot.example").await;
        let card = get("/signature-agent-card").await;
        assert_eq!((card.status(), card.field("content-type")), (200, Some("application/json")));
        let link = "<https://bot.example/client-ranges.json>; rel=\"client-ranges\"";
        assert_eq!(card.field("link"), Some(link));
        let card: Value = serde_json::from_str(&card.text()).unwrap();
        assert_eq!(card["client_id"], format!("{AGENT}/signature-agent-card"));
        assert_eq!(card["web_bot_auth"]["rfc9309-product-token"], "ExampleBot");
        let ranges: Value = serde_json::from_str(&get("/client-ranges.json").await.text()).unwrap();
        assert_eq!(ranges["prefixes"], serde_json::json!([{ "ipv4Prefix": "192.0.2.0/24" }]));
        assert_eq!(get(DIRECTORY).await.status(), 200);
    }
    let home = keys.path("politely.yaml");
    std::fs::write(&home, &yaml).unwrap();
    let config = home.to_str().unwrap();
    let told = politely(&["identity", "card", "--config", config]).await;
    let card: Value = serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{told:?}"));
    assert_eq!(card["web_bot_auth"]["ips_uri"], format!("{AGENT}/client-ranges.json"));
    let told = politely(&["identity", "addresses", "--config", config]).await;
    assert!(told.code == 0 && told.stdout.contains("\"ipv4Prefix\": \"192.0.2.0/24\""), "{told:?}");
    let told = politely(&["identity", "show", "--config", config]).await;
    assert!(
        told.stdout.contains("<link rel=\"client-ranges\" href=\"https://bot.example/client-ranges.json\">"),
        "{told:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_listener_serves_the_key_directory_to_anybody_but_nothing_else() {
    let keys = Keys::make(&["a", "b"]).await;
    let (certificate, key) = test_ca().pem_pair("bot.example");
    let (chain, private) = (keys.path("chain.pem"), keys.path("tls.pem"));
    std::fs::write(&chain, certificate).unwrap();
    std::fs::write(&private, key).unwrap();
    let more = format!("other_keys: ['{}']", keys.path("b").display());
    let tls = format!("tls: {{ certificate: '{}', key: '{}' }}", chain.display(), private.display());
    let yaml = format!(
        "listen: [{{ address: '127.0.0.1:0', directory: true }}, {{ address: '127.0.0.1:0', directory: true, {tls} }}, \
         {{ address: '127.0.0.1:0' }}]\naccess: {{ clients: [192.0.2.1] }}\nadmin: {{ address: '127.0.0.1:0' }}\n{}",
        keys.settings("a", &more)
    );
    let proxy = Proxy::start(&yaml).await;
    let [plain, secure, closed] = proxy.addresses()[..] else { panic!("three") };
    let roots = test_ca().pem_file().to_str().unwrap();
    let to = format!("bot.example:443:{secure}");
    let secure = format!("https://bot.example{DIRECTORY}");
    let (plain, closed) = (format!("http://{plain}"), format!("http://{closed}"));
    let admin = format!("http://{}{DIRECTORY}", proxy.admin_address());
    for arguments in [
        &[&*format!("{plain}{DIRECTORY}")][..],
        &["--connect-to", &to, "--cacert", roots, "--http1.1", &secure],
        &["--connect-to", &to, "--cacert", roots, "--http2", &secure],
        &[&admin],
        &["-H", "Host: bot.example", &admin],
    ] {
        let got = crate::support::curl(arguments).await;
        assert_eq!((got.code, got.status()), (0, 200), "{arguments:?}: {} {}", got.stderr, got.text());
        let field = |name| got.head().field(name).unwrap_or_else(|| panic!("{name}: {arguments:?}")).to_owned();
        assert_eq!(field("content-type"), "application/http-message-signatures-directory+json");
        let told: Value = serde_json::from_str(&got.text()).unwrap();
        assert_eq!((&told, told["keys"].as_array().unwrap().len()), (&keys.directory, 2));
        let sum = BASE64_STANDARD.encode(digest(&SHA256, got.text().as_bytes()));
        assert_eq!(field("content-digest"), format!("sha-256=:{sum}:"));
        let (inputs, signatures) = (field("signature-input"), field("signature"));
        assert_eq!(inputs.split(", ").count(), 2);
        for (input, signature) in inputs.split(", ").zip(signatures.split(", ")) {
            let (_, parameters) = input.split_once('=').unwrap();
            let base = format!(
                "\"@authority\";req: bot.example\n\"content-digest\": sha-256=:{sum}:\n\"@signature-params\": {parameters}"
            );
            let id = parameters.split(";keyid=\"").nth(1).unwrap().split('"').next().unwrap();
            let (_, coded) = signature.split_once("=:").unwrap();
            let bytes = BASE64_STANDARD.decode(coded.trim_end_matches(':')).unwrap();
            UnparsedPublicKey::new(&ED25519, keys.public(id)).verify(base.as_bytes(), &bytes).expect("it is good");
        }
    }
    let head = crate::support::curl(&["-I", &format!("{plain}{DIRECTORY}")]).await;
    // curl shows the head in place of the body.
    assert_eq!((head.status(), head.text().ends_with("\r\n\r\n")), (200, true));
    for (arguments, status) in [
        (&[&*format!("{closed}{DIRECTORY}")][..], 400),
        (&[&*format!("{plain}/other")], 400),
        (&["-X", "POST", &*format!("{plain}{DIRECTORY}")], 400),
        (&["-x", &plain, &*format!("http://a.localhost:1{DIRECTORY}")], 403),
    ] {
        assert_eq!(crate::support::curl(arguments).await.status(), status, "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identity_command_creates_shows_and_checks_keys() {
    let keys = Keys::make(&["a", "b"]).await;
    let [a, b] = ["a", "b"].map(|name| keys.path(name));
    let mode = std::fs::metadata(&a).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = politely(&["identity", "keygen", a.to_str().unwrap()]).await;
    assert_eq!(again.code, 2);
    assert!(again.stderr.contains("is not replaced"), "{again:?}");

    let file = keys.path("politely.yaml");
    let yaml = keys.settings("a", &format!("other_keys: '{}'", b.display()));
    std::fs::write(&file, yaml).unwrap();
    let file = file.to_str().unwrap();
    let ids: Vec<_> =
        keys.directory["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap()).collect();
    let shown = politely(&["identity", "show", "--config", file]).await;
    assert_eq!(
        shown.stdout,
        format!(
            "signs as {AGENT}, always, with the key {}\nlists the key {}\n\
             verifiers look for the directory at {AGENT}{DIRECTORY}\nthe card is at {AGENT}/signature-agent-card\n",
            ids[0], ids[1]
        )
    );
    let checked = politely(&["check", "--config", file]).await;
    assert!(checked.stdout.contains(&format!("signs requests as {AGENT} with the key {}", ids[0])), "{checked:?}");
    assert!(checked.stdout.contains("(identity.contact)"), "{checked:?}");
    std::fs::set_permissions(&a, PermissionsExt::from_mode(0o640)).unwrap();
    let checked = politely(&["check", "--config", file]).await;
    assert_eq!(checked.code, 2);
    assert!(checked.stderr.contains(&format!("hint: `chmod 600 {}`", a.display())), "{checked:?}");
    let none = politely_with(&["identity", "show"], &[("POLITELY_CONFIG", "/dev/null")]).await;
    assert_eq!(none.code, 2);
    assert!(none.stderr.contains("nothing is signed"), "{none:?}");
}

/// systemd restricts credentials to the service's user by other means than the mode.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn systemd_credentials_may_have_any_file_mode() {
    let keys = Keys::make(&["a"]).await;
    let (directory, beside) = (keys.path("credentials"), keys.path("credentials-beside"));
    for (place, mode) in [(&directory, 0o440), (&beside, 0o440)] {
        std::fs::create_dir(place).unwrap();
        std::fs::copy(keys.path("a"), place.join("bot")).unwrap();
        std::fs::set_permissions(place.join("bot"), PermissionsExt::from_mode(mode)).unwrap();
    }
    let show = async |key: &str, credentials: &str| {
        let variables = [
            ("POLITELY_IDENTITY__SIGNATURE__KEY", key),
            ("POLITELY_IDENTITY__SIGNATURE__AGENT", AGENT),
            ("CREDENTIALS_DIRECTORY", credentials),
        ];
        politely_with(&["identity", "show"], &variables).await
    };
    let here = directory.to_str().unwrap();
    let shown = show("credential:bot", here).await;
    assert!(shown.code == 0 && shown.stdout.starts_with(&format!("signs as {AGENT}")), "{shown:?}");
    let missing = show("credential:other", here).await;
    assert!(missing.code == 2 && missing.stderr.contains("cannot read the signing key"), "{missing:?}");
    for key in [beside.join("bot"), directory.join("../credentials-beside/bot")] {
        let refused = show(key.to_str().unwrap(), here).await;
        assert!(refused.code == 2 && refused.stderr.contains("(mode 0440)"), "{key:?}: {refused:?}");
    }
    let none = show("credential:bot", "").await;
    assert!(none.code == 2, "{none:?}");
}
