//! The start that has yet to leave. Pure.

/// The start under a gap that has not left yet: when the next may is not known until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum PendingStart {
    #[default]
    None,
    /// By its number.
    Start(u64),
    /// Another instance's start has come after it.
    Overtaken(u64),
}

impl PendingStart {
    /// This one has left, or will not. True: it was the one.
    pub fn end(&mut self, ended: u64) -> bool {
        let is_it = matches!(self, Self::Start(number) | Self::Overtaken(number) if *number == ended);
        if is_it {
            *self = Self::None;
        }
        is_it
    }
}
