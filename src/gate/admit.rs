//! The steps of one request through the gate: the decision, then the wait for a pacing slot.

use super::admit_host::{AdmitHost, LastHost};
use super::pacer::{HostQueue, Permit, Stand, Waiting, without_delay};
use super::robots::{FetchReason, Fetching, HostEntry, Order};
use super::terms::terms;
use super::{Account, Admitted, Bill, Gate, Reported, rules};
use crate::config::{Hosts, Mode, Settings, Subresources};
use crate::policy::pace::Terms;
use crate::policy::{Again, Decision, HostRules, Known, Refusal, Request, Ruling, SiteFile, decide};
use crate::upstream::Versions;
use futures_util::future::BoxFuture;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The next step of a request.
enum Step {
    Go(Admitted),
    /// Fetch a file that is needed to decide the request.
    Fetch(Fetching),
    Wait(Waiting),
}

impl Gate {
    /// Decides, after fetching robots.txt if necessary, and waits for a pacing slot.
    /// `hosts`: the client's own settings, in place of `Settings::hosts`.
    pub async fn admit(&self, request: &Request<'_>, hosts: Option<&Hosts>) -> Result<Admitted, Refusal> {
        self.admit_next(request, hosts, &mut LastHost::default(), &mut Account::default()).await
    }

    /// Like [`admit`](Self::admit). `last`: the host of the previous request on the connection. `account`: receives the records of this
    /// request.
    pub async fn admit_next(
        &self,
        request: &Request<'_>,
        hosts: Option<&Hosts>,
        last: &mut LastHost,
        account: &mut Account,
    ) -> Result<Admitted, Refusal> {
        self.check_fleet()?;
        if request.reads_robots
            && let Some(copy) = Box::pin(self.robots_copy(request, hosts, account)).await?
        {
            return Ok(Admitted::Robots(copy));
        }
        match self.first_step(request, hosts, last, account)? {
            ControlFlow::Break(admitted) => Ok(admitted),
            ControlFlow::Continue(rest) => rest.await,
        }
    }

    /// Runs the steps that need no wait. The other steps are boxed, because most requests do not need them.
    fn first_step<'a>(
        &'a self,
        request: &'a Request<'_>,
        hosts: Option<&'a Hosts>,
        last: &'a mut LastHost,
        account: &'a mut Account,
    ) -> Result<ControlFlow<Admitted, BoxFuture<'a, Result<Admitted, Refusal>>>, Refusal> {
        let settings = self.settings.load();
        let host = self.admit_host(&settings, request, hosts, last);
        Ok(match self.step(&settings, &host, request, (Duration::ZERO, None), account)? {
            Step::Go(admitted) if account.bill.is_none() => ControlFlow::Break(admitted),
            step => ControlFlow::Continue(Box::pin(self.run_steps(request, host, step, account))),
        })
    }

    /// Runs the remaining steps.
    async fn run_steps(
        &self,
        request: &Request<'_>,
        host: AdmitHost<'_>,
        mut step: Step,
        account: &mut Account,
    ) -> Result<Admitted, Refusal> {
        let mut waited = Duration::ZERO;
        loop {
            let mut granted = None;
            match step {
                Step::Go(admitted) => {
                    account.pay().await?;
                    return Ok(admitted);
                }
                Step::Fetch(fetching) => {
                    // Boxed, because only a site's first request waits here.
                    let fetched = Box::pin(self.wait_for_robots(request, host.hosts, fetching, waited));
                    if let Err(why) = account.waits(fetched).await {
                        return self.without_robots(&host, request, why);
                    }
                }
                Step::Wait(waiting) => {
                    let since = Instant::now();
                    granted = account.waits(self.turn(request, waiting)).await?;
                    waited += since.elapsed();
                }
            }
            step = self.step(&self.settings.load(), &host, request, (waited, granted), account)?;
        }
    }

    /// Handles a robots.txt that could not be requested for a reason on our side: refuses the request, or in report mode sends it.
    fn without_robots(&self, host: &AdmitHost<'_>, request: &Request<'_>, why: Refusal) -> Result<Admitted, Refusal> {
        let settings = self.settings.load();
        if settings.mode != Mode::Report {
            return Err(why);
        }
        let terms = self.terms(request, rules(request, host.hosts, &settings), &settings, None, Duration::ZERO);
        Ok(Admitted::Go { permit: Permit::new(host.queue, None, &terms), reported: Some(why.into()) })
    }

    fn check_fleet(&self) -> Result<(), Refusal> {
        self.fleet.refusal().map_or(Ok(()), Err)
    }

    /// Decides according to the entries that are stored now.
    fn decide(
        &self,
        host: &AdmitHost<'_>,
        request: &Request<'_>,
        rules: &HostRules,
        account: &mut Account,
    ) -> Decision {
        let entry = host.entry.load();
        let [tdmrep, license] = self.other_files(&entry, rules, request.authority);
        let known = Known { robots: &entry, tdmrep: tdmrep.as_deref(), license: license.as_deref() };
        let decision = decide(known, rules, request, SystemTime::now());
        let allowance = if let Ruling::Allow(allowance) = decision.ruling { Some(allowance) } else { None };
        account.record_decision(allowance, &entry, [tdmrep, license]);
        decision
    }

    /// Computes the request's next step, without waiting. `waited`: time waited so far. `granted`: the slot granted by the last wait. Each
    /// call decides again, because rules and gap may have changed. If a file has to be fetched, the granted slot is given up, and the fetch
    /// waits for a slot of its own. Requests further back in the queue do the same, so the order stays.
    fn step(
        &self,
        settings: &Settings,
        host: &AdmitHost<'_>,
        request: &Request<'_>,
        (waited, granted): (Duration, Option<Box<Permit>>),
        account: &mut Account,
    ) -> Result<Step, Refusal> {
        let AdmitHost { entry, queue, hosts } = *host;
        let rules = rules(request, hosts, settings);
        let Decision { ruling, crawl_delay, refresh } = self.decide(host, request, rules, account);
        let may_go = matches!(ruling, Ruling::Allow(_) | Ruling::Report(_));
        if !(may_go && entry.owes_page()) {
            for file in refresh {
                drop(self.refresh_for(&self.place(entry, file), request, FetchReason::Renewal, crawl_delay));
            }
        }
        let reported = match ruling {
            Ruling::Fetch(file) => {
                self.check_fleet()?;
                let place = self.place(entry, file);
                return Ok(Step::Fetch(self.refresh_for(&place, request, FetchReason::FirstUse, crawl_delay)));
            }
            Ruling::Refuse(why) => return Err(*why),
            Ruling::Report(why) => Some(Reported::Refused(why)),
            Ruling::Allow(_) => None,
        };
        let is_reported = settings.mode == Mode::Report;
        account.bill = Bill::of(&self.ledger, rules.manners.budget, queue.key(), request, is_reported);
        let spent = account.bill.as_ref().and_then(|bill| bill.refusal());
        // This comes after all refusals, so that a client that may not have a page does not learn whether others fetched it.
        if request.asks_cache && (spent.is_none() || is_reported) {
            account.bill = None;
            return Ok(Step::Go(Admitted::Allowed { reported }));
        }
        let reported = match spent.or_else(|| request.again.refusal()) {
            Some(why) if !is_reported => return Err(why),
            Some(why) => reported.or(Some(why.into())),
            None => reported,
        };
        if request.again == Again::NotModified && !is_reported {
            account.bill = None;
            return Ok(Step::Go(Admitted::NotModified));
        }
        let (queue, terms) = self.queue_and_terms(settings, rules, host, request, crawl_delay, waited);
        let is_in_burst = !Arc::ptr_eq(queue, host.queue);
        // If a reload has changed the queue or the delay during the wait, the granted slot is given up, because using it would break the
        // new pace.
        let granted = granted.filter(|permit| {
            (is_in_burst || Arc::ptr_eq(queue, permit.queue()))
                && permit.gap() >= terms.gap()
                && permit.group_delay() == terms.group_delay
        });
        let (stood, reported) = match granted {
            Some(permit) => (Stand::Go(permit), reported),
            None => queue.stand_or_report(request.client, &terms, is_reported, reported)?,
        };
        Ok(match stood {
            Stand::Go(permit) => {
                entry.set_page_requested(true);
                Step::Go(Admitted::Go { permit, reported })
            }
            Stand::Wait(waiting) => Step::Wait(waiting),
        })
    }

    /// The queue and the terms of a request. `waited`: time waited so far.
    fn queue_and_terms<'a>(
        &self,
        settings: &Settings,
        rules: &HostRules,
        host: &AdmitHost<'a>,
        request: &Request<'_>,
        crawl_delay: Option<Duration>,
        waited: Duration,
    ) -> (&'a Arc<HostQueue>, Terms) {
        let queue = host.queue;
        let terms = self.terms(request, rules, settings, crawl_delay, waited);
        if let Some(asked) = terms.clamped() {
            queue.log_clamp(request.authority, asked, terms.gap());
        }
        let in_burst =
            request.is_subresource && settings.pace.subresources == Subresources::Burst && !queue.is_held_back();
        if in_burst { (queue.beside(), without_delay(terms)) } else { (queue, terms) }
    }

    /// The entry of an authority's file. `robots`: the entry of its robots.txt.
    fn place(&self, robots: &Arc<HostEntry>, file: SiteFile) -> Arc<HostEntry> {
        match file {
            SiteFile::Robots => robots.clone(),
            SiteFile::TdmRep | SiteFile::License(_) => self.robots.host(file, &robots.authority),
        }
    }

    /// Fetches a file for this request.
    pub(super) fn refresh_for(
        &self,
        entry: &Arc<HostEntry>,
        request: &Request<'_>,
        reason: FetchReason,
        crawl_delay: Option<Duration>,
    ) -> Fetching {
        let versions = if request.speaks_http2 { Versions::Http2Known } else { Versions::Http1First };
        let order = match reason {
            FetchReason::FirstUse => Order { reason, client: request.client, crawl_delay, versions },
            FetchReason::Renewal | FetchReason::Anew => Order { crawl_delay, versions, ..Order::background(reason) },
        };
        self.robots.refresh(entry, order)
    }

    pub(super) fn terms(
        &self,
        request: &Request<'_>,
        rules: &HostRules,
        settings: &Settings,
        crawl_delay: Option<Duration>,
        waited: Duration,
    ) -> Terms {
        let mut terms = terms(settings, rules, request.authority.host(), crawl_delay);
        let max_wait = request.prefer_wait.map_or(terms.max_wait, |wait| wait.min(terms.max_wait));
        terms.max_wait = max_wait.saturating_sub(waited);
        if !request.may_wait {
            terms.queue = 0;
        }
        terms
    }
}
