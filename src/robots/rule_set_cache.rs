//! The rule sets compiled from one file so far: found without a lock. Pure.

use std::borrow::Cow;
use std::sync::OnceLock;

use super::ruleset::RuleSet;

/// Rule sets by the sections that they were made of.
#[derive(Debug)]
pub(crate) struct RuleSetCache {
    /// For crawlers that one section is for: nearly all. The last is for those that no section is for.
    single: Box<[OnceLock<RuleSet>]>,
    /// For the others; filled from the front.
    several: OnceLock<Box<[OnceLock<CachedRules>]>>,
}

#[derive(Debug)]
struct CachedRules {
    sections: Box<[u32]>,
    rules: RuleSet,
}

/// Combinations of sections that are kept; agents that no operator configured must not make it grow for ever.
const MOST_COMBINATIONS: usize = 32;

impl RuleSetCache {
    pub(crate) fn new(sections: usize) -> Self {
        Self { single: slots(sections + 1), several: OnceLock::new() }
    }

    pub(crate) fn get_or_make(&self, sections: &[u32], make: impl Fn() -> RuleSet) -> Cow<'_, RuleSet> {
        match sections {
            [] => return Cow::Borrowed(self.single[self.single.len() - 1].get_or_init(make)),
            [section] => return Cow::Borrowed(self.single[*section as usize].get_or_init(make)),
            _ => {}
        }
        for slot in self.several.get_or_init(|| slots(MOST_COMBINATIONS)) {
            let kept = slot.get_or_init(|| CachedRules { sections: sections.into(), rules: make() });
            if *kept.sections == *sections {
                return Cow::Borrowed(&kept.rules);
            }
        }
        Cow::Owned(make())
    }

    pub(crate) fn heap_size(&self) -> usize {
        let single = self.single.iter().filter_map(OnceLock::get).map(RuleSet::heap_size);
        let several = self.several.get().map_or(&[][..], |several| several);
        let kept = several.iter().filter_map(OnceLock::get);
        let kept = kept.map(|CachedRules { sections, rules }| size_of_val(&**sections) + rules.heap_size());
        size_of_val(&*self.single) + size_of_val(several) + single.chain(kept).sum::<usize>()
    }
}

fn slots<T>(count: usize) -> Box<[OnceLock<T>]> {
    (0..count).map(|_| OnceLock::new()).collect()
}
