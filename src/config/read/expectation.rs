//! Messages about unexpected values, in words for people who write configurations.

use serde::de::Unexpected;

/// serde's name of a type, in words for people who write configurations.
pub(super) fn plain(expected: &str) -> String {
    let most = |number: u64| format!("a whole number from 0 to {number}");
    match expected {
        "u16" => most(u64::from(u16::MAX)),
        "u32" => most(u64::from(u32::MAX)),
        "u64" | "usize" => String::from("a whole number"),
        "a nonzero u32" | "a nonzero usize" => String::from("a whole number from 1"),
        "a string" => String::from("text"),
        "a sequence" => String::from("a list"),
        "a boolean" => String::from("`true` or `false`"),
        other if other.starts_with("struct") => String::from("a map of keys"),
        other => other.to_owned(),
    }
}

/// The hint for a value that is not the expected whole number.
pub(super) fn integer_hint(expected: &str, found: Unexpected<'_>) -> String {
    let more = format!("write {} or more", u8::from(expected.starts_with("a nonzero")));
    let less = String::from("write a smaller number");
    match found {
        Unexpected::Unsigned(0) | Unexpected::Signed(_) => more,
        Unexpected::Unsigned(_) => less,
        // A number beyond 64 bits arrives as text.
        Unexpected::Str(text) if text.parse::<f64>().is_ok() && !text.starts_with('+') => {
            if text.starts_with('-') {
                more
            } else {
                less
            }
        }
        _ => String::from("write digits alone, such as `10`"),
    }
}

pub(super) fn show(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => format!("`{value}`"),
        Unexpected::Unsigned(number) => format!("`{number}`"),
        Unexpected::Signed(number) => format!("`{number}`"),
        Unexpected::Float(number) => format!("`{number}`"),
        Unexpected::Str(text) => format!("`{text}`"),
        Unexpected::Unit => String::from("nothing"),
        Unexpected::Seq => String::from("a list"),
        Unexpected::Map => String::from("a map of keys"),
        other => other.to_string(),
    }
}

pub(super) fn listed(words: &[&str], joint: &str) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} {joint} {last}", rest.join(", ")),
        Some((only, _)) => only.clone(),
        None => String::from("none"),
    }
}
