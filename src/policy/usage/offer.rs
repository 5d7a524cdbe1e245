//! What a site asks for in return: a licence (`Link: <…>; rel="license"`, RSL 1.0 and RFC 8288) and a price (`crawler-price`,
//! Cloudflare's pay per crawl). Only reported. Pure.

use crate::policy::Money;

/// A link to a licence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LicenseLink<'a> {
    /// As written.
    pub target: &'a str,
    /// By its `type` an RSL file is there.
    pub is_rsl: bool,
}

/// A Link line's links whose relation is `license`, but for those of other pages. `line`: U+FFFD replaces what is not UTF-8. `None`:
/// the line is malformed.
pub fn licenses(line: &str) -> Option<Vec<LicenseLink<'_>>> {
    let mut rest = line.trim();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (target, after) = rest.strip_prefix('<')?.split_once('>')?;
        let (is_license, is_rsl, after) = parameters(after)?;
        if is_license {
            if target.is_empty() || target.contains(|c: char| c.is_control() || c.is_whitespace() || c == '\u{fffd}') {
                return None;
            }
            found.push(LicenseLink { target, is_rsl });
        }
        rest = after;
    }
    Some(found)
}

/// Whether a link's parameters, up to the next link, make it a licence, and one in RSL; and that next link.
fn parameters(text: &str) -> Option<(bool, bool, &str)> {
    let (mut rest, mut relation, mut media_type, mut anchor) = (text.trim_start(), None, None, None);
    while let Some(after) = rest.strip_prefix(';') {
        let end = after.find([';', ',', '=']).unwrap_or(after.len());
        let (name, after) = (after[..end].trim(), &after[end..]);
        let (value, after) = match after.strip_prefix('=') {
            Some(after) => value(after.trim_start())?,
            None => ("", after),
        };
        // RFC 8288 §3.3: of several the first counts.
        if name.eq_ignore_ascii_case("rel") {
            relation.get_or_insert(value);
        } else if name.eq_ignore_ascii_case("type") {
            media_type.get_or_insert(value);
        } else if name.eq_ignore_ascii_case("anchor") {
            anchor.get_or_insert(value);
        }
        rest = after.trim_start();
    }
    // RFC 8288 §3.2: the link is about the page that `anchor` names; `#…` is a part of this one.
    let is_own = anchor.is_none_or(|it| it.is_empty() || it.starts_with('#'));
    let is_license =
        is_own && relation.is_some_and(|it| it.split_ascii_whitespace().any(|it| it.eq_ignore_ascii_case("license")));
    let is_rsl = media_type.is_some_and(|it| it.trim().eq_ignore_ascii_case(RSL));
    match rest.strip_prefix(',') {
        Some(next) => Some((is_license, is_rsl, next.trim_start_matches([',', ' ', '\t']))),
        None => rest.is_empty().then_some((is_license, is_rsl, "")),
    }
}

/// A token or a quoted string, and what follows it.
fn value(text: &str) -> Option<(&str, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        return Some((text[..end].trim_end(), &text[end..]));
    };
    let mut escaped = false;
    let end = quoted.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map(|end| (&quoted[..end], &quoted[end + 1..]))
}

/// `USD 0.01`: a currency (ISO 4217) and an amount.
pub fn price(value: &[u8]) -> Option<&str> {
    let text = str::from_utf8(value).ok()?.trim();
    Money::parse(text).map(|_| text)
}

/// Why a site has not taken a price: `InvalidCrawlerMaxPrice`, one word.
pub fn crawler_error(value: &[u8]) -> Option<&str> {
    let text = str::from_utf8(value).ok()?.trim();
    let is_word = (1..=64).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_alphanumeric());
    is_word.then_some(text)
}

/// The media type of a licence file (RSL 1.0).
pub(super) const RSL: &str = "application/rsl+xml";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_links_of_that_relation() {
        for (line, expected) in [
            (r#"<https://a.example/l.xml>; rel="license"; type="application/rsl+xml""#, "https://a.example/l.xml"),
            ("<https://a.example/l.xml>;rel=license", "https://a.example/l.xml"),
            (r#"</l>; title="a, \"b\"; c"; REL="next License""#, "/l"),
            (r#"</a>; rel=next, </l>; rel=license , </m>; rel=license"#, "/l /m"),
            (r#"</a>; rel=next; rel=license"#, ""),
            ("</style.css>; rel=preload; as=style; nopush", ""),
            ("</a,b;c>; rel=license", "/a,b;c"),
            ("", ""),
        ] {
            let found = licenses(line).unwrap();
            let targets: Vec<_> = found.iter().map(|link| link.target).collect();
            assert_eq!(targets.join(" "), expected, "{line}");
            assert_eq!(found.iter().any(|link| link.is_rsl), line.contains("rsl+xml"), "{line}");
        }
    }

    #[test]
    fn what_is_no_link_is_unknown() {
        for line in [
            "https://a.example/l.xml; rel=license",
            "<https://a.example",
            "</l>; rel=\"license",
            "</l> rel=license",
            "<>; rel=license",
            "<a b>; rel=license",
            "</l>; rel=license; x=\"\\\"",
        ] {
            assert_eq!(licenses(line), None, "{line}");
        }
        assert_eq!(licenses("</\u{fffd}>; rel=license"), None);
        assert_eq!(licenses(&"</l>; rel=license,".repeat(100)).map(|all| all.len()), Some(100));
    }

    #[test]
    fn a_price_is_a_currency_and_an_amount() {
        for (value, expected) in [
            ("USD 0.01", Some("USD 0.01")),
            (" EUR 3 ", Some("EUR 3")),
            ("usd 0.01", None),
            ("0.01", None),
            ("USD -1", None),
            ("USD .1", None),
            ("USD 1.2.3", None),
            ("USD 1234567890123", None),
            ("", None),
        ] {
            assert_eq!(price(value.as_bytes()), expected, "{value}");
        }
        assert_eq!(price(b"USD \xff"), None);
    }
}
