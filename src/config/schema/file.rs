//! The sections of `politely.yaml`. Each key may be left out or `null`, as the file of defaults has it.

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
    /// Serves the directory of signing keys to anybody.
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
    /// Host names by which callers reach it, besides `localhost` and IP addresses.
    pub hosts: Vec<HostPattern>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Mode {
    Enforce,
    /// Nothing is refused or delayed; only what would have been is reported.
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
    /// What the fetched pages are used for, in the vocabulary of `Content-Signal` and `Content-Usage`.
    pub purpose: Vec<Purpose>,
    /// The names of purposes in robots.txt.
    pub policy_tokens: PolicyTokens,
    /// What this instance is called in `Via`. `None`: a name that is made once and kept.
    pub instance: Option<InstanceName>,
    pub signature: SignatureSettings,
    /// Where requests come from, as it is published.
    pub addresses: Vec<Network>,
}

/// Fetching, storing and parsing robots.txt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RobotsSettings {
    pub min_ttl: Duration,
    pub max_ttl: Duration,
    /// Most bytes of one file that are read, after decoding.
    #[serde(deserialize_with = "text::one")]
    pub max_size: u64,
    /// Time for a whole fetch, including redirects.
    pub timeout: Duration,
    /// Status 400–499 except 429, or too many redirects.
    pub on_unavailable: Fallback,
    /// Status 401 or 403.
    pub on_auth_error: Fallback,
    /// Unreachable for 30 days without a copy.
    pub on_long_unreachable: Fallback,
    /// Status for clients while robots.txt is unreachable: 503 or 403.
    pub unreachable_status: u16,
    /// Status for clients if a rule disallows: 400 to 499.
    pub deny_status: u16,
    pub user_agent_match: UserAgentMatch,
    pub precedence: Precedence,
    /// The forms of a path to judge.
    pub paths: Paths,
    pub visit_time: OnVisitTime,
    /// Reads Content-Signal and Content-Usage leniently, as probably meant.
    pub lenient_usage: bool,
}

/// What is allowed on a host without a readable robots.txt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    Allow,
    Disallow,
}

impl RobotsSettings {
    /// How to parse a file.
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
    /// What shares a pace: host, authority or address.
    pub key: KeyBy,
    /// Least time between the starts of two requests, whatever robots.txt says.
    pub min_delay: Duration,
    pub adaptive: Option<WrittenAdaptive>,
    pub breaker: Option<WrittenBreaker>,
    /// For each key.
    pub budget: Option<WrittenBudget>,
    pub min_revisit: Option<Duration>,
    pub max_crawl_delay: Duration,
    /// Requests in flight for one key; always 1 if a crawl delay applies.
    pub max_concurrent: NonZeroU32,
    /// Longest time a request is held before it is answered 429.
    pub max_wait: Duration,
    /// Most waiting requests for one key.
    pub queue: usize,
    /// Most waiting requests in all.
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
    /// A page's images, scripts and styles follow it without delay.
    Burst,
}

/// Where requests may be sent, and how.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct EgressSettings {
    /// Allowed although private or special-purpose.
    pub allow: Vec<Network>,
    /// Denied although public; overrides `allow`.
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
    /// Not a configuration key. A host that an earlier process could not reach is retried at once, for a command that somebody waits
    /// for.
    #[serde(skip)]
    pub is_impatient: bool,
    /// Not a configuration key. No copy that others have fetched before is used.
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
    /// `None`: there is none.
    #[serde(default, deserialize_with = "text::some")]
    pub directory: Option<PathBuf>,
    /// Bytes on disk.
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
    /// The server shared by all instances. Stands for `pace` and `copies`.
    #[serde(default, deserialize_with = "secrets::some_fleet_url")]
    pub(in crate::config) url: Option<SecretUrl>,
    /// The server of the paces.
    #[serde(default, deserialize_with = "secrets::some_fleet_url")]
    pub(in crate::config) pace: Option<SecretUrl>,
    /// That of the copies of robots.txt.
    #[serde(default, deserialize_with = "secrets::some_fleet_url")]
    pub(in crate::config) copies: Option<SecretUrl>,
    /// The least number of instances. `None`: as many as the server has seen.
    pub instances: Option<NonZeroU32>,
}

impl FleetSettings {
    /// The server that has the paces. `None`: no fleet.
    pub fn paces(&self) -> Option<&SecretUrl> {
        self.pace.as_ref().or(self.url.as_ref())
    }

    /// The one that has copies of robots.txt, where that is another.
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

/// Limits on every wait and on what a peer may use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LimitSettings {
    /// For receiving a request's whole header block.
    pub header_timeout: Duration,
    /// For a connection without a request.
    pub idle_timeout: Duration,
    /// For connecting to an origin, including TLS.
    pub connect_timeout: Duration,
    /// Between two reads of a body or an answer.
    pub read_timeout: Duration,
    /// For a tunnel or WebSocket without traffic.
    pub tunnel_idle_timeout: Duration,
    /// Least bytes per second of a body, averaged over `read_timeout`.
    #[serde(deserialize_with = "text::one")]
    pub min_rate: u64,
    #[serde(deserialize_with = "text::one")]
    pub max_header_size: u64,
    /// Concurrent client connections.
    pub max_connections: NonZeroUsize,
    /// Of these, connections of one client.
    pub max_connections_per_client: NonZeroUsize,
    /// Idle connections to origins, kept for reuse.
    pub max_idle_connections: usize,
    /// Of these, connections to one host.
    pub max_idle_connections_per_host: usize,
    /// Concurrent fetches of robots.txt.
    pub max_robots_fetches: NonZeroUsize,
    /// Not a configuration key. Threads for bodies that take long to decode and files that take long to compile. `None`: half of the cores.
    #[serde(skip)]
    pub workers: Option<usize>,
    /// How long the proxy continues to accept after it is asked to stop; `/readyz` reports the stop at once.
    pub shutdown_delay: Duration,
    /// Time for requests in flight to finish when the proxy is stopped.
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
