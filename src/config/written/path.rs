//! Paths, for `#[serde(deserialize_with)]`. An empty one names nothing: from the file's directory on, it would be that directory.

use super::values::from_text;
use crate::config::read::error::Complaint;
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use std::fmt;
use std::path::PathBuf;

/// One.
pub(in crate::config) fn one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    from_text(deserializer, "a path", "put it in quotes", parse)
}

/// An optional one; `null` never gets here.
pub(in crate::config) fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    one(deserializer).map(Some)
}

/// One, or a list of them.
pub(in crate::config) fn many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    struct Paths;

    impl<'de> Visitor<'de> for Paths {
        type Value = Vec<PathBuf>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}", Complaint::new("a path", "write `conf.d` or `[users.yaml, conf.d]`"))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Vec<PathBuf>, E> {
            Ok(vec![parse(text).map_err(E::custom)?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<PathBuf>, A::Error> {
            let mut paths = Vec::new();
            while let Some(Element(path)) = list.next_element()? {
                paths.push(path);
            }
            Ok(paths)
        }
    }

    deserializer.deserialize_any(Paths)
}

struct Element(PathBuf);

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        one(deserializer).map(Self)
    }
}

fn parse(text: &str) -> Result<PathBuf, Complaint> {
    match text {
        "" => Err(Complaint::new("an empty path names nothing", "write a path, or leave the key out")),
        path => Ok(path.into()),
    }
}
