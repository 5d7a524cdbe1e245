//! A process that asks another of its machine.

use super::wire::{self, Ask, Call, CopyAnswer, Hello, Reply, Request, Told, Wanted};
use crate::gate::fleet::{LeaseRequest, LeaseStatus, Lost, Message};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

pub(super) struct Member {
    calls: mpsc::Sender<Call>,
    pending: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
    ids: AtomicU64,
    /// Processes that share.
    members: Arc<AtomicU32>,
}

impl Member {
    /// With what has to run for answers to come; that ends when none do any more, and says why.
    pub async fn join(
        stream: UnixStream,
        messages: mpsc::UnboundedSender<Message>,
        members: Arc<AtomicU32>,
    ) -> io::Result<(Arc<Self>, impl Future<Output = String>)> {
        let (mut reads, mut writes) = stream.into_split();
        let Hello { version, members: count } = wire::receive(&mut reads).await?;
        if version != wire::VERSION {
            return Err(io::Error::other("it is of another version"));
        }
        let (calls, mut to_send) = mpsc::channel(MOST_CALLS);
        members.store(count, Ordering::Relaxed);
        let member = Arc::new(Self { calls, pending: Mutex::default(), ids: AtomicU64::new(0), members });
        let it = member.clone();
        let run = async move {
            let writing = async {
                while let Some(call) = to_send.recv().await {
                    if let Err(error) = wire::send(&mut writes, &call).await {
                        return error.to_string();
                    }
                }
                "nobody asks any more".into()
            };
            let reading = async {
                loop {
                    match wire::receive(&mut reads).await {
                        Ok(told) => it.take(told, &messages),
                        Err(error) => return error.to_string(),
                    }
                }
            };
            let why = tokio::select! {
                why = writing => why,
                why = reading => why,
                why = it.beat() => why,
            };
            to_send.close();
            // Whoever waits for an answer waits in vain.
            it.pending.lock().clear();
            why
        };
        Ok((member, run))
    }

    pub async fn lease(&self, key: &str, request: &LeaseRequest) -> Result<LeaseStatus, Lost> {
        let request = Request::new(request, Instant::now());
        match self.call(Ask::Lease { key: key.into(), request }).await? {
            Reply::Lease(status) => Ok(status.read(Instant::now())),
            Reply::Beat { .. } | Reply::Copy(_) => Err(Lost),
        }
    }

    pub async fn copy(&self, authority: &str, mut wanted: Wanted) -> Result<CopyAnswer, Lost> {
        if let Wanted::Put { copy, .. } = &mut wanted
            && !wire::has_room(copy)
        {
            // The right is given back all the same.
            copy.clear();
        }
        match self.call(Ask::Copy { authority: authority.into(), wanted }).await? {
            Reply::Copy(answer) => Ok(answer),
            Reply::Beat { .. } | Reply::Lease(_) => Err(Lost),
        }
    }

    async fn call(&self, ask: Ask) -> Result<Reply, Lost> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (sender, reply) = oneshot::channel();
        self.pending.lock().insert(id, sender);
        let _forgets = Forgets { member: self, id };
        self.calls.send(Call { id, ask }).await.map_err(|_| Lost)?;
        reply.await.map_err(|_| Lost)
    }

    /// Until there is no answer any more.
    async fn beat(&self) -> String {
        loop {
            sleep(BEAT_EVERY).await;
            match timeout(PATIENCE, self.call(Ask::Beat)).await {
                Ok(Ok(Reply::Beat { members })) => self.members.store(members, Ordering::Relaxed),
                Ok(Ok(Reply::Lease(_) | Reply::Copy(_))) => {}
                Ok(Err(Lost)) => return "it is gone".into(),
                Err(_) => return format!("no answer within {PATIENCE:?}"),
            }
        }
    }

    fn take(&self, told: Told, messages: &mpsc::UnboundedSender<Message>) {
        let message = match told {
            Told::Reply { id, reply } => {
                if let Some(waits) = self.pending.lock().remove(&id) {
                    let _ = waits.send(reply);
                }
                return;
            }
            Told::Pace { key } => Message::Pace { key: key.into() },
            Told::Robots { authority } => Message::Robots { authority: authority.into() },
        };
        let _ = messages.send(message);
    }
}

/// Nobody waits for the answer any more.
struct Forgets<'a> {
    member: &'a Member,
    id: u64,
}

impl Drop for Forgets<'_> {
    fn drop(&mut self) {
        self.member.pending.lock().remove(&self.id);
    }
}

const MOST_CALLS: usize = 1024;
const BEAT_EVERY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(2);
