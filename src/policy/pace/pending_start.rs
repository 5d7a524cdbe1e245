//! A start whose request has yet to leave. Pure.

/// A start under a gap whose request has not left: until it does, the next start's time is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum PendingStart {
    #[default]
    None,
    /// Start number.
    Start(u64),
    /// Another instance has started something since.
    Overtaken(u64),
}

impl PendingStart {
    /// The start has left or never will. True: it was the pending one.
    pub fn end(&mut self, ended: u64) -> bool {
        let is_it = matches!(self, Self::Start(number) | Self::Overtaken(number) if *number == ended);
        if is_it {
            *self = Self::None;
        }
        is_it
    }
}
