//! Describes what the configuration does, one line for each point.

use super::output::Told;
use crate::cli::pace_limits;
use crate::config::{AccessLog, InterceptMode, Mode, Network, OnFleetLoss, Settings};

/// Describes the settings. `listed`: lines on differences and users.
pub(super) fn describe(settings: &Settings, listed: Vec<String>, told: &mut Told) {
    let mut say = |line: &str| told.say(line);
    for listener in &settings.listen {
        let is_open = settings.access.is_open_to_all();
        let client_ca = listener.tls.as_ref().and_then(|tls| tls.client_ca.as_ref());
        let mut reach = match (listener.address.is_loopback(), client_ca) {
            (Some(true), _) => "this machine only",
            (Some(false), Some(_)) if is_open => "anyone",
            (Some(false), _) => "clients allowed by `access`",
            (None, _) => "anyone who can reach the socket that systemd passes",
        }
        .to_owned();
        if let Some(path) = client_ca {
            reach += &format!(" with a certificate from {} (client_ca)", path.display());
        }
        say(&format!("listens on {}, for {reach}", listener.address));
    }
    if !settings.access.clients.is_empty() {
        let who = if settings.access.needs_user() { "clients" } else { "anybody" };
        say(&format!("admits {who} from {} (access.clients)", networks(&settings.access.clients)));
    }
    match settings.mode {
        Mode::Enforce => say("refuses what robots.txt disallows, and paces requests to each host"),
        Mode::Report => say("refuses and delays nothing; only reports what it would have done (mode: report)"),
    }
    let tokens: Vec<&str> = settings.identity.product_tokens.iter().map(AsRef::as_ref).collect();
    match tokens.as_slice() {
        [] => say("matches robots.txt groups by each request's User-Agent"),
        tokens => say(&format!("matches robots.txt groups as {}", tokens.join(", "))),
    }
    let purposes: Vec<&str> = settings.identity.purpose.iter().map(AsRef::as_ref).collect();
    if !purposes.is_empty() {
        say(&format!(
            "fetches for {}: pages that sites reserve from these purposes are refused (identity.purpose)",
            purposes.join(", ")
        ));
    }
    for (key, kept) in pace_limits(&settings.hosts.any().rules.manners) {
        say(&format!("applies to each host: {kept} (pace.{key})"));
    }
    match settings.intercept.default {
        InterceptMode::Intercept => {}
        InterceptMode::Tunnel => say("tunnels https: robots.txt is not applied to it (intercept.default)"),
        InterceptMode::Deny => say("refuses https (intercept.default)"),
    }
    if let Some(url) = settings.fleet.paces() {
        let loss = match settings.on_fleet_loss {
            OnFleetLoss::Local => match settings.fleet.instances {
                Some(instances) => format!("each instance keeps to its share, as one of at least {instances}"),
                None => {
                    "each instance keeps to its share among the instances it has seen, and refuses if it has seen none"
                        .into()
                }
            },
            OnFleetLoss::Refuse => "clients get 503".into(),
        };
        let shared = match settings.fleet.copies_apart() {
            None => format!("paces and copies of robots.txt through {url}"),
            Some(copies) => format!("copies of robots.txt through {copies}, and paces through {url}"),
        };
        say(&format!("shares {shared}; if that server is lost, {loss} (on_fleet_loss)"));
    }
    let users = &settings.access.users;
    let by_password = users.iter().filter(|user| user.password.is_some()).map(|user| user.name.as_ref().to_owned());
    let by_certificate = users
        .iter()
        .filter_map(|user| Some(format!("{} by {}", user.name.as_ref(), user.certificate.as_ref()?.as_ref())));
    let known: [(&str, Vec<String>); 2] = [
        ("requires a user name and password", by_password.collect()),
        ("recognises users by a name in their certificates", by_certificate.collect()),
    ];
    for (how, users) in known.into_iter().filter(|(_, users)| !users.is_empty()) {
        say(&format!("{how}: {} (access.users)", users.join(", ")));
    }
    say(&format!("connects to ports {} (egress.ports)", join(&settings.egress.ports)));
    for (key, listed) in [("hosts", join(&settings.listed.hosts)), ("methods", settings.listed.methods.join(", "))] {
        if !listed.is_empty() {
            say(&format!("refuses all {key} but {listed} (egress.{key})"));
        }
    }
    listed.iter().for_each(|line| say(line));
    if !settings.egress.allow.is_empty() {
        say(&format!("may connect to {}, although private (egress.allow)", networks(&settings.egress.allow)));
    }
    match &settings.log.access {
        AccessLog::Off => say("logs no requests (log.access)"),
        AccessLog::Stdout => say("logs requests to standard output (log.access)"),
        AccessLog::Journal => say("logs requests to the journal (log.access)"),
        AccessLog::File(path) => say(&format!("logs requests to {} (log.access)", path.display())),
    }
}

fn networks(all: &[Network]) -> String {
    all.iter().map(|network| network.0.to_string()).collect::<Vec<_>>().join(", ")
}

fn join<T: ToString>(all: &[T]) -> String {
    all.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
