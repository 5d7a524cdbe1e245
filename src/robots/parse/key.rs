//! The keys of records, and known misspellings. RFC 9309 §2.2 and the extensions. Pure.

/// The key of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKey {
    UserAgent,
    Allow,
    Disallow,
    CrawlDelay,
    RequestRate,
    VisitTime,
    Sitemap,
    Host,
    CleanParam,
    ContentSignal,
    ContentUsage,
    License,
}

/// A recognised key, and whether its spelling is correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spelt {
    pub(crate) key: RecordKey,
    pub(crate) is_exact: bool,
}

impl RecordKey {
    /// Reads a key without regard to case.
    pub(crate) fn recognise(name: &[u8]) -> Option<Spelt> {
        let of = |keys: &[(&str, Self)], is_exact| {
            let found = keys.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
            found.map(|&(_, key)| Spelt { key, is_exact })
        };
        of(KEYS, true).or_else(|| of(TYPOS, false))
    }

    /// The correct spelling.
    pub(crate) fn as_str(self) -> &'static str {
        KEYS.iter().find(|(_, key)| *key == self).map_or("", |(name, _)| name)
    }
}

/// Length of the key, if a text begins with `allow` or `disallow`.
#[inline]
pub(crate) fn length_of_rule_key(text: &[u8]) -> Option<usize> {
    const SMALL: u64 = u64::from_le_bytes([0x20; 8]);
    const DISALLOW: u64 = u64::from_le_bytes(*b"disallow");
    if let Some(word) = text.first_chunk()
        && u64::from_le_bytes(*word) | SMALL == DISALLOW
    {
        return Some(8);
    }
    text.get(..5)?.eq_ignore_ascii_case(b"allow").then_some(5)
}

/// Correct spellings, the most frequent keys first.
const KEYS: &[(&str, RecordKey)] = &[
    ("Disallow", RecordKey::Disallow),
    ("Allow", RecordKey::Allow),
    ("User-agent", RecordKey::UserAgent),
    ("Crawl-delay", RecordKey::CrawlDelay),
    ("Sitemap", RecordKey::Sitemap),
    ("Request-rate", RecordKey::RequestRate),
    ("Visit-time", RecordKey::VisitTime),
    ("Host", RecordKey::Host),
    ("Clean-param", RecordKey::CleanParam),
    ("Content-Signal", RecordKey::ContentSignal),
    ("Content-Usage", RecordKey::ContentUsage),
    ("License", RecordKey::License),
];

/// Misspellings that Google's parser accepts, and two of `Crawl-delay`.
const TYPOS: &[(&str, RecordKey)] = &[
    ("useragent", RecordKey::UserAgent),
    ("user agent", RecordKey::UserAgent),
    ("dissallow", RecordKey::Disallow),
    ("dissalow", RecordKey::Disallow),
    ("disalow", RecordKey::Disallow),
    ("diasllow", RecordKey::Disallow),
    ("disallaw", RecordKey::Disallow),
    ("site-map", RecordKey::Sitemap),
    ("crawl delay", RecordKey::CrawlDelay),
    ("crawldelay", RecordKey::CrawlDelay),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ignore_case() {
        let keys = [
            "user-agent",
            "allow",
            "disallow",
            "crawl-delay",
            "request-rate",
            "visit-time",
            "sitemap",
            "host",
            "clean-param",
            "content-signal",
            "content-usage",
            "license",
        ];
        for name in keys {
            let spelt = RecordKey::recognise(name.as_bytes());
            assert!(spelt.is_some_and(|spelt| spelt.is_exact), "{name}");
            assert_eq!(RecordKey::recognise(name.to_uppercase().as_bytes()), spelt, "{name}");
        }
    }

    #[test]
    fn google_accepts_frequent_typos() {
        for &(name, key) in TYPOS {
            let spelt = RecordKey::recognise(name.to_uppercase().as_bytes());
            assert_eq!(spelt, Some(Spelt { key, is_exact: false }), "{name}");
        }
    }

    #[test]
    fn other_keys_are_unknown() {
        for name in
            ["", "disallowed", "dis allow", "noindex", "user-agents", "\u{feff}allow", "allow\u{1}", "\u{1}allow"]
        {
            assert_eq!(RecordKey::recognise(name.as_bytes()), None, "{name}");
        }
    }
}
