//! `/metrics`: what is counted, in the form that Prometheus reads.

use super::Admin;
use super::json::problem;
use crate::telemetry;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

type Labels = Vec<(&'static str, &'static str)>;

pub(super) async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    let mut text = String::new();
    match encode(&mut text, &registry(&admin)) {
        Ok(()) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Made of what is counted elsewhere at each scrape, so that nothing is counted twice.
fn registry(admin: &Admin) -> Registry {
    let (figures, counts) = (admin.gate().figures(), admin.proxy.counters.read());
    let mut registry = Registry::with_prefix("politely");

    let requests = [("forwarded", counts.forwarded), ("failed", counts.failed), ("client-gone", counts.client_gone)]
        .into_iter()
        .chain(counts.refused);
    counters(
        &mut registry,
        "requests",
        "Requests, by how they ended: forwarded, failed, client-gone, or why refused",
        "outcome",
        requests,
    );
    counters(
        &mut registry,
        "requests_reported",
        "Requests that report mode let through, by why they would have been refused or held",
        "outcome",
        counts.reported,
    );
    counters(
        &mut registry,
        "distrusted",
        "TLS connections that clients ended because of our certificate, by how",
        "how",
        counts.distrusted,
    );
    let unverified = Counter::<u64>::default();
    unverified.inc_by(counts.unverified);
    let help = "Answers of origins whose certificate is not verified, as configured";
    registry.register("unverified_answers", help, unverified);
    let help = "Lines of the logs that were dropped, as their reader or disk did not keep up, by log";
    counters(&mut registry, "log_lines_dropped", help, "log", telemetry::dropped());
    let fetches = [("answered", figures.robots.fetched), ("failed", figures.robots.failed)];
    counters(&mut registry, "robots_fetches", "Fetches of robots.txt, by result", "result", fetches);

    let book = &figures.robots;
    gauge(&mut registry, "authorities", "Authorities in memory", book.authorities);
    gauge(&mut registry, "robots_files", "Different robots.txt files in memory", book.files);
    gauge(&mut registry, "waiting", "Requests that wait for their turn", figures.waiting);
    let last = &admin.last_reload;
    let is_successful = usize::from(last.is_successful.load(Relaxed));
    let help = "1: all of the configuration is in force since the last reload, or the start";
    gauge(&mut registry, "config_last_reload_successful", help, is_successful);
    let succeeded_at = last.succeeded_at.load(Relaxed) as usize;
    let help = "When the configuration was last reloaded in full, or read at the start";
    gauge(&mut registry, "config_last_reload_success_timestamp_seconds", help, succeeded_at);
    gauge(&mut registry, "uptime_seconds", "Since the start", admin.started.elapsed().as_secs() as usize);
    let version = vec![("version", env!("CARGO_PKG_VERSION"))];
    let build = Family::<Labels, Gauge>::default();
    build.get_or_create(&version).set(1);
    registry.register("build_info", "Always 1, with the version", build);
    let memory = Family::<Labels, Gauge>::default();
    let parts = [
        ("authorities", book.authority_bytes),
        ("files", book.file_bytes),
        ("paces", book.pace_bytes),
        ("unwritten", book.unwritten_bytes),
    ];
    for (of, bytes) in parts {
        memory.get_or_create(&vec![("of", of)]).set(whole(bytes));
    }
    registry.register("memory_bytes", "Memory of what `store.memory` bounds", memory);
    if let Some(fleet) = &figures.fleet {
        gauge(&mut registry, "fleet_up", "1: the fleet's server can be asked", usize::from(fleet.is_up));
        gauge(&mut registry, "fleet_instances", "Instances of the fleet when last seen", fleet.instances as usize);
        let counts = [
            ("fleet_round_trips", "Round trips to the fleet's server", fleet.calls),
            ("fleet_losses", "Times that the fleet's server was lost", fleet.lost),
        ];
        for (name, help, count) in counts {
            let counter = Counter::<u64>::default();
            counter.inc_by(count);
            registry.register(name, help, counter);
        }
    }
    registry
}

fn counters(
    registry: &mut Registry,
    name: &str,
    help: &str,
    label: &'static str,
    values: impl IntoIterator<Item = (&'static str, u64)>,
) {
    let family = Family::<Labels, Counter>::default();
    for (kind, count) in values {
        family.get_or_create(&vec![(label, kind)]).inc_by(count);
    }
    registry.register(name, help, family);
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: usize) {
    let gauge = Gauge::<i64>::default();
    gauge.set(whole(value));
    registry.register(name, help, gauge);
}

fn whole(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
