//! The sections of `politely.yaml`. A key that is left out or `null` takes its value from the file of defaults.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::config::state_directory;
use crate::policy::{Allowlist, HostPattern, KeyBy, ListedBy, Paths};
use crate::robots::{ParseOptions, Precedence, ProductToken, Purpose, UserAgentMatch};

use super::manners::{self, WrittenAdaptive, WrittenBreaker, WrittenBudget};
use super::policy_tokens::PolicyTokens;
use super::secrets::{self, SecretUrl};
use super::signature::SignatureSettings;
use super::text;
use super::values::{self, AccessLog, DenyEntry, InstanceName, ListenAddress, MethodName, Network, PortRange};

/// A socket for clients.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a listener\nhint: write `listen: [{ address: 127.0.0.1:3128 }]`")]
#[non_exhaustive]
pub struct Listener {
    pub address: ListenAddress,
    /// If set, clients use TLS to the proxy itself.
    pub tls: Option<ListenerTls>,
    /// Whether the socket also serves the directory of signing keys, to anybody.
    #[serde(default)]
    pub directory: bool,
}

impl Listener {
    /// Whether clients must present a certificate.
    pub(in crate::config) fn takes_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ListenerTls {
    /// The certificate and its chain, PEM.
    #[serde(deserialize_with = "text::one")]
    pub certificate: PathBuf,
    #[serde(deserialize_with = "text::one")]
    pub key: PathBuf,
    /// If set, clients must present a certificate of one of these authorities.
    #[serde(default, deserialize_with = "text::some")]
    pub client_ca: Option<PathBuf>,
}

/// Metrics, API and dashboard.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AdminSettings {
    /// `None`, written `off`: no admin address.
    #[serde(deserialize_with = "text::one")]
    pub address: Option<ListenAddress>,
    /// The file with the token that callers must send.
    #[serde(default, deserialize_with = "text::some")]
    pub token_file: Option<PathBuf>,
    /// Host names by which callers reach the admin address, besides `localhost` and IP addresses.
    pub hosts: Vec<HostPattern>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Mode {
    Enforce,
    /// Refuses and delays no request, but reports the refusals and delays that would apply.
    Report,
}

/// The identity of the crawler.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct IdentitySettings {
    /// Empty: taken from each request's `User-Agent`.
    pub product_tokens: Vec<ProductToken>,
    /// A URL or address for the `User-Agent` of robots.txt fetches; empty: none.
    #[serde(deserialize_with = "text::one")]
    pub contact: String,
    /// If set, replaces every request's `User-Agent`.
    #[serde(default, deserialize_with = "text::some")]
    pub user_agent: Option<String>,
    /// The purposes for which fetched pages are used, in the vocabulary of `Content-Signal` and `Content-Usage`.
    pub purpose: Vec<Purpose>,
    /// The names by which groups of a robots.txt stand for a purpose, such as `Google-Extended` for `ai-train`.
    pub policy_tokens: PolicyTokens,
    /// The name of this instance in `Via`. `None`: a name that is generated once and stored.
    pub instance: Option<InstanceName>,
    pub signature: SignatureSettings,
    /// The published addresses that requests come from.
    pub addresses: Vec<Network>,
}

/// Fetching, storing and parsing robots.txt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RobotsSettings {
    pub min_ttl: Duration,
    pub max_ttl: Duration,
    /// Maximum number of bytes read of one file, after decoding.
    #[serde(deserialize_with = "text::one")]
    pub max_size: u64,
    /// Maximum time for a whole fetch, including redirects.
    pub timeout: Duration,
    /// What to do after status 400–499 except 429, or too many redirects.
    pub on_unavailable: Fallback,
    /// What to do after status 401 or 403.
    pub on_auth_error: Fallback,
    /// What to do if robots.txt was unreachable for 30 days and there is no copy.
    pub on_long_unreachable: Fallback,
    /// Status of answers to clients while robots.txt is unreachable: 503 or 403.
    pub unreachable_status: u16,
    /// Status of answers to clients if a rule disallows the URL: 400 to 499.
    pub deny_status: u16,
    pub user_agent_match: UserAgentMatch,
    pub precedence: Precedence,
    /// Whether rules judge only the path as sent, or also the forms that common servers make of it.
    pub paths: Paths,
    pub visit_time: OnVisitTime,
    /// Whether to read Content-Signal and Content-Usage leniently, as they were probably meant.
    pub lenient_usage: bool,
}

/// The access to a host without a readable robots.txt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    Allow,
    Disallow,
}

impl RobotsSettings {
    /// The options for parsing a robots.txt.
    pub fn parse_options(&self) -> ParseOptions {
        ParseOptions {
            user_agent_match: self.user_agent_match,
            precedence: self.precedence,
            lenient_usage: self.lenient_usage,
            max_size: usize::try_from(self.max_size).unwrap_or(usize::MAX),
            ..ParseOptions::default()
        }
    }
}

/// How to treat `Visit-time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OnVisitTime {
    Report,
    Enforce,
}

/// How fast a host may be requested.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PaceSettings {
    /// The unit that has a pace of its own: host, site or address.
    pub key: KeyBy,
    /// Minimum time between the starts of two requests, whatever robots.txt says.
    pub min_delay: Duration,
    pub adaptive: Option<WrittenAdaptive>,
    pub breaker: Option<WrittenBreaker>,
    /// The budget of each pace key.
    pub budget: Option<WrittenBudget>,
    pub min_revisit: Option<Duration>,
    pub max_crawl_delay: Duration,
    /// Maximum number of requests in flight for one key; always 1 if a crawl delay applies.
    pub max_concurrent: NonZeroU32,
    /// Maximum time for which a request is held. A request that would have to wait longer is answered 429 at once.
    pub max_wait: Duration,
    /// Maximum number of waiting requests for one key.
    pub queue: usize,
    /// Maximum number of waiting requests in all.
    pub max_waiting: usize,
    pub subresources: Subresources,
}

impl PaceSettings {
    pub(in crate::config) fn manners(&self) -> manners::WrittenManners {
        let Self { adaptive, breaker, budget, min_revisit, .. } = *self;
        manners::WrittenManners { adaptive, breaker, budget, min_revisit }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Subresources {
    Pace,
    /// A page's images, scripts and styles follow the page without delay.
    Burst,
}

/// The allowed targets of requests, and the way to reach them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct EgressSettings {
    /// Networks that are allowed although private or special-purpose.
    pub allow: Vec<Network>,
    /// Networks and hosts that are denied although public; overrides `allow`.
    pub deny: Vec<DenyEntry>,
    pub ports: Vec<PortRange>,
    /// Allowed hosts. Empty: any.
    pub hosts: Vec<HostPattern>,
    pub methods: Vec<MethodName>,
    #[serde(default, deserialize_with = "text::some")]
    pub upstream_proxy: Option<SecretUrl>,
    /// Additional roots to trust, PEM.
    #[serde(default, deserialize_with = "text::some")]
    pub ca_file: Option<PathBuf>,
}

impl EgressSettings {
    pub fn listed(&self) -> Allowlist {
        values::listed(&self.hosts, &self.methods, ListedBy::All)
    }
}

/// Copies of robots.txt and owed delays, stored across restarts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct StoreSettings {
    /// `None`: in the state directory.
    #[serde(default, deserialize_with = "text::some")]
    pub directory: Option<PathBuf>,
    #[serde(deserialize_with = "text::one")]
    pub memory: u64,
    #[serde(deserialize_with = "text::one")]
    pub disk: u64,
    /// Not a configuration key. Whether to retry at once a host that an earlier process could not reach. Set for commands that a person
    /// waits for.
    #[serde(skip)]
    pub is_impatient: bool,
    /// Not a configuration key. Whether to ignore the copies that other processes have fetched.
    #[serde(skip)]
    pub is_fresh: bool,
}

impl StoreSettings {
    /// The configured or default directory.
    pub fn place(&self) -> PathBuf {
        self.directory.clone().unwrap_or_else(state_directory)
    }
}

/// A cache of answers, shared by all clients.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CacheSettings {
    /// `None`: no cache.
    #[serde(default, deserialize_with = "text::some")]
    pub directory: Option<PathBuf>,
    /// Maximum bytes on disk.
    #[serde(deserialize_with = "text::one")]
    pub size: u64,
}

/// A record of each decision.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct EvidenceSettings {
    /// `None`: no evidence is kept.
    #[serde(default, deserialize_with = "text::some")]
    pub directory: Option<PathBuf>,
    pub keep: Duration,
}

/// The instances that share their paces. `URL` is short for `{ url: URL }`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FleetSettings {
    /// The server shared by all instances: short for setting both `pace` and `copies`.
    #[serde(default, deserialize_with = "secrets::some_fleet_url")]
    pub(in crate::config) url: Option<SecretUrl>,
    /// The server for the paces.
    #[serde(default, deserialize_with = "secrets::some_fleet_url")]
    pub(in crate::config) pace: Option<SecretUrl>,
    /// The server for the copies of robots.txt.
    #[serde(default, deserialize_with = "secrets::some_fleet_url")]
    pub(in crate::config) copies: Option<SecretUrl>,
    /// Minimum number of instances. `None`: the number that the server has seen.
    pub instances: Option<NonZeroU32>,
}

impl FleetSettings {
    /// The server for the paces. `None`: no fleet.
    pub fn paces(&self) -> Option<&SecretUrl> {
        self.pace.as_ref().or(self.url.as_ref())
    }

    /// The server for the copies of robots.txt, if it is not the server for the paces.
    pub fn copies_apart(&self) -> Option<&SecretUrl> {
        self.copies.as_ref().filter(|copies| Some(*copies) != self.paces())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OnFleetLoss {
    Local,
    Refuse,
}

/// Limits on waits, and on the resources that a peer may use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LimitSettings {
    /// Maximum time to receive a request's whole header block.
    pub header_timeout: Duration,
    /// Maximum time that a connection without a request stays open.
    pub idle_timeout: Duration,
    /// Maximum time to connect to an origin, including TLS.
    pub connect_timeout: Duration,
    /// Maximum time between two reads of a body or an answer.
    pub read_timeout: Duration,
    /// Maximum time that a tunnel or WebSocket without traffic stays open.
    pub tunnel_idle_timeout: Duration,
    /// Minimum bytes per second of a body, averaged over `read_timeout`.
    #[serde(deserialize_with = "text::one")]
    pub min_rate: u64,
    #[serde(deserialize_with = "text::one")]
    pub max_header_size: u64,
    /// Maximum number of concurrent client connections.
    pub max_connections: NonZeroUsize,
    /// Maximum number of concurrent connections of one client.
    pub max_connections_per_client: NonZeroUsize,
    /// Maximum number of idle connections to origins, kept for reuse.
    pub max_idle_connections: usize,
    /// Maximum number of idle connections to one host.
    pub max_idle_connections_per_host: usize,
    /// Maximum number of concurrent fetches of robots.txt.
    pub max_robots_fetches: NonZeroUsize,
    /// Not a configuration key. Number of threads for decoding long bodies and compiling long files. `None`: half of the cores.
    #[serde(skip)]
    pub workers: Option<usize>,
    /// How long the proxy continues to accept connections after it is asked to stop; `/readyz` reports the stop at once.
    pub shutdown_delay: Duration,
    /// Maximum time for requests in flight to finish when the proxy is stopped.
    pub drain_timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LogSettings {
    pub level: LogLevel,
    pub format: LogFormat,
    pub access: AccessLog,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LogFormat {
    Text,
    Json,
}
