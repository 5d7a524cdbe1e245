//! Deserializes values that are written as one text. If a value has another type, the message tells how to write it.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use crate::config::read::error::Complaint;

/// A value written as text or as a number.
pub(in crate::config) trait FromText: Sized {
    /// The expected kind of value, and (`FORMS`) how to write it.
    const EXPECTED: &'static str;
    const FORMS: &'static str;

    /// Whether the value is a path. A relative path starts at the directory of the configuration file.
    const IS_PATH: bool = false;

    fn from_text(text: &str) -> Result<Self, Complaint>;
}

/// Deserializes a value by its [`FromText`]. For `#[serde(deserialize_with)]` on types for which serde expects another form.
pub(in crate::config) fn one<'de, D: Deserializer<'de>, T: FromText>(deserializer: D) -> Result<T, D::Error> {
    Text(PhantomData).deserialize(deserializer)
}

/// Like [`one`], for an optional value. Never called for `null`.
pub(in crate::config) fn some<'de, D: Deserializer<'de>, T: FromText>(deserializer: D) -> Result<Option<T>, D::Error> {
    one(deserializer).map(Some)
}

/// Reads one value or a list of values, for `#[serde(deserialize_with)]`.
pub(in crate::config) fn many<'de, D: Deserializer<'de>, T: FromText>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct Many<T>(PhantomData<T>);

    impl<'de, T: FromText> Visitor<'de> for Many<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}", Complaint::new(T::EXPECTED, T::FORMS))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            std::iter::from_fn(|| list.next_element_seed(Text(PhantomData)).transpose()).collect()
        }
    }

    deserializer.deserialize_newtype_struct(MANY, Many(PhantomData))
}

/// Reads a text, or a number as text.
struct Text<T>(PhantomData<T>);

impl<'de, T: FromText> DeserializeSeed<'de> for Text<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        if T::IS_PATH {
            deserializer.deserialize_newtype_struct(PATH, self)
        } else {
            deserializer.deserialize_any(self)
        }
    }
}

impl<T: FromText> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Complaint::new(T::EXPECTED, T::FORMS))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    /// Refuses a decimal in place of a text. YAML has read it as a number, so `1.10` would become `1.1`.
    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        if T::FORMS == QUOTES {
            return Err(E::custom(Complaint::new(format!("this is read as the number {number}"), QUOTES)));
        }
        self.visit_str(&number.to_string())
    }
}

/// Implements [`FromText`]. Arguments: the type, the expected kind of value, how to write the value, and its parser.
macro_rules! from_text {
    ($($type:ty, $expected:literal, $forms:expr, $parse:expr;)+) => {$(
        impl $crate::config::schema::text::FromText for $type {
            const EXPECTED: &'static str = $expected;
            const FORMS: &'static str = $forms;

            fn from_text(text: &str) -> Result<Self, $crate::config::read::error::Complaint> {
                $parse(text)
            }
        }
    )+};
}

/// Like `from_text`, and implements `Deserialize`.
macro_rules! read_from_text {
    ($($type:ty, $expected:literal, $forms:expr, $parse:expr;)+) => {
        $crate::config::schema::text::from_text! { $($type, $expected, $forms, $parse;)+ }

        $(
            impl<'de> serde::Deserialize<'de> for $type {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    $crate::config::schema::text::one(deserializer)
                }
            }
        )+
    };
}

/// Declares types for texts that a parser has checked, and implements `Deserialize` like `read_from_text`. The parser returns the text to
/// store.
macro_rules! checked_texts {
    ($($(#[$doc:meta])+ $name:ident, $expected:literal, $forms:expr, $parse:expr;)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// # Errors
            /// The text is not valid.
            pub fn parse(text: &str) -> Result<Self, $crate::config::read::error::Complaint> {
                $parse(text).map(|text| Self(text.into()))
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        $crate::config::schema::text::read_from_text! { $name, $expected, $forms, $name::parse; }
    )+};
}

pub(in crate::config) use {checked_texts, from_text, read_from_text};

pub(in crate::config) const QUOTES: &str = "put it in quotes";

/// Newtype names that tell `Reader` what to expect. `PATH`: a path; `MANY`: one value, or a list of values.
pub(in crate::config) const PATH: &str = "a path";
pub(in crate::config) const MANY: &str = "one or a list";
