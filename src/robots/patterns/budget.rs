//! The steps that one decision may take, whatever the site wrote and the client asks for. Pure.

use crate::robots::steps;

/// What is left of a decision's steps. A step is one comparison, or 64 bytes searched for one byte: at most five nanoseconds or so.
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

    #[inline]
    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), StepsSpent> {
        steps::count(steps);
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(StepsSpent)
            }
        }
    }
}
