//! Limits how many long bodies of robots.txt and similar files are in memory at a time, from when they are read until they are parsed.
//! Whatever sites and other instances send, these bodies take at most `store.memory`, or the size of [`LEAST`] bodies if that is more. They
//! are not part of the memory that `store.memory` limits. Bodies that are just being decoded, and copies that have just arrived from the
//! fleet, add to that for a moment.

use super::fetch_error::{FetchError, own_limit};
use super::site_time::SiteTime;
use crate::config::Settings;
use crate::fair_places::{FairPlace, FairPlaces, Taker};
use crate::gate::compute::Workers;
use crate::gate::decoders::DECODERS_BUSY;
use crate::upstream::BodyStream;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, header};
use std::pin::pin;

/// The resources for reading a body: the places for long bodies, the threads that decode them, the client and site whose share of both is
/// used, and the site's time.
pub(super) type FetchRoom<'a> = (&'a LongBodies, &'a Workers, Taker, &'a SiteTime);

/// The places for long bodies.
pub(super) struct LongBodies(FairPlaces);

impl LongBodies {
    pub fn new(settings: &Settings) -> Self {
        Self(FairPlaces::new(most(settings)))
    }

    /// Applies limits that may have changed.
    pub fn resize(&self, settings: &Settings) {
        self.0.resize(most(settings));
    }

    /// Reads the body of an answer and decodes it, up to slightly more than `limit` bytes.
    pub async fn read(
        &self,
        mut body: BodyStream,
        headers: &HeaderMap,
        limit: usize,
        &(_, workers, taker, time): &FetchRoom<'_>,
    ) -> Result<Bytes, FetchError> {
        let (mut read, mut place) = (Vec::new(), None);
        while read.len() <= limit
            && let Some(piece) = body.chunk().await?
        {
            read.extend_from_slice(&piece);
            if read.len() > SHORT && place.is_none() {
                place = Some(self.place(taker, time).await?);
            }
        }
        let cut = read.len() > limit;
        if body.may_be_cut() {
            // Truncated pages are passed on, but a truncated robots.txt could lack rules.
            return Err("the answer ends without close_notify, and may be cut short".to_owned().into());
        }
        let lines = headers.get_all(header::CONTENT_ENCODING).iter();
        let codings = lines.map(|line| String::from_utf8_lossy(line.as_bytes())).collect::<Vec<_>>().join(",");
        let decode = async |read| {
            let decoded = time.stopped(pin!(workers.file(read, codings.clone(), limit, cut, taker))).await;
            decoded
                .ok_or_else(|| own_limit(&DECODERS_BUSY))?
                .map_err(|error| FetchError::Unreachable(error.to_string()))
        };
        let short = place.is_none().then(|| read.clone());
        let mut decoded = decode(read).await?;
        if decoded.len() > SHORT
            && let Some(read) = short
        {
            // Holds only the encoded body while waiting for a place.
            drop(decoded);
            place = Some(self.place(taker, time).await?);
            decoded = decode(read).await?;
        }
        Ok(match place {
            Some(place) => held(decoded, place),
            None => decoded.into(),
        })
    }

    /// Converts a copy from the fleet. A long copy keeps `place`, or else a free place, until it is dropped.
    pub fn hold(&self, copy: Vec<u8>, place: Option<FairPlace>, taker: Taker) -> Result<Bytes, Crowded> {
        match copy.len() > SHORT {
            true => Ok(held(copy, place.or_else(|| self.0.take(taker).now_or_never()).ok_or(Crowded)?)),
            false => Ok(copy.into()),
        }
    }

    /// Waits for a place; clients take turns.
    pub async fn place(&self, taker: Taker, time: &SiteTime) -> Result<FairPlace, FetchError> {
        let place = time.stopped(pin!(self.0.take(taker))).await;
        place.ok_or_else(|| {
            own_limit(&"too many long robots.txt files are being read; raise `store.memory` to read more at once")
        })
    }
}

/// Error: there is no free place for a long copy.
pub(super) struct Crowded;

/// A long body and its place.
struct LongBody {
    body: Box<[u8]>,
    _place: FairPlace,
}

impl AsRef<[u8]> for LongBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// A body that gives its place back when its last clone is dropped.
fn held(body: Vec<u8>, place: FairPlace) -> Bytes {
    Bytes::from_owner(LongBody { body: body.into(), _place: place })
}

/// Maximum number of long bodies at a time.
fn most(settings: &Settings) -> usize {
    let fit = settings.store.memory / settings.robots.max_size.max(1);
    usize::try_from(fit).unwrap_or(usize::MAX).clamp(LEAST, MOST)
}

/// Maximum size in bytes of a body that needs no place.
const SHORT: usize = 16 * 1024;
/// Minimum number of places: with fewer, a few sites that stall could hold up all others.
const LEAST: usize = 16;
const MOST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair_places::tests::all_that;
    use crate::policy::Refusal;
    use crate::policy::pace::ClientId;
    use std::time::Duration;
    use tokio::time::{Instant, timeout};

    const OWN: Duration = Duration::from_secs(30);

    /// One client may ask for long files of hundreds of sites at once.
    #[tokio::test(start_paused = true)]
    async fn long_body_waits_for_a_place_beyond_its_sites_time_but_not_for_other_clients() {
        let bodies = LongBodies::new(&Settings::parse("politely.yaml", "store: { memory: 8MiB }").unwrap());
        let (one, other) = (Taker::of(ClientId(1)), Taker::of(ClientId(2)));
        let mut held = all_that(&bodies.0, 1);
        assert_eq!(held.len(), LEAST / 2);
        let (began, all) = (Instant::now(), [10; 3].map(|left| SiteTime::new(Duration::from_secs(left), OWN)));
        let (mut first, mut last) = (pin!(bodies.place(one, &all[0])), pin!(bodies.place(one, &all[1])));
        assert!((&mut first).now_or_never().is_none() && (&mut last).now_or_never().is_none());
        assert!(timeout(Duration::from_secs(39), &mut first).await.is_err(), "no place is free");
        assert!(bodies.place(other, &all[2]).now_or_never().is_some_and(|place| place.is_ok()));
        held.pop();
        let place = first.now_or_never().expect("the first has its turn").unwrap_or_else(|error| panic!("{error:?}"));
        let refused = last.await.err();
        assert!(matches!(refused, Some(FetchError::NotAsked(Refusal::OwnLimit { .. }))), "{refused:?}");
        assert_eq!((began.elapsed().as_secs(), all[1].left().as_secs()), (40, 10));
        drop(place);
    }
}
