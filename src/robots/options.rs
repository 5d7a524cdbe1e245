//! Parse options: RFC 9309 with the customary leniencies, and the dialects of other parsers.

/// How a robots.txt is read. `Default` is RFC 9309 plus the extensions that every well-known crawler has; constructors give the
/// dialects of other parsers. `docs/conformance.md` in the repository shows an example of each switch.
///
/// ```
/// use politely::robots::{ParseOptions, RobotsTxt};
///
/// let rules = RobotsTxt::parse_with(b"Disallow: /private", &ParseOptions::texting_robots()).rules_for(&["ExampleBot"]);
/// assert!(!rules.check("/private").is_allowed());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ParseOptions {
    /// How a `User-agent` value names a crawler.
    pub user_agent_match: UserAgentMatch,
    /// Determines which of several matching rules decides.
    pub precedence: Precedence,
    /// Maximum number of bytes read. A line that ends beyond this limit is dropped. At least [`ParseOptions::MIN_SIZE`] (RFC 9309 §2.5).
    pub max_size: usize,
    /// Reads Content-Signal and Content-Usage as they were probably meant: `*.pdf` is a path, and `AI-Train = No` says no in both. By their
    /// own grammars, these would be malformed.
    pub lenient_usage: bool,
    /// Of several groups for `*`, only the first counts (draft-koster-rep-00 §2.2.1).
    pub first_star_group: bool,
    /// A `$` that ends a pattern also matches before a query (Ruby's robotstxt).
    pub anchor_before_query: bool,
    /// A `Crawl-delay` before any `User-agent` applies to all agents that have no delay (texting_robots).
    pub leading_crawl_delay: bool,
    /// Rules of a file without any `User-agent` line apply to all agents (texting_robots; RFC 9309 ignores them).
    pub rules_without_agent: bool,
}

impl ParseOptions {
    /// 500 KiB: the size that every crawler must be able to read (RFC 9309 §2.5).
    pub const MIN_SIZE: usize = 512_000;

    /// Maximum size of a decoded text, in bytes: UTF-8 can be 1.5 times as long as the UTF-16 that [`max_size`](Self::max_size) counts.
    #[cfg(feature = "proxy")]
    pub(crate) fn max_text(&self) -> usize {
        self.max_size.saturating_add(self.max_size / 2 + 1)
    }

    /// The draft of 2019 that became RFC 9309 (draft-koster-rep-00).
    pub fn draft_2019() -> Self {
        Self { first_star_group: true, ..Self::default() }
    }

    /// The drafts of 1994 and 1996 with the globs of Ruby's robotstxt: the first rule that matches decides, a `User-agent` value may be any
    /// part of a crawler's name, and rules need no `User-agent` line.
    pub fn original() -> Self {
        Self {
            user_agent_match: UserAgentMatch::Substring,
            precedence: Precedence::FirstMatch,
            anchor_before_query: true,
            rules_without_agent: true,
            ..Self::default()
        }
    }

    /// crawler-commons since its issue 362: names are compared whole, and a delay before any `User-agent` line applies to no crawler.
    pub fn crawler_commons() -> Self {
        Self { leading_crawl_delay: false, ..Self::default() }
    }

    /// crawler-commons before its issue 362: each word of a `User-agent` value is the beginning of a name.
    pub fn crawler_commons_before_362() -> Self {
        Self { user_agent_match: UserAgentMatch::Prefix, ..Self::crawler_commons() }
    }

    /// texting_robots: rules need no `User-agent` line, and a delay before any such line applies to crawlers that have no delay.
    pub fn texting_robots() -> Self {
        Self { rules_without_agent: true, ..Self::default() }
    }
}

impl Default for ParseOptions {
    fn default() -> Self {
        Self {
            user_agent_match: UserAgentMatch::Exact,
            precedence: Precedence::MostSpecific,
            max_size: Self::MIN_SIZE,
            lenient_usage: false,
            first_star_group: false,
            anchor_before_query: false,
            leading_crawl_delay: true,
            rules_without_agent: false,
        }
    }
}

/// How the value of a `User-agent` line names a crawler. Case never matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "proxy", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum UserAgentMatch {
    /// The product token equals the crawler's (RFC 9309 §2.2.1). A crawler's name with other characters must equal the whole value.
    #[default]
    Exact,
    /// A word of the value is a prefix of the crawler's token (crawler-commons before its issue 362).
    Prefix,
    /// The value contains the crawler's token or the token contains the value; `*` in the value stands for any bytes (1996 draft, Ruby).
    Substring,
}

/// Determines which of several matching rules decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "proxy", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Precedence {
    /// The rule with the most bytes; allow on a tie (RFC 9309 §2.2.2).
    #[default]
    MostSpecific,
    /// The first rule in the file; if an agent has several groups, the first of them (1996 draft).
    FirstMatch,
}
