//! The dialect switches of reading a robots.txt. Default: RFC 9309 with the customary leniencies. Used by `parse`, `group`.

/// How a robots.txt is read. `Default` is RFC 9309 plus the extensions that every crawler of note has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ParseOptions {
    /// How a `User-agent` value names a crawler.
    pub user_agent_match: UserAgentMatch,
    /// Which of several matching rules decides.
    pub precedence: Precedence,
    /// Octets read at most; a line cut by it is dropped. Never less than [`ParseOptions::MIN_SIZE`] (RFC 9309 §2.5).
    pub max_size: usize,
    /// Accept frequent misspellings of keys (`dissallow`, `useragent`, …), with a warning (Google).
    pub key_typos: bool,
    /// Accept `Disallow /x`: white space in place of the colon where the line has exactly two words (Google).
    pub missing_colon: bool,
    /// A `Crawl-delay` before any `User-agent` holds for all agents that have none of their own (texting_robots).
    pub leading_crawl_delay: bool,
    /// Rules of a file without any `User-agent` line hold for all agents (texting_robots; RFC 9309 ignores them).
    pub rules_without_agent: bool,
    /// `/robots.txt` is allowed whatever the rules say (RFC 9309 §2.2.2).
    pub robots_txt_allowed: bool,
    /// Warnings kept at most; a hostile file could otherwise cause one for every two of its octets.
    pub max_warnings: usize,
}

impl ParseOptions {
    /// 500 KiB: what every crawler must be able to read (RFC 9309 §2.5).
    pub const MIN_SIZE: usize = 512_000;
}

impl Default for ParseOptions {
    fn default() -> Self {
        Self {
            user_agent_match: UserAgentMatch::Exact,
            precedence: Precedence::MostSpecific,
            max_size: Self::MIN_SIZE,
            key_typos: true,
            missing_colon: true,
            leading_crawl_delay: true,
            rules_without_agent: false,
            robots_txt_allowed: true,
            max_warnings: 1_000,
        }
    }
}

/// How the value of a `User-agent` line names a crawler. Never case-sensitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UserAgentMatch {
    /// The product token equals the crawler's (RFC 9309 §2.2.1).
    #[default]
    Exact,
    /// A word of the value is a prefix of the crawler's token (crawler-commons before its issue 362).
    Prefix,
    /// The value and the crawler's token contain one another; `*` in the value is any run of octets (1996 draft, Ruby).
    Substring,
}

/// Which of several matching rules decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precedence {
    /// The one with the most octets; allow on a tie (RFC 9309 §2.2.2).
    #[default]
    MostSpecific,
    /// The first in the file (1996 draft).
    FirstMatch,
}
