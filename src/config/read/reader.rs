//! The tree to typed values, through serde: all faults, each with its place.
//!
//! A fault does not end the reading: what holds it is left out and reading begins again, so that the next one comes to
//! light. That works because every key may be left out, and lists and maps may be shorter.

use std::collections::HashSet;
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

/// Reads the tree, or as much of it as is right, and puts what is wrong into `faults`. The nodes that it left out for that
/// come with it. What is not there, or was left out, is as in `defaults`, which has every key.
pub(in crate::config) fn read<T: DeserializeOwned>(
    root: &YamlNode,
    defaults: &YamlNode,
    faults: &mut Faults,
) -> (T, HashSet<*const YamlNode>) {
    let mut dropped = HashSet::new();
    while !faults.is_full() {
        let error = match T::deserialize(Reader { node: root, default: Some(defaults), dropped: &dropped }) {
            Ok(value) => return (value, dropped),
            Err(error) => error,
        };
        let node = error.node.unwrap_or(root);
        // What is missing only because it was wrong has been reported already.
        if !error.missing.is_some_and(|key| was_dropped(key, node, &dropped)) {
            faults.push(node.at, error.complaint);
        }
        if ptr::eq(node, root) || !dropped.insert(ptr::from_ref(node)) {
            break;
        }
    }
    dropped.insert(ptr::from_ref(root));
    let defaults = Reader { node: defaults, default: None, dropped: &HashSet::new() };
    (T::deserialize(defaults).expect("the defaults are right, as a test holds"), dropped)
}

/// Whether this key, or one that may have been meant to be this one, stands in the map but is at fault.
fn was_dropped(key: &str, map: &YamlNode, dropped: &HashSet<*const YamlNode>) -> bool {
    let Value::Map(entries) = &map.value else { return false };
    entries.iter().any(|(name, value)| {
        let unknown = dropped.contains(&ptr::from_ref(name));
        unknown || name.text() == Some(key) && dropped.contains(&ptr::from_ref(value))
    })
}

/// One node as serde sees it.
#[derive(Clone, Copy)]
struct Reader<'a> {
    node: &'a YamlNode,
    /// What holds in its place, and in place of what it lacks.
    default: Option<&'a YamlNode>,
    /// The nodes at fault, by identity.
    dropped: &'a HashSet<*const YamlNode>,
}

impl<'a> Reader<'a> {
    fn at(self, node: &'a YamlNode) -> Self {
        Self { node, default: None, ..self }
    }

    fn keeps(self, node: &'a YamlNode) -> bool {
        !self.dropped.contains(&ptr::from_ref(node))
    }

    /// The entries that are not at fault.
    fn kept(self) -> impl Iterator<Item = &'a (YamlNode, YamlNode)> {
        self.node.entries().iter().filter(move |(key, value)| self.keeps(key) && self.keeps(value))
    }

    fn placed<T>(self, read: Result<T, ValueError<'a>>) -> Result<T, ValueError<'a>> {
        read.map_err(|error| ValueError { node: error.node.or(Some(self.node)), ..error })
    }

    fn unexpected(self) -> Unexpected<'a> {
        match &self.node.value {
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
        self.placed(match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Unsigned(number) => visitor.visit_u64(*number),
            Value::Signed(number) => visitor.visit_i64(*number),
            Value::Decimal(number) => visitor.visit_f64(*number),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(items) => {
                let kept = items.iter().filter(|item| self.keeps(item));
                visitor.visit_seq(SeqDeserializer::new(kept.map(|item| self.at(item))))
            }
            Value::Map(_) => {
                visitor.visit_map(MapDeserializer::new(self.kept().map(|(key, value)| (self.at(key), self.at(value)))))
            }
        })
    }

    /// `null` means "the default": a known key without a value is as good as not written, and so is a whole section.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError<'a>> {
        // To serde it is two numbers; here it is written with its unit.
        if name == "Duration" {
            let duration: Duration = text::one(self)?;
            let numbers = [duration.as_secs(), duration.subsec_nanos().into()];
            return visitor.visit_seq(SeqDeserializer::new(numbers.into_iter()));
        }
        if !matches!(self.node.value, Value::Null | Value::Map(_)) {
            // A sequence would be taken for the fields in their order.
            return self.placed(Err(ValueError::invalid_type(self.unexpected(), &visitor)));
        }
        let is_known = |key: &YamlNode| key.text().is_some_and(|key| fields.contains(&key));
        let is_empty = |value: &YamlNode| matches!(value.value, Value::Null);
        let written: Vec<_> = self.kept().filter(|(key, value)| !(is_known(key) && is_empty(value))).collect();
        let own = written.iter().map(|(key, value)| {
            let default = self.default.and_then(|default| default.below(key.text()?));
            (self.at(key), Self { default, ..self.at(value) })
        });
        let is_left = |(name, value): &&(YamlNode, YamlNode)| {
            !is_empty(value) && !written.iter().any(|(key, _)| key.text() == name.text())
        };
        let others = self.default.map_or(&[][..], YamlNode::entries).iter().filter(is_left);
        let others = others.map(|(key, value)| (self.at(key), self.at(value)));
        self.placed(visitor.visit_map(MapDeserializer::new(own.chain(others))))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError<'a>> {
        if matches!(self.node.value, Value::Null) { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError<'a>> {
        self.placed(match self.node.text() {
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
    /// The innermost one that was being read.
    node: Option<&'a YamlNode>,
    complaint: Complaint,
    /// The key that a map lacks, if that is the fault.
    missing: Option<&'static str>,
}

impl ValueError<'_> {
    fn new(complaint: Complaint) -> Self {
        Self { node: None, complaint, missing: None }
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
            // The only map whose keys are the operator's to name.
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
        Self { missing: Some(key), ..Self::new(complaint) }
    }
}
