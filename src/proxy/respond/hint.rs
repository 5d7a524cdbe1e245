//! Hints: one sentence that tells a client, model or person what to do about a refusal, in JSON and on the page. Pure.

use crate::config::Settings;
use crate::policy::{EgressReason, ListedBy, Refusal};
use std::borrow::Cow;

/// The hint for a refusal, with keys and commands in backticks. `wait`: seconds until a retry makes sense.
pub(super) fn hint(refusal: &Refusal, wait: Option<u64>, settings: &Settings) -> Cow<'static, str> {
    // `#` is replaced by the number of seconds.
    let text = match refusal {
        Refusal::Disallowed { .. } => {
            "Do not try this URL again, and use another page or source: `politely explain` with the URL shows how the rule was \
             chosen, and if the site's owner agrees, the proxy's operator can allow it in `hosts`."
        }
        Refusal::UsageDisallowed { .. } | Refusal::EntryReserved(_) | Refusal::AnswerReserved(_) => {
            "Do not try this URL again, and use another page or source, or ask the site's owner: the site does not permit the \
             purpose that the proxy declares (`identity.purpose`)."
        }
        Refusal::UsageUnreadable { .. } => {
            "Use another page or source, or tell the site's owner: the site's usage preferences cannot be read, and may forbid the \
             purpose that the proxy declares (`identity.purpose`)."
        }
        Refusal::RobotsUnreachable { .. } => {
            "Wait # s, then try again, or use another source: the proxy fetches robots.txt again by itself, and `politely \
             refresh` with the host does so now."
        }
        Refusal::CrawlDelay { .. } | Refusal::HostPaused { .. } => {
            "Wait # s, then try again, or let the proxy hold requests for longer (`pace.max_wait`, `politely run --max-wait`)."
        }
        Refusal::RevisitTooSoon { .. } => "Use the copy that you have, or wait # s, then try again (`min_revisit`).",
        Refusal::BudgetSpent { retry_after: None, .. } => "Ask the proxy's operator for a larger `budget`.",
        Refusal::BudgetSpent { .. } => "Wait # s, then try again, or ask the proxy's operator for a larger `budget`.",
        Refusal::Closed { .. } => "Wait # s, until the site's hours begin, then try again (`robots.visit_time`).",
        Refusal::QueueFull { .. } => "Wait # s, then try again, with fewer requests at a time.",
        Refusal::Draining { .. } | Refusal::FleetLost { .. } | Refusal::OwnLimit { .. } => {
            "Wait # s, then try again; if this goes on, tell the proxy's operator: the site is not the cause."
        }
        Refusal::ConnectionLimit { .. } => "Close some connections, then try again, with fewer at a time.",
        Refusal::EgressDenied { why: EgressReason::UnlistedHost { by: ListedBy::All, .. } } => {
            return format!("Ask for a URL on another host: the operator's allowlist has {}.", listed(settings)).into();
        }
        Refusal::EgressDenied { why: EgressReason::UnlistedMethod { by: ListedBy::All, .. } } => {
            let methods = settings.listed.methods.join(", ");
            return format!("Use another method: the operator's allowlist has {methods} (`egress.methods`).").into();
        }
        Refusal::EgressDenied { why: EgressReason::Port(_) } => {
            "Do not try this URL again: this port is blocked; only the proxy's operator can allow it (`egress.ports`)."
        }
        Refusal::EgressDenied { why: EgressReason::Address { .. } } => {
            "Do not try this URL again: private addresses are blocked; only the proxy's operator can allow them (`egress.allow`)."
        }
        Refusal::EgressDenied { .. } => {
            "Do not try this URL again, and use another host or source: the request is blocked, and only the \
             proxy's operator can allow it (`egress`)."
        }
        Refusal::ClientDenied { credentials: true, .. } => {
            "Put the name and password into the client's proxy URL: `http://NAME:PASSWORD@HOST:PORT`."
        }
        Refusal::ClientDenied { credentials: false, .. } => {
            "Ask the proxy's operator to allow this client's address or user (`access`)."
        }
        Refusal::AuthorityMismatch { .. } => "Open a connection for each host.",
        Refusal::NotAProxyRequest => {
            "Use this address as a proxy, with `curl -x`, or `HTTP_PROXY` and `HTTPS_PROXY`, or run a command behind a proxy of \
             its own with `politely run COMMAND`."
        }
        Refusal::BadRequest { .. }
        | Refusal::HeadTooLarge { .. }
        | Refusal::HeadTimeout { .. }
        | Refusal::ExpectationFailed => "Correct the request: nothing was sent to the site.",
        Refusal::Loop => "Check the client's and the proxy's settings: a proxy cannot be its own upstream.",
        Refusal::OperatorDenied { .. } | Refusal::InterceptDenied { .. } => {
            "Do not try this URL again, and use another page or source: the proxy's operator blocks it, not the site."
        }
        Refusal::NotStored => "Send the request without `only-if-cached`: the proxy asks the site then.",
        Refusal::RulesTooComplex { .. } => {
            "Do not try this URL again: only the proxy's operator can allow it, by rules for this host (`hosts`)."
        }
    };
    match text.split_once('#') {
        Some((before, after)) => format!("{before}{}{after}", wait.unwrap_or_default()).into(),
        None => text.into(),
    }
}

/// The first hosts of the allowlist.
fn listed(settings: &Settings) -> String {
    let hosts = &settings.listed.hosts;
    let mut all = hosts.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if hosts.len() > SHOWN {
        all += &format!(" and {} more", hosts.len() - SHOWN);
    }
    all + " (`egress.hosts`)"
}

const SHOWN: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn of(refusal: &Refusal, wait: Option<u64>, config: &str) -> String {
        hint(refusal, wait, &Settings::parse("test.yaml", config).unwrap()).into_owned()
    }

    #[test]
    fn an_unlisted_host_is_answered_with_the_allowlist() {
        let why = |by| EgressReason::UnlistedHost { host: "b.example".into(), by };
        let unlisted = Refusal::EgressDenied { why: why(ListedBy::All) };
        assert_eq!(
            of(&unlisted, None, "egress: { hosts: [a.example, '*.example.org'] }"),
            "Ask for a URL on another host: the operator's allowlist has a.example, *.example.org (`egress.hosts`)."
        );
        let many = (0..12).map(|n| format!("h{n}.example")).collect::<Vec<_>>().join(", ");
        let told = of(&unlisted, None, &format!("egress: {{ hosts: [{many}] }}"));
        assert!(told.ends_with("h9.example and 2 more (`egress.hosts`)."), "{told}");
        let users = Refusal::EgressDenied { why: why(ListedBy::User) };
        assert!(
            !of(&users, None, "egress: { hosts: [a.example] }").contains("a.example"),
            "the user's list decided, not this one"
        );
    }

    #[test]
    fn temporary_refusals_say_how_long_to_wait() {
        let retry_after = Duration::from_secs(30);
        for refusal in [
            Refusal::CrawlDelay { retry_after, max_wait: None },
            Refusal::HostPaused { retry_after, refusals: 5 },
            Refusal::QueueFull { retry_after },
            Refusal::Draining { retry_after },
            Refusal::RevisitTooSoon { retry_after },
        ] {
            let told = of(&refusal, Some(30), "");
            assert!(told.to_lowercase().contains("wait 30 s"), "{told}");
        }
    }
}
