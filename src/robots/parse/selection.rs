//! RFC 9309 §2.2.1: selects the groups of a file that a crawler obeys. Pure.

use super::RobotsFile;
use super::agent::{compare, is_prefix, is_substring, is_token};
use super::delay::StatedPace;
use super::group::GroupName;
use crate::robots::budget::StepBudget;
use crate::robots::options::{Precedence, UserAgentMatch};
use crate::robots::product_token::leading_token;
use smallvec::SmallVec;

/// The numbers of the sections and groups that a crawler obeys: rarely more than one of each.
#[derive(Debug, Clone)]
pub(crate) struct GroupSelection {
    pub(crate) sections: GroupNumbers,
    pub(crate) groups: GroupNumbers,
    /// Whether the budget of the decision was spent before all groups were found.
    pub(crate) is_cut: bool,
}

type GroupNumbers = SmallVec<[u32; 4]>;

impl RobotsFile {
    /// Selects the sections that a crawler with these names obeys, in the file's order: all sections that name the crawler, or else all
    /// sections of `*`.
    pub(crate) fn select<T: AsRef<str>>(&self, tokens: &[T], budget: &mut StepBudget) -> GroupSelection {
        let (mut sections, mut is_cut) = self.sections_naming(tokens, budget);
        if sections.is_empty() {
            let stars = &self.groups.stars;
            let stars = if self.source.options.first_star_group { &stars[..stars.len().min(1)] } else { stars };
            let (stars, are_cut) = within_budget(stars, budget);
            sections.extend_from_slice(stars);
            is_cut |= are_cut;
        }
        let mut selection = self.selection(sections, is_cut);
        if self.groups.is_for_all() {
            selection.groups.push(0);
        }
        selection
    }

    /// Selects the groups that name this token; groups for `*` do not count. `None`: no group names the token.
    pub(crate) fn select_named(&self, token: &str, budget: &mut StepBudget) -> Option<GroupSelection> {
        let (sections, is_cut) = self.sections_naming(&[token], budget);
        (is_cut || !sections.is_empty()).then(|| self.selection(sections, is_cut))
    }

    fn selection(&self, mut sections: GroupNumbers, is_cut: bool) -> GroupSelection {
        sections.sort_unstable();
        sections.dedup();
        match self.source.options.precedence {
            Precedence::MostSpecific => {}
            // 1996: only the first record that names the robot counts.
            Precedence::FirstMatch => sections.truncate(1),
        }
        let group = |section: &u32| self.groups.sections[*section as usize].group;
        let mut groups: GroupNumbers = sections.iter().map(group).collect();
        groups.dedup();
        GroupSelection { sections, groups, is_cut }
    }

    /// The sections that name one of the tokens, and whether the budget was spent before all sections were found.
    fn sections_naming<T: AsRef<str>>(&self, tokens: &[T], budget: &mut StepBudget) -> (GroupNumbers, bool) {
        let (mut found, mut is_cut) = (GroupNumbers::new(), false);
        if self.groups.names.is_empty() {
            return (found, is_cut);
        }
        let value = |name: &GroupName| self.source.slice(name.value);
        for token in tokens.iter().map(|token| token.as_ref().as_bytes()).filter(|token| !token.is_empty()) {
            let is_named: fn(&[u8], &[u8]) -> bool = match self.source.options.user_agent_match {
                UserAgentMatch::Prefix => is_prefix,
                UserAgentMatch::Substring => is_substring,
                UserAgentMatch::Exact => {
                    let (named, are_cut) = within_budget(self.names_beginning(leading_token(token), budget), budget);
                    // A name with other characters matches only a value that equals it (RFC 9309 §2.2.1, crawler-commons: the token ends at
                    // the first other character).
                    let is_any = is_token(token);
                    let is_meant = |name: &&GroupName| is_any || value(name).eq_ignore_ascii_case(token);
                    found.extend(named.iter().filter(is_meant).map(|name| name.section));
                    is_cut |= are_cut;
                    continue;
                }
            };
            for name in &self.groups.names {
                let name_value = value(name);
                let pieces = 1 + memchr::memchr_iter(b'*', name_value).count();
                let steps = SECTION * pieces + (name_value.len() + token.len()) / 2;
                if budget.spend(steps).is_err() {
                    is_cut = true;
                    break;
                }
                if is_named(name_value, token) {
                    found.push(name.section);
                }
            }
        }
        (found, is_cut)
    }

    /// The names whose token is `wanted`, found by binary search.
    fn names_beginning(&self, wanted: &[u8], budget: &mut StepBudget) -> &[GroupName] {
        let names = &self.groups.names;
        _ = budget.spend(names.len().ilog2() as usize * (1 + wanted.len() / 2));
        // Compares one byte more than `wanted` has, as further bytes cannot change the order.
        let order = |name: &GroupName| {
            let value = self.source.slice(name.value);
            compare(leading_token(&value[..value.len().min(wanted.len() + 1)]), wanted)
        };
        let rest = &names[names.partition_point(|name| order(name).is_lt())..];
        &rest[..rest.partition_point(|name| order(name).is_eq())]
    }

    /// The pace stated for a crawler that obeys these groups.
    pub(crate) fn pace(&self, selection: &GroupSelection) -> StatedPace {
        let paces = selection.sections.iter().map(|&section| self.groups.sections[section as usize].pace);
        let pace = paces.fold(StatedPace::default(), StatedPace::slower);
        StatedPace { crawl_delay: pace.crawl_delay.or(self.crawl_delay), ..pace }
    }
}

/// The items of a slice, and whether items were left out: if the budget does not suffice for all, only the first ones are returned.
fn within_budget<'a, T>(named: &'a [T], budget: &mut StepBudget) -> (&'a [T], bool) {
    let count = named.len().min(budget.left() / SECTION);
    let is_cut = budget.spend(named.len() * SECTION).is_err();
    (&named[..count], is_cut)
}

/// Steps to find a section by its name, and to read its pace.
const SECTION: usize = 16;
