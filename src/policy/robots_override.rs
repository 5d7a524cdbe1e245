//! Whether robots.txt is enforced, ignored or reported for a host, as the operator configured. Pure.

/// Whether robots.txt, or another signal of the site, is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "proxy", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum RobotsOverride {
    #[default]
    Enforce,
    /// robots.txt or the other signal is ignored, and not even fetched.
    Ignore,
    /// Requests that would be refused are sent, and the refusals are reported.
    Report,
}
