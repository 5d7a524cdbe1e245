//! `explain --at TIME`: by the robots.txt and the configuration that were in force then, from the evidence kept.

use super::{Args, text};
use crate::admin;
use crate::cli::evidence::{digits, directory};
use crate::cli::{Failed, Format, NO, inert, print};
use crate::config::Settings;
use crate::evidence::{Found, Past, find, rfc3339, when};
use crate::policy::explain::{Explanation, explain};
use crate::policy::{Authority, HostRules, Known, Request};
use crate::robots::{ProductToken, Purpose};
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;
use std::time::SystemTime;

pub(super) fn run(args: &Args, at: &str, authority: &Authority, target: &str) -> Result<ExitCode, Failed> {
    let at = when(at, SystemTime::now()).map_err(|error| Failed::usage(error, "see `politely explain --help`"))?;
    let directory = directory(args.evidence.as_deref(), &args.config)?;
    let past = find(&directory, authority, &authority.url(target), at).map_err(|error| {
        Failed::usage(
            format!("cannot read the evidence in {}: {error}", directory.display()),
            "`politely evidence verify` says what is wrong with it",
        )
    })?;
    let Some(past) = past else {
        let what = format!("nothing was decided about {authority} up to {}", rfc3339(at));
        return Err(Failed::usage(what, "`politely report --by host` says what the evidence is about"));
    };
    let (settings, is_of_then) = settings(args, &past)?;
    let rules = rules(args, &settings, &past.known, authority);
    let request = Request::new(authority, target.as_bytes());
    let (robots, tdmrep) = (past.robots(&settings.robots.parse_options(), at), past.tdmrep(at));
    let known = Known { robots: &robots, tdmrep: tdmrep.as_ref() };
    let mut explanation = explain(known, &rules, &request, at);
    explanation.robots.fetched_at = past.known.decision.robots.as_ref().and_then(|robots| robots.fetched);
    explanation.robots.expires_at = None;
    match args.format {
        Format::Text => print(&(text(&explanation) + &inert(&origin(&past, at, is_of_then))))?,
        Format::Json => print(&format!("{}\n", as_json(&explanation, &past, at, is_of_then)))?,
    };
    Ok(if explanation.allowed { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

/// What was configured then, if it can be read still; else what is now.
fn settings(args: &Args, past: &Past) -> Result<(Settings, bool), Failed> {
    let then = past.config.as_deref().and_then(|config| {
        let mut config: Value = serde_json::from_str(config).ok()?;
        // Passwords are not kept, and have nothing to do with it.
        config.as_object_mut()?.remove("access");
        Settings::parse("the configuration of then", &config.to_string()).ok()
    });
    match then {
        Some(then) => Ok((then, true)),
        None => Ok((Settings::load(args.config.path().as_deref(), std::env::vars_os())?, false)),
    }
}

/// For whom and what for: as is said, or else as the record has it.
fn rules(args: &Args, settings: &Settings, known: &Found, authority: &Authority) -> HostRules {
    let decision = &known.decision;
    let tokens: Vec<_> = decision.product_tokens.iter().filter_map(|token| ProductToken::parse(token).ok()).collect();
    let purposes: Vec<_> = decision.purpose.iter().filter_map(|purpose| Purpose::parse(purpose).ok()).collect();
    let tokens = if args.product_tokens.is_empty() { &tokens } else { &args.product_tokens };
    let purposes = if args.purposes.is_empty() { &purposes } else { &args.purposes };
    settings.hosts.get(authority.host()).rules.clone().asked_for(tokens, purposes)
}

/// Where it is known from.
fn origin(past: &Past, at: SystemTime, is_of_then: bool) -> String {
    let Past { known, same, .. } = past;
    let mut out = format!("\nat {}, by the evidence of then:\n", rfc3339(at));
    let robots = known.decision.robots.as_ref();
    if let Some(sha256) = robots.and_then(|robots| robots.sha256.as_ref()) {
        let fetched = robots.and_then(|robots| robots.fetched).map_or(String::new(), rfc3339);
        let _ = writeln!(out, "  robots.txt of {fetched}, SHA-256 {}", digits(sha256));
    }
    let _ = writeln!(
        out,
        "  as the record of {} has it (segment {}, line {})",
        rfc3339(known.time),
        known.segment,
        known.line
    );
    if let Some(same) = same {
        let verdict = same.decision.verdict.as_deref().unwrap_or("not decided");
        let reason = same.decision.reason.as_deref().unwrap_or_default();
        let time = rfc3339(same.time);
        let outcome = Some(format!(", {}", same.decision.outcome)).filter(|_| verdict != same.decision.outcome);
        let outcome = outcome.unwrap_or_default();
        let _ = writeln!(
            out,
            "  asked for at {time}: {verdict} ({reason}){outcome} (segment {}, line {})",
            same.segment, same.line
        );
    }
    if !is_of_then {
        out += "  note: the configuration is that of now; the one of then is not kept, or cannot be read any more\n";
    }
    out
}

fn as_json(explanation: &Explanation, past: &Past, at: SystemTime, is_of_then: bool) -> Value {
    let mut all = admin::explanation(explanation);
    let place = |found: &Found| {
        json!({
            "time": rfc3339(found.time),
            "segment": found.segment,
            "line": found.line,
            "verdict": found.decision.verdict,
            "reason": found.decision.reason,
            "outcome": found.decision.outcome,
        })
    };
    all["at"] = rfc3339(at).into();
    all["evidence"] = json!({
        "record": place(&past.known),
        "same_url": past.same.as_ref().map(place),
        "sha256": past.known.decision.robots.as_ref().and_then(|robots| robots.sha256.as_ref()).map(digits),
        "config": past.known.decision.config.as_ref().map(digits),
        "config_of_then": is_of_then,
    });
    all
}
