//! One request's way through the gate: what is said of it, then its host's turn. Called by `proxy`.

use super::fleet::Fleet;
use super::pacer::{Permit, Stand, Waiting, without_delay};
use super::rulebook::HotHost;
use super::terms::{client, terms};
use super::verdict::reports;
use super::{Admitted, Ask, Gate, Reported};
use crate::config::{HostPolicy, Mode, Settings, Subresources};
use crate::policy::pace::Terms;
use crate::policy::{Decision, Refusal};
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What a request waits for.
enum Pause {
    /// Nothing can be said before robots.txt has come. The channel closes when the fetch is over, however it ended.
    Learn(watch::Receiver<()>),
    Wait(Waiting),
}

impl Gate {
    /// Decides, fetching robots.txt first where it must, and waits for the host's turn.
    pub async fn admit(&self, ask: &Ask<'_>) -> Result<Admitted, Refusal> {
        self.may_go_on()?;
        if ask.reads_robots
            && let Some(copy) = self.robots_copy(ask.authority).await
        {
            return Ok(Admitted::Robots(copy));
        }
        let (host, mut pause) = match self.first_step(ask)? {
            Break(admitted) => return Ok(admitted),
            Continue(on) => on,
        };
        let mut waited = Duration::ZERO;
        loop {
            match pause {
                Pause::Learn(mut fetch) => _ = fetch.changed().await,
                Pause::Wait(waiting) => {
                    let permit = waiting.turn().await?;
                    waited += permit.waited;
                    if let Some(admitted) = self.at_its_turn(&host, ask, permit)? {
                        return Ok(admitted);
                    }
                }
            }
            pause = match self.step(&host, ask, &self.settings.load(), waited)? {
                Break(admitted) => return Ok(admitted),
                Continue(pause) => pause,
            };
        }
    }

    /// Nearly always the last.
    #[inline]
    fn first_step(&self, ask: &Ask<'_>) -> Result<ControlFlow<Admitted, (Arc<HotHost>, Pause)>, Refusal> {
        let settings = self.settings.load();
        let host = self.book.host(ask.authority, settings.pace.key, ask.address);
        Ok(match self.step(&host, ask, &settings, Duration::ZERO)? {
            Break(admitted) => Break(admitted),
            Continue(pause) => Continue((host.keep(), pause)),
        })
    }

    fn may_go_on(&self) -> Result<(), Refusal> {
        self.fleet.as_deref().and_then(Fleet::refusal).map_or(Ok(()), Err)
    }

    /// As far as it gets without waiting. `waited`: how long it has already.
    #[inline]
    fn step(
        &self,
        host: &HotHost,
        ask: &Ask<'_>,
        settings: &Settings,
        waited: Duration,
    ) -> Result<ControlFlow<Admitted, Pause>, Refusal> {
        let policy = ask.policy(settings);
        let (refresh, crawl_delay, refused) = match self.verdict(&host.slot, ask, policy, settings) {
            Decision::Fetch => {
                self.may_go_on()?;
                return Ok(Continue(Pause::Learn(self.book.fetch(&host.slot, None))));
            }
            Decision::Allow(allowed) => (allowed.refresh, allowed.crawl_delay, None),
            Decision::Refuse { why, refresh } => (refresh, None, Some(why)),
        };
        if refresh {
            drop(self.book.fetch(&host.slot, crawl_delay));
        }
        let reported = match refused {
            Some(why) if !reports(policy, settings) => return Err(why),
            refused => refused.map(Reported::from),
        };
        let mut terms = self.terms(ask, settings, policy.crawl_delay.or(crawl_delay), waited);
        if let Some(asked) = terms.clamped() {
            host.pace.tell_clamp(ask.authority, asked, terms.gap());
        }
        let in_burst =
            ask.is_subresource && settings.pace.subresources == Subresources::Burst && !host.pace.is_held_back();
        let beside;
        let pace = if in_burst {
            terms = without_delay(terms);
            beside = self.pacer.beside(&host.key(), &host.pace);
            &beside
        } else {
            &host.pace
        };
        if settings.mode == Mode::Report {
            let (permit, held) = pace.rehearse(client(ask.client), terms, reported.is_some());
            return Ok(Break(Admitted::Go { permit, reported: reported.or(held) }));
        }
        Ok(match pace.stand(client(ask.client), terms)? {
            Stand::Go(permit) => Break(Admitted::Go { permit, reported }),
            Stand::Wait(waiting) => Continue(Pause::Wait(waiting)),
        })
    }

    fn terms(&self, ask: &Ask<'_>, settings: &Settings, crawl_delay: Option<Duration>, waited: Duration) -> Terms {
        let mut terms = terms(settings, crawl_delay, false);
        let max_wait = ask.prefer_wait.map_or(terms.max_wait, |wait| wait.min(terms.max_wait));
        terms.max_wait = max_wait.saturating_sub(waited);
        if !ask.may_wait || self.pacer.waiting() >= settings.pace.max_waiting {
            terms.queue = 0;
        }
        terms
    }

    /// The rules may have changed while it waited: those of its turn bind it. `None`: it has to ask anew, without the
    /// turn, which a fetch has to take itself.
    fn at_its_turn(&self, host: &HotHost, ask: &Ask<'_>, permit: Permit) -> Result<Option<Admitted>, Refusal> {
        let settings = self.settings.load();
        let policy = ask.policy(&settings);
        let reported = match self.verdict(&host.slot, ask, policy, &settings) {
            Decision::Allow(_) => None,
            Decision::Refuse { why, .. } if reports(policy, &settings) => Some(Reported::from(why)),
            Decision::Refuse { why, .. } => return Err(why),
            Decision::Fetch => return Ok(None),
        };
        Ok(Some(Admitted::Go { permit, reported }))
    }
}

impl<'a> Ask<'a> {
    /// What is configured for its host.
    fn policy(&self, settings: &'a Settings) -> &'a HostPolicy {
        self.hosts.unwrap_or(&settings.hosts).get(self.authority.host())
    }
}
