//! Reads the sections of a configuration independently, so that one run reports the first fault of each.

use std::collections::BTreeSet;
use std::path::Path;

use serde::de::{DeserializeOwned, Error};

use super::error::{Complaint, ConfigPlace, Faults, nearest};
use super::expectation::listed;
use super::reader::{Reader, ValueError};
use super::tree::{Value, YamlNode};
use crate::config::schema::defaults::defaults;

/// Reads sections, and collects the faults of single keys and of keys together.
pub(in crate::config) struct Sections<'a> {
    /// The written configuration, laid over the defaults.
    pub whole: YamlNode,
    /// The directory that relative paths start from.
    base: &'a Path,
    faults: &'a mut Faults,
    /// Names of the sections with a fault, which are read as their defaults.
    unread: BTreeSet<String>,
}

impl<'a> Sections<'a> {
    pub fn new(written: YamlNode, base: &'a Path, faults: &'a mut Faults) -> Self {
        let (mut whole, mut unread) = (defaults().clone(), BTreeSet::new());
        let known: Vec<&str> = defaults().entries().into_iter().filter_map(|(key, _)| key.text()).collect();
        if !matches!(written.value, Value::Map(_)) {
            faults.push(&written.at, ValueError::invalid_type(written.unexpected(), &"struct").complaint);
        }
        for (key, name) in written.entries().into_iter().filter_map(|(key, _)| Some((key, key.text()?))) {
            if !known.contains(&name) && !faults.is_full() {
                let mut complaint = ValueError::unknown_key(name, &known).complaint;
                let homes: Vec<&str> = known.iter().copied().filter(|section| has_key(section, name)).collect();
                if !homes.is_empty() {
                    complaint.hint = format!("it belongs in {}: `{}: {{ {name}: … }}`", listed(&homes, "or"), homes[0]);
                }
                faults.push(&key.at, complaint);
                unread.extend(nearest(name, &known).map(str::to_owned));
            }
        }
        whole.lay_over(written, &mut |here, over| {
            if !over.1.is_null() {
                *here = over;
            }
        });
        Self { whole, base, faults, unread }
    }

    pub fn read<T: DeserializeOwned>(&mut self, section: &str) -> T {
        self.read_with(section, |reader| T::deserialize(reader))
    }

    pub fn read_with<T>(&mut self, section: &str, read: impl Fn(Reader<'_>) -> Result<T, ValueError>) -> T {
        let (node, default) = (self.whole.along(&[section]), defaults().along(&[section]));
        let reader = Reader { node, base: self.base };
        read(reader).unwrap_or_else(|error| {
            self.unread.insert(section.to_owned());
            self.faults.push(error.place.as_ref().unwrap_or(&node.at), error.complaint);
            read(Reader { node: default, ..reader }).expect("the defaults are valid, as a test checks")
        })
    }

    /// Adds a fault at the key that `path` leads to through keys and list indices; if the key is not written, at the last written key on
    /// the path. Does nothing if the section could not be read: its keys then have the defaults.
    pub fn fault(&mut self, path: &[&str], what: impl Into<String>, hint: impl Into<String>) {
        if !self.is_sure(path[0]) {
            return;
        }
        let (mut node, mut at) = (&self.whole, &ConfigPlace::Unwritten);
        for step in path {
            let Some(below) = node.below(step) else { break };
            node = below;
            at = if node.at == ConfigPlace::Unwritten { at } else { &node.at };
        }
        self.faults.push(at, Complaint::new(what, hint));
    }

    /// Adds a fault if the key that the path leads to is written without a value.
    pub fn fault_if_null(&mut self, path: &[&str], hint: &str) {
        let node = path.iter().try_fold(&self.whole, |node, step| node.below(step));
        if let (Some(true), Some(key)) = (node.map(YamlNode::is_null), path.last()) {
            self.fault(path, format!("`{key}` has no value"), hint);
        }
    }

    /// Whether a value is written at the key that `path` leads to.
    pub fn is_written(&self, path: &[&str]) -> bool {
        self.whole.under(path).is_some_and(|node| node.at != ConfigPlace::Unwritten)
    }

    /// Whether a section was read without a fault. Otherwise, comparing its keys would report faults that do not exist.
    pub fn is_sure(&self, section: &str) -> bool {
        !self.unread.contains(section)
    }
}

/// Whether a section has this key.
fn has_key(section: &str, key: &str) -> bool {
    defaults().along(&[section]).entries().iter().any(|(name, _)| name.text() == Some(key))
}
