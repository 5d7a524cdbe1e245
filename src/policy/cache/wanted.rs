//! What a request asks of a cache, and whether a cache may be used for it at all (RFC 9111 §3, §5.2.1).

use super::control::CacheControl;
use super::range::ByteRange;

/// What a request asks of a cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    pub control: CacheControl,
    /// The values of If-None-Match.
    pub none_match: Vec<Vec<u8>>,
    pub modified_since: Option<Vec<u8>>,
    pub range: Option<ByteRange>,
    /// The value of If-Range.
    pub if_range: Option<Vec<u8>>,
}

impl Wanted {
    /// `each`: passes the request's fields. `None`: its answer may be its client's alone, or it asks for
    /// several parts.
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
                b"if-range" => wanted.if_range = Some(value.to_vec()),
                b"range" => {
                    is_own |= wanted.range.is_some();
                    wanted.range = ByteRange::parse(value);
                    is_own |= wanted.range.is_none();
                }
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

/// Whether this field of a request makes its answer the client's own. `name`: in lower case.
fn is_of_one_client(name: &[u8]) -> bool {
    let is_suspect = || (0..name.len()).any(|at| begins_suspect(&name[at..]));
    OWN.iter().any(|own| own.as_bytes() == name) || name.starts_with(PRICE) || is_suspect() && !HARMLESS.contains(&name)
}

/// Words in names of fields by which an application may let somebody in, or take its own name, which pages repeat: an answer to one
/// with such a field may be that client's own, or not fit for others (cache poisoning).
fn begins_suspect(rest: &[u8]) -> bool {
    let words: &[&[u8]] = match rest[0] {
        b'a' => &[b"auth", b"account"],
        b'b' => &[b"behalf"],
        b'c' => &[b"credential", b"csrf", b"cert"],
        b'd' => &[b"dpop"],
        b'f' => &[b"forwarded", b"front-end"],
        b'j' => &[b"jwt"],
        b'k' => &[b"key"],
        b'l' => &[b"login"],
        b'm' => &[b"method"],
        b'o' => &[b"otp", b"original", b"override"],
        b'p' => &[b"pass", b"protection"],
        b'r' => &[b"rewrite"],
        b's' => &[b"secret", b"session", b"sudo"],
        b't' => &[b"token"],
        b'u' => &[b"user"],
        b'w' => &[b"wsse"],
        b'x' => &[b"xsrf"],
        b'-' => &[b"-host", b"-ip"],
        _ => &[],
    };
    words.iter().any(|word| rest.starts_with(word))
}

/// They have such a word, and are in requests of anybody.
const HARMLESS: [&[u8]; 3] = [b"proxy-authorization", b"user-agent", b"sec-fetch-user"];

/// Fields of requests whose answers are no others'.
const OWN: [&str; 9] = [
    "authorization",
    "cookie",
    "cookie2",
    "if-match",
    "if-unmodified-since",
    "signature",
    "signature-input",
    "signature-agent",
    "upgrade",
];
/// What is paid for (Cloudflare, pay per crawl): `crawler-price`, `crawler-exact-price`, `crawler-max-price`, `crawler-charged`.
pub(super) const PRICE: &[u8] = b"crawler-";

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn wanted(fields: &[(&str, &str)]) -> Option<Wanted> {
        Wanted::read(|take| fields.iter().for_each(|(name, value)| take(name.as_bytes(), value.as_bytes())))
    }

    #[test]
    fn what_may_be_one_clients_own_is_asked_of_the_site() {
        for name in [
            "Authorization",
            "COOKIE",
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
    fn one_part_is_asked_of_the_cache_and_several_of_the_site() {
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
