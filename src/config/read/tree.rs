//! A tree of YAML values in which each value knows its place.

use std::collections::{BTreeMap, btree_map::Entry};
use std::sync::Arc;

use super::error::ConfigPlace;
use crate::config::steps::step;

#[derive(Clone, Debug)]
pub(in crate::config) struct YamlNode {
    pub at: ConfigPlace,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub(in crate::config) enum Value {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Decimal(f64),
    Text(String),
    List(Arc<Vec<YamlNode>>),
    /// Each key with its place, and its value. Boxed, as each map reserves room for eleven entries, and most have one. Lists and maps are
    /// copied on write, as each layer of a configuration repeats most of the layer below it.
    Map(Arc<BTreeMap<String, Box<(YamlNode, YamlNode)>>>),
}

impl Value {
    /// The text, or a whole number as text, as names may consist of digits. `None` for a decimal number, whose original spelling is
    /// unknown.
    pub fn name(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Unsigned(number) => Some(number.to_string()),
            Self::Signed(number) => Some(number.to_string()),
            Self::Null | Self::Bool(_) | Self::Decimal(_) | Self::List(_) | Self::Map(_) => None,
        }
    }
}

impl YamlNode {
    pub fn new(at: ConfigPlace, value: Value) -> Self {
        Self { at, value }
    }

    /// An empty map.
    pub fn empty() -> Self {
        Self::new(ConfigPlace::Unwritten, Value::Map(Arc::default()))
    }

    /// The value at this key of a map, or at this index of a list.
    pub fn below(&self, step: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => entries.get(step).map(|entry| &entry.1),
            Value::List(items) => items.get(step.parse::<usize>().ok()?),
            _ => None,
        }
    }

    /// The node at this path of keys and indices, or the last existing node on the path.
    pub fn along(&self, path: &[&str]) -> &Self {
        path.split_first().and_then(|(step, rest)| Some(self.below(step)?.along(rest))).unwrap_or(self)
    }

    /// The node at exactly this path, unless it is `null`.
    pub fn under(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, step| node.below(step)).filter(|node| !node.is_null())
    }

    /// The items of a list; empty for other values.
    pub fn items(&self) -> &[Self] {
        if let Value::List(items) = &self.value { items } else { &[] }
    }

    /// The keys of a map and their values, sorted by key; empty for other values.
    pub fn named(&self) -> impl Iterator<Item = (&str, &Self)> {
        let entries = if let Value::Map(entries) = &self.value { Some(entries) } else { None };
        entries.into_iter().flat_map(|entries| entries.iter()).map(|(name, entry)| (name.as_str(), &entry.1))
    }

    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// The keys of a map and their values, in the order in which they are written; empty for other values.
    pub fn entries(&self) -> Vec<&(Self, Self)> {
        let Value::Map(entries) = &self.value else { return Vec::new() };
        let mut entries: Vec<&(Self, Self)> = entries.values().map(Box::as_ref).collect();
        entries.sort_by(|(a, _), (b, _)| a.at.cmp(&b.at));
        entries
    }

    /// Calls `act` for each text in this value that begins with `prefix`.
    pub fn each_text(&mut self, prefix: &str, act: &mut impl FnMut(&mut Self)) {
        if !self.has_text(prefix) {
            return;
        }
        match &mut self.value {
            Value::List(items) => Arc::make_mut(items).iter_mut().for_each(|value| value.each_text(prefix, act)),
            Value::Map(entries) => {
                Arc::make_mut(entries).values_mut().for_each(|entry| entry.1.each_text(prefix, act));
            }
            _ => act(self),
        }
    }

    fn has_text(&self, prefix: &str) -> bool {
        match &self.value {
            Value::List(items) => items.iter().any(|item| item.has_text(prefix)),
            Value::Map(entries) => entries.values().any(|entry| entry.1.has_text(prefix)),
            _ => self.text().is_some_and(|text| text.starts_with(prefix)),
        }
    }

    /// Sets the key that the path leads to. `fleet: URL` is short for `fleet: { url: URL }`.
    pub fn set(&mut self, path: &[&str], value: Self) {
        let is_short = path == ["fleet"] && !matches!(value.value, Value::Map(_) | Value::Null);
        self.put(if is_short { &["fleet", "url"] } else { path }, value);
    }

    /// Sets the value at this path of keys; creates missing maps on the path.
    fn put(&mut self, path: &[&str], value: Self) {
        let Some((step, rest)) = path.split_first() else {
            *self = value;
            return;
        };
        let new = |value_here| Self::new(value.at.clone(), value_here);
        if !matches!(self.value, Value::Map(_)) {
            *self = new(Value::Map(Arc::default()));
        }
        let Value::Map(entries) = &mut self.value else { return };
        let entry = Arc::make_mut(entries).entry((*step).to_owned());
        let unset = || Box::new((new(Value::Text((*step).to_owned())), new(Value::Null)));
        entry.or_insert_with(unset).1.put(rest, value);
    }

    /// Lays another map over this one, key by key. Two maps under the same key are laid over each other likewise. For any other key that
    /// has a value here, `both` merges the other value, which may be `null`.
    pub fn lay_over(&mut self, over: Self, both: &mut impl FnMut(&mut (Self, Self), (Self, Self))) {
        if over.at != ConfigPlace::Unwritten {
            self.at = over.at;
        }
        let (Value::Map(entries), Value::Map(others)) = (&mut self.value, over.value) else { return };
        if entries.is_empty() {
            *entries = others;
            return;
        }
        let entries = Arc::make_mut(entries);
        for (name, other) in Arc::unwrap_or_clone(others) {
            step();
            match entries.entry(name) {
                Entry::Vacant(place) => drop(place.insert(other)),
                Entry::Occupied(mut here) => match (&here.get().1.value, &other.1.value) {
                    (Value::Null, Value::Null) => {}
                    (Value::Map(_), Value::Map(_)) => here.get_mut().1.lay_over(other.1, both),
                    (Value::Null, _) => drop(here.insert(other)),
                    _ => both(here.get_mut(), *other),
                },
            }
        }
    }
}
