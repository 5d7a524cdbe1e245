//! RFC 9309 §2.2.1: which groups of a file a crawler obeys. Pure.

use super::agent::{compare, is_prefix, is_substring, is_token};
use super::group::{GroupName, Groups, slice};
use super::source::FileSource;
use crate::robots::options::{ParseOptions, Precedence, UserAgentMatch};
use crate::robots::product_token::leading_token;
use crate::robots::steps;
use smallvec::SmallVec;

/// The numbers of the sections and groups that a crawler obeys: rarely more than one of each.
#[derive(Debug, Clone)]
pub(crate) struct GroupSelection {
    pub(crate) sections: GroupNumbers,
    pub(crate) groups: GroupNumbers,
}

type GroupNumbers = SmallVec<[u32; 4]>;

impl Groups {
    /// Selects what a crawler with these names obeys, in the file's order: all sections that name it, or else all of `*`.
    pub(crate) fn select<T: AsRef<str>>(
        &self,
        tokens: &[T],
        source: &FileSource,
        options: &ParseOptions,
    ) -> GroupSelection {
        let mut sections = self.sections_naming(tokens, source, options);
        if sections.is_empty() {
            let stars = if options.first_star_group { &self.stars[..self.stars.len().min(1)] } else { &self.stars };
            sections.extend_from_slice(stars);
        }
        let mut selection = self.selection(sections, options);
        if self.is_for_all() {
            selection.groups.push(0);
        }
        selection
    }

    /// The groups that name this token; `*` does not. `None`: no group does.
    pub(crate) fn select_named(
        &self,
        token: &str,
        source: &FileSource,
        options: &ParseOptions,
    ) -> Option<GroupSelection> {
        let sections = self.sections_naming(&[token], source, options);
        (!sections.is_empty()).then(|| self.selection(sections, options))
    }

    fn selection(&self, mut sections: GroupNumbers, options: &ParseOptions) -> GroupSelection {
        match options.precedence {
            Precedence::MostSpecific => {}
            // 1996: only the first record that names the robot counts.
            Precedence::FirstMatch => sections.truncate(1),
        }
        let mut groups: GroupNumbers = sections.iter().map(|section| self.sections[*section as usize].group).collect();
        groups.dedup();
        GroupSelection { sections, groups }
    }

    fn sections_naming<T: AsRef<str>>(
        &self,
        tokens: &[T],
        source: &FileSource,
        options: &ParseOptions,
    ) -> GroupNumbers {
        let mut selection = GroupNumbers::new();
        if self.names.is_empty() {
            return selection;
        }
        let text = source.text();
        let value = |name: &GroupName| slice(text, name.value);
        for token in tokens.iter().map(|token| token.as_ref().as_bytes()).filter(|token| !token.is_empty()) {
            let section = |name: &GroupName| name.section;
            match options.user_agent_match {
                UserAgentMatch::Exact => {
                    let wanted = leading_token(token);
                    let order = |name: &GroupName| compare(leading_token(value(name)), wanted);
                    let start = self.names.partition_point(|name| order(name).is_lt());
                    let named = self.names[start..].iter().take_while(|name| order(name).is_eq());
                    // A name with other characters matches only where exactly that name is written (RFC 9309 §2.2.1, crawler-commons:
                    // the token ends at the first other character).
                    let is_meant = |name: &&GroupName| is_token(token) || value(name).eq_ignore_ascii_case(token);
                    selection.extend(named.filter(is_meant).map(section));
                }
                UserAgentMatch::Prefix => {
                    selection.extend(self.names.iter().filter(|name| is_prefix(value(name), token)).map(section));
                }
                UserAgentMatch::Substring => {
                    selection.extend(self.names.iter().filter(|name| is_substring(value(name), token)).map(section));
                }
            }
        }
        steps::count(selection.len());
        selection.sort_unstable();
        selection.dedup();
        selection
    }
}
