//! A copy of `pace.lua` in Rust, for tests in simulated time. A test compares it with the script. As that test is outside of the library,
//! this module imports nothing.

/// The server's data of a key.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    at: i64,
    last: i64,
    fetch: i64,
    hold: i64,
    busy: i64,
    owed: i64,
    off: i64,
    way: i64,
    backoff: i64,
    latency: i64,
    refusals: i64,
    by: u64,
    number: i64,
    stop: i64,
    before: i64,
    /// When the data expires.
    expires: i64,
}

impl Entry {
    /// Simulates a clock that was set back by `by`.
    #[allow(dead_code, reason = "for the test outside of the library")]
    pub fn set_ahead(&mut self, by: i64) {
        for at in [&mut self.at, &mut self.last, &mut self.fetch, &mut self.hold, &mut self.busy, &mut self.owed] {
            *at = if *at > 0 { *at + by } else { 0 };
        }
        self.expires += by;
    }
}

/// A message to the other instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Pace,
    Wait { off: i64, busy: i64, way: i64 },
}

/// Returns the script's answer and its messages. `numbers`: its arguments after the instance.
pub fn pace(entry: &mut Option<Entry>, now: i64, me: u64, numbers: &[i64; 21]) -> ([i64; 10], Vec<Told>) {
    let &[number, gap, lead, margin, is_fetch, unused, unused_before, late, left, rest @ ..] = numbers;
    let [last, fetch, hold, in_flight, backoff_was, backoff, latency_was, latency, refusals_was, refusals, most, way] =
        rest;
    entry.take_if(|entry| entry.expires <= now);
    let kept = entry.is_some();
    let mut key = entry.take().unwrap_or(Entry { at: now, ..Entry::default() });
    if key.at > now {
        let back = key.at - now;
        for at in [&mut key.last, &mut key.fetch, &mut key.hold, &mut key.busy, &mut key.owed] {
            *at = (*at - back).max(0);
        }
    }
    for at in [&mut key.last, &mut key.fetch] {
        if unused > 0 && *at == unused {
            *at = unused_before;
        }
    }
    let (off, busy, way_before, mut is_raised) = (key.off, key.busy, key.way, false);
    let later = (left - late).min(most);
    if later > 0 && key.fetch == late {
        key.fetch += later;
    } else if later > 0 {
        key.off += if key.last > late { later } else { 0 };
        key.last = key.last.max(late) + later;
    }
    (key.last, key.fetch) = (key.last.max(last.min(now)), key.fetch.max(fetch.min(now)));
    if now + hold > key.hold.max(now) {
        (key.hold, is_raised) = (now + hold.min(most), true);
    }
    for (field, was, is, matters) in [
        (&mut key.backoff, backoff_was, backoff, true),
        (&mut key.latency, latency_was, latency, false),
        (&mut key.refusals, refusals_was, refusals, true),
    ] {
        if (is > was || !kept) && is > *field || is < was && *field == was {
            is_raised |= matters && is > *field;
            *field = is;
        }
    }
    if in_flight >= 0 {
        key.busy = if in_flight > 0 { now + in_flight.min(most) } else { 0 };
    }
    key.way = (key.way * 63 / 64).max(way);

    let (gap, mut start) = (gap.max(key.backoff), 0);
    if number > 0 && (gap > 0 || key.hold > now) {
        let requests = key.last;
        let field = if is_fetch == 1 { &mut key.fetch } else { &mut key.last };
        if key.by == me && key.number == number && *field == key.stop {
            *field = key.before;
        }
        let last = if is_fetch == 1 { requests.max(*field) } else { *field };
        start = (now + lead).max(key.hold).max(key.busy).max(if last > 0 { last + gap } else { 0 });
        (key.by, key.number, key.stop, key.before) = (me, number, start + margin, *field);
        *field = key.stop;
    }
    let mut told = Vec::new();
    if is_raised {
        told.push(Told::Pace);
    }
    if key.off != off || key.busy != busy || key.way > way_before + SECOND / 100 {
        told.push(Told::Wait { off: key.off, busy: key.busy, way: key.way });
    }
    let answer = [now, start, key.before, key.off, key.busy, key.hold, key.backoff, key.latency, key.refusals, key.way];
    if kept || start > 0 || is_raised || key.last > 0 || key.busy > 0 {
        key.at = now;
        key.owed = key.owed.max(key.last + gap).max(key.fetch + gap).max(key.hold).max(key.busy);
        let remembers = if key.backoff + key.latency + key.refusals > 0 { HOUR } else { 10 * SECOND };
        key.expires = now + (key.owed - now).max(0) + remembers;
        *entry = Some(key);
    }
    (answer, told)
}

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3600 * SECOND;
