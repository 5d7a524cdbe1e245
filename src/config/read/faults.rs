//! Faults of values, before their places are looked up.

use super::error::Complaint;

/// Where a value was written. The numbers count the files, the values of each, and the environment's variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum At {
    Node {
        file: u32,
        number: u32,
    },
    Variable(u32),
    /// None: the value is a default.
    Unwritten,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct NodeFault {
    pub at: At,
    /// The value that this one repeats. `{}` in the hint stands for its place.
    pub first: Option<At>,
    pub complaint: Complaint,
}

/// The first faults, without duplicates: more than fifty are no help, and must not slow down reading.
#[derive(Debug, Default)]
pub(in crate::config) struct Faults(Vec<NodeFault>);

impl Faults {
    pub fn push(&mut self, at: At, complaint: Complaint) {
        self.add(NodeFault { at, first: None, complaint });
    }

    /// Adds a fault of a value that repeats the one at `first`.
    pub fn push_repeated(&mut self, at: At, first: At, complaint: Complaint) {
        self.add(NodeFault { at, first: Some(first), complaint });
    }

    fn add(&mut self, fault: NodeFault) {
        if !self.is_full() && !self.0.contains(&fault) {
            self.0.push(fault);
        }
    }

    pub fn is_full(&self) -> bool {
        self.0.len() >= MOST_FAULTS
    }

    pub fn into_vec(self) -> Vec<NodeFault> {
        self.0
    }
}

const MOST_FAULTS: usize = 50;
