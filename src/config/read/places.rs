//! Where the values of a YAML text are written: one scan, which serde_yaml's reading of the text goes along.

use std::collections::HashMap;
use std::iter::repeat_n;

use saphyr_parser::{Event, Parser};

/// Line and column, both from 1, the column in characters, of each value in the order in which serde_yaml reads them.
/// All values of an alias are where it is written. Stops early if the text is not YAML.
pub(super) fn places(text: &str) -> Vec<(usize, usize)> {
    let mut places: Vec<(usize, usize)> = Vec::new();
    let mut open = Vec::new();
    // How many values, by the anchor's number, which is 0 for a value without an anchor.
    let mut anchors: HashMap<usize, usize> = HashMap::new();
    for (event, span) in Parser::new_from_str(text).map_while(Result::ok) {
        let start = places.len();
        match event {
            Event::Scalar(_, _, anchor, _) => {
                places.push((span.start.line(), span.start.col() + 1));
                anchors.insert(anchor, 1);
            }
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                places.push((span.start.line(), span.start.col() + 1));
                open.push((anchor, start));
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some((anchor, first)) = open.pop() else { break };
                anchors.insert(anchor, start - first);
            }
            // serde_yaml has read the text, so there are at most `MOST_VALUES` of them.
            Event::Alias(anchor) => match anchors.get(&anchor) {
                Some(count) if start + count <= MOST_VALUES => {
                    places.extend(repeat_n((span.start.line(), span.start.col() + 1), *count));
                }
                Some(_) | None => break,
            },
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {}
        }
    }
    places
}

/// Nested aliases can expand a line to a gigabyte; no real configuration has this many values.
pub(super) const MOST_VALUES: usize = 1_000_000;
