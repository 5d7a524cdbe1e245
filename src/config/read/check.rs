//! Faults that involve several keys, reported under the keys they are about.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ptr;

use super::error::{Complaint, nearest};
use super::faults::{At, Faults};
use super::tree::{Value, YamlNode};

/// Collects faults under the keys they are about.
pub(in crate::config) struct Check<'a> {
    root: &'a YamlNode,
    /// What was at fault where it stands, by identity: it has been read as if it were not there.
    dropped: &'a HashSet<*const YamlNode>,
    faults: &'a mut Faults,
    /// The items of lists that were not dropped, as they are asked for.
    kept: RefCell<HashMap<*const YamlNode, Vec<&'a YamlNode>>>,
}

impl<'a> Check<'a> {
    pub fn new(root: &'a YamlNode, dropped: &'a HashSet<*const YamlNode>, faults: &'a mut Faults) -> Self {
        Self { root, dropped, faults, kept: RefCell::default() }
    }

    /// `path` leads to the key through keys and list indices. The fault stands where it is written, else at its section.
    pub fn fault(&mut self, path: &[&str], what: impl Into<String>, hint: impl Into<String>) {
        if self.faults.is_full() {
            return;
        }
        let mut node = self.root;
        for step in path {
            match self.below(node, step) {
                Some(below) => node = below,
                None => break,
            }
        }
        let at = if ptr::eq(node, self.root) { At::Unwritten } else { node.at };
        self.faults.push(at, Complaint::new(what, hint));
    }

    /// Whether something stands at the key that `path` leads to, as for [`fault`](Self::fault).
    pub fn is_written(&self, path: &[&str]) -> bool {
        let found = || path.iter().try_fold(self.root, |node, step| self.below(node, step));
        !self.faults.is_full() && found().is_some_and(|node| !node.is_null())
    }

    /// Whether all that stands in these sections was read. What compares keys would find faults that are none where one of
    /// them is misspelt.
    pub fn is_sure(&self, sections: &[&str]) -> bool {
        let is_read = |(key, value): &(YamlNode, YamlNode)| {
            let name = key.text().unwrap_or_default();
            match self.is_dropped(key) {
                true => nearest(name, sections).is_none(),
                false => !sections.contains(&name) || self.is_whole(value),
            }
        };
        !self.is_dropped(self.root) && self.root.entries().iter().all(is_read)
    }

    fn is_dropped(&self, node: &YamlNode) -> bool {
        self.dropped.contains(&ptr::from_ref(node))
    }

    fn is_whole(&self, node: &YamlNode) -> bool {
        !self.is_dropped(node)
            && match &node.value {
                Value::List(items) => items.iter().all(|item| self.is_whole(item)),
                Value::Map(entries) => entries.iter().all(|(key, value)| self.is_whole(key) && self.is_whole(value)),
                _ => true,
            }
    }

    /// Of a list, what was dropped does not count.
    fn below(&self, node: &'a YamlNode, step: &str) -> Option<&'a YamlNode> {
        match &node.value {
            Value::List(items) => {
                let mut kept = self.kept.borrow_mut();
                let kept = kept
                    .entry(ptr::from_ref(node))
                    .or_insert_with(|| items.iter().filter(|item| !self.is_dropped(item)).collect());
                kept.get(step.parse::<usize>().ok()?).copied()
            }
            _ => node.below(step),
        }
    }
}
