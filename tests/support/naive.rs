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
        let stronger = best.is_none_or(|(_, other_allows, octets)| {
            pattern.len() > octets || pattern.len() == octets && *allows && !other_allows
        });
        if stronger {
            best = Some((place, *allows, pattern.len()));
        }
    }
    best.map(|(place, allows, _)| (place, allows))
}

/// One octet of a pattern or path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Octet {
    Literal(u8),
    Star,
    End,
}

fn normal(text: &str, is_pattern: bool) -> Vec<Octet> {
    let mut out = Vec::new();
    let octets = text.as_bytes();
    let mut at = 0;
    while at < octets.len() {
        let escape =
            octets.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        let escape = escape.filter(|_| octets[at] == b'%' && octets[at + 1] != b'+');
        let mut escaped = |octet: u8| out.extend(format!("%{octet:02X}").bytes().map(Octet::Literal));
        match (octets[at], escape) {
            (_, Some(octet)) => {
                at += 2;
                if octet.is_ascii_alphanumeric() || b"-._~*$".contains(&octet) {
                    out.push(Octet::Literal(octet));
                } else {
                    escaped(octet);
                }
            }
            (b'*', None) if is_pattern => out.push(Octet::Star),
            (b'$', None) if is_pattern && at + 1 == octets.len() => out.push(Octet::End),
            (octet, None) if octet.is_ascii_graphic() && !b"\"<>`".contains(&octet) => out.push(Octet::Literal(octet)),
            (octet, None) => escaped(octet),
        }
        at += 1;
    }
    out
}

/// Tries every way: row by row, which beginnings of the path can what was read of the pattern match?
fn matches(pattern: &[Octet], path: &[Octet]) -> bool {
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    for octet in pattern {
        let mut next = vec![false; path.len() + 1];
        for at in (0..=path.len()).filter(|&at| reached[at]) {
            match octet {
                Octet::Star => next[at..].fill(true),
                Octet::End => next[at] = at == path.len(),
                literal if path.get(at) == Some(literal) => next[at + 1] = true,
                Octet::Literal(_) => {}
            }
        }
        reached = next;
    }
    reached.contains(&true)
}
