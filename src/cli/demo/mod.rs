//! `politely demo`: a sample site and a crawl of it through the proxy, all on loopback, each request explained.

mod crawler;
mod site;

use super::CommandError;
use super::command_error::exit_code;
use super::signal_set::{STOP, SignalSet};
use crate::config::Settings;
use crate::policy::Host;
use crate::robots::RobotsTxt;
use crate::server::{self, Running, StartError};
use crate::telemetry::is_colorful;
use crate::tls::{Ca, LeafCache, provider};
use crawler::Crawler;
use rustls::RootCertStore;
use serde_json::json;
use site::{DemoVisits, ROBOTS};
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::SignalKind;
use tokio::task::spawn_blocking;

const BOT: &str = "DemoBot";
const HOST: &str = "shop.localhost";

/// The crawler's requests, in order.
const CRAWL: [(bool, &str); 9] = [
    (false, "/"),
    (false, "/private/accounts"),
    (false, "/%70rivate/accounts"),
    (false, "/private/press/2026.html"),
    (false, "/list?sort=price"),
    (false, "/list?page=2"),
    (true, "/"),
    (true, "/a/../private/accounts"),
    (true, "/about"),
];

pub(super) fn run() -> Result<ExitCode, CommandError> {
    super::block_on(demonstrate())?
}

async fn demonstrate() -> Result<ExitCode, CommandError> {
    // Signals are caught, so that the temporary directory is removed whatever ends the demo.
    let mut signals = SignalSet::catch(&[&STOP[..], &[SignalKind::hangup()]].concat())?;
    let visits = DemoVisits::default();
    let home = tempfile::tempdir().map_err(CommandError::no_temporary_files)?;
    // A separate authority issues the site's certificate; the proxy trusts it like a public one.
    let site_ca = Ca::open_or_create(&home.path().join("site")).map_err(StartError::from)?;
    let site_ca_file = site_ca.path().to_owned();
    let host = Host::parse(HOST).map_err(io::Error::other)?;
    let leaves = LeafCache::new(site_ca, 1).map_err(StartError::from)?;
    let mut tls = (*leaves.config_for(&host)).clone();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let http = site::serve(visits.clone(), None).await?;
    let https = site::serve(visits.clone(), Some(Arc::new(tls))).await?;

    let settings = Settings::parse("demo", &settings(home.path(), &site_ca_file, [http, https]))?;
    let running = server::start(settings).await?;
    let crawled = tokio::select! {
        crawled = crawl(&running, [http, https], &visits) => crawled,
        signal = signals.next() => Ok(ExitCode::from(exit_code(None, Some(signal.as_raw_value())))),
    };
    running.shutdown_before(signals.next_to_stop()).await;
    crawled
}

async fn crawl(running: &Running, [http, https]: [u16; 2], visits: &DemoVisits) -> Result<ExitCode, CommandError> {
    let proxy = running.addresses()[0];
    let crawler = Crawler { proxy, trust: trust(&running.ca_path())? };
    let rules: String = ROBOTS.lines().enumerate().map(|(n, line)| format!("  {:>2} | {line}\n", n + 1)).collect();
    print(format!(
        "A sample site is at http://{HOST}:{http} and https://{HOST}:{https}. Its robots.txt:\n\n{rules}\n\
         {BOT}, a crawler that never reads it, asks for 9 pages through the proxy at {proxy}:\n\n  \
         at      status  request                          because\n"
    ))
    .await?;
    let began = Instant::now();
    for (secure, path) in CRAWL {
        let (scheme, port) = if secure { ("https", https) } else { ("http", http) };
        let asked = Instant::now();
        let status = crawler.get(secure, &format!("{HOST}:{port}"), path).await?;
        let waited = asked.elapsed();
        print(format!(
            "  {:>5.2} s {} {scheme:>6} {path:<26} {}\n",
            began.elapsed().as_secs_f32(),
            paint(status),
            because(path, waited)
        ))
        .await?;
    }
    print(report(visits, began)).await
}

/// Prints on another thread, so that signals are handled even if nobody reads the output.
async fn print(text: String) -> Result<ExitCode, CommandError> {
    spawn_blocking(move || super::print(&text)).await.map_err(io::Error::other)?
}

fn settings(home: &std::path::Path, site_ca: &std::path::Path, ports: [u16; 2]) -> String {
    // Every JSON text is also YAML.
    json!({
        "listen": [{ "address": "127.0.0.1:0" }],
        "admin": { "address": "off" },
        "egress": { "allow": ["127.0.0.0/8", "::1"], "ports": ports, "ca_file": site_ca },
        "store": { "directory": home.join("store") },
        "intercept": { "ca": { "directory": home.join("ca") } },
    })
    .to_string()
}

fn trust(ca: &std::path::Path) -> Result<Arc<rustls::ClientConfig>, CommandError> {
    use rustls::pki_types::pem::PemObject;
    let mut roots = RootCertStore::empty();
    let certificate = rustls::pki_types::CertificateDer::from_pem_file(ca).map_err(io::Error::other)?;
    roots.add(certificate).map_err(io::Error::other)?;
    let config = rustls::ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    Ok(Arc::new(config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth()))
}

/// The rule that decided, and the wait, if any.
fn because(path: &str, waited: Duration) -> String {
    let rules = RobotsTxt::parse(ROBOTS.as_bytes()).rules_for(&[BOT]);
    let verdict = rules.check(path);
    let rule = match verdict.rule() {
        Some(rule) => {
            let kind = if verdict.is_allowed() { "Allow" } else { "Disallow" };
            format!("line {}, {kind}: {}", rule.line(), rule.pattern())
        }
        None => String::from("no rule matches: allowed"),
    };
    match rules.crawl_delay() {
        Some(delay) if waited > Duration::from_millis(100) => {
            format!("{rule}; held {:.2} s for Crawl-delay: {}", waited.as_secs_f32(), delay.as_secs())
        }
        Some(_) | None => rule,
    }
}

fn report(visits: &DemoVisits, began: Instant) -> String {
    let visits = visits.lock();
    let visits =
        visits.iter().map(|(at, visit)| format!("  {:>5.2} s  {visit}\n", at.duration_since(began).as_secs_f32()));
    format!(
        "\nWhat the site saw, according to its own log:\n\n{}\nNow run your own crawler like this:  \
         politely run -- wget -r https://example.com\n",
        visits.collect::<String>()
    )
}

fn paint(status: u16) -> String {
    if !is_colorful(&io::stdout()) {
        return format!("   {status}");
    }
    let color = if status == 200 { 32 } else { 31 };
    format!("   \u{1b}[{color}m{status}\u{1b}[0m")
}
