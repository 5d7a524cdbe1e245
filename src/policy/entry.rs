//! What is known of one authority's robots.txt (RFC 9309 §2.3.1), or of another file of its kind. Pure data: `gate::robots` swaps it whole,
//! `policy::decide` reads it.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::Access;
use super::clipped;
use super::freshness::{CopyState, Freshness, LAST_GOOD_USE, RETRY_MAX, retry_in};
use crate::robots::{RobotsTxt, RslFile, TdmRep, is_license_url};

/// An authority's state. The default is an authority never asked.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// The last answer that settled what may be crawled.
    pub answer: Option<SiteAnswer>,
    /// All fetches since have failed.
    pub trouble: Option<Box<Trouble>>,
}

/// A settling answer.
#[derive(Debug, Clone)]
pub struct SiteAnswer {
    pub access: Access,
    /// HTTP status of the last response in the chain of redirects.
    pub status: u16,
    /// It is the second answer, as the first one found fault with our message.
    pub asked_again: Option<AskedAgain>,
    /// It is another host's, to which this one redirects.
    pub is_foreign: bool,
    pub freshness: Freshness,
    /// Of a file: for the next conditional request.
    pub validators: Validators,
}

/// A first answer whose status says that our own message was at fault (400, 408, 412, 421, 426, 431, 494, 505): robots.txt
/// is asked for once more, over a fresh HTTP/1.1 connection. Known until the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedAgain {
    pub first_status: u16,
    /// What the first one was asked over.
    pub first_version: HttpVersion,
}

/// The version of HTTP in which something was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    Http1,
    Http2,
}

impl fmt::Display for HttpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        })
    }
}

/// The fields by which a copy is revalidated (RFC 9110 §8.8), as they came: both in one text, as a million of them are
/// held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validators(Option<Box<str>>);

impl Validators {
    /// Values of fields, which have no line ends. An empty one is none.
    pub fn new(etag: Option<&str>, last_modified: Option<&str>) -> Self {
        match (etag.unwrap_or_default(), last_modified.unwrap_or_default()) {
            ("", "") => Self(None),
            (etag, modified) => Self(Some(format!("{etag}\n{modified}").into())),
        }
    }

    pub fn etag(&self) -> Option<&str> {
        self.parts().map(|(etag, _)| etag).filter(|etag| !etag.is_empty())
    }

    pub fn last_modified(&self) -> Option<&str> {
        self.parts().map(|(_, modified)| modified).filter(|modified| !modified.is_empty())
    }

    /// Bytes on the heap.
    pub fn heap_size(&self) -> usize {
        self.0.as_ref().map_or(0, |both| both.len())
    }

    fn parts(&self) -> Option<(&str, &str)> {
        self.0.as_ref()?.split_once('\n')
    }
}

/// A row of failed fetches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// When the first of them failed.
    pub since: SystemTime,
    pub failures: u32,
    /// Left alone until then.
    pub retry_at: SystemTime,
    /// The last failure, for people: `status 503`, `timed out after 10 s`.
    pub why: Box<str>,
}

impl SiteAnswer {
    /// The site's own, at the first try, without anything to revalidate it by.
    pub fn new(access: Access, status: u16, freshness: Freshness) -> Self {
        let validators = Validators::default();
        SiteAnswer { access, status, asked_again: None, is_foreign: false, freshness, validators }
    }
}

impl Entry {
    /// After an answer that settles what may be crawled.
    pub fn answered(answer: SiteAnswer) -> Self {
        Self { answer: Some(answer), trouble: None }
    }

    /// After a 304: the same file, good for longer. `None` if there is no copy that could have been confirmed.
    pub fn confirmed(&self, freshness: Freshness, validators: Validators) -> Option<Self> {
        let answer = self.answer.as_ref()?;
        // A 304 may leave out what has not changed (RFC 9110 §15.4.5).
        let old = &answer.validators;
        let validators =
            Validators::new(validators.etag().or(old.etag()), validators.last_modified().or(old.last_modified()));
        Some(Self::answered(SiteAnswer { freshness, validators, ..answer.clone() }))
    }

    /// After a fetch that settles nothing. `random` is from 0 to 1.
    pub fn failed(&self, now: SystemTime, why: &str, retry_after: Option<Duration>, random: f64) -> Self {
        let (since, before) = self.trouble.as_ref().map_or((now, 0), |trouble| (trouble.since, trouble.failures));
        let failures = before.saturating_add(1);
        // A clock that was ahead may have dated what came before.
        let since = since.min(now);
        let retry_at = now + retry_in(failures, retry_after, random);
        let trouble = Trouble { since, failures, retry_at, why: clipped(why).into() };
        // From here on the copy's age counts, which must not begin in the future.
        let answer =
            self.answer.clone().map(|answer| SiteAnswer { freshness: answer.freshness.believed(now), ..answer });
        Self { answer, trouble: Some(Box::new(trouble)) }
    }

    /// As it is to be taken from where it was kept, maybe under a clock that was wrong: no age is negative, and a next
    /// attempt that is further away than any can be is due.
    #[must_use]
    pub fn believed(mut self, now: SystemTime) -> Self {
        if let Some(answer) = &mut self.answer {
            answer.freshness = answer.freshness.believed(now);
        }
        if let Some(trouble) = &mut self.trouble {
            trouble.since = trouble.since.min(now);
            if trouble.retry_at > now + RETRY_MAX {
                trouble.retry_at = now;
            }
        }
        self
    }

    /// The same, not left alone any longer after a failure.
    #[must_use]
    pub fn due(&self, now: SystemTime) -> Self {
        let mut due = self.clone();
        if let Some(trouble) = &mut due.trouble {
            trouble.retry_at = trouble.retry_at.min(now);
        }
        due
    }

    /// As an instance takes it from another, which may have kept it for longer.
    #[must_use]
    pub fn fresh_within(mut self, most: Duration) -> Self {
        if let Some(answer) = &mut self.answer {
            answer.freshness = answer.freshness.within(most);
        }
        self
    }

    /// The answer, and how far it can be used now; `None` if it cannot, or there is none.
    pub fn usable(&self, now: SystemTime) -> Option<(&SiteAnswer, CopyState)> {
        let answer = self.answer.as_ref()?;
        let failing = self.trouble.is_some();
        let state = match answer.access {
            Access::Rules(_) | Access::Reservations(_) | Access::Licenses(_) => answer.freshness.state(failing, now),
            // That there was no file once is no copy to use while it is unknown whether there is one now.
            Access::Missing if failing && now >= answer.freshness.expires_at() => CopyState::Unusable,
            Access::Missing => answer.freshness.state(false, now),
        };
        match state {
            CopyState::Fresh | CopyState::Refresh => Some((answer, state)),
            CopyState::Unusable => None,
        }
    }

    /// The file of the last answer, usable or not.
    pub fn robots_txt(&self) -> Option<&RobotsTxt> {
        match &self.answer.as_ref()?.access {
            Access::Rules(robots) => Some(robots),
            Access::Reservations(_) | Access::Licenses(_) | Access::Missing => None,
        }
    }

    /// Whether an HTML page stands in the place of robots.txt.
    pub fn is_html(&self) -> bool {
        self.robots_txt().is_some_and(RobotsTxt::is_html)
    }

    /// The same of a tdmrep.json.
    pub fn tdm_rep(&self) -> Option<&TdmRep> {
        match &self.answer.as_ref()?.access {
            Access::Reservations(file) => Some(file),
            Access::Rules(_) | Access::Licenses(_) | Access::Missing => None,
        }
    }

    /// The same of a licence file.
    pub fn rsl(&self) -> Option<&RslFile> {
        match &self.answer.as_ref()?.access {
            Access::Licenses(file) => Some(file),
            Access::Rules(_) | Access::Reservations(_) | Access::Missing => None,
        }
    }

    /// Where its licence file is, of a robots.txt: the first that is named.
    pub fn license_url(&self) -> Option<&str> {
        self.robots_txt()?.licenses().find(|url| is_license_url(url))
    }

    /// The bytes of whatever file there is.
    pub fn source(&self) -> Option<&[u8]> {
        self.answer.as_ref()?.access.source()
    }

    /// Whether nobody understands something of the file: preferences in robots.txt, licences in it, tdmrep.json, the licence file.
    pub fn malformed(&self) -> [bool; 4] {
        let robots = self.robots_txt();
        [
            robots.is_some_and(RobotsTxt::has_unclear_usage),
            robots.is_some_and(|file| !file.licenses().all(is_license_url)),
            self.tdm_rep().is_some_and(|file| file.fault().is_some()),
            self.rsl().is_some_and(|file| file.fault().is_some()),
        ]
    }

    /// Whether it may be fetched, if there is cause to: not while it is left alone after a failure.
    pub fn may_fetch(&self, now: SystemTime) -> bool {
        self.trouble.as_ref().is_none_or(|trouble| trouble.left_alone_for(now).is_none())
    }
}

impl Trouble {
    /// Whether it has lasted for as long as a good copy would have been used.
    pub fn is_long(&self, now: SystemTime) -> bool {
        now.duration_since(self.since).is_ok_and(|lasted| lasted >= LAST_GOOD_USE)
    }

    /// For how long the site is left alone still. What is further away than any failure leaves it alone was dated by a
    /// clock that was ahead, and holds nobody back.
    pub fn left_alone_for(&self, now: SystemTime) -> Option<Duration> {
        self.retry_at.duration_since(now).ok().filter(|wait| !wait.is_zero() && *wait <= RETRY_MAX)
    }
}
