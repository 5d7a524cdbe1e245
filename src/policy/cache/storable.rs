//! Which answers a shared cache may store (RFC 9111 §3), and for which requests it may be used at all.

use super::control::CacheControl;
use super::stored::StoredHead;
use std::time::Duration;

/// What a request asks of a cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    pub control: CacheControl,
    /// The values of If-None-Match.
    pub none_match: Vec<Vec<u8>>,
    pub modified_since: Option<Vec<u8>>,
}

impl Wanted {
    /// `each`: passes the request's fields. `None`: its answer may be its client's alone, or is not a whole page.
    pub fn read(each: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]))) -> Option<Self> {
        let (mut wanted, mut lines, mut pragma, mut is_own) = (Self::default(), Vec::new(), false, false);
        each(&mut |name, value| {
            let name = name.to_ascii_lowercase();
            match &*name {
                b"cache-control" => lines.push(value.to_vec()),
                // §5.4: it counts where there is no Cache-Control.
                b"pragma" => pragma |= value.to_ascii_lowercase().windows(8).any(|word| word == b"no-cache"),
                b"if-none-match" => wanted.none_match.push(value.to_vec()),
                b"if-modified-since" => wanted.modified_since = Some(value.to_vec()),
                name => is_own |= is_of_one_client(name),
            }
        });
        wanted.control = CacheControl::read(lines.iter().map(Vec::as_slice));
        wanted.control.no_cache |= pragma && lines.is_empty();
        (!is_own && !wanted.control.no_store).then_some(wanted)
    }

    /// The client has something already, and asks whether that is current.
    pub fn is_conditional(&self) -> bool {
        !self.none_match.is_empty() || self.modified_since.is_some()
    }
}

/// Whether this field of a request makes its answer the client's own, or a part of one. `name`: in lower case.
fn is_of_one_client(name: &[u8]) -> bool {
    let has = |word: &str| memchr::memmem::find(name, word.as_bytes()).is_some();
    OWN.iter().any(|own| own.as_bytes() == name)
        || name.starts_with(PRICE)
        || SUSPECT.iter().any(|word| has(word)) && name != b"proxy-authorization"
}

impl StoredHead {
    /// Whether this may answer other requests too, and is worth being kept.
    pub fn is_storable(&self) -> bool {
        let control = self.control();
        let forbids = |(name, value): &(Vec<u8>, Vec<u8>)| match &**name {
            b"set-cookie" | b"set-cookie2" | b"content-range" | b"accept-signature" | b"www-authenticate" => true,
            b"vary" => value.split(|byte| *byte == b',').any(|name| name.trim_ascii() == b"*"),
            name => name.starts_with(PRICE),
        };
        if control.no_store || control.private || self.fields.iter().any(forbids) {
            return false;
        }
        let (status, bytes) = (self.status, self.fields.iter().map(|(name, value)| name.len() + value.len()));
        let is_final = (200..600).contains(&status) && !NEVER.contains(&status);
        let may_be_heuristic = is_heuristic(status) || control.public;
        is_final
            && (self.lifetime() > Duration::ZERO || self.has_validator())
            && (may_be_heuristic || self.has_explicit_lifetime())
            && bytes.sum::<usize>() <= MOST_FIELDS
            && self.selected_by.len() <= MOST_SELECTING
    }
}

/// Whether it may be fresh though nothing says for how long (RFC 9110 §15.1); 206 is not stored.
pub(super) fn is_heuristic(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Fields of requests whose answers are no others', by what they say or because they are not the whole answer.
const OWN: [&str; 11] = [
    "authorization",
    "cookie",
    "cookie2",
    "range",
    "if-range",
    "if-match",
    "if-unmodified-since",
    "signature",
    "signature-input",
    "signature-agent",
    "upgrade",
];
/// Words in names of fields by which an application may let somebody in, or take its own name, which pages repeat: an answer to one
/// with such a field may be that client's own, or not fit for others (cache poisoning).
const SUSPECT: [&str; 14] = [
    "auth",
    "token",
    "key",
    "secret",
    "session",
    "credential",
    "password",
    "forwarded",
    "original",
    "rewrite",
    "override",
    "-host",
    "real-ip",
    "client-ip",
];
/// What is paid for (Cloudflare, pay per crawl): `crawler-price`, `crawler-exact-price`, `crawler-max-price`, `crawler-charged`.
const PRICE: &[u8] = b"crawler-";
/// Parts, what confirms something else, and what is said to one client: RFC 6585 forbids to store the last four.
const NEVER: [u16; 10] = [206, 304, 401, 402, 407, 421, 428, 429, 431, 511];
/// Bytes.
const MOST_FIELDS: usize = 64 * 1024;
const MOST_SELECTING: usize = 16;

#[cfg(test)]
mod tests {
    use super::super::stored::tests::head;
    use super::*;

    fn wanted(fields: &[(&str, &str)]) -> Option<Wanted> {
        Wanted::read(|take| fields.iter().for_each(|(name, value)| take(name.as_bytes(), value.as_bytes())))
    }

    #[test]
    fn what_may_be_one_clients_own_is_asked_of_the_site() {
        for name in [
            "Authorization",
            "COOKIE",
            "Range",
            "If-Range",
            "If-Match",
            "If-Unmodified-Since",
            "Signature-Input",
            "crawler-max-price",
            "Crawler-Exact-Price",
            "X-Api-Key",
            "X-Auth-Token",
            "X-Forwarded-Host",
            "Forwarded",
            "X-HTTP-Method-Override",
        ] {
            assert_eq!(wanted(&[(name, "x")]), None, "{name}");
        }
        assert_eq!(wanted(&[("Cache-Control", "No-Store")]), None);
        for name in
            ["Accept", "User-Agent", "Host", "Proxy-Authorization", "Sec-Fetch-User", "Keep-Alive", "traceparent"]
        {
            assert_eq!(wanted(&[(name, "x")]), Some(Wanted::default()), "{name}");
        }
    }

    #[test]
    fn conditions_and_directives_are_read() {
        let asked = wanted(&[("If-None-Match", "\"a\""), ("if-none-match", "\"b\""), ("Cache-Control", "max-age=5")]);
        let asked = asked.unwrap();
        assert_eq!((asked.none_match.len(), asked.control.max_age), (2, Some(Duration::from_secs(5))));
        assert!(asked.is_conditional());
        assert!(wanted(&[("Pragma", "No-Cache")]).unwrap().control.no_cache);
        assert!(!wanted(&[("Pragma", "no-cache"), ("Cache-Control", "max-age=1")]).unwrap().control.no_cache);
    }

    #[test]
    fn what_is_one_clients_or_forbidden_is_not_stored() {
        let fresh = ("cache-control", "max-age=60");
        assert!(head(200, &[fresh]).is_storable());
        for field in [
            ("cache-control", "private"),
            ("cache-control", "No-Store"),
            ("cache-control", "private=\"set-cookie\""),
            ("set-cookie", "a=b"),
            ("vary", "accept, *"),
            ("content-range", "bytes 0-1/2"),
            ("crawler-price", "USD 1"),
            ("crawler-charged", "USD 1"),
            ("accept-signature", "sig1=()"),
            ("x-long", &"x".repeat(70_000)),
        ] {
            assert!(!head(200, &[fresh, field]).is_storable(), "{field:?}");
        }
        for status in [101, 206, 304, 401, 402, 407, 421, 428, 429, 431, 511, 600] {
            assert!(!head(status, &[fresh]).is_storable(), "{status}");
        }
    }

    #[test]
    fn statuses_that_say_nothing_of_caches_need_a_lifetime() {
        for status in [201, 302, 307, 400, 403, 500, 503] {
            assert!(!head(status, &[("etag", "\"a\"")]).is_storable(), "{status}");
            assert!(head(status, &[("cache-control", "max-age=60")]).is_storable(), "{status}");
        }
        for status in [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501] {
            assert!(head(status, &[("etag", "\"a\"")]).is_storable(), "{status}");
        }
    }

    #[test]
    fn what_could_never_be_used_is_not_stored() {
        assert!(!head(200, &[]).is_storable());
        assert!(!head(200, &[("cache-control", "max-age=0")]).is_storable());
        assert!(head(200, &[("cache-control", "max-age=0"), ("last-modified", "x")]).is_storable());
    }
}
