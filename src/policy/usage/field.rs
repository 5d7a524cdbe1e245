//! The fields of an answer about the use of its content, and how each is handled. Pure.

use crate::policy::RobotsOverride;
use crate::robots::{ProductToken, Purpose};
use std::time::SystemTime;

/// A field that can say no, or a tag in a page's head.
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

/// How an answer whose field says no is handled, for each of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageModes {
    pub content_usage: RobotsOverride,
    pub content_signal: RobotsOverride,
    /// Robots-Tag and X-Robots-Tag.
    pub x_robots_tag: RobotsOverride,
    pub tdm_reservation: RobotsOverride,
    /// What a page itself says in its head.
    pub page: RobotsOverride,
    /// The site's tdmrep.json, which is read before anything is asked for.
    pub tdmrep: RobotsOverride,
    /// The licence file that its robots.txt names, likewise.
    pub license: RobotsOverride,
}

impl Default for UsageModes {
    fn default() -> Self {
        let enforce = RobotsOverride::Enforce;
        UsageModes {
            content_usage: enforce,
            content_signal: enforce,
            x_robots_tag: enforce,
            tdm_reservation: enforce,
            page: enforce,
            tdmrep: enforce,
            // Whoever has agreed on its terms elsewhere is licensed.
            license: RobotsOverride::Report,
        }
    }
}

/// For whom and for which purposes an answer is read.
#[derive(Debug, Clone, Copy)]
pub struct Use<'a> {
    /// The declared purposes. Empty: nothing can be refused.
    pub purposes: &'a [Purpose],
    /// The names that scope Robots-Tag and X-Robots-Tag.
    pub product_tokens: &'a [ProductToken],
    pub modes: UsageModes,
    pub now: SystemTime,
}

/// What an answer can say about the use of its content, well formed or malformed.
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
    /// The fields of heads; the others are tags of pages.
    pub(super) const OF_HEADS: [Self; 5] =
        [Self::ContentUsage, Self::ContentSignal, Self::RobotsTag, Self::XRobotsTag, Self::TdmReservation];

    pub fn as_str(self) -> &'static str {
        self.names().0
    }

    /// In a sentence, and as a label in metrics.
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
