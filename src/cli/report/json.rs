//! The report as JSON.

use super::overrides::{contact, overrides};
use super::page::Page;
use crate::cli::evidence::as_json;
use crate::evidence::{CopyUse, Group, digits};
use crate::rfc3339;
use crate::robots::Purpose;
use serde_json::json;

pub(super) fn all_as_json(page: &Page<'_>) -> serde_json::Value {
    let group = |group: &Group| {
        let mut value = json!(group);
        value["from"] = group.times.map(|(from, _)| rfc3339::millis(from)).into();
        value["to"] = group.times.map(|(_, to)| rfc3339::millis(to)).into();
        value
    };
    let groups = |all: &[Group]| all.iter().map(group).collect::<Vec<_>>();
    let (report, selection) = (page.report, page.selection);
    json!({
        "by": page.what(),
        "since": selection.since.map(rfc3339::millis),
        "until": selection.until.map(rfc3339::millis),
        "hosts": selection.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "user": selection.user,
        "purpose": selection.purpose.as_ref().map(Purpose::as_str),
        "made": rfc3339::millis(page.made),
        "lost": report.lost,
        "evidence": as_json(&page.report.verified),
        "total": group(&report.total),
        "groups": groups(&report.groups),
        "users": groups(&report.users),
        "turned_away": groups(&report.turned_away),
        "own_agents": report.basis.own_agents(),
        "instances": report.basis.instances.iter().map(|it| json!({
            "name": it.name, "version": it.version, "since": rfc3339::millis(it.since),
        })).collect::<Vec<_>>(),
        "configurations": report.basis.configs.iter().map(|(hash, used)| json!({
            "sha256": digits(hash),
            "requests": used.requests,
            "from": rfc3339::millis(used.times.0),
            "to": rfc3339::millis(used.times.1),
            "contact": used.text.as_deref().and_then(contact),
            "overrides": used.text.as_deref().map(|text| {
                let all = overrides(text, selection, &report.basis);
                all.iter().map(|it| json!({ "scope": it.scope(), "setting": it.setting })).collect::<Vec<_>>()
            }),
        })).collect::<Vec<_>>(),
        "sites": report.basis.sites.iter().map(|(origin, site)| json!({
            "origin": origin,
            "domain": site.domain,
            "requests": site.requests,
            "robots": site.robots.iter().map(copy).collect::<Vec<_>>(),
            "tdmrep": site.tdmrep.iter().map(copy).collect::<Vec<_>>(),
            "licenses": site.licenses.iter().map(copy).collect::<Vec<_>>(),
            "signals": site.signals,
        })).collect::<Vec<_>>(),
    })
}

fn copy(used: &CopyUse) -> serde_json::Value {
    let copy = &used.copy;
    json!({
        "requests": used.requests,
        "status": copy.status,
        "sha256": copy.sha256.as_ref().map(digits),
        "first_fetched": used.first.map(rfc3339::millis),
        "last_fetched": copy.fetched.map(rfc3339::millis),
        "failure": copy.failure,
        "failing_since": copy.failing_since.map(rfc3339::millis),
        "reservations": used.reservations,
    })
}
