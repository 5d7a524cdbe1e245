//! Whether robots.txt is enforced, ignored or reported for a host, as the operator configured. Pure.

/// What becomes of robots.txt, or of another word of the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RobotsOverride {
    #[default]
    Enforce,
    /// It is not even fetched.
    Ignore,
    /// What it refuses goes all the same, and is reported.
    Report,
}
