//! Decides by groups of robots.txt whose User-agent line names a purpose, not a crawler
//! (draft-kelley-aipref-training-preference-signal-00). A page that such a group disallows is refused for the purpose, whatever the
//! crawler's own group allows. The groups of each token decide separately, so that no token allows what another disallows; the group of `*`
//! is not a group for a purpose. Pure.

use crate::policy::{HostRules, LineEvidence, PolicyToken, Refusal, Request};
use crate::robots::RobotsTxt;
use crate::robots::path_forms::{JudgedPath, Paths};

/// Why a page that the crawler may fetch is refused for a declared purpose.
pub(in crate::policy) fn disallowed_for_purpose(
    robots: &RobotsTxt,
    rules: &HostRules,
    request: &Request<'_>,
    path: &mut JudgedPath<'_>,
) -> Option<Refusal> {
    let declared = |(purpose, _): &&PolicyToken| rules.purposes().contains(purpose);
    rules.options.policy_tokens.iter().filter(declared).find_map(|(purpose, token)| {
        let group = robots.rules_naming(token.as_ref(), &mut path.budget)?;
        let (verdict, matched_path) = group.check_within(path, &[]);
        if verdict.is_allowed() {
            return None;
        }
        let Some(rule) = verdict.rule() else {
            return Some(Refusal::RulesTooComplex { rules: request.authority.robots_url().into() });
        };
        Some(Refusal::UsageDisallowed {
            authority: request.authority.clone(),
            product_tokens: token.shared(),
            purpose: purpose.as_str().into(),
            preference: LineEvidence::of_rule(rule, matched_path),
        })
    })
}

/// The rules that refuse a page for some purpose, each with the purpose, which need not be declared.
pub(in crate::policy) fn reserved_purposes(
    robots: &RobotsTxt,
    policy_tokens: &[PolicyToken],
    target: &[u8],
) -> Vec<(LineEvidence, Box<str>)> {
    let reserved = |(purpose, token): &PolicyToken| {
        let mut path = JudgedPath::new(target, Paths::AsSent);
        let group = robots.rules_naming(token.as_ref(), &mut path.budget)?;
        let (verdict, _) = group.check_within(&mut path, &[]);
        let rule = verdict.rule().filter(|_| !verdict.is_allowed())?;
        Some((LineEvidence::of_rule(rule, None), purpose.as_str().into()))
    };
    policy_tokens.iter().filter_map(reserved).collect()
}

#[cfg(test)]
mod tests {
    use crate::policy::entry::{Entry, SiteAnswer};
    use crate::policy::explain::explain;
    use crate::policy::freshness::Freshness;
    use crate::policy::{
        Access, Authority, HostRules, OwnRules, PolicyOptions, Refusal, Request, RobotsOverride, Ruling, Scheme, decide,
    };
    use crate::robots::{ProductToken, Purpose, RobotsTxt};
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    const FILE: &str = "\
User-agent: ExampleBot
Allow: /
Disallow: /private

User-agent: No-Training
User-agent: OtherBot
Disallow: /
Allow: /free
Content-Usage: /free train-ai=n

User-agent: Vendor-Extended
Disallow: /free/vendor

User-agent: *
Disallow: /star
";

    fn entry(file: &str) -> Entry {
        let freshness = Freshness::new(SystemTime::UNIX_EPOCH, Duration::from_secs(3600), 1.0);
        Entry::answered(SiteAnswer::new(Access::Rules(RobotsTxt::parse(file.as_bytes())), 200, freshness))
    }

    fn rules(purposes: &[&str], tokens: &[(&str, &str)]) -> HostRules {
        let purpose = |name: &str| Purpose::parse(name).unwrap();
        let token = |name: &str| ProductToken::parse(name).unwrap();
        HostRules::new(Arc::new(PolicyOptions {
            product_tokens: vec![token("ExampleBot")],
            purposes: purposes.iter().map(|name| purpose(name)).collect(),
            policy_tokens: tokens.iter().map(|(of, name)| (purpose(of), token(name))).collect(),
            ..PolicyOptions::default()
        }))
    }

    /// The ruling: `allow`, `report`, the token and the line that refuse, or a slug.
    fn ask(file: &Entry, rules: &HostRules, target: &str) -> String {
        let authority = Authority::new(Scheme::Https, "example.com", None).unwrap();
        let request = Request::new(&authority, target.as_bytes());
        match decide(file, rules, &request, SystemTime::UNIX_EPOCH).ruling {
            Ruling::Allow(_) => "allow".into(),
            Ruling::Report(_) => "report".into(),
            Ruling::Refuse(why) => match (&*why, why.to_string()) {
                (Refusal::UsageDisallowed { preference: said, .. }, text) => {
                    let token = text.split_once("`, for ").and_then(|(_, rest)| rest.split_once(':')).unwrap().0;
                    format!("{token} @{} {}: {}", said.line, said.key, said.value)
                }
                _ => why.slug().into(),
            },
            Ruling::Fetch(_) => panic!("robots.txt is known"),
        }
    }

    const TOKENS: &[(&str, &str)] = &[("ai-train", "No-Training"), ("ai-train", "Vendor-Extended")];

    #[test]
    fn policy_token_group_refuses_only_its_purpose() {
        let file = entry(FILE);
        for (purposes, target, expected) in [
            (&["ai-train"][..], "/a", "No-Training @7 Disallow: /"),
            (&["search", "ai-train"], "/a", "No-Training @7 Disallow: /"),
            // The longest match decides, as in any group; the crawler's own group may still disallow what this group allows.
            (&["ai-train"], "/free/a", "allow"),
            (&["ai-train"], "/free/vendor/a", "Vendor-Extended @12 Disallow: /free/vendor"),
            (&["ai-train"], "/private", "robots-disallowed"),
            // Servers read this path as `/a`.
            (&["ai-train"], "/free/..%2fa", "No-Training @7 Disallow: /"),
            (&["ai-train"], "/robots.txt", "allow"),
            (&["search"], "/a", "allow"),
            (&["search"], "/free/vendor/a", "allow"),
            (&[], "/a", "allow"),
        ] {
            assert_eq!(ask(&file, &rules(purposes, TOKENS), target), expected, "{purposes:?} {target}");
        }
    }

    #[test]
    fn star_group_is_not_a_policy_token_group() {
        let file = entry("User-agent: ExampleBot\nAllow: /\n\nUser-agent: *\nDisallow: /\n");
        assert_eq!(ask(&file, &rules(&["ai-train"], TOKENS), "/a"), "allow");
        let nobody = entry("Disallow: /\n");
        assert_eq!(ask(&nobody, &rules(&["ai-train"], TOKENS), "/a"), "allow");
    }

    #[test]
    fn operator_rules_and_report_mode_override_policy_token_groups() {
        let file = entry(FILE);
        let reported = HostRules { robots: RobotsOverride::Report, ..rules(&["ai-train"], TOKENS) };
        assert_eq!(ask(&file, &reported, "/a"), "report");
        let ignored = HostRules { robots: RobotsOverride::Ignore, ..rules(&["ai-train"], TOKENS) };
        assert_eq!(ask(&file, &ignored, "/a"), "allow");
        let own_rules = Some(OwnRules::new("example.com", &["/a"], &[]));
        let allowed = HostRules { own_rules, ..rules(&["ai-train"], TOKENS) };
        assert_eq!(ask(&file, &allowed, "/a"), "allow");
    }

    #[test]
    fn explain_shows_policy_token_groups_for_undeclared_purposes() {
        let file = entry(FILE);
        let authority = Authority::new(Scheme::Https, "example.com", None).unwrap();
        let request = Request::new(&authority, b"/a");
        let explained = explain(&file, &rules(&[], TOKENS), &request, SystemTime::UNIX_EPOCH);
        let said: Vec<_> = explained.preferences.iter().map(|(said, purpose)| format!("{purpose}: {said}")).collect();
        assert_eq!((explained.allowed, said), (true, vec!["ai-train: line 7, `Disallow: /`".to_owned()]));
        let explained = explain(&file, &rules(&["ai-train"], TOKENS), &request, SystemTime::UNIX_EPOCH);
        assert!(!explained.allowed && explained.reason == "usage-disallowed", "{explained:?}");
        let expected = "https://example.com/robots.txt disallows this URL for the purpose `ai-train`, for No-Training: \
            line 7, `Disallow: /`";
        assert_eq!(explained.detail, expected);
    }

    #[test]
    fn policy_token_groups_use_the_step_budget_of_the_decision() {
        let group = "User-agent: No-Training\nDisallow: /*a*a*a*a*a*a*a*ab$\n\n";
        let file = entry(&format!("User-agent: ExampleBot\nAllow: /\n\n{}", group.repeat(9_000)));
        let target = format!("/{}", "a".repeat(2_000));
        assert_eq!(ask(&file, &rules(&["search"], TOKENS), &target), "allow");
        assert_eq!(ask(&file, &rules(&["ai-train"], TOKENS), &target), "rules-too-complex");
    }
}
