//! Warnings about settings that are valid but may have unwanted consequences.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::policy::HostPattern;
use crate::robots::Purpose;

use super::hosts::Hosts;
use super::read::error::{Complaint, did_you_mean};
use super::schema::file::Listener;
use super::schema::units::show_duration;
use super::settings::Settings;

/// Lists the warnings. `all`: the whole configuration as JSON.
pub(super) fn warnings(settings: &Settings, all: &Value) -> Vec<Complaint> {
    let Settings { pace, hosts, access, .. } = settings;
    let own = hosts.longest_delay();
    let delays = [("pace.min_delay", pace.min_delay), ("a host's `crawl_delay`", own.min(pace.max_crawl_delay))];
    let longer = delays.into_iter().filter(|(_, delay)| *delay > pace.max_wait);
    let warning = |(key, delay): (&str, _)| {
        let (delay, wait) = (show_duration(delay), show_duration(pace.max_wait));
        let what = format!("{key} ({delay}) is longer than `pace.max_wait` ({wait})");
        let hint = "a request that comes too soon is answered 429 with Retry-After at once: the crawler has to retry by \
            itself; raise `pace.max_wait` to let requests wait in the proxy";
        Complaint::new(what, hint)
    };
    let purposes = unknown_purposes(settings).into_iter().map(|purpose| {
        let what = format!(
            "`{purpose}` is not a purpose that politely knows: only lines with exactly this name can disallow it"
        );
        let known = || format!("the known purposes are {}", Purpose::KNOWN.map(|name| format!("`{name}`")).join(", "));
        Complaint::new(what, did_you_mean(purpose, &Purpose::KNOWN).unwrap_or_else(known))
    });
    let suffixes = public_suffixes(all).into_iter().map(|pattern| {
        Complaint::new(
            format!("`{pattern}` covers every site below a public suffix"),
            "if you do not mean all of these sites, name a domain, such as `*.example.co.uk`",
        )
    });
    let names = access.users.iter().filter(|user| user.certificate.is_some()).map(|user| user.name.as_ref());
    let names = names.collect::<Vec<_>>().join(", ");
    let takes_certificates = settings.listen.iter().any(Listener::takes_certificates);
    let unused = (!names.is_empty() && !takes_certificates).then(|| {
        Complaint::new(
            format!("no listener asks for client certificates: `certificate` has no effect for {names}"),
            "add the authority of the certificates to `listen[].tls`, as `client_ca`",
        )
    });
    let shut_out = (access.require_user && access.users.is_empty()).then(|| {
        Complaint::new(
            "nobody is let in: there is no user, and `access.require_user` is true",
            "add `access.users`; if `include` names files with users, check that these files exist",
        )
    });
    let is_open = !access.needs_user() && access.clients.iter().any(|network| network.0.prefix_len() == 0);
    let reachable = |it: &&Listener| is_open && it.address.is_loopback() != Some(true) && !it.takes_certificates();
    let open = settings.listen.iter().filter(reachable).map(|listener| {
        Complaint::new(
            format!(
                "anybody who can reach `{}` may use this proxy: `access` has no users, and `clients` includes every address",
                listener.address
            ),
            "add `access.users`, or name your networks, such as `clients: [10.0.0.0/8]`",
        )
    });
    let contact = &settings.identity.contact;
    let is_contact = contact.is_empty() || contact.contains("://") || contact.contains('@');
    let nobody = (!is_contact).then(|| {
        Complaint::new(
            format!("`identity.contact: {contact}` is neither a URL nor a mail address"),
            "write `https://bot.example/about`, or `crawler@example.org`",
        )
    });
    longer
        .map(warning)
        .chain(nobody)
        .chain(purposes)
        .chain(suffixes)
        .chain(unused)
        .chain(shut_out)
        .chain(open)
        .collect()
}

/// The patterns that cover a public suffix, such as `*.co.uk` and `*.com`, in the keys and values of any section, without duplicates.
fn public_suffixes(value: &Value) -> BTreeSet<String> {
    let here = |text: &str| {
        let Ok(HostPattern::Below(parent)) = HostPattern::parse(text) else { return None };
        let suffix = psl::suffix(parent.as_bytes())?;
        let is_whole = suffix.typ() == Some(psl::Type::Icann) && suffix.as_bytes().len() == parent.len();
        is_whole.then(|| format!("*.{parent}"))
    };
    match value {
        Value::String(text) => here(text).into_iter().collect(),
        Value::Array(items) => items.iter().flat_map(public_suffixes).collect(),
        Value::Object(entries) => {
            entries.iter().flat_map(|(key, value)| public_suffixes(value).into_iter().chain(here(key))).collect()
        }
        _ => BTreeSet::new(),
    }
}

/// The configured purposes that politely does not know, without duplicates.
fn unknown_purposes(settings: &Settings) -> BTreeSet<&str> {
    let users = settings.access.users.iter().filter_map(|user| user.hosts.as_ref());
    let all = users.chain([&settings.hosts]).flat_map(Hosts::purposes);
    all.map(Purpose::as_str).filter(|purpose| !Purpose::KNOWN.contains(purpose)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_contact_causes_a_warning() {
        for (contact, is_told) in [
            ("me at uni", true),
            ("https://bot.example", false),
            ("bot@a.example", false),
            ("mailto:b@a.example", false),
        ] {
            let settings = Settings::parse("", &format!("identity: {{ contact: '{contact}' }}")).unwrap();
            let told = settings.warnings().iter().filter(|it| it.what.contains("neither a URL nor a mail address"));
            assert_eq!(told.count(), usize::from(is_told), "{contact}");
        }
    }

    #[test]
    fn pattern_over_a_public_suffix_causes_a_warning() {
        let yaml = "hosts: { '*.co.uk': {}, '*.example.co.uk': {} }\n\
            intercept: { hosts: { '*.org.uk': tunnel } }\n\
            admin: { hosts: ['*.co.nz', '*.cluster.local'] }\n\
            egress: { hosts: ['*.com.au', '*.github.io', com.au], deny: ['*.gov.uk', 198.51.100.0/24, '*.COM'] }\n\
            access: { users: [{ name: a, password: \"$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA\",\n\
            egress: { hosts: ['*.co.jp'] }, hosts: { '*.ac.uk': {}, '*.com': {} } }] }\n";
        let settings = Settings::parse("a.yaml", yaml).unwrap();
        let warned = settings.warnings.iter().map(|warning| warning.what.as_str());
        let patterns: Vec<_> = warned.filter(|what| what.contains("public suffix")).collect();
        let all = ["ac.uk", "co.jp", "co.nz", "co.uk", "com", "com.au", "gov.uk", "org.uk"];
        assert_eq!(patterns, all.map(|suffix| format!("`*.{suffix}` covers every site below a public suffix")));
    }
}
