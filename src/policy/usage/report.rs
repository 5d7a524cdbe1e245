//! Reports what an answer says about the use of its content, for all purposes, declared or not. Pure.

use super::answer::{LineRead, UsageLines, reservation_in};
use super::field::{Signal, UsageField, Use};
use super::offer;
use crate::policy::{Money, Reservation, RobotsOverride};

/// A report on what one answer says about the use of its content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageReport {
    /// The field lines that say no to some use, as received.
    pub reserved: Vec<(UsageField, Box<str>)>,
    /// URLs of the terms of use.
    pub licenses: Vec<Box<str>>,
    /// The first of these URLs whose link has the media type of a licence file.
    pub rsl: Option<Box<str>>,
    /// Whether the status is 402.
    pub payment_required: bool,
    pub price: Option<Box<str>>,
    /// The amount charged for the request.
    pub charged: Option<Money>,
    /// Why the offered price was not accepted.
    pub crawler_error: Option<Box<str>>,
    /// Malformed signals, which count as unknown.
    pub malformed: Vec<Signal>,
}

impl UsageReport {
    /// Judges the lines of an answer. Returns the report, and the result of [`UsageLines::reservation`]. `status`: the status of the
    /// answer.
    pub fn judged(lines: &UsageLines, status: u16, to: &Use<'_>) -> (Self, Option<(Reservation, RobotsOverride)>) {
        let mut noted = UsageReport { payment_required: status == 402, ..UsageReport::default() };
        let read = lines.read(to);
        let reservation = reservation_in(&read, to);
        for LineRead { field, value, says_no, .. } in read {
            match says_no {
                Some(true) => {
                    if noted.reserved.len() < MOST_RESERVED && !noted.reserved.contains(&(field, value.clone())) {
                        noted.reserved.push((field, value));
                    }
                }
                Some(false) => {}
                None => noted.malformed.push(Signal::Usage(field)),
            }
        }
        for line in &lines.links {
            match offer::licenses(&String::from_utf8_lossy(line)) {
                Some(licenses) => {
                    let rsl = licenses.iter().find(|license| license.is_rsl).map(|license| license.target.into());
                    noted.rsl = noted.rsl.or(rsl);
                    noted.licenses.extend(licenses.into_iter().map(|license| Box::from(license.target)));
                }
                // A malformed Link line that does not mention a licence does not matter.
                None if memchr::memmem::find(&line.to_ascii_lowercase(), b"license").is_none() => {}
                None => noted.malformed.push(Signal::License),
            }
        }
        noted.licenses.truncate(MOST_LICENSES);
        let price = lines.price.as_ref().filter(|_| noted.payment_required).map(|price| offer::price(price));
        let charged = lines.charged.as_ref().map(|charged| offer::price(charged).and_then(Money::parse));
        let error = lines.crawler_error.as_ref().map(|error| offer::crawler_error(error));
        let unread = [
            (Signal::PaymentRequired, price == Some(None)),
            (Signal::Charged, charged == Some(None)),
            (Signal::CrawlerError, error == Some(None)),
        ];
        noted.malformed.extend(unread.into_iter().filter(|(_, is_so)| *is_so).map(|(signal, _)| signal));
        noted.price = price.flatten().map(Box::from);
        noted.charged = charged.flatten();
        noted.crawler_error = error.flatten().map(Box::from);
        noted.malformed.sort_by_key(|signal| signal.slug());
        noted.malformed.dedup();
        (noted, reservation)
    }

    /// Adds the report on an earlier part of the same answer.
    pub fn join_before(&mut self, earlier: Self) {
        self.reserved.splice(0..0, earlier.reserved);
        self.licenses.splice(0..0, earlier.licenses);
        self.licenses.truncate(MOST_LICENSES);
        self.rsl = earlier.rsl.or(self.rsl.take());
        // Only the head of an answer has these fields, and the head is read first.
        (self.price, self.charged, self.crawler_error) = (earlier.price, earlier.charged, earlier.crawler_error);
        self.malformed.splice(0..0, earlier.malformed);
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The signals that the answer gives, each once.
    pub fn signals(&self) -> impl Iterator<Item = Signal> {
        let has = |signal| match signal {
            Signal::License => !self.licenses.is_empty(),
            Signal::PaymentRequired => self.payment_required,
            Signal::Charged => self.charged.is_some(),
            Signal::CrawlerError => self.crawler_error.is_some(),
            Signal::Usage(field) => self.reserved.iter().any(|(it, _)| *it == field),
        };
        Signal::ALL.into_iter().filter(move |signal| has(*signal))
    }

    /// The lines that say no, joined, as shown to people. `None`: there are no such lines.
    pub fn reserved_text(&self) -> Option<String> {
        let lines: Vec<_> = self.reserved.iter().map(|(field, value)| format!("{}: {value}", field.as_str())).collect();
        Some(lines.join("; ")).filter(|text| !text.is_empty())
    }

    /// The licence and price that the answer asks for, as shown to people.
    pub fn offer_text(&self) -> Option<String> {
        let licenses = self.licenses.iter().map(|license| format!("its licence is at {license}"));
        let price = self.price.iter().map(|price| format!("it asks for {price}"));
        let all: Vec<_> = licenses.chain(price).collect();
        Some(all.join("; ")).filter(|text| !text.is_empty())
    }
}

const MOST_LICENSES: usize = 4;
const MOST_RESERVED: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::UsageModes;
    use std::time::SystemTime;

    fn noted(status: u16, lines: &[&str]) -> UsageReport {
        let mut read = UsageLines::default();
        for (name, value) in lines.iter().map(|line| line.split_once(": ").unwrap()) {
            read.take(name.as_bytes(), value.as_bytes());
        }
        let (modes, now) = (UsageModes::default(), SystemTime::UNIX_EPOCH);
        UsageReport::judged(&read, status, &Use { purposes: &[], product_tokens: &[], modes, now }).0
    }

    #[test]
    fn refusing_preferences_are_noted_without_a_purpose() {
        let said = noted(
            200,
            &[
                "X-Robots-Tag: noai",
                "Content-Usage: train-ai=n",
                "TDM-Reservation: 1",
                "Content-Signal: search=no",
                "Robots-Tag: *;nosnippet",
                "Link: </l>; rel=license",
            ],
        );
        let is_of_prices = |it: &Signal| it.slug() == "payment-required" || it.slug().starts_with("crawler");
        let all = Signal::ALL.into_iter().filter(|it| !is_of_prices(it) && !it.slug().starts_with("meta"));
        assert_eq!(said.signals().collect::<Vec<_>>(), all.collect::<Vec<_>>());
        assert_eq!(
            said.reserved_text().as_deref(),
            Some(
                "X-Robots-Tag: noai; Content-Usage: train-ai=n; TDM-Reservation: 1; Content-Signal: search=no; \
                 Robots-Tag: *;nosnippet"
            )
        );
        assert_eq!(said.offer_text().as_deref(), Some("its licence is at /l"));
        assert!(said.malformed.is_empty());
    }

    #[test]
    fn licence_link_is_noted_unless_its_anchor_is_another_page() {
        let license = "</l>; rel=license; type=\"application/rsl+xml\"";
        for (link, is_noted) in [
            (format!("{license}; anchor=\"https://other.example/\""), false),
            (format!("{license}; ANCHOR=/other"), false),
            (format!("{license}; anchor=\"\""), true),
            (format!("{license}; anchor=\"#part\""), true),
            (format!("</a>; rel=next; anchor=\"/b\", {license}"), true),
        ] {
            let said = noted(200, &[&format!("Link: {link}")]);
            assert_eq!((said.licenses.len(), said.rsl.is_some()), (usize::from(is_noted), is_noted), "{link}");
            assert!(said.malformed.is_empty(), "{link}");
        }
        let mut lines = UsageLines::default();
        lines.take(b"Link", &[b"</a>; rel=next; title=\"caf\xe9\", ", license.as_bytes()].concat());
        let (modes, now) = (UsageModes::default(), SystemTime::UNIX_EPOCH);
        let said = UsageReport::judged(&lines, 200, &Use { purposes: &[], product_tokens: &[], modes, now }).0;
        assert_eq!(said.rsl.as_deref(), Some("/l"));
    }

    #[test]
    fn preferences_without_effect_are_not_noted() {
        for line in ["X-Robots-Tag: index", "Content-Usage: train-ai=y", "TDM-Reservation: 0", "Link: </l>; rel=next"] {
            assert!(noted(200, &[line]).is_empty(), "{line}");
        }
        assert!(noted(200, &["crawler-price: USD 1"]).is_empty(), "a price counts only with status 402");
        assert!(noted(200, &["X-Robots-Tag: otherbot: noindex"]).is_empty(), "the rule is for another crawler");
    }

    #[test]
    fn price_counts_only_with_status_402() {
        let said = noted(402, &["crawler-price: USD 0.01"]);
        assert_eq!(
            (said.signals().collect::<Vec<_>>(), said.price.as_deref()),
            (vec![Signal::PaymentRequired], Some("USD 0.01"))
        );
        assert_eq!(noted(402, &["crawler-price: much"]).malformed, [Signal::PaymentRequired]);
        assert!(noted(402, &[]).payment_required);
    }

    #[test]
    fn charges_and_price_errors_are_noted() {
        let said = noted(200, &["crawler-charged: USD 0.01"]);
        assert_eq!((said.charged, said.price), (Money::parse("USD 0.01"), None));
        let said = noted(402, &["crawler-price: USD 0.02", "crawler-error: InvalidCrawlerMaxPrice"]);
        let signals: Vec<_> = said.signals().map(Signal::slug).collect();
        assert_eq!(said.crawler_error.as_deref(), Some("InvalidCrawlerMaxPrice"));
        assert_eq!(signals, ["payment-required", "crawler-error"]);
        assert_eq!(noted(200, &["crawler-charged: much"]).malformed, [Signal::Charged]);
        let twice = noted(200, &["crawler-charged: USD 0", "crawler-charged: USD 0.50"]);
        assert_eq!((twice.charged, twice.malformed), (None, vec![Signal::Charged]), "two amounts are ambiguous");
        let twice = noted(402, &["crawler-price: USD 0", "crawler-price: USD 0.50"]);
        assert_eq!((twice.price, twice.malformed), (None, vec![Signal::PaymentRequired]));
        assert_eq!(noted(400, &["crawler-error: a b"]).malformed, [Signal::CrawlerError]);
    }

    #[test]
    fn invalid_preferences_are_counted_and_ignored() {
        for (line, signal) in [
            ("X-Robots-Tag: \u{fc}, noindex\u{0}", None),
            ("X-Robots-Tag: unavailable_after: soon", Some(Signal::Usage(UsageField::XRobotsTag))),
            ("Content-Usage: train-ai=n, Nonsense!", Some(Signal::Usage(UsageField::ContentUsage))),
            ("Content-Usage: train-ai=no", Some(Signal::Usage(UsageField::ContentUsage))),
            ("TDM-Reservation: yes", Some(Signal::Usage(UsageField::TdmReservation))),
            ("Link: https://a.example/l; rel=license", Some(Signal::License)),
            ("Link: nonsense", None),
        ] {
            let said = noted(200, &[line]);
            assert_eq!(said.malformed, signal.into_iter().collect::<Vec<_>>(), "{line}");
            assert_eq!(said.signals().count(), 0, "{line}");
        }
        let many: Vec<_> = (0..100).map(|number| format!("X-Robots-Tag: noindex, x{number}")).collect();
        let said = noted(200, &many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((said.reserved.len(), said.malformed.len()), (16, 0), "at most 16 are shown");
        let said = noted(200, &["TDM-Reservation: yes", "Content-Usage: ?", "TDM-Reservation: no"]);
        assert_eq!(said.malformed.len(), 2, "each signal is counted once");
    }
}
