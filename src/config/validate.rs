//! Checks that types cannot express: bounds of single values, and combinations of keys.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use crate::policy::HostPattern;
use crate::robots::{ParseOptions, ProductToken};

use super::addresses::{egress, listeners};
use super::read::sections::Sections;
use super::schema::host_table::{HostMap, Override};
use super::schema::intercept;
use super::schema::manners::check_budget;
use super::schema::origin_tls::TlsVersions;
use super::schema::signature::SignatureSettings;
use super::schema::units::show_duration;
use super::settings::Settings;

/// Checks single values and combinations of keys.
pub(super) fn check(settings: &Settings, check: &mut Sections<'_>) {
    single_values(settings, check);
    numbers(settings, check);
    listeners(settings, check);
    egress(settings, check);
    signature(settings, check);
    intercept::check(check);
    settings.pace.manners().check(&["pace"], settings.pace.max_crawl_delay, check);
    overrides(settings, &["hosts"], &settings.overrides, check);
    users(settings, check);
}

fn single_values(settings: &Settings, check: &mut Sections<'_>) {
    let Settings { robots, pace, egress, store, cache, evidence, limits, identity, fleet, .. } = settings;
    let is_validity = (LEAST_VALIDITY..=MOST_VALIDITY).contains(&identity.signature.validity);
    let is_header_size = (LEAST_HEADER_SIZE..=MOST_HEADER_SIZE).contains(&limits.max_header_size);
    let wrong: [(bool, &[&str], &str, &str); 12] = [
        (
            robots.max_size < ParseOptions::MIN_SIZE as u64,
            &["robots", "max_size"],
            "at least 500 KiB of a robots.txt have to be read (RFC 9309 §2.5)",
            "write `500KiB` or more",
        ),
        (
            !matches!(robots.unreachable_status, 403 | 503),
            &["robots", "unreachable_status"],
            "this status does not fit an unreachable robots.txt",
            "write 503 or 403",
        ),
        (
            !matches!(robots.deny_status, 400..=499),
            &["robots", "deny_status"],
            "this status is not a refusal",
            "write 403 or another status from 400 to 499",
        ),
        (egress.ports.is_empty(), &["egress", "ports"], "no port is allowed", "write `ports: [80, 443]`"),
        (
            !is_validity,
            &["identity", "signature", "validity"],
            "the validity of a signature must be from 2 seconds to 24 hours",
            "write `60s`; verifiers advise a minute",
        ),
        (
            !is_header_size,
            &["limits", "max_header_size"],
            "the maximum size of a header block must be from 4 KiB to 1 MiB",
            "write `64KiB`",
        ),
        (
            evidence.keep < LEAST_KEPT,
            &["evidence", "keep"],
            "evidence must be kept for an hour or longer",
            "write `90d`",
        ),
        (
            fleet.url.is_some() && (fleet.pace.is_some() || fleet.copies.is_some()),
            &["fleet", "url"],
            "`url` stands for `pace` and `copies`, and cannot be combined with them",
            FLEET,
        ),
        (fleet.pace.is_some() != fleet.copies.is_some(), &["fleet"], "`fleet` needs both `pace` and `copies`", FLEET),
        (cache.size < LEAST_CACHE, &["cache", "size"], "less than 1 MiB is too small", "write `10GiB`"),
        (
            evidence.directory.is_some() && absolute(&evidence.directory) == absolute(&cache.directory),
            &["evidence", "directory"],
            "evidence and cached pages cannot share a directory (`cache.directory`)",
            "name another directory for one of them",
        ),
        (store.memory < LEAST_STORE, &["store", "memory"], "less than 1 MiB is too small", "write `64MiB`"),
    ];
    for (_, key, what, hint) in wrong.into_iter().filter(|(is_wrong, ..)| *is_wrong) {
        check.fault(key, what, hint);
    }
    let pairs = [
        ("robots", ("min_ttl", robots.min_ttl), ("max_ttl", robots.max_ttl)),
        ("pace", ("min_delay", pace.min_delay), ("max_crawl_delay", pace.max_crawl_delay)),
    ];
    for (section, (low, least), (high, most)) in pairs {
        if least > most {
            let (least, most) = (show_duration(least), show_duration(most));
            let what = format!("`{low}` ({least}) is longer than `{high}` ({most})");
            check.fault(&[section, low], what, "lower the first or raise the second");
        }
    }
}

/// The absolute path of a directory, so that different spellings of a path compare as equal. `None` for no directory.
fn absolute(directory: &Option<PathBuf>) -> Option<PathBuf> {
    directory.as_ref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()))
}

fn numbers(settings: &Settings, check: &mut Sections<'_>) {
    let Settings { limits, robots, store, cache, pace, intercept, fleet, .. } = settings;
    let waits = [
        (["robots", "timeout"], robots.timeout),
        (["robots", "max_ttl"], robots.max_ttl),
        (["limits", "header_timeout"], limits.header_timeout),
        (["limits", "idle_timeout"], limits.idle_timeout),
        (["limits", "connect_timeout"], limits.connect_timeout),
        (["limits", "read_timeout"], limits.read_timeout),
        (["limits", "tunnel_idle_timeout"], limits.tunnel_idle_timeout),
    ];
    for (key, wait) in waits {
        if wait.is_zero() {
            let hint = "write how long it may take, such as `10s`";
            check.fault(&key, "the time must be greater than 0", hint);
        }
    }
    let most = [
        (&["robots", "max_size"][..], robots.max_size, 64 << 20),
        (&["pace", "max_concurrent"], pace.max_concurrent.get().into(), 100_000),
        (&["pace", "queue"], pace.queue as u64, 10_000_000),
        (&["pace", "max_waiting"], pace.max_waiting as u64, 10_000_000),
        (&["intercept", "leaf_cache"], intercept.leaf_cache.get() as u64, 10_000_000),
        (&["store", "memory"], store.memory, 1 << 50),
        (&["store", "disk"], store.disk, 1 << 50),
        (&["cache", "size"], cache.size, 1 << 50),
        (&["limits", "min_rate"], limits.min_rate, 1 << 40),
        (&["limits", "max_connections"], limits.max_connections.get() as u64, 10_000_000),
        (&["limits", "max_connections_per_client"], limits.max_connections_per_client.get() as u64, 10_000_000),
        (&["limits", "max_robots_fetches"], limits.max_robots_fetches.get() as u64, 10_000_000),
        (&["fleet", "instances"], fleet.instances.map_or(1, NonZeroU32::get).into(), 10_000),
    ];
    for (key, number, most) in most {
        if number > most {
            check.fault(key, "this value is too large", format!("write {most} or less"));
        }
    }
}

fn signature(settings: &Settings, check: &mut Sections<'_>) {
    let SignatureSettings { key, other_keys, agent, .. } = &settings.identity.signature;
    let section = ["identity", "signature"];
    let key_of = |name| [section[0], section[1], name];
    if !check.is_sure("identity") {
        return;
    }
    match (key, agent) {
        (Some(_), None) => {
            let hint = "add `agent: https://bot.example`, where the directory of keys is published";
            check.fault(&key_of("key"), "`key` requires `agent`", hint);
        }
        (None, Some(_)) => {
            let hint = "add `key: …`; `politely identity keygen FILE` makes one";
            check.fault(&key_of("agent"), "`agent` requires `key`", hint);
        }
        (None, None) if !other_keys.is_empty() => {
            check.fault(&key_of("other_keys"), "`other_keys` requires `key`", "add `key: …` and `agent: …`");
        }
        (None, None) => {
            let number = settings.listen.iter().position(|listener| listener.directory).map(|index| index.to_string());
            if let Some(number) = number {
                let hint = "add `identity: { signature: { key: …, agent: … } }`, or leave `directory` out";
                check.fault(&["listen", &number, "directory"], "`directory` requires `identity.signature`", hint);
            }
        }
        (Some(_), Some(_)) => {}
    }
    if agent.is_none() && !settings.identity.addresses.is_empty() {
        let hint =
            "add `signature: { key: …, agent: https://bot.example }`; the addresses are published below this URL";
        check.fault(&[section[0], "addresses"], "`addresses` requires `signature.agent`", hint);
    }
}

fn users(settings: &Settings, check: &mut Sections<'_>) {
    let (mut known, mut certificates) = (HashMap::new(), HashMap::new());
    for (index, user) in settings.access.users.iter().enumerate() {
        let (name, number) = (user.name.as_ref(), index.to_string());
        let key = ["access", "users", &number, "name"];
        if name.contains(':') {
            check.fault(&key, "a user's name must not contain a colon (RFC 7617 §2)", "leave the colon out");
        }
        if user.password.as_ref().is_some_and(|password| password.cost().is_none()) {
            // The message does not repeat the text, which may be the password itself.
            let hint = "make one with `politely hash-password`; it begins with `$argon2id$`";
            check.fault(&["access", "users", &number, "password"], "this is not an Argon2 hash of a password", hint);
        }
        if user.password.is_none() && user.certificate.is_none() {
            let hint = "add `password`, which `politely hash-password` makes, or `certificate`: a name in a client certificate";
            check.fault(&key[..3], format!("the user `{name}` has neither `password` nor `certificate`"), hint);
        }
        // DNS names are case-insensitive.
        let certificate = user.certificate.as_ref().map(|certificate| certificate.as_ref().to_ascii_lowercase());
        if let Some((first, other)) = certificate.and_then(|it| certificates.insert(it, (index.to_string(), name))) {
            let what = format!("this certificate would name two users, `{other}` and `{name}`");
            for number in [&first, &number] {
                check.fault(
                    &["access", "users", number, "certificate"],
                    &*what,
                    "name another certificate, or leave the key out",
                );
            }
        }
        if let Some(first) = known.insert(name, index.to_string()) {
            for key in [["access", "users", &first, "name"], key] {
                check.fault(&key, format!("the user `{name}` appears twice"), "leave out one of them");
            }
        }
        let names_nobody = |agent: &String| ProductToken::from_user_agent(agent.as_bytes()).is_empty();
        if user.product_tokens.is_empty() && user.user_agent.as_ref().is_some_and(names_nobody) {
            let hint = "begin it with the crawler's name, such as `ExampleBot/1.0 (+https://bot.example)`, or add `product_tokens`";
            check.fault(&["access", "users", &number, "user_agent"], "no product token can be read from this", hint);
        }
        for list in [&["egress"][..], &["egress", "hosts"], &["egress", "methods"], &["product_tokens"]] {
            // `null` would mean no limit. It is refused, as the operator may have lost the list by mistake.
            check.fault_if_null(&[&key[..3], list].concat(), "leave the key out, or write the list; `[]` allows any");
        }
        check_budget(&["access", "users", &number], check);
        overrides(settings, &["access", "users", &number, "hosts"], &user.overrides, check);
    }
}

/// Checks entries of `hosts`. `section`: the keys of the section in which they are written.
fn overrides(settings: &Settings, section: &[&str], entries: &HostMap<Override>, check: &mut Sections<'_>) {
    for (pattern, own) in entries {
        let name = pattern.to_string();
        own.manners().check(&[section, &[&name]].concat(), settings.pace.max_crawl_delay, check);
        if matches!(pattern, HostPattern::Host(_)) {
            continue;
        }
        let hint = "set it for each host that needs it";
        if own.verify == Some(false) {
            let what = format!("`verify: off` for `{pattern}` would accept any certificate from every such host");
            check.fault(&[section, &[&name, "verify"]].concat(), what, hint);
        }
        if own.tls == Some(TlsVersions::Legacy) {
            let what = format!("`tls: legacy` for `{pattern}` would accept old versions of TLS from every such host");
            check.fault(&[section, &[&name, "tls"]].concat(), what, hint);
        }
    }
}

const LEAST_HEADER_SIZE: u64 = 4 << 10;
/// Maximum header size that the HTTP/1 parser accepts.
const MOST_HEADER_SIZE: u64 = 1 << 20;
const FLEET: &str = "write `pace: URL, copies: URL`, or `url: URL` for both";
const LEAST_STORE: u64 = 1 << 20;
const LEAST_CACHE: u64 = 1 << 20;
const LEAST_KEPT: Duration = Duration::from_secs(3600);
/// Minimum validity of a signature. A signature is reused for half of its validity, so for at least a second.
const LEAST_VALIDITY: Duration = Duration::from_secs(2);
/// Maximum validity of a signature, as the drafts of Web Bot Auth advise.
const MOST_VALIDITY: Duration = Duration::from_secs(86_400);
