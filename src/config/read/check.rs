//! Faults that no single value shows, told under the keys they are about.

use super::error::Complaint;
use super::source::{At, Node};

/// Collects faults under the keys they are about.
pub(in crate::config) struct Check<'a> {
    root: &'a Node,
    faults: &'a mut Vec<(At, Complaint)>,
}

impl<'a> Check<'a> {
    pub fn new(root: &'a Node, faults: &'a mut Vec<(At, Complaint)>) -> Self {
        Self { root, faults }
    }

    /// `path` leads to the key through keys and list indices. The fault stands where it is written, else at its section.
    pub fn fault(&mut self, path: &[&str], what: impl Into<String>, hint: impl Into<String>) {
        let written = (1..=path.len()).rev().find_map(|length| self.root.find(&path[..length]));
        self.faults.push((written.map_or(At::Unwritten, |node| node.at), Complaint::new(what, hint)));
    }
}
