//! What answers say about their use is noted. Those that say no to the declared purpose (SEMANTICS §7): their bodies are not
//! delivered, and who asks again for as long as they are fresh hears the same without another request to the site.

use super::carry::AnswerHead;
use super::request::Request;
use super::{Exchange, hosts};
use crate::config::Settings;
use crate::gate::Reported;
use crate::policy::freshness::{CacheFields, FreshnessLimits};
use crate::policy::{self, HostRules, Noted, Refusal, Reservation, RobotsOverride, SiteFile, UsageLines, Use};
use crate::proxy::client::Who;
use quick_cache::sync::Cache;
use ring::digest;
use std::time::{Duration, Instant, SystemTime};

/// What has been said, by URL and for whom.
pub struct Reserved(Cache<Key, Said>);

type Key = [u8; 32];

#[derive(Clone)]
struct Said {
    reservation: Box<Reservation>,
    /// Whatever the clock is set to meanwhile.
    until: Instant,
}

impl Default for Reserved {
    fn default() -> Self {
        Reserved(Cache::new(MOST))
    }
}

/// Whether anything can say no. robots.txt has to be read to know of that.
pub fn is_looked_for(rules: &HostRules, request: &Request<'_>) -> bool {
    !rules.purposes().is_empty() && !request.reads_robots()
}

impl Exchange<'_> {
    /// What the site has said of this before, if that is fresh.
    pub(super) fn is_reserved(&self) -> Result<(), Refusal> {
        let Exchange { proxy, request, who, ref settings, .. } = *self;
        let rules = rules(settings, request, who);
        if !is_looked_for(rules, request) || !matches!(request.method, "GET" | "HEAD") {
            return Ok(());
        }
        let Some(said) = proxy.reserved.0.get(&key(request, who, rules)) else { return Ok(()) };
        let holds = rules.usage.of(said.reservation.field) == RobotsOverride::Enforce
            && !rules.options.report_only
            && rules.purposes().iter().any(|purpose| purpose.as_str() == &*said.reservation.purpose);
        match holds && Instant::now() < said.until {
            true => Err(Refusal::AnswerReserved(said.reservation)),
            false => Ok(()),
        }
    }

    /// What the answer's head says about its use is noted; whether it may be handed on.
    #[cold]
    pub(super) fn heed(&mut self, head: &AnswerHead<'_>) -> Result<(), Refusal> {
        let Exchange { proxy, request, who, ref settings, .. } = *self;
        // It has to be read to know what it says.
        if request.reads_robots() || *request.target == *SiteFile::TdmRep.path().as_bytes() {
            return Ok(());
        }
        let now = SystemTime::now();
        let rules = rules(settings, request, who);
        let asked = asked(request, who);
        let product_tokens = rules.product_tokens(&asked);
        let to = Use { purposes: rules.purposes(), product_tokens: &product_tokens, modes: rules.usage, now };
        let mut lines = UsageLines::default();
        head.each(|_, name, value| lines.take(name, value));
        let noted = Noted::of(&lines, head.status, &to);
        let reservation = Some(()).filter(|()| (200..300).contains(&head.status)).and_then(|()| lines.reservation(&to));
        // TDMRep §5: what an answer says goes for it, whatever the site's file says.
        let is_mined =
            |told: &Reported| matches!(told, Reported::Refused(why) if matches!(**why, Refusal::MiningReserved(_)));
        if lines.frees_mining() && self.trip.reported.as_ref().is_some_and(is_mined) {
            self.trip.reported = None;
        }
        if !noted.is_empty() {
            proxy.counters.noted(&noted);
            proxy.offers.note(&request.authority, &noted);
            self.trip.noted = Some(Box::new(noted));
        }
        let Some((reservation, mode)) = reservation else { return Ok(()) };
        let reservation = Box::new(reservation);
        if mode == RobotsOverride::Enforce && !rules.options.report_only {
            if request.method == "GET" {
                let until = Instant::now() + lifetime(head, now);
                proxy.reserved.0.insert(key(request, who, rules), Said { reservation: reservation.clone(), until });
            }
            return Err(Refusal::AnswerReserved(reservation));
        }
        let reported = Reported::from(Refusal::AnswerReserved(reservation));
        proxy.tell_reported(who, &request.url(), &reported);
        self.trip.reported.get_or_insert(reported);
        Ok(())
    }
}

pub fn rules<'a>(settings: &'a Settings, request: &Request<'_>, who: &'a Who) -> &'a HostRules {
    &hosts(who.user.as_deref()).unwrap_or(&settings.hosts).get(request.authority.host()).rules
}

pub fn asked<'a>(request: &'a Request<'_>, who: &'a Who) -> policy::Request<'a> {
    policy::Request {
        agent_tokens: &request.agent_tokens,
        product_tokens: who.user.as_ref().map_or(&[], |user| &user.product_tokens),
        ..policy::Request::new(&request.authority, &request.target)
    }
}

fn key(request: &Request<'_>, who: &Who, rules: &HostRules) -> Key {
    let mut digest = digest::Context::new(&digest::SHA256);
    digest.update(request.url().as_bytes());
    for token in &*rules.product_tokens(&asked(request, who)) {
        digest.update(b"\n");
        digest.update(token.as_str().as_bytes());
    }
    digest.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// For how long it holds by the answer's own words; where these are none, for a day.
fn lifetime(head: &AnswerHead<'_>, now: SystemTime) -> Duration {
    let field = |name: &str| head.named(name.as_bytes());
    let (expires, date, age) = (field("expires"), field("date"), field("age"));
    let mut lines = Vec::new();
    head.each(|_, name, value| {
        if name.eq_ignore_ascii_case(b"cache-control") {
            lines.push(value.to_vec());
        }
    });
    let fields = CacheFields {
        cache_control: &lines.iter().map(Vec::as_slice).collect::<Vec<_>>(),
        expires: expires.as_deref(),
        date: date.as_deref(),
        age: age.as_deref(),
    };
    fields.lifetime(now, &FreshnessLimits { min_ttl: Duration::ZERO, ..FreshnessLimits::default() })
}

/// URLs that are remembered.
const MOST: usize = 100_000;
