//! One request's way through the gate: what is said of it, then its host's turn.

use super::fleet::Fleet;
use super::pacer::{Pace, Permit, Stand, Waiting, without_delay};
use super::robots::{FetchReason, Fetching, HostEntry, Order};
use super::terms::{client, key, terms};
use super::verdict::{Verdict, reports};
use super::{Admitted, Ask, Gate, Reported};
use crate::config::{HostPolicy, Mode, Settings, Subresources};
use crate::policy::Refusal;
use crate::policy::pace::{Client, Terms};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How far a request has come.
enum Step {
    Go(Admitted),
    /// Nothing can be said before robots.txt has come.
    Fetch(Fetching),
    Wait(Waiting),
}

/// Where a request goes to, and what it goes by.
struct Host {
    entry: Arc<HostEntry>,
    pace: Arc<Pace>,
}

impl Gate {
    /// Decides, fetching robots.txt first where it must, and waits for the host's turn.
    pub async fn admit(&self, ask: &Ask<'_>) -> Result<Admitted, Refusal> {
        self.may_go_on()?;
        if ask.reads_robots
            && let Some(copy) = self.robots_copy(ask).await?
        {
            return Ok(Admitted::Robots(copy));
        }
        let host = self.host(ask);
        let mut waited = Duration::ZERO;
        loop {
            match self.step(&host, ask, waited)? {
                Step::Go(admitted) => return Ok(admitted),
                Step::Fetch(fetching) => {
                    if let Err(why) = self.wait_for_robots(ask, fetching, waited).await {
                        return self.instead_of_robots(&host, ask, why);
                    }
                }
                Step::Wait(waiting) => {
                    let permit = waiting.turn().await?;
                    waited += permit.waited;
                    if let Some(admitted) = self.at_its_turn(&host, ask, permit)? {
                        return Ok(admitted);
                    }
                }
            }
        }
    }

    /// Until a fetch is over, but no longer than a request may wait for its turn and a fetch may take then.
    pub(super) async fn wait_for_robots(
        &self,
        ask: &Ask<'_>,
        fetching: Fetching,
        waited: Duration,
    ) -> Result<(), Refusal> {
        let (most, retry_after, max_waiting) = {
            let settings = self.settings.load();
            let terms = self.terms(ask, &settings, None, waited);
            // One may wait, or nothing would ever be fetched.
            (terms.max_wait + settings.robots.timeout, terms.gap().max(AWHILE), terms.max_waiting.max(1))
        };
        let mut place = self.pacer.wait_place(ask.fairness(), max_waiting);
        tokio::select! {
            biased;
            fetched = timeout(most, fetching.end()) => fetched.unwrap_or(Err(Refusal::CrawlDelay { retry_after })),
            refusal = place.crowded_out() => Err(refusal),
        }
    }

    /// Nobody has asked for robots.txt, through no fault of the site's. In report mode it goes all the same.
    fn instead_of_robots(&self, host: &Host, ask: &Ask<'_>, why: Refusal) -> Result<Admitted, Refusal> {
        let settings = self.settings.load();
        if settings.mode != Mode::Report {
            return Err(why);
        }
        let terms = self.terms(ask, &settings, None, Duration::ZERO);
        let (permit, _) = host.pace.rehearse(ask.fairness(), terms, true);
        Ok(Admitted::Go { permit, reported: Some(why.into()) })
    }

    fn may_go_on(&self) -> Result<(), Refusal> {
        self.fleet.as_deref().and_then(Fleet::refusal).map_or(Ok(()), Err)
    }

    fn host(&self, ask: &Ask<'_>) -> Host {
        let key = key(&self.settings.load(), ask.authority, ask.address);
        Host { entry: self.robots.host(ask.authority), pace: self.pacer.pace(&key) }
    }

    /// As far as it gets without waiting. `waited`: how long it has already.
    fn step(&self, host: &Host, ask: &Ask<'_>, waited: Duration) -> Result<Step, Refusal> {
        let settings = self.settings.load();
        let policy = ask.policy(&settings);
        let Host { entry, pace } = host;
        let (refused, crawl_delay, refresh) = match self.verdict(&entry.load(), ask, policy, &settings) {
            Verdict::Fetch => {
                self.may_go_on()?;
                let crawl_delay = self.crawl_delay(&entry.load(), ask, &settings);
                return Ok(Step::Fetch(self.refresh_for(entry, ask, FetchReason::FirstUse, crawl_delay)));
            }
            Verdict::Known { refused, crawl_delay, refresh } => (refused, crawl_delay, refresh),
        };
        if refresh {
            drop(self.refresh_for(entry, ask, FetchReason::Renewal, crawl_delay));
        }
        let reported = match refused {
            Some(why) if !reports(policy, &settings) => return Err(why),
            refused => refused.map(Reported::from),
        };
        let mut terms = self.terms(ask, &settings, crawl_delay, waited);
        if let Some(asked) = terms.clamped() {
            pace.tell_clamp(ask.authority, asked, terms.gap());
        }
        let in_burst = ask.is_subresource && settings.pace.subresources == Subresources::Burst && !pace.is_held_back();
        let beside;
        let pace = if in_burst {
            terms = without_delay(terms);
            beside = self.pacer.beside(&key(&settings, ask.authority, ask.address), pace);
            &beside
        } else {
            pace
        };
        if settings.mode == Mode::Report {
            let (permit, held) = pace.rehearse(ask.fairness(), terms, reported.is_some());
            return Ok(Step::Go(Admitted::Go { permit, reported: reported.or(held) }));
        }
        Ok(match pace.stand(ask.fairness(), terms)? {
            Stand::Go(permit) => Step::Go(Admitted::Go { permit, reported }),
            Stand::Wait(waiting) => Step::Wait(waiting),
        })
    }

    /// Fetches robots.txt on account of this request.
    pub(super) fn refresh_for(
        &self,
        entry: &Arc<HostEntry>,
        ask: &Ask<'_>,
        reason: FetchReason,
        crawl_delay: Option<Duration>,
    ) -> Fetching {
        let order = match reason {
            FetchReason::FirstUse => Order { reason, client: ask.fairness(), crawl_delay },
            FetchReason::Renewal | FetchReason::Anew | FetchReason::Published => {
                Order { crawl_delay, ..Order::background(reason) }
            }
        };
        self.robots.refresh(entry, order)
    }

    fn terms(&self, ask: &Ask<'_>, settings: &Settings, crawl_delay: Option<Duration>, waited: Duration) -> Terms {
        let mut terms = terms(settings, crawl_delay, false);
        let max_wait = ask.prefer_wait.map_or(terms.max_wait, |wait| wait.min(terms.max_wait));
        terms.max_wait = max_wait.saturating_sub(waited);
        if !ask.may_wait {
            terms.queue = 0;
        }
        terms
    }

    /// The rules may have changed while it waited: those of its turn bind it. `None`: it has to ask anew, without the
    /// turn, which a fetch has to take itself.
    fn at_its_turn(&self, host: &Host, ask: &Ask<'_>, permit: Permit) -> Result<Option<Admitted>, Refusal> {
        let settings = self.settings.load();
        let policy = ask.policy(&settings);
        let reported = match self.verdict(&host.entry.load(), ask, policy, &settings) {
            Verdict::Fetch => return Ok(None),
            Verdict::Known { refused: Some(why), .. } if !reports(policy, &settings) => return Err(why),
            Verdict::Known { refused, .. } => refused.map(Reported::from),
        };
        Ok(Some(Admitted::Go { permit, reported }))
    }
}

impl<'a> Ask<'a> {
    /// Among whom it takes turns.
    fn fairness(&self) -> Client {
        client(self.user, self.client)
    }

    /// What is configured for its host.
    pub(super) fn policy(&self, settings: &'a Settings) -> &'a HostPolicy {
        self.hosts.unwrap_or(&settings.hosts).get(self.authority.host())
    }
}

/// When nobody knows when.
const AWHILE: Duration = Duration::from_secs(1);
