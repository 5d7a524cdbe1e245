//! Copies of robots.txt and similar files in the fleet, and the right to fetch one, which one instance holds at a time.

use super::link::ServerLink;
use super::machine::Machine;
use super::reach::ServerLost;
use super::{Fleet, scripts};
use crate::gate::store::{CopyTimes, Store, snapshot};
use crate::policy::Entry;
use crate::policy::freshness::LAST_GOOD_USE;
use crate::policy::site_file::SiteFileName;
use redis::ScriptInvocation;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

/// Which copies a claim accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) enum Acceptable {
    /// An outdated copy is better than waiting for another instance.
    Outdated,
    Fresh,
    /// Only copies made from now on.
    Anew,
}

/// The result of a claim for a copy.
pub(in crate::gate) enum Claim {
    /// A usable copy.
    Copy(Parcel),
    /// There is a usable copy in the store.
    Stored,
    /// An outdated copy, which another instance renews.
    Outdated(Parcel),
    /// This instance has to fetch the file, or to revalidate the copy, if there is one.
    Fetch(Right, Option<Parcel>),
}

/// A packed copy on its way between instances.
pub(in crate::gate) struct Parcel {
    pub bytes: Vec<u8>,
    /// When the copy was stored, by our clock.
    pub sent: SystemTime,
}

impl Parcel {
    /// Makes a parcel, unless the bytes are empty, which means no copy. `age`: in milliseconds.
    fn new(bytes: Vec<u8>, age: u64) -> Option<Self> {
        let sent = SystemTime::now().checked_sub(Duration::from_millis(age)).unwrap_or(SystemTime::UNIX_EPOCH);
        (!bytes.is_empty()).then_some(Self { bytes, sent })
    }
}

/// The right to fetch one authority's file. At a server, [`meanwhile`](Self::meanwhile) renews it, and [`publish`](Self::publish) gives it
/// back with the copy. It is given back when it is dropped, and expires if that fails.
pub(in crate::gate) struct Right {
    fleet: Arc<Fleet>,
    name: String,
    /// Tells the rights of this instance apart.
    number: u64,
    /// When the server last answered the claim, by its clock in milliseconds and by ours. From this follows the copy's date by the server's
    /// clock, however late the copy is sent.
    granted: (u64, SystemTime),
    holder: Holder,
}

/// Who is told when a right is given back.
enum Holder {
    /// The server may have given the right, even if its answer has not arrived.
    Server,
    /// The shared state of this machine.
    Machine(Arc<Machine>),
    /// Nobody: the right was given back, or belongs to another instance or process, for which this one does not wait.
    Nobody,
}

/// The answer of `copy.lua`: the state; in milliseconds the copy's age, how long to wait, and the server's time; and the copy.
type CopyAnswer = (u8, u64, u64, u64, Vec<u8>);

impl Fleet {
    /// Returns a copy, or the right to fetch one. Waits while another instance has that right, at most for `patience`; by default
    /// [`FETCH_LASTS`] for another process, and until its right ends for another instance.
    pub async fn claim(
        self: &Arc<Self>,
        name: SiteFileName<'_>,
        accepted: Acceptable,
        patience: Option<Duration>,
    ) -> Result<Claim, ServerLost> {
        let (mut arrivals, began) = (self.arrivals.subscribe(), Instant::now());
        let (name, anew) = (name.to_string(), accepted == Acceptable::Anew);
        loop {
            let right = |holder| {
                let (fleet, name, granted) = (self.clone(), name.clone(), (0, SystemTime::now()));
                Right { fleet, name, number: self.rights.fetch_add(1, Ordering::Relaxed), granted, holder }
            };
            // How long to wait before the server or the store is asked again.
            let busy = match self.copies() {
                Some(link) => {
                    let (wanted, longest) = (if anew { "anew" } else { "look" }, link.longest_copy());
                    let mut right = right(Holder::Server);
                    let (key, since) = ((&*name, right.number), millis(began.elapsed()));
                    let asked = link.copy(key, |call| call.arg(wanted).arg(longest).arg(since).arg(millis(HELD)));
                    let (state, age, wait, now, bytes) = asked.await?;
                    let copy = Parcel::new(bytes, age);
                    right.granted = (now, SystemTime::now());
                    if state == GRANTED {
                        return Ok(Claim::Fetch(right, copy));
                    }
                    right.holder = Holder::Nobody;
                    let left = patience.unwrap_or(Duration::MAX).saturating_sub(began.elapsed());
                    match copy {
                        Some(copy) if state == HERE => return Ok(Claim::Copy(copy)),
                        Some(copy) if accepted == Acceptable::Outdated => return Ok(Claim::Outdated(copy)),
                        old if left.is_zero() => return Ok(Claim::Fetch(right, old)),
                        _ => left.min(Duration::from_millis(wait) + AFTER),
                    }
                }
                None => {
                    let machine = self.machine.machine();
                    // Takes the right before looking in the store, so that no process writes a copy in between.
                    let free = machine.take_right(&name).then(|| right(Holder::Machine(machine.clone())));
                    let (age, times) = (began.elapsed(), self.store.times(&name).await);
                    if times.is_some_and(|times| times.are_usable(anew, age)) {
                        return Ok(Claim::Stored);
                    }
                    if age >= LATE {
                        let what_waits = format!("while it fetches {name}: requests that need it");
                        machine.warn_of_stopped(machine.id(&name), &what_waits);
                    }
                    // A second fetch is better than none: the process that holds the right may be suspended.
                    if let Some(right) =
                        free.or_else(|| (age >= patience.unwrap_or(FETCH_LASTS)).then(|| right(Holder::Nobody)))
                    {
                        return Ok(Claim::Fetch(right, None));
                    }
                    LOOK_EVERY
                }
            };
            // If the message that announces the copy is lost, the store and the server are asked again after `busy`.
            let is_other = |arrived: &Arc<str>| !arrived.is_empty() && **arrived != *name;
            let arrived = async { while arrivals.recv().await.is_ok_and(|arrived| is_other(&arrived)) {} };
            tokio::select! { () = arrived => {}, () = sleep(busy) => {} }
        }
    }

    /// Whether there is a server, which may have newer copies than this machine.
    pub fn has_server(&self) -> bool {
        self.servers.is_some()
    }

    /// The server's copy, whatever its age.
    pub async fn take(&self, name: SiteFileName<'_>) -> Option<Parcel> {
        let (link, name) = (self.copies()?, name.to_string());
        let taken = link.copy((&name, 0), |call| call.arg("take").arg(link.longest_copy()).arg(0)).await;
        let (_, age, .., bytes) = taken.ok()?;
        Parcel::new(bytes, age)
    }
}

impl ServerLink {
    /// Calls the script `copy.lua` for the file `name` and the right with this number. `wanted`: appends the command and its arguments to
    /// the call.
    async fn copy(
        &self,
        (name, right): (&str, u64),
        wanted: impl for<'a> FnOnce(&'a mut ScriptInvocation<'static>) -> &'a mut ScriptInvocation<'static>,
    ) -> Result<CopyAnswer, ServerLost> {
        let mut call = scripts::COPY.key(format!("politely:{{{name}}}:copy"));
        wanted(call.key(format!("politely:{{{name}}}:fetch")).arg(format!("{}:{right}", self.me)));
        self.call(&call).await
    }
}

impl Right {
    /// Does the work, and keeps the right meanwhile.
    pub async fn meanwhile<T>(&self, work: impl Future<Output = T>) -> T {
        let keep = async {
            let Some(link) = self.fleet.copies() else { return std::future::pending().await };
            loop {
                sleep(HELD / 3).await;
                // If this fails, the instance is partitioned and fetches on its own. Boxed, as most fetches end before this call.
                let _ = Box::pin(link.copy((&self.name, self.number), |call| call.arg("keep").arg(millis(HELD)))).await;
            }
        };
        tokio::select! { done = work => done, never = keep => never }
    }

    /// Publishes the copy in the background, and gives the right back with it. Other instances wait for that; if it takes too long, the
    /// next request fetches the file. Without a server, returns the right, to be given back when the store has the copy, where the other
    /// processes of this machine find it. `is_news`: others may have a copy with another content.
    pub fn publish(self, entry: Arc<Entry>, is_news: bool) -> Option<Self> {
        if !self.fleet.has_server() {
            return Some(self);
        }
        drop(tokio::spawn(timeout(HELD, self.put(entry, is_news))));
        None
    }

    /// Gives the right back once the store has the copy.
    pub async fn give_back(self, store: Arc<Store>) {
        store.written(&self.name).await;
    }

    /// Sends the copy, retrying while the server is unreachable: other instances wait until the right expires.
    async fn put(mut self, entry: Arc<Entry>, is_news: bool) {
        let Some(link) = self.fleet.copies() else { return };
        let now = SystemTime::now();
        let Some((mut copy, file)) = snapshot::pack(&entry, now) else { return };
        let mut file = snapshot::lacks_file(&copy).zip(file);
        if let Some((_, short)) = file.take_if(|(_, file)| file.len() <= SHORT) {
            copy.extend(short);
        }
        let fresh_for = millis(fresh_until(&entry).duration_since(now).unwrap_or_default());
        let times = CopyTimes::of(&entry);
        // The entry is dropped, so that it can be evicted while this waits for the server.
        drop(entry);
        let (granted, since) = self.granted;
        let on_server = |time: SystemTime| granted + millis(time.duration_since(since).unwrap_or_default());
        let at = on_server(now);
        // When the site was asked. For a failure it is unknown.
        let asked = times.validated_at.filter(|_| !times.has_failed).map_or(granted, on_server);
        loop {
            let sent = async {
                if let Some((name, file)) = &file {
                    link.keep_file(*name, file).await?;
                }
                let put = link.copy((&self.name, self.number), |call| {
                    let call = call.arg("put").arg(fresh_for).arg(&copy[..]).arg(millis(LAST_GOOD_USE));
                    call.arg(at).arg(asked).arg(u8::from(is_news))
                });
                put.await
            };
            match sent.await {
                Ok((state, ..)) => {
                    if state == OUTDATED {
                        link.copy_came(&self.name);
                    }
                    self.holder = Holder::Nobody;
                    // A request of this instance may wait for the end of this right.
                    return self.fleet.arrived(&self.name);
                }
                Err(ServerLost) => _ = tokio::join!(sleep(AGAIN), link.is_there()),
            }
        }
    }
}

impl Drop for Right {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.holder, Holder::Nobody) {
            Holder::Nobody => {}
            Holder::Machine(machine) => machine.give_right(&self.name),
            Holder::Server => {
                // Without a runtime, the program ends.
                let Ok(runtime) = Handle::try_current() else { return };
                let (fleet, name, number) = (self.fleet.clone(), std::mem::take(&mut self.name), self.number);
                runtime.spawn(async move {
                    if let Some(link) = fleet.copies() {
                        // If this fails, the right expires.
                        let _ = link.copy((&name, number), |call| call.arg("give")).await;
                    }
                    fleet.arrived(&name);
                });
            }
        }
    }
}

fn fresh_until(entry: &Entry) -> SystemTime {
    match (&entry.trouble, &entry.answer) {
        (Some(trouble), _) => trouble.retry_at,
        (None, Some(answer)) => answer.freshness.refresh_at(),
        (None, None) => SystemTime::now(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.min(FAR).as_millis()).expect("a year fits")
}

/// The script's answers: here is the copy; the right is given; there is a newer copy.
const HERE: u8 = 0;
const GRANTED: u8 = 1;
const OUTDATED: u8 = 4;
/// Maximum size in bytes of a packed file that is stored with each copy: a separate key would take as much memory.
const SHORT: usize = 128;
/// Upper limit of the times given to the script.
const FAR: Duration = Duration::from_secs(366 * 24 * 3600);
/// Time after which a right expires unless it is renewed.
const HELD: Duration = Duration::from_secs(5);
/// Margin after the expected end of another instance's right: a call that is a little too early would find the right still held.
const AFTER: Duration = Duration::from_millis(5);
const AGAIN: Duration = Duration::from_millis(50);
/// Interval for polling this machine's store for a copy.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Wait after which a suspended process that holds the right is logged. Most fetches take less time.
pub(in crate::gate) const LATE: Duration = Duration::from_secs(2);
/// Time within which nearly all fetches end, including redirects.
const FETCH_LASTS: Duration = Duration::from_secs(60);
