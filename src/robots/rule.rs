//! RFC 9309 §2.2.2, precedence: determines which of several matching rules decides. Pure.

use super::options::Precedence;

/// The effect of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuleKind {
    Allow,
    Disallow,
}

impl RuleKind {
    pub fn as_str(self) -> &'static str {
        match self {
            RuleKind::Allow => "allow",
            RuleKind::Disallow => "disallow",
        }
    }
}

/// Precedence of a matching rule: the greatest decides. Also holds the rule's kind and index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RuleRank {
    /// Length of the pattern in bytes; with [`Precedence::FirstMatch`] a number that is greater for rules that come earlier in the file.
    strength: u32,
    /// Breaks ties: a rule that allows wins, then the first rule. The highest bit is set if the rule allows.
    allows_then_first: u32,
}

impl RuleRank {
    /// `place`: index among the file's rules. `bytes`: length of the normalised pattern.
    #[inline]
    pub(crate) fn new(precedence: Precedence, kind: RuleKind, place: u32, bytes: usize) -> Self {
        let earliness = MAX_PLACE - place;
        let strength = match precedence {
            Precedence::MostSpecific => bytes as u32,
            Precedence::FirstMatch => earliness,
        };
        Self { strength, allows_then_first: u32::from(kind == RuleKind::Allow) << 31 | earliness }
    }

    #[inline]
    pub(crate) fn kind(self) -> RuleKind {
        if self.allows_then_first > MAX_PLACE { RuleKind::Allow } else { RuleKind::Disallow }
    }

    #[inline]
    pub(crate) fn place(self) -> u32 {
        MAX_PLACE - (self.allows_then_first & MAX_PLACE)
    }
}

const MAX_PLACE: u32 = 0x7FFF_FFFF;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_contains_place_and_kind_of_its_rule() {
        for precedence in [Precedence::MostSpecific, Precedence::FirstMatch] {
            for kind in [RuleKind::Allow, RuleKind::Disallow] {
                for place in [0, 1, 511_999, MAX_PLACE] {
                    let rank = RuleRank::new(precedence, kind, place, 7);
                    assert_eq!((rank.place(), rank.kind()), (place, kind));
                }
            }
        }
    }

    #[test]
    fn rfc_more_bytes_win_then_allow_then_the_first() {
        let rank = |bytes, place, kind| RuleRank::new(Precedence::MostSpecific, kind, place, bytes);
        assert!(rank(3, 90, RuleKind::Disallow) > rank(2, 10, RuleKind::Allow));
        assert!(rank(3, 90, RuleKind::Allow) > rank(3, 10, RuleKind::Disallow));
        assert!(rank(3, 10, RuleKind::Allow) > rank(3, 90, RuleKind::Allow));
    }

    #[test]
    fn the_1996_reading_takes_the_first() {
        let rank = |bytes, place, kind| RuleRank::new(Precedence::FirstMatch, kind, place, bytes);
        assert!(rank(1, 10, RuleKind::Disallow) > rank(9, 20, RuleKind::Allow));
        assert!(rank(1, 10, RuleKind::Allow) > rank(9, 20, RuleKind::Disallow));
    }
}
