//! The budget of steps for one decision, which bounds its time for any robots.txt and any URL. Pure.

use crate::robots::steps;

/// The steps left for one decision, or for reading one page. A step of a decision takes about 5 ns, fifteen instructions: it is one
/// comparison, one search of 64 bytes for a byte, or the reading of four bytes. Costlier work counts as several steps.
#[derive(Debug)]
pub(crate) struct StepBudget {
    left: usize,
}

/// The error that the budget is spent. A path that could not be judged must not be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepsSpent;

impl StepBudget {
    /// Maximum number of steps of one decision: about half a millisecond of work.
    pub(crate) const STEPS: usize = 100_000;

    pub(crate) fn new() -> Self {
        Self::of(Self::STEPS)
    }

    pub(crate) fn of(steps: usize) -> Self {
        Self { left: steps }
    }

    /// A budget for work that no request waits for.
    pub(crate) fn unlimited() -> Self {
        Self::of(usize::MAX)
    }

    /// Spends the steps for reading this many bytes one at a time.
    #[inline]
    pub(crate) fn spend_on_bytes(&mut self, bytes: usize) -> Result<(), StepsSpent> {
        self.spend(bytes / 4)
    }

    pub(crate) fn left(&self) -> usize {
        self.left
    }

    #[inline]
    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), StepsSpent> {
        let left = self.left.checked_sub(steps);
        steps::count(steps.min(self.left));
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or(StepsSpent)
    }
}
