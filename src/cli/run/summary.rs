//! The result of a run, reported at its end: for people, or as one JSON object for scripts.

use super::super::{REFUSED_AFTER_ANSWER, counted};
use super::bypass::Bypass;
use super::cure::cure;
use super::tally::Tally;
use crate::config::PortRange;
use crate::policy::{Authority, is_background};
use crate::proxy::{Counts, Distrusted};
use crate::robots::Purpose;
use crate::server::Totals;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Removes browsers' background requests from the lists; they are only counted.
pub(super) fn without_background(mut totals: Totals) -> Totals {
    totals.html_robots.retain(|authority| !authority.is_background());
    totals.without_purpose.retain(|authority| !authority.is_background());
    totals.failures.retain(|host, _| !is_background(host));
    totals.distrusted.retain(|one| !is_background(&one.host));
    totals
}

/// Everything that a run reports.
pub(super) struct Summary<'a> {
    pub program: &'a OsStr,
    /// The purposes declared for all hosts.
    pub purposes: Vec<Purpose>,
    pub tally: Tally,
    pub took: Duration,
    pub totals: Totals,
    pub max_wait: Duration,
    /// A signal has ended the command.
    pub is_cut_off: bool,
    /// Requests that were waiting for a crawl-delay when the command was ended.
    pub still_waiting: usize,
    pub is_isolated: bool,
    /// A connection that did not use the proxy.
    pub bypass: Option<Bypass>,
    /// `NO_PROXY` names this machine.
    pub is_loopback_direct: bool,
    pub allowed_ports: Vec<PortRange>,
}

impl Summary<'_> {
    fn total(&self) -> u64 {
        let counts = &self.totals.counts;
        counts.forwarded + counts.failed + counts.client_gone + counts.refused.values().sum::<u64>()
    }

    /// Number of requests without browsers' background requests, as those do not show what the command fetched.
    fn own_requests(&self) -> u64 {
        self.total().saturating_sub(self.tally.background)
    }

    fn program_name(&self) -> String {
        Path::new(self.program).file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Advice for a client that rejects the certificate. Recognises the client by its User-Agent, or else by the command's name, as most
    /// clients send no User-Agent with CONNECT.
    fn trust_advice(&self, one: &Distrusted) -> &'static str {
        one.how.cure(&one.host, one.agent.as_deref().or(Some(&self.program_name())))
    }

    fn unknown_purposes(&self) -> Vec<&str> {
        self.purposes.iter().map(Purpose::as_str).filter(|name| !Purpose::KNOWN.contains(name)).collect()
    }

    /// Number of requests whose clients left while the requests were held, without the requests that were waiting when the command was
    /// ended.
    fn given_up_requests(&self) -> u64 {
        self.totals.held.given_up.saturating_sub(self.still_waiting as u64)
    }

    /// Formats the summary: a first line, and one for each thing that the user should know.
    pub fn text(&self) -> String {
        let Totals { counts, held, failures, distrusted, html_robots, without_purpose, .. } = &self.totals;
        let (tally, total) = (&self.tally, self.total());
        let own = self.own_requests();
        let mut text = format!("politely: {}, {} forwarded", counted(total, "request"), counts.forwarded);
        if counts.failed > 0 {
            text += &format!(", {} failed", counts.failed);
        }
        if counts.client_gone > 0 {
            text += &format!(", {} aborted by the client", counts.client_gone);
        }
        for (slug, count) in &counts.refused {
            text += &format!(", {count} {slug}");
        }
        for (slug, count) in &counts.reported {
            text += &format!(", {count} {slug} (reported)");
        }
        let mut line = |what: String| text += &format!("\n  {}", super::super::inert(&what));
        if counts.refused_after_answer > 0 {
            line(format!("{} {REFUSED_AFTER_ANSWER}", counts.refused_after_answer));
        }
        for (rule, used) in tally.top(SHOWN) {
            line(format!("{} by {rule}", used.requests));
            used.urls.iter().take(SHOWN_URLS).for_each(|url| line(format!("  {url}")));
            certificate_hint(&rule.file, &rule.text).into_iter().for_each(&mut line);
        }
        for authority in html_robots.iter().take(SHOWN) {
            line(format!("{} is an HTML page, which usually contains no rules", authority.robots_url()));
        }
        if html_robots.len() > SHOWN {
            line(format!("and {} more such pages", html_robots.len() - SHOWN));
        }
        if let Some(address) = tally.private {
            line(format!("{} refused: {address} is not a public address", tally.private_in_all));
            line(address_hint(address));
        }
        if !tally.ports.is_empty() {
            let ports: Vec<String> = tally.ports.iter().map(u16::to_string).collect();
            let allowed: Vec<String> = self.allowed_ports.iter().map(PortRange::to_string).collect();
            line(format!("refused: `egress.ports` does not allow {}", ports.join(", ")));
            line(format!("hint: `--set 'egress.ports=[{}]'` opens them", [allowed, ports].concat().join(", ")));
        }
        if held.requests > 0 {
            let [held_for, took] = [held.time, self.took].map(|time| time.as_secs_f64());
            line(format!("{} held for a crawl-delay, during {held_for:.1} s of {took:.1} s", held.requests));
        }
        if self.given_up_requests() > 0 {
            let (longest, up_to) =
                (held.longest_given_up.as_secs_f64(), if self.given_up_requests() > 1 { "up to " } else { "" });
            let gave_up = counted(self.given_up_requests(), "request");
            line(format!("{gave_up} given up by the client, after {up_to}{longest:.0} s in the queue"));
            // A client that leaves sooner does so on purpose.
            if held.longest_given_up >= Duration::from_secs(1) {
                line(format!(
                    "hint: give the client a longer timeout; or pass `--max-wait {}s`: then requests that would wait longer are \
                     answered 429 at once",
                    (held.longest_given_up.as_secs() - 1).max(1)
                ));
            }
        }
        if self.still_waiting > 0 {
            line(format!("{} still waiting when the command was ended", counted(self.still_waiting as u64, "request")));
        }
        if tally.too_long_in_all > 0 {
            line(format!("{} refused: would have waited longer than --max-wait:", tally.too_long_in_all));
            tally.too_long.iter().take(SHOWN).for_each(|url| line(format!("  {url}")));
            let most = sufficient_max_wait(self.max_wait, tally.longest_wait);
            line(format!("hint: `--max-wait {most}` or more holds them instead"));
        }
        for (host, failures) in failures.iter().take(SHOWN) {
            line(format!("{} failed at {host}: {}", failures.count, failures.last));
            certificate_hint(host, &failures.last).into_iter().for_each(&mut line);
        }
        if tally.background > 0 {
            line(format!("{} of the browser refused", counted(tally.background, "background request")));
        }
        for one in distrusted.iter().take(SHOWN) {
            let (host, times, what) = (&one.host, one.times, one.how.what());
            line(format!("the certificate for {host} was rejected {}: {what}", counted(times, "time")));
            line(format!("hint: {}", self.trust_advice(one)));
        }
        for name in self.unknown_purposes() {
            line(format!("the purpose `{name}` is unknown: only a site's line with exactly this name can refuse it"));
        }
        if !without_purpose.is_empty() {
            let sites = counted(without_purpose.len() as u64, "site");
            line(format!("{sites} stated usage preferences, which were not applied, as no purpose is declared"));
            line("hint: `--purpose ai-train`, for example, applies them".into());
        }
        if counts.tunnels > 0 {
            let tunnels = counted(counts.tunnels, "tunnel");
            line(format!("{tunnels}: robots.txt was not applied inside (`intercept: tunnel`)"));
        }
        if own == 0 && self.is_cut_off {
            text += "\n  the command was ended before any request came through";
        }
        self.warning().into_iter().for_each(|warning| text += &format!("\n{warning}"));
        text
    }

    /// Warns of requests that may have bypassed the proxy or robots.txt.
    pub fn warning(&self) -> Option<String> {
        if let Some(bypass) = &self.bypass {
            return Some(super::super::inert(&bypass.warning()));
        }
        let is_trusted = self.totals.distrusted.is_empty();
        let own = self.own_requests();
        if own == 0 && !self.is_cut_off && is_trusted && self.totals.connections == 0 {
            let instead = match self.is_isolated {
                true => "if the command made requests, they did not use the proxy and failed",
                false => "if the command made requests, they bypassed it, and robots.txt was not applied",
            };
            let cure = cure(&self.program_name());
            let mut text = format!("politely: warning: nothing came through the proxy; {instead}\nhint: {cure}");
            if self.is_loopback_direct && !self.is_isolated {
                text += "; requests to this machine bypass the proxy (NO_PROXY) unless `egress.allow` opens it: \
                         `--set 'egress.allow=[127.0.0.0/8]'`, and `--set 'egress.ports=[80, 443, 8000]'` if its port is 8000";
            }
            return Some(text);
        }
        (own > 0 && own == self.totals.counts.tunnels && is_trusted).then(|| {
            "politely: warning: only tunnels came through the proxy: robots.txt was not applied to anything that the command \
             fetched\nhint: `intercept` in the configuration says which hosts are tunnelled"
                .into()
        })
    }

    pub fn json(&self, exit_code: u8) -> Value {
        let Counts { forwarded, failed, client_gone, tunnels, refused, refused_after_answer, reported, .. } =
            &self.totals.counts;
        let rules = self.tally.top(MOST_RULES).into_iter().map(|(rule, used)| {
            json!({ "file": rule.file, "line": rule.line, "rule": rule.text, "requests": used.requests, "urls": used.urls })
        });
        let failures =
            self.totals.failures.iter().map(
                |(host, failures)| json!({ "authority": host, "requests": failures.count, "last": failures.last }),
            );
        let distrusted = self.totals.distrusted.iter().map(|one| {
            json!({ "authority": one.host, "user_agent": one.agent, "how": one.how.slug(), "times": one.times,
                "cure": self.trust_advice(one) })
        });
        let (too_long, Totals { held, without_purpose, .. }) = (&self.tally.too_long, &self.totals);
        json!({
            "program": self.program.to_string_lossy(),
            "exit_code": exit_code,
            "seconds": self.took.as_secs_f64(),
            "requests": { "total": self.total(), "forwarded": forwarded, "failed": failed, "client_gone": client_gone, "refused": refused,
                "refused_after_answer": refused_after_answer, "reported": reported },
            "background_refused": self.tally.background,
            "tunnels": tunnels,
            "bypassed": self.bypass,
            "held": { "requests": held.requests, "seconds": held.time.as_secs_f64(), "given_up": self.given_up_requests(),
                "still_waiting": self.still_waiting },
            "purpose": { "declared": self.purposes.iter().map(Purpose::as_str).collect::<Vec<_>>(), "unknown": self.unknown_purposes(),
                "missing": without_purpose.iter().map(Authority::to_string).collect::<Vec<_>>() },
            "rules": rules.collect::<Vec<_>>(),
            "refused_for_waiting": {
                "requests": self.tally.too_long_in_all,
                "urls": too_long,
                "max_wait": (self.tally.too_long_in_all > 0).then(|| sufficient_max_wait(self.max_wait, self.tally.longest_wait)),
            },
            "html_robots": self.totals.html_robots.iter().map(Authority::robots_url).collect::<Vec<_>>(),
            "failures": failures.collect::<Vec<_>>(),
            "distrusted": distrusted.collect::<Vec<_>>(),
        })
    }
}

/// Hint for a refused address.
fn address_hint(address: IpAddr) -> String {
    match address.is_loopback() {
        true => "hint: `--set 'egress.allow=[127.0.0.0/8, \"::1\"]'` opens this machine; without it, clients that read NO_PROXY \
                 ask localhost, 127.0.0.1 and ::1 directly, and robots.txt is not applied"
            .into(),
        false => format!("hint: `--set 'egress.allow=[\"{address}\"]'` opens it"),
    }
}

/// Hint for a site whose certificate is from an unknown authority. `url`: the URL of the site. `said`: the error.
fn certificate_hint(url: &str, said: &str) -> Option<String> {
    let host = Authority::from_url(url).ok()?.host().to_string();
    let untrusted = UNTRUSTED.iter().any(|words| said.contains(words));
    untrusted.then(|| {
        format!("hint: `--set egress.ca_file=FILE` trusts an authority of your own, `--set 'hosts={{\"{host}\": {{verify: off}}}}'` any certificate")
    })
}

/// The smallest `--max-wait` with which the refused request with the longest wait would have been sent, if no other request was waiting.
fn sufficient_max_wait(max_wait: Duration, longest_wait: Duration) -> String {
    // A request refused after waiting for robots.txt reports less than `max_wait`.
    match longest_wait.max(max_wait).as_secs() + 1 {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds => format!("{}m", seconds.div_ceil(60)),
    }
}

/// The error texts for an unknown authority, from `tls_words` and, for OpenSSL, `upstream::wide`.
const UNTRUSTED: [&str; 3] = [
    "the certificate is a CA certificate",
    "the certificate's issuer is not trusted",
    "the certificate is self-signed, and not trusted",
];
/// Maximum number of items of each kind in the summary for people.
const SHOWN: usize = 5;
const SHOWN_URLS: usize = 2;
const MOST_RULES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_authority_gets_a_hint_with_the_setting() {
        let said = "it could not be read (the certificate is a CA certificate, as self-signed ones often are, and is not trusted)";
        let hint = certificate_hint("https://a.example:8443/robots.txt", said).unwrap();
        assert!(hint.contains("'hosts={\"a.example\": {verify: off}}'"), "{hint}");
        assert_eq!(certificate_hint("https://a.example", "the certificate expired on 2026-11-01"), None);
    }

    #[test]
    fn suggested_max_wait_covers_the_whole_wait() {
        let advised =
            |max_wait, longest| sufficient_max_wait(Duration::from_secs(max_wait), Duration::from_secs(longest));
        assert_eq!(advised(10, 60), "61s");
        assert_eq!(advised(600, 900), "16m");
        assert_eq!(advised(60, 2), "61s", "the wait for robots.txt counts too");
    }
}
