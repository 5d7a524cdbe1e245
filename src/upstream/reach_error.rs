//! Why an authority cannot be reached.

use super::egress::Denied;
use super::resolve::ResolveError;

/// Why an authority cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The caller's settings are no longer in force: it must decide again with the new ones.
    #[error("the configuration has just been reloaded")]
    Reloaded,
}
