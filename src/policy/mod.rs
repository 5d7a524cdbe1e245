//! What is asked of the proxy and what it answers, without I/O: the key of a request, the reasons for refusing it,
//! the pace of a host. Pure: time and chance are arguments.

pub mod authority;
pub mod budget;
pub mod decide;
pub mod entry;
pub mod explain;
pub mod freshness;
pub mod host;
pub mod host_pattern;
pub mod host_rules;
pub mod listed;
pub mod manners;
pub mod mined;
pub mod noted;
pub mod offers;
pub mod override_fields;
pub mod own_rules;
pub mod pace;
pub mod pace_key;
pub mod refusal;
pub mod request;
pub mod reserved;
pub mod retry_after;
pub mod revisit;
pub mod served_paths;
pub mod site_file;

pub use authority::{Authority, AuthorityError, Scheme};
pub use budget::{Budget, Period, Spent};
pub use decide::{Allowance, Decision, Known, Ruling, decide, judge_file, may_fetch_tdmrep};
pub use entry::{Access, AskedAgain, Entry, HttpVersion, SiteAnswer, Trouble, Validators};
pub use host::Host;
pub use host_pattern::{HostPattern, HostPatternError};
pub use host_rules::{HostRules, PolicyOptions, RobotsOverride};
pub use listed::Listed;
pub use manners::{Adaptive, Breaker, Manners, turns_away};
pub use mined::MiningEvidence;
pub use noted::{Noted, Signal};
pub use own_rules::{OwnRules, OwnVerdict};
pub use pace_key::{KeyBy, PaceKey};
pub use refusal::{EgressReason, ListedBy, PreferenceEvidence, Refusal, RuleEvidence};
pub use request::Request;
pub use reserved::{Reservation, UsageField, UsageLines, UsageModes, Use};
pub use retry_after::retry_after;
pub use revisit::{Again, Conditions, Visit, unescaped};
pub use served_paths::Paths;
pub use site_file::SiteFile;
