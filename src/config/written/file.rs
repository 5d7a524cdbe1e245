//! The sections of `politely.yaml`, with the forms of their keys. Each key may be left out or `null`: the file of the defaults has
//! it.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

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
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Listener {
    pub address: ListenAddress,
    /// Set: clients speak TLS to the proxy itself.
    pub tls: Option<ListenerTls>,
    /// Anybody gets the directory of signing keys here.
    #[serde(default)]
    pub directory: bool,
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
    /// Set: clients must show a certificate of one of these authorities.
    #[serde(default, deserialize_with = "text::some")]
    pub client_ca: Option<PathBuf>,
}

/// Metrics, API and dashboard.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AdminSettings {
    /// `None`, written `off`: there is none.
    #[serde(deserialize_with = "values::address_or_off")]
    pub address: Option<ListenAddress>,
    /// Holds the token that its callers must show.
    #[serde(default, deserialize_with = "text::some")]
    pub token_file: Option<PathBuf>,
    /// Names by which callers reach it, besides `localhost` and IP addresses.
    pub hosts: Vec<HostPattern>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Mode {
    Enforce,
    /// Nothing is refused or delayed; what would have been is reported.
    Report,
}

/// Who the crawler is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct IdentitySettings {
    /// Empty: taken from each request's `User-Agent`.
    pub product_tokens: Vec<ProductToken>,
    /// A URL or address for the `User-Agent` of robots.txt fetches; empty: none.
    #[serde(deserialize_with = "text::one")]
    pub contact: String,
    /// Set: replaces every request's `User-Agent`.
    #[serde(default, deserialize_with = "text::some")]
    pub user_agent: Option<String>,
    /// What the fetched pages are for, in the words of `Content-Signal` and `Content-Usage`.
    pub purpose: Vec<Purpose>,
    /// The names of purposes in robots.txt.
    pub policy_tokens: PolicyTokens,
    /// What this instance is called in `Via`. `None`: a name that is made once and kept.
    pub instance: Option<InstanceName>,
    pub signature: SignatureSettings,
    /// Where requests come from, as it is published.
    pub addresses: Vec<Network>,
}

/// Fetching, keeping and reading robots.txt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RobotsSettings {
    pub min_ttl: Duration,
    pub max_ttl: Duration,
    /// Bytes read of one file, decoded; the rest is left.
    #[serde(deserialize_with = "text::one")]
    pub max_size: u64,
    /// For one fetch in all, redirects included.
    pub timeout: Duration,
    /// 400–499 but 429, too many redirects.
    pub on_unavailable: Fallback,
    /// 401 and 403.
    pub on_auth_error: Fallback,
    /// Unreachable for 30 days with no copy.
    pub on_long_unreachable: Fallback,
    /// The client's status while robots.txt is unreachable: 503 or 403.
    pub unreachable_status: u16,
    /// The client's status for what a rule disallows: 400 to 499.
    pub deny_status: u16,
    pub user_agent_match: UserAgentMatch,
    pub precedence: Precedence,
    /// Which forms of a path are judged.
    pub paths: Paths,
    pub visit_time: OnVisitTime,
    /// Content-Signal and Content-Usage as they were probably meant.
    pub lenient_usage: bool,
}

/// What a host without a readable robots.txt allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    Allow,
    Disallow,
}

impl RobotsSettings {
    /// How a file is read.
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

/// What is done about `Visit-time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OnVisitTime {
    Report,
    Enforce,
}

/// How fast one host may be asked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PaceSettings {
    /// What shares one pace.
    pub key: KeyBy,
    /// Between two requests' starts, whatever robots.txt says.
    pub min_delay: Duration,
    pub adaptive: Option<WrittenAdaptive>,
    pub breaker: Option<WrittenBreaker>,
    /// Of each key.
    pub budget: Option<WrittenBudget>,
    pub min_revisit: Option<Duration>,
    pub max_crawl_delay: Duration,
    /// In flight to one key; 1 wherever a crawl-delay is in force.
    pub max_concurrent: NonZeroU32,
    /// That a request is held before it is answered 429.
    pub max_wait: Duration,
    /// Waiting requests of one key.
    pub queue: usize,
    /// Waiting requests in all.
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
    /// A page's images, scripts and styles follow it without the delay.
    Burst,
}

/// Where requests may go, and how.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct EgressSettings {
    /// Opened although private or special.
    pub allow: Vec<Network>,
    /// Closed although public; wins over `allow`.
    pub deny: Vec<DenyEntry>,
    pub ports: Vec<PortRange>,
    /// Empty: any.
    pub hosts: Vec<HostPattern>,
    pub methods: Vec<MethodName>,
    #[serde(default, deserialize_with = "secrets::some_proxy_url")]
    pub upstream_proxy: Option<SecretUrl>,
    /// Roots to trust beside the system's, PEM.
    #[serde(default, deserialize_with = "text::some")]
    pub ca_file: Option<PathBuf>,
}

impl EgressSettings {
    pub fn listed(&self) -> Allowlist {
        values::listed(&self.hosts, &self.methods, ListedBy::All)
    }
}

/// Copies of robots.txt and owed delays, kept over a restart.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct StoreSettings {
    /// `None`: below the state directory.
    #[serde(default, deserialize_with = "text::some")]
    pub directory: Option<PathBuf>,
    #[serde(deserialize_with = "text::one")]
    pub memory: u64,
    #[serde(deserialize_with = "text::one")]
    pub disk: u64,
    /// A host that could not be asked in an earlier process is asked again at once: for one that somebody waits for. Not to
    /// be written.
    #[serde(skip)]
    pub is_impatient: bool,
    /// Where the processes of a machine that share meet. `None`: where the store is.
    #[serde(skip)]
    pub meeting_place: Option<PathBuf>,
}

/// A record of each decision.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct EvidenceSettings {
    /// `None`: none is kept.
    #[serde(default, deserialize_with = "text::some")]
    pub directory: Option<PathBuf>,
    pub keep: Duration,
}

/// The instances that share their paces. Written `URL` for `{ url: URL }`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FleetSettings {
    /// The server that all of them share. `None`: there is no fleet.
    #[serde(default, deserialize_with = "secrets::some_fleet_url")]
    pub url: Option<SecretUrl>,
    /// There are at least as many. `None`: as many as the server has seen.
    pub instances: Option<NonZeroU32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OnFleetLoss {
    Local,
    Refuse,
}

/// Bounds on every wait and on what a peer may use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LimitSettings {
    /// For a request's whole header block.
    pub header_timeout: Duration,
    /// A connection on which nothing is asked.
    pub idle_timeout: Duration,
    /// To an origin, TLS included.
    pub connect_timeout: Duration,
    /// Between two reads of a body or an answer.
    pub read_timeout: Duration,
    /// A tunnel or a WebSocket through which nothing comes.
    pub tunnel_idle_timeout: Duration,
    /// Bytes a second that a body has to come at, on the average of `read_timeout`.
    #[serde(deserialize_with = "text::one")]
    pub min_rate: u64,
    #[serde(deserialize_with = "text::one")]
    pub max_header_size: u64,
    /// Clients' connections at a time.
    pub max_connections: NonZeroUsize,
    /// Of these, one client's.
    pub max_connections_per_client: NonZeroUsize,
    /// Idle connections to origins, kept for reuse, in all.
    pub max_idle_connections: usize,
    /// Of these, one host's.
    pub max_idle_connections_per_host: usize,
    /// Fetches of robots.txt under way at a time.
    pub max_robots_fetches: NonZeroUsize,
    /// How long the proxy goes on as before when it is asked to stop, while `/readyz` says so already.
    pub shutdown_delay: Duration,
    /// That requests in flight get when the proxy is stopped.
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
