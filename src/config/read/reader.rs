//! The tree into typed values, through serde: all faults, each with its place.
//!
//! Reading continues after a fault: the faulty entry is removed from the tree, and reading starts again to find the next fault. This
//! works because every key is optional, and lists and maps may be shorter.

use std::time::Duration;
use std::{fmt, ptr};

use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::error::{Complaint, did_you_mean};
use super::expected::{integer_hint, is_integer, listed, one_of, plain, show};
use super::faults::Faults;
use super::tree::{Value, YamlNode};
use crate::config::written::text;

/// Reads `root`, and adds what is wrong to `faults`. Also returns the whole configuration: `defaults`, which has every key, with the
/// valid part of `root` laid over it.
pub(in crate::config) fn read<T: DeserializeOwned>(
    mut root: YamlNode,
    defaults: &YamlNode,
    faults: &mut Faults,
) -> (T, YamlNode) {
    loop {
        let mut whole = defaults.clone();
        match root.value {
            Value::Map(_) => whole.lay_over(root, &mut |here, over| *here = over),
            _ => whole = root,
        }
        let error = match T::deserialize(Reader(&whole)) {
            Ok(value) => return (value, whole),
            Err(error) => error,
        };
        let node = error.node.unwrap_or(&whole);
        // The key may be missing only because it was removed for a fault already reported.
        if !error.is_missing || node.removed.is_empty() {
            faults.push(node.at, error.complaint);
        }
        let node = ptr::from_ref(node);
        root = if whole.remove(node) && !faults.is_full() { whole } else { YamlNode::empty() };
    }
}

/// One node as serde sees it.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a YamlNode);

impl<'a> Reader<'a> {
    fn placed<T>(self, read: Result<T, ValueError<'a>>) -> Result<T, ValueError<'a>> {
        read.map_err(|error| ValueError { node: error.node.or(Some(self.0)), ..error })
    }

    fn unexpected(self) -> Unexpected<'a> {
        match &self.0.value {
            Value::Null => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Unsigned(number) => Unexpected::Unsigned(*number),
            Value::Signed(number) => Unexpected::Signed(*number),
            Value::Decimal(number) => Unexpected::Float(*number),
            Value::Text(text) => Unexpected::Str(text),
            Value::List(_) => Unexpected::Seq,
            Value::Map(_) => Unexpected::Map,
        }
    }
}

impl<'de, 'a> Deserializer<'de> for Reader<'a> {
    type Error = ValueError<'a>;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError<'a>> {
        self.placed(match &self.0.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Unsigned(number) => visitor.visit_u64(*number),
            Value::Signed(number) => visitor.visit_i64(*number),
            Value::Decimal(number) => visitor.visit_f64(*number),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(Self))),
            Value::Map(entries) => {
                visitor.visit_map(MapDeserializer::new(entries.values().map(|(key, value)| (Self(key), Self(value)))))
            }
        })
    }

    /// `null` stands for the default, for a key and for a whole section.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError<'a>> {
        // serde's form is two numbers; ours is written with a unit.
        if name == "Duration" {
            let duration: Duration = text::one(self)?;
            let numbers = [duration.as_secs(), duration.subsec_nanos().into()];
            return visitor.visit_seq(SeqDeserializer::new(numbers.into_iter()));
        }
        if !matches!(self.0.value, Value::Null | Value::Map(_)) {
            // serde would take a sequence for the fields in order.
            return self.placed(Err(ValueError::invalid_type(self.unexpected(), &visitor)));
        }
        let is_written = |(key, value): &&(YamlNode, YamlNode)| {
            !(value.is_null() && key.text().is_some_and(|key| fields.contains(&key)))
        };
        let entries = self.0.entries().filter(is_written).map(|(key, value)| (Self(key), Self(value)));
        self.placed(visitor.visit_map(MapDeserializer::new(entries)))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError<'a>> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError<'a>> {
        self.placed(match self.0.text() {
            Some(word) => visitor.visit_enum(StrDeserializer::new(word)),
            None => {
                let expected = Complaint::new("one word", format!("write {}", one_of(variants))).to_string();
                Err(ValueError::invalid_type(self.unexpected(), &expected.as_str()))
            }
        })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map identifier ignored_any
    }
}

impl<'a> IntoDeserializer<'_, ValueError<'a>> for Reader<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[derive(Debug)]
struct ValueError<'a> {
    /// The innermost node being read.
    node: Option<&'a YamlNode>,
    complaint: Complaint,
    /// A map lacks a required key.
    is_missing: bool,
}

impl ValueError<'_> {
    fn new(complaint: Complaint) -> Self {
        Self { node: None, complaint, is_missing: false }
    }
}

impl fmt::Display for ValueError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.complaint.fmt(f)
    }
}

impl std::error::Error for ValueError<'_> {}

impl Error for ValueError<'_> {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(Complaint::from_display(&message))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = Complaint::from_display(&expected);
        let what = format!("expected {}, found {}", plain(&expected.what), show(found));
        let hint = match (expected.what.as_str(), found) {
            ("a string" | "text", Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Bool(_)) => {
                format!("put it in quotes: \"{}\"", show(found).trim_matches('`'))
            }
            _ if !expected.hint.is_empty() => expected.hint,
            ("a sequence", Unexpected::Str(_) | Unexpected::Unsigned(_)) => {
                format!("a list is written in brackets: [{}]", show(found).trim_matches('`'))
            }
            ("a sequence", _) => String::from("a list is written `[one, two]`, or line by line, each begun with `- `"),
            // The only map with keys chosen by the operator.
            ("a map", _) => String::from("write `\"*.example.com\": …` for each, or `{}` for none"),
            (map, _) if map.starts_with("struct") => String::from("write the keys of this section below it, indented"),
            ("a boolean", _) => String::from("write `true` or `false`"),
            (number, _) if is_integer(number) => integer_hint(number, found),
            (_, Unexpected::Map) => String::from("this key takes a single value: remove what is indented below it"),
            _ => String::new(),
        };
        Self::new(Complaint::new(what, hint))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(word: &str, variants: &'static [&'static str]) -> Self {
        let what = format!("`{word}` is not a valid value here");
        let hint = did_you_mean(word, variants).unwrap_or_else(|| format!("write {}", one_of(variants)));
        Self::new(Complaint::new(what, hint))
    }

    fn unknown_field(key: &str, keys: &'static [&'static str]) -> Self {
        let hint = did_you_mean(key, keys).unwrap_or_else(|| format!("the keys here are {}", listed(keys, "and")));
        Self::new(Complaint::new(format!("unknown key `{key}`"), hint))
    }

    fn missing_field(key: &'static str) -> Self {
        let complaint = Complaint::new(format!("the key `{key}` is missing"), format!("add `{key}: …`"));
        Self { is_missing: true, ..Self::new(complaint) }
    }
}
