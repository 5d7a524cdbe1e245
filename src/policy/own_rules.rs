//! The operator's own `allow` and `deny` path patterns for a host. They override robots.txt and read as
//! its rules do. Pure. Compiled once from the configuration.

use super::Refusal;
use super::served_paths::{Paths, Served, first_refused};
use crate::robots::{Reason, RobotsTxt, RuleSet};

/// The patterns of one entry of `hosts`, compiled.
#[derive(Debug, Clone)]
pub struct OwnRules {
    host: Box<str>,
    rules: RuleSet,
}

/// What they say of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnVerdict {
    /// Nothing: robots.txt decides.
    Silent,
    /// Allowed, whatever robots.txt says.
    Allow,
    /// Denied, whatever robots.txt says.
    Deny(Refusal),
}

impl OwnRules {
    /// `host` is the entry's pattern, for messages.
    pub fn new<T: AsRef<str>>(host: &str, allow: &[T], deny: &[T]) -> Self {
        let mut text = String::from("User-agent: *\n");
        for (key, patterns) in [("Allow", allow), ("Disallow", deny)] {
            for pattern in patterns {
                text.push_str(key);
                text.push_str(": ");
                push_pattern(&mut text, pattern.as_ref());
                text.push('\n');
            }
        }
        let none: [&str; 0] = [];
        Self { host: host.into(), rules: RobotsTxt::parse(text.as_bytes()).rules_for(&none) }
    }

    /// `target` is path and query as sent. A form that servers make of it is denied if it is one that is; it is allowed only
    /// if all forms are.
    pub fn judge(&self, target: &[u8], paths: Paths) -> OwnVerdict {
        let mut all_allowed = true;
        let denied = first_refused(target, paths, |form| {
            let verdict = self.rules.check_bytes(form.target);
            all_allowed &= verdict.reason() == Reason::Allowed || !form.is_to_be_allowed();
            let pattern = verdict.rule().map_or("", |rule| rule.pattern());
            (verdict.reason() == Reason::Disallowed && form.is_meant_by(pattern)).then_some(pattern)
        });
        match denied {
            Served::Refused(pattern, matched_path) => OwnVerdict::Deny(Refusal::OperatorDenied {
                host: self.host.clone(),
                pattern: pattern.into(),
                matched_path,
            }),
            Served::TooMany => OwnVerdict::Deny(Refusal::AmbiguousPath),
            Served::Silent if all_allowed => OwnVerdict::Allow,
            Served::Silent => OwnVerdict::Silent,
        }
    }
}

/// What would end the pattern or the line is percent-encoded, which for matching is the same.
fn push_pattern(text: &mut String, pattern: &str) {
    for c in pattern.chars() {
        match c {
            '\0'..=' ' | '#' | '\x7f' => text.push_str(&format!("%{:02X}", u32::from(c))),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> OwnRules {
        OwnRules::new("*.example.com", &["/open", "/a b"], &["/", "/*.pdf$", "/x\nAllow: /secret", "/#"])
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
    fn no_pattern_says_nothing() {
        let empty: [&str; 0] = [];
        assert_eq!(OwnRules::new("*", &empty, &empty).judge(b"/", Paths::AsServed), OwnVerdict::Silent);
        assert_eq!(OwnRules::new("*", &["/a"], &["/b"]).judge(b"/c", Paths::AsServed), OwnVerdict::Silent);
    }

    #[test]
    fn what_servers_make_of_a_path_is_denied_and_not_allowed_by_another_name() {
        assert_eq!(rules().judge(b"/open/..%2f1", Paths::AsServed), denied_as("/", Some("/1")));
        assert_eq!(rules().judge(b"/open/..%2f1", Paths::AsSent), OwnVerdict::Allow);
        assert_eq!(rules().judge(b"/open//1", Paths::AsServed), OwnVerdict::Allow);
        let rules = OwnRules::new("*", &["/open"], &["/secret"]);
        assert_eq!(rules.judge(b"/open/..%2fother", Paths::AsServed), OwnVerdict::Silent);
    }

    #[test]
    fn what_clients_write_in_two_ways_is_denied_in_both_and_allowed_as_it_is() {
        let rules = OwnRules::new("*", &["/@me", "/f["], &["/p?q|"]);
        assert_eq!(rules.judge(b"/@me", Paths::AsServed), OwnVerdict::Allow);
        assert_eq!(rules.judge(b"/f[0]", Paths::AsServed), OwnVerdict::Allow);
        for target in ["/p?q|", "/p?q%7C", "/p?q%7c"] {
            let OwnVerdict::Deny(_) = rules.judge(target.as_bytes(), Paths::AsServed) else { panic!("{target}") };
        }
    }

    #[test]
    fn robots_txt_itself_is_not_theirs_to_deny() {
        assert_eq!(rules().judge(b"/robots.txt", Paths::AsServed), OwnVerdict::Silent);
    }

    #[test]
    fn a_pattern_cannot_bring_in_another() {
        assert_eq!(rules().judge(b"/secret", Paths::AsServed), denied("/"));
        assert_eq!(rules().judge(b"/a%20b", Paths::AsServed), OwnVerdict::Allow);
        assert_eq!(rules().judge(b"/%23x", Paths::AsServed), denied("/%23"));
    }
}
