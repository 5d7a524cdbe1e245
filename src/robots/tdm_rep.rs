//! `/.well-known/tdmrep.json`: the pages of a site that are reserved from text and data mining (W3C TDMRep, the community group's final
//! report of 10 May 2024, "TDM File on the Origin Server"). Pure.

use std::cmp::Reverse;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::budget::{StepBudget, StepsSpent};
use super::path::ComparedPath;
use super::path_forms::{JudgedPath, Paths};
use super::patterns::{Patterns, PatternsBuilder};

/// A parsed tdmrep.json.
#[derive(Debug)]
pub struct TdmRep {
    source: Box<[u8]>,
    entries: Vec<TdmEntry>,
    /// The first location that matches decides.
    locations: Patterns<Reverse<usize>>,
    fault: Option<Box<str>>,
    digest: OnceLock<[u8; 32]>,
}

#[derive(Debug)]
struct TdmEntry {
    /// Position in the file, from 1.
    number: u32,
    location: Box<str>,
    /// Whether the pages are reserved. `None`: the value is malformed, so this is unknown.
    is_reserved: Option<bool>,
    policy: Option<Box<str>>,
}

/// An entry that reserves a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TdmReservation<'a> {
    /// Position in the file, from 1.
    pub entry: u32,
    /// The pattern as written.
    pub location: &'a str,
    /// URL of the terms under which the page may be mined after all.
    pub policy: Option<&'a str>,
}

impl TdmEntry {
    fn reservation(&self) -> Option<TdmReservation<'_>> {
        let Self { number, location, is_reserved, policy } = self;
        is_reserved.filter(|is| *is).map(|_| TdmReservation { entry: *number, location, policy: policy.as_deref() })
    }
}

impl TdmRep {
    /// Parses a file. Never fails: a malformed entry reserves nothing, and [`fault`](Self::fault) returns the first fault.
    pub fn parse(bytes: &[u8]) -> Self {
        let (entries, fault) = entries(bytes);
        let mut locations = PatternsBuilder::new(Arc::from([]), entries.len());
        for (place, entry) in entries.iter().enumerate() {
            locations.add(entry.location.as_bytes(), |_| Reverse(place));
        }
        let locations = locations.finish();
        Self { source: bytes.into(), entries, locations, fault, digest: OnceLock::new() }
    }

    /// The entry that reserves a page: the first whose location matches decides. `target` is a path with query. A path with dot segments is
    /// judged with and without them; the page is reserved if either path is reserved.
    pub fn reservation(&self, target: &[u8]) -> Option<TdmReservation<'_>> {
        let mut path = JudgedPath::new(target, Paths::AsSent);
        path.budget = StepBudget::unlimited();
        let found = path.first_refused(|path, budget| self.reservation_at(path, budget));
        Some(found.ok()??.0)
    }

    /// The entry that reserves this form of the path, within the budget of a decision.
    pub(crate) fn reservation_at(
        &self,
        path: ComparedPath<'_>,
        budget: &mut StepBudget,
    ) -> Result<Option<TdmReservation<'_>>, StepsSpent> {
        let first = self.locations.best(path, budget)?;
        Ok(first.and_then(|Reverse(first)| self.entries[first].reservation()))
    }

    /// The entries that reserve pages, in the file's order.
    pub fn reservations(&self) -> impl Iterator<Item = TdmReservation<'_>> {
        self.entries.iter().filter_map(TdmEntry::reservation)
    }

    /// Content digest, computed by `digest` on first use.
    pub fn digest_by(&self, digest: impl FnOnce(&[u8]) -> [u8; 32]) -> &[u8; 32] {
        self.digest.get_or_init(|| digest(self.source()))
    }

    /// Number of usable entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The first fault of the file, if any.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// The bytes that were read.
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// Bytes on the heap.
    pub fn heap_size(&self) -> usize {
        let Self { source, entries, locations, fault, digest: _ } = self;
        let text = |entry: &TdmEntry| entry.location.len() + entry.policy.as_ref().map_or(0, |policy| policy.len());
        size_of::<Self>()
            + source.len()
            + entries.capacity() * size_of::<TdmEntry>()
            + entries.iter().map(text).sum::<usize>()
            + locations.heap_size()
            + fault.as_ref().map_or(0, |fault| fault.len())
    }
}

/// The usable entries, and the first fault in the file.
fn entries(bytes: &[u8]) -> (Vec<TdmEntry>, Option<Box<str>>) {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let values = match serde_json::from_slice(bytes) {
        Ok(Value::Array(values)) => values,
        Ok(_) => return (Vec::new(), Some("not an array".into())),
        Err(error) => return (Vec::new(), Some(format!("invalid JSON: {error}").into())),
    };
    let (mut read, mut fault) = (Vec::new(), None);
    for (number, value) in (1..).zip(&values) {
        let mut wrong = |what: &str| _ = fault.get_or_insert_with(|| format!("entry {number}: {what}").into());
        if read.len() == MOST_ENTRIES {
            wrong("too many entries: this entry and all after it are ignored");
            break;
        }
        let Value::Object(members) = value else {
            wrong("not an object");
            continue;
        };
        let Some(location) = text(members, "location").filter(|location| location.starts_with(['/', '*'])) else {
            wrong("no `location` that begins with `/` or `*`");
            continue;
        };
        let is_reserved = match members.get("tdm-reservation").and_then(Value::as_u64) {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => {
                wrong("`tdm-reservation` is neither 0 nor 1");
                None
            }
        };
        let policy = text(members, "tdm-policy");
        if policy.is_none() && members.contains_key("tdm-policy") {
            wrong("`tdm-policy` is not a URL");
        }
        read.push(TdmEntry { number, location: location.into(), is_reserved, policy: policy.map(Box::from) });
    }
    (read, fault)
}

fn text<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    let text = members.get(name)?.as_str()?;
    (text.len() <= LONGEST && !text.contains(char::is_control)).then_some(text)
}

/// Maximum number of entries that are read. The longest known files have some dozens.
const MOST_ENTRIES: usize = 1000;
/// Longest location, and longest policy URL, in bytes.
const LONGEST: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    fn show(file: &str, target: &str) -> String {
        let file = TdmRep::parse(file.as_bytes());
        let found = file.reservation(target.as_bytes());
        let found = found.map_or("-".to_owned(), |found| match found.policy {
            Some(policy) => format!("{} {} {policy}", found.entry, found.location),
            None => format!("{} {}", found.entry, found.location),
        });
        file.fault().map_or(found.clone(), |fault| format!("{found} ({fault})"))
    }

    /// The example in the W3C report.
    const SITE: &str = r#"[
        { "location": "/directory-a/", "tdm-reservation": 1 },
        { "location": "/directory-b/html/", "tdm-reservation": 1, "tdm-policy": "https://provider.com/policies/policy.json" },
        { "location": "/directory-b/images/*.jpg", "tdm-reservation": 0 }
    ]"#;

    #[test]
    fn example_of_the_tdmrep_report_is_read() {
        for (target, expected) in [
            ("/directory-a/x.pdf", "1 /directory-a/"),
            ("/directory-b/html/x", "2 /directory-b/html/ https://provider.com/policies/policy.json"),
            ("/directory-b/images/x.jpg", "-"),
            ("/directory-A/x.pdf", "-"),
            ("/", "-"),
        ] {
            assert_eq!(show(SITE, target), expected, "{target}");
        }
    }

    /// "The most specific match is the first in sequence."
    #[test]
    fn first_matching_entry_decides_regardless_of_length() {
        let file = r#"[{ "location": "/free", "tdm-reservation": 0 }, { "location": "/", "tdm-reservation": 1 },
            { "location": "/art/long", "tdm-reservation": 0 }]"#;
        for (target, expected) in [("/free/x", "-"), ("/art/long", "2 /"), ("/", "2 /")] {
            assert_eq!(show(file, target), expected, "{target}");
        }
    }

    #[test]
    fn location_patterns_equal_those_of_robots_txt() {
        let file = |location: &str| format!(r#"[{{ "location": "{location}", "tdm-reservation": 1 }}]"#);
        for (location, target, matches) in [
            ("/*.pdf$", "/a/b.pdf", true),
            ("/*.pdf$", "/a/b.pdf?x", false),
            ("/a*c", "/abc/d", true),
            ("*.pdf", "/x.pdf", true),
            ("/%7Ejoe", "/~joe/x", true),
            ("/~joe", "/%7ejoe/x", true),
            ("/foo-%24", "/foo-$", true),
            ("/a?b", "/a?bc", true),
            ("/\u{fc}", "/%C3%BC", true),
            ("/private", "/x/../private", true),
            ("/private", "/privat", false),
        ] {
            assert_eq!(show(&file(location), target) != "-", matches, "{location} {target}");
        }
    }

    #[test]
    fn invalid_entries_reserve_nothing_and_are_reported() {
        let neither = "`tdm-reservation` is neither 0 nor 1";
        let no_location = "no `location` that begins with `/` or `*`";
        for (file, expected) in [
            ("", "- (invalid JSON: EOF while parsing a value at line 1 column 0)".to_owned()),
            ("<html>", "- (invalid JSON: expected value at line 1 column 1)".to_owned()),
            (r#"{ "location": "/", "tdm-reservation": 1 }"#, "- (not an array)".to_owned()),
            ("[]", "-".to_owned()),
            ("[1]", "- (entry 1: not an object)".to_owned()),
            (r#"[{ "location": "/", "tdm-reservation": "1" }]"#, format!("- (entry 1: {neither})")),
            (r#"[{ "location": "/", "tdm-reservation": 2 }]"#, format!("- (entry 1: {neither})")),
            (r#"[{ "location": "/" }]"#, format!("- (entry 1: {neither})")),
            (r#"[{ "tdm-reservation": 1 }]"#, format!("- (entry 1: {no_location})")),
            (r#"[{ "location": "http://a/", "tdm-reservation": 1 }]"#, format!("- (entry 1: {no_location})")),
            (
                r#"[{ "location": "/x", "tdm-reservation": 1, "tdm-policy": 7 }, { "location": "/", "tdm-reservation": 1 }]"#,
                "2 / (entry 1: `tdm-policy` is not a URL)".to_owned(),
            ),
            ("\u{feff}[{ \"location\": \"/\", \"tdm-reservation\": 1, \"more\": [] }]", "1 /".to_owned()),
        ] {
            assert_eq!(show(file, "/page"), expected, "{file}");
        }
        let unknown = r#"[{ "location": "/a", "tdm-reservation": true }, { "location": "/", "tdm-reservation": 1 }]"#;
        assert_eq!(show(unknown, "/a/b"), format!("- (entry 1: {neither})"), "a malformed entry decides, too");
        assert!(show(unknown, "/b").starts_with("2 /"));
    }

    #[test]
    fn number_of_entries_is_bounded() {
        let entry = r#"{ "location": "/x", "tdm-reservation": 0 }"#;
        let many = |count: usize| format!("[{}]", vec![entry; count].join(","));
        assert_eq!(TdmRep::parse(many(MOST_ENTRIES).as_bytes()).fault(), None);
        let more = TdmRep::parse(many(MOST_ENTRIES + 7).as_bytes());
        assert!(more.len() == MOST_ENTRIES && more.fault().is_some_and(|fault| fault.starts_with("entry 1001: ")));
        let long = format!(r#"[{{ "location": "/{}", "tdm-reservation": 1 }}]"#, "x".repeat(LONGEST));
        assert!(TdmRep::parse(long.as_bytes()).is_empty());
        let deep = "[".repeat(100_000);
        assert!(TdmRep::parse(deep.as_bytes()).fault().is_some());
    }
}
