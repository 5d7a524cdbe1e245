//! Cache-Control of requests and answers (RFC 9111 §5.2).

use std::time::Duration;

use crate::policy::list::members;
use crate::policy::retry_after::delta_seconds;

/// The directives that a shared cache obeys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// Whether the word `no-store` occurs, even in a malformed line, as not storing is always safe.
    pub no_store: bool,
    /// Whether the word `private` occurs, even in a malformed line, and even with field names (§5.2.2.7).
    pub private: bool,
    /// Whether there is a `no-cache`, even with field names (§5.2.2.4).
    pub no_cache: bool,
    pub public: bool,
    /// must-revalidate or proxy-revalidate.
    pub must_revalidate: bool,
    pub only_if_cached: bool,
    pub max_age: Option<Duration>,
    pub s_maxage: Option<Duration>,
    pub min_fresh: Option<Duration>,
    /// `Duration::MAX`: `max-stale` without a value, which accepts any staleness.
    pub max_stale: Option<Duration>,
}

impl CacheControl {
    /// Reads the values of the Cache-Control fields of one message.
    pub fn read<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut control = Self::default();
        for line in lines {
            let line = String::from_utf8_lossy(line).to_ascii_lowercase();
            control.no_store |= line.contains("no-store");
            control.private |= line.contains("private");
            members(&line).for_each(|directive| control.take(directive));
        }
        control
    }

    /// Applies a directive. `directive`: in lower case.
    fn take(&mut self, directive: &str) {
        let (name, value) = match directive.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim().trim_matches('"'))),
            None => (directive, None),
        };
        match name {
            "no-cache" => self.no_cache = true,
            "public" => self.public = true,
            "must-revalidate" | "proxy-revalidate" => self.must_revalidate = true,
            "only-if-cached" => self.only_if_cached = true,
            "max-age" => shortest(&mut self.max_age, value),
            "s-maxage" => shortest(&mut self.s_maxage, value),
            "min-fresh" => self.min_fresh = self.min_fresh.max(value.and_then(delta_seconds)),
            "max-stale" if value.is_none() => self.max_stale = Some(Duration::MAX),
            "max-stale" => shortest(&mut self.max_stale, value),
            _ => {}
        }
    }
}

/// Sets a lifetime. A lifetime that cannot be parsed is zero; of several, the shortest counts, which is safe (§4.2.1).
fn shortest(time: &mut Option<Duration>, value: Option<&str>) {
    let value = value.and_then(delta_seconds).unwrap_or(Duration::ZERO);
    *time = Some(time.map_or(value, |other| other.min(value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> CacheControl {
        CacheControl::read([line.as_bytes()])
    }

    fn seconds(line: &str) -> Option<u64> {
        read(line).max_age.map(|time| time.as_secs())
    }

    #[test]
    fn directive_names_ignore_case_and_values_may_be_quoted() {
        assert_eq!(seconds("Max-Age=60"), Some(60));
        assert_eq!(seconds("public,max-age=\"60\" , x"), Some(60));
        assert!(read("PRIVATE").private && read("No-Store").no_store && read("no-CACHE").no_cache);
        assert!(read("proxy-revalidate").must_revalidate && read("Only-If-Cached").only_if_cached);
    }

    #[test]
    fn no_store_and_private_are_found_at_any_position() {
        for line in ["private=\"x-a, x-b\", max-age=60", "x=\"y, private", "max-age=60;private", "\u{fc}, private"] {
            assert!(read(line).private, "{line}");
        }
        assert!(CacheControl::read([&b"\xff, no-store"[..]]).no_store);
        assert!(CacheControl::read([&b"max-age=60"[..], b"no-store"]).no_store);
    }

    #[test]
    fn invalid_lifetime_is_zero_and_the_shortest_of_several_counts() {
        for (line, expected) in [
            ("max-age=1, max-age=60", 1),
            ("max-age=60, max-age=x", 0),
            ("max-age", 0),
            ("max-age=-1", 0),
            ("max-age=1.5", 0),
            ("max-age=99999999999", u64::from(u32::MAX)),
        ] {
            assert_eq!(seconds(line), Some(expected), "{line}");
        }
        assert_eq!(seconds("x=\"max-age=60\", y=\"a, max-age=7\", z=\"\\\", max-age=8\""), None);
    }

    #[test]
    fn max_stale_and_min_fresh_of_requests_are_read() {
        let asked = read("max-stale, min-fresh=5");
        assert_eq!((asked.max_stale, asked.min_fresh), (Some(Duration::MAX), Some(Duration::from_secs(5))));
        assert_eq!(read("max-stale=7").max_stale, Some(Duration::from_secs(7)));
        assert_eq!(read("min-fresh=x").min_fresh, None);
    }
}
