//! The report as one self-contained page, for a regulator or a site, on screen or on paper.

mod tables;
mod words;

use super::overrides::operator;
use super::page::{Page, agents, let_through, refused, size, undeclared};
use crate::cli::counted;
use crate::cli::evidence::times_of;
use crate::evidence::{By, Verified, digits};
use std::fmt::Write;
use std::fs;
use words::{escape, held, time};

pub(super) fn render(page: &Page<'_>) -> String {
    let mut out = String::new();
    let title = match page.by {
        By::Host | By::Domain => "What was requested from which site",
        By::User => "Who has asked, and what for",
        By::Rule => "Which rules decided",
    };
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"robots\" content=\"noindex\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    introduction(page, &mut out);
    figures(page, &mut out);
    out.push_str(WORDS);
    tables::groups(page, &mut out);
    tables::uses(page, &mut out);
    tables::sites(page, &mut out);
    tables::settings(page, &mut out);
    tables::reasons(page, &mut out);
    tables::rejected_clients(page, &mut out);
    chain(page, &mut out);
    out.push_str("</body>\n</html>\n");
    out
}

fn introduction(page: &Page<'_>, out: &mut String) {
    out.push_str(
        "<p>politely is a proxy that stands between crawlers and sites, reads each site’s robots.txt before anything else, and refuses \
         what it disallows. The exceptions that its operator has configured are listed below.</p>\n",
    );
    if !page.report.verified.faults.is_empty() {
        out.push_str("<p class=\"bad\">The chain of the evidence is broken: do not rely on these figures. The end of this page says where.</p>\n");
    }
    out.push_str("<dl>\n");
    let (total, basis, selection) = (&page.report.total, &page.report.basis, page.selection);
    let contact = operator(basis).map_or("not stated in the configuration".to_owned(), |it| escape(&it));
    let instances = basis.instances.iter().map(|instance| {
        let version =
            instance.version.as_ref().map_or(String::new(), |version| format!(" (politely {})", escape(version)));
        format!("{}{version}, since {}", escape(&instance.name), time(instance.since))
    });
    let period = match (selection.since.or(total.times.map(|it| it.0)), selection.until.or(total.times.map(|it| it.1)))
    {
        (Some(from), Some(to)) => format!("{} to {}", time(from), time(to)),
        _ => "no requests".to_owned(),
    };
    let mut period = vec![period];
    if selection.since.is_some() || selection.until.is_some() {
        let records = |(from, to)| format!("with records from {} to {}", time(from), time(to));
        period.push(total.times.map_or("without a record of a request".to_owned(), records));
    }
    let mut selected: Vec<_> =
        selection.hosts.iter().map(|host| format!("host {}", escape(&host.to_string()))).collect();
    selected.extend(selection.user.iter().map(|user| format!("user {}", escape(user))));
    selected.extend(selection.purpose.iter().map(|purpose| format!("declared use {}", escape(purpose.as_str()))));
    let crawlers = total.product_tokens.iter().map(|token| escape(token));
    let (agents, are_more) = agents(page);
    let agents = agents.into_iter().map(escape).chain(are_more.then(|| "perhaps more".to_owned()));
    for (name, values) in [
        ("Operator", vec![contact]),
        ("Instance", instances.collect()),
        ("Period", period),
        ("Selected", selected),
        ("Crawlers", crawlers.collect()),
        ("User-Agents that sites saw", agents.collect()),
        ("Created", vec![time(page.made)]),
    ] {
        if !values.is_empty() {
            let _ = writeln!(out, "<dt>{name}<dd>{}", values.join("<br>"));
        }
    }
    out.push_str("</dl>\n");
}

fn figures(page: &Page<'_>, out: &mut String) {
    let total = &page.report.total;
    let class = if total.refused > 0 { "bad" } else { "" };
    out.push_str("<ul class=\"figures\">\n");
    for (class, figure, what) in [
        ("", total.requests.to_string(), "requests"),
        ("", total.delivered().to_string(), "delivered"),
        ("", total.status_4xx.to_string(), "answered with 4xx by the site"),
        ("", total.status_5xx.to_string(), "answered with 5xx by the site"),
        ("", total.answered.to_string(), "answered by the proxy"),
        (class, total.refused.to_string(), "refused"),
        ("", total.failed.to_string(), "failed"),
        ("", size(total.bytes_out), "received"),
        ("", held(total.held_ms), "waited to keep sites’ pace"),
    ] {
        let _ = writeln!(out, "<li><b class=\"{class}\">{figure}</b> {what}</li>");
    }
    out.push_str("</ul>\n");
    let said = [
        (total.refused > 0).then(|| (PLAIN, format!("{} refused: {}.", total.refused, escape(&refused(total))))),
        (total.let_through > 0).then(|| (BAD, format!("{}.", escape(&let_through(total))))),
        undeclared(total).map(|said| (BAD, format!("{said}."))),
        Some((PLAIN, WITH_URLS.to_owned())),
        (page.report.lost > 0).then(|| (BAD, format!("{} more requests are not recorded: {LOST}.", page.report.lost))),
    ];
    paragraphs(out, said.into_iter().flatten());
}

/// Writes paragraphs. `all`: the class attribute and the HTML of each.
fn paragraphs(out: &mut String, all: impl IntoIterator<Item = (&'static str, String)>) {
    all.into_iter().for_each(|(class, said)| *out += &format!("<p{class}>{said}</p>\n"));
}

fn chain(page: &Page<'_>, out: &mut String) {
    let Verified { records, segments, times, head, faults, lost, unclean, bodies, .. } = &page.report.verified;
    let (records, segments) = (counted(*records, "record"), counted(*segments, "segment"));
    let (class, chain) = match faults.len() as u64 {
        0 => {
            let times = times.map(|(from, to)| format!(", from {} to {}", time(from), time(to))).unwrap_or_default();
            let files = counted(*bodies, "file");
            (GOOD, format!("The chain is whole: {records} in {segments}{times}, and {files} that they refer to."))
        }
        places => (BAD, format!("The chain is broken, in {}:", counted(places, "place"))),
    };
    out.push_str("<h2>Evidence for this report</h2>\n");
    paragraphs(out, [(PLAIN, CHAIN.to_owned()), (class, chain)]);
    let listed = faults.iter().take(20).map(|fault| format!("<li>{}</li>\n", escape(&fault.to_string())));
    if !faults.is_empty() {
        *out += &format!("<ul>\n{}</ul>\n", listed.collect::<String>());
    }
    let lost = lost.iter().map(|(count, from, to)| {
        (
            PLAIN,
            match count {
                0 => format!("Records that were not yet on the disk at {} may be lost, as fsync failed.", time(*to)),
                count => format!("{count} records between {} and {} were lost, as {LOST}.", time(*from), time(*to)),
            },
        )
    });
    let unclean = (*unclean > 0).then(|| {
        (PLAIN, format!("The proxy ended {} without closing the chain, as by a loss of power.", times_of(*unclean)))
    });
    let stamped = page.report.verified.stamps.iter().map(|stamp| stamp.time).max().map(|last| {
        let stamps = counted(page.report.verified.stamps.len() as u64, "time stamp");
        let last = time(last);
        (
            PLAIN,
            format!(
                "Stored with the chain: {stamps} of its records, the last made at {last}. <code>--tsa-ca</code> verifies which authority \
                 made them."
            ),
        )
    });
    paragraphs(out, lost.chain(unclean).chain(stamped));
    let stamps = if page.report.verified.stamps.is_empty() { "" } else { " --tsa-ca FILE" };
    let directory = fs::canonicalize(page.directory);
    let directory = directory.as_deref().unwrap_or(page.directory).display().to_string();
    // A broken chain has no head.
    let head = faults.is_empty().then(|| digits(head));
    let (shown, option) = head.map_or_else(Default::default, |head| {
        (format!("Head of the chain: <code>{head}</code><br>"), format!(" --head {head}"))
    });
    let _ = writeln!(
        out,
        "<p>{shown}Directory of the evidence: <code>{}</code><br>To verify it: \
         <code>politely evidence verify {}{option}{stamps}</code></p>",
        escape(&directory),
        escape(&in_shell(&directory))
    );
}

/// Quotes a path as one word for a shell.
fn in_shell(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@".contains(c);
    if path.chars().all(is_plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

const PLAIN: &str = "";
const BAD: &str = " class=\"bad\"";
const GOOD: &str = " class=\"good\"";
const LOST: &str = "the disk was full or too slow";
const WITH_URLS: &str = "<code>--format csv</code> instead of <code>--format html</code> lists each request behind these figures, with \
    its URL.";
const CHAIN: &str = "Each request through this proxy left a record of the decision and of the line of robots.txt that decided; the \
    robots.txt is kept. Each record holds the SHA-256 of the one before it, which reveals records that were changed, added or removed \
    later. To make sure that the whole chain was not rewritten, compare its head with a copy that was kept elsewhere.";
/// A glossary for readers who know neither this program nor the Web.
const WORDS: &str = "<h2>What the words mean</h2>\n<dl>\n\
    <dt>Delivered<dd>the site answered, with a status from 100 to 399, and the client got that answer; 4xx: it did not have the page, or \
    refused it; 5xx: it failed\n\
    <dt>Answered here<dd>by the proxy itself, from its own copy: this request was not sent to the site, or the site confirmed \
    that the copy is still valid\n\
    <dt>Not asked<dd>the request was not sent to the site\n\
    <dt>no-matching-rule<dd>robots.txt has no rule for this address, and so allows it\n\
    <dt>SHA-256<dd>a fingerprint of a file: if one byte of the file changes, so does its fingerprint\n\
    <dt>Head<dd>the fingerprint of the last record, and so of all records before it\n\
    <dt>Times<dd>when a request was sent to the site or, if it was never sent, when it arrived at politely\n</dl>\n";
/// The style sheet, with the colours of the dashboard.
const STYLE: &str = concat!(include_str!("../../../admin/dashboard/colors.css"), include_str!("style.css"));
