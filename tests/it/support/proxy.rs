//! The proxy in this process, on port 0, with a temporary directory.

use super::authority::test_ca;
use super::client::Client;
use super::curl::{Curl, curl};
use super::h2_client::H2Client;
use super::message::Response;
use super::origin::Origin;
use politely::config::Settings;
use serde_yaml::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub struct Proxy {
    running: Option<politely::server::Running>,
    address: SocketAddr,
    directory: tempfile::TempDir,
}

impl Proxy {
    /// Starts a proxy whose settings are those of [`configuration`] with `yaml` laid over them.
    pub async fn start(yaml: &str) -> Self {
        Self::start_in(tempfile::tempdir().expect("a temporary directory"), yaml).await
    }

    /// Like [`start`](Self::start), in a directory that an earlier one used.
    pub async fn start_in(directory: tempfile::TempDir, yaml: &str) -> Self {
        Self::start_with(directory, yaml, |_| {}).await
    }

    /// Like [`start_in`](Self::start_in), with settings that no configuration has.
    pub async fn start_with(directory: tempfile::TempDir, yaml: &str, change: impl FnOnce(&mut Settings)) -> Self {
        prepare(directory.path());
        let text = configuration(directory.path(), yaml);
        let mut settings = Settings::parse("test.yaml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        change(&mut settings);
        let started = super::within("the proxy's start", politely::server::start(settings)).await;
        let running = started.unwrap_or_else(|error| panic!("the proxy starts: {error}"));
        let address = running.addresses()[0];
        Self { running: Some(running), address, directory }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn admin_address(&self) -> SocketAddr {
        let running = self.running.as_ref().expect("only the shutdown takes it");
        running.admin_address().expect("the test has switched it on")
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.running.as_ref().expect("only the shutdown takes it").addresses()
    }

    /// For `curl -x`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The certificate that clients must trust.
    pub fn ca_pem_path(&self) -> PathBuf {
        self.running.as_ref().expect("only the shutdown takes it").ca_path()
    }

    pub fn counts(&self) -> politely::proxy::Counts {
        self.running.as_ref().expect("only the shutdown takes it").counts()
    }

    /// Requests waiting for their crawl delay.
    pub fn waiting(&self) -> usize {
        self.running.as_ref().expect("only the shutdown takes it").figures().waiting
    }

    /// Fetches of robots.txt that have ended, whether or not they succeeded.
    pub fn robots_fetches(&self) -> u64 {
        let figures = self.running.as_ref().expect("only the shutdown takes it").figures().robots;
        figures.fetched[0] + figures.failed[0]
    }

    /// Whether the fleet's server answers.
    pub fn has_fleet(&self) -> bool {
        let figures = self.running.as_ref().expect("only the shutdown takes it").figures();
        figures.fleet.is_some_and(|fleet| fleet.is_up)
    }

    /// Reloads with these settings in place of those at the start.
    pub fn reload(&self, yaml: &str) -> Result<(), String> {
        let settings = Settings::parse("test.yaml", &configuration(self.directory.path(), yaml))
            .map_err(|error| error.to_string())?;
        self.running
            .as_ref()
            .expect("only the shutdown takes it")
            .reload(settings)
            .map(drop)
            .map_err(|error| error.to_string())
    }

    /// Shuts down; returns the directory for another proxy.
    pub async fn shutdown(mut self) -> tempfile::TempDir {
        let running = self.running.take().expect("only this takes it");
        super::within("the proxy's shutdown", running.shutdown()).await;
        self.directory
    }

    /// A new connection to the proxy.
    pub async fn client(&self) -> Client {
        Client::open(self.address).await
    }

    /// A GET in absolute-form on a new connection.
    pub async fn get(&self, url: &str) -> Response {
        let authority = url.split('/').nth(2).expect("an absolute URL");
        self.client().await.get(url, authority).await
    }

    /// A CONNECT to `host` at the origin's port, with intercepted TLS inside.
    pub async fn tls(&self, origin: &Origin, host: &str, alpn: &[&[u8]]) -> Client {
        let client = Client::connect(self.address, &origin.authority(host)).await;
        client.tls(host, &self.ca_pem_path(), alpn).await
    }

    /// Like [`tls`](Self::tls), with h2 inside.
    pub async fn h2(&self, origin: &Origin, host: &str) -> H2Client {
        H2Client::over(self.tls(origin, host, &[b"h2"]).await).await
    }

    /// curl through this proxy, trusting its authority.
    pub async fn curl(&self, arguments: &[&str]) -> Curl {
        let ca = self.ca_pem_path();
        let ca = ca.to_str().expect("temporary directories have UTF-8 names");
        let url = self.url();
        curl(&[&["-x", &url, "--cacert", ca], arguments].concat()).await
    }
}

/// The tests' settings with `yaml` laid over them: loopback is allowed, and the test authority is trusted.
pub fn configuration(directory: &Path, yaml: &str) -> String {
    let directory = directory.display();
    let roots = test_ca().pem_file().display();
    let base = format!(
        "listen: [{{ address: '127.0.0.1:0' }}]\n\
         intercept: {{ ca: {{ directory: '{directory}/ca' }} }}\n\
         admin: {{ address: 'off' }}\n\
         store: {{ directory: '{directory}/store' }}\n\
         egress: {{ allow: [127.0.0.0/8, '::1/128'], ports: ['1-65535'], ca_file: '{roots}' }}\n"
    );
    let mut merged: Value = serde_yaml::from_str(&base).expect("the YAML above");
    let over: Value = serde_yaml::from_str(yaml).unwrap_or_else(|error| panic!("{error}: {yaml}"));
    lay_over(&mut merged, over);
    serde_yaml::to_string(&merged).expect("YAML that was parsed")
}

/// Creates the files that [`configuration`] names and a proxy does not create: the token of the admin address.
pub fn prepare(directory: &Path) {
    let store = directory.join("store");
    // A test may have put a file in place of the directory.
    if !store.is_file() {
        std::fs::create_dir_all(&store)
            .and_then(|()| std::fs::write(store.join("admin-token"), ADMIN_TOKEN))
            .expect("it is writable");
    }
}

/// The token of the tests' admin addresses.
pub const ADMIN_TOKEN: &str = "of-the-tests";

/// The certificate file of the proxy's authority, in the directory given to [`configuration`].
pub fn ca_certificate(directory: &Path) -> PathBuf {
    let entries = std::fs::read_dir(directory.join("ca")).expect("the authority is made at the start");
    let is_certificate =
        |path: &PathBuf| std::fs::read_to_string(path).is_ok_and(|text| text.contains("BEGIN CERTIFICATE"));
    let found = entries.flatten().map(|entry| entry.path()).find(is_certificate);
    found.expect("a certificate in the authority's directory")
}

/// Merges mappings and replaces everything else; `~` removes the key.
fn lay_over(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Mapping(base), Value::Mapping(over)) => {
            for (key, value) in over {
                if value.is_null() {
                    base.remove(&key);
                } else {
                    lay_over(base.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (_, Value::Null) => {}
        (base, over) => *base = over,
    }
}
