//! RFC 9309 and its de-facto extensions: parses robots.txt files, and judges URLs by them. Pure: no I/O, no clock.
//!
//! Where the standard leaves a case open, or parsers disagree, [`ParseOptions`] has a switch for it; `docs/conformance.md`
//! in the repository describes each switch with an example. [`lint`] reports what is wrong with a file.
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
pub(crate) mod budget;
mod byte_set;
mod fold;
mod license;
pub mod lint;
mod options;
mod parse;
pub(crate) mod path;
pub(crate) mod path_forms;
pub(crate) mod patterns;
mod preferences;
mod product_token;
mod robots_txt;
mod rsl;
mod rsl_xml;
pub(crate) mod rule;
mod ruleset;
mod steps;
mod tdm_rep;
mod usage;
mod verdict;
mod warning;

pub use access::AccessKind;

pub use license::is_license_url;
pub use options::{ParseOptions, Precedence, UserAgentMatch};
pub use parse::delay::{RequestRate, VisitTime};
pub(crate) use parse::encoding::Layout;
pub use product_token::{ProductToken, TokenError};
pub use robots_txt::RobotsTxt;
pub use rsl::{RslFile, RslTerm};
pub use rsl_xml::attribute as xml_attribute;
pub use rule::RuleKind;
pub use ruleset::RuleSet;
pub use tdm_rep::{TdmRep, TdmReservation};
pub use usage::{Purpose, PurposeError};
pub(crate) use usage::{UsageLine, read_signal, read_usage};
pub use verdict::{PreferenceRef, Reason, RuleRef, Verdict};
pub use warning::WarningCode;

pub(crate) use steps::count as steps_count;
/// Counts the steps that reading a file takes.
#[cfg(any(test, feature = "_fuzzing"))]
pub use steps::of as steps_of;
