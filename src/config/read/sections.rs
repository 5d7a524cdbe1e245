//! The sections of a configuration, each read by itself: what is wrong with one keeps no other from being read.

use std::collections::BTreeSet;
use std::path::Path;

use serde::de::{DeserializeOwned, Error};

use super::error::{Complaint, ConfigPlace, Faults, nearest};
use super::expectation::listed;
use super::reader::{Reader, ValueError};
use super::tree::{Value, YamlNode};
use crate::config::schema::defaults::defaults;

/// Reads sections, and takes faults that involve several keys.
pub(in crate::config) struct Sections<'a> {
    /// What is written, laid over the defaults.
    pub whole: YamlNode,
    /// Where relative paths start.
    base: &'a Path,
    faults: &'a mut Faults,
    /// Those at fault: their defaults stand in for them.
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
        let mut error = match read(reader) {
            Ok(value) => return value,
            Err(error) => error,
        };
        self.unread.insert(section.to_owned());
        // What is at fault is left out, to see what else is. Whatever has lost something may be at fault for that alone.
        let (mut rest, mut incomplete) = (node.clone(), Vec::new());
        for _ in 0..MOST_OF_SECTION {
            let place = error.place.unwrap_or_else(|| rest.at.clone());
            if !incomplete.contains(&place) {
                self.faults.push(&place, error.complaint);
            }
            let is_line = matches!(place, ConfigPlace::Line { .. });
            let Some(lost) = is_line.then(|| leave_out(&mut rest, &place, Some(default))).flatten() else { break };
            incomplete.push(lost);
            match read(Reader { node: &rest, ..reader }) {
                Ok(value) => return value,
                Err(next) => error = next,
            }
        }
        read(Reader { node: default, ..reader }).expect("the defaults are right, as a test holds")
    }

    /// `path` leads to the key through keys and list indices. The fault stands where it is written, else at its section.
    pub fn fault(&mut self, path: &[&str], what: impl Into<String>, hint: impl Into<String>) {
        if self.is_sure(path[0]) {
            self.fault_alone(path, what, hint);
        }
    }

    /// Like [`fault`](Self::fault), for what a key says by itself, even if others of its section are at fault.
    pub fn fault_alone(&mut self, path: &[&str], what: impl Into<String>, hint: impl Into<String>) {
        let (mut node, mut at) = (&self.whole, &ConfigPlace::Unwritten);
        for step in path {
            let Some(below) = node.below(step) else { break };
            node = below;
            at = if node.at == ConfigPlace::Unwritten { at } else { &node.at };
        }
        self.faults.push(at, Complaint::new(what, hint));
    }

    /// The key that the path leads to must not be there without a value.
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

    /// Whether a section was read. What compares keys would find faults that are none where one of them is misspelt.
    pub fn is_sure(&self, section: &str) -> bool {
        !self.unread.contains(section)
    }
}

/// Leaves out the innermost entry of a map, or item of a list, that stands at this place. `default` of the map, if known: an entry gets its
/// default back. Returns the place of the map or list. `None`: nothing below `node` stands there.
fn leave_out(node: &mut YamlNode, place: &ConfigPlace, default: Option<&YamlNode>) -> Option<ConfigPlace> {
    match &mut node.value {
        Value::List(items) => {
            if let Some(lost) = items.iter_mut().find_map(|item| leave_out(item, place, None)) {
                return Some(lost);
            }
            let index = items.iter().position(|item| item.at == *place)?;
            items.remove(index);
        }
        Value::Map(entries) => {
            let default_of = |name: &str| default.and_then(|default| default.below(name));
            let mut below = entries.iter_mut();
            if let Some(lost) = below.find_map(|(name, entry)| leave_out(&mut entry.1, place, default_of(name))) {
                return Some(lost);
            }
            let name = entries.iter().find(|(_, entry)| entry.0.at == *place || entry.1.at == *place)?.0.clone();
            match default_of(&name) {
                Some(default) => entries.get_mut(&name)?.1 = default.clone(),
                None => drop(entries.remove(&name)),
            }
        }
        _ => return None,
    }
    Some(node.at.clone())
}

/// Faults of one section that are shown: the section is read again after each.
const MOST_OF_SECTION: usize = 20;

/// Whether a section has this key.
fn has_key(section: &str, key: &str) -> bool {
    defaults().along(&[section]).entries().iter().any(|(name, _)| name.text() == Some(key))
}
