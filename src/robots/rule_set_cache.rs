//! The rule sets compiled from one file so far: found without a lock. Pure.

use std::borrow::Cow;
use std::sync::OnceLock;

use super::ruleset::RuleSet;

/// Rule sets by the sections that they were made of.
#[derive(Debug, Default)]
pub(crate) struct RuleSetCache {
    /// For crawlers that no section is for.
    none: OnceLock<RuleSet>,
    /// For crawlers that one section is for: nearly all.
    single: Box<[OnceLock<RuleSet>]>,
    /// For the others; only ever appended to.
    several: OnceLock<Box<CachedRules>>,
}

#[derive(Debug)]
struct CachedRules {
    sections: Box<[u32]>,
    rules: RuleSet,
    next: OnceLock<Box<CachedRules>>,
}

/// Combinations of sections that are kept; agents that no operator configured must not make it grow for ever.
const MAX_LINKS: usize = 64;

impl RuleSetCache {
    pub(crate) fn new(sections: usize) -> Self {
        Self { single: (0..sections).map(|_| OnceLock::new()).collect(), ..Self::default() }
    }

    pub(crate) fn get_or_make(&self, sections: &[u32], make: impl FnOnce() -> RuleSet) -> Cow<'_, RuleSet> {
        match sections {
            [] => Cow::Borrowed(self.none.get_or_init(make)),
            [section] => Cow::Borrowed(self.single[*section as usize].get_or_init(make)),
            sections => self.link(sections, make),
        }
    }

    pub(crate) fn heap_size(&self) -> usize {
        let links: usize = self.links().map(|link| size_of::<CachedRules>() + size_of_val(&*link.sections)).sum();
        let sets = self.none.get().into_iter().chain(self.single.iter().filter_map(OnceLock::get));
        let sets = sets.chain(self.links().map(|link| &link.rules));
        size_of_val(&*self.single) + links + sets.map(RuleSet::heap_size).sum::<usize>()
    }

    fn links(&self) -> impl Iterator<Item = &CachedRules> {
        std::iter::successors(self.several.get(), |link| link.next.get()).map(|link| &**link)
    }

    fn link(&self, sections: &[u32], make: impl FnOnce() -> RuleSet) -> Cow<'_, RuleSet> {
        let mut slot = &self.several;
        let mut count = 0;
        while let Some(link) = slot.get() {
            if *link.sections == *sections {
                return Cow::Borrowed(&link.rules);
            }
            slot = &link.next;
            count += 1;
        }
        let rules = make();
        if count < MAX_LINKS {
            // Another thread may have been faster; its link then stands here, and ours is simply not kept.
            let _ = slot.set(Box::new(CachedRules {
                sections: sections.into(),
                rules: rules.clone(),
                next: OnceLock::new(),
            }));
        }
        Cow::Owned(rules)
    }
}
