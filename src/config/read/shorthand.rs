//! Sections that may be written as one value.

use super::tree::{Value, YamlNode};

impl YamlNode {
    /// `fleet: URL` in a whole file is short for `fleet: { url: URL }`.
    pub fn spell_out(&mut self) {
        let Value::Map(entries) = &mut self.value else { return };
        for (section, key) in SHORTHANDS {
            if let Some((_, value)) = entries.get_mut(section).filter(|(_, value)| value.is_short()) {
                let written = std::mem::replace(value, Self::new(value.at, Value::Null));
                value.put(&[key], written);
            }
        }
    }

    /// Whether the value can be the short form of a section.
    fn is_short(&self) -> bool {
        !matches!(self.value, Value::Map(_) | Value::Null)
    }

    /// The path for a variable's value: a short form goes to the key that it stands for.
    pub fn spelt_out<'a>(&self, mut path: Vec<&'a str>) -> Vec<&'a str> {
        if self.is_short() {
            path.extend(SHORTHANDS.iter().find(|(section, _)| path == [*section]).map(|(_, key)| *key));
        }
        path
    }
}

/// Sections with a short form, and the key that it stands for.
const SHORTHANDS: [(&str, &str); 1] = [("fleet", "url")];
