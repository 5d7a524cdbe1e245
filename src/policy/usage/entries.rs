//! Refuses a page for the declared purposes by an entry of a site's tdmrep.json, or of the licence file that robots.txt or an answer names
//! (RSL 1.0). If the file does not exist or cannot be fetched, the page stays allowed. A malformed tdmrep.json reserves nothing; a
//! malformed licence file licenses nothing. Pure.

use crate::policy::entry::Entry;
use crate::policy::{Access, EntryEvidence, HostRules, Refusal, Request, SiteFile, clipped};
use crate::robots::budget::{StepBudget, StepsSpent};
use crate::robots::path::ComparedPath;
use crate::robots::path_forms::JudgedPath;

/// The refusal of a page by `access`, a tdmrep.json or a licence file. `robots`: the state of the site's robots.txt.
pub(in crate::policy) fn refused_by_entries(
    robots: &Entry,
    access: &Access,
    rules: &HostRules,
    request: &Request<'_>,
    path: &mut JudgedPath<'_>,
) -> Option<Refusal> {
    match access {
        Access::Reservations(file) => {
            let purpose = rules.mining_purpose()?;
            let url = request.authority.url(SiteFile::TdmRep.path());
            first_refusal(path, &url, |path, budget| {
                let found = file.reservation_at(path, budget)?;
                Ok(found.map(|found| EntryEvidence {
                    url: url.as_str().into(),
                    purpose: purpose.as_str().into(),
                    entry: found.entry,
                    location: found.location.into(),
                    term: None,
                    policy: found.policy.map(Box::from),
                    matched_path: None,
                }))
            })
        }
        Access::Licenses(file) => {
            let url = robots.license_url()?;
            if let Some(why) = file.unreadable() {
                return Some(Refusal::UsageUnreadable { of: url.into(), why: why.into() });
            }
            let origin = request.authority.to_string();
            rules.licensed_purposes().iter().find_map(|purpose| {
                first_refusal(path, url, |path, budget| {
                    let found = file.refusal_at(purpose, &origin, path, budget)?;
                    Ok(found.map(|found| EntryEvidence {
                        url: url.into(),
                        purpose: purpose.as_str().into(),
                        entry: found.content,
                        location: found.location.into(),
                        term: Some(format!("{}: {}", found.element, clipped(found.uses)).into()),
                        policy: None,
                        matched_path: None,
                    }))
                })
            })
        }
        Access::Rules(_) | Access::Missing => None,
    }
}

/// The refusal for the first form of the path for which `refuses` returns evidence. `url`: the URL of the file.
fn first_refusal(
    path: &mut JudgedPath<'_>,
    url: &str,
    refuses: impl FnMut(ComparedPath<'_>, &mut StepBudget) -> Result<Option<EntryEvidence>, StepsSpent>,
) -> Option<Refusal> {
    match path.first_refused(refuses) {
        Ok(found) => {
            let (evidence, matched_path) = found?;
            Some(Refusal::EntryReserved(Box::new(EntryEvidence { matched_path, ..evidence })))
        }
        Err(StepsSpent) => Some(Refusal::RulesTooComplex { rules: url.into() }),
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::entry::{Entry, SiteAnswer};
    use crate::policy::explain::explain;
    use crate::policy::freshness::Freshness;
    use crate::policy::{
        Access, Authority, HostRules, Known, PolicyOptions, Request, RobotsOverride, Ruling, Scheme, SiteFile,
        UsageModes, decide,
    };
    use crate::robots::{Purpose, RobotsTxt, RslFile};
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    const ROBOTS: &str = "License: https://a.example/l.xml\nUser-agent: *\nDisallow: /private\n";
    const URL: &str = "https://a.example/l.xml";
    const FILE: &str = r#"<rsl xmlns="https://rslstandard.org/rsl"><content url="/art/"><license>
        <prohibits type="usage">ai-train</prohibits></license></content></rsl>"#;

    fn known(access: Access) -> Entry {
        let freshness = Freshness::new(SystemTime::UNIX_EPOCH, Duration::from_secs(3600), 1.0);
        Entry::answered(SiteAnswer::new(access, 200, freshness))
    }

    fn robots(text: &str) -> Entry {
        known(Access::Rules(RobotsTxt::parse(text.as_bytes())))
    }

    fn licences() -> Entry {
        known(Access::Licenses(RslFile::parse(FILE.as_bytes()).into()))
    }

    fn rules(license: RobotsOverride, purpose: &str) -> HostRules {
        let purposes = vec![Purpose::parse(purpose).unwrap()];
        let usage = UsageModes { license, ..UsageModes::default() };
        HostRules::new(Arc::new(PolicyOptions { purposes, usage, ..PolicyOptions::default() }))
    }

    fn ask(robots: &Entry, license: &Entry, rules: &HostRules, target: &str) -> (String, Vec<SiteFile>) {
        let authority = Authority::new(Scheme::Https, "a.example", None).unwrap();
        let known = Known { robots, tdmrep: None, license: Some(license) };
        let decision = decide(known, rules, &Request::new(&authority, target.as_bytes()), SystemTime::UNIX_EPOCH);
        let said = match decision.ruling {
            Ruling::Allow(_) => "allow".into(),
            Ruling::Report(why) => format!("report {}", why.slug()),
            Ruling::Refuse(why) => format!("refuse {}", why.slug()),
            Ruling::Fetch(file) => format!("fetch {}", file.name()),
        };
        (said, decision.refresh)
    }

    #[test]
    fn unlicensed_purpose_is_refused_or_reported() {
        let (file, licences) = (robots(ROBOTS), licences());
        for (mode, purpose, target, expected) in [
            (RobotsOverride::Enforce, "ai-train", "/art/1", "refuse usage-disallowed"),
            (RobotsOverride::Report, "ai-train", "/art/1", "report usage-disallowed"),
            (RobotsOverride::Ignore, "ai-train", "/art/1", "allow"),
            (RobotsOverride::Enforce, "search", "/art/1", "allow"),
            (RobotsOverride::Enforce, "ai-train", "/", "allow"),
            (RobotsOverride::Enforce, "ai-train", "/private", "refuse robots-disallowed"),
            // Servers read this path as `/art/1`.
            (RobotsOverride::Enforce, "ai-train", "/x/..%2fart/1", "refuse usage-disallowed"),
            (RobotsOverride::Enforce, "ai-train", "/robots.txt", "allow"),
        ] {
            let asked = ask(&file, &licences, &rules(mode, purpose), target);
            assert_eq!(asked, (expected.to_owned(), vec![]), "{mode:?} {purpose} {target}");
        }
    }

    #[test]
    fn licence_file_in_report_mode_is_fetched_in_the_background() {
        let (file, unknown) = (robots(ROBOTS), Entry::default());
        let told = |mode| ask(&file, &unknown, &rules(mode, "ai-train"), "/art/1");
        assert_eq!(told(RobotsOverride::Enforce), ("fetch licence file".to_owned(), vec![]));
        assert_eq!(told(RobotsOverride::Report), ("allow".to_owned(), vec![SiteFile::license(URL)]));
        let failed = unknown.failed(SystemTime::UNIX_EPOCH, "status 500", None, 0.5);
        let failed = ask(&file, &failed, &rules(RobotsOverride::Enforce, "ai-train"), "/art/1");
        assert_eq!(failed, ("allow".to_owned(), vec![]), "a file that could not be fetched refuses nothing");
    }

    #[test]
    fn licence_file_is_fetched_with_tdmrep_json_and_decides_after_it() {
        let (file, unknown, licences) = (robots(ROBOTS), Entry::default(), licences());
        let authority = Authority::new(Scheme::Https, "a.example", None).unwrap();
        let decided = |license: &Entry| {
            let known = Known { robots: &file, tdmrep: Some(&unknown), license: Some(license) };
            let rules = rules(RobotsOverride::Enforce, "ai-train");
            let decision = decide(known, &rules, &Request::new(&authority, b"/art/1"), SystemTime::UNIX_EPOCH);
            (decision.ruling, decision.refresh)
        };
        assert_eq!(decided(&unknown), (Ruling::Fetch(SiteFile::TdmRep), vec![SiteFile::license(URL)]));
        assert_eq!(decided(&licences), (Ruling::Fetch(SiteFile::TdmRep), vec![]));
    }

    #[test]
    fn unreadable_licence_file_licenses_nothing() {
        let file = known(Access::Licenses(RslFile::parse(b"<html></html>").into()));
        let said = |mode| ask(&robots(ROBOTS), &file, &rules(mode, "ai-train"), "/").0;
        assert_eq!(said(RobotsOverride::Enforce), "refuse usage-unreadable");
        assert_eq!(said(RobotsOverride::Report), "report usage-unreadable");
    }

    #[test]
    fn licence_file_itself_is_allowed_unless_robots_txt_disallows_it() {
        let all = ROBOTS.replace("/l.xml", "/art/l.xml");
        let enforced = rules(RobotsOverride::Enforce, "ai-train");
        assert_eq!(ask(&robots(&all), &licences(), &enforced, "/art/l.xml").0, "allow");
        let hidden = ROBOTS.replace("/l.xml", "/private/l.xml");
        assert_eq!(ask(&robots(&hidden), &Entry::default(), &enforced, "/art/1").0, "allow");
        let elsewhere = ROBOTS.replace("a.example/l.xml", "b.example/private/l.xml");
        assert_eq!(ask(&robots(&elsewhere), &Entry::default(), &enforced, "/art/1").0, "fetch licence file");
        assert_eq!(ask(&robots("User-agent: *\nAllow: /\n"), &licences(), &enforced, "/art/1").0, "allow");
    }

    #[test]
    fn explain_names_the_file_the_content_and_its_term() {
        let authority = Authority::new(Scheme::Https, "a.example", None).unwrap();
        let (robots, licences) = (robots(ROBOTS), licences());
        let known = Known { robots: &robots, tdmrep: None, license: Some(&licences) };
        let request = Request::new(&authority, b"/art/1");
        let enforced = rules(RobotsOverride::Enforce, "train-ai");
        let explained = explain(known, &enforced, &request, SystemTime::UNIX_EPOCH);
        let expected = "https://a.example/l.xml does not license this URL for the purpose `ai-train`: content 1, \
            `url=\"/art/\"`, `prohibits: ai-train`";
        assert_eq!((explained.allowed, &*explained.detail), (false, expected));
        assert_eq!(
            explained.license.map(|file| (file.url, file.access)),
            Some(("https://a.example/l.xml".into(), "entries"))
        );
    }
}
