//! Whether and when a request may go: owns all shared state and is the only reader of the clock. Called by `proxy`.

mod decode;
mod entry;
mod fetch;
mod pacer;
mod redirect;
mod rulebook;

pub use crate::policy::pace::Outcome;
pub use pacer::Permit;

use crate::config::Settings;
use crate::policy::pace::{Client, Terms};
use crate::policy::{Authority, KeyBy, PaceKey, Refusal, RuleEvidence};
use crate::robots::{ProductToken, RuleKind};
use crate::upstream::Upstream;
use arc_swap::ArcSwap;
use bytes::Bytes;
use entry::Access;
use fetch::Fetcher;
use pacer::Pacer;
use pingora_core::server::configuration::ServerConf;
use rulebook::RuleBook;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The rule book and the pacer, as one question.
pub struct Gate {
    settings: Arc<ArcSwap<Settings>>,
    book: RuleBook,
    pacer: Arc<Pacer>,
}

/// A request that wants to go.
#[derive(Debug)]
pub struct Ask<'a> {
    pub authority: &'a Authority,
    /// Path and query as sent.
    pub target: &'a str,
    pub user_agent: Option<&'a [u8]>,
    /// For fairness among those who wait.
    pub client: IpAddr,
    /// `Prefer: wait`, which lowers `pace.max_wait`.
    pub prefer_wait: Option<Duration>,
    /// It asks for robots.txt itself.
    pub reads_robots: bool,
}

/// The answer to one that may.
pub enum Admitted {
    /// It goes now, and holds the permit until it is over.
    Go {
        permit: Permit,
        /// In report mode, why it would not have gone.
        reported: Option<Refusal>,
    },
    /// It is answered with our copy of robots.txt.
    Robots(RobotsCopy),
}

/// The robots.txt that we hold.
#[derive(Debug)]
pub struct RobotsCopy {
    pub status: u16,
    pub body: Bytes,
    pub etag: Option<Box<str>>,
    pub last_modified: Option<Box<str>>,
    /// Since it was fetched or confirmed.
    pub age: Duration,
}

impl Gate {
    pub fn new(settings: Arc<ArcSwap<Settings>>, upstream: Arc<Upstream>, conf: &ServerConf) -> Self {
        let pacer = Arc::new(Pacer::new());
        let book = RuleBook::new(Fetcher::new(upstream, conf), pacer.clone(), settings.clone());
        Gate { settings, book, pacer }
    }

    pub async fn admit(&self, ask: &Ask<'_>) -> Result<Admitted, Refusal> {
        let settings = self.settings.load_full();
        let slot = self.book.slot(ask.authority);
        let crawl_delay = loop {
            let entry = slot.entry.load_full();
            let now = SystemTime::now();
            let robots_url = || ask.authority.robots_url().into_boxed_str();
            let rules = match &entry.access {
                Access::Absent => {
                    let _ = self.book.fetch(ask.authority, &slot).changed().await;
                    continue;
                }
                Access::AllowAll => break None,
                Access::Rules(robots) => robots,
                Access::Unreachable { good: Some(robots), .. } => robots,
                Access::Unreachable { why, retry_at, .. } => {
                    if now >= *retry_at {
                        let _ = self.book.fetch(ask.authority, &slot).changed().await;
                        continue;
                    }
                    return Err(Refusal::RobotsUnreachable {
                        retry_after: retry_at.duration_since(now).unwrap_or_default(),
                        robots_url: robots_url(),
                        why: why.clone(),
                    });
                }
            };
            if now >= entry.expires_at {
                drop(self.book.fetch(ask.authority, &slot));
            }
            if ask.reads_robots {
                return Ok(Admitted::Robots(RobotsCopy {
                    status: entry.status,
                    body: Bytes::copy_from_slice(rules.source()),
                    etag: entry.etag.clone(),
                    last_modified: entry.last_modified.clone(),
                    age: now.duration_since(entry.fetched_at).unwrap_or_default(),
                }));
            }
            let tokens: Vec<String> = match settings.identity.product_tokens.as_slice() {
                [] => ProductToken::from_user_agent(ask.user_agent.unwrap_or_default())
                    .iter()
                    .map(|token| token.as_str().to_owned())
                    .collect(),
                tokens => tokens.iter().map(|token| token.as_ref().to_owned()).collect(),
            };
            let rules = rules.rules_for(&tokens);
            let verdict = rules.check(ask.target);
            if !verdict.is_allowed() {
                return Err(Refusal::Disallowed {
                    robots_url: robots_url(),
                    product_tokens: tokens.iter().map(|t| t.as_str().into()).collect(),
                    rule: verdict.rule().map(|rule| RuleEvidence {
                        line: rule.line(),
                        allow: rule.kind() == RuleKind::Allow,
                        pattern: rule.pattern().into(),
                    }),
                });
            }
            break rules.crawl_delay();
        };
        let pace = &settings.pace;
        let terms = Terms {
            crawl_delay: crawl_delay.unwrap_or_default(),
            min_delay: pace.min_delay,
            max_crawl_delay: pace.max_crawl_delay,
            max_concurrent: pace.max_concurrent.get(),
            max_wait: ask.prefer_wait.map_or(pace.max_wait, |wait| wait.min(pace.max_wait)),
            queue: if self.pacer.waiting() < pace.max_waiting { pace.queue } else { 0 },
            first_fetch: false,
        };
        let mut hasher = DefaultHasher::new();
        ask.client.hash(&mut hasher);
        let permit = self.pacer.pace(PaceKey::new(KeyBy::Host, ask.authority, None)).turn(Client(hasher.finish()), terms).await?;
        Ok(Admitted::Go { permit, reported: None })
    }

    /// A tunnelled connection, whose requests cannot be seen: its pace is all that can be kept.
    pub async fn admit_connection(&self, authority: &Authority, client: IpAddr) -> Result<Permit, Refusal> {
        let settings = self.settings.load_full();
        let mut hasher = DefaultHasher::new();
        client.hash(&mut hasher);
        let terms = Terms { min_delay: settings.pace.min_delay, ..Terms::default() };
        self.pacer.pace(PaceKey::new(KeyBy::Host, authority, None)).turn(Client(hasher.finish()), terms).await
    }
}
