//! The dialect switches of reading a robots.txt. Default: RFC 9309 with the customary leniencies.

use super::parse::grammar::{Grammar, MAX_LINE};

/// How a robots.txt is read. `Default` is RFC 9309 plus the extensions that every well-known crawler has. Each switch with an
/// example and the parsers that read it so: `docs/conformance.md` in the repository.
///
/// ```
/// use politely::robots::{ParseOptions, RobotsTxt};
///
/// let mut options = ParseOptions::default();
/// options.rules_without_agent = true;
/// let rules = RobotsTxt::parse_with(b"Disallow: /private", &options).rules_for(&["ExampleBot"]);
/// assert!(!rules.check("/private").is_allowed());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ParseOptions {
    /// How a `User-agent` value names a crawler.
    pub user_agent_match: UserAgentMatch,
    /// Which of several matching rules decides.
    pub precedence: Precedence,
    /// What is done with percent-encoding before paths are compared.
    pub percent_encoding: PercentEncoding,
    /// Bytes read at most; a line cut by it is dropped. Never less than [`ParseOptions::MIN_SIZE`] (RFC 9309 §2.5).
    pub max_size: usize,
    /// Bytes of a line that are read at most; never more than 20,000.
    pub max_line: usize,
    /// Accept frequent misspellings of keys (`dissallow`, `useragent`, …), with a warning (Google).
    pub key_typos: bool,
    /// Accept keys that only begin with a known one, such as `Disallowed:` (Google).
    pub key_prefixes: bool,
    /// Accept `Disallow /x`: white space in place of the colon where the line has exactly two words (Google).
    pub missing_colon: bool,
    /// Vertical tabs and form feeds are white space at the ends of keys and values (Google).
    pub control_space: bool,
    /// Decode a file in UTF-16 or UTF-32, known by its byte order mark or by the NULs between its letters. Otherwise its bytes are read as they
    /// are, and hold no rule (Google).
    pub utf16: bool,
    /// What follows a NUL byte is a line of its own (texting_robots). Otherwise it is ignored up to the line's end (Google).
    pub nul_ends_line: bool,
    /// `Allow: /d/index.html` allows exactly `/d/` too (Google).
    pub index_html: bool,
    /// A `$` that ends a pattern also matches before a query (Ruby's robotstxt).
    pub anchor_before_query: bool,
    /// A `Crawl-delay` before any `User-agent` holds for all agents that have none of their own (texting_robots).
    pub leading_crawl_delay: bool,
    /// Rules of a file without any `User-agent` line hold for all agents (texting_robots; RFC 9309 ignores them).
    pub rules_without_agent: bool,
    /// Read Content-Signal and Content-Usage as they were probably meant: `*.pdf` is a path, and `AI-Train = No` says no in both
    /// (their own grammars leave that unknown).
    pub lenient_usage: bool,
    /// `/robots.txt` is allowed whatever the rules say (RFC 9309 §2.2.2).
    pub robots_txt_allowed: bool,
    /// Warnings kept at most; a hostile file could otherwise cause one for every two of its bytes.
    pub max_warnings: usize,
}

impl ParseOptions {
    /// 500 KiB: what every crawler must be able to read (RFC 9309 §2.5).
    pub const MIN_SIZE: usize = 512_000;

    /// As Google's open-source matcher reads a file, for comparison: it decodes no escapes, takes keys by their beginnings,
    /// and asks whether `/robots.txt` may be fetched.
    pub fn google() -> Self {
        Self {
            percent_encoding: PercentEncoding::AsWritten,
            max_size: usize::MAX,
            max_line: 16_663,
            key_prefixes: true,
            control_space: true,
            utf16: false,
            nul_ends_line: false,
            index_html: true,
            robots_txt_allowed: false,
            user_agent_match: UserAgentMatch::Token,
            ..Self::default()
        }
    }

    /// As the drafts of 1994 and 1996 and the parsers of that time read a file: the first rule that matches decides, an
    /// agent is named by any part of its name, rules need no agent.
    pub fn original() -> Self {
        Self {
            user_agent_match: UserAgentMatch::Substring,
            precedence: Precedence::FirstMatch,
            anchor_before_query: true,
            rules_without_agent: true,
            ..Self::default()
        }
    }
}

impl ParseOptions {
    pub(crate) fn grammar(&self) -> Grammar {
        Grammar { control_space: self.control_space, max_line: self.max_line.min(MAX_LINE) }
    }
}

impl Default for ParseOptions {
    fn default() -> Self {
        Self {
            user_agent_match: UserAgentMatch::Exact,
            precedence: Precedence::MostSpecific,
            percent_encoding: PercentEncoding::Normalised,
            max_size: Self::MIN_SIZE,
            max_line: 16 * 1024,
            key_typos: true,
            key_prefixes: false,
            missing_colon: true,
            control_space: false,
            utf16: true,
            nul_ends_line: true,
            index_html: false,
            anchor_before_query: false,
            leading_crawl_delay: true,
            rules_without_agent: false,
            lenient_usage: false,
            robots_txt_allowed: true,
            max_warnings: 1_000,
        }
    }
}

/// How the value of a `User-agent` line names a crawler. Never case-sensitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "proxy", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum UserAgentMatch {
    /// The product token equals the crawler's (RFC 9309 §2.2.1); a name with other characters equals the whole value.
    #[default]
    Exact,
    /// The product token equals the crawler's, and names with other characters are found nowhere (Google). Not for the proxy.
    #[cfg_attr(feature = "proxy", serde(skip))]
    Token,
    /// A word of the value is a prefix of the crawler's token (crawler-commons before its issue 362).
    Prefix,
    /// The value and the crawler's token contain one another; `*` in the value is any run of bytes (1996 draft, Ruby).
    Substring,
}

/// Which of several matching rules decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "proxy", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Precedence {
    /// The one with the most bytes; allow on a tie (RFC 9309 §2.2.2).
    #[default]
    MostSpecific,
    /// The first in the file; of several groups for an agent the first (1996 draft).
    FirstMatch,
}

/// What is done with percent-encoding before paths are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum PercentEncoding {
    /// Both sides are brought into one form (RFC 9309 §2.2.2).
    #[default]
    Normalised,
    /// Paths are taken as they are; in patterns, bytes outside ASCII are escaped and escapes are in upper case (Google).
    AsWritten,
}
