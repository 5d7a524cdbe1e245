//! Finds sitemaps that are not URLs or may not be fetched (RFC 9309 §2.2.4), and licences that are not URLs (RSL 1.0). Pure.

use url::Url;

use super::findings::Findings;
use super::outline::Outline;
use crate::robots::budget::StepBudget;
use crate::robots::parse::key::RecordKey;
use crate::robots::path_forms::{JudgedPath, Paths};
use crate::robots::{RobotsTxt, RuleKind, is_license_url};

pub(super) fn find(robots: &RobotsTxt, host: Option<&str>, outline: &Outline<'_>, findings: &mut Findings<'_>) {
    let everybody: [&str; 0] = [];
    let rules = robots.rules_for(&everybody);
    let mut steps = MOST_STEPS.0 + MOST_STEPS.1 * outline.text.len();
    for entry in &outline.records {
        let at = (entry, entry.value_or_name());
        let value = str::from_utf8(outline.value(entry));
        if entry.key == RecordKey::License && !value.is_ok_and(is_license_url) {
            let hint = "write the whole URL, such as `License: https://example.com/license.xml`";
            findings.warn("bad-license", at, "the licence is not an absolute URL", hint, None);
        }
        if entry.key != RecordKey::Sitemap {
            continue;
        }
        let url = value.ok().and_then(|value| Url::parse(value).ok());
        let Some(url) = url.filter(|url| matches!(url.scheme(), "http" | "https")) else {
            let hint = "write the whole URL, such as `Sitemap: https://example.com/sitemap.xml`";
            findings.warn("bad-sitemap", at, "the sitemap is not an absolute URL", hint, None);
            continue;
        };
        let elsewhere = host.is_some_and(|host| url.host_str().is_none_or(|other| !other.eq_ignore_ascii_case(host)));
        if elsewhere || steps == 0 {
            continue;
        }
        let mut path = JudgedPath::new(url.as_str().as_bytes(), Paths::AsSent);
        let (verdict, _) = rules.check_within(&mut path, &[]);
        steps = steps.saturating_sub(StepBudget::STEPS - path.budget.left());
        let rule = verdict.rule().filter(|rule| rule.kind() == RuleKind::Disallow);
        let Some(rule) = rule else { continue };
        let shadow = outline.records.binary_search_by_key(&rule.offset(), |entry| entry.value.start);
        let shadow = shadow.ok().map(|record| &outline.records[record]);
        let related = shadow.map(|entry| (entry, &entry.value, "blocked by this rule"));
        let hint = match host {
            Some(_) => "allow the sitemap: crawlers that obey the rules do not fetch it",
            None => "allow the sitemap if it is on this file's host: crawlers that obey the rules do not fetch it",
        };
        findings.warn("sitemap-blocked", at, "the rules for every crawler block the sitemap", hint, related);
    }
}

/// Budget of steps for judging the sitemaps of a file: a fixed number, and a number for each byte of the file. Once it is spent, no more
/// sitemaps are judged.
const MOST_STEPS: (usize, usize) = (2 << 20, 48);
