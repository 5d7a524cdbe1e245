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
    /// The caller's settings are no longer in force: the caller must decide again under the new settings.
    #[error("the configuration has just been reloaded")]
    Reloaded,
}
