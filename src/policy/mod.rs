//! The decision on a request, without I/O: its key, the reasons to refuse it, and the pace of a host. Pure: time and randomness are
//! arguments.

mod access;
pub mod allowlist;
pub mod authority;
mod background;
pub mod budget;
pub mod cache;
mod client_id;
mod clip;
mod content_range;
mod date;
pub mod decide;
pub mod entity_tag;
pub mod entry;
pub mod explain;
pub mod freshness;
pub mod host;
pub mod host_pattern;
pub mod host_rules;
pub mod list;
pub mod manners;
pub mod money;
pub mod operator_rules;
pub mod override_fields;
pub mod pace;
pub mod pace_key;
mod reference;
pub mod refusal;
pub mod request;
pub mod retry_after;
pub mod revisit;
mod robots_override;
pub mod site_file;
pub mod usage;

pub use crate::robots::path_forms::Paths;
pub use access::Access;
pub use allowlist::Allowlist;
pub use authority::{Authority, AuthorityError, Scheme};
pub use background::is_background;
pub use budget::{Budget, MoneyBudget, Period, Spent};
pub use clip::{clipped, is_unseen, json_escape};
pub use content_range::{content_range, whole_range};
pub use date::shown_http_date;
pub use decide::{
    Allowance, Decision, Known, Ruling, decide, judge_file, judge_linked, may_fetch_license, may_fetch_tdmrep,
};
pub use entry::{AskedAgain, Entry, HttpVersion, SiteAnswer, Trouble, Validators};
pub use host::Host;
pub use host_pattern::{HostPattern, HostPatternError};
pub use host_rules::{HostRules, PolicyOptions, PolicyToken};
pub use manners::{Adaptive, Breaker, Manners, turns_away};
pub use money::{Currency, Money};
pub use operator_rules::{OwnRules, OwnVerdict};
pub use pace_key::{KeyBy, PaceKey};
pub use reference::resolved;
pub use refusal::{EgressReason, EntryEvidence, LineEvidence, ListedBy, Refusal, Reservation};
pub use request::Request;
pub use retry_after::retry_after;
pub use revisit::{Again, Conditions, Visit, is_for_one, normalised};
pub use robots_override::RobotsOverride;
pub use site_file::SiteFile;
pub use usage::{Signal, UsageField, UsageLines, UsageModes, UsageReport, Use};
