//! The steps that one decision may take, whatever the site wrote and the client asks for. Pure.

use crate::robots::steps;

/// What is left of a decision's steps. A step is one comparison, 64 bytes searched for one byte, or four bytes read or written one by
/// one: at most five nanoseconds or so.
#[derive(Debug)]
pub(crate) struct StepBudget {
    left: usize,
}

/// The budget is spent: nothing can be said of the path, so that it must not be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepsSpent;

impl StepBudget {
    /// Half a millisecond's worth of work at most. What real files and paths take is in docs/conformance.md.
    pub(crate) const STEPS: usize = 100_000;

    pub(crate) fn new() -> Self {
        Self { left: Self::STEPS }
    }

    /// For what no request waits for.
    pub(crate) fn unlimited() -> Self {
        Self { left: usize::MAX }
    }

    /// Bytes that are looked at one by one, or written anew.
    #[inline]
    pub(crate) fn spend_on_bytes(&mut self, bytes: usize) -> Result<(), StepsSpent> {
        self.spend(bytes / 4)
    }

    #[inline]
    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), StepsSpent> {
        let left = self.left.checked_sub(steps);
        steps::count(steps.min(self.left));
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or(StepsSpent)
    }
}
