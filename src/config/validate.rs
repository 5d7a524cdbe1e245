//! What a type cannot say: bounds of single values, and what several keys mean together.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::policy::HostPattern;
use crate::robots::{ParseOptions, Purpose};

use super::hosts::{Hosts, unverified_patterns};
use super::read::check::Check;
use super::read::error::{Complaint, did_you_mean};
use super::settings::Settings;
use super::written::access::User;
use super::written::file::WrittenFile;
use super::written::intercept;
use super::written::manners::check_budget;
use super::written::signature::SignatureSettings;
use super::written::units::show_duration;
use super::written::values::ListenAddress;

/// All that is wrong between the keys.
pub(super) fn check(settings: &Settings, check: &mut Check<'_>) {
    listeners(settings, check);
    robots_and_pace(settings, check);
    egress(settings, check);
    signature(settings, check);
    limits(settings, check);
}

fn listeners(settings: &Settings, check: &mut Check<'_>) {
    let Settings { listen, admin, access, .. } = settings;
    if listen.is_empty() && check.is_sure(&["listen"]) {
        let hint = "write `listen: [{ address: 127.0.0.1:3128 }]`";
        check.fault(&["listen"], "there is no address to listen on", hint);
    }
    let open_to_all = access.clients.is_empty() && access.users.is_empty() && check.is_sure(&["listen", "access"]);
    let mut known = HashSet::new();
    for (index, listener) in listen.iter().enumerate() {
        let (address, number) = (&listener.address, index.to_string());
        let key = ["listen", &number, "address"];
        let identified = listener.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        if address.is_loopback() == Some(false) && open_to_all && !identified {
            let hint = "set `access`, such as `clients: [10.0.0.0/8]`, or listen on 127.0.0.1";
            check.fault(&key, format!("anybody who can reach `{address}` could use this proxy"), hint);
        }
        if !known.insert(address) && is_same(address, address) {
            check.fault(&key, format!("`{address}` appears twice"), "leave out one of them");
        }
    }
    for (index, host) in admin.hosts.iter().enumerate() {
        if *host == HostPattern::Any {
            let what = "`*` would let every web site have a name of its own lead here (DNS rebinding)";
            let hint =
                "name the hosts by which the admin address is reached, such as `proxy.example` or `*.cluster.local`";
            check.fault(&["admin", "hosts", &index.to_string()], what, hint);
        }
    }
    let Some(address) = &admin.address else { return };
    let key = ["admin", "address"];
    if listen.iter().any(|listener| is_same(&listener.address, address)) {
        let hint = "give it a port of its own, or write `off`";
        check.fault(&key, format!("`{address}` is already one of the proxy's listeners"), hint);
    }
    if address.is_loopback() == Some(false) && admin.token_file.is_none() && check.is_sure(&["admin"]) {
        let hint = "add `token_file: …`, or use an address of 127.0.0.1";
        check.fault(&key, format!("anybody who can reach `{address}` could control this proxy"), hint);
    }
}

/// Port 0 is another port each time.
fn is_same(one: &ListenAddress, other: &ListenAddress) -> bool {
    one == other && !matches!(one, ListenAddress::Socket(address) if address.port() == 0)
}

fn robots_and_pace(settings: &Settings, check: &mut Check<'_>) {
    let Settings { robots, pace, .. } = settings;
    if robots.min_ttl > robots.max_ttl && check.is_sure(&["robots"]) {
        let (min, max) = (show_duration(robots.min_ttl), show_duration(robots.max_ttl));
        let what = format!("`min_ttl` ({min}) is longer than `max_ttl` ({max})");
        check.fault(&["robots", "min_ttl"], what, "lower the one or raise the other");
    }
    if robots.max_size < ParseOptions::MIN_SIZE as u64 {
        let what = "at least 500 KiB of a robots.txt have to be read (RFC 9309 §2.5)";
        check.fault(&["robots", "max_size"], what, "write `500KiB` or more");
    }
    if !matches!(robots.unreachable_status, 403 | 503) {
        let what = "this status does not fit an unreachable robots.txt";
        check.fault(&["robots", "unreachable_status"], what, "write 503 or 403");
    }
    if !matches!(robots.deny_status, 400..=499) {
        let hint = "write 403 or another from 400 to 499";
        check.fault(&["robots", "deny_status"], "this status is not a refusal", hint);
    }
    if pace.min_delay > pace.max_crawl_delay && check.is_sure(&["pace"]) {
        let (min, max) = (show_duration(pace.min_delay), show_duration(pace.max_crawl_delay));
        let what = format!("`min_delay` ({min}) is longer than `max_crawl_delay` ({max})");
        check.fault(&["pace", "min_delay"], what, "lower the one or raise the other");
    }
}

/// What is right but has consequences that may not be wanted.
pub(super) fn warnings(settings: &Settings) -> Vec<Complaint> {
    let Settings { pace, hosts, .. } = settings;
    let own = hosts.all().filter_map(|policy| policy.rules.crawl_delay).max().unwrap_or_default();
    let delays = [("pace.min_delay", pace.min_delay), ("a host's `crawl_delay`", own.min(pace.max_crawl_delay))];
    let longer = delays.into_iter().filter(|(_, delay)| *delay > pace.max_wait);
    let warning = |(key, delay): (&str, _)| {
        let (delay, wait) = (show_duration(delay), show_duration(pace.max_wait));
        let what = format!("{key} ({delay}) is longer than `pace.max_wait` ({wait})");
        let hint = "a request that comes too soon is answered 429 with Retry-After at once: the crawler has to retry by \
            itself; raise `pace.max_wait` to have it wait here";
        Complaint::new(what, hint)
    };
    let purposes = unknown_purposes(settings).into_iter().map(|purpose| {
        let what = format!(
            "`{purpose}` is not a purpose that politely knows: only lines with exactly this name can disallow it"
        );
        let known = || format!("known are {}", Purpose::KNOWN.map(|name| format!("`{name}`")).join(", "));
        Complaint::new(what, did_you_mean(purpose, &Purpose::KNOWN).unwrap_or_else(known))
    });
    longer.map(warning).chain(purposes).collect()
}

/// Each once.
fn unknown_purposes(settings: &Settings) -> BTreeSet<&str> {
    let users = settings.access.users.iter().filter_map(|user| user.hosts.as_ref());
    let all = users.chain([&settings.hosts]).flat_map(Hosts::all).flat_map(|policy| policy.rules.purposes());
    all.map(Purpose::as_str).filter(|purpose| !Purpose::KNOWN.contains(purpose)).collect()
}

fn egress(settings: &Settings, check: &mut Check<'_>) {
    let Settings { egress, .. } = settings;
    if egress.ports.is_empty() && check.is_sure(&["egress"]) {
        check.fault(&["egress", "ports"], "no port is allowed", "write `ports: [80, 443]`");
    }
    let Some(url) = &egress.upstream_proxy else { return };
    let (key, url) = (["egress", "upstream_proxy"], url.expose());
    let port = url.port_or_known_default();
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        check.fault(&key, "the URL of a proxy ends with its port", "leave out what follows it");
    }
    let local = |address: &ListenAddress| match (address, url.host()) {
        (ListenAddress::Socket(own), Some(url::Host::Ipv4(ip))) => is_reached_by(own, ip.into()),
        (ListenAddress::Socket(own), Some(url::Host::Ipv6(ip))) => is_reached_by(own, ip.into()),
        (ListenAddress::Socket(own), Some(url::Host::Domain(name))) => name == "localhost" && own.ip().is_loopback(),
        (ListenAddress::Socket(_), None) | (ListenAddress::Inherited(_), _) => false,
    };
    let own_port = |address: &ListenAddress| match address {
        ListenAddress::Socket(own) => own.port() != 0 && Some(own.port()) == port,
        ListenAddress::Inherited(_) => false,
    };
    let mut own = settings.listen.iter().map(|listener| &listener.address).chain(&settings.admin.address);
    if own.any(|address| own_port(address) && local(address)) {
        check.fault(&key, "this proxy listens there itself", "name another proxy, or leave it out");
    }
}

fn signature(settings: &Settings, check: &mut Check<'_>) {
    let SignatureSettings { key, other_keys, agent, validity, .. } = &settings.identity.signature;
    let section = ["identity", "signature"];
    let key_of = |name| [section[0], section[1], name];
    if !(LEAST_VALIDITY..=MOST_VALIDITY).contains(validity) {
        let what = "a signature is good for 2 seconds to 24 hours";
        check.fault(&key_of("validity"), what, "write `60s`; verifiers advise a minute");
    }
    if !check.is_sure(&["identity"]) {
        return;
    }
    match (key, agent) {
        (Some(_), None) => {
            let hint = "add `agent: https://bot.example`, where the directory of keys is published";
            check.fault(&key_of("key"), "nobody could find the key to verify by", hint);
        }
        (None, Some(_)) => {
            let hint = "add `key: …`; `politely identity keygen FILE` makes one";
            check.fault(&key_of("agent"), "there is no key to sign with", hint);
        }
        (None, None) if !other_keys.is_empty() => {
            check.fault(&key_of("other_keys"), "there is no key to sign with", "add `key: …` and `agent: …`");
        }
        (None, None) => {
            let number = settings.listen.iter().position(|listener| listener.directory).map(|index| index.to_string());
            if let Some(number) = number.filter(|_| check.is_sure(&["listen"])) {
                let hint = "add `identity: { signature: { key: …, agent: … } }`, or leave it out";
                check.fault(&["listen", &number, "directory"], "there is no key to publish", hint);
            }
        }
        (Some(_), Some(_)) => {}
    }
}

/// Whether an address leads to a listener of ours, whose port it is.
fn is_reached_by(own: &std::net::SocketAddr, address: std::net::IpAddr) -> bool {
    let (own, address) = (own.ip().to_canonical(), address.to_canonical());
    own == address || own.is_unspecified() && address.is_loopback()
}

/// What only what is written shows, not what follows from it.
pub(super) fn written(file: &WrittenFile, check: &mut Check<'_>) {
    manners(file, check);
    intercept::check(check);
    users(&file.access.users, check);
}

fn users(users: &[Arc<User>], check: &mut Check<'_>) {
    let mut known = HashSet::new();
    for (index, user) in users.iter().enumerate() {
        let (name, number) = (user.name.as_ref(), index.to_string());
        let key = ["access", "users", &number, "name"];
        if name.contains(':') {
            check.fault(&key, "a user's name has no colon (RFC 7617 §2)", "leave the colon out");
        }
        if user.password.cost().is_none() {
            // The text is not repeated: it may be the password itself.
            let hint = "make one with `argon2 \"$(openssl rand -hex 8)\" -id -e`, of the package argon2; it begins with \
                `$argon2id$`";
            check.fault(&["access", "users", &number, "password"], "this is not an Argon2 hash of a password", hint);
        }
        if !known.insert(name) {
            check.fault(&key, format!("the user `{name}` appears twice"), "leave out one of them");
        }
        let section = ["access", "users", &number, "hosts"];
        unverified_patterns(&user.overrides, &section, check);
    }
}

/// What is kept beyond what sites ask for, wherever it is written.
fn manners(file: &WrittenFile, check: &mut Check<'_>) {
    let most = file.pace.max_crawl_delay;
    file.pace.manners().check(&["pace"], most, check);
    for (pattern, own) in &file.hosts {
        own.manners().check(&["hosts", &pattern.to_string()], most, check);
    }
    for (index, user) in file.access.users.iter().enumerate() {
        let section = ["access", "users", &index.to_string()];
        check_budget(&section, check);
        for (pattern, own) in &user.overrides {
            let section = ["access", "users", &index.to_string(), "hosts", &pattern.to_string()];
            own.manners().check(&section, most, check);
        }
    }
}

fn limits(settings: &Settings, check: &mut Check<'_>) {
    let Settings { limits, robots, store, evidence, pace, intercept, .. } = settings;
    let waits = [
        (["robots", "timeout"], robots.timeout),
        (["robots", "max_ttl"], robots.max_ttl),
        (["limits", "header_timeout"], limits.header_timeout),
        (["limits", "idle_timeout"], limits.idle_timeout),
        (["limits", "connect_timeout"], limits.connect_timeout),
        (["limits", "read_timeout"], limits.read_timeout),
    ];
    for (key, wait) in waits {
        if wait.is_zero() {
            let hint = "write how long it may take, such as `10s`";
            check.fault(&key, "with a time of 0 nothing could ever succeed", hint);
        }
    }
    if !(LEAST_HEADER_SIZE..=MOST_HEADER_SIZE).contains(&limits.max_header_size) {
        let what = "the bound on a header block is from 4 KiB to 1 MiB";
        check.fault(&["limits", "max_header_size"], what, "write `64KiB`");
    }
    let most = [
        (&["robots", "max_size"][..], robots.max_size, 64 << 20),
        (&["pace", "max_concurrent"], pace.max_concurrent.get().into(), 100_000),
        (&["pace", "queue"], pace.queue as u64, 10_000_000),
        (&["pace", "max_waiting"], pace.max_waiting as u64, 10_000_000),
        (&["intercept", "leaf_cache"], intercept.leaf_cache.get() as u64, 10_000_000),
        (&["store", "memory"], store.memory, 1 << 50),
        (&["store", "disk"], store.disk, 1 << 50),
        (&["limits", "min_rate"], limits.min_rate, 1 << 40),
        (&["limits", "max_connections"], limits.max_connections.get() as u64, 10_000_000),
        (&["limits", "max_connections_per_client"], limits.max_connections_per_client.get() as u64, 10_000_000),
        (&["limits", "max_robots_fetches"], limits.max_robots_fetches.get() as u64, 10_000_000),
    ];
    for (key, number, most) in most {
        if number > most {
            check.fault(key, "this value is too large", format!("write {most} or less"));
        }
    }
    if evidence.keep < LEAST_KEPT {
        check.fault(&["evidence", "keep"], "what is kept for less than an hour is no evidence", "write `90d`");
    }
    if store.memory < LEAST_STORE {
        check.fault(&["store", "memory"], "less than 1 MiB is too small", "write `64MiB`");
    }
}

const LEAST_HEADER_SIZE: u64 = 4 << 10;
/// What the HTTP/1 parser takes at most.
const MOST_HEADER_SIZE: u64 = 1 << 20;
const LEAST_STORE: u64 = 1 << 20;
const LEAST_KEPT: Duration = Duration::from_secs(3600);
/// Half of it is a second at least.
const LEAST_VALIDITY: Duration = Duration::from_secs(2);
/// The drafts' advice.
const MOST_VALIDITY: Duration = Duration::from_secs(86_400);
