//! The operator's `allow` and `deny` path patterns for a host. They override robots.txt and are interpreted like its rules. Compiled once
//! from the configuration. Pure.

use std::sync::Arc;

use super::Refusal;
use crate::robots::budget::StepsSpent;
use crate::robots::path_forms::{JudgedPath, Paths};
use crate::robots::patterns::{Patterns, PatternsBuilder};
use crate::robots::rule::RuleRank;
use crate::robots::{Precedence, RuleKind};

/// The patterns of one entry of `hosts`, compiled.
#[derive(Debug, Clone)]
pub struct OwnRules(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    host: Box<str>,
    rules: Patterns<RuleRank>,
    /// The patterns as configured: `allow` first, then `deny`.
    written: Vec<Box<str>>,
    allowed: usize,
}

impl PartialEq for OwnRules {
    fn eq(&self, other: &Self) -> bool {
        (&self.0.host, self.written()) == (&other.0.host, other.written())
    }
}

/// The verdict of the operator's rules on a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnVerdict {
    /// No rule of the operator matches, so robots.txt decides.
    Silent,
    /// Allowed, even if robots.txt disallows the path.
    Allow,
    /// Denied, even if robots.txt allows the path.
    Deny(Refusal),
}

impl OwnRules {
    /// Compiles the rules. `host`: the entry's pattern, for messages.
    pub fn new<T: AsRef<str>>(host: &str, allow: &[T], deny: &[T]) -> Self {
        let written: Vec<Box<str>> = allow.iter().chain(deny).map(|pattern| pattern.as_ref().into()).collect();
        let mut rules = PatternsBuilder::new(Arc::from([]), written.len());
        for (place, pattern) in (0..).zip(&written) {
            let kind = if (place as usize) < allow.len() { RuleKind::Allow } else { RuleKind::Disallow };
            rules.add(pattern.as_bytes(), |bytes| RuleRank::new(Precedence::MostSpecific, kind, place, bytes));
        }
        Self(Arc::new(Compiled { host: host.into(), rules: rules.finish(), written, allowed: allow.len() }))
    }

    /// `allow` and `deny`, as configured.
    pub fn written(&self) -> (&[Box<str>], &[Box<str>]) {
        self.0.written.split_at(self.0.allowed)
    }

    /// Judges path and query as sent: denied if any form that servers make of them is denied; allowed only if all forms are allowed.
    pub fn judge(&self, target: &[u8], paths: Paths) -> OwnVerdict {
        self.judge_within(&mut JudgedPath::new(target, paths))
    }

    /// Like [`judge`](Self::judge), within the budget of a decision.
    pub(super) fn judge_within(&self, path: &mut JudgedPath<'_>) -> OwnVerdict {
        let Compiled { host, rules, written, .. } = &*self.0;
        let mut all_allowed = true;
        let denied = path.first_refused(|path, budget| {
            // robots.txt itself cannot be denied.
            let is_robots = path.bytes == b"/robots.txt";
            let best = if is_robots { None } else { rules.best(path, budget)? };
            all_allowed &= best.is_some_and(|rank| rank.kind() == RuleKind::Allow);
            Ok(best.filter(|rank| rank.kind() == RuleKind::Disallow))
        });
        match denied {
            Ok(Some((rank, matched_path))) => {
                let pattern = written[rank.place() as usize].clone();
                OwnVerdict::Deny(Refusal::OperatorDenied { host: host.clone(), pattern, matched_path })
            }
            Err(StepsSpent) => {
                let rules = format!("`hosts: {host}` of the configuration").into();
                OwnVerdict::Deny(Refusal::RulesTooComplex { rules })
            }
            Ok(None) if all_allowed => OwnVerdict::Allow,
            Ok(None) => OwnVerdict::Silent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> OwnRules {
        OwnRules::new("*.example.com", &["/open", "/a b"], &["/", "/*.pdf$", "/x\nAllow: /secret"])
    }

    fn denied(pattern: &str) -> OwnVerdict {
        denied_as(pattern, None)
    }

    fn denied_as(pattern: &str, matched_path: Option<&str>) -> OwnVerdict {
        let (host, matched_path) = ("*.example.com".into(), matched_path.map(Box::from));
        OwnVerdict::Deny(Refusal::OperatorDenied { host, pattern: pattern.into(), matched_path })
    }

    #[test]
    fn the_longest_pattern_wins_as_in_robots_txt() {
        assert_eq!(rules().judge(b"/open/1", Paths::AsServed), OwnVerdict::Allow);
        assert_eq!(rules().judge(b"/1", Paths::AsServed), denied("/"));
        assert_eq!(rules().judge(b"/open.pdf", Paths::AsServed), denied("/*.pdf$"));
        assert_eq!(rules().judge(b"/open/../1", Paths::AsServed), denied("/"));
    }

    #[test]
    fn no_matching_pattern_is_silent() {
        let empty: [&str; 0] = [];
        assert_eq!(OwnRules::new("*", &empty, &empty).judge(b"/", Paths::AsServed), OwnVerdict::Silent);
        assert_eq!(OwnRules::new("*", &["/a"], &["/b"]).judge(b"/c", Paths::AsServed), OwnVerdict::Silent);
    }

    #[test]
    fn deny_applies_to_server_forms_but_allow_does_not() {
        assert_eq!(rules().judge(b"/open/..%2f1", Paths::AsServed), denied_as("/", Some("/1")));
        assert_eq!(rules().judge(b"/open/..%2f1", Paths::AsSent), OwnVerdict::Allow);
        assert_eq!(rules().judge(b"/open//1", Paths::AsServed), OwnVerdict::Allow);
        let rules = OwnRules::new("*", &["/open"], &["/secret"]);
        assert_eq!(rules.judge(b"/open/..%2fother", Paths::AsServed), OwnVerdict::Silent);
        for paths in [Paths::AsServed, Paths::AsSent] {
            assert_eq!(rules.judge(b"/open/../other", paths), OwnVerdict::Silent);
            assert_eq!(rules.judge(b"/open/%2e%2e/other", paths), OwnVerdict::Silent);
            assert_eq!(rules.judge(b"/open/./it", paths), OwnVerdict::Allow);
        }
    }

    #[test]
    fn optional_escapes_are_denied_in_both_spellings_but_allowed_as_written() {
        let rules = OwnRules::new("*", &["/@me", "/f["], &["/p?q|"]);
        assert_eq!(rules.judge(b"/@me", Paths::AsServed), OwnVerdict::Allow);
        assert_eq!(rules.judge(b"/f[0]", Paths::AsServed), OwnVerdict::Allow);
        for target in ["/p?q|", "/p?q%7C", "/p?q%7c"] {
            let OwnVerdict::Deny(_) = rules.judge(target.as_bytes(), Paths::AsServed) else { panic!("{target}") };
        }
    }

    #[test]
    fn operator_rules_cannot_deny_robots_txt() {
        assert_eq!(rules().judge(b"/robots.txt", Paths::AsServed), OwnVerdict::Silent);
    }

    #[test]
    fn line_break_in_a_pattern_adds_no_rule() {
        assert_eq!(rules().judge(b"/secret", Paths::AsServed), denied("/"));
        assert_eq!(rules().judge(b"/a%20b", Paths::AsServed), OwnVerdict::Allow);
    }

    /// Limits on the length of a robots.txt and its lines do not apply to the operator's rules.
    #[test]
    fn many_and_long_patterns_are_enforced() {
        let many: Vec<String> = (0..60_000).map(|n| format!("/secret{n:05}")).collect();
        assert!(many.iter().map(String::len).sum::<usize>() > 600_000);
        let none: [&str; 0] = [];
        let rules = OwnRules::new("*", &none.map(str::to_owned), &many);
        for (target, pattern) in [("/secret59999/x", "/secret59999"), ("/secret00000", "/secret00000")] {
            let OwnVerdict::Deny(Refusal::OperatorDenied { pattern: denied, .. }) =
                rules.judge(target.as_bytes(), Paths::AsServed)
            else {
                panic!("{target}")
            };
            assert_eq!(&*denied, pattern);
        }
        assert_eq!(rules.judge(b"/secret60000", Paths::AsServed), OwnVerdict::Silent);

        let long = format!("/{}", "x".repeat(20 << 10));
        let rules = OwnRules::new("*", &none, &["/a", &long]);
        assert!(matches!(rules.judge(long.as_bytes(), Paths::AsServed), OwnVerdict::Deny(_)));
        let almost = &long[..long.len() - 1];
        assert_eq!(
            rules.judge(almost.as_bytes(), Paths::AsServed),
            OwnVerdict::Silent,
            "every byte of the pattern counts"
        );
    }

    #[test]
    fn patterns_too_complex_to_compare_refuse_the_request() {
        let none: [String; 0] = [];
        let allow: Vec<String> = (0..24_000).map(|n| format!("/*aaa*{n}")).collect();
        let rules = OwnRules::new("a.example", &allow, &none);
        let verdict = rules.judge(format!("/{}", "a".repeat(60_000)).as_bytes(), Paths::AsServed);
        let why = Refusal::RulesTooComplex { rules: "`hosts: a.example` of the configuration".into() };
        assert_eq!(verdict, OwnVerdict::Deny(why));
    }
}
