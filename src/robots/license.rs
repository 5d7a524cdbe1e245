//! RSL 1.0: checks the value of a `License` line of robots.txt. Pure.

use url::Url;

/// Whether the value of a `License` line is an absolute URL, as RSL 1.0 requires.
pub fn is_license_url(value: &str) -> bool {
    value.len() <= LONGEST && Url::parse(value).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
}

/// Longest accepted URL, in bytes.
const LONGEST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_licence_of_robots_txt_is_an_absolute_url() {
        assert!(is_license_url("https://a.example/license.xml"));
        for value in ["", "/license.xml", "license.xml", "ftp://a.example/l", "https://"] {
            assert!(!is_license_url(value), "{value}");
        }
    }
}
