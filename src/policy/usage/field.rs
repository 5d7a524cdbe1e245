//! The fields of an answer about the use of its content, and how each is handled. Pure.

use crate::policy::RobotsOverride;
use crate::robots::{ProductToken, Purpose};
use std::time::SystemTime;

/// A field that can say no to a use, or a tag in a page's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UsageField {
    ContentUsage,
    ContentSignal,
    RobotsTag,
    XRobotsTag,
    TdmReservation,
    MetaRobots,
    MetaTdm,
}

/// How to treat refusals of a declared purpose, for each source of refusals. `Default` enforces all of them; the configuration's default
/// only reports refusals by licence files. `M`: in `hosts` an `Option`, where `None` stands for the mode of all hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "proxy", derive(serde::Deserialize), serde(deny_unknown_fields))]
pub struct UsageModes<M = RobotsOverride> {
    pub content_usage: M,
    pub content_signal: M,
    /// Robots-Tag and X-Robots-Tag.
    pub x_robots_tag: M,
    pub tdm_reservation: M,
    /// Tags in the head of the page itself.
    pub page: M,
    /// The site's tdmrep.json, which is read before a page is requested.
    pub tdmrep: M,
    /// The licence file. If robots.txt names it, it is also read before a page is requested; an answer may link to another one.
    pub license: M,
}

/// The crawler and the purposes for which an answer is read.
#[derive(Debug, Clone, Copy)]
pub struct Use<'a> {
    /// The declared purposes. Empty: nothing can be refused.
    pub purposes: &'a [Purpose],
    /// The names that scope Robots-Tag and X-Robots-Tag.
    pub product_tokens: &'a [ProductToken],
    pub modes: UsageModes,
    pub now: SystemTime,
}

/// The kinds of signals about the use of its content that an answer can give, well-formed or malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    Usage(UsageField),
    /// `Link: <…>; rel="license"`.
    License,
    /// Status 402.
    PaymentRequired,
    /// `crawler-charged`: the request was paid for.
    Charged,
    /// `crawler-error`: the payment was not accepted.
    CrawlerError,
}

impl UsageField {
    /// The fields of heads; the other variants are tags of pages.
    pub(super) const OF_HEADS: [Self; 5] =
        [Self::ContentUsage, Self::ContentSignal, Self::RobotsTag, Self::XRobotsTag, Self::TdmReservation];

    pub fn as_str(self) -> &'static str {
        self.names().0
    }

    /// The name in a sentence, and the label in metrics.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::ContentUsage => ("Content-Usage", "content-usage"),
            Self::ContentSignal => ("Content-Signal", "content-signal"),
            Self::RobotsTag => ("Robots-Tag", "robots-tag"),
            Self::XRobotsTag => ("X-Robots-Tag", "x-robots-tag"),
            Self::TdmReservation => ("TDM-Reservation", "tdm-reservation"),
            Self::MetaRobots => ("meta robots", "meta-robots"),
            Self::MetaTdm => ("meta tdm-reservation", "meta-tdm-reservation"),
        }
    }
}

impl UsageModes<Option<RobotsOverride>> {
    /// These modes; each missing one is taken from `before`.
    pub fn over(self, before: UsageModes) -> UsageModes {
        UsageModes {
            content_usage: self.content_usage.unwrap_or(before.content_usage),
            content_signal: self.content_signal.unwrap_or(before.content_signal),
            x_robots_tag: self.x_robots_tag.unwrap_or(before.x_robots_tag),
            tdm_reservation: self.tdm_reservation.unwrap_or(before.tdm_reservation),
            page: self.page.unwrap_or(before.page),
            tdmrep: self.tdmrep.unwrap_or(before.tdmrep),
            license: self.license.unwrap_or(before.license),
        }
    }
}

impl UsageModes {
    pub fn of(&self, field: UsageField) -> RobotsOverride {
        match field {
            UsageField::ContentUsage => self.content_usage,
            UsageField::ContentSignal => self.content_signal,
            UsageField::RobotsTag | UsageField::XRobotsTag => self.x_robots_tag,
            UsageField::TdmReservation => self.tdm_reservation,
            UsageField::MetaRobots | UsageField::MetaTdm => self.page,
        }
    }
}

impl Signal {
    pub const ALL: [Self; 11] = [
        Self::Usage(UsageField::ContentUsage),
        Self::Usage(UsageField::ContentSignal),
        Self::Usage(UsageField::RobotsTag),
        Self::Usage(UsageField::XRobotsTag),
        Self::Usage(UsageField::TdmReservation),
        Self::Usage(UsageField::MetaRobots),
        Self::Usage(UsageField::MetaTdm),
        Self::License,
        Self::PaymentRequired,
        Self::Charged,
        Self::CrawlerError,
    ];

    /// The label in metrics. Stable.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Usage(field) => field.names().1,
            Self::License => "license",
            Self::PaymentRequired => "payment-required",
            Self::Charged => "crawler-charged",
            Self::CrawlerError => "crawler-error",
        }
    }
}
