//! The keys of records, their misspellings. RFC 9309 §2.2, SEMANTICS of extensions. Pure. Called by `parse`.

use super::options::ParseOptions;

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
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
    pub(crate) key: Key,
    pub(crate) rightly: bool,
}

impl Key {
    /// Reads a key without regard to case.
    pub(crate) fn recognise(name: &[u8], options: &ParseOptions) -> Option<Spelt> {
        let find = |names: &[(&str, Key)]| {
            names.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes())).map(|&(_, key)| key)
        };
        if let Some(key) = find(KEYS) {
            return Some(Spelt { key, rightly: true });
        }
        let key = options.key_typos.then(|| find(TYPOS))??;
        Some(Spelt { key, rightly: false })
    }
}

const KEYS: &[(&str, Key)] = &[
    ("disallow", Key::Disallow),
    ("allow", Key::Allow),
    ("user-agent", Key::UserAgent),
    ("crawl-delay", Key::CrawlDelay),
    ("sitemap", Key::Sitemap),
    ("request-rate", Key::RequestRate),
    ("visit-time", Key::VisitTime),
    ("host", Key::Host),
    ("clean-param", Key::CleanParam),
    ("content-signal", Key::ContentSignal),
    ("content-usage", Key::ContentUsage),
    ("license", Key::License),
];

const TYPOS: &[(&str, Key)] = &[
    ("useragent", Key::UserAgent),
    ("user agent", Key::UserAgent),
    ("dissallow", Key::Disallow),
    ("dissalow", Key::Disallow),
    ("disalow", Key::Disallow),
    ("diasllow", Key::Disallow),
    ("disallaw", Key::Disallow),
    ("site-map", Key::Sitemap),
    ("crawl delay", Key::CrawlDelay),
    ("crawldelay", Key::CrawlDelay),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_no_case() {
        let options = ParseOptions::default();
        for name in ["disallow", "Disallow", "DISALLOW", "dIsAlLoW"] {
            let spelt = Key::recognise(name.as_bytes(), &options);
            assert_eq!(spelt, Some(Spelt { key: Key::Disallow, rightly: true }), "{name}");
        }
    }

    #[test]
    fn google_accepts_frequent_typos() {
        let strict = ParseOptions { key_typos: false, ..ParseOptions::default() };
        for &(name, key) in TYPOS {
            let spelt = Key::recognise(name.to_uppercase().as_bytes(), &ParseOptions::default());
            assert_eq!(spelt, Some(Spelt { key, rightly: false }), "{name}");
            assert_eq!(Key::recognise(name.as_bytes(), &strict), None, "{name}");
        }
    }

    #[test]
    fn other_keys_are_unknown() {
        for name in ["", "disallowed", "dis allow", "noindex", "user-agents", "\u{feff}allow"] {
            assert_eq!(Key::recognise(name.as_bytes(), &ParseOptions::default()), None, "{name}");
        }
    }
}
