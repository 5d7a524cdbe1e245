//! What becomes of a site's wish at a host, as the operator has it. Pure.

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
