//! Parses YAML text into a tree.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, btree_map::Entry};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};

use super::error::{ConfigPlace, Faults};
use super::key_kind::KeyKind;
use super::places::{MOST_VALUES, odd_numbers};
use super::tree::{Value, YamlNode};
use crate::config::steps::step;

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
            E::custom(format!("{OURS}a key must be a word or a text; write a number such as `1.10` in quotes"))
        })?;
        Ok(self.keys.one_spelling(text))
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
        Ok(YamlNode::new(at, Value::List(items.into())))
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
                Entry::Occupied(first) => {
                    let complaint = self.keys.repeated(first.key(), &first.get().0.at.beside());
                    self.faults.borrow_mut().push(&key.at, complaint);
                }
            }
        }
        Ok(YamlNode::new(at, Value::Map(entries.into())))
    }
}

/// Marks the beginning of our own messages, as serde_yaml puts the path of keys before them.
pub(in crate::config) const OURS: char = '\u{1f}';
