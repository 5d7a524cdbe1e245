//! Converts the tree to typed values, through serde. A fault has the place of the wrong value.

use std::fmt;
use std::iter::once;
use std::path::Path;
use std::time::Duration;

use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{Deserializer, Error, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::error::{Complaint, ConfigPlace, did_you_mean};
use super::expectation::{integer_hint, listed, plain, show};
use super::tree::{Value, YamlNode};
use crate::config::schema::text;
use crate::config::steps::step;

/// A node, as a deserializer for serde.
#[derive(Clone, Copy)]
pub(in crate::config) struct Reader<'a> {
    pub node: &'a YamlNode,
    /// The directory that relative paths start from.
    pub base: &'a Path,
}

impl<'a> Reader<'a> {
    fn placed<T>(self, read: Result<T, ValueError>) -> Result<T, ValueError> {
        read.map_err(|error| ValueError { place: error.place.or_else(|| Some(self.node.at.clone())), ..error })
    }

    fn entries(self, is_read: impl Fn(&(YamlNode, YamlNode)) -> bool) -> impl Iterator<Item = (Self, Self)> {
        let read = self.node.entries().into_iter().inspect(|_| step()).filter(move |entry| is_read(entry));
        read.map(move |(key, value)| (Self { node: key, ..self }, Self { node: value, ..self }))
    }
}

impl YamlNode {
    pub(super) fn unexpected(&self) -> Unexpected<'_> {
        match &self.value {
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
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.placed(match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Unsigned(number) => visitor.visit_u64(*number),
            Value::Signed(number) => visitor.visit_i64(*number),
            Value::Decimal(number) => visitor.visit_f64(*number),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.iter().map(|node| Self { node, ..self })))
            }
            Value::Map(_) => visitor.visit_map(MapDeserializer::new(self.entries(|_| true))),
        })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        if name == text::PATH
            && let Some(path) = self.node.value.name().filter(|path| !path.is_empty())
        {
            return self.placed(visitor.visit_string(self.base.join(path).display().to_string()));
        }
        match (name, self.node.text()) {
            (text::MANY, Some(_)) => visitor.visit_seq(SeqDeserializer::new(once(self))),
            _ => self.deserialize_any(visitor),
        }
    }

    /// Reads a section. `null` stands for the default of a key or of the whole section.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        // serde reads a duration as two numbers; in the file it is written with its unit.
        if name == "Duration" {
            let duration: Duration = text::one(self)?;
            let numbers = [duration.as_secs(), duration.subsec_nanos().into()];
            return visitor.visit_seq(SeqDeserializer::new(numbers.into_iter()));
        }
        if !matches!(self.node.value, Value::Null | Value::Map(_)) {
            // serde would accept a sequence as the fields in order.
            let mut error = ValueError::invalid_type(self.node.unexpected(), &visitor);
            if Complaint::from_display(&(&visitor as &dyn Expected)).hint.is_empty() {
                error.complaint.hint = format!("write its keys below it, indented: {}", listed(fields, "and"));
            }
            return self.placed(Err(error));
        }
        let entries =
            self.entries(|(key, value)| !(value.is_null() && key.text().is_some_and(|key| fields.contains(&key))));
        self.placed(visitor.visit_map(MapDeserializer::new(entries)))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.placed(match self.node.text() {
            Some(word) => visitor.visit_enum(StrDeserializer::new(word)),
            None => {
                let expected = Complaint::new("one word", format!("write {}", listed(variants, "or"))).to_string();
                Err(ValueError::invalid_type(self.node.unexpected(), &expected.as_str()))
            }
        })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier ignored_any
    }
}

impl<'a> IntoDeserializer<'_, ValueError> for Reader<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[derive(Debug)]
pub(in crate::config) struct ValueError {
    /// The place of the innermost value that was being read.
    pub place: Option<ConfigPlace>,
    pub complaint: Complaint,
}

impl ValueError {
    fn new(complaint: Complaint) -> Self {
        Self { place: None, complaint }
    }

    pub fn unknown_key(key: &str, keys: &[&str]) -> Self {
        let hint = did_you_mean(key, keys).unwrap_or_else(|| format!("the keys here are {}", listed(keys, "and")));
        Self::new(Complaint::new(format!("unknown key `{key}`"), hint))
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.complaint.fmt(f)
    }
}

impl std::error::Error for ValueError {}

impl Error for ValueError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(Complaint::from_display(&message))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = Complaint::from_display(&expected);
        let wanted = plain(&expected.what);
        let what = format!("expected {wanted}, found {}", show(found));
        let hint = match (expected.what.as_str(), found) {
            ("a string" | "text", Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Bool(_)) => {
                format!("put it in quotes: \"{}\"", show(found).trim_matches('`'))
            }
            _ if !expected.hint.is_empty() => expected.hint,
            ("a sequence", Unexpected::Str(_) | Unexpected::Unsigned(_)) => {
                format!("a list is written in brackets: [{}]", show(found).trim_matches('`'))
            }
            ("a sequence", _) => {
                String::from("a list is written `[one, two]`, or line by line, each line beginning with `- `")
            }
            // A map whose keys the operator chooses: hosts, or purposes.
            ("a map", _) => String::from("write `NAME: …` for each entry, or `{}` for none"),
            (map, _) if map.starts_with("struct") => String::from("write the keys of this section below it, indented"),
            ("a boolean", _) => String::from("write `true` or `false`"),
            (_, Unexpected::Map) => String::from("this key takes a single value: remove what is indented below it"),
            (number, _) if wanted.starts_with("a whole number") => integer_hint(number, found),
            _ => String::new(),
        };
        Self::new(Complaint::new(what, hint))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(word: &str, variants: &'static [&'static str]) -> Self {
        let what = format!("`{word}` is not a valid value here");
        let hint = did_you_mean(word, variants).unwrap_or_else(|| format!("write {}", listed(variants, "or")));
        Self::new(Complaint::new(what, hint))
    }

    fn unknown_field(key: &str, keys: &'static [&'static str]) -> Self {
        Self::unknown_key(key, keys)
    }

    fn missing_field(key: &'static str) -> Self {
        Self::new(Complaint::new(format!("the key `{key}` is missing"), format!("add `{key}: …`")))
    }
}
