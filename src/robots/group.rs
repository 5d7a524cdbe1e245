//! RFC 9309 §2.2.1: which groups of a file a crawler obeys. Pure. Filled by `parse`, asked by `RobotsTxt::rules_for`.

use std::ops::Range;
use std::time::Duration;

use super::delay::{RequestRate, VisitTime};
use super::options::{ParseOptions, UserAgentMatch};
use super::product_token::{is_token_octet, leading_token};
use super::ruleset::RuleSpan;
use super::source::{Source, Span};

/// The groups of a file.
///
/// A *section* is a run of user-agent lines with all that follows them; pace belongs to it. A *group* is a run of
/// sections up to the first that has rules; rules belong to it, as they alone end a group (§2.2.4: other records must
/// not interfere).
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Ordered by token for look-up, then as in the file.
    names: Vec<Name>,
    sections: Vec<Section>,
    /// The sections of `*`, as in the file.
    stars: Vec<u32>,
    /// Where each group's rules begin; they end where the next group's do.
    rule_starts: Vec<u32>,
    rules: Vec<RuleSpan>,
    /// The last group has a rule, so that the next user agent begins another.
    group_ended: bool,
    /// The last section has a record, so that the next user agent begins another.
    section_ended: bool,
}

/// What the lines after a run of user agents say beside rules.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Section {
    group: u32,
    pub(crate) crawl_delay: Option<Duration>,
    pub(crate) request_rate: Option<RequestRate>,
    pub(crate) visit_time: Option<VisitTime>,
}

#[derive(Debug, Clone, Copy)]
struct Name {
    value: Span,
    section: u32,
}

impl Groups {
    /// A user-agent line. Consecutive ones share what follows.
    pub(crate) fn add_agent(&mut self, value: Span, text: &[u8]) {
        if self.rule_starts.is_empty() || self.group_ended {
            self.rule_starts.push(index(self.rules.len()));
        }
        if self.sections.is_empty() || self.group_ended || self.section_ended {
            self.sections.push(Section { group: index(self.rule_starts.len() - 1), ..Section::default() });
        }
        self.group_ended = false;
        self.section_ended = false;
        let section = index(self.sections.len() - 1);
        match text {
            // `* anything` is `*` to Google, and undefined to RFC 9309.
            [b'*'] | [b'*', b' ' | b'\t', ..] => self.stars.push(section),
            _ => self.names.push(Name { value, section }),
        }
    }

    /// An allow or disallow line, `None` if it has no path. False if it belongs to no user agent.
    pub(crate) fn add_rule(&mut self, rule: Option<RuleSpan>) -> bool {
        if self.sections.is_empty() {
            return false;
        }
        self.group_ended = true;
        self.rules.extend(rule);
        true
    }

    /// The section that a line about pace belongs to.
    pub(crate) fn current(&mut self) -> Option<&mut Section> {
        self.section_ended = true;
        self.sections.last_mut()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// How many sections there are.
    pub(crate) fn len(&self) -> usize {
        self.sections.len()
    }

    /// Makes names ready for look-up. To be called once, when all lines are read.
    pub(crate) fn finish(&mut self, text: &[u8]) {
        let token = |name: &Name| leading_token(slice(text, name.value)).to_ascii_lowercase();
        if self.names.len() > 1 {
            self.names.sort_by_cached_key(token);
        }
    }

    /// The sections that a crawler of these names obeys, in the file's order: all that name it, else all of `*`.
    pub(crate) fn select<T: AsRef<str>>(&self, tokens: &[T], source: &Source, options: &ParseOptions) -> Vec<u32> {
        let mut chosen = Vec::new();
        for token in tokens.iter().map(|token| token.as_ref().as_bytes()).filter(|token| !token.is_empty()) {
            match options.user_agent_match {
                UserAgentMatch::Exact => {
                    let named = self.named(token, source.text());
                    chosen.extend(
                        named.filter(|name| is_exact(slice(source.text(), name.value), token)).map(|name| name.section),
                    );
                }
                UserAgentMatch::Prefix => self.scan(source, |value| is_prefix(value, token), &mut chosen),
                UserAgentMatch::Substring => self.scan(source, |value| is_substring(value, token), &mut chosen),
            }
        }
        if chosen.is_empty() {
            chosen.extend(&self.stars);
        }
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }

    pub(crate) fn section(&self, section: u32) -> &Section {
        &self.sections[section as usize]
    }

    /// The rules of these sections' groups, in the file's order.
    pub(crate) fn rules_of(&self, sections: &[u32]) -> Vec<RuleSpan> {
        let mut groups: Vec<u32> = sections.iter().map(|&section| self.section(section).group).collect();
        groups.dedup();
        groups.iter().flat_map(|&group| &self.rules[self.range(group)]).copied().collect()
    }

    pub(crate) fn heap_size(&self) -> usize {
        size_of::<Name>() * self.names.capacity()
            + size_of::<Section>() * self.sections.capacity()
            + size_of::<u32>() * (self.stars.capacity() + self.rule_starts.capacity())
            + size_of::<RuleSpan>() * self.rules.capacity()
    }

    fn range(&self, group: u32) -> Range<usize> {
        let group = group as usize;
        let end = self.rule_starts.get(group + 1).map_or(self.rules.len(), |&end| end as usize);
        self.rule_starts[group] as usize..end
    }

    /// The names that begin with the same token as `token` does.
    fn named<'a>(&'a self, token: &[u8], text: &[u8]) -> impl Iterator<Item = &'a Name> {
        let wanted = leading_token(token);
        let order = |name: &Name| compare(leading_token(slice(text, name.value)), wanted);
        let start = self.names.partition_point(|name| order(name).is_lt());
        let count = self.names[start..].partition_point(|name| order(name).is_eq());
        self.names[start..start + count].iter()
    }

    fn scan(&self, source: &Source, is_meant: impl Fn(&[u8]) -> bool, chosen: &mut Vec<u32>) {
        let named = self.names.iter().filter(|name| is_meant(slice(source.text(), name.value)));
        chosen.extend(named.map(|name| name.section));
    }
}

/// RFC 9309 §2.2.1, and crawler-commons: the token ends at the first other character. A crawler whose name has other
/// characters is meant where exactly that name is written.
fn is_exact(value: &[u8], token: &[u8]) -> bool {
    if token.iter().copied().all(is_token_octet) {
        leading_token(value).eq_ignore_ascii_case(token)
    } else {
        value.eq_ignore_ascii_case(token)
    }
}

fn is_prefix(value: &[u8], token: &[u8]) -> bool {
    let words = value.split(|octet| matches!(octet, b' ' | b'\t' | b',')).filter(|word| !word.is_empty());
    words.into_iter().any(|word| token.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)))
}

fn is_substring(value: &[u8], token: &[u8]) -> bool {
    let (value, token) = (value.to_ascii_lowercase(), token.to_ascii_lowercase());
    if value.is_empty() {
        return false;
    }
    let mut rest = token.as_slice();
    let within_token = value.split(|&octet| octet == b'*').all(|piece| match memchr::memmem::find(rest, piece) {
        Some(at) => {
            rest = &rest[at + piece.len()..];
            true
        }
        None => false,
    });
    within_token || memchr::memmem::find(&value, &token).is_some()
}

fn compare(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    a.iter().map(u8::to_ascii_lowercase).cmp(b.iter().map(u8::to_ascii_lowercase))
}

fn slice(text: &[u8], span: Span) -> &[u8] {
    &text[span.start as usize..][..usize::from(span.len)]
}

fn index(len: usize) -> u32 {
    u32::try_from(len).expect("a file is cut at 1 GiB")
}
