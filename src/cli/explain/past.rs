//! `explain --at TIME`: judges by the robots.txt and the configuration of that time, from the evidence.

use super::on_record::{on_record, own_fetch_as_json};
use super::{ExplainArgs, describe_offer, refused_by_page, text};
use crate::admin;
use crate::cli::evidence::{broken, directory};
use crate::cli::{CommandError, Explained, Format, NO, inert, inert_json, print};
use crate::config::{Settings, User};
use crate::evidence::{Decision, Found, Past, SiteCopy, digits, find, when};
use crate::policy::explain::{Explanation, UNKNOWN, explain};
use crate::policy::{Authority, HostRules, Known, Request};
use crate::rfc3339;
use crate::robots::{ProductToken, Purpose};
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

pub(super) fn run(args: &ExplainArgs, at: &str, authority: &Authority, target: &str) -> Result<ExitCode, CommandError> {
    let at = at_end(at).map_err(|error| CommandError::usage(error, "see `politely explain --help`"))?;
    let directory = directory(args.evidence.as_deref(), &args.config)?;
    let what = format!("cannot read the evidence in {}", directory.display());
    let found = find(&directory, authority, &authority.url(target), at);
    let (past, verified) = found.explained(what, "`politely evidence verify DIR` says what is wrong with it")?;
    let Some(past) = past else {
        let what = format!("the evidence has no decision about {authority} before {}", rfc3339::millis(at));
        return Err(CommandError::usage(what, "`politely report DIR --by host` says what the evidence is about"));
    };
    let (settings, unread) = settings(args, &past)?;
    let asker = past.last.last().unwrap_or(&past.known);
    let user = asker.decision.user.as_deref().and_then(|name| settings.user(name));
    let rules = rules(args, &settings, asker, user.as_deref(), authority);
    let request = Request::new(authority, target.as_bytes());
    let robots = past.robots(&settings.robots.parse_options(), at);
    let tdmrep = rules.mining_purpose().map(|_| past.tdmrep(at));
    let known = Known { robots: &robots, tdmrep: tdmrep.as_ref(), license: None };
    let method = asker.decision.method.as_deref().filter(|method| *method != "CONNECT").unwrap_or("GET");
    let refused = settings.refuses(user.as_deref(), authority, method);
    let mut explanation = refused.iter().fold(explain(known, &rules, &request, at), Explanation::refused);
    let broken = broken(&verified);
    let warning =
        broken.as_ref().map_or(String::new(), |why| format!("warning: {}: do not rely on any of this\n", inert(why)));
    if explanation.reason == UNKNOWN {
        if matches!(args.format, Format::Text) {
            print(&(inert(&on_record(&explanation.url, &past, at)) + &warning))?;
        }
        let what = format!("no verdict for {}: according to the evidence, {}", rfc3339::millis(at), explanation.detail);
        return Err(CommandError::usage(what, "try a later `--at`"));
    }
    explanation.robots.fetched_at = past.robots.as_ref().and_then(|robots| robots.copy.fetched);
    explanation.robots.expires_at = None;
    if let Some(tdmrep) = &mut explanation.tdmrep {
        tdmrep.fetched_at = past.tdmrep.as_ref().and_then(|tdmrep| tdmrep.copy.fetched);
        tdmrep.expires_at = None;
    }
    let contradicted = find_contradiction(&explanation, &past);
    let by_page = by_page(&explanation, &past);
    let is_refused = by_page.is_some_and(|decision| decision.verdict.as_deref() == Some("refused"));
    let page_rule = by_page.and_then(|decision| decision.rule.as_deref());
    let differs = explain_difference(&explanation, &past).filter(|_| contradicted.is_none());
    match args.format {
        Format::Text => {
            let is_set = matches!(explanation.reason, "robots-ignored" | "allowed-by-operator");
            let by = if is_set { "the operator" } else { "robots.txt" };
            let read = past.page_read.map(rfc3339::millis);
            let verdict = page_rule.map(|rule| match is_refused {
                true => refused_by_page(by, rule, read.as_deref()),
                false => {
                    format!("allowed by {by}; the page's own {rule} says no, which was only reported, as configured")
                }
            });
            let judged = text(&explanation, verdict.as_deref(), settings.pace.max_crawl_delay)
                + &differs.map_or_else(String::new, |said| inert(&format!("  note: {said}\n")))
                + &describe_offer(&offer(&past));
            let mut out = inert(&on_record(&explanation.url, &past, at))
                + "\njudged again, by the files of that time:\n"
                + &judged
                + &inert(&origin(&past, at, unread.as_deref()))
                + &warning;
            if let Some(same) = contradicted {
                let (segment, line) = (same.segment, same.line);
                let _ = writeln!(
                    out,
                    "warning: this contradicts the record in segment {segment}, line {line}, which is based on the same files: do not \
                     rely on either; `politely evidence verify DIR` says whether the record was changed"
                );
            }
            print(&out)?
        }
        Format::Json => {
            let mut all = as_json(&explanation, &past, at, unread.as_deref());
            all["evidence"]["contradicts"] = contradicted.is_some().into();
            all["evidence"]["broken"] = broken.as_deref().into();
            all["evidence"]["refused_by_page"] = page_rule.filter(|_| is_refused).into();
            all["evidence"]["reported_by_page"] = page_rule.filter(|_| !is_refused).into();
            all["evidence"]["page_read"] = by_page.and(past.page_read).map(rfc3339::millis).into();
            all["evidence"]["differs"] = differs.into();
            print(&inert_json(&format!("{all}\n")))?
        }
    };
    if contradicted.is_some() || broken.is_some() {
        return Ok(ExitCode::from(UNSURE));
    }
    Ok(if explanation.allowed && !is_refused { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

/// The last record in which the page itself reserved a use, if the record is of this crawler and use, and the site's files of that time
/// allow them.
fn by_page<'a>(explanation: &Explanation, past: &'a Past) -> Option<&'a Decision> {
    let Found { decision, .. } = past.by_page.as_ref().filter(|_| explanation.allowed)?;
    has_same_crawler_and_use(decision, explanation).then_some(decision)
}

fn has_same_crawler_and_use(decision: &Decision, explanation: &Explanation) -> bool {
    decision.purpose == explanation.purposes && decision.product_tokens == explanation.product_tokens
}

/// Explains why the verdict in the URL's last record differs from the verdict judged now. `None`: both agree, or no verdict is on record.
fn explain_difference(explanation: &Explanation, past: &Past) -> Option<String> {
    let last @ Found { decision, .. } = past.last.last()?;
    let (reason, verdict) = (decision.reason.as_deref()?, decision.verdict.as_deref()?);
    let why = match reason {
        _ if reason == explanation.reason && (verdict != "refused") == explanation.allowed => return None,
        _ if !has_same_crawler_and_use(decision, explanation) => "it was judged for another crawler or use",
        _ if decision.is_by_page() => "the page itself decided, and pages are not in the evidence",
        _ if decision.is_by_license() => "a licence file decided, which is not judged again",
        _ if decision.config != past.known.decision.config => "it was decided under another configuration",
        _ if BY_FILES.contains(&reason) => "it was decided by another copy of the site's files",
        _ => "it depended on the time or on earlier requests, which cannot be judged again",
    };
    let now = if explanation.allowed { "allowed" } else { "refused" };
    let now = format!("judged again, it is {now} ({})", explanation.reason);
    Some(format!("the record of {} says {verdict} ({reason}); {now}: {why}", rfc3339::millis(last.at())))
}

/// Parses a time. A date means its last millisecond in UTC; a whole second, as in sites' logs, means its last millisecond.
fn at_end(text: &str) -> Result<SystemTime, String> {
    let at = when(text)?;
    let is_second = text.contains('T') && !text.contains('.');
    let length = if text.len() == 10 && text.contains('-') { DAY } else { Duration::from_secs(is_second.into()) };
    Ok(at + length.saturating_sub(Duration::from_millis(1)))
}

/// The configuration of that time. If it is not available: the current one, and the reason.
fn settings(args: &ExplainArgs, past: &Past) -> Result<(Settings, Option<String>), CommandError> {
    let config = past.config.as_ref().ok_or_else(|| "the evidence does not contain it".to_owned());
    match config.and_then(|config| Settings::of_shown("the configuration of that time", config)) {
        Ok(then) => Ok((then, None)),
        Err(why) => Ok((args.config.load()?, Some(why))),
    }
}

/// The host's rules. The crawler and the purposes come from the arguments, else from `asker` (the last record of the
/// URL, or else of its site), else from the settings.
fn rules(
    args: &ExplainArgs,
    settings: &Settings,
    asker: &Found,
    user: Option<&User>,
    authority: &Authority,
) -> HostRules {
    let decision = &asker.decision;
    let tokens: Vec<_> = decision.product_tokens.iter().filter_map(|token| ProductToken::parse(token).ok()).collect();
    let purposes: Vec<_> = decision.purpose.iter().filter_map(|purpose| Purpose::parse(purpose).ok()).collect();
    let tokens = if args.product_tokens.is_empty() { &tokens } else { &args.product_tokens };
    let purposes = if args.purposes.is_empty() { &purposes } else { &args.purposes };
    settings.hosts_of(user).get(authority.host()).rules.clone().asked_for(tokens, purposes)
}

/// The URL's last record, if it is based on the same files and configuration, for the same crawler and use, but gives another reason.
fn find_contradiction<'a>(explanation: &Explanation, past: &'a Past) -> Option<&'a Found> {
    let same = past.last.last()?;
    let (then, known) = (&same.decision, &past.known.decision);
    let basis = |copy: Option<&SiteCopy>| copy.map(|copy| (copy.status, copy.sha256, copy.failure.is_some()));
    let is_based_alike = then.config == known.config
        && basis(then.robots.as_ref()) == basis(past.robots.as_ref().map(|robots| &robots.copy))
        && basis(then.tdmrep.as_ref()) == basis(past.tdmrep.as_ref().map(|tdmrep| &tdmrep.copy))
        && has_same_crawler_and_use(then, explanation);
    let reason = then.reason.as_deref()?;
    // Other reasons depend on the time, earlier requests, what the page says, or a licence file, which is not judged again.
    let is_by_files = BY_FILES.contains(&reason)
        || reason == "usage-disallowed" && !then.is_by_page() && !then.is_by_license() && then.origin_ms.is_none();
    (is_based_alike && is_by_files && reason != explanation.reason).then_some(same)
}

/// The licence and price that the site's answers had named by that time.
fn offer(past: &Past) -> Value {
    match (&past.license, &past.price) {
        (None, None) => Value::Null,
        (license, price) => json!({ "license": license, "price": price }),
    }
}

/// The site's files of that time, by name.
fn files(past: &Past) -> impl Iterator<Item = (&'static str, &SiteCopy)> {
    let copies =
        [past.robots.as_ref().map(|it| &it.copy), past.tdmrep.as_ref().map(|it| &it.copy), past.license_file.as_ref()];
    ["robots.txt", "tdmrep.json", "licence file"].into_iter().zip(copies).filter_map(|(name, copy)| Some((name, copy?)))
}

/// Formats the sources of the explanation.
fn origin(past: &Past, at: SystemTime, unread: Option<&str>) -> String {
    let mut out = format!("\nat {}, according to the evidence from that time:\n", rfc3339::millis(at));
    let robots = past.robots.as_ref();
    let known = robots.map_or(&past.known, |robots| &robots.found);
    for (name, copy) in files(past) {
        let fetched = copy.fetched.map_or(String::new(), |at| format!(" of {}", rfc3339::millis(at)));
        let _ = match (&copy.sha256, copy.status) {
            (Some(sha256), _) => writeln!(out, "  {name}{fetched}, SHA-256 {}", digits(sha256)),
            (None, Some(status)) => writeln!(out, "  {name}{fetched}: none (status {status})"),
            (None, None) => writeln!(out, "  {name}: not fetched"),
        };
    }
    if files(past).any(|(_, copy)| copy.sha256.is_some()) {
        let _ = writeln!(out, "  `politely evidence file SHA256 DIR` prints a file");
    }
    if past.license_file.is_some() {
        let _ = writeln!(out, "  note: the licence file is not judged again");
    }
    let _ = writeln!(
        out,
        "  according to the record of {} (segment {}, line {})",
        rfc3339::millis(known.at()),
        known.segment,
        known.line
    );
    if at > SystemTime::now() {
        let _ = writeln!(out, "  note: that time is in the future: this is based on the latest records");
    }
    if let Some(why) = unread {
        let _ = writeln!(
            out,
            "  note: decided by the current configuration, because the one in force at that time is not available: {why}"
        );
    }
    out
}

fn as_json(explanation: &Explanation, past: &Past, at: SystemTime, unread: Option<&str>) -> Value {
    let mut all = admin::explanation(explanation);
    let place = |found: &Found| {
        json!({
            "time": rfc3339::millis(found.at()),
            "segment": found.segment,
            "line": found.line,
            "product_tokens": found.decision.product_tokens,
            "purpose": found.decision.purpose,
            "verdict": found.decision.verdict,
            "reason": found.decision.reason,
            "rule": found.decision.rule,
            "outcome": found.decision.outcome,
            "site_status": found.decision.site_status(),
            "bytes": found.decision.site_bytes(),
        })
    };
    let copy = |(name, copy): (&str, &SiteCopy)| {
        json!({
            "file": name, "status": copy.status, "sha256": copy.sha256.as_ref().map(digits), "fetched": copy.fetched.map(rfc3339::millis),
        })
    };
    all["offer"] = offer(past);
    all["at"] = rfc3339::millis(at).into();
    all["evidence"] = json!({
        "record": place(past.robots.as_ref().map_or(&past.known, |robots| &robots.found)),
        "same_url": past.last.last().map(place),
        "asked": past.asked,
        "last": past.last.iter().map(place).collect::<Vec<_>>(),
        "files": files(past).map(copy).collect::<Vec<_>>(),
        "own_fetches": past.fetches.iter().map(own_fetch_as_json).collect::<Vec<_>>(),
        "sha256": past.robots.as_ref().and_then(|robots| robots.copy.sha256.as_ref()).map(digits),
        "config": past.known.decision.config.as_ref().map(digits),
        "config_of_then": unread.is_none(),
    });
    all
}

/// Reasons that depend only on the URL, the configuration and the site's files.
const BY_FILES: [&str; 9] = [
    "robots-txt",
    "allowed-by-operator",
    "operator-denied",
    "robots-ignored",
    "allowed-by-rule",
    "no-matching-rule",
    "no-robots-txt",
    "robots-disallowed",
    "rules-too-complex",
];
const DAY: Duration = Duration::from_secs(86_400);
/// Exit code if there is no reliable verdict.
const UNSURE: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_or_second_means_its_last_instant() {
        let read = |text: &str| rfc3339::millis(at_end(text).unwrap());
        assert_eq!(read("2026-11-20"), "2026-11-20T23:59:59.999Z");
        assert_eq!(read("2026-11-20T00:00:00Z"), "2026-11-20T00:00:00.999Z");
        assert_eq!(read("2026-11-20T00:00:00.250Z"), "2026-11-20T00:00:00.250Z");
        assert!(at_end("2026-11-31").is_err() && at_end("2026-1-1").is_err());
        assert!(at_end("7d").unwrap() < at_end("now").unwrap());
    }
}
