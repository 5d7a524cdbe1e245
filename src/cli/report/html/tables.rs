//! The tables of the page. Each function that makes a cell escapes untrusted text in it.

use super::words::{between, escape, time};
use crate::cli::report::overrides::overrides;
use crate::cli::report::page::{MOST_SHOWN, Page, meaning, named, size};
use crate::evidence::{By, CopyUse, Group, SiteBasis, digits};
use std::cmp::Reverse;
use std::fmt::Write;

pub(super) fn groups(page: &Page<'_>, out: &mut String) {
    let (heading, what) = match page.by {
        By::Host => ("Sites", "Site"),
        By::Domain => ("Domains", "Domain"),
        By::User => ("Users", "User or client"),
        By::Rule => ("Rules", "Rule"),
    };
    let columns: [Column; 12] = [
        (what, "", |group| escape(named(&group.name))),
        ("Requests", "n", |group| group.requests.to_string()),
        ("Delivered", "n", |group| group.delivered().to_string()),
        ("4xx", "n", |group| group.status_4xx.to_string()),
        ("5xx", "n", |group| group.status_5xx.to_string()),
        ("Answered here", "n", |group| group.answered.to_string()),
        ("Refused", "n", refused),
        ("Failed", "n", |group| group.failed.to_string()),
        ("Received", "n", |group| size(group.bytes_out)),
        ("First and last", "t", |group| between(group.times)),
        ("Why", "", |group| counts(&group.reasons)),
        ("Rules that refused most", "", refused_most_by),
    ];
    group_table(out, heading, columns, &page.report.groups);
}

pub(super) fn uses(page: &Page<'_>, out: &mut String) {
    let columns: [Column; 9] = [
        ("User or client", "", |user| escape(named(&user.name))),
        ("Requests", "n", |user| user.requests.to_string()),
        ("Declared use", "", |user| counts(&user.purposes)),
        ("None declared", "n", |user| user.undeclared.to_string()),
        ("Delivered", "n", |user| user.delivered().to_string()),
        ("4xx", "n", |user| user.status_4xx.to_string()),
        ("5xx", "n", |user| user.status_5xx.to_string()),
        ("Refused", "n", refused),
        ("Received", "n", |user| size(user.bytes_out)),
    ];
    group_table(out, "Declared use of the content", columns, &page.report.users);
}

/// A column's heading, its class, and the function that formats its cell for a group.
type Column = (&'static str, &'static str, fn(&Group) -> String);

fn group_table<const N: usize>(out: &mut String, heading: &str, columns: [Column; N], groups: &[Group]) {
    let rows = groups.iter().map(|group| columns.map(|(_, _, cell)| cell(group)));
    table(out, heading, columns.map(|(name, class, _)| (name, class)), rows);
}

/// The refused requests, and how many of them the site had answered.
fn refused(group: &Group) -> String {
    match group.refused_after_answer {
        0 => group.refused.to_string(),
        after => format!("{}<br>{after} fetched", group.refused),
    }
}

/// The rules that refused the most requests, with the number of these requests.
fn refused_most_by(group: &Group) -> String {
    let mut all: Vec<_> = group.refused_rules.iter().collect();
    all.sort_by_key(|(_, count)| Reverse(**count));
    counts(all.into_iter().take(MOST_RULES))
}

const MOST_RULES: usize = 3;

fn counts<'a>(all: impl IntoIterator<Item = (&'a String, &'a u64)>) -> String {
    all.into_iter().map(|(what, count)| format!("{} × {count}", escape(what))).collect::<Vec<_>>().join("<br>")
}

pub(super) fn sites(page: &Page<'_>, out: &mut String) {
    let columns = [
        ("Site", ""),
        ("Where", "f"),
        ("Answer", ""),
        ("SHA-256", "h"),
        ("Fetched first and last", "t"),
        ("Requests", "n"),
        ("Reservations found", ""),
    ];
    let mut all: Vec<_> = page.report.basis.sites.iter().collect();
    all.sort_by_key(|(origin, site)| (&site.domain, *origin));
    let rows = all.into_iter().flat_map(|(origin, site)| site_rows(origin, site));
    table(out, "What each site says: its files, and what its answers reserve", columns, rows);
}

fn site_rows(origin: &str, site: &SiteBasis) -> Vec<[String; 7]> {
    let files = [("robots.txt", &site.robots), ("tdmrep.json", &site.tdmrep), ("licence file", &site.licenses)];
    let copies = files.into_iter().flat_map(|(name, copies)| copies.iter().map(move |used| (name, used)));
    let mut rows: Vec<_> = copies.map(|(name, used)| copy_row(origin, name, used)).collect();
    let no = String::new;
    if site.robots.is_empty() {
        let (none, requests) = ("not asked for".to_owned(), site.requests.to_string());
        rows.insert(0, [escape(origin), "robots.txt".to_owned(), none, no(), no(), requests, no()]);
    }
    if !site.signals.is_empty() {
        let said: Vec<_> = site.signals.iter().map(|fields| escape(fields)).collect();
        rows.push([
            escape(origin),
            "fields and <code>&lt;meta&gt;</code> of answers".to_owned(),
            no(),
            no(),
            no(),
            no(),
            said.join("<br>"),
        ]);
    }
    rows
}

fn copy_row(origin: &str, name: &str, used: &CopyUse) -> [String; 7] {
    let copy = &used.copy;
    let mut answer: Vec<_> = copy.status.iter().map(|status| format!("status {status}")).collect();
    if copy.sha256.is_none() && copy.status.is_some() {
        answer.push("no file".to_owned());
    }
    answer.extend(copy.failure.iter().map(|failure| format!("failed: {}", escape(failure))));
    answer.extend(copy.failing_since.map(|since| format!("since {}", time(since))));
    let sha256 = copy.sha256.as_ref().map_or(String::new(), |hash| format!("<code>{}</code>", digits(hash)));
    let said: Vec<_> =
        used.reservations.iter().map(|(place, text)| format!("{}: {}", escape(place), escape(text))).collect();
    let (fetched, said) = (between(used.first.zip(copy.fetched)), said.join("<br>"));
    [escape(origin), name.to_owned(), answer.join("<br>"), sha256, fetched, used.requests.to_string(), said]
}

/// The configurations that were in force, and their overrides.
pub(super) fn settings(page: &Page<'_>, out: &mut String) {
    let columns = [
        ("In force, according to the records", "t"),
        ("Configuration", "h"),
        ("Requests", "n"),
        ("Overrides of the operator", ""),
    ];
    let basis = &page.report.basis;
    let mut all: Vec<_> = basis.configs.iter().collect();
    all.sort_by_key(|(_, used)| used.times);
    let rows = all.into_iter().map(|(hash, used)| {
        let said = used.text.as_deref().map(|text| overrides(text, page.selection, basis));
        let said = match said {
            None => "the configuration is not stored".to_owned(),
            Some(all) if all.is_empty() => "none".to_owned(),
            Some(all) => {
                let all = all.iter().map(|it| format!("{}: <code>{}</code>", escape(&it.scope()), escape(&it.setting)));
                all.collect::<Vec<_>>().join("<br>")
            }
        };
        [between(Some(used.times)), format!("<code>{}</code>", digits(hash)), used.requests.to_string(), said]
    });
    table(out, "Overrides in force", columns, rows);
}

pub(super) fn reasons(page: &Page<'_>, out: &mut String) {
    let rows = page.report.total.reasons.iter();
    let rows = rows.map(|(reason, count)| {
        [format!("<code>{}</code>", escape(reason)), count.to_string(), meaning(reason).to_owned()]
    });
    table(out, "Why", [("Reason", ""), ("Requests", "n"), ("What it means", "")], rows);
}

pub(super) fn rejected_clients(page: &Page<'_>, out: &mut String) {
    let columns: [Column; 3] = [
        ("Client", "", |client| escape(named(&client.name))),
        ("Requests", "n", |client| client.requests.to_string()),
        ("First and last", "t", |client| between(client.times)),
    ];
    if !page.report.turned_away.is_empty() {
        group_table(out, "Clients of the proxy that were turned away", columns, &page.report.turned_away);
        out.push_str(
            "<p>They had no credentials, or wrong ones, or may not use this proxy. No site was asked anything for them, and no figure \
             above counts them. Many programs send credentials only after they were turned away once.</p>\n",
        );
    }
}

/// Writes a table of HTML cells. On a narrow screen each cell is on a separate line, with its column's name.
fn table<const N: usize>(
    out: &mut String,
    heading: &str,
    columns: [(&str, &str); N],
    rows: impl IntoIterator<Item = [String; N]>,
) {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        return;
    }
    let _ = write!(out, "<h2>{heading}</h2>\n<table>\n<thead><tr>");
    for (name, class) in columns {
        let _ = write!(out, "<th class=\"{class}\">{name}");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows.by_ref().take(MOST_SHOWN) {
        out.push_str("<tr>");
        for ((name, class), cell) in columns.iter().zip(row) {
            let _ = write!(out, "<td class=\"{class}\" data-name=\"{name}\">{cell}");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n");
    let more = rows.count();
    if more > 0 {
        let _ = writeln!(out, "<p>… and {more} more, which <code>--format json</code> has.</p>");
    }
}
