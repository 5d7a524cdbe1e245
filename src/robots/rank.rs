//! RFC 9309 §2.2.2, precedence: which of two rules that match decides. Pure. Used by `matcher` and `ruleset`.

use super::options::Precedence;

/// A rule's strength: of the rules that match, the one with the greatest rank decides. It also tells where the rule
/// stands and what it does, so that nothing else has to be kept of it. Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank(u64);

/// What a rule does.
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

/// How ranks of one rule set are made. The low 32 bits order rules of equally many octets: allow before disallow, then
/// by place in the file. The high 32 bits are the octets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ranking {
    precedence: Precedence,
    /// What an octet of the pattern adds to the rank.
    octet: u64,
}

impl Ranking {
    pub(crate) fn new(precedence: Precedence) -> Self {
        let octet = match precedence {
            Precedence::MostSpecific => 1 << 32,
            Precedence::FirstMatch => 0,
        };
        Self { precedence, octet }
    }

    /// The part of a rank that does not depend on the pattern.
    pub(crate) fn low(self, offset: u32, kind: RuleKind) -> u32 {
        // Of equals, the one that stands first.
        let earliness = MAX_OFFSET - offset;
        let allows = u32::from(kind == RuleKind::Allow);
        match self.precedence {
            Precedence::MostSpecific => allows << 31 | earliness,
            Precedence::FirstMatch => earliness << 1 | allows,
        }
    }

    #[inline]
    pub(crate) fn rank(self, octets: usize, low: u32) -> Rank {
        Rank(octets as u64 * self.octet + u64::from(low))
    }

    /// Where the rule's value begins in the file.
    pub(crate) fn offset(self, rank: Rank) -> u32 {
        let low = rank.low();
        MAX_OFFSET
            - match self.precedence {
                Precedence::MostSpecific => low & MAX_OFFSET,
                Precedence::FirstMatch => low >> 1,
            }
    }

    #[inline]
    pub(crate) fn kind(self, rank: Rank) -> RuleKind {
        let allows = match self.precedence {
            Precedence::MostSpecific => rank.low() >> 31,
            Precedence::FirstMatch => rank.low() & 1,
        };
        if allows == 1 { RuleKind::Allow } else { RuleKind::Disallow }
    }
}

impl Rank {
    /// Weaker than every rule.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn low(self) -> u32 {
        self.0 as u32
    }
}

/// An offset has 31 bits; the last is none, so that no rank is zero.
pub(crate) const MAX_OFFSET: u32 = 0x7FFF_FFFF;

#[cfg(test)]
mod tests {
    use super::*;

    const PRECEDENCES: [Precedence; 2] = [Precedence::MostSpecific, Precedence::FirstMatch];

    #[test]
    fn ranks_tell_where_the_rule_stands_and_what_it_does() {
        for ranking in PRECEDENCES.map(Ranking::new) {
            for kind in [RuleKind::Allow, RuleKind::Disallow] {
                for offset in [0, 1, 511_999, MAX_OFFSET - 1] {
                    let rank = ranking.rank(7, ranking.low(offset, kind));
                    assert_eq!((ranking.offset(rank), ranking.kind(rank)), (offset, kind));
                    assert!(rank > Rank::NONE);
                }
            }
        }
    }

    #[test]
    fn rfc_more_octets_win_then_allow_then_the_first() {
        let ranking = Ranking::new(Precedence::MostSpecific);
        let rank = |octets, offset, kind| ranking.rank(octets, ranking.low(offset, kind));
        assert!(rank(3, 90, RuleKind::Disallow) > rank(2, 10, RuleKind::Allow));
        assert!(rank(3, 90, RuleKind::Allow) > rank(3, 10, RuleKind::Disallow));
        assert!(rank(3, 10, RuleKind::Allow) > rank(3, 90, RuleKind::Allow));
    }

    #[test]
    fn the_1996_reading_takes_the_first() {
        let ranking = Ranking::new(Precedence::FirstMatch);
        let rank = |octets, offset, kind| ranking.rank(octets, ranking.low(offset, kind));
        assert!(rank(1, 10, RuleKind::Disallow) > rank(9, 20, RuleKind::Allow));
        assert!(rank(1, 10, RuleKind::Allow) > rank(9, 20, RuleKind::Disallow));
    }
}
