//! YAML text to a tree in which each value knows its number in the text.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};

use super::error::Complaint;
use super::faults::{At, Faults};
use super::places::MOST_VALUES;
use crate::policy::HostPattern;

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

impl YamlNode {
    /// Reads a whole document, in which `at` gives the place of each value by its number; nothing but comments is `null`.
    /// Refuses tags, several documents and bombs. A key that stands twice in a map is a fault, and the first one counts.
    /// `key`: the key that the document is the value of, if any.
    pub fn read(text: &str, key: &str, at: &dyn Fn(u32) -> At, faults: &mut Faults) -> Result<Self, serde_yaml::Error> {
        let walk = YamlWalk { at, seen: &Cell::new(0), faults: &RefCell::new(faults), is_of_hosts: key == HOSTS };
        walk.deserialize(serde_yaml::Deserializer::from_str(text))
    }

    /// An empty map.
    pub fn empty() -> Self {
        Self { at: At::Unwritten, value: Value::Map(Vec::new()) }
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

    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    pub fn is_empty_map(&self) -> bool {
        matches!(&self.value, Value::Map(entries) if entries.is_empty())
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
            *self = Self { at: value.at, ..Self::empty() };
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

    /// Lays another over this one, key by key: `null` changes nothing, and `both` decides about two values that are not two
    /// maps. It gets the path of keys to them.
    pub fn lay_over(&mut self, over: Self, both: &mut impl FnMut(&[String], &mut (Self, Self), (Self, Self))) {
        self.lay_over_at(over, both, &mut Vec::new());
    }

    fn lay_over_at(
        &mut self,
        over: Self,
        both: &mut impl FnMut(&[String], &mut (Self, Self), (Self, Self)),
        path: &mut Vec<String>,
    ) {
        let (Value::Map(entries), Value::Map(others)) = (&mut self.value, over.value) else { return };
        let known = entries.iter().map(|(key, _)| key.text().unwrap_or_default().to_owned()).zip(0..);
        let known: HashMap<String, usize> = known.collect();
        for (key, value) in others {
            let Some((name, index)) = key.text().and_then(|name| known.get_key_value(name)) else {
                entries.push((key, value));
                continue;
            };
            let here = &mut entries[*index];
            path.push(name.clone());
            match (&here.1.value, &value.value) {
                (_, Value::Null) => {}
                (Value::Map(_), Value::Map(_)) => here.1.lay_over_at(value, both, path),
                (Value::Null, _) => *here = (key, value),
                _ => both(path, here, (key, value)),
            }
            path.pop();
        }
    }
}

/// One value's reading.
#[derive(Clone, Copy)]
struct YamlWalk<'a> {
    at: &'a dyn Fn(u32) -> At,
    seen: &'a Cell<u32>,
    faults: &'a RefCell<&'a mut Faults>,
    /// If the value is a map, its keys are hosts.
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
        Ok(YamlNode { at: self.enter()?, value })
    }

    /// A host has one spelling from here on, by which files are joined and faults are found.
    fn canonical(self, key: &mut YamlNode) {
        let pattern = key.text().filter(|_| self.is_of_hosts).and_then(|text| HostPattern::parse(text).ok());
        if let Some(pattern) = pattern {
            key.value = Value::Text(pattern.to_string());
        }
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
        let (tag, _) = access.variant::<String>()?;
        Err(A::Error::custom(format!("{OURS}a tag such as `!{tag}` is not allowed here")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<YamlNode, A::Error> {
        let at = self.enter()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self.below(""))? {
            items.push(item);
        }
        Ok(YamlNode { at, value: Value::List(items) })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<YamlNode, A::Error> {
        let at = self.enter()?;
        let mut entries: Vec<(YamlNode, YamlNode)> = Vec::new();
        let mut known = HashMap::new();
        while let Some(mut key) = access.next_key_seed(self.below(""))? {
            self.canonical(&mut key);
            let name = key.text().unwrap_or_default().to_owned();
            let value = access.next_value_seed(self.below(&name))?;
            match known.get(&name) {
                Some(first) if key.text().is_some() => self.repeated(&name, key.at, *first),
                Some(_) | None => {
                    known.insert(name, key.at);
                    entries.push((key, value));
                }
            }
        }
        Ok(YamlNode { at, value: Value::Map(entries) })
    }
}

/// The keys below it are hosts, wherever it stands: `hosts`, `intercept.hosts`, and `hosts` of a user.
const HOSTS: &str = "hosts";
/// Begins a message of ours: serde_yaml puts the path of keys before it.
pub(in crate::config) const OURS: char = '\u{1f}';
