//! `--format training-summary`: fills in what a crawler's evidence can contribute to the template for the public summary of training
//! content, AI Act (Regulation (EU) 2024/1689) Art. 53(1)(d). docs/evidence.md names the version of the template.

use super::overrides::{operator, overrides};
use super::page::{Page, agents, let_through, named, outcomes, put_text};
use crate::cli::counted;
use crate::evidence::Group;
use crate::rfc3339;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::SystemTime;

/// Renders Markdown. The groups of the report must be domains.
pub(super) fn render(page: &Page<'_>) -> String {
    let (total, basis) = (&page.report.total, &page.report.basis);
    let month = |at: SystemTime| {
        let text = rfc3339::millis(at);
        format!("{}/{}", &text[5..7], &text[..4])
    };
    let (from, to) = total
        .times
        .map_or_else(|| (PLACEHOLDER.to_owned(), PLACEHOLDER.to_owned()), |(from, to)| (month(from), month(to)));
    let configs: Vec<_> = basis.configs.values().filter_map(|used| used.text.as_deref()).collect();
    let mut names: Vec<_> = total.product_tokens.iter().map(|token| literal(token)).collect();
    let (agents, are_more) = agents(page);
    names.extend(agents.iter().map(|agent| format!("User-Agent \"{}\"", literal(agent))));
    names.extend(are_more.then(|| "perhaps more User-Agents".to_owned()));
    names.extend(operator(basis).map(|contact| format!("contact: {}", literal(&contact))));
    let uses =
        total.purposes.iter().map(|(purpose, count)| format!("{} ({})", literal(purpose), counted(*count, "request")));
    let mut uses: Vec<_> = uses.collect();
    if total.undeclared > 0 {
        uses.push(format!("no purpose declared ({})", counted(total.undeclared, "request")));
    }
    let set = configs.iter().flat_map(|config| overrides(config, page.selection, basis));
    let set: BTreeSet<_> = set.map(|it| literal(&format!("{}: {}", it.scope(), it.setting))).collect();
    let domains = most(&page.report.groups);
    let all = page.report.groups.iter().filter(|domain| domain.content_bytes > 0).count();

    let mut out = String::from("# Public summary of training content: what was crawled\n\n");
    let _ = writeln!(
        out,
        "Made {} by politely {} from its evidence, for the sections of the template to which a crawler can contribute. {PLACEHOLDER} is to \
         be written by hand.\n",
        rfc3339::seconds(page.made),
        env!("CARGO_PKG_VERSION"),
    );
    if !page.report.verified.faults.is_empty() {
        out.push_str("**The chain of the evidence is broken: do not rely on these figures.**\n\n");
    }
    let _ = writeln!(out, "## 1.3. Modalities, overall training data size and other characteristics\n");
    let _ = writeln!(
        out,
        "- Latest date of data acquisition/collection for model training: {to} (by this crawler; {PLACEHOLDER})\n"
    );
    out.push_str("## 2.3. Data crawled and scraped from online sources\n\n");
    let behaviour = format!(
        "robots.txt (RFC 9309) was read before each site was asked, and obeyed, except for the operator's overrides: {}. Of {}: {}. \
         {} brought content (answers 2xx, and tunnels): {}; {} had not changed since an earlier fetch (304). \
         Captchas, paywalls and logins: {PLACEHOLDER}",
        joined(set.into_iter().collect()),
        counted(total.requests, "request"),
        outcomes(total),
        total.content,
        counted(total.content_bytes, "byte"),
        total.not_modified,
    );
    for (field, value) in [
        (
            "Were crawlers used by the provider or on behalf of?",
            if total.requests > 0 { "Yes" } else { PLACEHOLDER }.to_owned(),
        ),
        ("If yes, specify crawler name(s)/identifier(s)", joined(names)),
        ("Purposes of the crawler(s)", format!("as declared: {}; {PLACEHOLDER}", joined(uses))),
        ("General description of crawler behaviour", behaviour),
        ("Period of data collection", format!("from {from} to {to}")),
        ("Comprehensive description of the type of content and online sources crawled", PLACEHOLDER.to_owned()),
        ("Type of modality covered", PLACEHOLDER.to_owned()),
        (
            "Summary of the most relevant domain names crawled",
            format!("below: {} of {all}, the top 10 % by the size of the content", domains.len()),
        ),
        ("Additional comments (optional)", PLACEHOLDER.to_owned()),
    ] {
        let colon = if field.ends_with('?') { "" } else { ":" };
        let _ = writeln!(out, "- {field}{colon} {value}");
    }
    out.push_str("\n| Domain | Bytes | Requests | Unchanged (304) |\n|---|---:|---:|---:|\n");
    for domain in &domains {
        let Group { name, content, content_bytes, not_modified, .. } = domain;
        let _ = writeln!(out, "| {} | {content_bytes} | {content} | {not_modified} |", literal(named(name)));
    }
    out.push_str("\n## 3.1. Respect of reservation of rights from text and data mining exception or limitation\n\n");
    let count = |reason: &str| total.refused_by.get(reason).copied().unwrap_or_default();
    let robots = [count("robots-disallowed"), count("robots-unreachable")];
    let usage = count("usage-disallowed") + count("usage-unreadable");
    let _ = writeln!(
        out,
        "- Measures before and during data collection: robots.txt ({} refused, and {} because it could not be read), and what sites \
         reserve from the declared use: by Content-Signal and Content-Usage in robots.txt and in answers, Robots-Tag, X-Robots-Tag, \
         TDM-Reservation, tdmrep.json, licence files (RSL) if enforced, and `<meta>` elements in the head of a page (robots, tdm-reservation) ({usage} refused). For other reasons, such as the pace: {} refused. {}. {PLACEHOLDER}",
        robots[0],
        robots[1],
        total.refused - robots[0] - robots[1] - usage,
        let_through(total),
    );
    out
}

/// The top tenth of the domains by bytes of content, rounded up. Domains that delivered nothing do not count.
fn most(domains: &[Group]) -> Vec<&Group> {
    let mut all: Vec<_> = domains.iter().filter(|domain| domain.content_bytes > 0).collect();
    all.sort_by(|one, other| (other.content_bytes, &one.name).cmp(&(one.content_bytes, &other.name)));
    all.truncate(all.len().div_ceil(10));
    all
}

fn joined(values: Vec<String>) -> String {
    if values.is_empty() { "none".to_owned() } else { values.join(", ") }
}

/// Escapes text, so that it contains neither Markdown, nor HTML, nor a change of the text's direction.
fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '(' | ')' | '#' | '!' | '|' | '~' => out.extend(['\\', c]),
            c => put_text(&mut out, c),
        }
    }
    out
}

/// Placeholder for text that the provider has to write.
const PLACEHOLDER: &str = "\\[…\\]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_tenth_of_domains_by_bytes_is_listed() {
        let domain =
            |number: u64| Group { name: format!("{number}.example"), content_bytes: number % 15, ..Group::default() };
        let names = |count: u64| -> Vec<_> {
            let all: Vec<_> = (0..count).map(domain).collect();
            most(&all).iter().map(|it| it.name.clone()).collect()
        };
        assert_eq!(names(0), [""; 0]);
        assert_eq!(names(2), ["1.example"], "one of one: 0.example has delivered nothing");
        assert_eq!(names(12), ["11.example", "10.example"], "a tenth of eleven, rounded up");
    }

    #[test]
    fn untrusted_text_is_escaped_for_markdown() {
        assert_eq!(literal("\u{202e}"), "\\u{202e}");
        assert_eq!(literal("<b>|[x](y)\n"), "&lt;b&gt;\\|\\[x\\]\\(y\\)\\u{a}");
    }
}
