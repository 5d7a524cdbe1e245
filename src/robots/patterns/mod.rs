//! Maps path patterns to values (RFC 9309 §2.2.3), each look-up within a budget of steps. Used for the rules of robots.txt, its usage
//! preferences, tdmrep.json and the operator's own rules. Pure.

mod literals;
pub(crate) mod pattern;
mod star_patterns;
mod text;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::budget::{StepBudget, StepsSpent};
use super::fold::fold;
use super::path::ComparedPath;

use literals::{Literal, Literals};
use pattern::{STAR, Shape, normalise, path_bytes};
use star_patterns::{Star, Starred};
use text::{PatternPlace, PatternText};

/// Compiled patterns. A look-up returns the greatest value of the patterns that match a path, as values are ordered by precedence.
///
/// Patterns without a star are sorted literals: only the last literal that does not sort after the path, and the literals that are prefixes
/// of that literal, can match. Patterns with stars are tried in descending order of value; if there are many, only patterns whose rarest
/// three consecutive bytes occur in the path.
#[derive(Debug)]
pub(crate) struct Patterns<T> {
    text: PatternText,
    literals: Literals<T>,
    starred: Starred<T>,
    /// The same patterns after [`fold`]. `None`: folding changes none of them.
    folded: Option<Box<Self>>,
}

/// Builder of [`Patterns`].
#[derive(Clone)]
pub(crate) struct PatternsBuilder<T> {
    text: PatternText,
    literals: Vec<Literal<T>>,
    starred: Vec<Star<T>>,
    folded: Option<Box<Self>>,
}

impl<T: Ord + Copy> Patterns<T> {
    /// The greatest value of the patterns that match.
    pub(crate) fn best(&self, path: ComparedPath<'_>, budget: &mut StepBudget) -> Result<Option<T>, StepsSpent> {
        let Self { text, literals, starred, .. } = self.folded.as_deref().filter(|_| path.is_folded).unwrap_or(self);
        let literal = literals.best(text, path.bytes, budget)?;
        let starred = starred.best(text, path, literal, budget)?;
        Ok(starred.or(literal))
    }

    pub(crate) fn heap_size(&self) -> usize {
        let folded = self.folded.as_ref().map_or(0, |folded| size_of::<Self>() + folded.heap_size());
        self.text.own.len() + self.literals.heap_size() + self.starred.heap_size() + folded
    }
}

impl<T: Ord + Copy> PatternsBuilder<T> {
    /// Creates a builder. `shared`: the text that contains the plain patterns, so that they are not copied. `patterns`: the expected number
    /// of patterns.
    pub(crate) fn new(shared: Arc<[u8]>, patterns: usize) -> Self {
        let text = PatternText { shared, own: Vec::new() };
        Self { text, literals: Vec::with_capacity(patterns), starred: Vec::new(), folded: None }
    }

    /// Adds a pattern that is a piece of the shared text, has no special characters and needs no normalising.
    #[inline]
    pub(crate) fn add_plain(&mut self, at: Range<usize>, value: T) {
        let literal = Literal::new(PatternPlace::new(at), false, value);
        self.literals.push(literal);
        if let Some(folded) = &mut self.folded {
            folded.literals.push(literal);
        }
    }

    /// Adds a pattern as written. `value` is called with the number of bytes that count for precedence: the length of the normalised
    /// pattern, `*` and `$` included; and again with the length of the folded pattern, if patterns are folded.
    pub(crate) fn add(&mut self, written: &[u8], value: impl Fn(usize) -> T) {
        let Shape { text, anchored, bytes } = normalise(written);
        let folded = fold(&text, path_bytes(&text));
        if matches!(folded, Cow::Owned(_)) && self.folded.is_none() {
            self.folded = Some(Box::new(self.clone()));
        }
        if let Some(builder) = &mut self.folded {
            builder.push(&folded, anchored, value(bytes - (text.len() - folded.len())));
        }
        self.push(&text, anchored, value(bytes));
    }

    fn push(&mut self, text: &[u8], is_anchored: bool, value: T) {
        let start = self.text.shared.len() + self.text.own.len();
        self.text.own.extend_from_slice(text);
        let place = PatternPlace::new(start..start + text.len());
        match memchr::memchr(STAR, text) {
            Some(star) => self.starred.push(Star::new(value, text.split_at(star), place, is_anchored)),
            None => self.literals.push(Literal::new(place, is_anchored, value)),
        }
    }

    pub(crate) fn finish(mut self) -> Patterns<T> {
        self.text.own.shrink_to_fit();
        let folded = self.folded.map(|folded| Box::new(folded.finish()));
        let literals = Literals::new(self.literals, &self.text);
        let starred = Starred::new(self.starred, &self.text);
        Patterns { text: self.text, literals, starred, folded }
    }
}
