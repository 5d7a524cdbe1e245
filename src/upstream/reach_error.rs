//! Why an authority cannot be dialled.

use super::egress::Denied;
use super::resolve::ResolveError;

/// Why an authority cannot be dialled.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// Other settings are in force than those that the caller goes by: it has to ask again by these.
    #[error("the configuration has just been reloaded")]
    Reloaded,
}
