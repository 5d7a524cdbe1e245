//! RFC 9309 §2.3: where the robots.txt of a URL is. Pure.

use url::Url;

/// The address of the robots.txt that governs `url`: `https://u:p@example.com/a?b` gives `https://example.com/robots.txt`.
/// Credentials, query and fragment are left out; a port other than the scheme's default is kept.
pub fn robots_url(url: &str) -> Result<String, UrlError> {
    let mut url = Url::parse(url)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(UrlError::Scheme(url.scheme().to_owned()));
    }
    // Cannot fail: http and https URLs always have a host and may have credentials.
    url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| UrlError::NoHost)?;
    url.set_path("/robots.txt");
    url.set_query(None);
    url.set_fragment(None);
    Ok(url.into())
}

/// Whether this is where the terms of use are: the value of a `License` line of robots.txt, which is an absolute URL (RSL 1.0).
pub fn is_license_url(value: &str) -> bool {
    value.len() <= LONGEST && Url::parse(value).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
}

/// Bytes of a URL.
const LONGEST: usize = 4096;

/// Why a URL has no robots.txt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("not an absolute URL: {0}")]
    Invalid(#[from] url::ParseError),
    #[error("scheme `{0}` has no robots.txt, only http and https have")]
    Scheme(String),
    #[error("the URL names no host")]
    NoHost,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn robots_txt_is_at_the_root_of_the_authority() {
        for (url, expected) in [
            ("https://u:p@example.com/a?b", "https://example.com/robots.txt"),
            ("http://example.com", "http://example.com/robots.txt"),
            ("HTTP://EXAMPLE.com:80/x#y", "http://example.com/robots.txt"),
            ("https://example.com:8443/x", "https://example.com:8443/robots.txt"),
            ("https://user@[2001:db8::1]/", "https://[2001:db8::1]/robots.txt"),
            ("https://b\u{fc}cher.example/", "https://xn--bcher-kva.example/robots.txt"),
        ] {
            assert_eq!(robots_url(url).as_deref(), Ok(expected), "{url}");
        }
    }

    #[test]
    fn urls_without_an_http_authority_are_errors() {
        for url in ["data:text/plain,x", "mailto:a@example.com", "ftp://example.com/x", "file:///etc/hosts"] {
            assert!(matches!(robots_url(url), Err(UrlError::Scheme(_))), "{url}");
        }
        for url in ["", "/path", "example.com/x", "http://", "https://[::1"] {
            assert!(matches!(robots_url(url), Err(UrlError::Invalid(_))), "{url}");
        }
    }

    #[test]
    fn a_licence_of_robots_txt_is_an_absolute_url() {
        assert!(is_license_url("https://a.example/license.xml"));
        for value in ["", "/license.xml", "license.xml", "ftp://a.example/l", "https://"] {
            assert!(!is_license_url(value), "{value}");
        }
    }
}
