//! One table of cases for the arithmetic of paces, which exists twice: as `policy::pace::Lane`, and as the script that
//! redis-server runs. To the script the time is an argument in these tests alone. Times are milliseconds.

use crate::server::Redis;
use Do::{Ask, End, Go};
use politely::policy::pace::{Client, Lane, Next, Outcome, Slot, Terms, Turn};
use redis::aio::MultiplexedConnection;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// What an instance does.
#[derive(Debug, Clone, Copy)]
enum Do {
    /// Asks for a turn.
    Ask(char, Gap),
    /// Its request has ended.
    End(char, Outcome),
    /// Whoever waited there has gone.
    Go(char),
}

/// What its request has to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    /// A crawl-delay: alone in flight.
    Crawl(u64),
    /// The operator's `min_delay`.
    Min(u64),
    /// The same for a first fetch of robots.txt.
    Fetch(u64),
    None,
}

struct Case {
    name: &'static str,
    steps: &'static [(u64, Do)],
    /// Who starts when.
    starts: &'static [(char, u64)],
}

const OK: Outcome = Outcome::Success;
const NO: Outcome = Outcome::Backoff { retry_after: None };
const ONE: Gap = Gap::Crawl(1000);
/// `pace.max_crawl_delay`.
const MOST: Duration = Duration::from_secs(300);

const fn later(seconds: u64) -> Outcome {
    Outcome::Backoff { retry_after: Some(Duration::from_secs(seconds)) }
}

const CASES: &[Case] = &[
    Case { name: "the first starts at once", steps: &[(0, Ask('a', ONE))], starts: &[('a', 0)] },
    Case {
        name: "the gap runs from start to start",
        steps: &[
            (0, Ask('a', ONE)),
            (300, End('a', OK)),
            (400, Ask('b', ONE)),
            (1100, End('b', OK)),
            (5000, Ask('a', ONE)),
        ],
        starts: &[('a', 0), ('b', 1000), ('a', 5000)],
    },
    Case {
        name: "one at a time where a crawl-delay is in force",
        steps: &[(0, Ask('a', ONE)), (100, Ask('b', ONE)), (1500, End('a', OK))],
        starts: &[('a', 0), ('b', 1500)],
    },
    Case {
        name: "several where only the operator asks for a gap",
        steps: &[(0, Ask('a', Gap::Min(200))), (0, Ask('b', Gap::Min(200))), (10, Ask('c', Gap::Min(200)))],
        starts: &[('a', 0), ('b', 200), ('c', 400)],
    },
    Case {
        name: "first come first served",
        steps: &[
            (0, Ask('a', ONE)),
            (10, Ask('c', ONE)),
            (20, Ask('b', ONE)),
            (30, End('a', OK)),
            (40, Ask('a', ONE)),
            (1001, End('c', OK)),
            (2002, End('b', OK)),
        ],
        starts: &[('a', 0), ('c', 1000), ('b', 2000), ('a', 3000)],
    },
    Case {
        name: "each keeps its own gap",
        steps: &[
            (0, Ask('a', ONE)),
            (10, End('a', OK)),
            (20, Ask('b', Gap::Crawl(3000))),
            (3010, End('b', OK)),
            (3020, Ask('a', ONE)),
        ],
        starts: &[('a', 0), ('b', 3000), ('a', 4000)],
    },
    Case {
        name: "who hangs up gives the place back",
        steps: &[(0, Ask('a', ONE)), (10, End('a', OK)), (20, Ask('b', ONE)), (30, Ask('c', ONE)), (500, Go('b'))],
        starts: &[('a', 0), ('c', 1000)],
    },
    Case {
        name: "a start that nobody made binds nobody",
        steps: &[(0, Ask('a', ONE)), (50, End('a', Outcome::Unused)), (60, Ask('b', ONE))],
        starts: &[('a', 0), ('b', 60)],
    },
    Case {
        name: "no answer says nothing about the pace",
        steps: &[(0, Ask('a', ONE)), (50, End('a', Outcome::Failure)), (60, Ask('b', ONE))],
        starts: &[('a', 0), ('b', 1000)],
    },
    Case {
        name: "Retry-After is obeyed from when it is said",
        steps: &[(0, Ask('a', Gap::None)), (100, End('a', later(5))), (200, Ask('b', Gap::None))],
        starts: &[('a', 0), ('b', 5100)],
    },
    Case {
        name: "Retry-After is obeyed for an hour at most, and once beyond the longest delay",
        steps: &[
            (0, Ask('a', ONE)),
            (0, End('a', later(7200))),
            (10, Ask('b', ONE)),
            (3_600_000, End('b', Outcome::Failure)),
            (3_600_000, Ask('a', ONE)),
        ],
        starts: &[('a', 0), ('b', 3_600_000), ('a', 3_900_000)],
    },
    Case {
        name: "what is halved is what is kept of it",
        steps: &[
            (0, Ask('a', Gap::None)),
            (0, End('a', later(1000))),
            (10, Ask('b', Gap::None)),
            (1_000_100, End('b', OK)),
            (1_000_200, Ask('a', Gap::None)),
        ],
        starts: &[('a', 0), ('b', 1_000_000), ('a', 1_150_000)],
    },
    Case {
        name: "Retry-After of zero is no advice",
        steps: &[(0, Ask('a', Gap::None)), (0, End('a', later(0))), (10, Ask('b', Gap::None))],
        starts: &[('a', 0), ('b', 1000)],
    },
    Case {
        name: "without advice a second, then twice as long, halved by each success until it is over",
        steps: &[
            (0, Ask('a', Gap::None)),
            (0, End('a', NO)),
            (1, Ask('a', Gap::None)),
            (1100, End('a', NO)),
            (1101, Ask('b', Gap::None)),
            (3200, End('b', OK)),
            (3201, Ask('a', Gap::None)),
            (4200, End('a', OK)),
            (4201, Ask('a', Gap::None)),
            (4700, End('a', OK)),
            (4701, Ask('a', Gap::None)),
            (4900, End('a', OK)),
            (4901, Ask('a', Gap::None)),
            (5000, End('a', OK)),
            (5000, Ask('a', Gap::None)),
            (5000, Ask('b', Gap::None)),
        ],
        // Refused at 0: 1 s. Refused at 1100: 2 s. Then 1 s, 0.5 s, 0.25 s, 0.125 s, over.
        starts: &[
            ('a', 0),
            ('a', 1000),
            ('b', 3100),
            ('a', 4100),
            ('a', 4600),
            ('a', 4850),
            ('a', 4975),
            ('a', 5000),
            ('b', 5000),
        ],
    },
    Case {
        name: "the first step is no shorter than the gap",
        steps: &[(0, Ask('a', Gap::Crawl(4000))), (100, End('a', NO)), (200, Ask('b', Gap::Crawl(4000)))],
        starts: &[('a', 0), ('b', 4100)],
    },
    Case {
        name: "refused together, they make one step",
        steps: &[
            (0, Ask('a', Gap::None)),
            (0, Ask('b', Gap::None)),
            (100, End('a', NO)),
            (150, End('b', NO)),
            (200, Ask('a', Gap::None)),
            (1150, End('a', OK)),
            (1160, Ask('b', Gap::None)),
        ],
        starts: &[('a', 0), ('b', 0), ('a', 1100), ('b', 1600)],
    },
    Case {
        name: "a success of before says nothing about the raised pace",
        steps: &[
            (0, Ask('a', Gap::None)),
            (0, Ask('b', Gap::None)),
            (100, End('a', later(2))),
            (200, End('b', OK)),
            (300, Ask('c', Gap::None)),
            (2150, End('c', Outcome::Failure)),
            (2200, Ask('a', Gap::None)),
        ],
        starts: &[('a', 0), ('b', 0), ('c', 2100), ('a', 4100)],
    },
    Case {
        name: "advice given together: the longest",
        steps: &[
            (0, Ask('a', Gap::None)),
            (0, Ask('b', Gap::None)),
            (100, End('a', later(9))),
            (200, End('b', later(2))),
            (300, Ask('c', Gap::None)),
        ],
        starts: &[('a', 0), ('b', 0), ('c', 9100)],
    },
    Case {
        name: "who waits is pushed back by a refusal",
        steps: &[(0, Ask('a', ONE)), (100, Ask('b', ONE)), (900, End('a', later(3)))],
        starts: &[('a', 0), ('b', 3900)],
    },
    Case {
        name: "a first fetch leaves the turn to its request, and keeps its distance from other fetches",
        steps: &[
            (0, Ask('a', Gap::Fetch(500))),
            (20, End('a', OK)),
            (30, Ask('a', Gap::Min(500))),
            (40, End('a', OK)),
            (50, Ask('b', Gap::Fetch(500))),
            (540, End('b', OK)),
            (550, Ask('c', Gap::Fetch(500))),
        ],
        starts: &[('a', 0), ('a', 30), ('b', 530), ('c', 1030)],
    },
];

#[test]
fn the_cases_hold_for_the_lane() {
    for case in CASES {
        assert_eq!(by_lane(case), case.starts, "{}", case.name);
    }
}

#[tokio::test]
async fn the_same_cases_hold_for_the_script() {
    let Some(redis) = Redis::start().await else { return };
    let mut connection = redis.connection().await;
    for case in CASES {
        assert_eq!(by_script(case, &mut connection).await, case.starts, "{}", case.name);
    }
}

fn terms(gap: Gap) -> Terms {
    let ms = Duration::from_millis;
    let (crawl_delay, min_delay) = match gap {
        Gap::Crawl(gap) => (ms(gap), Duration::ZERO),
        Gap::Min(gap) | Gap::Fetch(gap) => (Duration::ZERO, ms(gap)),
        Gap::None => (Duration::ZERO, Duration::ZERO),
    };
    let first_fetch = matches!(gap, Gap::Fetch(_));
    Terms { crawl_delay, min_delay, max_crawl_delay: MOST, max_wait: MOST * 100, first_fetch, ..Terms::default() }
}

/// All instances as clients of one lane.
fn by_lane(case: &Case) -> Vec<(char, u64)> {
    let mut world =
        Alone { zero: Instant::now(), now: 0, lane: Lane::default(), slots: BTreeMap::new(), starts: Vec::new() };
    let mut tickets = BTreeMap::new();
    for (at, step) in case.steps {
        world.run_until(*at);
        let now = world.instant(*at);
        match *step {
            Ask(who, gap) => match world.lane.request(now, Client(who.into()), &terms(gap), || who) {
                Turn::Go(slot) => world.start(who, slot),
                Turn::Wait { ticket, .. } => _ = tickets.insert(who, ticket),
                Turn::Refuse(why) => panic!("{who}: {why:?}"),
            },
            End(who, outcome) => {
                world.lane.finished(|| now, world.slots.remove(&who).expect("it has started"), outcome);
            }
            Go(who) => assert_eq!(world.lane.cancel(tickets[&who]), Some(who)),
        }
    }
    world.run_until(END);
    world.starts
}

struct Alone {
    zero: Instant,
    now: u64,
    lane: Lane<char>,
    slots: BTreeMap<char, Slot>,
    starts: Vec<(char, u64)>,
}

impl Alone {
    fn instant(&self, at: u64) -> Instant {
        self.zero + Duration::from_millis(at)
    }

    fn start(&mut self, who: char, slot: Slot) {
        self.starts.push((who, self.now));
        self.slots.insert(who, slot);
    }

    fn run_until(&mut self, until: u64) {
        loop {
            match self.lane.poll(self.instant(self.now)) {
                Next::Start(who, slot) => self.start(who, slot),
                Next::Refuse(who, why) => panic!("{who}: {why:?}"),
                Next::Idle => break,
                Next::WaitUntil(at) => match at.duration_since(self.zero).as_millis() as u64 {
                    at if at > until => break,
                    at => self.now = at,
                },
            }
        }
        self.now = until;
    }
}

/// Each instance asks the server, as `gate::pacer` does.
async fn by_script(case: &Case, connection: &mut MultiplexedConnection) -> Vec<(char, u64)> {
    let key = format!("politely:{{{}}}:pace", case.name);
    let mut world = Fleet { connection, key, now: 0, waiting: Vec::new(), flying: BTreeMap::new(), starts: Vec::new() };
    for (at, step) in case.steps {
        world.run_until(*at).await;
        match *step {
            Ask(who, gap) => {
                world.waiting.push(Waiter { who, gap, turn_at: None, alone: false });
                world.ask_all().await;
            }
            End(who, outcome) => {
                let flight = world.flying.remove(&who).expect("it has started");
                let left = (outcome != Outcome::Unused).then_some(flight.start);
                world.tell(who, None, Some(Told { gives_up: flight.in_turn, gap: flight.gap, left, outcome })).await;
                world.ask_all().await;
            }
            Go(who) => {
                world.waiting.retain(|waiter| waiter.who != who);
                let (in_turn, ..) = world.tell(who, None, None).await;
                if in_turn == 3 {
                    let told = Told { gives_up: true, gap: Gap::None, left: None, outcome: Outcome::Unused };
                    world.tell(who, None, Some(told)).await;
                }
                world.ask_all().await;
            }
        }
    }
    world.run_until(END).await;
    world.starts
}

struct Fleet<'c> {
    connection: &'c mut MultiplexedConnection,
    key: String,
    now: u64,
    waiting: Vec<Waiter>,
    flying: BTreeMap<char, Flight>,
    starts: Vec<(char, u64)>,
}

struct Waiter {
    who: char,
    gap: Gap,
    turn_at: Option<u64>,
    alone: bool,
}

struct Flight {
    start: u64,
    gap: Gap,
    in_turn: bool,
}

struct Told {
    gives_up: bool,
    gap: Gap,
    left: Option<u64>,
    outcome: Outcome,
}

impl Fleet<'_> {
    async fn run_until(&mut self, until: u64) {
        while let Some(at) = self.waiting.iter().filter_map(|waiter| waiter.turn_at).min().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            let place = self.waiting.iter().position(|waiter| waiter.turn_at == Some(at)).expect("found above");
            let Waiter { who, gap, alone, .. } = self.waiting.remove(place);
            self.starts.push((who, self.now));
            self.flying.insert(who, Flight { start: self.now, gap, in_turn: alone });
            if !alone {
                let told = Told { gives_up: true, gap, left: Some(self.now), outcome: Outcome::Unused };
                self.tell(who, None, Some(told)).await;
                self.ask_all().await;
            }
        }
        self.now = until;
    }

    /// In place of the messages that tell who has the turn.
    async fn ask_all(&mut self) {
        let mut place = 0;
        while place < self.waiting.len() {
            let Waiter { who, gap, turn_at, .. } = self.waiting[place];
            if turn_at.is_some() {
                place += 1;
                continue;
            }
            let (state, wait, backoff) = self.tell(who, Some(gap), None).await;
            match state {
                1 => {
                    self.waiting.remove(place);
                    self.starts.push((who, self.now));
                    self.flying.insert(who, Flight { start: self.now, gap, in_turn: false });
                }
                3 => {
                    let waiter = &mut self.waiting[place];
                    waiter.turn_at = Some(self.now + wait / 1000);
                    waiter.alone = matches!(gap, Gap::Crawl(_)) || backoff > 0;
                    place += 1;
                }
                _ => place += 1,
            }
        }
    }

    /// State, wait and backoff.
    async fn tell(&mut self, who: char, wants: Option<Gap>, told: Option<Told>) -> (u8, u64, u64) {
        let micros = |ms: u64| (ms + ZERO) * 1000;
        let kind = |gap| if matches!(gap, Gap::Fetch(_)) { "fetch" } else { "request" };
        let in_turn = self.flying.get(&who).is_some_and(|flight| flight.in_turn);
        let mut call = SCRIPT.key(&self.key);
        // Kept for ever: crashes have tests of their own.
        call.arg(micros(self.now)).arg(who.to_string()).arg(micros(END));
        call.arg(wants.map_or("", kind));
        call.arg(wants.map_or(0, |gap| terms(gap).gap().as_micros() as u64)).arg(MOST.as_micros() as u64);
        call.arg(0).arg(0).arg(u8::from(in_turn));
        if let Some(Told { gives_up, gap, left, outcome }) = told {
            let ago = left.map_or(String::new(), |left| (micros(self.now) - micros(left)).to_string());
            let (word, advice) = match outcome {
                Outcome::Success => ("success", None),
                Outcome::Failure => ("failure", None),
                Outcome::Unused => ("", None),
                Outcome::Backoff { retry_after } => ("backoff", retry_after),
            };
            let advice = advice.map_or(String::new(), |advice| advice.as_micros().to_string());
            call.arg(u8::from(gives_up)).arg(kind(gap)).arg(ago).arg(word).arg(advice);
        }
        let answer: (u8, u64, u64, u64, u32) = call.invoke_async(self.connection).await.expect("the script runs");
        (answer.0, answer.1, answer.3)
    }
}

static SCRIPT: LazyLock<redis::Script> =
    LazyLock::new(|| redis::Script::new(include_str!("../../src/gate/fleet/pace.lua")));
/// When all is over.
const END: u64 = 20_000_000;
/// To the server, the first instant of a case: a day in November 2023.
const ZERO: u64 = 1_700_000_000_000;
