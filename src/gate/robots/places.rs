//! Limits concurrent fetches of robots.txt to `limits.max_robots_fetches` in all. Each fetch also takes a slot of its host.

use super::fetch_table::Fetch;
use crate::config::Settings;
use crate::fair_places::{FairPlace, FairPlaces, Taker};
use crate::gate::pacer::{HostQueue, Permit, Stand};
use crate::policy::Refusal;
use crate::policy::pace::{ClientId, Terms};
use futures_util::FutureExt;
use rustix::process::{Resource, getrlimit};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// Maximum number of concurrent fetches: as configured, but at most a quarter of the limit on open files.
pub fn most_fetches(settings: &Settings) -> usize {
    let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
    settings.limits.max_robots_fetches.get().min(files.unwrap_or(usize::MAX) / 4).max(1)
}

impl FairPlaces {
    /// Takes a place and the host's slot. Holds no slot while it waits for a place, and holds a place for at most `a_while` while it waits
    /// for the slot.
    pub(super) async fn take_in_turn(
        &self,
        taker: Taker,
        queue: &Arc<HostQueue>,
        line: FetchLine,
        terms: &Terms,
        a_while: Duration,
        fetch: &Fetch,
    ) -> Result<(FairPlace, FetchTurn), Refusal> {
        let mut place = None;
        loop {
            let most = if place.is_some() { a_while } else { Duration::MAX };
            let turn = timeout(most, take_slot(taker, queue, line, terms, fetch)).await;
            fetch.set_due(None);
            match (turn, place.take().or_else(|| self.take(taker).now_or_never())) {
                (Ok(turn), Some(place)) => return Ok((place, turn?)),
                (Ok(turn), None) => {
                    drop(turn?);
                    place = Some(self.take(taker).await);
                }
                (Err(_), _) => {}
            }
        }
    }
}

/// The kind of fetch that waits for a host's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchLine {
    /// A fetch at the host whose file is wanted.
    Own,
    /// Redirected from another host to this host's own file. All fetches that wait for that file share one request.
    Shared,
    /// A guest: redirected from another host to any other URL of this host.
    Guest,
}

/// A fetch's slot at a host, and its place among the guests if it is a guest.
pub(super) type FetchTurn = (Option<FairPlace>, Box<Permit>);

/// Takes a host's slot. Only one guest at a time has or awaits a slot: however many sites redirect to this host, requests for the host
/// itself come first. Guests take turns by client, and by the site whose file is wanted.
async fn take_slot(
    taker: Taker,
    queue: &Arc<HostQueue>,
    line: FetchLine,
    terms: &Terms,
    fetch: &Fetch,
) -> Result<FetchTurn, Refusal> {
    let (client, guest_place) = match line {
        FetchLine::Own => (FETCHES, None),
        FetchLine::Shared => (ClientId::GUESTS, None),
        FetchLine::Guest => {
            fetch.set_due(Some(Instant::now()));
            (ClientId::GUESTS, Some(queue.guest_place(taker, terms).await?))
        }
    };
    let stood = queue.stand(client, terms)?;
    if let Stand::Wait(waiting) = &stood {
        fetch.set_due(Some(waiting.due.unwrap_or_else(Instant::now)));
    }
    let permit = stood.turn().await?;
    if guest_place.is_some() {
        queue.guests().started();
    }
    Ok((guest_place, permit))
}

/// Waits until the guest in flight has had [`GUEST_TIME`], and another guest waits for its place.
pub(super) async fn guests_wait(queue: &Arc<HostQueue>) {
    sleep(GUEST_TIME).await;
    while !queue.guests().places.is_awaited() {
        sleep(LOOK_AGAIN).await;
    }
}

/// The client id under which all fetches queue at their own host.
const FETCHES: ClientId = ClientId(0);
/// Time for a guest's answer while other guests wait. A site that redirects to a URL that is never answered costs each of them this much.
const GUEST_TIME: Duration = Duration::from_secs(4);
/// Interval for polling whether another guest waits.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair_places::tests::all_that;
    use crate::gate::fleet::Fleet;
    use crate::gate::pacer::Pacer;
    use crate::policy::{Authority, PaceKey};
    use parking_lot::Mutex;
    use std::pin::pin;
    use tokio::task::JoinSet;

    const SOON: Duration = Duration::from_millis(1);

    fn queue() -> Arc<HostQueue> {
        Pacer::new(Fleet::alone()).queue(&PaceKey::from_text("a.example").unwrap())
    }

    /// A crawl by one client, with the default settings.
    #[derive(Clone, Copy)]
    struct Crawl {
        hosts: u64,
        /// `None`: all hosts are asked at once.
        hosts_a_second: Option<u64>,
        /// Whether each fifth host never answers.
        has_silent: bool,
    }

    impl Crawl {
        /// The 99th percentile of the wait for a slot, of hosts that answer, and the number of steps for each host.
        async fn run(self) -> (Duration, u64) {
            let settings = Settings::default();
            let places = FairPlaces::new(settings.limits.max_robots_fetches.get());
            let (pacer, timeout) = (Arc::new(Pacer::new(Fleet::alone())), settings.robots.timeout);
            let (began, mut fetches) = (tokio::time::Instant::now(), JoinSet::new());
            for number in 0..self.hosts {
                if let Some(a_second) = self.hosts_a_second {
                    tokio::time::sleep_until(began + Duration::from_micros(number * 1_000_000 / a_second)).await;
                }
                let (places, pacer) = (places.clone(), pacer.clone());
                fetches.spawn(async move {
                    let authority = Authority::from_url(&format!("https://host{number}.example")).unwrap();
                    let queue = pacer.queue(&PaceKey::from_text(&format!("host{number}.example")).unwrap());
                    let (asked, fetch) = (tokio::time::Instant::now(), Fetch::default());
                    let (taker, terms) = (Taker::new(ClientId(1), &authority), Terms::default());
                    let turn = places.take_in_turn(taker, &queue, FetchLine::Own, &terms, timeout, &fetch).await;
                    let (_turn, waited) = (turn.unwrap(), asked.elapsed());
                    let is_silent = self.has_silent && number % 5 == 0;
                    sleep(if is_silent { timeout } else { ANSWER }).await;
                    (!is_silent).then_some(waited)
                });
            }
            let mut waits: Vec<_> = fetches.join_all().await.into_iter().flatten().collect();
            waits.sort_unstable();
            (waits[waits.len() * 99 / 100], places.steps() / self.hosts)
        }
    }

    const ANSWER: Duration = Duration::from_millis(200);

    /// Silent hosts keep their places until they time out. A client has 2,048 places.
    #[tokio::test(start_paused = true)]
    async fn silent_fifth_of_the_hosts_delays_the_others_by_less_than_a_second() {
        for (hosts, hosts_a_second) in
            [(100, None), (5_000, None), (100, Some(900)), (5_000, Some(900)), (100_000, Some(900))]
        {
            let crawl = Crawl { hosts, hosts_a_second, has_silent: true };
            // At that rate, hosts would not wait at all if all of them answered.
            let alone = match hosts_a_second {
                None => Crawl { has_silent: false, ..crawl }.run().await.0,
                Some(_) => Duration::ZERO,
            };
            let (beside, steps) = crawl.run().await;
            let what = format!("{hosts} hosts, {hosts_a_second:?} a second");
            assert!(beside <= alone + Duration::from_secs(1), "{what}: {beside:?} beside silent ones, {alone:?} alone");
            assert!(steps <= 4, "{what}: {steps} steps for each");
        }
    }

    /// The turns do not depend on how many hosts of one site redirect to this host.
    #[tokio::test(start_paused = true)]
    async fn guests_take_turns_by_client_and_by_site() {
        let (places, queue, terms) = (FairPlaces::new(100), queue(), Terms::default());
        let (under_way, order) = (Fetch::default(), Mutex::new(Vec::new()));
        let many = (0..7).map(|number| (1, format!("a{number}.bad.example")));
        let others = [(1, "www.good.example".to_owned()), (2, "www.bad.example".to_owned())];
        let guests = many.chain(others).map(async |(client, name)| {
            let taker = Taker::new(ClientId(client), &Authority::from_url(&format!("https://{name}")).unwrap());
            let turn = places.take_in_turn(taker, &queue, FetchLine::Guest, &terms, SOON, &under_way);
            let _turn = turn.await.unwrap();
            order.lock().push((client, name.rsplit('.').nth(1).unwrap().to_owned()));
            sleep(GUEST_TIME).await;
        });
        futures_util::future::join_all(guests).await;
        let order = order.into_inner();
        let at = |client, site: &str| order.iter().position(|guest| *guest == (client, site.to_owned())).unwrap();
        assert!(at(1, "good") <= 3 && at(2, "bad") <= 2, "{order:?}");
    }

    /// The guests' share does not depend on which URLs of this host other sites name, or how often.
    #[tokio::test]
    async fn guests_leave_nine_of_ten_starts_to_the_hosts_own_clients() {
        let (places, queue, gap) = (FairPlaces::new(100), queue(), Duration::from_millis(20));
        let terms = Terms { crawl_delay: gap, ..Terms::default() };
        let under_way = Fetch::default();
        let guest =
            || places.take_in_turn(Taker::of(ClientId(1)), &queue, FetchLine::Guest, &terms, SOON * 1000, &under_way);
        let began = Instant::now();
        guest().await.unwrap().1.1.leaves(false);
        queue.turn(ClientId(2), &terms).await.unwrap().leaves(false);
        drop(guest().await.unwrap());
        assert!(began.elapsed() >= gap * 10);
    }

    /// A guest waits as long as a request may, and takes the room of a waiting request.
    #[tokio::test(start_paused = true)]
    async fn guest_is_refused_after_max_wait_or_if_the_queue_is_full() {
        let (queue, taker) = (queue(), Taker::of(ClientId(1)));
        let terms = Terms { max_wait: Duration::from_secs(5), max_waiting: 1, ..Terms::default() };
        let _ahead = queue.guest_place(taker, &terms).await.unwrap();
        let mut first = pin!(queue.guest_place(taker, &terms));
        assert!((&mut first).now_or_never().is_none());
        let second = queue.guest_place(taker, &terms).await;
        assert!(matches!(second, Err(Refusal::QueueFull { .. })));
        let began = tokio::time::Instant::now();
        assert!(matches!(first.await, Err(Refusal::CrawlDelay { .. })));
        assert_eq!(began.elapsed(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn slot_is_not_held_while_a_fetch_waits_for_a_place() {
        let places = FairPlaces::new(8);
        let mut taken = all_that(&places, 1);
        let queue = queue();
        let terms = Terms { max_concurrent: 1, ..Terms::default() };
        let under_way = Fetch::default();
        let mut fetch =
            pin!(places.take_in_turn(Taker::of(ClientId(1)), &queue, FetchLine::Own, &terms, SOON, &under_way));
        assert!((&mut fetch).now_or_never().is_none());
        let page = queue.turn(ClientId(2), &terms).now_or_never();
        assert!(page.is_some_and(|turn| turn.is_ok()), "a page can take the slot");
        let page = queue.turn(ClientId(2), &terms).await.unwrap();
        taken.pop();
        assert!(timeout(SOON * 10, &mut fetch).await.is_err(), "the fetch has a place and waits for the slot");
        assert!(places.take(Taker::of(ClientId(1))).now_or_never().is_some(), "the fetch keeps no place");
        drop(page);
        assert!(timeout(SOON * 10, &mut fetch).await.unwrap().is_ok());
    }
}
