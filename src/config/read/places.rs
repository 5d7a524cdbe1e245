//! Where and how the values of a YAML text are written: one scan, which serde_yaml's reading of the text goes along.

use std::collections::HashMap;
use std::iter::repeat_n;

use saphyr_parser::{Event, Parser, ScalarStyle};

/// Line and column, both from 1, the column in characters, of each value in the order in which serde_yaml reads them.
/// All values of an alias are where it is written. Stops early if the text is not YAML.
pub(super) fn places(text: &str) -> Vec<(usize, usize)> {
    scan(text).0
}

/// The values, by their numbers, that look like numbers in other than decimal digits, such as `0x1f` and `+5`: these are names.
pub(super) fn odd_numbers(text: &str) -> HashMap<usize, String> {
    if ODD.iter().any(|odd| text.contains(odd)) { scan(text).1 } else { HashMap::new() }
}

fn scan(text: &str) -> (Vec<(usize, usize)>, HashMap<usize, String>) {
    let mut places: Vec<(usize, usize)> = Vec::new();
    let (mut open, mut odd) = (Vec::new(), HashMap::new());
    // The first value, and how many, by the anchor's number, which is 0 for a value without an anchor.
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
            // serde_yaml has read the text, so there are at most `MOST_VALUES` of them.
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

/// How [`odd_numbers`] begin.
const ODD: [&str; 4] = ["0x", "0o", "0b", "+"];

/// Nested aliases can expand a line to a gigabyte; no real configuration has this many values.
pub(super) const MOST_VALUES: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use crate::config::Settings;

    fn users(yaml: &str) -> Vec<String> {
        let settings = Settings::parse("a.yaml", yaml).unwrap();
        settings.access.users.iter().map(|user| user.name.as_ref().to_owned()).collect()
    }

    #[test]
    fn a_name_that_looks_like_a_number_is_as_it_is_written() {
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
