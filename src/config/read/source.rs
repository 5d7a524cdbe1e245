//! YAML text to a tree in which each value knows its place.
//!
//! serde_yaml gives no places of values, but it gives each error the place of the value that was being read. So the text
//! is read once into numbered nodes, and when a fault is to be shown, once more up to the node of that number, where
//! reading is broken off on purpose: the exact place without a second parser that might read the text otherwise.

use std::cell::{Cell, RefCell};
use std::collections::hash_map::{Entry, HashMap};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};

/// Where a value was written. The numbers count the files, the values of each, and the environment's variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::config) enum At {
    Node {
        file: u32,
        number: u32,
    },
    Variable(u32),
    /// Nowhere: the value is a default.
    Unwritten,
}

#[derive(Clone, Debug)]
pub(in crate::config) struct YamlNode {
    pub at: At,
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
    Map(Vec<(YamlNode, YamlNode)>),
}

/// A key that stands twice in one map; the first one counts.
#[derive(Debug)]
pub(in crate::config) struct Duplicate {
    pub key: String,
    pub at: At,
    pub first: At,
}

impl YamlNode {
    /// Reads a whole document; nothing but comments is `null`. Refuses tags, several documents and bombs.
    pub fn read(text: &str) -> Result<(Self, Vec<Duplicate>), serde_yaml::Error> {
        Self::read_file(text, 0)
    }

    /// The same of the file of this number.
    pub fn read_file(text: &str, file: u32) -> Result<(Self, Vec<Duplicate>), serde_yaml::Error> {
        let walk = YamlWalk { file, seen: &Cell::new(0), stop_at: None, duplicates: &RefCell::default() };
        let node = walk.deserialize(serde_yaml::Deserializer::from_str(text))?;
        Ok((node, walk.duplicates.take()))
    }

    /// Line and column, from 1, of a node of this text.
    pub fn locate(text: &str, number: u32) -> Option<(usize, usize)> {
        let walk = YamlWalk { file: 0, seen: &Cell::new(0), stop_at: Some(number), duplicates: &RefCell::default() };
        let stopped = walk.deserialize(serde_yaml::Deserializer::from_str(text)).err()?;
        stopped.location().map(|location| (location.line(), location.column()))
    }

    /// What stands at this key of a map, or at this place of a list.
    pub fn below(&self, step: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(key, _)| key.text() == Some(step)).map(|(_, value)| value),
            Value::List(items) => items.get(step.parse::<usize>().ok()?),
            _ => None,
        }
    }

    /// The node at the end of this path of keys and list indices, or the last one before the path breaks off.
    pub fn along(&self, path: &[&str]) -> &Self {
        path.split_first().and_then(|(step, rest)| Some(self.below(step)?.along(rest))).unwrap_or(self)
    }

    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    /// The keys of a map and their values; of anything else none.
    pub fn entries(&self) -> &[(Self, Self)] {
        if let Value::Map(entries) = &self.value { entries } else { &[] }
    }

    /// Calls `act` for this value and each in it, keys included.
    pub fn each_value(&mut self, act: &mut impl FnMut(&mut Self)) {
        act(self);
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.each_value(act)),
            Value::Map(entries) => entries.iter_mut().for_each(|(key, value)| {
                key.each_value(act);
                value.each_value(act);
            }),
            _ => {}
        }
    }

    /// Puts a value where the path of keys says, over what is there; makes the maps on the way.
    pub fn put(&mut self, path: &[&str], value: Self) {
        let Some((step, rest)) = path.split_first() else {
            *self = value;
            return;
        };
        if !matches!(self.value, Value::Map(_)) {
            *self = Self { at: value.at, value: Value::Map(Vec::new()) };
        }
        let Value::Map(entries) = &mut self.value else { return };
        let known = entries.iter().position(|(key, _)| key.text() == Some(step));
        let index = known.unwrap_or_else(|| {
            let key = Self { at: value.at, value: Value::Text((*step).to_owned()) };
            entries.push((key, Self { at: value.at, value: Value::Null }));
            entries.len() - 1
        });
        entries[index].1.put(rest, value);
    }

    /// Another over it, key by key; of lists only that of users, who have names, is added to. `null` is as good as not written.
    pub fn lay_over(&mut self, over: Self) {
        self.lay_over_at(over, &mut Vec::new());
    }

    fn lay_over_at(&mut self, over: Self, path: &mut Vec<String>) {
        match (&mut self.value, over.value) {
            (_, Value::Null) => {}
            (Value::Map(entries), Value::Map(others)) => {
                let known = entries.iter().map(|(key, _)| key.text().unwrap_or_default().to_owned()).zip(0..);
                let known: HashMap<String, usize> = known.collect();
                for (key, value) in others {
                    match key.text().and_then(|name| known.get_key_value(name)) {
                        None => entries.push((key, value)),
                        Some((name, index)) => {
                            path.push(name.clone());
                            entries[*index].1.lay_over_at(value, path);
                            path.pop();
                        }
                    }
                }
            }
            (Value::List(items), Value::List(others)) if *path == ["access", "users"] => items.extend(others),
            (value, other) => (self.at, *value) = (over.at, other),
        }
    }
}

/// One value's reading: counts it, and breaks off if it is the one sought.
#[derive(Clone, Copy)]
struct YamlWalk<'a> {
    file: u32,
    seen: &'a Cell<u32>,
    stop_at: Option<u32>,
    duplicates: &'a RefCell<Vec<Duplicate>>,
}

impl YamlWalk<'_> {
    fn enter<E: Error>(self) -> Result<At, E> {
        let number = self.seen.get();
        self.seen.set(number + 1);
        if number == MOST_NODES {
            return Err(E::custom(format!("{OURS}{TOO_MANY}")));
        }
        if Some(number) == self.stop_at { Err(E::custom("here")) } else { Ok(At::Node { file: self.file, number }) }
    }

    fn leaf<E: Error>(self, value: Value) -> Result<YamlNode, E> {
        Ok(YamlNode { at: self.enter()?, value })
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

    /// More than any key takes. As text it is shown as it was written.
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
        self.enter()?;
        let (tag, _) = access.variant::<String>()?;
        Err(A::Error::custom(format!("{OURS}a tag such as `!{tag}` is not allowed here")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<YamlNode, A::Error> {
        let at = self.enter()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self)? {
            items.push(item);
        }
        Ok(YamlNode { at, value: Value::List(items) })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<YamlNode, A::Error> {
        let at = self.enter()?;
        let mut entries: Vec<(YamlNode, YamlNode)> = Vec::new();
        let mut known = HashMap::new();
        while let Some(key) = access.next_key_seed(self)? {
            let value = access.next_value_seed(self)?;
            match key.text().map(|name| known.entry(name.to_owned())) {
                Some(Entry::Occupied(first)) => {
                    let (key, first, at) = (first.key().clone(), *first.get(), key.at);
                    self.duplicates.borrow_mut().push(Duplicate { key, at, first });
                    continue;
                }
                Some(Entry::Vacant(place)) => {
                    place.insert(key.at);
                }
                None => {}
            }
            entries.push((key, value));
        }
        Ok(YamlNode { at, value: Value::Map(entries) })
    }
}

/// Aliases of aliases make a gigabyte of a line; no configuration comes near this many values.
const MOST_NODES: u32 = 1_000_000;
/// Begins a message of ours: serde_yaml puts the path of keys before it.
pub(in crate::config) const OURS: char = '\u{1f}';
const TOO_MANY: &str = "the file unfolds to more than a million values";
