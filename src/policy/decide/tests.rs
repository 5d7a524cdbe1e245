//! Tests of decisions: configuration, state of robots.txt, result.

use super::*;
use crate::policy::entry::{SiteAnswer, Trouble, Validators};
use crate::policy::explain::explain;
use crate::policy::freshness::Freshness;
use crate::policy::{Access, Authority, LineEvidence, OwnRules, Paths, PolicyOptions, Scheme};
use crate::robots::{ProductToken, Purpose, RobotsTxt, RslFile, TdmRep, VisitTime};
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const FILE: &[u8] = b"User-agent: FooBot\nDisallow: /private\nCrawl-delay: 2\nVisit-time: 0600-0845\n";

/// Midnight, UTC.
fn midnight() -> SystemTime {
    SystemTime::UNIX_EPOCH + DAY * 20_000
}

fn answer(access: Access, status: u16) -> SiteAnswer {
    SiteAnswer::new(access, status, Freshness::new(midnight(), HOUR, 1.0))
}

fn file() -> Entry {
    Entry::answered(answer(Access::Rules(RobotsTxt::parse(FILE)), 200))
}

fn none() -> Entry {
    Entry::answered(answer(Access::Missing, 404))
}

fn locked() -> Entry {
    Entry::answered(answer(Access::Missing, 403))
}

fn rules(options: PolicyOptions) -> HostRules {
    HostRules::new(Arc::new(PolicyOptions { product_tokens: vec![ProductToken::parse("FooBot").unwrap()], ..options }))
}

fn decided(entry: &Entry, rules: &HostRules, target: &str, after: Duration) -> Decision {
    let authority = Authority::new(Scheme::Https, "example.com", None).unwrap();
    decide(entry, rules, &Request::new(&authority, target.as_bytes()), midnight() + after)
}

fn ask_with(entry: &Entry, target: &str, after: Duration, options: &PolicyOptions) -> Said {
    Said::of(decided(entry, &rules(options.clone()), target, after))
}

fn ask(entry: &Entry, target: &str, after: Duration) -> Said {
    ask_with(entry, target, after, &PolicyOptions::default())
}

/// A decision, reduced to the parts that most of these tests check.
#[derive(Debug, PartialEq)]
enum Said {
    Allow { crawl_delay: Option<Duration>, refresh: bool },
    Fetch,
    Refuse { why: Refusal, refresh: bool },
}

impl Said {
    fn of(Decision { ruling, crawl_delay, refresh }: Decision) -> Self {
        let refresh = !refresh.is_empty();
        match ruling {
            Ruling::Allow(_) => Self::Allow { crawl_delay, refresh },
            Ruling::Fetch(_) => Self::Fetch,
            Ruling::Refuse(why) => Self::Refuse { why: *why, refresh },
            Ruling::Report(why) => panic!("only reported: {why}"),
        }
    }
}

fn allow(crawl_delay: Option<u64>, refresh: bool) -> Said {
    Said::Allow { crawl_delay: crawl_delay.map(Duration::from_secs), refresh }
}

fn example() -> Authority {
    Authority::from_url("https://example.com").expect("an authority")
}

fn disallowed(line: u32, pattern: &str) -> Refusal {
    refusal(Some(LineEvidence { line, key: "Disallow", value: pattern.into(), matched_path: None }))
}

fn refusal(rule: Option<LineEvidence>) -> Refusal {
    Refusal::Disallowed { authority: example(), product_tokens: "FooBot".into(), rule }
}

fn refuse(rule: Option<(u32, &str)>, refresh: bool) -> Said {
    Said::Refuse { why: rule.map_or_else(|| refusal(None), |(line, pattern)| disallowed(line, pattern)), refresh }
}

fn unreachable_for(retry_after: Duration) -> Said {
    let why = Refusal::RobotsUnreachable { retry_after, authority: example(), why: "status 503".into() };
    Said::Refuse { why, refresh: false }
}

/// A failed fetch, to be retried a minute later.
fn fail(entry: &Entry, after: Duration) -> Entry {
    entry.failed(midnight() + after, "status 503", Some(Duration::from_secs(60)), 0.0)
}

#[test]
fn unknown_authority_is_fetched() {
    assert_eq!(ask(&Entry::default(), "/", HOUR), Said::Fetch);
}

#[test]
fn fresh_rules_decide_and_name_their_line() {
    assert_eq!(ask(&file(), "/public", Duration::ZERO), allow(Some(2), false));
    assert_eq!(ask(&file(), "/private/1", Duration::ZERO), refuse(Some((2, "/private")), false));
}

#[test]
fn unavailable_robots_txt_allows_everything() {
    assert_eq!(ask(&none(), "/private", Duration::ZERO), allow(None, false));
}

#[test]
fn robots_txt_itself_is_always_allowed() {
    for entry in [Entry::default(), locked(), fail(&Entry::default(), Duration::ZERO)] {
        assert_eq!(ask(&entry, "/robots.txt", Duration::ZERO), allow(None, false));
    }
    assert_eq!(
        ask(&file(), "/robots.txt", Duration::ZERO),
        allow(Some(2), false),
        "the delay of robots.txt applies, as to any other URL"
    );
}

#[test]
fn a_copy_about_to_expire_decides_and_is_refreshed_behind() {
    let later = HOUR * 9 / 10;
    assert_eq!(ask(&file(), "/public", later), allow(Some(2), true));
    assert_eq!(ask(&file(), "/private", later), refuse(Some((2, "/private")), true));
    assert_eq!(ask(&none(), "/", later), allow(None, true));
}

/// The status is stored and the setting applied when deciding, so that a changed setting takes effect at once.
#[test]
fn meaning_of_a_missing_file_follows_the_current_settings() {
    let unavailable = PolicyOptions { disallow_unavailable: true, ..PolicyOptions::default() };
    let auth_error = PolicyOptions { disallow_auth_error: true, ..PolicyOptions::default() };
    let ask = |entry: &Entry, options: &PolicyOptions| ask_with(entry, "/", Duration::ZERO, options);
    for (entry, allowing, disallowing) in [(none(), &auth_error, &unavailable), (locked(), &unavailable, &auth_error)] {
        assert_eq!(ask(&entry, &PolicyOptions::default()), allow(None, false));
        assert_eq!(ask(&entry, allowing), allow(None, false));
        assert_eq!(ask(&entry, disallowing), refuse(None, false));
    }
}

/// The clock was ten days ahead when the fetch failed, and is correct now.
#[test]
fn failure_dated_in_the_future_does_not_delay_the_next_fetch() {
    for before in [Entry::default(), file()] {
        let ahead = fail(&before, DAY * 10);
        assert!(ahead.may_fetch(midnight()), "a retry time set by a clock ahead is ignored");
        let right = fail(&ahead, Duration::ZERO);
        assert_eq!(right.trouble.as_ref().unwrap().since, midnight(), "the failure is not dated in the future");
        assert!(!right.may_fetch(midnight() + Duration::from_secs(59)));
        assert!(right.may_fetch(midnight() + Duration::from_secs(60)));
    }
    assert_eq!(ask(&fail(&Entry::default(), DAY * 10), "/", Duration::ZERO), Said::Fetch);
}

/// The copy was dated by a clock ten days ahead. It is used and refreshed at once; if the refresh fails, it stays valid for thirty days
/// from now.
#[test]
fn copy_dated_in_the_future_is_renewed_at_once_and_expires_normally() {
    let mut entry = file();
    entry.answer.as_mut().unwrap().freshness = Freshness::new(midnight() + DAY * 10, HOUR, 0.0);
    assert_eq!(ask(&entry, "/public", Duration::ZERO), allow(Some(2), true));
    assert!(!entry.answer.as_ref().unwrap().freshness.is_fresh(midnight()));
    let failed = fail(&entry, Duration::ZERO);
    assert_eq!(ask(&failed, "/public", DAY * 29), allow(Some(2), true));
    assert_eq!(ask(&failed, "/public", DAY * 30), Said::Fetch);
}

#[test]
fn clock_set_back_a_day_renews_copies_dated_in_the_future() {
    let failed = fail(&file(), Duration::ZERO);
    let back = midnight() - DAY;
    assert!(failed.may_fetch(back));
    let authority = Authority::new(Scheme::Https, "example.com", None).unwrap();
    let decision = decide(&failed, &rules(PolicyOptions::default()), &Request::new(&authority, b"/public"), back);
    assert_eq!(Said::of(decision), allow(Some(2), true));
}

#[test]
fn suspend_overnight_makes_copies_stale_and_ends_failure_waits() {
    let night = HOUR * 9;
    assert_eq!(ask(&file(), "/public", night), allow(Some(2), true));
    assert_eq!(ask(&fail(&Entry::default(), Duration::ZERO), "/public", night), Said::Fetch);
}

#[test]
fn stale_copy_decides_for_one_day() {
    assert_eq!(ask(&file(), "/public", HOUR * 23), allow(Some(2), true));
    assert_eq!(ask(&file(), "/public", DAY), Said::Fetch);
    assert_eq!(ask(&none(), "/", DAY), Said::Fetch);
}

#[test]
fn copy_stays_in_force_for_30_days_of_failed_refreshes() {
    let failed = fail(&file(), HOUR);
    assert_eq!(ask(&failed, "/public", HOUR), allow(Some(2), false), "no fetch during the wait after a failure");
    assert_eq!(
        ask(&failed, "/public", HOUR + Duration::from_secs(60)),
        allow(Some(2), true),
        "the file is fetched again after the wait"
    );
    assert_eq!(ask(&failed, "/private", DAY * 29), refuse(Some((2, "/private")), true));
    assert_eq!(ask(&failed, "/public", DAY * 30), Said::Fetch);
    let failed = fail(&failed, DAY * 30);
    assert_eq!(ask(&failed, "/public", DAY * 30), unreachable_for(Duration::from_secs(60)));
}

#[test]
fn rfc_unreachable_is_complete_disallow() {
    let failed = fail(&Entry::default(), HOUR);
    assert_eq!(ask(&failed, "/public", HOUR), unreachable_for(Duration::from_secs(60)));
    assert_eq!(ask(&failed, "/public", HOUR + Duration::from_secs(59)), unreachable_for(Duration::from_secs(1)));
    assert_eq!(ask(&failed, "/public", HOUR + Duration::from_secs(60)), Said::Fetch);
}

#[test]
fn missing_file_state_expires_normally_when_unreachable() {
    for before in [none(), locked()] {
        let failed = fail(&before, HOUR - Duration::from_secs(1));
        assert_ne!(ask(&failed, "/", HOUR - Duration::from_secs(1)), unreachable_for(Duration::from_secs(60)));
        assert_eq!(ask(&failed, "/", HOUR), unreachable_for(Duration::from_secs(59)));
    }
}

#[test]
fn on_long_unreachable_setting_is_applied() {
    let allowing = PolicyOptions { allow_long_unreachable: true, ..PolicyOptions::default() };
    let first = fail(&Entry::default(), Duration::ZERO);
    let last = fail(&first, DAY * 30);
    let ask = |options: &PolicyOptions, after| ask_with(&last, "/", after, options);
    assert_eq!(ask(&PolicyOptions::default(), DAY * 30), unreachable_for(Duration::from_secs(60)));
    assert_eq!(ask(&allowing, DAY * 30), allow(None, false));
    assert_eq!(ask(&allowing, DAY * 31), allow(None, true));
    let not_long = ask_with(&first, "/", Duration::ZERO, &allowing);
    assert_eq!(not_long, unreachable_for(Duration::from_secs(60)));
    for (options, days, access) in
        [(&allowing, 30, "allow-all"), (&allowing, 29, "disallow-all"), (&PolicyOptions::default(), 30, "disallow-all")]
    {
        let authority = Authority::new(Scheme::Https, "example.com", None).unwrap();
        let request = Request::new(&authority, b"/");
        let explained = explain(&last, &rules(options.clone()), &request, midnight() + DAY * days);
        assert_eq!(explained.robots.access, access, "after {days} days");
    }
}

#[test]
fn consecutive_failures_back_off_and_keep_the_first_failure_time() {
    let now = midnight();
    let first = Entry::default().failed(now, "dns", None, 0.0);
    let second = first.failed(now + HOUR, "timeout", None, 0.0);
    let trouble = second.trouble.as_deref().unwrap();
    assert_eq!(
        trouble,
        &Trouble { since: now, failures: 2, retry_at: now + HOUR + Duration::from_secs(120), why: "timeout".into() }
    );
}

#[test]
fn a_confirmed_copy_is_fresh_again() {
    let mut entry = file();
    let tag = |tag: &str| Validators::new(Some(tag), None);
    entry.answer.as_mut().unwrap().validators = tag("\"1\"");
    let freshness = |_| Freshness::new(midnight() + DAY, HOUR, 0.0);
    let confirmed = entry.confirmed(&Validators::default(), freshness).unwrap();
    assert_eq!(ask(&confirmed, "/public", DAY), allow(Some(2), false));
    assert_eq!(confirmed.trouble, None);
    assert_eq!(confirmed.answer.unwrap().validators, tag("\"1\""), "a 304 need not repeat the ETag");
    let weak = entry.confirmed(&tag("W/\"1\""), freshness).unwrap();
    assert_eq!(weak.answer.unwrap().validators, tag("W/\"1\""));
    assert!(Entry::default().confirmed(&Validators::default(), freshness).is_none());
    assert!(fail(&entry, HOUR).confirmed(&tag("\"1\""), freshness).is_none(), "the request was not conditional");
}

#[test]
fn visit_time_closes_the_site_only_when_enforced() {
    let enforcing = PolicyOptions { enforce_visit_time: true, ..PolicyOptions::default() };
    let ask =
        |minutes: u32, options: &PolicyOptions| ask_with(&file(), "/", Duration::from_secs(60) * minutes, options);
    let closed_for = |minutes: u32, refresh| Said::Refuse {
        why: Refusal::Closed {
            retry_after: Duration::from_secs(60) * minutes,
            authority: Authority::new(Scheme::Https, "example.com", None).unwrap(),
            hours: VisitTime { from: 6 * 60, to: 8 * 60 + 45 },
        },
        refresh,
    };
    assert_eq!(ask(1, &PolicyOptions::default()), allow(Some(2), false));
    assert_eq!(ask(1, &enforcing), closed_for(359, false));
    assert_eq!(ask(6 * 60, &enforcing), allow(Some(2), true));
    assert_eq!(ask(9 * 60, &enforcing), closed_for(21 * 60, true));
}

#[test]
fn longer_allowing_preference_wins_in_any_escaping() {
    let robots = "User-agent: *\nContent-Usage: train-ai=n, search=y\nContent-Usage: /@press train-ai=y\n";
    let entry = Entry::answered(answer(Access::Rules(RobotsTxt::parse(robots.as_bytes())), 200));
    let options = PolicyOptions { purposes: vec![Purpose::parse("ai-train").unwrap()], ..PolicyOptions::default() };
    assert_eq!(ask_with(&entry, "/@press/1", Duration::ZERO, &options), allow(None, false));
}

#[test]
fn a_preference_disallows_for_a_declared_purpose_only() {
    let robots = RobotsTxt::parse(b"User-agent: *\nContent-Usage: /art train-ai=n\nDisallow: /private\n");
    let entry = Entry::answered(answer(Access::Rules(robots), 200));
    let purposes = ["search", "ai-train"].map(|name| Purpose::parse(name).unwrap());
    let ask = |target: &'static str, purposes: &[Purpose]| {
        ask_with(
            &entry,
            target,
            Duration::ZERO,
            &PolicyOptions { purposes: purposes.to_vec(), ..PolicyOptions::default() },
        )
    };
    for purposes in [&[][..], &purposes[..1]] {
        assert_eq!(ask("/art/1", purposes), allow(None, false));
    }
    let unwelcome = Refusal::UsageDisallowed {
        authority: example(),
        product_tokens: "FooBot".into(),
        purpose: "ai-train".into(),
        preference: LineEvidence { line: 2, key: "Content-Usage", value: "/art train-ai=n".into(), matched_path: None },
    };
    assert_eq!(ask("/art/1", &purposes), Said::Refuse { why: unwelcome.clone(), refresh: false });
    assert_eq!(ask("/x/../art/1", &purposes), Said::Refuse { why: unwelcome, refresh: false });
    assert_eq!(ask("/science", &purposes), allow(None, false));
    let Said::Refuse { why, .. } = ask("/private", &purposes) else { panic!("a rule says no") };
    assert_eq!(why.slug(), "robots-disallowed", "the rule decides before the preference");
    let Said::Refuse { why, .. } = ask("/art/..%2Fprivate/l.xml", &purposes) else { panic!("a rule says no") };
    assert_eq!(why.slug(), "robots-disallowed", "a rule for any form of the path decides before the preference");
    let rules = rules(PolicyOptions { purposes: purposes.to_vec(), ..PolicyOptions::default() });
    for (target, is_allowed) in [("/art/l.xml", true), ("/art/..%2Fprivate/l.xml", false)] {
        let (at, now) = (example(), midnight());
        let ruling = judge_file(&entry, &rules, &Request::new(&at, target.as_bytes()), now);
        assert_eq!(matches!(ruling, Ruling::Allow(_)), is_allowed, "{target}: {ruling:?}");
    }
}

#[test]
fn without_product_tokens_the_star_group_applies() {
    let robots = RobotsTxt::parse(b"User-agent: *\nDisallow: /all\n\nUser-agent: FooBot\nDisallow: /foo\n");
    let entry = Entry::answered(answer(Access::Rules(robots), 200));
    let nobody = HostRules::new(Arc::default());
    let ask = |target| Said::of(decided(&entry, &nobody, target, Duration::ZERO));
    assert_eq!(ask("/foo"), allow(None, false));
    assert!(matches!(ask("/all"), Said::Refuse { .. }));
}

#[test]
fn server_forms_of_a_path_are_judged_and_named() {
    let matched = |target: &str, options: &PolicyOptions| match ask_with(&file(), target, Duration::ZERO, options) {
        Said::Refuse { why: Refusal::Disallowed { rule: Some(rule), .. }, .. } => {
            Some(rule.matched_path.map(String::from))
        }
        _ => None,
    };
    let (as_served, as_sent) =
        (PolicyOptions::default(), PolicyOptions { paths: Paths::AsSent, ..PolicyOptions::default() });
    assert_eq!(matched("/public/..%2Fprivate/x", &as_served), Some(Some("/private/x".into())));
    assert_eq!(matched("//private?x", &as_served), Some(Some("/private?x".into())));
    assert_eq!(matched("/private", &as_served), Some(None), "the path as sent");
    assert_eq!(matched("/public/..%2Fpublic", &as_served), None);
    assert_eq!(matched("//private", &as_sent), None);
}

#[test]
fn an_explanation_names_the_form_that_is_disallowed() {
    let authority = Authority::new(Scheme::Https, "example.com", None).unwrap();
    let request = Request::new(&authority, b"//private");
    let explained = explain(&file(), &rules(PolicyOptions::default()), &request, midnight());
    assert_eq!((explained.allowed, explained.matched_path()), (false, Some("/private")));
    assert!(explained.detail.ends_with("servers may serve that path for this URL"), "{}", explained.detail);
}

fn own(allow: &[&str], deny: &[&str]) -> Option<OwnRules> {
    Some(OwnRules::new("example.com", allow, deny))
}

fn ruling(rules: &HostRules, entry: &Entry, target: &str) -> Ruling {
    decided(entry, rules, target, Duration::ZERO).ruling
}

#[test]
fn allowance_names_its_rule() {
    let robots = RobotsTxt::parse(b"User-agent: *\nDisallow: /\nAllow: /open\n");
    let entry = Entry::answered(answer(Access::Rules(robots.clone()), 200));
    let rules = rules(PolicyOptions::default());
    let Ruling::Allow(Allowance::Rule { place }) = ruling(&rules, &entry, "/open/1") else {
        panic!("a rule allows it")
    };
    let rule = robots.rule_at(place);
    assert_eq!((rule.line(), rule.pattern()), (3, "/open"));
    for (entry, target, why) in [
        (&entry, "/robots.txt", Allowance::RobotsTxt),
        (&file(), "/public", Allowance::NoRule),
        (&none(), "/", Allowance::Missing),
    ] {
        assert_eq!(ruling(&rules, entry, target), Ruling::Allow(why));
    }
}

fn is_denied(why: &Refusal) -> bool {
    matches!(why, Refusal::OperatorDenied { .. })
}

#[test]
fn each_policy_file_is_renewed_separately() {
    let kept = |access| Entry::answered(answer(access, 200));
    let robots = kept(Access::Rules(RobotsTxt::parse(b"License: https://example.com/l.xml\n")));
    let tdmrep = kept(Access::Reservations(TdmRep::parse(b"[]").into()));
    let license = kept(Access::Licenses(RslFile::parse(br#"<rsl xmlns="https://rslstandard.org/rsl"></rsl>"#).into()));
    let rules = rules(PolicyOptions { purposes: vec![Purpose::parse("tdm").unwrap()], ..PolicyOptions::default() });
    let authority = example();
    let known = Known { robots: &robots, tdmrep: Some(&tdmrep), license: Some(&license) };
    let decision = decide(known, &rules, &Request::new(&authority, b"/a"), midnight() + HOUR * 9 / 10);
    assert_eq!(decision.refresh, [SiteFile::Robots, SiteFile::TdmRep, SiteFile::license("https://example.com/l.xml")]);
}

#[test]
fn operator_rules_precede_robots_txt_and_keep_its_crawl_delay() {
    let rules = HostRules { own_rules: own(&["/private/mine"], &["/public"]), ..rules(PolicyOptions::default()) };
    let denied = decided(&file(), &rules, "/public", Duration::ZERO);
    assert!(matches!(&denied.ruling, Ruling::Refuse(why) if is_denied(why)), "{denied:?}");
    let allowed = decided(&file(), &rules, "/private/mine", HOUR * 9 / 10);
    let crawl_delay = Some(Duration::from_secs(2));
    assert_eq!(
        allowed,
        Decision { ruling: Ruling::Allow(Allowance::Operator), crawl_delay, refresh: vec![SiteFile::Robots] }
    );
    assert_eq!(
        ruling(&rules, &Entry::default(), "/private/mine"),
        Ruling::Fetch(SiteFile::Robots),
        "the delay of robots.txt is not known yet"
    );
}

#[test]
fn ignored_robots_txt_is_not_fetched_and_sets_no_delay() {
    let rules = HostRules { robots: RobotsOverride::Ignore, ..rules(PolicyOptions::default()) };
    for entry in [file(), Entry::default()] {
        let decision = decided(&entry, &rules, "/private", DAY * 40);
        assert_eq!(
            decision,
            Decision { ruling: Ruling::Allow(Allowance::Ignored), crawl_delay: None, refresh: vec![] }
        );
    }
    let denying = HostRules { own_rules: own(&[], &["/private"]), ..rules };
    assert!(matches!(ruling(&denying, &file(), "/private"), Ruling::Refuse(why) if is_denied(&why)));
}

/// `robots: report` only reports refusals by robots.txt; `mode: report` also those by the operator's rules.
#[test]
fn reported_refusal_is_allowed_and_keeps_its_reason() {
    let here = HostRules { robots: RobotsOverride::Report, ..rules(PolicyOptions::default()) };
    let everywhere = rules(PolicyOptions { report_only: true, ..PolicyOptions::default() });
    for rules in [&here, &everywhere] {
        assert_eq!(ruling(rules, &file(), "/private"), Ruling::Report(disallowed(2, "/private").into()));
        assert_eq!(decided(&file(), rules, "/private", Duration::ZERO).crawl_delay, Some(Duration::from_secs(2)));
        assert_eq!(ruling(rules, &file(), "/public"), Ruling::Allow(Allowance::NoRule));
    }
    let deny = |rules: HostRules| HostRules { own_rules: own(&[], &["/public"]), ..rules };
    assert!(matches!(ruling(&deny(here), &file(), "/public"), Ruling::Refuse(why) if is_denied(&why)));
    assert!(matches!(ruling(&deny(everywhere), &file(), "/public"), Ruling::Report(why) if is_denied(&why)));
}

#[test]
fn configured_delay_and_tokens_replace_those_of_the_file() {
    let delayed = HostRules { crawl_delay: Some(HOUR), ..rules(PolicyOptions::default()) };
    assert_eq!(decided(&file(), &delayed, "/public", Duration::ZERO).crawl_delay, Some(HOUR));
    let nobody = HostRules::new(Arc::default());
    let authority = Authority::new(Scheme::Https, "example.com", None).unwrap();
    let tokens = |rules: &HostRules, request: &Request<'_>| {
        rules.product_tokens(request).iter().map(|token| token.as_str().to_owned()).collect::<Vec<_>>()
    };
    let own = [ProductToken::parse("Own").unwrap()];
    let agent = ProductToken::from_user_agent(b"Agent/1");
    let anybody = Request { agent_tokens: &agent, ..Request::new(&authority, b"/") };
    let somebody = Request { product_tokens: &own, ..anybody };
    assert_eq!(tokens(&nobody, &anybody), ["Agent"]);
    assert_eq!(tokens(&nobody, &somebody), ["Own"]);
    assert_eq!(tokens(&rules(PolicyOptions::default()), &anybody), ["FooBot"]);
    let sent =
        HostRules::new(Arc::new(PolicyOptions { user_agent: Some("Sent/2".into()), ..PolicyOptions::default() }));
    assert_eq!(tokens(&sent, &anybody), ["Sent"], "the User-Agent as sent decides");
    let given = rules(PolicyOptions::default()).asked_for(&own, &[]);
    assert_eq!(tokens(&given, &anybody), ["Own"]);
}

/// A file of 500 KB has some 24,000 groups: each decision must take bounded time for any request.
#[test]
fn many_groups_for_one_crawler_stay_within_the_step_budget() {
    let pieces = [
        "user-agent: foobot\nallow: /\n",
        "user-agent: foobot\nallow: /\ncrawl-delay: 1\n",
        "user-agent: foobot\nallow: /\nrequest-rate: 1/2\n",
        "user-agent: foobot\ncontent-usage: /x train-ai=n\n",
        "user-agent: foobot\ncontent-signal: ai-train=yes\n",
        "user-agent: *\nallow: /\n",
    ];
    let options = crate::robots::ParseOptions { max_size: 1 << 30, ..Default::default() };
    for piece in pieces {
        let rules = rules(PolicyOptions { purposes: vec![Purpose::parse("ai-train").unwrap()], ..Default::default() });
        let steps = [100, 24_000, 100_000].map(|count| {
            let robots = RobotsTxt::parse_with(piece.repeat(count).as_bytes(), &options);
            let entry = Entry::answered(answer(Access::Rules(robots), 200));
            let asked = |target| decided(&entry, &rules, target, Duration::ZERO);
            let Decision { ruling, crawl_delay, .. } = asked("/[y]");
            match ruling {
                Ruling::Allow(_) => assert_eq!(count, 100, "{piece}"),
                Ruling::Refuse(why) => assert!(matches!(*why, Refusal::RulesTooComplex { .. }), "{piece}: {why:?}"),
                other => panic!("{other:?}"),
            }
            let has_pace = piece.contains("delay") || piece.contains("rate");
            assert_eq!(crawl_delay.is_some(), has_pace, "the pace is known even if the rules are too complex");
            crate::robots::steps_of(|| _ = asked("/[y]"))
        });
        assert!(steps[0] < 50_000, "{piece} {steps:?}");
        assert!(steps[1..].iter().all(|&steps| steps <= MOST_STEPS), "{piece} {steps:?}");
    }
}

/// The budget, and room for comparisons of names, which tests count in addition.
const MOST_STEPS: u64 = crate::robots::budget::StepBudget::STEPS as u64 + 5_000;

/// For each source of rules, the number of patterns that nearly match the path.
#[derive(Debug, Clone, Copy, Default)]
struct Dear {
    own: usize,
    rules: usize,
    usages: usize,
    signals: usize,
    uses: usize,
    group_of_a_purpose: usize,
    tdmrep: usize,
    license: usize,
}

impl Dear {
    /// Decides on the path. Returns `allow` or the source whose rules are too complex, and the number of steps.
    fn decided(self, target: &str) -> (String, u64) {
        // These patterns do not differ in any three consecutive bytes, so the index of patterns does not help.
        let digits = |n: usize| n.to_string().chars().map(|digit| format!("*{digit}")).collect::<String>();
        let patterns = |count: usize| (0..count).map(|n| format!("/*aaa{}", digits(n)));
        let lines = |count: usize, key: &str, end: &str| -> String {
            patterns(count).map(|pattern| format!("{key}: {pattern}{end}\n")).collect()
        };
        let uses: String = (0..self.uses).map(|n| format!("Content-Usage: a{n}=n\n")).collect();
        let robots = [
            "License: https://example.com/l.xml\nUser-agent: FooBot\nAllow: /\n",
            &uses,
            &lines(self.rules, "Disallow", ""),
            &lines(self.usages, "Content-Usage", " train-ai=n"),
            &lines(self.signals, "Content-Signal", " ai-train=no"),
            "User-agent: No-Training\nAllow: /\n",
            &lines(self.group_of_a_purpose, "Disallow", ""),
        ];
        let robots = Entry::answered(answer(Access::Rules(RobotsTxt::parse(robots.concat().as_bytes())), 200));
        let entries: Vec<_> = patterns(self.tdmrep)
            .map(|location| format!(r#"{{"location":"{location}","tdm-reservation":1}}"#))
            .collect();
        let tdmrep = TdmRep::parse(format!("[{}]", entries.join(",")).as_bytes());
        let tdmrep = Entry::answered(answer(Access::Reservations(tdmrep.into()), 200));
        let contents: String = patterns(self.license)
            .map(|url| {
                format!(r#"<content url="{url}"><license><prohibits type="usage">all</prohibits></license></content>"#)
            })
            .collect();
        let license = format!(r#"<rsl xmlns="https://rslstandard.org/rsl">{contents}</rsl>"#);
        let license = Entry::answered(answer(Access::Licenses(RslFile::parse(license.as_bytes()).into()), 200));
        let purposes = vec![Purpose::parse("ai-train").unwrap(), Purpose::parse("tdm").unwrap()];
        let policy_tokens = vec![(purposes[0].clone(), ProductToken::parse("No-Training").unwrap())];
        let mut rules = rules(PolicyOptions { purposes, policy_tokens, ..PolicyOptions::default() });
        rules.own_rules = Some(OwnRules::new("example.com", &[], &patterns(self.own).collect::<Vec<_>>()));
        rules.usage.license = RobotsOverride::Enforce;
        rules.usage.tdmrep = RobotsOverride::Enforce;
        let authority = example();
        let known = Known { robots: &robots, tdmrep: Some(&tdmrep), license: Some(&license) };
        let decide = || decide(known, &rules, &Request::new(&authority, target.as_bytes()), midnight()).ruling;
        decide();
        let mut ruling = None;
        let steps = crate::robots::steps_of(|| ruling = Some(decide()));
        let said = match ruling.unwrap() {
            Ruling::Allow(_) => "allow".to_owned(),
            Ruling::Refuse(why) => match *why {
                Refusal::RulesTooComplex { rules } => rules.into(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        (said, steps)
    }
}

/// Two paths that are expensive to compare: the first also has several forms.
fn dear_paths() -> [String; 2] {
    let path = format!("/{}~b", "a".repeat(100));
    [format!("{path};c\\d?["), path]
}

const ROBOTS: &str = "https://example.com/robots.txt";

/// Tests each source of rules alone.
#[test]
fn spent_step_budget_refuses_and_names_its_source() {
    type Make = fn(usize) -> Dear;
    let make: [(Make, &str); 8] = [
        (|own| Dear { own, ..Dear::default() }, "`hosts: example.com` of the configuration"),
        (|rules| Dear { rules, ..Dear::default() }, ROBOTS),
        (|usages| Dear { usages, ..Dear::default() }, ROBOTS),
        (|signals| Dear { signals, ..Dear::default() }, ROBOTS),
        (|count| Dear { uses: 10 * count, ..Dear::default() }, ROBOTS),
        (|group_of_a_purpose| Dear { group_of_a_purpose, ..Dear::default() }, ROBOTS),
        (|tdmrep| Dear { tdmrep, ..Dear::default() }, "https://example.com/.well-known/tdmrep.json"),
        (|count| Dear { license: count.min(1_000), ..Dear::default() }, "https://example.com/l.xml"),
    ];
    for (make, cause) in make {
        for target in dear_paths() {
            for (count, expected) in [(50, "allow"), (3_000, cause)] {
                let (said, steps) = make(count).decided(&target);
                assert_eq!(said, expected, "{:?} {target}", make(count));
                assert!(steps <= MOST_STEPS, "{:?} {target}: {steps}", make(count));
            }
        }
    }
}

/// There is one budget for all sources: each of two sources stays within the budget alone, but both together exceed it.
#[test]
fn all_sources_of_rules_share_the_budget_of_a_decision() {
    let [_, target] = dear_paths();
    const HALF: usize = 300;
    let own = Dear { own: HALF, ..Dear::default() };
    for (other, both, cause) in [
        (Dear { rules: HALF, ..Dear::default() }, Dear { rules: HALF, ..own }, ROBOTS),
        (Dear { usages: HALF, ..Dear::default() }, Dear { usages: HALF, ..own }, ROBOTS),
        (Dear { signals: HALF, ..Dear::default() }, Dear { signals: HALF, ..own }, ROBOTS),
        (Dear { group_of_a_purpose: HALF, ..Dear::default() }, Dear { group_of_a_purpose: HALF, ..own }, ROBOTS),
        (
            Dear { tdmrep: HALF, ..Dear::default() },
            Dear { tdmrep: HALF, ..own },
            "https://example.com/.well-known/tdmrep.json",
        ),
        (Dear { license: 140, ..Dear::default() }, Dear { license: 140, ..own }, "https://example.com/l.xml"),
    ] {
        assert_eq!(own.decided(&target).0, "allow");
        assert_eq!(other.decided(&target).0, "allow", "{other:?}");
        assert_eq!(both.decided(&target).0, cause, "{both:?}");
    }
}
