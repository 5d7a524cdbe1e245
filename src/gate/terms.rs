//! The configured pacing terms of a request.

use crate::config::{Hosts, Settings};
use crate::policy::pace::Terms;
use crate::policy::{Host, HostRules, Request};
use std::time::Duration;

/// The pacing terms of a request. `rules`: the client's rules for this host, whose crawl delay overrides that of robots.txt, `crawl_delay`.
pub(super) fn terms(settings: &Settings, rules: &HostRules, host: &Host, crawl_delay: Option<Duration>) -> Terms {
    let (pace, manners) = (&settings.pace, &rules.manners);
    let (crawl_delay, group_delay) = match rules.crawl_delay {
        None => (Duration::ZERO, crawl_delay.unwrap_or_default()),
        Some(own) => {
            let of_host = settings.hosts.get(host).rules.crawl_delay.unwrap_or_default();
            // If the client's own delay is longer, it gets a separate queue, like a group's delay, so that other clients do not wait for
            // it.
            (own.min(of_host), if own > of_host { own } else { Duration::ZERO })
        }
    };
    Terms {
        crawl_delay,
        group_delay,
        min_delay: pace.min_delay,
        adaptive: manners.adaptive,
        breaker: manners.breaker,
        max_crawl_delay: pace.max_crawl_delay,
        max_concurrent: pace.max_concurrent.get(),
        max_wait: pace.max_wait,
        queue: pace.queue,
        max_waiting: pace.max_waiting,
        first_fetch: false,
        is_renewal: false,
        of_page: None,
    }
}

/// The rules for the request's host. `hosts`: the client's own settings, in place of `Settings::hosts`.
pub(super) fn rules<'a>(request: &Request<'_>, hosts: Option<&'a Hosts>, settings: &'a Settings) -> &'a HostRules {
    &hosts.unwrap_or(&settings.hosts).get(request.authority.host()).rules
}
