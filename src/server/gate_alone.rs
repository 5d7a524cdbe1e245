//! Creates a gate without a proxy, for code that only asks it about URLs.

use super::{StartError, roots_of};
use crate::config::Settings;
use crate::gate::Gate;
use crate::tls::roots;
use crate::upstream::Upstream;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// Creates a gate that keeps everything in memory.
///
/// # Errors
/// The roots for verifying origins cannot be read.
pub fn gate_alone(settings: Settings) -> Result<Gate, StartError> {
    open(settings, Gate::new)
}

/// Creates a gate that uses the store on disk.
pub fn gate_with_store(settings: Settings) -> Result<Gate, StartError> {
    open(settings, Gate::open)
}

fn open(settings: Settings, gate: fn(Arc<ArcSwap<Settings>>, Arc<Upstream>) -> Gate) -> Result<Gate, StartError> {
    let roots = roots::configured(&settings)?;
    let settings = Arc::new(settings);
    let upstream = Arc::new(Upstream::new(&settings, roots_of(&roots), Vec::new())?);
    Ok(gate(Arc::new(ArcSwap::new(settings)), upstream))
}
