//! Our name in Via (RFC 9110 §7.6.3), which detects loops.

use http::Version;

/// The Via values of this process.
pub struct Via {
    pub(super) name: Box<str>,
    /// Values for messages received in HTTP/1.0, HTTP/1.1 and HTTP/2.
    lines: [String; 3],
}

impl Via {
    pub fn new(name: &str) -> Self {
        Via { name: name.into(), lines: ["1.0", "1.1", "2"].map(|version| format!("{version} {name}")) }
    }

    pub fn line(&self, received: Version) -> &str {
        match received {
            Version::HTTP_10 => &self.lines[0],
            Version::HTTP_2 => &self.lines[2],
            _ => &self.lines[1],
        }
    }

    /// Whether a Via line names this instance, among any other proxies.
    pub fn is_in(&self, line: &[u8]) -> bool {
        line.split(|&byte| byte == b',').any(|member| {
            let mut words = member.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            words.nth(1).is_some_and(|name| name.eq_ignore_ascii_case(self.name.as_bytes()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_name_is_found_among_other_members() {
        let via = Via::new("politely-1234abcd");
        for line in [
            via.line(Version::HTTP_11).to_owned(),
            format!("1.0 x, HTTP/2 {} (y)", via.name.to_uppercase()),
            format!("1.1 \u{fc}, 1.1\t{}", via.name),
        ] {
            assert!(via.is_in(line.as_bytes()), "{line}");
        }
        assert!(!via.is_in(b"1.1 politely-0, 1.1 other"));
    }
}
