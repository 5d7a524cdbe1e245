//! `/metrics`, in Prometheus text or, on request, in OpenMetrics.

use super::Admin;
use super::guard::has_token;
use super::histograms::{Histograms, Labels};
use super::problem::problem;
use crate::gate::Gate;
use crate::gate::cache::PageCacheFigures;
use crate::histogram::Distribution;
use crate::policy::Money;
use crate::proxy::{Counts, Details, Proxy, UserFigures, Who};
use crate::telemetry;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use prometheus_client::encoding::EncodeGaugeValue;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Metric, Registry};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub(super) async fn metrics(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let is_open = accept.contains("application/openmetrics-text");
    let mut text = String::new();
    let registries = [Some(registry(&admin, has_token(admin.token(), &headers))), super::process::registry()];
    let encoded = registries.iter().flatten().try_for_each(|registry| match is_open {
        true => encode_registry(&mut text, registry),
        false => prometheus_text::encode(&mut text, registry),
    });
    match encoded.and_then(|()| if is_open { encode_eof(&mut text) } else { Ok(()) }) {
        Ok(()) => {
            let form = if is_open { OPENMETRICS } else { prometheus_text::CONTENT_TYPE };
            ([(header::CONTENT_TYPE, form)], text).into_response()
        }
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Builds the registry, at each scrape, from counters kept elsewhere. `names`: include users' names.
fn registry(admin: &Admin, names: bool) -> Registry {
    let mut all = Metrics(Registry::with_prefix("politely"));
    let (proxy, mut details) = (&admin.proxy, admin.proxy.counters.details());
    let (noted, charged) = (std::mem::take(&mut details.noted), std::mem::take(&mut details.charged));
    connections(&mut all, proxy, details.handshakes);
    if names {
        users(&mut all, &proxy.counters.busiest(usize::MAX), &details);
    }
    requests(&mut all, &proxy.counters.read(), details, names);
    signals(&mut all, noted, proxy.gate.figures().robots.malformed);
    let charged = charged
        .into_iter()
        .map(|Money { currency, micros }| (labels([("currency", currency.as_str())]), micros as f64 / 1e6));
    all.amounts("charged", "Money charged by answers (crawler-charged), by currency", charged);
    gate(&mut all, &proxy.gate);
    if let Some(signer) = proxy.upstream.signer() {
        let (signed, challenges) = signer.figures();
        all.counter("requests_signed", "Requests sent with a signature", signed);
        let challenges = challenges.map(|(challenge, count)| (labels([("result", challenge.slug())]), count));
        all.counters("signature_challenges", "Answers that ask for a signature, by result", challenges);
    }
    let dropped = telemetry::dropped().map(|(log, lines)| (labels([("log", log)]), lines));
    all.counters("log_lines_dropped", "Log lines dropped because the log's reader was too slow, by log", dropped);
    if let Some(evidence) = &proxy.evidence {
        let figures = evidence.figures();
        all.counter("evidence_records", "Records of decisions that were written", figures.written);
        all.counter("evidence_lost", "Records lost because the disk was full, too slow or failing", figures.lost);
    }
    if let Some(cache) = &proxy.cache {
        self::cache(&mut all, cache.figures());
    }
    let last = &admin.last_reload;
    let help = "1 if the last reload put all of the configuration in force";
    all.gauge("config_last_reload_successful", help, usize::from(last.failure.lock().is_none()));
    let help = "Time at which all of the configuration was last put in force";
    all.gauge("config_last_reload_success_timestamp_seconds", help, last.succeeded_at.load(Relaxed));
    all.gauge("uptime_seconds", "Time since the start", admin.started.elapsed().as_secs_f64());
    all.gauges("build_info", "Always 1, with the version", [(labels([("version", env!("CARGO_PKG_VERSION"))]), 1)]);
    all.0
}

fn requests(all: &mut Metrics, counts: &Counts, details: Details, names: bool) {
    let of = |(user, counts): &(Box<str>, BTreeMap<&'static str, u64>)| {
        let user = Some(("user", user.to_string())).filter(|(_, user)| !user.is_empty());
        let labels = |outcome: &str| [("outcome", outcome.to_owned())].into_iter().chain(user.clone()).collect();
        counts.iter().map(|(outcome, count)| (labels(outcome), *count)).collect::<Vec<(Labels, u64)>>()
    };
    let help = "Requests by outcome (forwarded, failed, client-gone, or reason of the refusal), and by user if the token is sent";
    match names {
        true => all.counters("requests", help, details.users.iter().flat_map(of)),
        false => all.counters("requests", help, of(&(Box::from(""), details.outcomes()))),
    }
    let by = |label, counts: &BTreeMap<&'static str, u64>| {
        counts.iter().map(|(slug, count)| (labels([(label, slug)]), *count)).collect::<Vec<_>>()
    };
    let help = "Requests that report mode let through, by the reason for which they would have been refused or held";
    all.counters("requests_reported", help, by("outcome", &counts.reported));
    let help = "TLS connections that clients ended because of the proxy's certificate, by kind of rejection";
    all.counters("distrusted", help, by("how", &counts.distrusted));
    all.counter("tunnels", "Tunnels, whose content is not inspected", counts.tunnels);
    let help = "Answers from origins with `verify: off`";
    all.counter("unverified_answers", help, counts.unverified);
    let help = "Time from sending a request to its origin to the head of the answer";
    all.histogram("origin_seconds", help, [([], details.origin)]);
    let help =
        "Time from the head of a request to the decision, for requests that were not held; one in 64 is measured";
    all.histogram("decision_seconds", help, [([], details.decision)]);
    let sent = [([("reused", "false")], details.sent[0]), ([("reused", "true")], details.sent[1])];
    let help = "Requests sent to origins, by whether the connection had been used before";
    all.counters("origin_sends", help, sent.map(|(reused, count)| (labels(reused), count)));
}

/// Bytes and waiting time of each user that has a label.
fn users(all: &mut Metrics, figures: &[UserFigures], details: &Details) {
    let labelled: HashSet<_> = details.users.iter().map(|(name, _)| name).collect();
    let of = |figures: &UserFigures| match &figures.who {
        Who::User(name) if labelled.contains(name) => Some((labels([("user", name)]), figures.clone())),
        Who::User(_) | Who::Address(_) => None,
    };
    let of: Vec<_> = figures.iter().filter_map(of).collect();
    let bytes = of.iter().map(|(user, figures)| (user.clone(), figures.bytes));
    all.counters("user_bytes", "Bytes of answers from origins, by user", bytes);
    let waited = of.iter().map(|(user, figures)| (user.clone(), figures.waited.as_secs_f64()));
    all.amounts("user_waited_seconds", "Time that requests were held, by user", waited);
}

fn cache(all: &mut Metrics, figures: PageCacheFigures) {
    let results = [("hit", figures.hits), ("revalidated", figures.revalidated), ("miss", figures.misses)];
    let results = results.map(|(result, count)| (labels([("result", result)]), count));
    all.counters("cache_requests", "Requests that the cache could have answered, by result", results);
    all.counter("cache_stored", "Answers stored in the cache", figures.stored);
    all.counter("cache_evicted", "Answers removed from the cache to stay below its size", figures.evicted);
    all.counter("cache_failed", "Answers not stored because room was lacking or the disk failed", figures.failed);
    all.gauge("cache_entries", "Answers in the cache", figures.entries);
    all.gauge("cache_bytes", "Size of the cache on disk", figures.bytes);
    all.gauge("cache_up", "1 if answers can be stored", usize::from(figures.is_ready));
}

/// Usage signals of sites. `files`: counts of files with a malformed signal.
fn signals(all: &mut Metrics, [said, malformed]: [Vec<(&'static str, u64)>; 2], files: [u64; 4]) {
    let named =
        |counts: Vec<(&'static str, u64)>| counts.into_iter().map(|(it, count)| (labels([("signal", it)]), count));
    let help = "Answers with an opt-out, a licence or a price, whatever purpose is declared, by signal";
    all.counters("signals", help, named(said));
    let names = ["robots.txt-usage", "robots.txt-license", "tdmrep.json", "license-file"];
    let files = names.into_iter().zip(files);
    let help = "Answers and files with a malformed signal, which counts as unknown, by signal";
    all.counters("signals_malformed", help, named(malformed.into_iter().chain(files).collect()));
}

fn gate(all: &mut Metrics, gate: &Gate) {
    let (figures, times) = (gate.figures(), gate.times());
    let robots = &figures.robots;
    let [answered, failed] = [[("result", "answered")], [("result", "failed")]];
    let [of_robots, of_tdmrep, of_license] =
        [0, 1, 2].map(|kind| [(labels(answered), robots.fetched[kind]), (labels(failed), robots.failed[kind])]);
    all.counters("robots_fetches", "Fetches of robots.txt, by result", of_robots);
    all.counters("tdmrep_fetches", "Fetches of tdmrep.json, by result", of_tdmrep);
    all.counters("license_fetches", "Fetches of licence files (RSL), by result", of_license);
    let help = "Age of the cached copy when a fetch replaced it or failed to, by result";
    all.histogram("robots_copy_age_seconds", help, [(answered, times.answered_age), (failed, times.failed_age)]);
    all.gauge("authorities", "Authorities in memory", robots.authorities);
    all.gauge("robots_files", "Different robots.txt files in memory", robots.files);
    all.gauge("tdmrep_files", "Different tdmrep.json files in memory", robots.tdmrep_files);
    all.gauge("waiting", "Requests waiting for their slot or for robots.txt", figures.waiting);
    let held = [([("for", "turn")], times.held_for_turn), ([("for", "robots")], times.held_for_robots)];
    all.histogram("held_seconds", "Time for which requests were held, by cause", held);
    let longest = gate.longest_held(Duration::ZERO).map_or(Duration::ZERO, |held| held.since);
    all.gauge("longest_held_seconds", "Time for which the oldest held request has been waiting", longest.as_secs_f64());
    let parts = [
        ("authorities", robots.authority_bytes),
        ("files", robots.file_bytes),
        ("paces", robots.pace_bytes),
        ("unwritten", robots.unwritten_bytes),
    ];
    let parts = parts.map(|(of, bytes)| (labels([("of", of)]), bytes));
    all.gauges("memory_bytes", "Memory limited by `store.memory`, by content", parts);
    if let Some((is_open, bytes)) = gate.store() {
        all.gauge("store_up", "1 if the store on disk can be used", usize::from(is_open));
        all.gauge("store_bytes", "Size of the store on disk", bytes);
    }
    if let Some(fleet) = &figures.fleet {
        all.gauge("fleet_up", "1 if the fleet's server can be reached", usize::from(fleet.is_up));
        all.gauge("fleet_instances", "Connected instances, as the fleet's server last reported", fleet.instances);
        all.gauge("fleet_missing", "Missing instances, as the fleet's server last reported", fleet.missing);
        all.counter("fleet_round_trips", "Round trips to the fleet's server", fleet.calls);
        all.counter("fleet_losses", "Times that the connection to the fleet's server was lost", fleet.lost);
    }
}

fn connections(all: &mut Metrics, proxy: &Proxy, [handshakes, failed_handshakes]: [u64; 2]) {
    let ((open, accepted), upstream) = (proxy.connections(), proxy.upstream.figures());
    all.gauge("client_connections", "Open client connections", open);
    all.counter("client_connections_accepted", "Client connections accepted", accepted);
    let help = "Idle connections to origins, kept for reuse";
    all.gauge("origin_connections_idle", help, upstream.idle);
    let [ok, failed] = [("result", "ok"), ("result", "failed")];
    let opened = [(labels([ok]), upstream.opened), (labels([failed]), upstream.failed)];
    all.counters("origin_connects", "Attempts to connect to origins, by result", opened);
    let [client, origin] = [("peer", "client"), ("peer", "origin")];
    let handshakes = [
        (labels([client, ok]), handshakes),
        (labels([client, failed]), failed_handshakes),
        (labels([origin, ok]), upstream.handshakes),
        (labels([origin, failed]), upstream.failed_handshakes),
    ];
    all.counters("tls_handshakes", "TLS handshakes with clients and origins, by result", handshakes);
    let lookups = [([ok], upstream.found), ([failed], upstream.not_found)];
    all.histogram("dns_lookup_seconds", "Time of lookups by the system's resolver, by result", lookups);
    all.gauge("leaves", "Cached host certificates", proxy.leaves.ready());
    all.counter("leaves_made", "Host certificates issued", proxy.leaves.made());
    let expires = proxy.leaves.ca().validity().1.unix_timestamp();
    all.gauge("ca_expiry_timestamp_seconds", "Time at which the certificate authority expires", expires as f64);
}

fn labels<const N: usize>(labels: [(&'static str, &str); N]) -> Labels {
    labels.map(|(name, value)| (name, value.to_owned())).into()
}

struct Metrics(Registry);

impl Metrics {
    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.0.register(name, help, ConstCounter::new(value));
    }

    fn counters(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, u64)>) {
        self.family(name, help, values, |counter: &Counter, value| _ = counter.inc_by(value));
    }

    fn amounts(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, f64)>) {
        self.family(name, help, values, |counter: &Counter<f64, AtomicU64>, value| _ = counter.inc_by(value));
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue + Debug + Send + Sync + 'static) {
        self.0.register(name, help, ConstGauge::new(value));
    }

    fn gauges(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, usize)>) {
        self.family(name, help, values, |gauge: &Gauge, value| _ = gauge.set(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn family<M: Metric + TypedMetric + Default, V>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, V)>,
        set: fn(&M, V),
    ) {
        let family = Family::<Labels, M>::default();
        values.into_iter().for_each(|(labels, value)| set(&family.get_or_create(&labels), value));
        self.0.register(name, help, family);
    }

    fn histogram<const N: usize, const M: usize>(
        &mut self,
        name: &str,
        help: &str,
        read: [([(&'static str, &str); N], Distribution); M],
    ) {
        let read = read.map(|(named, read)| (labels(named), read));
        self.0.register(name, help, Histograms(read.into()));
    }
}

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
