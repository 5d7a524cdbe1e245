//! Scans a YAML text for the places and spellings of its values, which serde_yaml does not report. Numbers the values in the order in which
//! serde_yaml reads them.

use std::collections::HashMap;
use std::iter::repeat_n;

use saphyr_parser::{Event, Parser, ScalarStyle};

/// Line and column, both from 1, the column in characters, of each value in the order in which serde_yaml reads them.
/// All values of an alias have the place of the alias. Stops early if the text is not YAML.
pub(super) fn places(text: &str) -> Vec<(usize, usize)> {
    scan(text).0
}

/// The values that look like numbers but contain other characters than decimal digits, such as `0x1f` and `+5`, by their index. They are
/// read as text.
pub(super) fn odd_numbers(text: &str) -> HashMap<usize, String> {
    if ODD.iter().any(|odd| text.contains(odd)) { scan(text).1 } else { HashMap::new() }
}

fn scan(text: &str) -> (Vec<(usize, usize)>, HashMap<usize, String>) {
    let mut places: Vec<(usize, usize)> = Vec::new();
    let (mut open, mut odd) = (Vec::new(), HashMap::new());
    // Index of the first value and number of values, by the anchor's number, which is 0 for values without an anchor.
    let mut anchors: HashMap<usize, (usize, usize)> = HashMap::new();
    for (event, span) in Parser::new_from_str(text).map_while(Result::ok) {
        let start = places.len();
        match event {
            Event::Scalar(written, style, anchor, _) => {
                places.push((span.start.line(), span.start.col() + 1));
                anchors.insert(anchor, (start, 1));
                if style == ScalarStyle::Plain && ODD.iter().any(|odd| written.trim_start_matches('-').starts_with(odd))
                {
                    odd.insert(start, written.into_owned());
                }
            }
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                places.push((span.start.line(), span.start.col() + 1));
                open.push((anchor, start));
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some((anchor, first)) = open.pop() else { break };
                anchors.insert(anchor, (first, start - first));
            }
            // `YamlNode::read` refuses a text with more than `MOST_VALUES` values, so no more places are needed.
            Event::Alias(anchor) => match anchors.get(&anchor) {
                Some(&(first, count)) if start + count <= MOST_VALUES => {
                    places.extend(repeat_n((span.start.line(), span.start.col() + 1), count));
                    let again = |at: usize| Some((start + at, odd.get(&(first + at))?.clone()));
                    let again: Vec<_> = (0..count).filter_map(again).collect();
                    odd.extend(again);
                }
                Some(_) | None => break,
            },
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {}
        }
    }
    (places, odd)
}

/// Beginnings of the values that [`odd_numbers`] returns.
const ODD: [&str; 4] = ["0x", "0o", "0b", "+"];

/// Maximum number of values, far more than a real configuration has. Nested aliases can expand one line to a gigabyte.
pub(super) const MOST_VALUES: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use crate::config::Settings;

    fn users(yaml: &str) -> Vec<String> {
        let settings = Settings::parse("a.yaml", yaml).unwrap();
        settings.access.users.iter().map(|user| user.name.as_ref().to_owned()).collect()
    }

    #[test]
    fn name_that_looks_like_a_number_is_kept_as_written() {
        for name in ["0x1f", "0o17", "0b11", "+5", "-0x1f", "+0x1f", "31", "-7", "007"] {
            let yaml = format!("access: {{ users: [{{ name: {name}, certificate: x }}] }}");
            assert_eq!(users(&yaml), [name]);
        }
        let alias = "identity: { contact: &a 0x1f }\naccess: { users: [{ name: *a, certificate: x }] }";
        assert_eq!(users(alias), ["0x1f"]);
    }

    #[test]
    fn numbers_are_decimal_digits() {
        for number in ["0x10", "0o17", "0b11", "+5"] {
            let errors =
                Settings::parse("a.yaml", &format!("limits: {{ max_connections: {number} }}")).unwrap_err().to_string();
            assert!(errors.contains(number) && errors.contains("write digits alone"), "{errors}");
        }
    }
}
