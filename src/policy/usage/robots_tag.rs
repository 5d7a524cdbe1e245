//! The rules of `Robots-Tag` (draft-illyes-repext-03) and `X-Robots-Tag` for one crawler, as documented by their authors: Google
//! (`noindex`, `nosnippet`, `max-snippet:0`), Bing (`noarchive`, `nocache`), DeviantArt (`noai`, `noimageai`). Pure.

use std::time::SystemTime;

use super::field::{UsageField, Use};
use crate::policy::date::is_past;
use crate::robots::Purpose;
use sfv::{BareItem, Item, List, ListEntry, Parser};

/// The combined rules for one crawler.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct RobotsTag {
    noindex: bool,
    noimageindex: bool,
    noai: bool,
    noimageai: bool,
    /// Forbids showing any of the text. Google keeps the page out of AI answers, too.
    nosnippet: bool,
    /// Bing: forbids both AI answers and training.
    noarchive: bool,
    /// Bing: forbids training, and limits answers to title and snippet, even if `noarchive` is set.
    nocache: bool,
    /// Whether a date, a member of the list or the whole value is malformed.
    pub(super) is_malformed: bool,
}

impl RobotsTag {
    pub(super) fn of(field: UsageField, value: &[u8], to: &Use<'_>) -> Self {
        if field == UsageField::RobotsTag { Self::read_list(value, to) } else { Self::read(value, to) }
    }

    /// Parses Robots-Tag (draft-illyes-repext-03): a List (RFC 9651) of product tokens and `*`, with the rules as parameters. Combines all
    /// rules for this crawler.
    fn read_list(value: &[u8], to: &Use<'_>) -> Self {
        let mut tag = Self::default();
        let value = value.trim_ascii();
        // Rules are compared without regard to case (§2.1.3); keys of parameters are always lower case (RFC 9651 §3.1.2).
        let Ok(members) = Parser::new(&without_case(value)).parse::<List>() else {
            return Self { is_malformed: true, ..tag };
        };
        for member in &members {
            let ListEntry::Item(Item { bare_item, params }) = member else {
                tag.is_malformed = true;
                continue;
            };
            let name =
                bare_item.as_token().map(|token| token.as_str()).or(bare_item.as_string().map(|text| text.as_str()));
            tag.is_malformed |= name.is_none();
            if !name.is_some_and(|name| is_named(name, to)) {
                continue;
            }
            for (rule, value) in params {
                match (rule.as_str(), value) {
                    (_, BareItem::Boolean(false)) => {}
                    (rule, BareItem::Boolean(true)) => tag.add(rule),
                    ("max-snippet", BareItem::Integer(characters)) => tag.nosnippet |= i64::from(*characters) == 0,
                    ("unavailable_after", value) => {
                        let is_past = match value {
                            BareItem::Date(date) => Some(i64::from(date.unix_seconds()) < seconds(to.now)),
                            BareItem::String(text) => is_past(text.as_str(), to.now),
                            _ => None,
                        };
                        tag.noindex |= is_past == Some(true);
                        tag.is_malformed |= is_past.is_none();
                    }
                    _ => {}
                }
            }
        }
        tag
    }

    /// Parses a line of X-Robots-Tag. `name:` limits the following rules to one crawler, unless `name` is a rule with a value; rules before
    /// any name are for all crawlers.
    pub(super) fn read(line: &[u8], to: &Use<'_>) -> Self {
        let mut tag = Self::default();
        let line = String::from_utf8_lossy(line);
        let mut is_ours = true;
        let mut pieces = line.split(',').peekable();
        while let Some(piece) = pieces.next() {
            let mut rule = piece.trim();
            // `name:` before the rule is the name of a crawler, or of a rule with a value.
            while let Some((name, rest)) = rule.split_once(':') {
                rule = rest.trim();
                match name.trim().to_ascii_lowercase().as_str() {
                    "max-snippet" => {
                        tag.nosnippet |= is_ours && rule == "0";
                        rule = "";
                    }
                    "max-image-preview" | "max-video-preview" => rule = "",
                    "unavailable_after" => {
                        // A date such as `Wed, 03 Dec 2025 13:09:53 GMT` contains a comma. If no day of the month follows, the next piece
                        // is another rule.
                        let is_day = |piece: &&str| piece.trim_start().starts_with(|it: char| it.is_ascii_digit());
                        let is_weekday = !rule.is_empty() && rule.bytes().all(|it| it.is_ascii_alphabetic());
                        let date = match pieces.next_if(|piece| is_weekday && is_day(piece)) {
                            Some(day) => format!("{rule},{day}"),
                            None => rule.into(),
                        };
                        let is_past = is_past(date.trim(), to.now);
                        tag.noindex |= is_ours && is_past == Some(true);
                        tag.is_malformed |= is_ours && is_past.is_none();
                        rule = "";
                    }
                    name => is_ours = is_named(name, to),
                }
            }
            if is_ours {
                tag.add(rule);
            }
        }
        tag
    }

    fn add(&mut self, rule: &str) {
        match rule.to_ascii_lowercase().as_str() {
            "noindex" | "none" => self.noindex = true,
            "noimageindex" => self.noimageindex = true,
            "noai" | "noml" => self.noai = true,
            "noimageai" => self.noimageai = true,
            "nosnippet" => self.nosnippet = true,
            "noarchive" => self.noarchive = true,
            "nocache" => self.nocache = true,
            _ => {}
        }
    }

    pub(super) fn opposes(self, purpose: &Purpose, is_image: bool) -> bool {
        let no_ai = self.noai || is_image && self.noimageai;
        match purpose.as_str() {
            "search" => self.noindex || is_image && self.noimageindex,
            "ai-train" => no_ai || self.noarchive || self.nocache,
            "ai-input" => no_ai || self.nosnippet || self.noarchive && !self.nocache,
            _ => false,
        }
    }

    /// Whether the rules say no to any use.
    pub(super) fn says_no(self, is_image: bool) -> bool {
        let Self { noindex, noimageindex, noai, noimageai, nosnippet, noarchive, nocache, is_malformed: _ } = self;
        noindex || noai || nosnippet || noarchive || nocache || is_image && (noimageindex || noimageai)
    }
}

/// Converts to lower case, except in quoted strings.
fn without_case(value: &[u8]) -> Vec<u8> {
    let (mut is_string, mut is_escaped) = (false, false);
    let lower = |byte: &u8| {
        is_string ^= *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        if is_string { *byte } else { byte.to_ascii_lowercase() }
    };
    value.iter().map(lower).collect()
}

/// Whether the name is one of the crawler's, or `*`, which names all crawlers in Robots-Tag. Sites that confuse the two fields write `*`
/// in X-Robots-Tag too.
fn is_named(name: &str, to: &Use<'_>) -> bool {
    name == "*" || to.product_tokens.iter().any(|token| token.as_str().eq_ignore_ascii_case(name))
}

/// Seconds since 1970.
fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{UsageLines, UsageModes};
    use crate::robots::ProductToken;
    use std::time::Duration;

    /// The purposes that the lines of a field say no to, for ExampleBot on 2026-03-01; `?`: some line is malformed.
    fn said(field: &str, lines: &[&str]) -> String {
        let product_tokens = [ProductToken::parse("ExampleBot").unwrap()];
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_323_200);
        let mut read = UsageLines::default();
        lines.iter().for_each(|line| read.take(field.as_bytes(), line.as_bytes()));
        let mut said: Vec<_> = ["search", "ai-train", "ai-input"].map(|name| Purpose::parse(name).unwrap()).into();
        said.retain(|purpose| {
            let purposes = std::slice::from_ref(purpose);
            let to = Use { purposes, product_tokens: &product_tokens, modes: UsageModes::default(), now };
            read.reservation(&to).is_some()
        });
        let to = Use { purposes: &[], product_tokens: &product_tokens, modes: UsageModes::default(), now };
        let fault = read.read(&to).iter().any(|line| line.says_no.is_none()).then_some("?");
        said.iter().map(Purpose::as_str).chain(fault).collect::<Vec<_>>().join(" ")
    }

    /// draft-illyes-repext-03, "HTTP Response Header".
    #[test]
    fn robots_tag_is_a_list_of_names_with_rules() {
        for (value, expected) in [
            // The draft's example: the rules of both members are for ExampleBot.
            ("*;nosnippet, ExampleBot;noindex", "search ai-input"),
            ("*;nosnippet, OtherBot;noindex", "ai-input"),
            ("OtherBot;noindex;nosnippet", ""),
            ("*;noindex", "search"),
            ("* ; noindex", "?"),
            ("*; noindex", "search"),
            ("examplebot;noindex, *;noai, EXAMPLEBOT;nosnippet", "search ai-train ai-input"),
            ("\"ExampleBot\";noindex", "search"),
            ("*;noindex=?0", ""),
            ("*;NoIndex", "search"),
            ("*", ""),
            ("*;max-snippet=0", "ai-input"),
            ("*;max-snippet=20", ""),
            ("*;max-snippet=-1;max-image-preview=large", ""),
            ("*;unavailable_after=@1700000000", "search"),
            ("*;unavailable_after=@1800000000", ""),
            ("*;unavailable_after=\"25 Jun 2010 15:00:00 PST\"", "search"),
            ("*;unavailable_after=soon", "?"),
            ("*;unavailable_after=soon;noindex", "search"),
            ("(* ExampleBot);noindex", "?"),
            ("5;noindex, *;noai", "ai-train ai-input"),
            ("noindex, nofollow", ""),
            ("*: noindex", "?"),
            ("*;noindex,", "?"),
            ("*;noindex, \u{fc}", "?"),
            ("", ""),
        ] {
            assert_eq!(said("Robots-Tag", &[value]), expected, "{value}");
        }
        assert_eq!(
            said("robots-tag", &["OtherBot;noindex", "*;noai"]),
            "ai-train ai-input",
            "the lines of the field are one list"
        );
        assert_eq!(said("Robots-Tag", &["*;noindex", "=nonsense"]), "?");
    }

    /// Google: `nosnippet` and `max-snippet:0` keep content out of AI Overviews and AI Mode. Bing (September 2023): `noarchive` forbids
    /// answers and training; `nocache` forbids training, but allows answers with title and snippet; if both are set, `nocache` counts.
    #[test]
    fn ai_rules_of_search_engines_are_understood() {
        for (rules, expected) in [
            (&["nosnippet"][..], "ai-input"),
            (&["max-snippet: 0"], "ai-input"),
            (&["noarchive"], "ai-train ai-input"),
            (&["nocache"], "ai-train"),
            (&["nocache", "noarchive"], "ai-train"),
            (&["noindex", "nosnippet"], "search ai-input"),
        ] {
            assert_eq!(said("X-Robots-Tag", &[&rules.join(", ")]), expected, "{rules:?}");
            let list = format!("*;{}", rules.join(";").replace(": ", "="));
            assert_eq!(said("Robots-Tag", &[&list]), expected, "{list}");
        }
        for rule in
            ["max-snippet: 10", "max-snippet: -1", "max-snippet:", "otherbot: nosnippet", "otherbot: max-snippet: 0"]
        {
            assert_eq!(said("X-Robots-Tag", &[rule]), "", "{rule}");
        }
    }

    #[test]
    fn content_signal_field_equals_the_robots_txt_line() {
        for (lines, expected) in [
            (&["ai-train=no, search=yes, ai-input=no"][..], "ai-train ai-input"),
            (&["ai-train=yes, search=yes, ai-input=yes"], ""),
            (&["search=yes,ai-train=no,use=reference"], "ai-train"),
            (&["use=immediate"], "search ai-train"),
            (&["ai-train=yes", "ai-train=no"], "ai-train"),
            (&["ai-train=n"], "?"),
            (&["nonsense"], "?"),
        ] {
            assert_eq!(said("Content-Signal", lines), expected, "{lines:?}");
        }
    }
}
