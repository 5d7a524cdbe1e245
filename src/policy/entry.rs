//! The known state of one authority's robots.txt (RFC 9309 §2.3.1), tdmrep.json or licence file. Pure data: `gate::robots` replaces it as
//! a whole, `policy::decide` reads it.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::Access;
use super::clipped;
use super::entity_tag;
use super::freshness::{CopyState, Freshness, LAST_GOOD_USE, RETRY_MAX, retry_in};
use crate::robots::{RobotsTxt, is_license_url};

/// The known state of an authority's file. The default means that the file was never fetched.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// The last conclusive answer.
    pub answer: Option<SiteAnswer>,
    /// The failures since the last conclusive answer. `None`: the last fetch was conclusive.
    pub trouble: Option<Box<Trouble>>,
    /// The first URL of a licence file that an answer of the site linked to, if robots.txt names none. The file applies only to answers
    /// that linked to it; the URL is kept in memory only.
    pub linked: Option<Box<str>>,
}

/// A conclusive answer.
#[derive(Debug, Clone)]
pub struct SiteAnswer {
    pub access: Access,
    /// HTTP status of the last response in the chain of redirects.
    pub status: u16,
    /// The first answer, if it rejected our request as malformed, so that this is the second answer.
    pub asked_again: Option<AskedAgain>,
    /// Whether the answer is from another host, to which this host redirects.
    pub is_foreign: bool,
    pub freshness: Freshness,
    /// Validators of the file for the next conditional request.
    pub validators: Validators,
}

/// A first answer whose status says that our request was at fault (400, 408, 412, 421, 426, 431, 494, 505): the file is then requested
/// again over a new HTTP/1.1 connection. Kept in memory only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedAgain {
    pub first_status: u16,
    /// The version of HTTP of the first request.
    pub first_version: HttpVersion,
}

/// The version of HTTP of a request.
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

/// The fields for revalidating a copy (RFC 9110 §8.8), as received. Both are in one string to save memory, as there may be a million
/// copies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validators(Option<Box<str>>);

impl Validators {
    /// Creates validators from the values of the two fields, which must not contain line ends. An empty value counts as missing.
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

    /// ETag and Last-Modified.
    pub fn both(&self) -> [Option<&[u8]>; 2] {
        [self.etag(), self.last_modified()].map(|value| value.map(str::as_bytes))
    }

    /// Whether a 304 with the validators `said` may confirm the file with these validators.
    pub fn are_confirmed_by(&self, said: &Self) -> bool {
        entity_tag::is_confirmed(self.both(), said.both())
    }

    /// Bytes on the heap.
    pub fn heap_size(&self) -> usize {
        self.0.as_ref().map_or(0, |both| both.len())
    }

    fn parts(&self) -> Option<(&str, &str)> {
        self.0.as_ref()?.split_once('\n')
    }
}

/// A series of failed fetches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// When the first fetch of the series failed.
    pub since: SystemTime,
    pub failures: u32,
    /// The time before which the file is not fetched again.
    pub retry_at: SystemTime,
    /// The last failure, as shown to people: `status 503`, `timed out after 10 s`.
    pub why: Box<str>,
}

impl SiteAnswer {
    /// An answer of the site itself, at the first attempt, without validators.
    pub fn new(access: Access, status: u16, freshness: Freshness) -> Self {
        let validators = Validators::default();
        SiteAnswer { access, status, asked_again: None, is_foreign: false, freshness, validators }
    }
}

impl Entry {
    /// The entry after a conclusive answer.
    pub fn answered(answer: SiteAnswer) -> Self {
        Self { answer: Some(answer), ..Self::default() }
    }

    /// The validators for a conditional request. Only a 200 has them, as a 304 stands for a 200 (RFC 9110 §13.1). After a failure the whole
    /// file is requested, as the failure may have been a 304 about another file.
    pub fn conditions(&self) -> Option<&Validators> {
        let answer = self.answer.as_ref().filter(|answer| answer.status == 200 && self.trouble.is_none())?;
        Some(&answer.validators).filter(|validators| validators.0.is_some())
    }

    /// The entry after a 304: the same file, with the lifetime that `freshness` computes from the old one. `None`: the 304 does not
    /// confirm the copy.
    pub fn confirmed(&self, validators: &Validators, freshness: impl FnOnce(Duration) -> Freshness) -> Option<Self> {
        let own = self.conditions().filter(|own| own.are_confirmed_by(validators))?;
        // A 304 may omit unchanged fields (RFC 9110 §15.4.5, RFC 9111 §3.2).
        let validators =
            Validators::new(validators.etag().or(own.etag()), validators.last_modified().or(own.last_modified()));
        let answer = self.answer.clone()?;
        Some(Self::answered(SiteAnswer { freshness: freshness(answer.freshness.lifetime()), validators, ..answer }))
    }

    /// The entry after an inconclusive fetch. `random` is from 0 to 1.
    pub fn failed(&self, now: SystemTime, why: &str, retry_after: Option<Duration>, random: f64) -> Self {
        let (since, before) = self.trouble.as_ref().map_or((now, 0), |trouble| (trouble.since, trouble.failures));
        let failures = before.saturating_add(1);
        // An earlier failure may have been dated by a clock that was ahead.
        let since = since.min(now);
        let retry_at = now + retry_in(failures, retry_after, random);
        let trouble = Trouble { since, failures, retry_at, why: clipped(why).into() };
        // During failures the copy's age counts, so its date must not be in the future.
        let answer =
            self.answer.clone().map(|answer| SiteAnswer { freshness: answer.freshness.sanitized(now), ..answer });
        Self { answer, trouble: Some(Box::new(trouble)), linked: None }
    }

    /// The part of the entry that the next fetch needs: the answer without the file.
    #[must_use]
    pub fn outline(&self) -> Self {
        let mut outline = self.clone();
        outline.answer.iter_mut().for_each(|answer| answer.access = Access::Missing);
        outline
    }

    /// Corrects a stored entry that a wrong clock may have dated: a date in the future becomes `now`, and a retry further away than any
    /// failure could set is due at once.
    #[must_use]
    pub fn sanitized(mut self, now: SystemTime) -> Self {
        if let Some(answer) = &mut self.answer {
            answer.freshness = answer.freshness.sanitized(now);
        }
        if let Some(trouble) = &mut self.trouble {
            trouble.since = trouble.since.min(now);
            if trouble.retry_at > now + RETRY_MAX {
                trouble.retry_at = now;
            }
        }
        self
    }

    /// The entry without the wait after a failure.
    #[must_use]
    pub fn due(&self, now: SystemTime) -> Self {
        let mut due = self.clone();
        if let Some(trouble) = &mut due.trouble {
            trouble.retry_at = trouble.retry_at.min(now);
        }
        due
    }

    /// Limits the freshness of an entry from another instance, whose settings may allow more.
    #[must_use]
    pub fn fresh_within(mut self, most: Duration) -> Self {
        if let Some(answer) = &mut self.answer {
            answer.freshness = answer.freshness.within(most);
        }
        self
    }

    /// The answer, and how it can be used now. `None`: there is no answer, or it cannot be used.
    pub fn usable(&self, now: SystemTime) -> Option<(&SiteAnswer, CopyState)> {
        let answer = self.answer.as_ref()?;
        let failing = self.trouble.is_some();
        let state = match answer.access {
            Access::Rules(_) | Access::Reservations(_) | Access::Licenses(_) => answer.freshness.state(failing, now),
            // While fetches fail, an outdated answer "no file" must not be used, as the site may have a file now.
            Access::Missing if failing && now >= answer.freshness.expires_at() => CopyState::Unusable,
            Access::Missing => answer.freshness.state(false, now),
        };
        (state != CopyState::Unusable).then_some((answer, state))
    }

    /// The file of the last answer, usable or not.
    pub fn robots_txt(&self) -> Option<&RobotsTxt> {
        match &self.answer.as_ref()?.access {
            Access::Rules(robots) => Some(robots),
            Access::Reservations(_) | Access::Licenses(_) | Access::Missing => None,
        }
    }

    /// Whether the site answers with an HTML page instead of a robots.txt.
    pub fn is_html(&self) -> bool {
        self.robots_txt().is_some_and(RobotsTxt::is_html)
    }

    /// URL of the licence file: the first URL that robots.txt names, or else the URL that an answer linked to.
    pub fn license_url(&self) -> Option<&str> {
        self.named_license().or(self.linked.as_deref())
    }

    /// URL of the licence file that robots.txt names for the whole site.
    pub fn named_license(&self) -> Option<&str> {
        self.robots_txt().and_then(RobotsTxt::license_url)
    }

    /// The entry with the URL of a licence file that an answer linked to. `None`: a URL is known already, or `url` is invalid.
    pub fn linking(&self, url: &str) -> Option<Self> {
        let is_news = self.license_url().is_none() && is_license_url(url);
        is_news.then(|| Self { linked: Some(url.into()), ..self.clone() })
    }

    /// The bytes of the file, if there is one.
    pub fn source(&self) -> Option<&[u8]> {
        self.answer.as_ref()?.access.source()
    }

    /// Whether each of these is malformed: the preferences in robots.txt, its licences, tdmrep.json, the licence file.
    pub fn malformed(&self) -> [bool; 4] {
        match self.answer.as_ref().map(|answer| &answer.access) {
            Some(Access::Rules(robots)) => [robots.has_unclear_usage(), robots.has_unclear_license(), false, false],
            Some(Access::Reservations(file)) => [false, false, file.fault().is_some(), false],
            Some(Access::Licenses(file)) => [false, false, false, file.fault().is_some()],
            Some(Access::Missing) | None => [false; 4],
        }
    }

    /// Whether the file may be fetched now: no wait after a failure is in force.
    pub fn may_fetch(&self, now: SystemTime) -> bool {
        self.trouble.as_ref().is_none_or(|trouble| trouble.left_alone_for(now).is_none())
    }
}

impl Trouble {
    /// Whether the failures have lasted for [`LAST_GOOD_USE`], the time for which a copy may be used while robots.txt is unreachable.
    pub fn is_long(&self, now: SystemTime) -> bool {
        now.duration_since(self.since).is_ok_and(|lasted| lasted >= LAST_GOOD_USE)
    }

    /// The remaining wait after a failure. A retry time further away than any failure sets comes from a clock that was ahead, and is
    /// ignored.
    pub fn left_alone_for(&self, now: SystemTime) -> Option<Duration> {
        self.retry_at.duration_since(now).ok().filter(|wait| !wait.is_zero() && *wait <= RETRY_MAX)
    }
}
