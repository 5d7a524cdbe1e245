//! Faults that involve several keys, reported under the keys they are about.

use super::error::{Complaint, nearest};
use super::faults::{At, Faults};
use super::tree::YamlNode;

/// Collects faults under the keys they are about.
pub(in crate::config) struct Check<'a> {
    root: &'a YamlNode,
    faults: &'a mut Faults,
}

impl<'a> Check<'a> {
    /// `root`: everything that was read.
    pub fn new(root: &'a YamlNode, faults: &'a mut Faults) -> Self {
        Self { root, faults }
    }

    /// Reports a fault. `path` leads to the key through keys and list indices. Its place is the key's, or its section's if the key is
    /// not written.
    pub fn fault(&mut self, path: &[&str], what: impl Into<String>, hint: impl Into<String>) {
        if self.faults.is_full() {
            return;
        }
        let (mut node, mut at) = (self.root, At::Unwritten);
        for step in path {
            let Some(below) = node.below(step) else { break };
            node = below;
            at = if node.at == At::Unwritten { at } else { node.at };
        }
        self.faults.push(at, Complaint::new(what, hint));
    }

    /// Whether `path` leads to a written key, valid or not.
    pub fn is_written(&self, path: &[&str]) -> bool {
        let Some((key, section)) = path.split_last() else { return false };
        let section = section.iter().try_fold(self.root, |node, step| node.below(step));
        section.is_some_and(|section| {
            let is_value = |node: &YamlNode| node.at != At::Unwritten && !node.is_null();
            section.below(key).is_some_and(is_value) || section.removed.iter().any(|removed| removed == key)
        })
    }

    /// Whether everything in these sections was read. Otherwise comparing keys could report false faults, such as when a key is
    /// misspelt.
    pub fn is_sure(&self, sections: &[&str]) -> bool {
        self.root.removed.iter().all(|key| nearest(key, sections).is_none())
            && sections.iter().all(|section| self.root.below(section).is_none_or(YamlNode::is_whole))
    }
}
