//! RFC 9309 §2.2: the groups of a file, with their rules, pace and preferences. Pure.

use std::ops::Range;

use super::agent::compare;
use super::delay::StatedPace;
use super::source::FileSource;
use super::span::{RuleSpan, Span};
use crate::robots::options::UserAgentMatch;
use crate::robots::patterns::{Patterns, PatternsBuilder};
use crate::robots::preferences::Preferences;
use crate::robots::product_token::leading_token;
use crate::robots::rule::RuleRank;
use crate::robots::usage::Vocabulary;
use std::sync::OnceLock;

/// The groups of a file.
///
/// A *section* is a run of user-agent lines with all lines that follow them; pace belongs to a section. A *group* is a
/// run of sections up to the first section with rules; rules belong to a group, as only rules end a group (§2.2.4:
/// other records must not interfere). A Content-Usage line is a rule (draft-ietf-aipref-attach-05: `rule =/
/// content-usage`).
#[derive(Debug)]
pub(crate) struct Groups {
    /// The names in user-agent lines, sorted by token for look-up; in the file's order in the dialects that search inside values.
    pub(super) names: Vec<GroupName>,
    pub(super) sections: Vec<Section>,
    /// The sections of `*`, in the file's order.
    pub(super) stars: Vec<u32>,
    groups: Vec<RuleGroup>,
    /// The rules of all groups, in the file's order. Rules before any user agent apply to nobody, unless the file has no user agent and
    /// the dialect applies them to all.
    rules: Vec<RuleSpan>,
    /// Content-Usage lines, by group.
    pub(crate) usages: Preferences,
    /// Content-Signal lines, by section.
    pub(crate) signals: Preferences,
    /// Whether the last group has a rule, so that the next user agent begins another group.
    group_ended: bool,
    /// Whether the last section has a record, so that the next user agent begins another section.
    section_ended: bool,
}

/// A section: the group that it belongs to, and the pace that its lines ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section {
    pub(super) group: u32,
    pub(super) pace: StatedPace,
}

#[derive(Debug)]
struct RuleGroup {
    /// Index of the group's first rule. Its rules end at the `start` of the next group.
    start: u32,
    compiled: OnceLock<Box<Patterns<RuleRank>>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct GroupName {
    pub(super) value: Span,
    pub(super) section: u32,
}

impl Groups {
    /// No groups yet, but room for one, as most files have only one, and for the probable number of rules in this text.
    pub(crate) fn for_text(text: &[u8]) -> Self {
        Self {
            names: Vec::new(),
            sections: Vec::with_capacity(1),
            stars: Vec::with_capacity(1),
            groups: Vec::with_capacity(1),
            rules: Vec::with_capacity(text.len() / 24),
            usages: Preferences::new(Vocabulary::Usage),
            signals: Preferences::new(Vocabulary::Signal),
            group_ended: false,
            section_ended: false,
        }
    }

    /// Adds a user-agent line. Consecutive user-agent lines share the lines that follow.
    pub(crate) fn add_agent(&mut self, value: Span, text: &[u8]) {
        if self.groups.is_empty() {
            self.rules.clear();
        }
        if self.groups.is_empty() || self.group_ended {
            self.groups.push(RuleGroup { start: index(self.rules.len()), compiled: OnceLock::new() });
        }
        if self.sections.is_empty() || self.group_ended || self.section_ended {
            self.sections.push(Section { group: index(self.groups.len() - 1), pace: StatedPace::default() });
        }
        (self.group_ended, self.section_ended) = (false, false);
        let section = index(self.sections.len() - 1);
        match text {
            // Google reads `* anything` as `*`; RFC 9309 leaves this undefined.
            [b'*'] | [b'*', b' ' | b'\t', ..] if self.stars.last() == Some(&section) => {}
            [b'*'] | [b'*', b' ' | b'\t', ..] => self.stars.push(section),
            _ => self.names.push(GroupName { value, section }),
        }
    }

    /// Adds an allow or disallow line. `None`: the line has no path.
    pub(crate) fn add_rule(&mut self, rule: Option<RuleSpan>) {
        self.rules.extend(rule);
        self.group_ended = !self.sections.is_empty();
    }

    /// Adds a line about pace. Before any user agent, it applies to nobody.
    pub(crate) fn add_pace(&mut self, pace: StatedPace) {
        let Some(section) = self.sections.last_mut() else { return };
        section.pace = section.pace.slower(pace);
        self.section_ended = true;
    }

    /// Adds a usage preference. Before any user agent, it applies to nobody.
    pub(crate) fn add_usage(&mut self, vocabulary: Vocabulary, value: Span) {
        let Some(section) = self.sections.len().checked_sub(1) else { return };
        match vocabulary {
            Vocabulary::Signal => self.signals.add(index(section), value),
            Vocabulary::Usage => {
                self.usages.add(index(self.groups.len() - 1), value);
                self.group_ended = true;
            }
        }
        self.section_ended = true;
    }

    /// Whether rules before any user agent apply to all agents.
    pub(super) fn is_for_all(&self) -> bool {
        self.sections.is_empty() && !self.groups.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// Prepares names for look-up. To be called once, after all lines are read.
    pub(crate) fn finish(&mut self, source: &FileSource) {
        if self.groups.is_empty() {
            let is_for_all = source.options.rules_without_agent && !self.rules.is_empty();
            self.groups.extend(is_for_all.then_some(RuleGroup { start: 0, compiled: OnceLock::new() }));
            self.rules.truncate(if is_for_all { usize::MAX } else { 0 });
        }
        if self.rules.capacity() - self.rules.len() > self.rules.len() / 4 + 64 {
            self.rules.shrink_to_fit();
        }
        let value = |name: &GroupName| source.slice(name.value);
        match source.options.user_agent_match {
            UserAgentMatch::Exact => {
                let token = |name: &GroupName| leading_token(value(name));
                self.names.sort_by(|a, b| {
                    let by_value = || compare(value(a), value(b)).then(a.section.cmp(&b.section));
                    compare(token(a), token(b)).then_with(by_value)
                });
                // Removes repeated names of a section.
                self.names.dedup_by(|a, b| a.section == b.section && compare(value(a), value(b)).is_eq());
                self.names.shrink_to_fit();
            }
            UserAgentMatch::Prefix | UserAgentMatch::Substring => {}
        }
    }

    /// The rules of a group, compiled on first use.
    #[inline]
    pub(crate) fn patterns_of(&self, group: u32, source: &FileSource) -> &Patterns<RuleRank> {
        self.groups[group as usize].compiled.get_or_init(|| self.compile(group, source).into())
    }

    /// Compiles the rules and preferences that are otherwise compiled on first use.
    pub(crate) fn compile_all(&self, source: &FileSource) {
        (0..index(self.groups.len())).for_each(|group| _ = self.patterns_of(group, source));
        self.usages.compile_all(source);
        self.signals.compile_all(source);
    }

    /// The rule with this index.
    pub(crate) fn rule(&self, place: u32) -> RuleSpan {
        self.rules[place as usize]
    }

    /// The indices of a group's rules.
    pub(crate) fn rules_of(&self, group: u32) -> Range<usize> {
        let group = group as usize;
        let end = self.groups.get(group + 1).map_or(self.rules.len(), |next| next.start as usize);
        self.groups[group].start as usize..end
    }

    pub(crate) fn heap_size(&self) -> usize {
        let compiled = self.groups.iter().filter_map(|group| group.compiled.get());
        size_of::<GroupName>() * self.names.capacity()
            + size_of::<Section>() * self.sections.capacity()
            + size_of::<u32>() * self.stars.capacity()
            + size_of::<RuleGroup>() * self.groups.capacity()
            + size_of::<RuleSpan>() * self.rules.capacity()
            + self.usages.heap_size()
            + self.signals.heap_size()
            + compiled.map(|patterns| size_of_val(&**patterns) + patterns.heap_size()).sum::<usize>()
    }

    #[cold]
    fn compile(&self, group: u32, source: &FileSource) -> Patterns<RuleRank> {
        let places = self.rules_of(group);
        let mut patterns = PatternsBuilder::new(source.shared(), places.len());
        for place in places {
            let rule = self.rules[place];
            let rank = |bytes| RuleRank::new(source.options.precedence, rule.kind, index(place), bytes);
            let at = rule.start as usize..rule.start as usize + usize::from(rule.len);
            let written = &source.text()[at.clone()];
            if rule.plain {
                patterns.add_plain(at, rank(written.len()));
            } else {
                patterns.add(written, rank);
            }
        }
        patterns.finish()
    }
}

fn index(len: usize) -> u32 {
    u32::try_from(len).expect("a file is cut at 1 GiB")
}
