//! Explains why a URL may or may not be fetched: shows the evidence of a decision, and decides nothing itself. Pure.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::usage::policy_tokens::reserved_purposes;
use super::{
    Access, Allowance, AskedAgain, Authority, Entry, EntryEvidence, HostRules, Known, LineEvidence, Manners,
    PolicyOptions, Refusal, Request, Ruling, SiteAnswer, SiteFile, decide, may_fetch,
};
use crate::robots::RobotsTxt;

/// The explanation of one URL's verdict.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    pub url: String,
    pub authority: String,
    pub product_tokens: Vec<String>,
    /// The declared purposes.
    pub purposes: Vec<String>,
    pub allowed: bool,
    /// The slug of the refusal, or of the reason for allowing.
    pub reason: &'static str,
    /// The reason as a sentence, for people.
    pub detail: String,
    /// The line of robots.txt that decided, if one did: a rule or a usage preference.
    pub line: Option<LineEvidence>,
    /// The preferences in robots.txt that refuse some use of an allowed URL, each with that use, whether it is declared or not.
    pub preferences: Vec<(LineEvidence, Box<str>)>,
    /// The entry of tdmrep.json or of the licence file that decided, if one did.
    pub reservation: Option<EntryEvidence>,
    /// The configuration key that refuses the URL, if one does.
    pub setting: Option<String>,
    pub robots: SiteFileState,
    /// The state of tdmrep.json. `None`: the file does not matter to the verdict.
    pub tdmrep: Option<SiteFileState>,
    /// The state of the licence file. `None`: the file does not matter to the verdict.
    pub license: Option<SiteFileState>,
    pub crawl_delay: Option<Duration>,
    /// The host's limits beyond its crawl delay.
    pub manners: Manners,
    pub sitemaps: Vec<String>,
    /// URLs of the terms of use (RSL).
    pub licenses: Vec<String>,
}

/// The known state of one of the authority's files.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SiteFileState {
    pub url: String,
    /// HTTP status of the answer. `None`: there is no usable answer.
    pub status: Option<u16>,
    /// The first answer, if it rejected our request as malformed and a second one followed.
    pub asked_again: Option<AskedAgain>,
    /// The access that the file gives: `rules`, `allow-all` or `disallow-all` for robots.txt; `entries`, `none` or `unknown` for the other
    /// files.
    pub access: &'static str,
    /// Whether the site answers with an HTML page instead of a robots.txt.
    pub is_html: bool,
    pub fetched_at: Option<SystemTime>,
    pub expires_at: Option<SystemTime>,
    /// What is malformed in the file; without a usable copy, why the file could not or may not be fetched. Never set for robots.txt.
    pub fault: Option<String>,
    /// Why the last fetch failed, even if an older copy is in use.
    pub failure: Option<String>,
}

impl SiteFileState {
    fn unless_disallowed(self, may_be_fetched: bool) -> Self {
        let is_disallowed = self.status.is_none() && !may_be_fetched;
        let fault = if is_disallowed { Some(DISALLOWED.to_owned()) } else { self.fault };
        Self { fault, ..self }
    }

    /// A sentence for people about what is wrong with the file. `None`: nothing is wrong.
    pub fn note(&self) -> Option<String> {
        let Self { url, status, access, is_html, fault, .. } = self;
        if *is_html {
            let hint = "`politely lint` shows how it is read";
            return Some(format!("{url} is an HTML page, which usually contains no rules; {hint}"));
        }
        let why = fault.as_ref()?;
        Some(match (*access, status) {
            ("unknown", None) => format!("{url} is not known: {why}"),
            ("unknown", Some(_)) => format!("{url} is not understood: {why}"),
            _ => format!("{url} is partly not understood: {why}"),
        })
    }
}

impl Explanation {
    /// The explanation of a request that is refused before robots.txt is consulted.
    #[must_use]
    pub fn refused(self, why: &Refusal) -> Self {
        let (reason, detail, setting) = (why.slug(), why.to_string(), why.setting());
        let (line, preferences, reservation) = (None, Vec::new(), None);
        Self { allowed: false, reason, detail, line, preferences, reservation, setting, ..self }
    }

    /// The disallowed form of the path, if it is not the path as sent but a form that servers make of it.
    pub fn matched_path(&self) -> Option<&str> {
        let reservation = self.reservation.as_ref().and_then(|reservation| reservation.matched_path.as_deref());
        reservation.or(self.line.as_ref().and_then(|line| line.matched_path.as_deref()))
    }
}

/// Decides by the known files, and explains the decision.
pub fn explain<'a>(
    known: impl Into<Known<'a>>,
    rules: &HostRules,
    request: &Request<'_>,
    now: SystemTime,
) -> Explanation {
    let known = known.into();
    let (entry, decision) = (known.robots, decide(known, rules, request, now));
    let tokens = rules.product_tokens(request);
    let file = entry.usable(now).and_then(|_| entry.robots_txt());
    let (allowed, reason, detail) = match &decision.ruling {
        Ruling::Allow(allowance) => (true, allowance.slug(), allowance.to_string()),
        Ruling::Report(why) => (true, why.slug(), format!("allowed in report mode; otherwise: {why}")),
        Ruling::Refuse(why) => (false, why.slug(), why.to_string()),
        Ruling::Fetch(file) => (false, UNKNOWN, format!("its {} has not been fetched yet", file.name())),
    };
    let why = match &decision.ruling {
        Ruling::Report(why) | Ruling::Refuse(why) => Some(&**why),
        Ruling::Allow(_) | Ruling::Fetch(_) => None,
    };
    let line = match &decision.ruling {
        Ruling::Allow(allowance) => allowance.rule(entry),
        _ => why.and_then(Refusal::line).cloned(),
    };
    let of_file = |file: &RobotsTxt| {
        let crawlers = file.rules_for(&tokens);
        let all = crawlers.preferences_for(request.target).into_iter().take(MOST_PREFERENCES);
        let all = all.map(|it| (LineEvidence::of_preference(it, None), it.purpose().into()));
        all.chain(reserved_purposes(file, &rules.options.policy_tokens, request.target)).collect()
    };
    let preferences = file.filter(|_| allowed).map(of_file).unwrap_or_default();
    Explanation {
        url: format!("{}{}", request.authority, String::from_utf8_lossy(request.target)),
        authority: request.authority.to_string(),
        product_tokens: tokens.iter().map(|token| token.as_str().to_owned()).collect(),
        purposes: rules.purposes().iter().map(ToString::to_string).collect(),
        allowed,
        reason,
        detail,
        line,
        preferences,
        reservation: why.and_then(Refusal::reservation).cloned(),
        setting: why.and_then(Refusal::setting),
        robots: state(entry, request.authority, &rules.options, now),
        tdmrep: known.tdmrep.map(|file| {
            let url = request.authority.url(SiteFile::TdmRep.path());
            site_file(file, url, now).unless_disallowed(may_fetch(SiteFile::TdmRep, entry, rules, request, now))
        }),
        license: known.license.zip(entry.license_url()).map(|(file, url)| {
            site_file(file, url.to_owned(), now).unless_disallowed(may_fetch(
                SiteFile::license(url),
                entry,
                rules,
                request,
                now,
            ))
        }),
        crawl_delay: decision.crawl_delay,
        manners: rules.manners,
        sitemaps: file.iter().flat_map(|file| file.sitemaps()).map(str::to_owned).collect(),
        licenses: file.iter().flat_map(|file| file.licenses()).map(str::to_owned).collect(),
    }
}

impl Allowance {
    /// The rule that allows the request, if a rule does. `entry`: the state of robots.txt that the decision used.
    pub fn rule(self, entry: &Entry) -> Option<LineEvidence> {
        let Self::Rule { place } = self else { return None };
        entry.robots_txt().map(|file| LineEvidence::of_rule(file.rule_at(place), None))
    }

    /// The reason in answers of the API. Stable.
    pub fn slug(self) -> &'static str {
        match self {
            Self::RobotsTxt => "robots-txt",
            Self::Operator => "allowed-by-operator",
            Self::Ignored => "robots-ignored",
            Self::Rule { .. } => "allowed-by-rule",
            Self::NoRule => "no-matching-rule",
            Self::Missing => "no-robots-txt",
            Self::LongUnreachable => "long-unreachable",
        }
    }
}

impl fmt::Display for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RobotsTxt => "robots.txt itself may always be fetched",
            Self::Operator => "`allow` for this host in the configuration allows it",
            Self::Ignored => "robots.txt is ignored for this host, as configured",
            Self::Rule { .. } => "a rule allows it",
            Self::NoRule => "no rule matches it",
            Self::Missing => "the host has no robots.txt, which allows everything",
            Self::LongUnreachable => {
                "robots.txt has not been readable for 30 days, which allows everything, as configured"
            }
        })
    }
}

/// The access that an answer gives, as a word for the API.
pub fn access(answer: &SiteAnswer, options: &PolicyOptions) -> &'static str {
    match answer.access {
        Access::Rules(_) | Access::Reservations(_) | Access::Licenses(_) => "rules",
        Access::Missing if options.allows_missing(answer.status) => "allow-all",
        Access::Missing => "disallow-all",
    }
}

fn state(entry: &Entry, authority: &Authority, options: &PolicyOptions, now: SystemTime) -> SiteFileState {
    let answer = entry.usable(now).map(|(answer, _)| answer);
    let is_open = options.allow_long_unreachable && entry.trouble.as_ref().is_some_and(|trouble| trouble.is_long(now));
    let without_answer = if is_open { "allow-all" } else { "disallow-all" };
    SiteFileState {
        access: answer.map_or(without_answer, |answer| access(answer, options)),
        is_html: answer.is_some() && entry.is_html(),
        fault: None,
        ..site_file(entry, authority.robots_url(), now)
    }
}

/// The state of a tdmrep.json or licence file, as shown.
pub fn site_file(entry: &Entry, url: String, now: SystemTime) -> SiteFileState {
    let answer = entry.usable(now).map(|(answer, _)| answer);
    let failure = entry.trouble.as_ref().map(|trouble| trouble.why.to_string());
    let access = answer.map(|answer| &answer.access);
    let (is_empty, fault) = match access {
        Some(Access::Reservations(file)) => (file.is_empty(), file.fault()),
        Some(Access::Licenses(file)) => (file.is_empty(), file.fault()),
        Some(Access::Rules(_) | Access::Missing) => (false, None),
        None => (true, failure.as_deref()),
    };
    SiteFileState {
        url,
        status: answer.map(|answer| answer.status),
        asked_again: answer.and_then(|answer| answer.asked_again),
        is_html: false,
        access: match access {
            Some(Access::Missing) => "none",
            Some(_) if !(is_empty && fault.is_some()) => "entries",
            _ => "unknown",
        },
        fetched_at: answer.map(|answer| answer.freshness.validated_at()),
        expires_at: answer.map(|answer| answer.freshness.expires_at()),
        fault: fault.map(str::to_owned),
        failure,
    }
}

/// Maximum number of listed preferences.
const MOST_PREFERENCES: usize = 20;
const DISALLOWED: &str = "it may not be fetched: robots.txt or the configuration disallows it";
/// The slug of the reason if a file has not been fetched.
pub const UNKNOWN: &str = "robots-unknown";
