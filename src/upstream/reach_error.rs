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
    /// Other settings are in force than those that the caller uses: it has to ask again with these.
    #[error("the configuration has just been reloaded")]
    Reloaded,
}
