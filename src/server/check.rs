//! Opens the files that a configuration names, as a start would. Creates nothing.

use super::{StartError, listeners, roots_of};
use crate::config::{AdminToken, Settings};
use crate::tls::Roots;
use crate::upstream::Upstream;
use std::sync::Arc;

/// Reads the files that the settings name, such as certificates and keys.
///
/// # Errors
/// [`start`](super::start) would fail with the same error.
pub fn check(settings: &Settings, roots: &Roots) -> Result<(), StartError> {
    settings.listen.iter().try_for_each(|wanted| listeners::tls(settings, wanted).map(drop))?;
    Upstream::new(&Arc::new(settings.clone()), roots_of(roots), Vec::new())?;
    let token = AdminToken::of(settings);
    if settings.admin.address.is_some() && token.is_configured {
        token.read().map_err(|source| StartError::token(settings, &token.path, &source))?;
    }
    Ok(())
}
