//! The defaults of the keys that are not zero, empty or the first of their words. `conf/politely.yaml` says the same, as
//! a test holds.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use crate::policy::{Host, KeyBy, Paths};
use crate::robots::{Precedence, UserAgentMatch};

use super::file::{
    AdminSettings, CaFiles, EgressSettings, EvidenceSettings, Fallback, IdentitySettings, LimitSettings, Listener,
    LogFormat, LogLevel, LogSettings, Mode, OnFleetLoss, OnVisitTime, PaceSettings, RobotsSettings, StoreSettings,
    Subresources, WrittenAccess, WrittenFile, WrittenIntercept,
};
use super::host_table::Usage;
use super::host_table::{HostMap, InterceptMode};
use super::values::{AccessLog, ListenAddress, PortRange};

impl Default for WrittenFile {
    fn default() -> Self {
        Self {
            include: Vec::new(),
            listen: vec![Listener { address: loopback(3128), tls: None, directory: false }],
            admin: AdminSettings::default(),
            mode: Mode::default(),
            identity: IdentitySettings::default(),
            usage: Usage::default(),
            robots: RobotsSettings::default(),
            pace: PaceSettings::default(),
            intercept: WrittenIntercept::default(),
            egress: EgressSettings::default(),
            access: WrittenAccess::default(),
            store: StoreSettings::default(),
            evidence: EvidenceSettings::default(),
            fleet: None,
            on_fleet_loss: OnFleetLoss::default(),
            hosts: HostMap::default(),
            limits: LimitSettings::default(),
            log: LogSettings::default(),
        }
    }
}

impl Default for AdminSettings {
    fn default() -> Self {
        Self { address: Some(loopback(3129)), token_file: None }
    }
}

impl Default for RobotsSettings {
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
            paths: Paths::default(),
            visit_time: OnVisitTime::default(),
            lenient_usage: false,
        }
    }
}

impl Default for PaceSettings {
    fn default() -> Self {
        Self {
            key: KeyBy::default(),
            min_delay: Duration::ZERO,
            adaptive: None,
            breaker: None,
            budget: None,
            min_revisit: None,
            max_crawl_delay: Duration::from_secs(300),
            max_concurrent: const { NonZeroU32::new(8).expect("not zero") },
            max_wait: Duration::from_secs(60),
            queue: 1_000,
            max_waiting: 10_000,
            subresources: Subresources::default(),
        }
    }
}

impl Default for WrittenIntercept {
    fn default() -> Self {
        Self {
            default: InterceptMode::default(),
            ca: CaFiles::default(),
            leaf_cache: const { NonZeroUsize::new(4_096).expect("not zero") },
            setup_host: Host::Name("politely.invalid".into()),
            hosts: HostMap::default(),
        }
    }
}

impl Default for EgressSettings {
    fn default() -> Self {
        let ports = [80, 443].map(|port| PortRange { first: port, last: port });
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            ports: ports.to_vec(),
            hosts: Vec::new(),
            methods: Vec::new(),
            upstream_proxy: None,
            ca_file: None,
        }
    }
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self { directory: None, memory: 64 << 20, disk: 1 << 30, is_impatient: false, meeting_place: None }
    }
}

impl Default for EvidenceSettings {
    fn default() -> Self {
        Self { directory: None, keep: Duration::from_secs(90 * 86_400) }
    }
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(300),
            tunnel_idle_timeout: Duration::from_secs(3600),
            min_rate: 1,
            max_header_size: 64 << 10,
            max_connections: const { NonZeroUsize::new(10_000).expect("not zero") },
            max_connections_per_client: const { NonZeroUsize::new(5_000).expect("not zero") },
            max_idle_connections: 1_024,
            max_idle_connections_per_host: 64,
            shutdown_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { level: LogLevel::default(), format: LogFormat::default(), access: AccessLog::Off }
    }
}

fn loopback(port: u16) -> ListenAddress {
    ListenAddress::Socket(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}
