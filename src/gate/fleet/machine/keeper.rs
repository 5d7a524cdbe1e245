//! The process that the others of its machine ask: whose turn it is, who fetches which robots.txt, and for the copies that
//! it has.

use super::turns::{To, Turns};
use super::wire::{self, Ask, Call, CopyAnswer, Hello, Reply, Status, Told, Wanted};
use super::{Copy, Need, turns};
use crate::gate::fleet::{HELD, LeaseRequest, LeaseStatus, Message};
use crate::gate::store::snapshot::millis;
use crate::policy::pace::Debt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

pub(super) struct Keeper {
    table: Mutex<Table>,
    messages: UnboundedSender<Message>,
    needs: UnboundedSender<Need>,
}

struct Table {
    turns: Turns,
    /// Who fetches which authority's robots.txt, and until when others wait for that.
    rights: HashMap<Box<str>, (turns::Member, Instant)>,
    members: HashMap<turns::Member, mpsc::Sender<Told>>,
    joined: turns::Member,
}

impl Keeper {
    /// `taken_over`: since when, if another has kept the turns until just now.
    pub fn new(taken_over: Option<Instant>, messages: UnboundedSender<Message>, needs: UnboundedSender<Need>) -> Self {
        let turns = taken_over.map_or_else(Turns::default, Turns::taken_over);
        let (rights, members) = (HashMap::new(), HashMap::new());
        Self { table: Mutex::new(Table { turns, rights, members, joined: SELF }), messages, needs }
    }

    /// What a member asks of a key's turns, and reports of them.
    pub fn lease(&self, me: turns::Member, key: &str, request: &LeaseRequest, now: Instant) -> LeaseStatus {
        let mut table = self.table.lock();
        let status = table.turns.ask(me, key, request, now);
        self.post(&mut table);
        status
    }

    /// A copy of robots.txt, or the right to fetch it, or for how long to wait for who has that.
    pub async fn copy(&self, me: turns::Member, authority: &str, wanted: Wanted) -> CopyAnswer {
        let (since, takes_fresh) = match wanted {
            Wanted::Look { since } => (since, true),
            Wanted::Anew { since } => (since, false),
            Wanted::Take if me == SELF => return (0, DONE, 0, Vec::new()),
            Wanted::Take => {
                return self.kept(authority).await.map_or((0, DONE, 0, Vec::new()), |it| (0, HERE, 0, it.snapshot));
            }
            Wanted::Keep => {
                if let Some((_, until)) = self.table.lock().rights.get_mut(authority).filter(|(who, _)| *who == me) {
                    *until = Instant::now() + HELD;
                }
                return (0, DONE, 0, Vec::new());
            }
            Wanted::Put { copy, .. } => {
                self.put(me, authority, copy).await;
                return (0, DONE, 0, Vec::new());
            }
        };
        let now = millis(SystemTime::now());
        // This process has looked at its own, but not since it waits for others.
        let looks = me != SELF || since <= now;
        let kept = if looks { self.kept(authority).await } else { None };
        if let Some(copy) = kept.as_ref().filter(|copy| copy.at >= since || takes_fresh && copy.is_fresh) {
            return (now, HERE, 0, copy.snapshot.clone());
        }
        let at = Instant::now();
        let mut table = self.table.lock();
        match table.rights.get(authority).filter(|(who, until)| *who != me && *until > at) {
            Some((_, until)) => (now, WAIT, i64::try_from((*until - at).as_millis()).unwrap_or(0), Vec::new()),
            None => {
                table.rights.retain(|_, (_, until)| *until > at);
                table.rights.insert(authority.into(), (me, at + HELD));
                (now, FETCH, 0, kept.map_or_else(Vec::new, |copy| copy.snapshot))
            }
        }
    }

    /// Whether nothing is known that another would have to know.
    pub fn is_idle(&self, now: Instant, longest: Duration) -> bool {
        let mut table = self.table.lock();
        table.members.is_empty() && table.turns.are_idle(now, longest)
    }

    /// Answers one other process until it is gone.
    pub async fn serve(self: Arc<Self>, stream: UnixStream) {
        let (mut reads, mut writes) = stream.into_split();
        let (sender, mut told) = mpsc::channel(MOST_TOLD);
        let (me, members) = {
            let mut table = self.table.lock();
            table.joined += 1;
            let me = table.joined;
            table.members.insert(me, sender.clone());
            (me, table.members.len() + 1)
        };
        let _gone = Gone { keeper: &self, me };
        let hello = Hello { version: wire::VERSION, members: u32::try_from(members).unwrap_or(u32::MAX) };
        let writing = async {
            let mut sent = timeout(PATIENCE, wire::send(&mut writes, &hello)).await;
            while let (Ok(Ok(())), Some(next)) = (&sent, told.recv().await) {
                sent = timeout(PATIENCE, wire::send(&mut writes, &next)).await;
            }
        };
        let reading = async {
            let places = Arc::new(Semaphore::new(MOST_COPIES));
            let mut copies = JoinSet::new();
            while let Ok(Call { id, ask }) = wire::receive(&mut reads).await {
                while copies.try_join_next().is_some() {}
                let reply = match ask {
                    Ask::Beat => Reply::Beat { members: self.count() },
                    Ask::Lease { key, request } => Reply::Lease(self.lease_for(me, &key, request)),
                    Ask::Copy { authority, wanted } => {
                        let Ok(place) = places.clone().acquire_owned().await else { return };
                        let (keeper, sender) = (self.clone(), sender.clone());
                        copies.spawn(async move {
                            let reply = Reply::Copy(keeper.copy(me, &authority, wanted).await);
                            let _ = sender.send(Told::Reply { id, reply }).await;
                            drop(place);
                        });
                        continue;
                    }
                };
                if sender.send(Told::Reply { id, reply }).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = writing => {}
            () = reading => {}
        }
    }

    fn lease_for(&self, me: turns::Member, key: &str, request: wire::Request) -> Status {
        let now = Instant::now();
        let request = request.read(now);
        let status = self.lease(me, key, &request, now);
        if !request.owed.is_zero() {
            let debt = Debt { until: now + request.owed, backoff: status.backoff };
            let _ = self.needs.send(Need::Owed { key: key.into(), debt });
        }
        Status::new(&status, Instant::now())
    }

    async fn kept(&self, authority: &str) -> Option<Copy> {
        let (answer, kept) = oneshot::channel();
        self.needs.send(Need::Copy { authority: authority.into(), answer }).ok()?;
        kept.await.ok().flatten().filter(|copy| wire::has_room(&copy.snapshot))
    }

    async fn put(&self, me: turns::Member, authority: &str, copy: Vec<u8>) {
        if me != SELF {
            let (done, is_done) = oneshot::channel();
            let _ = self.needs.send(Need::Keep { authority: authority.into(), copy, done });
            // Whoever waits for it is to find it.
            let _ = is_done.await;
        }
        let mut table = self.table.lock();
        if table.rights.get(authority).is_some_and(|(who, _)| *who == me) {
            table.rights.remove(authority);
        }
        table.turns.letters.push((To::AllBut(me), Message::Robots { authority: authority.into() }));
        self.post(&mut table);
    }

    fn count(&self) -> u32 {
        u32::try_from(self.table.lock().members.len() + 1).unwrap_or(u32::MAX)
    }

    /// What is lost on the way costs time, and nothing else.
    fn post(&self, table: &mut Table) {
        let Table { turns, members, .. } = table;
        for (to, message) in turns.letters.drain(..) {
            let reaches = |member: turns::Member| match to {
                To::One(one) => member == one,
                To::AllBut(one) => member != one,
            };
            for (_, member) in members.iter().filter(|(member, _)| reaches(**member)) {
                if let Some(told) = Told::new(message.clone()) {
                    let _ = member.try_send(told);
                }
            }
            if reaches(SELF) {
                let _ = self.messages.send(message);
            }
        }
    }
}

/// What a member had is free when it is gone.
struct Gone<'a> {
    keeper: &'a Keeper,
    me: turns::Member,
}

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        let (keeper, me) = (self.keeper, self.me);
        let mut table = keeper.table.lock();
        table.members.remove(&me);
        table.turns.gone(me, Instant::now());
        let Table { turns, rights, .. } = &mut *table;
        rights.retain(|authority, (who, _)| {
            if *who == me {
                turns.letters.push((To::AllBut(me), Message::Robots { authority: authority.clone() }));
            }
            *who != me
        });
        keeper.post(&mut table);
    }
}

/// The keeper's own process.
pub(super) const SELF: turns::Member = 0;
const HERE: u8 = 0;
const FETCH: u8 = 1;
const WAIT: u8 = 2;
const DONE: u8 = 3;
/// One that does not read is given up.
const PATIENCE: Duration = Duration::from_secs(2);
const MOST_TOLD: usize = 1024;
/// Of one member at a time.
const MOST_COPIES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::fleet::LeaseOp;
    use crate::policy::pace::LastStarts;

    #[test]
    fn a_debt_is_noted_for_as_long_as_it_is_owed_and_with_the_backoff_that_is_known() {
        let ((messages, _), (needs, mut noted)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let (keeper, seconds) = (Keeper::new(None, messages, needs), Duration::from_secs);
        let refused = LeaseRequest {
            op: LeaseOp::Take,
            number: 1,
            gap: seconds(1),
            starts: LastStarts::default(),
            backoff: seconds(60),
            is_exact: false,
            owed: seconds(60),
            matters: seconds(3660),
            most: seconds(3600),
        };
        let later = LeaseRequest { backoff: Duration::ZERO, owed: seconds(5), matters: seconds(3605), ..refused };
        for (request, owed) in [(refused, seconds(60)), (later, seconds(5))] {
            keeper.lease_for(1, "a", wire::Request::new(&request, Instant::now()));
            let Ok(Need::Owed { debt, .. }) = noted.try_recv() else { panic!("it is noted") };
            assert!(debt.until <= Instant::now() + owed);
            assert_eq!(debt.backoff, seconds(60));
        }
    }
}
