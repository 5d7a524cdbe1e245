//! Finds rules that never decide, as another rule of the group overrides them for every path that they match (RFC 9309 §2.2.2). A finding
//! holds for every crawler, but not every such rule is found. Pure.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use super::findings::Findings;
use super::outline::{Outline, OutlineEntry};
use crate::robots::parse::key::RecordKey;
use crate::robots::patterns::pattern::{STAR, Shape};
use crate::robots::{ParseOptions, Precedence, steps};

pub(super) fn find(outline: &Outline<'_>, options: &ParseOptions, findings: &mut Findings<'_>) {
    // Under the precedence of 1996 the first rule decides, so these findings would be wrong.
    if options.precedence != Precedence::MostSpecific {
        return;
    }
    let mut budget = MOST_COMPARED.0 + MOST_COMPARED.1 * outline.text.len();
    for group in outline.groups() {
        let rules = group
            .iter()
            .filter(|entry| matches!(entry.key, RecordKey::Allow | RecordKey::Disallow) && !entry.value.is_empty());
        let rules: Vec<LintRule<'_>> = rules.map(|entry| LintRule::new(entry, outline)).collect();
        let same = equal_rules(&rules);
        let mut alive = vec![true; rules.len()];
        for Dead { rule, .. } in &same {
            alive[*rule] = false;
        }
        for Dead { rule, because, why } in same.into_iter().chain(covered_rules(&rules, &alive, &mut budget)) {
            report(&rules[rule], &rules[because], why, outline, findings);
        }
    }
}

/// Limit on the bytes that are read to compare the patterns of each group with each other, for all groups of a file: a fixed number, plus
/// a number for each byte of the file. Without a limit, a file of 500 KiB could take minutes.
const MOST_COMPARED: (usize, usize) = (4 << 20, 24);

struct LintRule<'a> {
    entry: &'a OutlineEntry,
    allows: bool,
    shape: Shape,
}

impl<'a> LintRule<'a> {
    fn new(entry: &'a OutlineEntry, outline: &Outline<'_>) -> Self {
        let shape = Shape::new(outline.value(entry));
        Self { entry, allows: entry.key == RecordKey::Allow, shape }
    }

    /// Whether this rule decides on a path that both rules match.
    fn goes_before(&self, other: &Self) -> bool {
        let priority = |rule: &Self| (rule.shape.bytes, rule.allows);
        priority(self) > priority(other)
            || priority(self) == priority(other) && self.entry.line.start < other.entry.line.start
    }
}

/// A rule that never decides, and the rule that overrides it.
struct Dead {
    rule: usize,
    because: usize,
    why: Why,
}

#[derive(Clone, Copy)]
enum Why {
    /// Both rules have the same effect on the same paths.
    Same,
    /// One rule allows and the other disallows the same paths: allow wins.
    Allowed,
    /// The other rule is longer, and matches every path that this rule matches.
    Longer,
}

/// Finds rules that match the same paths as another rule, so that only one of the two can decide.
fn equal_rules(rules: &[LintRule<'_>]) -> Vec<Dead> {
    let mut strongest: HashMap<(&[u8], bool), usize> = HashMap::new();
    let mut dead = Vec::new();
    for (rule, LintRule { shape, allows, .. }) in rules.iter().enumerate() {
        match strongest.entry((&shape.text, shape.anchored)) {
            Slot::Vacant(slot) => {
                slot.insert(rule);
            }
            Slot::Occupied(mut slot) => {
                let other = *slot.get();
                let why = match &rules[other] {
                    // `/a*` and `/a*$` match the same paths but differ in length.
                    other if other.shape.bytes != shape.bytes => Why::Longer,
                    other if other.allows == *allows => Why::Same,
                    _ => Why::Allowed,
                };
                let (rule, because) = if rules[rule].goes_before(&rules[other]) {
                    slot.insert(rule);
                    (other, rule)
                } else {
                    (rule, other)
                };
                dead.push(Dead { rule, because, why });
            }
        }
    }
    dead
}

/// Finds rules that a longer rule covers. Only a pattern with stars can be longer than a pattern that it covers.
fn covered_rules(rules: &[LintRule<'_>], alive: &[bool], budget: &mut usize) -> Vec<Dead> {
    let mut starred: Vec<usize> = (0..rules.len()).filter(|&rule| rules[rule].shape.text.contains(&STAR)).collect();
    // Sorts the longest rules first, and equally long rules in the file's order.
    starred.sort_by_key(|&rule| Reverse(rules[rule].shape.bytes));
    let mut dead = Vec::new();
    for (rule, weaker) in rules.iter().enumerate().filter(|(rule, _)| alive[*rule]) {
        let paths = weaker.shape.paths();
        let longer = starred.iter().copied().take_while(|&other| rules[other].shape.bytes > weaker.shape.bytes);
        let affordable = longer.take_while(|&other| {
            let cost = paths.len() + rules[other].shape.text.len();
            steps::count(cost);
            *budget = budget.saturating_sub(cost);
            *budget > 0
        });
        let stronger = affordable.into_iter().find(|&other| rules[other].shape.covers(&paths));
        dead.extend(stronger.map(|because| Dead { rule, because, why: Why::Longer }));
    }
    dead
}

fn report(rule: &LintRule<'_>, because: &LintRule<'_>, why: Why, outline: &Outline<'_>, findings: &mut Findings<'_>) {
    let (dead, alive) = (rule.entry, because.entry);
    let literally = outline.value(dead) == outline.value(alive);
    let (code, message, hint, note) = match why {
        Why::Same if literally => ("same-rule-twice", "the rule appears twice", "leave it out", "the other rule"),
        Why::Same => (
            "same-when-decoded",
            "the rule differs from another only by its encoding",
            "leave it out: escapes are decoded before paths are compared (RFC 9309 §2.2.2)",
            "this rule is the same",
        ),
        Why::Allowed => (
            "allowed-and-disallowed",
            "the same path is allowed, so this rule never decides",
            "leave one of them out: among rules of the same length, allow wins (RFC 9309 §2.2.2)",
            "allowed here",
        ),
        Why::Longer => (
            "never-decides",
            "the rule never decides: a longer rule matches all its paths",
            "leave it out, or shorten the other: the longest rule that matches decides (RFC 9309 §2.2.2)",
            "this one decides",
        ),
    };
    findings.warn(code, (dead, &dead.value), message, hint, Some((alive, &alive.value, note)));
}
