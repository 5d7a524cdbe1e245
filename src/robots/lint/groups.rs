//! Finds groups whose effect is not what their text suggests (RFC 9309 §2.2.1). Pure.

use std::collections::HashMap;

use super::findings::Findings;
use super::outline::{Outline, OutlineEntry};
use crate::robots::ProductToken;
use crate::robots::parse::key::RecordKey;
use crate::robots::product_token::leading_token;

pub(super) fn find(outline: &Outline<'_>, policy_tokens: &[ProductToken], findings: &mut Findings<'_>) {
    let mut known: HashMap<Vec<u8>, (usize, &OutlineEntry)> = HashMap::new();
    for (number, group) in outline.groups().into_iter().enumerate() {
        for agent in group.iter().filter(|entry| entry.key == RecordKey::UserAgent && !entry.value.is_empty()) {
            let Some(&(earlier, first)) = known.get(&name(outline.value(agent))) else {
                known.insert(name(outline.value(agent)), (number, agent));
                continue;
            };
            let at = (agent, &agent.value);
            let related = Some((first, &first.value, "named here first"));
            let shown = outline.shown(&agent.value);
            if earlier == number {
                let message = format!("`{shown}` is named twice in one group");
                findings.warn("agent-twice", at, message, "leave one of them out", related);
            } else {
                let message = format!("`{shown}` has a group already");
                let hint =
                    "crawlers that know RFC 9309 merge both groups, others obey only the first: make one group of them";
                findings.warn("group-repeated", at, message, hint, related);
            }
        }
        pace_between_agents(group, findings);
        without_rules(group, findings);
        for_no_crawler(group, outline, policy_tokens, findings);
    }
    without_blank_line(outline, findings);
}

/// The form of a crawler's name in which names are compared.
fn name(value: &[u8]) -> Vec<u8> {
    let token = leading_token(value);
    if token.is_empty() { value } else { token }.to_ascii_lowercase()
}

/// Finds pace and Content-Signal lines between two user agents, which seem to end the first user agent's group, but do not.
fn pace_between_agents(group: &[OutlineEntry], findings: &mut Findings<'_>) {
    let mut above: Option<&OutlineEntry> = None;
    for pair in group.windows(2) {
        let [before, agent] = pair else { continue };
        if before.key == RecordKey::UserAgent {
            above = Some(before);
        }
        let is_pace = matches!(
            before.key,
            RecordKey::CrawlDelay | RecordKey::RequestRate | RecordKey::VisitTime | RecordKey::ContentSignal
        );
        if agent.key == RecordKey::UserAgent && is_pace {
            let related = above.map(|entry| (entry, &entry.value, "these rules apply to this user agent too"));
            let hint = "only rules end a group (RFC 9309 §2.2): put `Disallow:` above this line, \
                or the lines meant for both user agents below it";
            let message = "this user agent shares its rules with the one above";
            findings.warn("agents-joined", (agent, &agent.value), message, hint, related);
        }
    }
}

fn without_rules(group: &[OutlineEntry], findings: &mut Findings<'_>) {
    let said = |entry: &OutlineEntry| {
        !matches!(
            entry.key,
            RecordKey::UserAgent | RecordKey::Sitemap | RecordKey::Host | RecordKey::CleanParam | RecordKey::License
        )
    };
    let Some(first) = group.first() else { return };
    if !group.iter().any(said) {
        let hint = "add the missing rules; if everything should be allowed, write `Disallow:` without a path";
        let message = "the group has no rules, so everything is allowed";
        findings.warn("no-rules", (first, &first.value), message, hint, None);
    }
}

/// Finds pace lines in a group that names only policy tokens. No crawler fetches under such a name.
fn for_no_crawler(
    group: &[OutlineEntry],
    outline: &Outline<'_>,
    policy_tokens: &[ProductToken],
    findings: &mut Findings<'_>,
) {
    let is_policy = |name: &[u8]| {
        let configured = policy_tokens.iter().map(ProductToken::as_str);
        configured.chain(ProductToken::OPT_OUTS).any(|token| token.as_bytes().eq_ignore_ascii_case(name))
    };
    let mut agents = group.iter().filter(|entry| entry.key == RecordKey::UserAgent).peekable();
    let Some(first) = agents.peek().copied() else { return };
    if !agents.all(|agent| is_policy(&name(outline.value(agent)))) {
        return;
    }
    for entry in group {
        if matches!(entry.key, RecordKey::CrawlDelay | RecordKey::RequestRate | RecordKey::VisitTime) {
            let message =
                format!("`{}` names a purpose, not a crawler: no crawler obeys this line", outline.shown(&first.value));
            let hint = "put it into the group of a crawler, or of `*`";
            findings.warn(
                "pace-of-no-crawler",
                (entry, &entry.name),
                message,
                hint,
                Some((first, &first.value, "the user agent of the group")),
            );
        }
    }
}

/// Finds user agents right after a rule, without an empty line between them.
fn without_blank_line(outline: &Outline<'_>, findings: &mut Findings<'_>) {
    let first = outline.records.iter().position(|entry| entry.key == RecordKey::UserAgent).unwrap_or_default();
    for pair in outline.records[first..].windows(2) {
        let [rule, agent] = pair else { continue };
        let is_rule = matches!(rule.key, RecordKey::Allow | RecordKey::Disallow | RecordKey::ContentUsage);
        if is_rule && agent.key == RecordKey::UserAgent && agent.line.number == rule.line.number + 1 {
            let hint = "put an empty line before the group, as the drafts of 1994 and 1996 require";
            let message = "a new group begins right after a rule";
            let related = Some((rule, &rule.name, "does not apply to the user agent below"));
            findings.warn("agent-after-rules", (agent, &agent.name), message, hint, related);
        }
    }
}
