//! A start whose request has yet to leave. Pure.

/// A start under a gap whose request has not left: until it does, the next start's time is unknown.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingStart {
    /// As in the [`Slot`](super::Slot).
    pub number: u64,
    /// Another instance has started something since.
    pub is_overtaken: bool,
}
