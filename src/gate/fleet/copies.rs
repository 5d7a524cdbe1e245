//! Copies of robots.txt at the server, and the right to fetch one, which one instance has at a time.

use super::link::Link;
use super::machine;
use super::{Fleet, Lost, Server, Way};
use crate::gate::store::snapshot;
use crate::policy::freshness::LAST_GOOD_USE;
use crate::policy::{Authority, Entry};
use redis::{Script, ScriptInvocation};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};
use tokio::time::sleep;

/// What becomes of the wish for a copy.
pub(in crate::gate) enum Claim<'f> {
    /// Here it is.
    Copy(Parcel),
    /// It is for this instance to fetch; the copy is to be renewed.
    Fetch(Right<'f>, Option<Parcel>),
}

/// A copy as it comes from the server.
pub(in crate::gate) struct Parcel {
    pub bytes: Vec<u8>,
    /// When it was put there, by our clock.
    pub sent: SystemTime,
}

/// The right to fetch one authority's robots.txt. Renewed by [`meanwhile`](Self::meanwhile), given back with
/// [`publish`](Self::publish); others have it soon after neither is done any more.
pub(in crate::gate) enum Right<'f> {
    Server { link: &'f Link, authority: String },
    Machine(machine::Right),
}

/// What is wanted of a copy at the server. Instants are milliseconds by its clock.
enum Wanted {
    /// It, if it is fresh or not older than that; else the right to fetch it.
    Look { since: u64 },
    /// It, if it is not older; else the right to fetch it.
    Anew { since: u64 },
    /// It, whatever its age.
    Take,
    /// The right for longer.
    Keep,
    /// Here it is, and nobody fetches it any more.
    Put { copy: Vec<u8>, fresh_for: Duration },
}

/// Now; 0 here it is, 1 fetch it, 2 another does, 3 done; for how long the other may be waited for, in milliseconds; the
/// copy.
type CopyAnswer = (u64, u8, i64, Vec<u8>);

impl Fleet {
    /// A copy that is fresh, or the right to fetch it; waits while another instance has that. `anew`: no copy will do
    /// that is from before now.
    pub async fn claim(&self, authority: &Authority, anew: bool) -> Result<Claim<'_>, Lost> {
        let authority = authority.to_string();
        let link = match &self.way {
            Way::Server(Server { link, .. }) => link,
            Way::Machine(machine) => {
                return Ok(match machine.claim(&authority, anew).await? {
                    machine::Claimed::Copy(copy) => Claim::Copy(copy),
                    machine::Claimed::Fetch(right, old) => Claim::Fetch(Right::Machine(right), old),
                });
            }
        };
        let (mut arrivals, mut since) = (self.arrivals.subscribe(), None);
        loop {
            let at = since.unwrap_or(NEVER);
            let wanted = if anew { Wanted::Anew { since: at } } else { Wanted::Look { since: at } };
            let mut changes = link.changes();
            // There is another connection: what was sent over the last one may be lost.
            let reconnected = async { _ = changes.changed().await };
            let (now, state, time, bytes) = wanted.ask(link, &authority).await?;
            let time = Duration::from_millis(u64::try_from(time).unwrap_or(0));
            match (state, Parcel::new(bytes, time)) {
                (0, Some(copy)) => return Ok(Claim::Copy(copy)),
                (1, copy) => return Ok(Claim::Fetch(Right::Server { link, authority }, copy)),
                _ => {
                    since = since.or(Some(now));
                    // What does not come, or is overlooked, only means to look again.
                    let arrived = async { while arrivals.recv().await.is_ok_and(|arrived| *arrived != *authority) {} };
                    tokio::select! { () = arrived => {}, () = reconnected => {}, () = sleep(time + AFTER) => {} }
                }
            }
        }
    }

    /// Leaves what this process has to the others of its machine, in which case nobody else is to be asked. False: there is
    /// a server, which may know more.
    pub async fn offer(&self, authority: &Authority, entry: &Entry) -> bool {
        let Way::Machine(machine) = &self.way else { return false };
        if let Ok(Some(right)) = machine.right(&authority.to_string()) {
            Right::Machine(right).publish(entry).await;
        }
        true
    }

    /// The copy that the server tells of, whatever its age.
    pub async fn take(&self, authority: &Authority) -> Option<Parcel> {
        let Way::Server(Server { link, .. }) = &self.way else { return None };
        let (_, _, age, bytes) = Wanted::Take.ask(link, &authority.to_string()).await.ok()?;
        Parcel::new(bytes, Duration::from_millis(u64::try_from(age).unwrap_or(0)))
    }

    /// A copy has arrived.
    pub fn arrived(&self, authority: &str) {
        // Nobody may wait for any.
        let _ = self.arrivals.send(authority.into());
    }
}

impl Parcel {
    /// None is sent as no bytes.
    fn new(bytes: Vec<u8>, age: Duration) -> Option<Self> {
        let sent = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        (!bytes.is_empty()).then_some(Self { bytes, sent })
    }
}

impl Wanted {
    async fn ask(&self, link: &Link, authority: &str) -> Result<CopyAnswer, Lost> {
        link.call(&self.invocation(authority, &link.me)).await
    }

    fn invocation(&self, authority: &str, me: &str) -> ScriptInvocation<'static> {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("copy.lua")));
        let mut call = SCRIPT.key(format!("politely:{{{authority}}}:robots"));
        call.key(format!("politely:{{{authority}}}:fetching")).arg(me);
        match self {
            Self::Look { since } => call.arg("look").arg(millis(HELD)).arg(*since),
            Self::Anew { since } => call.arg("anew").arg(millis(HELD)).arg(*since),
            Self::Take => call.arg("take").arg(0).arg(0),
            Self::Keep => call.arg("keep").arg(millis(HELD)),
            Self::Put { copy, fresh_for } => {
                call.arg("put").arg(millis(*fresh_for)).arg(&copy[..]).arg(millis(LAST_GOOD_USE))
            }
        };
        call
    }
}

impl Right<'_> {
    /// Does the work, and keeps the right while that takes.
    pub async fn meanwhile<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            let Self::Server { link, authority } = self else { return work.await };
            tokio::select! {
                done = &mut work => return done,
                () = sleep(HELD / 3) => {
                    // Whoever is cut off fetches on its own.
                    let _ = Wanted::Keep.ask(link, authority).await;
                }
            }
        }
    }

    /// Hands the copy to all.
    pub async fn publish(self, entry: &Entry) {
        let now = SystemTime::now();
        let until = match (&entry.trouble, &entry.answer) {
            (Some(trouble), _) => trouble.retry_at,
            (None, Some(answer)) => answer.freshness.refresh_at(),
            (None, None) => now,
        };
        match self {
            Self::Server { link, authority } => {
                let Some(copy) = snapshot::pack(entry, now) else { return };
                let fresh_for = until.duration_since(now).unwrap_or_default();
                let _ = Wanted::Put { copy, fresh_for }.ask(link, &authority).await;
            }
            Self::Machine(right) => right.publish(entry, until),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("no duration here is that long")
}

/// Later than any copy; a number that the script can hold.
const NEVER: u64 = 1 << 52;
/// For how long the right outlives its instance.
const HELD: Duration = Duration::from_secs(5);
/// Looking again a little too early would find the right still held.
const AFTER: Duration = Duration::from_millis(5);
