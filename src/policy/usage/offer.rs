//! Reads what a site asks for in return for its content: a licence (`Link: <…>; rel="license"`, RSL 1.0 and RFC 8288) and a price
//! (`crawler-price`, Cloudflare's pay per crawl). Refuses nothing: `entries` judges a linked licence file. Pure.

use crate::policy::Money;

/// A link to a licence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LicenseLink<'a> {
    /// The URL reference as written.
    pub target: &'a str,
    /// Whether the `type` of the link says that the target is an RSL file.
    pub is_rsl: bool,
}

/// The links in a Link line that have the relation `license` and are about the page itself. `line`: with U+FFFD in place of bytes that are
/// not UTF-8. `None`: the line is malformed.
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

/// Reads the parameters of a link. Returns whether the link is a licence, whether it is in RSL, and the text from the next link on.
fn parameters(text: &str) -> Option<(bool, bool, &str)> {
    let (mut rest, mut relation, mut media_type, mut anchor) = (text.trim_start(), None, None, None);
    while let Some(after) = rest.strip_prefix(';') {
        let end = after.find([';', ',', '=']).unwrap_or(after.len());
        let (name, after) = (after[..end].trim(), &after[end..]);
        let (value, after) = match after.strip_prefix('=') {
            Some(after) => value(after.trim_start())?,
            None => ("", after),
        };
        // RFC 8288 §3.3: of several parameters with the same name, the first counts.
        if name.eq_ignore_ascii_case("rel") {
            relation.get_or_insert(value);
        } else if name.eq_ignore_ascii_case("type") {
            media_type.get_or_insert(value);
        } else if name.eq_ignore_ascii_case("anchor") {
            anchor.get_or_insert(value);
        }
        rest = after.trim_start();
    }
    // RFC 8288 §3.2: the link is about the page that `anchor` names; `#…` names a part of this page.
    let is_own = anchor.is_none_or(|it| it.is_empty() || it.starts_with('#'));
    let is_license =
        is_own && relation.is_some_and(|it| it.split_ascii_whitespace().any(|it| it.eq_ignore_ascii_case("license")));
    let is_rsl = media_type.is_some_and(|it| it.trim().eq_ignore_ascii_case(RSL));
    match rest.strip_prefix(',') {
        Some(next) => Some((is_license, is_rsl, next.trim_start_matches([',', ' ', '\t']))),
        None => rest.is_empty().then_some((is_license, is_rsl, "")),
    }
}

/// Splits off a token or a quoted string. Returns its content and the rest of the text.
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

/// Parses a price: a currency (ISO 4217) and an amount, such as `USD 0.01`.
pub fn price(value: &[u8]) -> Option<&str> {
    let text = str::from_utf8(value).ok()?.trim();
    Money::parse(text).map(|_| text)
}

/// Parses the reason why a site has not accepted a price: one word, such as `InvalidCrawlerMaxPrice`.
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
    fn links_with_relation_license_are_licences() {
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
    fn malformed_links_are_unknown() {
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
