//! The demands of a request on a cache, and whether a cache may be used for the request at all (RFC 9111 §3, §5.2.1).

use super::control::CacheControl;
use super::range::ByteRange;

/// The demands of a request on a cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    pub control: CacheControl,
    /// The values of If-None-Match.
    pub none_match: Vec<Vec<u8>>,
    pub modified_since: Option<Vec<u8>>,
    pub range: Option<ByteRange>,
    /// The value of If-Range.
    pub if_range: Option<Vec<u8>>,
    /// Whether the request bypasses the cache, as it has `no-store`, or a Range that is not one valid range of bytes.
    pub is_past_caches: bool,
}

impl Wanted {
    /// Reads the request's fields. `each` calls its argument with the name and value of each field.
    pub fn read(each: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]))) -> Self {
        let (mut wanted, mut lines, mut pragma) = (Self::default(), Vec::new(), false);
        each(&mut |name, value| {
            let name = name.to_ascii_lowercase();
            match &*name {
                b"cache-control" => lines.push(value.to_vec()),
                // Pragma counts only if there is no Cache-Control (§5.4).
                b"pragma" => pragma |= value.to_ascii_lowercase().windows(8).any(|word| word == b"no-cache"),
                b"if-none-match" => wanted.none_match.push(value.to_vec()),
                b"if-modified-since" => wanted.modified_since = Some(value.to_vec()),
                b"if-range" => wanted.if_range = Some(value.to_vec()),
                b"range" => {
                    let is_another = wanted.range.is_some();
                    wanted.range = ByteRange::parse(value);
                    wanted.is_past_caches |= is_another || wanted.range.is_none();
                }
                _ => {}
            }
        });
        wanted.control = CacheControl::read(lines.iter().map(Vec::as_slice));
        wanted.control.no_cache |= pragma && lines.is_empty();
        wanted.is_past_caches |= wanted.control.no_store;
        wanted
    }

    /// Whether the client has a copy and asks whether this copy is current.
    pub fn is_conditional(&self) -> bool {
        !self.none_match.is_empty() || self.modified_since.is_some()
    }
}

/// Whether a request field may make the answer specific to its client. An application may authenticate clients by the field, or take its
/// own host name from the field and repeat the name in pages (cache poisoning). `name`: in lower case.
pub fn is_of_one_client(name: &[u8]) -> bool {
    let is_of_browsers = || OF_BROWSERS.iter().any(|start| name.starts_with(start.as_bytes()));
    !(ANYBODYS.iter().any(|known| known.as_bytes() == name) || is_of_browsers())
}

/// Fields that browsers, crawlers and HTTP libraries send for any client. This is an allowlist, as nobody can list all fields by which
/// applications identify a client.
const ANYBODYS: [&str; 28] = [
    "accept",
    "accept-charset",
    "accept-datetime",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "content-type",
    "dnt",
    "from",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "max-forwards",
    "origin",
    "pragma",
    "prefer",
    "priority",
    "purpose",
    "range",
    "referer",
    "save-data",
    "sec-gpc",
    "sec-purpose",
    "traceparent",
    "tracestate",
    "upgrade-insecure-requests",
    "user-agent",
    "via",
];
const OF_BROWSERS: [&str; 2] = ["sec-ch-", "sec-fetch-"];

/// Prefix of the fields about payment (Cloudflare, pay per crawl): `crawler-price`, `crawler-exact-price`, `crawler-max-price`,
/// `crawler-charged`.
pub(super) const PRICE: &[u8] = b"crawler-";

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn wanted(fields: &[(&str, &str)]) -> Option<Wanted> {
        let each = |take: &mut dyn FnMut(&[u8], &[u8])| {
            fields.iter().for_each(|(name, value)| take(name.as_bytes(), value.as_bytes()));
        };
        Some(Wanted::read(each)).filter(|wanted| !wanted.is_past_caches)
    }

    #[test]
    fn requests_with_unknown_fields_bypass_the_cache() {
        for name in [
            "Authorization",
            "COOKIE",
            "If-Match",
            "If-Unmodified-Since",
            "Signature-Input",
            "crawler-max-price",
            "Crawler-Exact-Price",
            "X-Api-Key",
            "X-Impersonate",
            "X-Ms-Client-Principal",
            "SM-UNIVERSALID",
            "X-Tenant",
            "X-Sid",
            "X-Hmac",
            "X-Auth-Token",
            "X-Forwarded-Host",
            "Forwarded",
            "X-HTTP-Method-Override",
            "X-HTTP-Method",
            "X-Appwrite-JWT",
            "X-Vercel-Protection-Bypass",
            "X-WSSE",
            "Client-Cert",
            "DPoP",
            "X-GitHub-OTP",
            "X-Passwd",
            "Remote-User",
            "X-On-Behalf-Of",
            "Sudo",
            "X-CSRF",
            "X-Login",
            "Front-End-Https",
            "CF-Connecting-IP",
            "X-Bearer",
            "X-Access",
            "X-SSO",
            "X-OIDC",
            "X-PAT",
            "Baggage",
            "X-Requested-With",
            "Sec-Session-Response",
            "Accept-Token",
            "If-Schedule-Tag-Match",
            "",
        ] {
            assert!(is_of_one_client(name.to_ascii_lowercase().as_bytes()), "{name}");
        }
        for name in
            ["Accept", "User-Agent", "Sec-Fetch-User", "Sec-CH-UA-Mobile", "If-None-Match", "Range", "traceparent"]
        {
            assert!(!is_of_one_client(name.to_ascii_lowercase().as_bytes()), "{name}");
        }
        assert_eq!(wanted(&[("Cache-Control", "No-Store")]), None);
        assert_eq!(wanted(&[("Accept", "x")]), Some(Wanted::default()));
    }

    #[test]
    fn single_ranges_use_the_cache_and_multiple_ones_bypass_it() {
        let asked = wanted(&[("Range", "bytes=1-2"), ("If-Range", "\"a\"")]).unwrap();
        assert_eq!(asked.range, Some(ByteRange::From(1, Some(2))));
        assert_eq!(asked.if_range.as_deref(), Some(&b"\"a\""[..]));
        assert_eq!(wanted(&[("Range", "bytes=1-2, 4-5")]), None);
        assert_eq!(wanted(&[("Range", "bytes=1-2"), ("Range", "bytes=4-5")]), None);
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
}
