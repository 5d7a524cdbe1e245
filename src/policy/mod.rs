//! What is asked of the proxy and what it answers, without I/O: the key of a request, the reasons for refusing it,
//! the pace of a host. Pure: time and chance are arguments. Called by `gate` and `proxy`.

pub mod authority;
pub mod host;
pub mod pace;
pub mod pace_key;
pub mod refusal;

pub use authority::{Authority, AuthorityError, Scheme};
pub use host::Host;
pub use pace_key::{KeyBy, PaceKey};
pub use refusal::{EgressReason, Refusal, RuleEvidence};
