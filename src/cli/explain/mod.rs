//! `politely explain URL`: whether the URL may be fetched, and which line of which file decides.

mod of_runs;
mod on_record;
mod past;

use super::admin_client::{ask_running, segment};
use super::check::unknown_user;
use super::{CommandError, ConfigArg, Explained, Format, NO, last_run, pace_limits, read_or_input};
use crate::admin;
use crate::config::{InterceptMode, Settings, state_directory};
use crate::policy::explain::{Explanation, SiteFileState, explain};
use crate::policy::freshness::Freshness;
use crate::policy::{Access, Authority, Entry, EntryEvidence, HostRules, LineEvidence, Request, SiteAnswer};
use crate::robots::{ProductToken, Purpose, RobotsTxt};
use crate::server;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use url::form_urlencoded;

#[derive(Debug, clap::Args)]
pub(super) struct ExplainArgs {
    /// An absolute http or https URL. Its robots.txt is fetched at once, whatever its host's pace
    url: String,
    #[command(flatten)]
    config: ConfigArg,
    /// Product token of the crawler; may be given several times [default: as configured for the host, else the crawler of the last
    /// `politely run`, else `*`]
    #[arg(long = "product-token", value_name = "T", value_parser = ProductToken::parse)]
    product_tokens: Vec<ProductToken>,
    /// What the content is for, such as `ai-train`; may be given several times [default: identity.purpose]
    #[arg(long = "purpose", value_name = "P", value_parser = Purpose::parse)]
    purposes: Vec<Purpose>,
    /// Decide as for a request of this user of `access.users`
    #[arg(long, value_name = "NAME", conflicts_with = "at")]
    user: Option<String>,
    /// Use this file instead of fetching one; `-` is standard input
    #[arg(long, value_name = "FILE")]
    robots: Option<PathBuf>,
    /// Explain as of this time, from the stored evidence: `2d` means two days ago; 2026-11-22 the end of that day, UTC;
    /// 2026-11-22T18:30:00Z the end of that second
    #[arg(long, value_name = "TIME", conflicts_with = "robots")]
    at: Option<String>,
    /// The directory of the evidence [default: evidence.directory of the configuration]
    #[arg(long, value_name = "DIR", requires = "at")]
    evidence: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(args: &ExplainArgs) -> Result<ExitCode, CommandError> {
    let hint = "write a complete URL, such as https://example.com/page";
    let (authority, target) = Authority::and_target(&args.url).explained(format!("`{}`", args.url), hint)?;
    if let Some(at) = &args.at {
        return past::run(args, at, &authority, &target);
    }
    let settings = args.config.load()?;
    let user = args.user.as_ref().map(|name| settings.user(name).ok_or_else(|| unknown_user(name))).transpose()?;
    let policy = settings.hosts_of(user.as_deref()).get(authority.host());
    let rules = policy.rules.clone().asked_for(&args.product_tokens, &args.purposes);
    let own_tokens = user.as_ref().map_or(&[][..], |user| &user.product_tokens);
    let request = Request { product_tokens: own_tokens, ..Request::new(&authority, target.as_bytes()) };
    let is_told = !args.product_tokens.is_empty() || !rules.product_tokens(&request).is_empty();
    let last_run = if is_told { Vec::new() } else { last_run::product_tokens(&state_directory()) };
    let rules = rules.asked_for(&last_run, &[]);
    let max_crawl_delay = settings.pace.max_crawl_delay;
    let refused = settings.refuses(user.as_deref(), &authority, "GET");
    let is_tunnelled = policy.intercept == InterceptMode::Tunnel && authority.is_https();
    let tunnelled = is_tunnelled.then(|| policy.intercept_key.clone());
    let (explanation, of_runs) = match &args.robots {
        Some(file) => {
            let explanation = by_file(file, &request, &rules, &settings)?;
            (refused.iter().fold(explanation, Explanation::refused), Ok(None))
        }
        None => super::block_on(async {
            let gate = server::gate_alone(settings.clone())?;
            let explained = gate.explain(&request, &rules, refused.as_ref()).await;
            let explanation = explained.map_err(|why| CommandError::not_asked(&authority, &why))?;
            Ok::<_, CommandError>((
                explanation,
                of_runs::of_runs(settings, &gate, &request, &rules, refused.as_ref()).await,
            ))
        })??,
    };
    // What a running proxy knows of the site: its copy of robots.txt, and the licence and price that answers named (`Link`, 402).
    let known = || ask_running(&args.config, &format!("/api/v1/authorities/{}", segment(&authority)));
    let mut running = args.robots.is_none().then(known).flatten();
    // A running proxy that knows the site may remember that the page itself reserved the use.
    let asks = running.is_some() && explanation.allowed;
    let remembered = asks.then(|| remembered(args, &[own_tokens, &last_run].concat())).flatten();
    let offer = running.as_mut().map(|known| known["offer"].take()).unwrap_or_default();
    match args.format {
        Format::Text => {
            let verdict = remembered
                .as_ref()
                .map(|it| refused_by_page("robots.txt", it["rule"].as_str().unwrap_or_default(), it["said"].as_str()));
            let mut out = text(&explanation, verdict.as_deref(), max_crawl_delay) + &describe_offer(&offer);
            if let Some(key) = tunnelled {
                out += &format!("  note: the proxy does not see the requests in a tunnel (`{key}: tunnel`)\n");
            }
            if args.robots.is_none() {
                let of_runs = of_runs.as_ref().map(Option::as_ref).map_err(|why| *why);
                out += &of_runs::text(&explanation, of_runs, running.as_ref());
            }
            if !last_run.is_empty() {
                out += "  note: this is the crawler of the last `politely run`; `--product-token` names another\n";
            }
            super::print(&out)?;
        }
        Format::Json => {
            let mut all = admin::explanation(&explanation);
            if args.robots.is_none() {
                all["offer"] = offer;
                all["remembered"] = remembered.clone().into();
                all["run"] = of_runs.ok().flatten().as_ref().map(of_runs::as_json).into();
            }
            all["max_crawl_delay"] = max_crawl_delay.as_secs_f64().into();
            if !last_run.is_empty() {
                all["of_last_run"] = true.into();
            }
            super::print(&super::inert_json(&format!("{all}\n")))?;
        }
    }
    Ok(if explanation.allowed && remembered.is_none() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

fn by_file(
    file: &Path,
    request: &Request<'_>,
    rules: &HostRules,
    settings: &Settings,
) -> Result<Explanation, CommandError> {
    let (name, bytes) = read_or_input(file, "`--robots` takes a robots.txt, or `-`")?;
    let now = SystemTime::now();
    let robots = RobotsTxt::parse_with(&bytes, &settings.robots.parse_options());
    let mut explanation = explain(&as_fetched(robots, now), rules, request, now);
    let robots = &mut explanation.robots;
    robots.url = name;
    (robots.status, robots.fetched_at, robots.expires_at) = (None, None, None);
    Ok(explanation)
}

fn as_fetched(robots: RobotsTxt, now: SystemTime) -> Entry {
    let freshness = Freshness::new(now, Duration::from_secs(1), 0.0);
    Entry::answered(SiteAnswer::new(Access::Rules(robots), 200, freshness))
}

/// Asks the running proxy whether the page itself has reserved the declared use, and the reservation still applies. `tokens`: the product
/// tokens to judge for, unless `--product-token` gives some.
fn remembered(args: &ExplainArgs, tokens: &[ProductToken]) -> Option<Value> {
    let given = Some(&args.product_tokens[..]).filter(|given| !given.is_empty());
    let tokens = given.unwrap_or(tokens).iter().map(|token| ("product_token", token.as_str()));
    let purposes = args.purposes.iter().map(|purpose| ("purpose", purpose.as_str()));
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("url", &args.url)
        .extend_pairs(tokens.chain(purposes))
        .finish();
    let mut known = ask_running(&args.config, &format!("/api/v1/explain?{query}"))?;
    Some(known["remembered"].take()).filter(Value::is_object)
}

/// Formats the verdict on a page that robots.txt or the operator allows, but whose own reservation refuses the use. `read`: when the page
/// was read.
fn refused_by_page(allowed_by: &str, rule: &str, read: Option<&str>) -> String {
    let read = read.map_or_else(String::new, |at| format!(", read at {at}"));
    format!("allowed by {allowed_by}; refused by the page's own {rule}{read}")
}

fn describe_offer(offer: &Value) -> String {
    let mut out = String::new();
    for (name, from) in [("license", "named by an answer's Link"), ("price", "named by a 402")] {
        if let Some(said) = offer[name].as_str() {
            out += &format!("  {name}: {said} ({from})\n");
        }
    }
    super::inert(&out)
}

/// Formats an explanation. `verdict`: replaces "allowed" or "disallowed".
fn text(explanation: &Explanation, verdict: Option<&str>, max_crawl_delay: Duration) -> String {
    let Explanation { url, detail, line, reservation, setting, robots, .. } = explanation;
    let verdict = verdict.unwrap_or(if explanation.allowed { "allowed" } else { "disallowed" });
    let tokens = match explanation.product_tokens.as_slice() {
        [] => "any crawler".to_owned(),
        tokens => tokens.join(", "),
    };
    let mut out = format!("{verdict}: {url}\n  for {tokens}: {detail}\n");
    out += &match (reservation, line) {
        (Some(EntryEvidence { url, entry, location, term, .. }), _) => match term {
            Some(term) => format!("  --> {url}, content {entry}: url=\"{location}\", {term}\n"),
            None => format!("  --> {url}, entry {entry}: \"location\": \"{location}\"\n"),
        },
        (None, Some(LineEvidence { line, key, value, .. })) => {
            format!("  --> {}:{line}\n   |\n{line:>3} | {key}: {value}\n   |\n", robots.url)
        }
        (None, None) => match setting {
            Some(key) => format!("  --> {key}, in the configuration\n"),
            None => format!("  --> {} ({})\n", robots.url, robots.access),
        },
    };
    if let (Some(again), Some(status)) = (robots.asked_again, robots.status) {
        let (first, version) = (again.first_status, again.first_version);
        out += &format!("  note: status {first} over {version}, retried over HTTP/1.1: status {status}\n");
    }
    if let Some(note) = robots.note() {
        out += &format!("  note: {note}\n");
    }
    if let Some(delay) = explanation.crawl_delay {
        let (asked, most) = (delay.as_secs_f64(), max_crawl_delay.as_secs_f64());
        out += &match asked > most {
            true => format!("  crawl-delay: {most} s (`pace.max_crawl_delay`), instead of the {asked} s asked for\n"),
            false => format!("  crawl-delay: {asked} s\n"),
        };
    }
    pace_limits(&explanation.manners).for_each(|(_, said)| out += &format!("  pace: {said}\n"));
    for note in [&explanation.tdmrep, &explanation.license].into_iter().flatten().filter_map(SiteFileState::note) {
        out += &format!("  note: {note}\n");
    }
    for (preference, purpose) in &explanation.preferences {
        let LineEvidence { line, key, value, .. } = preference;
        out += &format!("  note: line {line}, `{key}: {value}`, says no to `{purpose}`, which is not declared\n");
    }
    for license in &explanation.licenses {
        out += &format!("  license: {license}\n");
    }
    for sitemap in &explanation.sitemaps {
        out += &format!("  sitemap: {sitemap}\n");
    }
    super::inert(&out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn control_characters_of_a_site_are_escaped() {
        let file = "User-agent: *\nDisallow: /\x1b[2J\nSitemap: \u{9b}31m\n";
        let entry = as_fetched(RobotsTxt::parse(file.as_bytes()), SystemTime::now());
        let (authority, rules) = (Authority::from_url("http://a.example").unwrap(), HostRules::new(Arc::default()));
        let request = Request::new(&authority, b"/%1b[2J");
        let text = text(&explain(&entry, &rules, &request, SystemTime::now()), None, Duration::MAX);
        assert!(text.contains("| Disallow: /\\u{1b}[2J\n") && text.contains("sitemap: \\u{9b}31m\n"), "{text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }
}
