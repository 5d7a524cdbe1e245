//! RFC 9309 and its de-facto extensions: bytes in, verdicts out. Pure: no I/O, no clock. Called by `policy`, `gate`, `cli`.
//!
//! Where the standard leaves a case open, or parsers part ways, [`ParseOptions`] has a switch for it; `docs/conformance.md`
//! in the repository tells of each with an example. What is wrong with a file, [`lint`] tells.
//!
//! ```
//! use politely::robots::RobotsTxt;
//!
//! let robots = RobotsTxt::parse(b"User-agent: *\nDisallow: /private\nCrawl-delay: 2\n");
//! let rules = robots.rules_for(&["ExampleBot"]);
//! let verdict = rules.check("/private/page?x=1");
//! assert!(!verdict.is_allowed());
//! assert_eq!(verdict.rule().map(|rule| rule.line()), Some(2));
//! assert_eq!(rules.crawl_delay(), Some(std::time::Duration::from_secs(2)));
//! ```

pub mod access;
mod blob;
mod delay;
mod group;
mod item;
mod key;
mod kinds;
mod line;
pub mod lint;
mod location;
mod matcher;
mod memo;
mod options;
mod parse;
pub(crate) mod path;
mod pattern;
mod product_token;
mod rank;
mod robots_txt;
mod rules;
mod ruleset;
mod source;
mod stars;
mod steps;
mod trie;
mod usage;
mod usages;
mod verdict;
mod warnings;

pub use access::AccessKind;
pub use delay::{RequestRate, VisitTime};
pub use location::{UrlError, robots_url};
pub use options::{ParseOptions, PercentEncoding, Precedence, UserAgentMatch};
pub use product_token::{ProductToken, TokenError};
pub use rank::RuleKind;
pub use robots_txt::RobotsTxt;
pub use ruleset::RuleSet;
pub use usage::{Purpose, PurposeError};
pub use verdict::{PreferenceRef, Reason, RuleRef, Verdict};
pub use warnings::{Warning, WarningCode};

/// What reading a file costs.
#[cfg(fuzzing)]
pub use steps::of as steps_of;
