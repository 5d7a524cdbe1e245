//! Helps to compare two configurations: keys as people write them, and values in one unit.

use serde_json::Value;
use std::time::Duration;

use super::units::{parse_duration, parse_size, show_duration};

/// The path of a key as people write it: `pace.max_wait`, `hosts["a.example"]`. `path`: the path of the section, empty at the top.
pub(super) fn key_path(path: &str, key: &str) -> String {
    match (path, key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')) {
        ("", _) => key.to_owned(),
        (path, true) => format!("{path}.{key}"),
        (path, false) => format!("{path}[{key:?}]"),
    }
}

/// Normalizes units, so that the same value in another unit is not a change.
pub(super) fn plain(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(entries) => entries.iter().map(|(key, value)| (key.clone(), plain(value))).collect(),
        Value::String(text) => match (parse_duration(text), parse_size(text)) {
            (Ok(Duration::ZERO), _) => 0.into(),
            (Ok(duration), _) => show_duration(duration).into(),
            (Err(_), Ok(size)) => size.into(),
            (Err(_), Err(_)) => value.clone(),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
