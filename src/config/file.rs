//! What is written: the keys of `politely.yaml` with their forms and defaults. Each may be left out; `null` is the same.
//! Sections that mean what they say are handed on by `settings` as they are; of the others it makes what they mean.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::units;
use super::values::{self, AccessLog, ListenAddress, Network, PortRange, Secret, SecretUrl, Token};

/// The whole file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub listen: Vec<Listener>,
    pub admin: Admin,
    pub mode: Mode,
    pub identity: Identity,
    pub robots: Robots,
    pub pace: Pace,
    pub intercept: Intercept,
    pub egress: Egress,
    pub access: Access,
    pub store: Store,
    #[serde(deserialize_with = "values::some_fleet_url")]
    pub fleet: Option<SecretUrl>,
    pub on_fleet_loss: OnFleetLoss,
    pub hosts: BTreeMap<String, Override>,
    pub limits: Limits,
    pub log: Log,
}

/// A socket for clients.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    pub address: ListenAddress,
    /// Set: clients speak TLS to the proxy itself.
    #[serde(default)]
    pub tls: Option<ListenerTls>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerTls {
    /// The certificate and its chain, PEM.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Set: clients must show a certificate of one of these authorities.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
}

/// Metrics, API and dashboard.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// `None`, written `off`: there is none.
    #[serde(deserialize_with = "values::address_or_off")]
    pub address: Option<ListenAddress>,
    /// Holds the token that its callers must show.
    pub token_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    #[default]
    Enforce,
    /// Nothing is refused or delayed; what would have been is told.
    Report,
}

/// Who the crawler is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Identity {
    /// Empty: taken from each request's `User-Agent`.
    pub product_tokens: Vec<Token>,
    /// A URL or address for the `User-Agent` of robots.txt fetches; empty: none.
    #[serde(deserialize_with = "values::printable")]
    pub contact: String,
    /// Set: replaces every request's `User-Agent`.
    #[serde(deserialize_with = "values::some_printable")]
    pub user_agent: Option<String>,
    /// What the fetched pages are for, in the words of `Content-Signal` and `Content-Usage`.
    pub purpose: Vec<Token>,
}

/// Fetching, keeping and reading robots.txt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Robots {
    #[serde(deserialize_with = "units::duration")]
    pub min_ttl: Duration,
    #[serde(deserialize_with = "units::duration")]
    pub max_ttl: Duration,
    /// Bytes read of one file, decoded; the rest is left.
    #[serde(deserialize_with = "units::size")]
    pub max_size: u64,
    /// For one fetch in all, redirects included.
    #[serde(deserialize_with = "units::duration")]
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
    pub visit_time: VisitTime,
}

/// What a host without a readable robots.txt allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    Allow,
    Disallow,
}

/// How a group's user-agent line names a product token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserAgentMatch {
    #[default]
    Exact,
    Prefix,
    Substring,
}

/// Which of several matching rules counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precedence {
    #[default]
    MostSpecific,
    FirstMatch,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VisitTime {
    #[default]
    Report,
    Enforce,
}

/// How fast one host may be asked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pace {
    pub key: PaceKey,
    /// Between two requests' starts, whatever robots.txt says.
    #[serde(deserialize_with = "units::duration")]
    pub min_delay: Duration,
    #[serde(deserialize_with = "units::duration")]
    pub max_crawl_delay: Duration,
    /// In flight to one key; 1 wherever a crawl-delay is in force.
    pub max_concurrent: NonZeroU32,
    /// That a request is held before it is answered 429.
    #[serde(deserialize_with = "units::duration")]
    pub max_wait: Duration,
    /// Waiting requests of one key.
    pub queue: usize,
    /// Waiting requests in all.
    pub max_waiting: usize,
    pub subresources: Subresources,
}

/// What shares one pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PaceKey {
    #[default]
    Host,
    /// The registrable domain.
    Site,
    /// The address dialled.
    Address,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subresources {
    #[default]
    Pace,
    /// A page's images, scripts and styles follow it without the delay.
    Burst,
}

/// What happens to `CONNECT`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Intercept {
    pub default: InterceptMode,
    pub ca: CaFiles,
    /// Hosts whose certificates are kept ready.
    pub leaf_cache: NonZeroUsize,
    pub hosts: BTreeMap<String, InterceptMode>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterceptMode {
    /// TLS ends here; robots.txt is held to, request by request.
    #[default]
    Intercept,
    /// Bytes pass unread; robots.txt cannot be held to, paced per connection.
    Tunnel,
    Deny,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CaFiles {
    pub directory: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

/// Where requests may go, and how.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Egress {
    /// Opened although private or special.
    pub allow: Vec<Network>,
    /// Closed although public; wins over `allow`.
    pub deny: Vec<Network>,
    pub ports: Vec<PortRange>,
    #[serde(deserialize_with = "values::some_proxy_url")]
    pub upstream_proxy: Option<SecretUrl>,
    /// Roots to trust beside the system's, PEM.
    pub ca_file: Option<PathBuf>,
}

/// Who may use the proxy. Neither: anybody who reaches it, so loopback only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Access {
    pub clients: Vec<Network>,
    pub users: Vec<User>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    pub name: Token,
    /// The password's hash.
    pub password: Secret,
    /// In place of `identity.product_tokens`.
    #[serde(default)]
    pub product_tokens: Vec<Token>,
}

/// Copies of robots.txt and owed delays, kept over a restart.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// `None`: below the state directory.
    pub directory: Option<PathBuf>,
    #[serde(deserialize_with = "units::size")]
    pub memory: u64,
    #[serde(deserialize_with = "units::size")]
    pub disk: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFleetLoss {
    #[default]
    Local,
    Refuse,
}

/// What is otherwise for some hosts. `None`: as for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Override {
    pub robots: Option<RobotsOverride>,
    #[serde(deserialize_with = "units::some_duration")]
    pub crawl_delay: Option<Duration>,
    pub intercept: Option<InterceptMode>,
    pub product_tokens: Option<Vec<Token>>,
    /// Path patterns in the form of robots.txt, beside the host's own rules.
    pub allow: Option<Vec<Token>>,
    pub deny: Option<Vec<Token>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RobotsOverride {
    Enforce,
    Ignore,
    Report,
}

/// Bounds on every wait and on what a peer may take up.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// For a request's whole header block.
    #[serde(deserialize_with = "units::duration")]
    pub header_timeout: Duration,
    /// A connection on which nothing is asked.
    #[serde(deserialize_with = "units::duration")]
    pub idle_timeout: Duration,
    /// To an origin, TLS included.
    #[serde(deserialize_with = "units::duration")]
    pub connect_timeout: Duration,
    /// Between two reads of a body or an answer.
    #[serde(deserialize_with = "units::duration")]
    pub read_timeout: Duration,
    #[serde(deserialize_with = "units::size")]
    pub max_header_size: u64,
    /// Clients' connections at a time.
    pub max_connections: NonZeroUsize,
    /// That requests in flight get when the proxy is stopped.
    #[serde(deserialize_with = "units::duration")]
    pub drain_timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    pub level: LogLevel,
    pub format: LogFormat,
    pub access: AccessLog,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl Default for File {
    fn default() -> Self {
        Self {
            listen: vec![Listener {
                address: loopback(3128),
                tls: None,
            }],
            admin: Admin::default(),
            mode: Mode::default(),
            identity: Identity::default(),
            robots: Robots::default(),
            pace: Pace::default(),
            intercept: Intercept::default(),
            egress: Egress::default(),
            access: Access::default(),
            store: Store::default(),
            fleet: None,
            on_fleet_loss: OnFleetLoss::default(),
            hosts: BTreeMap::new(),
            limits: Limits::default(),
            log: Log::default(),
        }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            address: Some(loopback(3129)),
            token_file: None,
        }
    }
}

impl Default for Robots {
    fn default() -> Self {
        Self {
            min_ttl: Duration::from_secs(300),
            max_ttl: Duration::from_secs(86_400),
            max_size: 512_000,
            timeout: Duration::from_secs(10),
            on_unavailable: Fallback::Allow,
            on_auth_error: Fallback::Allow,
            on_long_unreachable: Fallback::Disallow,
            unreachable_status: 503,
            deny_status: 403,
            user_agent_match: UserAgentMatch::default(),
            precedence: Precedence::default(),
            visit_time: VisitTime::default(),
        }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            key: PaceKey::default(),
            min_delay: Duration::ZERO,
            max_crawl_delay: Duration::from_secs(300),
            max_concurrent: const { NonZeroU32::new(8).expect("not zero") },
            max_wait: Duration::from_secs(60),
            queue: 1_000,
            max_waiting: 10_000,
            subresources: Subresources::default(),
        }
    }
}

impl Default for Intercept {
    fn default() -> Self {
        Self {
            default: InterceptMode::default(),
            ca: CaFiles::default(),
            leaf_cache: const { NonZeroUsize::new(4_096).expect("not zero") },
            hosts: BTreeMap::new(),
        }
    }
}

impl Default for Egress {
    fn default() -> Self {
        let ports = [80, 443].map(|port| PortRange {
            first: port,
            last: port,
        });
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            ports: ports.to_vec(),
            upstream_proxy: None,
            ca_file: None,
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self {
            directory: None,
            memory: 64 << 20,
            disk: 1 << 30,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(300),
            max_header_size: 64 << 10,
            max_connections: const { NonZeroUsize::new(10_000).expect("not zero") },
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: LogLevel::default(),
            format: LogFormat::default(),
            access: AccessLog::Off,
        }
    }
}

fn loopback(port: u16) -> ListenAddress {
    ListenAddress::Socket(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}
