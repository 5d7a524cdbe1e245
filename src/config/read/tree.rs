//! Parses YAML text into a tree in which each value knows its place.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, btree_map::Entry};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};

use super::error::{ConfigPlace, Faults};
use super::key_kind::KeyKind;
use super::places::{MOST_VALUES, odd_numbers};
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
    List(Vec<YamlNode>),
    /// Each key with its place, and its value. Boxed, as each map reserves room for eleven entries, and most have one.
    Map(BTreeMap<String, Box<(YamlNode, YamlNode)>>),
}

impl Value {
    /// The text, or a whole number as text, as names may be made of digits. `None` for a decimal, which may have been spelt differently.
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
    /// Reads a whole document; if it has only comments, it is `null`. `at`: returns the place of each value by its index. Refuses tags,
    /// several documents and alias bombs. A repeated key in a map is a fault, and its first value counts. `key`: the key whose value the
    /// document is, if any.
    pub fn read(
        text: &str,
        key: &str,
        at: &dyn Fn(usize) -> ConfigPlace,
        faults: &mut Faults,
    ) -> Result<Self, serde_yaml::Error> {
        let (seen, faults, odd) = (&Cell::new(0), &RefCell::new(faults), &odd_numbers(text));
        let walk = YamlWalk { at, seen, faults, odd, keys: KeyKind::at(key) };
        walk.deserialize(serde_yaml::Deserializer::from_str(text))
    }

    pub fn new(at: ConfigPlace, value: Value) -> Self {
        Self { at, value }
    }

    /// An empty map.
    pub fn empty() -> Self {
        Self::new(ConfigPlace::Unwritten, Value::Map(BTreeMap::new()))
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
        entries.into_iter().flatten().map(|(name, entry)| (name.as_str(), &entry.1))
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

    /// Calls `act` for this value and each value in it.
    pub fn each_value(&mut self, act: &mut impl FnMut(&mut Self)) {
        act(self);
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|value| value.each_value(act)),
            Value::Map(entries) => entries.values_mut().for_each(|entry| entry.1.each_value(act)),
            _ => {}
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
            *self = new(Value::Map(BTreeMap::new()));
        }
        let Value::Map(entries) = &mut self.value else { return };
        let entry = entries.entry((*step).to_owned());
        let unset = || Box::new((new(Value::Text((*step).to_owned())), new(Value::Null)));
        entry.or_insert_with(unset).1.put(rest, value);
    }

    /// Lays another map over this one, key by key. If a key has a value here, `both` merges the other value, which may be `null`; two maps
    /// are merged key by key.
    pub fn lay_over(&mut self, over: Self, both: &mut impl FnMut(&mut (Self, Self), (Self, Self))) {
        if over.at != ConfigPlace::Unwritten {
            self.at = over.at;
        }
        let (Value::Map(entries), Value::Map(others)) = (&mut self.value, over.value) else { return };
        for (name, other) in others {
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

/// State of reading one value.
#[derive(Clone, Copy)]
struct YamlWalk<'a> {
    at: &'a dyn Fn(usize) -> ConfigPlace,
    seen: &'a Cell<usize>,
    faults: &'a RefCell<&'a mut Faults>,
    odd: &'a HashMap<usize, String>,
    /// The kind of the keys, if the value is a map.
    keys: KeyKind,
}

impl YamlWalk<'_> {
    fn below(self, key: &str) -> Self {
        Self { keys: KeyKind::at(key), ..self }
    }

    fn enter<E: Error>(self) -> Result<ConfigPlace, E> {
        step();
        let number = self.seen.get();
        self.seen.set(number + 1);
        if number == MOST_VALUES {
            return Err(E::custom(format!("{OURS}the file unfolds to more than a million values")));
        }
        Ok((self.at)(number))
    }

    fn leaf<E: Error>(self, value: Value) -> Result<YamlNode, E> {
        let odd = self.odd.get(&self.seen.get()).cloned();
        Ok(YamlNode::new(self.enter()?, odd.map_or(value, Value::Text)))
    }

    /// Converts a key to text.
    fn key_text<E: Error>(self, key: &Value) -> Result<String, E> {
        let text = if let Value::Bool(value) = key { Some(value.to_string()) } else { key.name() };
        let text = text.ok_or_else(|| {
            E::custom(format!("{OURS}a key is one word or a text (a number such as `1.10` in quotes)"))
        })?;
        Ok(self.keys.one_spelling(text))
    }

    fn repeated(self, name: &str, at: &ConfigPlace, first: &ConfigPlace) {
        let mut complaint = self.keys.repeated(name);
        complaint.hint = complaint.hint.replace("{}", &first.beside());
        self.faults.borrow_mut().push(at, complaint);
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

    /// A number larger than any key accepts. Kept as text, to be shown as written.
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
        let mut entries = BTreeMap::<_, Box<_>>::new();
        while let Some(mut key) = access.next_key_seed(self.below(""))? {
            let name = self.key_text::<A::Error>(&key.value)?;
            let value = access.next_value_seed(self.below(&name))?;
            key.value = Value::Text(name.clone());
            match entries.entry(name) {
                Entry::Vacant(place) => drop(place.insert((key, value).into())),
                Entry::Occupied(first) => self.repeated(first.key(), &key.at, &first.get().0.at),
            }
        }
        Ok(YamlNode::new(at, Value::Map(entries)))
    }
}

/// Marks the beginning of our own messages, as serde_yaml puts the path of keys before them.
pub(in crate::config) const OURS: char = '\u{1f}';
