//! The keys of records, and how they are misspelt. RFC 9309 §2.2 and the extensions. Pure.

use crate::robots::options::ParseOptions;

/// What a record is about.
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

/// A key that was understood, and whether it was written as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spelt {
    pub(crate) key: RecordKey,
    pub(crate) rightly: bool,
}

impl RecordKey {
    /// Reads a key without regard to case.
    pub(crate) fn recognise(name: &[u8], options: &ParseOptions) -> Option<Spelt> {
        match KEYS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes())) {
            Some(&(_, key)) => Some(Spelt { key, rightly: true }),
            None => Self::recognise_faulty(name, options).map(|key| Spelt { key, rightly: false }),
        }
    }

    /// As it should be written.
    pub(crate) fn as_str(self) -> &'static str {
        KEYS.iter().find(|(_, key)| *key == self).map_or("", |(name, _)| name)
    }

    #[cold]
    fn recognise_faulty(name: &[u8], options: &ParseOptions) -> Option<RecordKey> {
        let begins =
            |known: &str| name.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known.as_bytes()));
        let is = |known: &str| begins(known) && (name.len() == known.len() || options.key_prefixes);
        let prefix = options.key_prefixes.then(|| PREFIXES.iter().find(|(known, _)| begins(known))).flatten();
        let typo = options.key_typos.then(|| TYPOS.iter().find(|(known, _)| is(known))).flatten();
        prefix.or(typo).map(|&(_, key)| key)
    }
}

/// How long the key is if a text begins with that of a rule.
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

/// Each as it should be written; what files have most comes first.
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

/// Keys that Google takes to be meant by longer ones.
const PREFIXES: &[(&str, RecordKey)] = &[
    ("user-agent", RecordKey::UserAgent),
    ("allow", RecordKey::Allow),
    ("disallow", RecordKey::Disallow),
    ("sitemap", RecordKey::Sitemap),
];

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
    fn keys_have_no_case() {
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
            let spelt = RecordKey::recognise(name.as_bytes(), &ParseOptions::default());
            assert!(spelt.is_some_and(|spelt| spelt.rightly), "{name}");
            assert_eq!(RecordKey::recognise(name.to_uppercase().as_bytes(), &ParseOptions::default()), spelt, "{name}");
        }
    }

    #[test]
    fn google_accepts_frequent_typos() {
        let strict = ParseOptions { key_typos: false, ..ParseOptions::default() };
        for &(name, key) in TYPOS {
            let spelt = RecordKey::recognise(name.to_uppercase().as_bytes(), &ParseOptions::default());
            assert_eq!(spelt, Some(Spelt { key, rightly: false }), "{name}");
            assert_eq!(RecordKey::recognise(name.as_bytes(), &strict), None, "{name}");
        }
    }

    #[test]
    fn google_accepts_longer_keys() {
        let google = ParseOptions { key_prefixes: true, ..ParseOptions::default() };
        for (name, key) in [
            ("disallowed", Some(RecordKey::Disallow)),
            ("User-agents", Some(RecordKey::UserAgent)),
            ("disallow /foo", Some(RecordKey::Disallow)),
            ("dissallow-all", Some(RecordKey::Disallow)),
            ("allowance for everyone here", Some(RecordKey::Allow)),
            ("crawl-delays", None),
            ("my-disallow", None),
        ] {
            assert_eq!(RecordKey::recognise(name.as_bytes(), &google).map(|spelt| spelt.key), key, "{name}");
        }
    }

    #[test]
    fn other_keys_are_unknown() {
        for name in
            ["", "disallowed", "dis allow", "noindex", "user-agents", "\u{feff}allow", "allow\u{1}", "\u{1}allow"]
        {
            assert_eq!(RecordKey::recognise(name.as_bytes(), &ParseOptions::default()), None, "{name}");
        }
    }
}
