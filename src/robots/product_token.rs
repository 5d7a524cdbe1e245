//! RFC 9309 §2.2.1: the name of a crawler in robots.txt. Pure.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

/// A crawler's name, such as `ExampleBot`; compared without regard to case.
///
/// RFC 9309 allows letters, `_` and `-`. A name with other characters (`360Spider`, `Mail.Ru`) is accepted too; such a name
/// matches only a `User-agent` line with exactly this value.
#[derive(Debug, Clone)]
pub struct ProductToken(Arc<str>);

impl ProductToken {
    /// Maximum number of tokens taken from one User-Agent header.
    pub const MAX_FROM_HEADER: usize = 8;

    /// Names that vendors document as opt-outs only: their crawlers fetch under other names.
    pub const OPT_OUTS: [&str; 2] = ["Google-Extended", "Applebot-Extended"];

    /// Parses a name as an operator writes it.
    pub fn parse(raw: &str) -> Result<Self, TokenError> {
        let name = raw.trim();
        match name {
            "" => Err(TokenError::Empty),
            "*" => Err(TokenError::Wildcard),
            name if name.len() > MAX_LEN => Err(TokenError::TooLong),
            // No `User-agent` line can contain these characters: `#` begins a comment, and control characters end the line or are invalid.
            name if name.contains(|c: char| c == '#' || c.is_control()) => Err(TokenError::Character),
            name => Ok(Self(name.into())),
        }
    }

    /// The names of crawlers in a User-Agent header, in the header's order, without duplicates, at most [`Self::MAX_FROM_HEADER`].
    ///
    /// - A product (`Wget/1.21.3`) counts by its name without the version, and a bare word (`ia_archiver`) counts as a name.
    /// - In a comment, a piece between `;` counts if it is a product with a version (`Googlebot/2.1`), or if it follows
    ///   `compatible` (`Yahoo! Slurp`), then word by word. Addresses of pages and mail (`+http://…`) end a piece.
    /// - The names that browsers send (`Mozilla`, `AppleWebKit`, `Chrome`, `Safari`, `MSIE`, …) are skipped. A plain browser thus has no
    ///   token and obeys the rules for `*`. `HeadlessChrome` is not skipped.
    /// - Names consist of letters, `_` and `-`. Other visible characters inside a name are kept (`archive.org_bot`, `MJ12bot`), as
    ///   robots.txt files contain such names unchanged.
    pub fn from_user_agent(header: &[u8]) -> Vec<Self> {
        let mut tokens = Vec::new();
        let mut rest = header;
        while !rest.is_empty() && tokens.len() < Self::MAX_FROM_HEADER {
            if rest[0] == b'(' {
                let (comment, after) = split_comment(rest);
                from_comment(comment, &mut tokens);
                rest = after;
            } else {
                let end = rest.iter().position(|&byte| byte == b'(').unwrap_or(rest.len());
                for word in words(&rest[..end]) {
                    push(word, &mut tokens);
                }
                rest = &rest[end..];
            }
        }
        tokens
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, as a shared reference.
    pub fn shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl AsRef<str> for ProductToken {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProductToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ProductToken {
    type Err = TokenError;

    fn from_str(raw: &str) -> Result<Self, TokenError> {
        Self::parse(raw)
    }
}

impl PartialEq for ProductToken {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for ProductToken {}

impl std::hash::Hash for ProductToken {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        for byte in self.0.bytes() {
            state.write_u8(byte.to_ascii_lowercase());
        }
        state.write_u8(0xFF);
    }
}

/// Why a string is not a product token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    #[error("a product token cannot be empty")]
    Empty,
    #[error("`*` stands for all crawlers, not for one")]
    Wildcard,
    #[error("a product token cannot contain `#` or control characters")]
    Character,
    #[error("a product token has at most {MAX_LEN} bytes")]
    TooLong,
}

/// Whether a token of RFC 9309 may contain the byte.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-')
}

/// The token that the value of a `User-agent` line begins with; may be empty.
pub(crate) fn leading_token(value: &[u8]) -> &[u8] {
    &value[..value.iter().position(|&byte| !is_token_byte(byte)).unwrap_or(value.len())]
}

const MAX_LEN: usize = 256;

/// Names of browsers, engines and platforms, in lower case.
static BROWSERS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    "android applewebkit build chrome chromium compatible cros crios edg edga edge edgios firefox fxios \
     gecko khtml like linux macintosh mobile mozilla msie nt opera opr presto safari samsungbrowser \
     trident ubuntu vivaldi version webkit windows wow64 x11 yabrowser"
        .split(' ')
        .collect()
});

/// Splits off the comment in parentheses that `header` begins with. Returns its text and the rest of the header. Comments nest (RFC 9110
/// §5.6.5).
fn split_comment(header: &[u8]) -> (&[u8], &[u8]) {
    let mut depth = 0_usize;
    let mut escaped = false;
    for (at, byte) in header.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'(' => depth += 1,
            b')' if depth == 1 => return (&header[1..at], &header[at + 1..]),
            b')' => depth -= 1,
            _ => {}
        }
    }
    (&header[1..], &[])
}

fn from_comment(comment: &[u8], tokens: &mut Vec<ProductToken>) {
    let mut after_compatible = false;
    for piece in comment.split(|&byte| byte == b';').map(<[u8]>::trim_ascii) {
        let mut words = words(piece).take_while(|word| !is_address(word)).peekable();
        if std::mem::take(&mut after_compatible) {
            words.for_each(|word| push(word, tokens));
            continue;
        }
        after_compatible = piece.eq_ignore_ascii_case(b"compatible");
        if let Some(word) = words.next()
            && words.peek().is_none()
            && has_version(word)
        {
            push(word, tokens);
        }
    }
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b' ' | b'\t' | b',' | b')')).filter(|word| !word.is_empty())
}

fn has_version(word: &[u8]) -> bool {
    memchr::memchr(b'/', word).is_some_and(|slash| word[slash + 1..].iter().any(u8::is_ascii_digit))
}

fn is_address(word: &[u8]) -> bool {
    word[0] == b'+' || memchr::memchr(b'@', word).is_some() || memchr::memmem::find(word, b"://").is_some()
}

fn push(word: &[u8], tokens: &mut Vec<ProductToken>) {
    let name = word.split(|&byte| byte == b'/').next().unwrap_or_default();
    let is_last = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let name = &name[..name.iter().rposition(is_last).map_or(0, |last| last + 1)];
    let is_name = name.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        && name.iter().any(u8::is_ascii_alphabetic)
        && !is_address(word)
        && !BROWSERS.iter().any(|browser| name.eq_ignore_ascii_case(browser.as_bytes()));
    let Some(token) = is_name.then(|| str::from_utf8(name).ok()).flatten() else {
        return;
    };
    let Ok(token) = ProductToken::parse(token) else { return };
    if tokens.len() < ProductToken::MAX_FROM_HEADER && !tokens.contains(&token) {
        tokens.push(token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(header: &str) -> String {
        let tokens = ProductToken::from_user_agent(header.as_bytes());
        tokens.iter().map(ProductToken::as_str).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn product_tokens_are_validated() {
        assert_eq!(ProductToken::parse(" ExampleBot ").map(|token| token.to_string()).as_deref(), Ok("ExampleBot"));
        assert!(ProductToken::parse("360Spider").is_ok());
        for (raw, error) in [
            ("", TokenError::Empty),
            (" \t", TokenError::Empty),
            ("*", TokenError::Wildcard),
            ("a#b", TokenError::Character),
            ("a\nb", TokenError::Character),
        ] {
            assert_eq!(ProductToken::parse(raw), Err(error), "{raw:?}");
        }
        assert_eq!(ProductToken::parse(&"a".repeat(257)), Err(TokenError::TooLong));
    }

    #[test]
    fn product_tokens_ignore_case() {
        assert_eq!(ProductToken::parse("FooBot"), ProductToken::parse("fOObOT"));
        assert_ne!(ProductToken::parse("FooBot"), ProductToken::parse("Foo"));
    }

    #[test]
    fn user_agent_products_are_tokens() {
        for (header, expected) in [
            ("Wget/1.21.3", "Wget"),
            ("curl/8.5.0", "curl"),
            ("python-requests/2.31.0", "python-requests"),
            ("Scrapy/2.11 (+https://scrapy.org)", "Scrapy"),
            ("Googlebot-Image/1.0", "Googlebot-Image"),
            ("Python/3.11 aiohttp/3.9.1", "Python aiohttp"),
            ("ia_archiver (+http://www.alexa.com/site/help/webmasters; crawler@alexa.com)", "ia_archiver"),
            (
                "LinkedInBot/1.0 (compatible; Mozilla/5.0; Apache-HttpClient/4.5 +http://www.linkedin.com)",
                "LinkedInBot Apache-HttpClient",
            ),
            ("facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)", "facebookexternalhit"),
            ("Lynx/2.8.9 libwww-FM/2.14", "Lynx libwww-FM"),
            ("a-/1 b_ c.", "a- b_ c"),
            ("Mozilla/5.0 (compatible; Odd-Bot-/2.0)", "Odd-Bot-"),
        ] {
            assert_eq!(tokens(header), expected, "{header}");
        }
    }

    #[test]
    fn crawlers_in_comments_of_browser_user_agents_are_tokens() {
        for (header, expected) in [
            ("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "Googlebot"),
            ("Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.yahoo.com/help/us/ysearch/slurp)", "Yahoo Slurp"),
            (
                "Mozilla/5.0 (compatible; archive.org_bot +http://archive.org/details/archive.org_bot)",
                "archive.org_bot",
            ),
            ("Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://mj12bot.com/)", "MJ12bot"),
            ("Mozilla/5.0 (compatible; SemrushBot/7~bl; +http://www.semrush.com/bot.html)", "SemrushBot"),
            (
                "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)",
                "GPTBot",
            ),
            (
                "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (KHTML, like Gecko) \
                 Chrome/99.0 Mobile Safari/537.36 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
                "Googlebot",
            ),
            (
                "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15) AppleWebKit/605.1 (KHTML, like Gecko) Version/13.1 \
                 Safari/605.1 (Applebot/0.1; +http://www.apple.com/go/applebot)",
                "Applebot",
            ),
            (
                "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/120.0.0.0 Safari/537.36",
                "HeadlessChrome",
            ),
        ] {
            assert_eq!(tokens(header), expected, "{header}");
        }
    }

    #[test]
    fn browser_user_agents_have_no_token() {
        for header in [
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36",
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:121.0) Gecko/20100101 Firefox/121.0",
            "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)",
            "Mozilla/5.0 (Windows NT 10.0; WOW64; Trident/7.0; rv:11.0) like Gecko",
            "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.0 \
             Mobile/15E148 Safari/604.1",
        ] {
            assert_eq!(tokens(header), "", "{header}");
        }
    }

    #[test]
    fn unusual_user_agents_do_not_panic() {
        for header in ["", " ", "()", "(", ")", "((((", "(compatible;", "/", "//1", "1.0", "\\", "(\\", "a/(b/1"] {
            tokens(header);
        }
        assert!(ProductToken::from_user_agent(b"\xFF\xFE/1 \x00\x01").is_empty());
        let many: String = (0..100).map(|n| format!("bot{n}/1 ")).collect();
        assert_eq!(ProductToken::from_user_agent(many.as_bytes()).len(), ProductToken::MAX_FROM_HEADER);
        assert_eq!(tokens("Foo/1 foo/2 FOO"), "Foo");
    }
}
