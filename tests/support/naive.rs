//! RFC 9309 §2.2.2 word by word, as slow and as plain as can be: what the compiled rules are compared with.

/// A rule of a group: whether it allows, and its pattern as written.
pub type Rule = (bool, String);

/// The rule that decides about a path and query: its place among the rules, and whether it allows.
pub fn decide(rules: &[Rule], path: &str) -> Option<(usize, bool)> {
    let path = normal(path, false);
    let mut best: Option<(usize, bool, usize)> = None;
    for (place, (allows, pattern)) in rules.iter().enumerate() {
        let pattern = normal(pattern, true);
        if pattern.is_empty() || !matches(&pattern, &path) {
            continue;
        }
        let stronger = best.is_none_or(|(_, other_allows, bytes)| {
            pattern.len() > bytes || pattern.len() == bytes && *allows && !other_allows
        });
        if stronger {
            best = Some((place, *allows, pattern.len()));
        }
    }
    best.map(|(place, allows, _)| (place, allows))
}

/// One byte of a pattern or path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Byte {
    Literal(u8),
    Star,
    End,
}

fn normal(text: &str, is_pattern: bool) -> Vec<Byte> {
    let mut out = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let escape =
            bytes.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        let escape = escape.filter(|_| bytes[at] == b'%' && bytes[at + 1] != b'+');
        let mut escaped = |byte: u8| out.extend(format!("%{byte:02X}").bytes().map(Byte::Literal));
        match (bytes[at], escape) {
            (_, Some(byte)) => {
                at += 2;
                if byte.is_ascii_alphanumeric() || b"-._~*$".contains(&byte) {
                    out.push(Byte::Literal(byte));
                } else {
                    escaped(byte);
                }
            }
            (b'*', None) if is_pattern => out.push(Byte::Star),
            (b'$', None) if is_pattern && at + 1 == bytes.len() => out.push(Byte::End),
            (byte, None) if byte.is_ascii_graphic() && !b"\"<>`".contains(&byte) => out.push(Byte::Literal(byte)),
            (byte, None) => escaped(byte),
        }
        at += 1;
    }
    out
}

/// Matches by dynamic programming: for each prefix of the pattern, the prefixes of the path that it can match.
fn matches(pattern: &[Byte], path: &[Byte]) -> bool {
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    for byte in pattern {
        let mut next = vec![false; path.len() + 1];
        for at in (0..=path.len()).filter(|&at| reached[at]) {
            match byte {
                Byte::Star => next[at..].fill(true),
                Byte::End => next[at] = at == path.len(),
                literal if path.get(at) == Some(literal) => next[at + 1] = true,
                Byte::Literal(_) => {}
            }
        }
        reached = next;
    }
    reached.contains(&true)
}
