//! RFC 9309 §2.2.2, precedence: which of two rules that match decides. Pure.

use super::options::Precedence;

/// A rule's strength: of the rules that match, the one with the greatest priority decides. It also says where the rule
/// stands and what it does, so that nothing else has to be kept of it. Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Priority(u64);

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

/// How priorities of one rule set are made. The low 32 bits order rules of equally many bytes: allow before disallow, then
/// by place in the file. The high 32 bits are the bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PriorityScheme {
    precedence: Precedence,
    /// What a byte of the pattern adds to the priority.
    byte: u64,
}

impl PriorityScheme {
    pub(crate) fn new(precedence: Precedence) -> Self {
        let byte = match precedence {
            Precedence::MostSpecific => 1 << 32,
            Precedence::FirstMatch => 0,
        };
        Self { precedence, byte }
    }

    /// The part of a priority that does not depend on the pattern.
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
    pub(crate) fn priority(self, bytes: usize, low: u32) -> Priority {
        Priority(bytes as u64 * self.byte + u64::from(low))
    }

    /// Where the rule's value begins in the file.
    pub(crate) fn offset(self, priority: Priority) -> u32 {
        let low = priority.low();
        MAX_OFFSET
            - match self.precedence {
                Precedence::MostSpecific => low & MAX_OFFSET,
                Precedence::FirstMatch => low >> 1,
            }
    }

    #[inline]
    pub(crate) fn kind(self, priority: Priority) -> RuleKind {
        let allows = match self.precedence {
            Precedence::MostSpecific => priority.low() >> 31,
            Precedence::FirstMatch => priority.low() & 1,
        };
        if allows == 1 { RuleKind::Allow } else { RuleKind::Disallow }
    }
}

impl Priority {
    /// Weaker than every rule.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn low(self) -> u32 {
        self.0 as u32
    }
}

/// An offset has 31 bits; the last is none, so that no priority is zero.
pub(crate) const MAX_OFFSET: u32 = 0x7FFF_FFFF;

#[cfg(test)]
mod tests {
    use super::*;

    const PRECEDENCES: [Precedence; 2] = [Precedence::MostSpecific, Precedence::FirstMatch];

    #[test]
    fn ranks_tell_where_the_rule_stands_and_what_it_does() {
        for scheme in PRECEDENCES.map(PriorityScheme::new) {
            for kind in [RuleKind::Allow, RuleKind::Disallow] {
                for offset in [0, 1, 511_999, MAX_OFFSET - 1] {
                    let priority = scheme.priority(7, scheme.low(offset, kind));
                    assert_eq!((scheme.offset(priority), scheme.kind(priority)), (offset, kind));
                    assert!(priority > Priority::NONE);
                }
            }
        }
    }

    #[test]
    fn rfc_more_bytes_win_then_allow_then_the_first() {
        let scheme = PriorityScheme::new(Precedence::MostSpecific);
        let priority = |bytes, offset, kind| scheme.priority(bytes, scheme.low(offset, kind));
        assert!(priority(3, 90, RuleKind::Disallow) > priority(2, 10, RuleKind::Allow));
        assert!(priority(3, 90, RuleKind::Allow) > priority(3, 10, RuleKind::Disallow));
        assert!(priority(3, 10, RuleKind::Allow) > priority(3, 90, RuleKind::Allow));
    }

    #[test]
    fn the_1996_reading_takes_the_first() {
        let scheme = PriorityScheme::new(Precedence::FirstMatch);
        let priority = |bytes, offset, kind| scheme.priority(bytes, scheme.low(offset, kind));
        assert!(priority(1, 10, RuleKind::Disallow) > priority(9, 20, RuleKind::Allow));
        assert!(priority(1, 10, RuleKind::Allow) > priority(9, 20, RuleKind::Disallow));
    }
}
