//! Reads what the head of an answer says about the use of its content: Content-Usage (draft-ietf-aipref-attach-05), Content-Signal
//! (contentsignals.org), Robots-Tag and X-Robots-Tag, and TDM-Reservation (W3C TDMRep). A malformed field counts as unknown, and refuses
//! nothing. Pure.

use super::field::{UsageField, Use};
use super::robots_tag::RobotsTag;
use crate::policy::{Reservation, RobotsOverride, resolved};
use crate::robots::{Purpose, UsageLine, read_signal, read_usage, steps_count};
use url::Url;

/// The field lines of an answer that are about its use, as received.
#[derive(Debug, Default)]
pub struct UsageLines {
    lines: Vec<(UsageField, Vec<u8>)>,
    pub(super) links: Vec<Vec<u8>>,
    /// The base of a page's relative links: the first `href` of a `base` element.
    pub(super) base: Option<Vec<u8>>,
    pub(super) price: Option<Vec<u8>>,
    pub(super) charged: Option<Vec<u8>>,
    pub(super) crawler_error: Option<Vec<u8>>,
    is_image: bool,
}

impl UsageLines {
    /// Adds a field of the head, if it is about the use of the content.
    pub fn take(&mut self, name: &[u8], value: &[u8]) {
        let known = UsageField::OF_HEADS.into_iter();
        if let Some(field) = known.into_iter().find(|field| name.eq_ignore_ascii_case(field.as_str().as_bytes())) {
            self.add(field, value);
        } else if name.eq_ignore_ascii_case(b"link") {
            self.links.push(value.to_owned());
        } else if name.eq_ignore_ascii_case(b"crawler-price") {
            add_line(&mut self.price, value);
        } else if name.eq_ignore_ascii_case(b"crawler-charged") {
            add_line(&mut self.charged, value);
        } else if name.eq_ignore_ascii_case(b"crawler-error") {
            self.crawler_error.get_or_insert_with(|| value.to_owned());
        } else if name.eq_ignore_ascii_case(b"content-type") {
            self.is_image |= value.get(..6).is_some_and(|kind| kind.eq_ignore_ascii_case(b"image/"));
        }
    }

    /// Adds a line of this field.
    pub(super) fn add(&mut self, field: UsageField, value: &[u8]) {
        // All lines of a structured field are one value (RFC 9651 §4.2).
        let is_one = matches!(field, UsageField::ContentUsage | UsageField::RobotsTag);
        match self.lines.iter_mut().find(|(other, _)| *other == field).filter(|_| is_one) {
            Some((_, lines)) => lines.extend([b", ", value].concat()),
            None => self.lines.push((field, value.to_owned())),
        }
    }

    /// Adds the URL of the terms under which a reserved page may be mined.
    pub(super) fn add_policy(&mut self, policy: &[u8]) {
        let reserved = self.lines.iter_mut().find(|(field, value)| *field == UsageField::MetaTdm && value == b"1");
        if let Some((_, value)) = reserved.filter(|_| policy.len() <= LONGEST) {
            value.extend([b", tdm-policy: ", policy].concat());
        }
    }

    /// Reads each line once.
    pub(super) fn read<'a>(&self, to: &Use<'a>) -> Vec<LineRead<'a>> {
        let read = |(field, value): &(UsageField, Vec<u8>)| {
            steps_count(value.len());
            let mut purposes = to.purposes.iter();
            let (says_no, purpose) = match field {
                UsageField::ContentUsage | UsageField::ContentSignal => {
                    let UsageLine { welcome, fault, .. } = usage(*field, value);
                    let says_no = welcome.iter().any(|(_, is_welcome)| !is_welcome);
                    let opposes = |to: &Purpose| welcome.iter().any(|(of, is_welcome)| of == to && !is_welcome);
                    let purpose = purposes.find(|purpose| opposes(purpose));
                    ((fault.is_none() || says_no).then_some(says_no), purpose)
                }
                UsageField::XRobotsTag | UsageField::RobotsTag | UsageField::MetaRobots => {
                    let tag = RobotsTag::of(*field, value, to);
                    let says_no = tag.says_no(self.is_image);
                    let purpose = purposes.find(|purpose| tag.opposes(purpose, self.is_image));
                    ((says_no || !tag.is_malformed).then_some(says_no), purpose)
                }
                UsageField::TdmReservation | UsageField::MetaTdm => match reservation(value) {
                    b"1" => (Some(true), purposes.find(|purpose| purpose.is_mining())),
                    b"0" => (Some(false), None),
                    _ => (None, None),
                },
            };
            LineRead { field: *field, value: shown(value), says_no, purpose }
        };
        self.lines.iter().map(read).collect()
    }

    /// Resolves a link in these lines. `url`: the URL of the answer.
    pub fn resolved(&self, url: &str, link: &str) -> Option<Url> {
        let url = Url::parse(url).ok()?;
        let base = self.base.as_deref().and_then(|base| resolved(&url, str::from_utf8(base).ok()?));
        resolved(&base.unwrap_or(url), link)
    }

    /// Whether `TDM-Reservation: 0` permits mining.
    pub fn frees_mining(&self) -> bool {
        let mut values = self.lines.iter().filter(|(field, _)| *field == UsageField::TdmReservation).peekable();
        values.peek().is_some() && values.all(|(_, value)| value.trim_ascii() == b"0")
    }

    /// The first line that says no to a declared purpose, and whether the refusal is enforced or only reported. Enforced refusals come
    /// first.
    pub fn reservation(&self, to: &Use<'_>) -> Option<(Reservation, RobotsOverride)> {
        reservation_in(&self.read(to), to)
    }
}

/// The content of one field line.
pub(super) struct LineRead<'a> {
    pub field: UsageField,
    /// The beginning of the line.
    pub value: Box<str>,
    /// Whether the line says no to some use for this crawler. `None`: the line is malformed.
    pub says_no: Option<bool>,
    /// The declared purpose that the line says no to.
    pub purpose: Option<&'a Purpose>,
}

/// Like [`UsageLines::reservation`], for lines that were read already.
pub(super) fn reservation_in(lines: &[LineRead<'_>], to: &Use<'_>) -> Option<(Reservation, RobotsOverride)> {
    let found = |wanted: RobotsOverride| {
        let mut lines = lines.iter().filter(|line| to.modes.of(line.field) == wanted);
        lines.find_map(|LineRead { field, value, purpose, .. }| {
            let (value, purpose) = (value.clone(), (*purpose)?.as_str().into());
            Some((Reservation { field: *field, value, purpose }, wanted))
        })
    };
    found(RobotsOverride::Enforce).or_else(|| found(RobotsOverride::Report))
}

/// Joins the lines of a field to one value (RFC 9110 §5.2). Two price lines thus become one malformed value.
fn add_line(lines: &mut Option<Vec<u8>>, value: &[u8]) {
    match lines {
        Some(lines) => lines.extend([b", ", value].concat()),
        None => *lines = Some(value.to_owned()),
    }
}

/// Parses a Content-Usage or Content-Signal line.
fn usage(field: UsageField, value: &[u8]) -> UsageLine {
    match field {
        UsageField::ContentSignal => read_signal(value),
        _ => read_usage(value),
    }
}

/// The value of TDM-Reservation, without the policy that follows it in a page.
fn reservation(value: &[u8]) -> &[u8] {
    let end = memchr::memmem::find(value, b", tdm-policy: ").unwrap_or(value.len());
    value[..end].trim_ascii()
}

/// The beginning of a value on one line, for messages. Limited in length, as a hundred thousand of these may be held in memory.
fn shown(value: &[u8]) -> Box<str> {
    String::from_utf8_lossy(&value[..value.len().min(LONGEST)]).replace(char::is_control, " ").into()
}

/// Maximum number of bytes of a field's value that are shown.
const LONGEST: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{UsageModes, UsageReport};
    use crate::robots::ProductToken;
    use std::time::{Duration, SystemTime};

    /// The time of the tests: 2026-03-01.
    const NOW: Duration = Duration::from_secs(1_772_323_200);

    /// The purpose that a line says no to, and the field; or `-`. `lines`: each as `name: value`.
    fn opposed(purposes: &str, lines: &[&str]) -> String {
        let purposes: Vec<_> = purposes.split(' ').map(|name| Purpose::parse(name).unwrap()).collect();
        let product_tokens = [ProductToken::parse("ExampleBot").unwrap()];
        let mut read = UsageLines::default();
        for (name, value) in lines.iter().map(|line| line.split_once(": ").unwrap()) {
            read.take(name.as_bytes(), value.as_bytes());
        }
        let to = Use {
            purposes: &purposes,
            product_tokens: &product_tokens,
            modes: UsageModes::default(),
            now: SystemTime::UNIX_EPOCH + NOW,
        };
        let found = read.reservation(&to);
        found.map_or("-".into(), |(found, _)| format!("{} {}", found.purpose, found.field.as_str()))
    }

    #[test]
    fn x_robots_tag_is_read_with_all_its_exceptions() {
        for (purpose, line, opposes) in [
            ("search", "noindex", true),
            ("search", "NOINDEX, nofollow", true),
            ("search", "none", true),
            ("search", "noai, noimageai", false),
            ("ai-train", "noai", true),
            ("ai-input", "nofollow,NoML", true),
            ("ai-train", "noindex", false),
            ("bots", "noindex, noai", false),
            ("search", "examplebot: noindex", true),
            ("search", "otherbot: noindex", false),
            ("search", "otherbot: nofollow, noindex", false),
            ("search", "*: noindex", true),
            ("search", "otherbot: nofollow, *: noindex", true),
            ("search", "noindex, otherbot: nofollow", true),
            ("search", "otherbot: noindex, ExampleBot: nofollow, noindex", true),
            ("search", "max-snippet: 20, noindex", true),
            ("search", "max-image-preview:large, max-video-preview: -1", false),
            ("search", "unavailable_after: 25 Jun 2010 15:00:00 PST", true),
            ("search", "unavailable_after: 25 Jun 2030 15:00:00 PST", false),
            ("search", "unavailable_after: 25 Jun 2010 15:00:00 UTC, nofollow", true),
            ("search", "unavailable_after: Fri, 25 Jun 2010 15:00:00 -0800", true),
            ("search", "unavailable_after: Friday, 25-Jun-10 15:00:00 UTC", true),
            ("search", "unavailable_after: Sat, 28 Feb 2026 23:59:59 -0100, nofollow", false),
            ("search", "unavailable_after: 99 Jun 2010 15:00:00 PST", false),
            ("search", "unavailable_after: Wed, 03 Dec 2025 13:09:53 GMT", true),
            ("search", "unavailable_after: Thu, 03 Dec 2026 13:09:53 GMT, noindex", true),
            ("search", "unavailable_after: Thu, 03 Dec 2026 13:09:53 GMT", false),
            ("search", "unavailable_after: 2025-12-03", true),
            ("search", "unavailable_after: 2026-03-01T00:00:00Z", false),
            ("search", "unavailable_after: Wednesday, 03-Dec-25 13:09:53 GMT", true),
            ("search", "unavailable_after: soon", false),
            ("search", "unavailable_after: soon, noindex", true),
            ("ai-train", "nofollow, unavailable_after: bogus, noai", true),
            ("ai-train", "unavailable_after: Wed, noai", true),
            ("ai-train", "unavailable_after: , noai", true),
            ("ai-train", "unavailable_after: 25-Jun-2030, noai", true),
            ("search", "otherbot: unavailable_after: 2020-01-01", false),
            ("search", "ExampleBot: unavailable_after: 2020-01-01", true),
            ("search", "ExampleBot: unavailable_after: Thu, 03 Dec 2026 13:09:53 GMT, noindex", true),
            ("search", "otherbot: max-snippet: 3, noindex", false),
            ("search", "unavailable_after: 0000-00-00", false),
            ("search", "unavailable_after: 2020-99-99", false),
            ("search", "unavailable_after: 2020-01-01x", false),
            ("search", "", false),
            ("search", ",,: :,", false),
            ("search", "\u{fc}", false),
            ("search", "\u{fc}, noindex", true),
        ] {
            let expected = if opposes { format!("{purpose} X-Robots-Tag") } else { "-".into() };
            assert_eq!(opposed(purpose, &[&format!("X-Robots-Tag: {line}")]), expected, "{purpose}: {line}");
        }
        let lines = ["x-robots-tag: otherbot: nofollow", "x-robots-tag: noindex"];
        assert_eq!(
            opposed("search", &lines),
            "search X-Robots-Tag",
            "a line begins without the scope of the line before"
        );
    }

    #[test]
    fn image_rules_apply_only_to_images() {
        for (purpose, tag) in [("search", "noimageindex"), ("ai-train", "noimageai")] {
            let tag = format!("X-Robots-Tag: {tag}");
            assert_eq!(opposed(purpose, &[&tag, "Content-Type: Image/png"]), format!("{purpose} X-Robots-Tag"));
            assert_eq!(opposed(purpose, &[&tag, "Content-Type: text/html"]), "-");
        }
    }

    #[test]
    fn content_usage_lines_form_one_dictionary() {
        for (lines, expected) in [
            (&["Content-Usage: train-ai=n"][..], "ai-train Content-Usage"),
            (&["Content-Usage: train-ai=y, search=n"], "-"),
            (&["Content-Usage: train-ai=n", "Content-Usage: train-ai=y"], "-"),
            (&["Content-Usage: search=y", "Content-Usage: train-ai=n"], "ai-train Content-Usage"),
            (&["Content-Usage: train-ai=n", "Content-Usage: Nonsense!"], "-"),
            (&["Content-Usage: train-ai=no"], "-"),
        ] {
            assert_eq!(opposed("ai-train", lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn tdm_reservation_counts_only_if_it_is_1() {
        for (purpose, value, opposes) in [
            ("ai-train", "1", true),
            ("tdm", " 1 ", true),
            ("search", "1", false),
            ("tdm", "0", false),
            ("tdm", "yes", false),
        ] {
            let expected = if opposes { format!("{purpose} TDM-Reservation") } else { "-".into() };
            assert_eq!(opposed(purpose, &[&format!("TDM-Reservation: {value}")]), expected, "{purpose} {value}");
        }
    }

    /// Each line is read only once, for any number of purposes and signals.
    #[test]
    fn each_line_is_read_once() {
        let purposes = ["search", "ai-train", "tdm"].map(|name| Purpose::parse(name).unwrap());
        let (modes, now) = (UsageModes::default(), SystemTime::UNIX_EPOCH);
        let to = Use { purposes: &purposes, product_tokens: &[], modes, now };
        let mut lines = UsageLines::default();
        let mut bytes = 0;
        for field in UsageField::OF_HEADS {
            for value in ["a;NoIndex, b".repeat(100), "ai-train=maybe, ".repeat(100)] {
                lines.take(field.as_str().as_bytes(), value.as_bytes());
                bytes += value.len() as u64 + 2;
            }
        }
        let steps = crate::robots::steps_of(|| _ = UsageReport::judged(&lines, 200, &to));
        assert!(steps <= bytes, "{steps} steps for {bytes} bytes");
    }

    /// No limit is needed, as `limits.max_header_size` bounds all lines of a message.
    #[test]
    fn all_lines_are_read_to_their_end() {
        for (name, filler, last) in [
            ("X-Robots-Tag", "all", "noai"),
            ("TDM-Reservation", "0", "1"),
            ("Content-Signal", "search=yes", "ai-train=no"),
            ("Content-Usage", "x=y", "train-ai=n"),
            ("Robots-Tag", "otherbot;noai", "*;noai"),
        ] {
            let line = |value: &str| format!("{name}: {value}");
            let mut many = vec![line(filler); 100];
            many.push(line(last));
            let long = line(&format!("{}{last}", format!("{filler}, ").repeat(10_000)));
            for lines in [many, vec![long]].iter().filter(|lines| lines.len() > 1 || name != "TDM-Reservation") {
                let lines: Vec<_> = lines.iter().map(String::as_str).collect();
                assert_eq!(opposed("ai-train", &lines), format!("ai-train {name}"));
            }
        }
    }

    #[test]
    fn rules_beside_non_utf8_bytes_are_read() {
        let mut read = UsageLines::default();
        read.take(b"X-Robots-Tag", b"caf\xe9, noai");
        let purposes = [Purpose::parse("ai-train").unwrap()];
        let (modes, now) = (UsageModes::default(), SystemTime::UNIX_EPOCH);
        assert!(read.reservation(&Use { purposes: &purposes, product_tokens: &[], modes, now }).is_some());
    }

    #[test]
    fn enforced_preferences_precede_reported_ones() {
        let purposes = [Purpose::parse("search").unwrap(), Purpose::parse("ai-train").unwrap()];
        let mut read = UsageLines::default();
        read.take(b"X-Robots-Tag", b"noindex");
        read.take(b"TDM-Reservation", b"1");
        let said = |x_robots_tag, tdm_reservation| {
            let modes = UsageModes { x_robots_tag, tdm_reservation, ..UsageModes::default() };
            let now = SystemTime::UNIX_EPOCH + NOW;
            let found = read.reservation(&Use { purposes: &purposes, product_tokens: &[], modes, now });
            found.map(|(found, mode)| (found.field, mode))
        };
        use RobotsOverride::{Enforce, Ignore, Report};
        assert_eq!(said(Report, Enforce), Some((UsageField::TdmReservation, Enforce)));
        assert_eq!(said(Report, Ignore), Some((UsageField::XRobotsTag, Report)));
        assert_eq!(said(Ignore, Ignore), None);
    }
}
