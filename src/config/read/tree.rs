//! YAML text into a tree in which each value knows its number in the text.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ptr;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};

use super::error::Complaint;
use super::faults::{At, Faults};
use super::places::MOST_VALUES;
use crate::policy::HostPattern;

#[derive(Clone, Debug)]
pub(in crate::config) struct YamlNode {
    pub at: At,
    pub value: Value,
    /// Keys that were removed from this map because of a fault, which was reported; for an item of a list, "".
    pub removed: Vec<String>,
}

#[derive(Clone, Debug)]
pub(in crate::config) enum Value {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Decimal(f64),
    Text(String),
    List(Vec<YamlNode>),
    /// Key, with its place, and value.
    Map(BTreeMap<String, (YamlNode, YamlNode)>),
}

impl YamlNode {
    /// Reads a document; `at` gives the place of each value by its number. A document with comments only is `null`. Rejects tags,
    /// several documents and alias bombs. A duplicate key is a fault; the first one counts.
    /// `key`: the key whose value the document is, if any.
    pub fn read(text: &str, key: &str, at: &dyn Fn(u32) -> At, faults: &mut Faults) -> Result<Self, serde_yaml::Error> {
        let walk = YamlWalk { at, seen: &Cell::new(0), faults: &RefCell::new(faults), is_of_hosts: key == HOSTS };
        walk.deserialize(serde_yaml::Deserializer::from_str(text))
    }

    pub fn new(at: At, value: Value) -> Self {
        Self { at, value, removed: Vec::new() }
    }

    /// An empty map.
    pub fn empty() -> Self {
        Self::new(At::Unwritten, Value::Map(BTreeMap::new()))
    }

    /// The value at this key of a map, or at this index of a list.
    pub fn below(&self, step: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => entries.get(step).map(|(_, value)| value),
            Value::List(items) => items.get(step.parse::<usize>().ok()?),
            _ => None,
        }
    }

    /// The node at this path of keys and indices, or the last one that exists on it.
    pub fn along(&self, path: &[&str]) -> &Self {
        path.split_first().and_then(|(step, rest)| Some(self.below(step)?.along(rest))).unwrap_or(self)
    }

    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// The keys and values of a map; empty for anything else.
    pub fn entries(&self) -> impl Iterator<Item = &(Self, Self)> {
        if let Value::Map(entries) = &self.value { Some(entries.values()) } else { None }.into_iter().flatten()
    }

    /// The values in it.
    fn values_mut(&mut self) -> Box<dyn Iterator<Item = &mut Self> + '_> {
        match &mut self.value {
            Value::List(items) => Box::new(items.iter_mut()),
            Value::Map(entries) => Box::new(entries.values_mut().map(|(_, value)| value)),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// Calls `act` for this value and each in it.
    pub fn each_value(&mut self, act: &mut impl FnMut(&mut Self)) {
        act(self);
        self.values_mut().for_each(|value| value.each_value(act));
    }

    /// Removes the value at this address, or the entry with this key or value. `false`: it is not in this tree.
    pub fn remove(&mut self, node: *const Self) -> bool {
        let is_it = |value: &Self| ptr::eq(value, node);
        let found = match &mut self.value {
            Value::List(items) => {
                items.iter().position(is_it).map(|index| drop(items.remove(index))).map(|()| String::new())
            }
            Value::Map(entries) => {
                let entry = entries.iter().find(|(_, (key, value))| is_it(key) || is_it(value));
                let name = entry.map(|(name, _)| name.clone());
                name.inspect(|name| drop(entries.remove(name)))
            }
            _ => None,
        };
        let is_found = found.is_some();
        self.removed.extend(found);
        is_found || self.values_mut().any(|value| value.remove(node))
    }

    /// Whether nothing was removed from it.
    pub fn is_whole(&self) -> bool {
        let is_list_whole = if let Value::List(items) = &self.value { items.iter().all(Self::is_whole) } else { true };
        self.removed.is_empty() && is_list_whole && self.entries().all(|(_, value)| value.is_whole())
    }

    /// Puts a value at this path of keys, replacing what is there; creates maps on the way.
    pub fn put(&mut self, path: &[&str], value: Self) {
        let Some((step, rest)) = path.split_first() else {
            *self = value;
            return;
        };
        let new = |value_here| Self::new(value.at, value_here);
        if !matches!(self.value, Value::Map(_)) {
            *self = new(Value::Map(BTreeMap::new()));
        }
        let Value::Map(entries) = &mut self.value else { return };
        let entry = entries.entry((*step).to_owned());
        entry.or_insert_with(|| (new(Value::Text((*step).to_owned())), new(Value::Null))).1.put(rest, value);
    }

    /// Lays another map over this one, key by key: `null` changes nothing. If a key has a value in both, `both` decides, unless both
    /// values are maps.
    pub fn lay_over(&mut self, over: Self, both: &mut impl FnMut(&mut (Self, Self), (Self, Self))) {
        self.removed.extend(over.removed);
        if over.at != At::Unwritten {
            self.at = over.at;
        }
        let (Value::Map(entries), Value::Map(others)) = (&mut self.value, over.value) else { return };
        for (name, other) in others {
            match entries.entry(name) {
                Entry::Vacant(place) => drop(place.insert(other)),
                Entry::Occupied(mut here) => match (&here.get().1.value, &other.1.value) {
                    (_, Value::Null) => {}
                    (Value::Map(_), Value::Map(_)) => here.get_mut().1.lay_over(other.1, both),
                    (Value::Null, _) => drop(here.insert(other)),
                    _ => both(here.get_mut(), other),
                },
            }
        }
    }
}

/// State of reading one value.
#[derive(Clone, Copy)]
struct YamlWalk<'a> {
    at: &'a dyn Fn(u32) -> At,
    seen: &'a Cell<u32>,
    faults: &'a RefCell<&'a mut Faults>,
    /// If the value is a map: whether its keys are hosts.
    is_of_hosts: bool,
}

impl YamlWalk<'_> {
    fn below(self, key: &str) -> Self {
        Self { is_of_hosts: key == HOSTS, ..self }
    }

    fn enter<E: Error>(self) -> Result<At, E> {
        let number = self.seen.get();
        self.seen.set(number + 1);
        if number as usize == MOST_VALUES {
            return Err(E::custom(format!("{OURS}the file unfolds to more than a million values")));
        }
        Ok((self.at)(number))
    }

    fn leaf<E: Error>(self, value: Value) -> Result<YamlNode, E> {
        Ok(YamlNode::new(self.enter()?, value))
    }

    /// A key as text. Hosts are normalised here, so that files are merged and faults found by one spelling.
    fn key_text<E: Error>(self, key: &Value) -> Result<String, E> {
        let text = match key {
            Value::Text(text) => text.clone(),
            Value::Bool(value) => value.to_string(),
            Value::Unsigned(number) => number.to_string(),
            Value::Signed(number) => number.to_string(),
            Value::Decimal(number) => number.to_string(),
            Value::Null | Value::List(_) | Value::Map(_) => {
                return Err(E::custom(format!("{OURS}a key is one word or a text")));
            }
        };
        let pattern = HostPattern::parse(&text).ok().filter(|_| self.is_of_hosts);
        Ok(pattern.map_or(text, |pattern| pattern.to_string()))
    }

    fn repeated(self, name: &str, at: At, first: At) {
        let complaint = match self.is_of_hosts {
            true => Complaint::new(format!("the host `{name}` appears twice"), "merge it with the entry in {}"),
            false => Complaint::new(format!("duplicate key `{name}`"), "already set in {}; keep one of them"),
        };
        self.faults.borrow_mut().push_repeated(at, first, complaint);
    }
}

impl<'de> DeserializeSeed<'de> for YamlWalk<'_> {
    type Value = YamlNode;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlNode, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for YamlWalk<'_> {
    type Value = YamlNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value without a tag")
    }

    fn visit_unit<E: Error>(self) -> Result<YamlNode, E> {
        self.leaf(Value::Null)
    }

    /// An empty document.
    fn visit_none<E: Error>(self) -> Result<YamlNode, E> {
        self.leaf(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<YamlNode, E> {
        self.leaf(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<YamlNode, E> {
        self.leaf(Value::Unsigned(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<YamlNode, E> {
        self.leaf(Value::Signed(number))
    }

    /// Larger than any key accepts. Kept as text, to be shown as written.
    fn visit_u128<E: Error>(self, number: u128) -> Result<YamlNode, E> {
        self.leaf(Value::Text(number.to_string()))
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<YamlNode, E> {
        self.leaf(Value::Text(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<YamlNode, E> {
        self.leaf(Value::Decimal(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<YamlNode, E> {
        self.leaf(Value::Text(text.to_owned()))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<YamlNode, A::Error> {
        let (tag, _) = access.variant::<String>()?;
        Err(A::Error::custom(format!("{OURS}a tag such as `!{tag}` is not allowed here")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<YamlNode, A::Error> {
        let at = self.enter()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self.below(""))? {
            items.push(item);
        }
        Ok(YamlNode::new(at, Value::List(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<YamlNode, A::Error> {
        let at = self.enter()?;
        let mut entries = BTreeMap::new();
        while let Some(mut key) = access.next_key_seed(self.below(""))? {
            let name = self.key_text::<A::Error>(&key.value)?;
            let value = access.next_value_seed(self.below(&name))?;
            key.value = Value::Text(name.clone());
            match entries.entry(name) {
                Entry::Vacant(place) => drop(place.insert((key, value))),
                Entry::Occupied(first) => self.repeated(first.key(), key.at, first.get().0.at),
            }
        }
        Ok(YamlNode::new(at, Value::Map(entries)))
    }
}

/// The keys below this one are hosts, wherever it occurs: `hosts`, `intercept.hosts`, and `hosts` of a user.
const HOSTS: &str = "hosts";
/// Marks messages of ours, as serde_yaml prepends the path of keys.
pub(in crate::config) const OURS: char = '\u{1f}';
