//! The fleet that the processes of one machine are: all that use one store keep one pace for each host and fetch each
//! robots.txt once (SEMANTICS §5, docs/fleet.md).
//!
//! Whoever has the lock on the store's directory is the *keeper*: it keeps the turns and the rights to fetch in its
//! memory, and answers the other processes on a socket there. Their part, and the keeper's own, is that of any instance in
//! a fleet. A keeper without others asks nobody for anything. When it is gone, so is its lock: another has it within
//! milliseconds, and counts every delay as owed once more, as nobody knows what the last one had just started.

mod keeper;
mod member;
mod place;
mod turns;
mod wire;

pub(super) use wire::{CopyAnswer, Wanted};

use super::{LeaseRequest, LeaseStatus, Lost, Message, Reach};
use crate::policy::pace::Debt;
use keeper::Keeper;
use member::Member;
use parking_lot::Mutex;
use place::{Lock, MeetingPlace};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout, timeout_at};

/// This process's part in it.
pub(super) struct Machine {
    inner: Arc<Inner>,
    runs: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    place: MeetingPlace,
    /// Nobody owes more.
    longest: Duration,
    /// [`WAITING`], [`SOLE`], [`PARTED`], [`NOBODY`]; else the number of the connection, the keeper's own included.
    state: AtomicU64,
    made: AtomicU64,
    settled_at: Mutex<Option<Instant>>,
    unheard_until: Mutex<Option<Instant>>,
    /// Processes that share, when last seen.
    members: Arc<AtomicU32>,
    role: watch::Sender<Role>,
    messages: UnboundedSender<Message>,
    needs: UnboundedSender<Need>,
}

#[derive(Clone)]
enum Role {
    None,
    Keeper(Arc<Keeper>),
    Member(Arc<Member>),
}

/// What the keeper needs of the rest of its process.
pub(in crate::gate) enum Need {
    /// All that is owed is to be told to the fleet.
    Told(oneshot::Sender<()>),
    /// What is kept of an authority's robots.txt.
    Copy { authority: String, answer: oneshot::Sender<Option<Copy>> },
    /// Another process has fetched this.
    Keep { authority: String, copy: Vec<u8>, done: oneshot::Sender<()> },
    /// Another process owes this.
    Owed { key: String, debt: Debt },
    /// The store is this process's to have, and is to be opened.
    Store(oneshot::Sender<()>),
}

/// A copy of robots.txt, to be sent.
pub(in crate::gate) struct Copy {
    /// When it was fetched or confirmed: milliseconds since 1970.
    pub at: u64,
    pub is_fresh: bool,
    pub snapshot: Vec<u8>,
}

impl Machine {
    /// `None`: there is no place to meet, which has been told. To be called within a runtime. `longest`: nobody owes more.
    pub fn open(
        directory: &Path,
        longest: Duration,
        messages: UnboundedSender<Message>,
        needs: UnboundedSender<Need>,
    ) -> Option<Self> {
        let place = MeetingPlace::open(directory).inspect_err(|error| tell(directory, &error.to_string())).ok()?;
        let inner = Arc::new(Inner {
            place,
            longest,
            state: AtomicU64::new(WAITING),
            made: AtomicU64::new(FIRST_LINK),
            settled_at: Mutex::default(),
            unheard_until: Mutex::default(),
            members: Arc::new(AtomicU32::new(2)),
            role: watch::Sender::new(Role::None),
            messages,
            needs,
        });
        let runs = tokio::spawn(inner.clone().run());
        Some(Self { inner, runs: Mutex::new(Some(runs)) })
    }

    /// Returns when it is known how this process stands.
    pub async fn tried(&self) {
        let mut roles = self.inner.role.subscribe();
        while self.inner.state.load(Ordering::Acquire) == WAITING && roles.changed().await.is_ok() {}
    }

    #[inline]
    pub fn reach(&self) -> Reach {
        match self.inner.state.load(Ordering::Acquire) {
            // Soon another keeps the turns, or this process does.
            WAITING => Reach::default(),
            SOLE => Reach { is_sole: true, ..Reach::default() },
            NOBODY => Reach { is_sole: true, unheard_until: *self.inner.unheard_until.lock(), ..Reach::default() },
            PARTED => {
                let alone = Some(self.inner.members.load(Ordering::Relaxed).max(2));
                Reach { alone, unheard_until: *self.inner.unheard_until.lock(), ..Reach::default() }
            }
            link => Reach { link, settled_at: *self.inner.settled_at.lock(), ..Reach::default() },
        }
    }

    /// Asks for a key's lease, or renews or returns it.
    pub async fn lease(&self, key: &str, request: &LeaseRequest) -> Result<LeaseStatus, Lost> {
        let ask = |role| async move {
            match role {
                Role::None => Err(Lost),
                Role::Keeper(keeper) => Ok(keeper.lease(keeper::SELF, key, request, Instant::now())),
                Role::Member(member) => member.lease(key, request).await,
            }
        };
        self.inner.ask(ask).await
    }

    /// Asks for a copy of robots.txt, or for the right to fetch it.
    pub async fn copy(&self, authority: &str, wanted: Wanted) -> Result<CopyAnswer, Lost> {
        let ask = |role| {
            let wanted = wanted.clone();
            async move {
                match role {
                    Role::None => Err(Lost),
                    Role::Keeper(keeper) => Ok(keeper.copy(keeper::SELF, authority, wanted).await),
                    Role::Member(member) => member.copy(authority, wanted).await,
                }
            }
        };
        self.inner.ask(ask).await
    }

    /// Whether the others ask this process.
    pub fn is_keeper(&self) -> bool {
        matches!(&*self.inner.role.borrow(), Role::Keeper(_))
    }

    /// Another may take its place.
    pub async fn leave(&self) {
        let runs = self.runs.lock().take();
        if let Some(runs) = runs {
            runs.abort();
            // It has been cut off.
            let _ = runs.await;
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(runs) = self.runs.lock().take() {
            runs.abort();
        }
    }
}

impl Inner {
    /// One answer within [`PATIENCE`], from another keeper if the first is gone.
    async fn ask<T, A: Future<Output = Result<T, Lost>>>(&self, ask: impl Fn(Role) -> A) -> Result<T, Lost> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut roles = self.role.subscribe();
        while !matches!(self.state.load(Ordering::Acquire), PARTED | NOBODY) {
            let role = roles.borrow_and_update().clone();
            if let Ok(answer) = timeout_at(deadline, ask(role)).await.map_err(|_| Lost)? {
                return Ok(answer);
            }
            timeout_at(deadline, roles.changed()).await.map_err(|_| Lost)?.map_err(|_| Lost)?;
        }
        Err(Lost)
    }

    /// Keeps the turns, or asks whoever does; for ever.
    async fn run(self: Arc<Self>) {
        let (mut has_shared, mut is_parted) = (false, false);
        let mut since = Instant::now();
        loop {
            let why = match self.place.lock() {
                Ok(Some(lock)) => {
                    let seat = Seat { place: &self.place, _lock: lock };
                    self.is_over(&mut is_parted);
                    // Who was killed may have done so a moment ago.
                    let takes_over = has_shared || self.place.is_left();
                    match self.place.listen() {
                        Ok(listener) => self.preside(&listener, takes_over).await,
                        Err(error) => {
                            tell(self.place.path(), &error.to_string());
                            *self.unheard_until.lock() = takes_over.then(Instant::now);
                            self.stand(NOBODY, Role::None);
                        }
                    }
                    // Others are not to find it free.
                    std::future::pending::<()>().await;
                    drop(seat);
                    return;
                }
                Ok(None) => match timeout(PATIENCE, self.belong(&mut has_shared)).await {
                    Ok(Ok(member)) => {
                        self.is_over(&mut is_parted);
                        let why = member.await;
                        since = Instant::now();
                        self.stand(WAITING, Role::None);
                        why
                    }
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("no answer within {PATIENCE:?}"),
                },
                Err(error) => {
                    tell(self.place.path(), &error.to_string());
                    *self.unheard_until.lock() = has_shared.then(Instant::now);
                    return self.stand(NOBODY, Role::None);
                }
            };
            // Whoever has the lock may be about to listen, or to end.
            if since.elapsed() > HANDOVER && !std::mem::replace(&mut is_parted, true) {
                let place = self.place.path().display();
                tracing::warn!(
                    "another politely has the lock on {place} and does not answer ({why}): this one keeps each delay as many \
                     times longer as there are, until it does"
                );
                // What the other has started nobody knows.
                has_shared = true;
                *self.unheard_until.lock() = Some(Instant::now());
                self.stand(PARTED, Role::None);
            }
            sleep(if is_parted { LOOK_EVERY } else { AGAIN }).await;
        }
    }

    fn is_over(&self, is_parted: &mut bool) {
        if std::mem::take(is_parted) {
            let place = self.place.path().display();
            tracing::info!("the politely processes that meet in {place} keep one pace again");
        }
    }

    /// Asks whoever has the lock, for as long as what is returned runs; it says why it ended.
    async fn belong(&self, has_shared: &mut bool) -> std::io::Result<impl Future<Output = String>> {
        let stream = self.place.connect().await?;
        let (member, run) = Member::join(stream, self.messages.clone(), self.members.clone()).await?;
        *self.settled_at.lock() = has_shared.then(|| Instant::now() + SETTLING);
        *has_shared = true;
        self.stand(self.next_link(), Role::Member(member));
        Ok(run)
    }

    /// Answers the others. `takes_over`: from one that may have started something just now.
    async fn preside(&self, listener: &UnixListener, takes_over: bool) {
        // Whoever asks for a copy is to find what the last one had.
        let (done, is_open) = oneshot::channel();
        let _ = self.needs.send(Need::Store(done));
        let _ = timeout(HANDOVER, is_open).await;
        let keeper = Arc::new(Keeper::new(takes_over.then(Instant::now), self.messages.clone(), self.needs.clone()));
        *self.settled_at.lock() = takes_over.then(|| Instant::now() + SETTLING);
        let state = if takes_over { self.next_link() } else { SOLE };
        self.stand(state, Role::Keeper(keeper.clone()));
        let mut members = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        if self.state.load(Ordering::Acquire) == SOLE {
                            self.share(&keeper).await;
                        }
                        members.spawn(keeper.clone().serve(stream));
                    }
                    // For want of descriptors, say.
                    Err(_) => sleep(AGAIN).await,
                },
                Some(_) = members.join_next() => {}
                () = sleep(LOOK_EVERY) => {
                    let is_shared = self.state.load(Ordering::Acquire) != SOLE;
                    if is_shared && members.is_empty() && keeper.is_idle(Instant::now(), self.longest) {
                        self.stand(SOLE, Role::Keeper(keeper.clone()));
                    }
                }
            }
        }
    }

    /// The first other one has come: what this one owes is told before it is answered.
    async fn share(&self, keeper: &Arc<Keeper>) {
        *self.settled_at.lock() = None;
        self.stand(self.next_link(), Role::Keeper(keeper.clone()));
        let (done, is_done) = oneshot::channel();
        let _ = self.needs.send(Need::Told(done));
        // It takes microseconds for each host that owes something.
        let _ = timeout(PATIENCE, is_done).await;
    }

    fn stand(&self, state: u64, role: Role) {
        self.state.store(state, Ordering::Release);
        self.role.send_replace(role);
        let message = if matches!(state, WAITING | PARTED) { Message::Parted } else { Message::Joined };
        // The gate is gone with whoever receives it.
        let _ = self.messages.send(message);
    }

    fn next_link(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The keeper's: nobody is left with a socket on which nobody listens.
struct Seat<'a> {
    place: &'a MeetingPlace,
    _lock: Lock,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.place.clear();
    }
}

fn tell(directory: &Path, why: &str) {
    let place = directory.display();
    tracing::warn!(
        hint = "set `store.directory` to a place on a local disk that this user can write",
        "nothing is shared with other politely processes on this machine, and each keeps a pace of its own: {place}: {why}"
    );
}

/// It is not known yet who keeps the turns.
const WAITING: u64 = 0;
/// There is no other process.
const SOLE: u64 = 1;
/// There is another, which does not answer.
const PARTED: u64 = 2;
/// Others cannot be met.
const NOBODY: u64 = 3;
const FIRST_LINK: u64 = 16;

/// For one answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// A keeper that starts or ends is not lost.
const HANDOVER: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(20);
/// All notice within this time that a keeper is gone; those with requests on their way tell the next at once.
const SETTLING: Duration = Duration::from_millis(250);
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::unbounded_channel;

    #[tokio::test(start_paused = true)]
    async fn where_nobody_can_be_met_nobody_is_waited_for() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let in_the_way = directory.path().join("politely.sock.new");
        std::fs::create_dir(in_the_way).expect("it is writable");
        let ((messages, _), (needs, _)) = (unbounded_channel(), unbounded_channel());
        let machine = Machine::open(directory.path(), Duration::ZERO, messages, needs).expect("it is there");
        machine.tried().await;
        assert!(machine.reach().is_sole);
        let before = tokio::time::Instant::now();
        assert!(machine.copy("http://a", Wanted::Take).await.is_err());
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}
