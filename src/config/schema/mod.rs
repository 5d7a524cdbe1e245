//! The keys of `politely.yaml` and the forms of their values.

pub(super) mod access;
pub(super) mod defaults;
pub(super) mod file;
pub(super) mod host_table;
pub(super) mod intercept;
pub(super) mod manners;
pub(super) mod money;
pub(super) mod origin_tls;
pub(super) mod policy_tokens;
pub(super) mod secrets;
pub(super) mod signature;
pub(super) mod text;
pub mod units;
pub(super) mod values;
