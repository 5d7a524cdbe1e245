//! RFC 9309 §2.2.1: which groups of a file a crawler obeys. Pure.

use std::borrow::Cow;
use std::ops::Range;

use super::delay::StatedPace;
use super::source::FileSource;
use super::span::{RuleSpan, Span};
use crate::robots::options::{ParseOptions, Precedence, UserAgentMatch};
use crate::robots::product_token::{is_token_byte, leading_token};
use crate::robots::steps;
use crate::robots::usage::Vocabulary;
use smallvec::SmallVec;

/// The groups of a file.
///
/// A *section* is a run of user-agent lines with all that follows them; pace belongs to it. A *group* is a run of
/// sections up to the first that has rules; rules belong to it, as they alone end a group (§2.2.4: other records must
/// not interfere).
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Where tokens are what names a crawler, by token for look-up; in the dialects that look into values as in the file.
    names: Vec<GroupName>,
    sections: Vec<Section>,
    /// The sections of `*`, as in the file.
    stars: Vec<u32>,
    /// Where each group's rules begin; they end where the next group's do.
    rule_starts: Vec<u32>,
    rules: Vec<RuleSpan>,
    /// Usage preferences and the sections that they belong to.
    usages: Vec<(u32, Vocabulary, Span)>,
    /// The last group has a rule, so that the next user agent begins another.
    group_ended: bool,
    /// The last section has a record, so that the next user agent begins another.
    section_ended: bool,
}

/// A run of user agents.
#[derive(Debug, Clone, Copy)]
struct Section {
    group: u32,
    pace: StatedPace,
}

/// Sections that a crawler obeys: seldom more than one.
type Chosen = SmallVec<[u32; 4]>;

#[derive(Debug, Clone, Copy)]
struct GroupName {
    value: Span,
    section: u32,
}

impl Groups {
    /// With room for the rules that a text of this length may have.
    pub(crate) fn for_text(text: &[u8]) -> Self {
        Self { rules: Vec::with_capacity(text.len() / 24), ..Self::default() }
    }

    /// A user-agent line. Consecutive ones share what follows.
    pub(crate) fn add_agent(&mut self, value: Span, text: &[u8]) {
        if self.rule_starts.is_empty() || self.group_ended {
            self.rule_starts.push(index(self.rules.len()));
        }
        if self.sections.is_empty() || self.group_ended || self.section_ended {
            self.sections.push(Section { group: index(self.rule_starts.len() - 1), pace: StatedPace::default() });
        }
        self.group_ended = false;
        self.section_ended = false;
        let section = index(self.sections.len() - 1);
        match text {
            // `* anything` is `*` to Google, and undefined to RFC 9309.
            [b'*'] | [b'*', b' ' | b'\t', ..] if self.stars.last() == Some(&section) => {}
            [b'*'] | [b'*', b' ' | b'\t', ..] => self.stars.push(section),
            _ => self.names.push(GroupName { value, section }),
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

    /// A line about pace. False if it belongs to no user agent.
    pub(crate) fn add_pace(&mut self, pace: StatedPace) -> bool {
        let Some(section) = self.sections.last_mut() else {
            return false;
        };
        section.pace = section.pace.slower(pace);
        self.section_ended = true;
        true
    }

    /// A usage preference. False if it belongs to no user agent.
    pub(crate) fn add_usage(&mut self, vocabulary: Vocabulary, value: Span) -> bool {
        let Some(section) = self.sections.len().checked_sub(1) else {
            return false;
        };
        self.usages.push((index(section), vocabulary, value));
        self.section_ended = true;
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// How many sections there are.
    pub(crate) fn len(&self) -> usize {
        self.sections.len()
    }

    /// Makes names ready for look-up. To be called once, when all lines are read.
    pub(crate) fn finish(&mut self, text: &[u8], options: &ParseOptions) {
        if self.rules.capacity() - self.rules.len() > self.rules.len() / 4 + 64 {
            self.rules.shrink_to_fit();
        }
        let value = |name: &GroupName| slice(text, name.value);
        match options.user_agent_match {
            UserAgentMatch::Exact | UserAgentMatch::Token => {
                let token = |name: &GroupName| leading_token(value(name));
                self.names.sort_by(|a, b| {
                    let by_value = || compare(value(a), value(b)).then(a.section.cmp(&b.section));
                    compare(token(a), token(b)).then_with(by_value)
                });
                // Each once in a section.
                self.names.dedup_by(|a, b| a.section == b.section && compare(value(a), value(b)).is_eq());
                self.names.shrink_to_fit();
            }
            UserAgentMatch::Prefix | UserAgentMatch::Substring => {}
        }
    }

    /// The sections that a crawler of these names obeys, in the file's order: all that name it, else all of `*`.
    pub(crate) fn select<T: AsRef<str>>(&self, tokens: &[T], source: &FileSource, options: &ParseOptions) -> Chosen {
        if self.names.is_empty() && self.stars.len() <= 1 {
            return Chosen::from_slice(&self.stars);
        }
        let text = source.text();
        let value = |name: &GroupName| slice(text, name.value);
        let mut chosen = Chosen::new();
        for token in tokens.iter().map(|token| token.as_ref().as_bytes()).filter(|token| !token.is_empty()) {
            let section = |name: &GroupName| name.section;
            match options.user_agent_match {
                UserAgentMatch::Token if !is_token(token) => {}
                UserAgentMatch::Exact | UserAgentMatch::Token => {
                    let wanted = leading_token(token);
                    let order = |name: &GroupName| compare(leading_token(value(name)), wanted);
                    let start = self.names.partition_point(|name| order(name).is_lt());
                    let named = self.names[start..].iter().take_while(|name| order(name).is_eq());
                    // A crawler whose name has other characters is meant where exactly that name is written (RFC 9309
                    // §2.2.1, crawler-commons: the token ends at the first other character).
                    let is_meant = |name: &&GroupName| is_token(token) || value(name).eq_ignore_ascii_case(token);
                    chosen.extend(named.filter(is_meant).map(section));
                }
                UserAgentMatch::Prefix => {
                    chosen.extend(self.names.iter().filter(|name| is_prefix(value(name), token)).map(section));
                }
                UserAgentMatch::Substring => {
                    chosen.extend(self.names.iter().filter(|name| is_substring(value(name), token)).map(section));
                }
            }
        }
        if chosen.is_empty() {
            chosen.extend_from_slice(&self.stars);
        }
        steps::count(chosen.len());
        chosen.sort_unstable();
        chosen.dedup();
        match options.precedence {
            Precedence::MostSpecific => {}
            // 1996: the first record that names the robot.
            Precedence::FirstMatch => chosen.truncate(1),
        }
        chosen
    }

    pub(crate) fn pace_of(&self, section: u32) -> StatedPace {
        self.sections[section as usize].pace
    }

    /// The usage preferences of these sections, in the file's order.
    pub(crate) fn usages_of(&self, sections: &[u32]) -> Vec<(Vocabulary, Span)> {
        let usages = self.usages.iter().filter(|(section, ..)| sections.binary_search(section).is_ok());
        usages.map(|&(_, vocabulary, value)| (vocabulary, value)).collect()
    }

    /// The rules of these sections' groups, in the file's order.
    pub(crate) fn rules_of(&self, sections: &[u32]) -> Cow<'_, [RuleSpan]> {
        let group = |section: &u32| self.sections[*section as usize].group;
        match sections {
            [] => Cow::Borrowed(&[]),
            [section] => Cow::Borrowed(&self.rules[self.range(group(section))]),
            sections => {
                let mut groups: Vec<u32> = sections.iter().map(group).collect();
                groups.dedup();
                Cow::Owned(groups.iter().flat_map(|&group| &self.rules[self.range(group)]).copied().collect())
            }
        }
    }

    pub(crate) fn heap_size(&self) -> usize {
        size_of::<GroupName>() * self.names.capacity()
            + size_of::<Section>() * self.sections.capacity()
            + size_of::<u32>() * (self.stars.capacity() + self.rule_starts.capacity())
            + size_of::<RuleSpan>() * self.rules.capacity()
            + size_of::<(u32, Vocabulary, Span)>() * self.usages.capacity()
    }

    fn range(&self, group: u32) -> Range<usize> {
        let group = group as usize;
        let end = self.rule_starts.get(group + 1).map_or(self.rules.len(), |&end| end as usize);
        self.rule_starts[group] as usize..end
    }
}

fn is_token(name: &[u8]) -> bool {
    name.iter().copied().all(is_token_byte)
}

fn is_prefix(value: &[u8], token: &[u8]) -> bool {
    let words = value.split(|byte| matches!(byte, b' ' | b'\t' | b',')).filter(|word| !word.is_empty());
    words.into_iter().any(|word| token.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)))
}

fn is_substring(value: &[u8], token: &[u8]) -> bool {
    let (value, token) = (value.to_ascii_lowercase(), token.to_ascii_lowercase());
    if value.is_empty() {
        return false;
    }
    let mut rest = token.as_slice();
    let within_token = value.split(|&byte| byte == b'*').all(|piece| match memchr::memmem::find(rest, piece) {
        Some(at) => {
            rest = &rest[at + piece.len()..];
            true
        }
        None => false,
    });
    within_token || memchr::memmem::find(&value, &token).is_some()
}

fn compare(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    steps::count(1 + a.len().min(b.len()));
    a.iter().map(u8::to_ascii_lowercase).cmp(b.iter().map(u8::to_ascii_lowercase))
}

fn slice(text: &[u8], span: Span) -> &[u8] {
    &text[span.start as usize..][..usize::from(span.len)]
}

fn index(len: usize) -> u32 {
    u32::try_from(len).expect("a file is cut at 1 GiB")
}
