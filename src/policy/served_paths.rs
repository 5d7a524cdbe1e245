//! Which files a path can mean to the servers that get it (`robots.paths`). RFC 9309 compares the path as it is sent; but servers merge
//! slashes, decode `%2F`, then remove dot segments, and serve the file that a rule forbids for a path that no rule matches.
//! A crawler that may fetch `/public/` could thus fetch `/public/..%2Fprivate/`. Hence each form that a common server makes of a path
//! is checked too, and refused if one is disallowed: that only ever adds refusals. So are the ways in which other clients would write
//! it. Pure.

use super::odd_escapes::{is_utf16, without_ill_formed, without_utf16};
use super::respelled;
use crate::robots::path;
use std::iter::once;

/// Which forms of a path are judged: `robots.paths`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "proxy", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Paths {
    /// The path as it is sent, and the forms that common servers make of it.
    #[default]
    AsServed,
    /// The path as it is sent, by RFC 9309 alone.
    AsSent,
}

/// What is said of a target, and of the forms that servers make of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Served<R> {
    /// Nothing.
    Silent,
    /// Of the first for which there is something to say, with that form if it is not the target itself.
    Refused(R, Option<Box<str>>),
    /// There are so many, of such a length, that checking them would cost the sender nothing, and us a lot.
    TooMany,
}

/// One of the forms that are judged.
#[derive(Debug, Clone, Copy)]
pub struct JudgedForm<'a> {
    /// Path and query.
    pub target: &'a [u8],
    /// The kinds of bytes in it that are written as other clients would write them, and not as in the target.
    respelled: u8,
}

impl JudgedForm<'_> {
    /// Whether a pattern that matches it may say something of the request. One that names no byte of a kind has been asked about it
    /// before, as that kind is written in the target, and may have given way to another that does.
    pub fn is_meant_by(&self, pattern: &str) -> bool {
        self.respelled & !respelled::kinds(pattern.as_bytes()) == 0
    }

    /// Whether what allows it has to allow this form too. All that is allowed is written in one way.
    pub fn is_to_be_allowed(&self) -> bool {
        self.respelled == 0
    }
}

/// Asks `refuses` about a target, then about the forms that servers make of it, then about other ways to write these. Nothing is
/// allocated for a path that all servers take as it is, and all clients write alike.
pub fn first_refused<R>(
    target: &[u8],
    paths: Paths,
    mut refuses: impl FnMut(JudgedForm<'_>) -> Option<R>,
) -> Served<R> {
    if let Some(said) = refuses(JudgedForm { target, respelled: 0 }) {
        return Served::Refused(said, None);
    }
    if paths == Paths::AsSent || is_ordinary(target) {
        return Served::Silent;
    }
    let path = path_of(target);
    let query = &target[path.len()..];
    let Some(mut forms) = served_forms(path).filter(|forms| forms.len() * query.len() <= MOST_QUERY_BYTES) else {
        return Served::TooMany;
    };
    let named = |said, form: &[u8]| Served::Refused(said, Some(String::from_utf8_lossy(form).into()));
    for form in &mut forms {
        form.extend_from_slice(query);
        if let Some(said) = refuses(JudgedForm { target: form, respelled: 0 }) {
            return named(said, form);
        }
    }
    let mut left = MOST_RESPELLED_BYTES;
    for form in once(target).chain(forms.iter().map(Vec::as_slice)) {
        for (other, respelled) in respelled::respelled(form, respelled::kinds(form)) {
            let Some(rest) = left.checked_sub(other.len()) else { return Served::TooMany };
            left = rest;
            if let Some(said) = refuses(JudgedForm { target: &other, respelled }) {
                return named(said, &other);
            }
        }
    }
    Served::Silent
}

/// Whether one look at each byte shows that all servers take a target as it is, and all clients write it alike.
fn is_ordinary(target: &[u8]) -> bool {
    let (mut before, mut found) = (0, 0);
    for &byte in target {
        let kind = LOOKS[usize::from(byte)];
        found |= kind & (SPECIAL | before);
        before = kind;
    }
    found == 0
}

/// The paths that servers make of one, but for itself; none if all take it as it is. `None`: there are too many.
fn served_forms(path: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut forms = Forms { seen: Vec::new(), escaped_backslash: b'\\', left: MOST_BYTES };
    if is_plain(path) {
        return Some(forms.seen);
    }
    let decoded = [without_utf16(path), without_ill_formed(path)];
    for path in once(path).chain(decoded.iter().flatten().map(Vec::as_slice)) {
        // Node takes `\` for `/`, servers on Windows `%5C` too, others neither.
        let (raw, escaped) = (memchr::memchr(b'\\', path).is_some(), holds_escaped_backslash(path));
        for (raw, escaped, differs) in [(b'/', b'/', true), (b'/', b'\\', escaped), (b'\\', b'\\', raw)] {
            forms.escaped_backslash = escaped;
            if differs {
                forms.add_all(path, raw)?;
            }
        }
    }
    Some(forms.seen)
}

/// Whether all servers take a path as it is, dot segments apart, which the rules themselves resolve.
fn is_plain(target: &[u8]) -> bool {
    let path = path_of(target);
    let (mut before, mut kinds) = (0, 0);
    for &byte in path {
        kinds |= KINDS[usize::from(byte)] | u8::from(byte == b'/' && before == b'/');
        before = byte;
    }
    if kinds & !(ESCAPE | FOREIGN) != 0 {
        return !matches!(path.first(), Some(b'/' | b'\\'));
    }
    // The rules themselves take these for what they stand for.
    let is_known = |byte| path::is_unreserved(byte) || matches!(byte, b'*' | b'$');
    let is_plain = |at: usize| !is_utf16(&path[at..]) && served(&path[at..]).is_none_or(is_known);
    kinds == 0 || memchr::memchr_iter(b'%', path).all(is_plain) && without_ill_formed(path).is_none()
}

/// The path of a target that servers may take in several ways.
struct Forms {
    seen: Vec<Vec<u8>>,
    /// What `%5C` stands for.
    escaped_backslash: u8,
    /// Bytes of forms that may still be made.
    left: usize,
}

impl Forms {
    /// `None`, here and below: there are too many.
    fn add_all(&mut self, path: &[u8], backslash: u8) -> Option<()> {
        let slashed: Vec<u8> = path.iter().map(|&byte| if byte == b'\\' { backslash } else { byte }).collect();
        // Go has no fragments in requests, others cut them off.
        if let Some(hash) = memchr::memchr(b'#', &slashed) {
            self.add_hosted(&slashed[..hash])?;
        }
        self.add_hosted(&replace(&slashed, b'#', b"%23"))
    }

    /// To a URL parser (`new URL(target, base)` in Node) what follows two slashes is a host.
    fn add_hosted(&mut self, path: &[u8]) -> Option<()> {
        self.add_with_parameters(path)?;
        if let Some(rest) = path.strip_prefix(b"//") {
            let host = rest.iter().position(|&byte| byte != b'/').unwrap_or(rest.len());
            let end = memchr::memchr(b'/', &rest[host..]).map_or(rest.len(), |slash| host + slash);
            self.add_with_parameters(if end < rest.len() { &rest[end..] } else { b"/" })?;
        }
        Some(())
    }

    /// Tomcat and Jetty leave out of each segment what follows a `;`, before they look at anything else.
    fn add_with_parameters(&mut self, path: &[u8]) -> Option<()> {
        self.add_resolved(path)?;
        if memchr::memchr(b';', path).is_some() {
            let bare = |segment: &[u8]| segment.split(|&byte| byte == b';').next().unwrap_or_default().to_vec();
            self.add_resolved(&path.split(|&byte| byte == b'/').map(bare).collect::<Vec<_>>().join(&b'/'))?;
        }
        Some(())
    }

    /// Dot segments go before escapes are decoded, or after; and then before slashes are merged, or after.
    fn add_resolved(&mut self, path: &[u8]) -> Option<()> {
        self.left = self.left.checked_sub(4 * path.len())?;
        let normal = path::normalise(path);
        for path in [without_dots(&normal), normal] {
            let decoded = decoded(&path, self.escaped_backslash);
            self.add(merged(&without_dots(&decoded)));
            self.add(without_dots(&merged(&decoded)));
        }
        Some(())
    }

    fn add(&mut self, form: Vec<u8>) {
        if !self.seen.contains(&form) {
            self.seen.push(form);
        }
    }
}

const ESCAPE: u8 = 2;
const FOREIGN: u8 = 8;
/// As many forms as there can be of a path of 680 bytes, or as a single server makes of one of 8 KiB.
const MOST_BYTES: usize = 64 << 10;
/// Of the query, which is judged with each form: of the longest, sixteen times.
const MOST_QUERY_BYTES: usize = 1 << 20;
/// Of other ways to write these: all four of the longest target, whatever of it is escaped.
const MOST_RESPELLED_BYTES: usize = 1 << 20;

fn holds_escaped_backslash(path: &[u8]) -> bool {
    memchr::memchr_iter(b'%', path).any(|at| served(&path[at..]) == Some(b'\\'))
}

/// Bytes on which servers differ.
const KINDS: [u8; 256] = {
    let mut kinds = [0; 256];
    kinds[b'%' as usize] = ESCAPE;
    kinds[b';' as usize] = 4;
    kinds[b'\\' as usize] = 4;
    kinds[b'#' as usize] = 4;
    let mut byte = 0x80;
    while byte < 256 {
        kinds[byte] = FOREIGN;
        byte += 1;
    }
    kinds
};

/// What [`is_ordinary`] looks for: bytes of a kind, and a slash behind another.
const LOOKS: [u8; 256] = {
    let mut looks = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        looks[byte] = if KINDS[byte] | respelled::KINDS[byte] == 0 { 0 } else { SPECIAL };
        byte += 1;
    }
    looks[b'/' as usize] = SLASH;
    looks
};
const SPECIAL: u8 = 1;
const SLASH: u8 = 2;

fn path_of(target: &[u8]) -> &[u8] {
    &target[..memchr::memchr(b'?', target).unwrap_or(target.len())]
}

/// What servers take the escape for that a text begins with; `None` if they leave it, or it is none. Decoding `%25`, `%3F`
/// and `%23` would make an escape, a query or a fragment of what is none, and what no path holds is compared escaped.
fn served(text: &[u8]) -> Option<u8> {
    match path::escape(text)? {
        b'%' | b'?' | b'#' | b'"' | b'<' | b'>' | b'`' => None,
        byte => byte.is_ascii_graphic().then_some(byte),
    }
}

fn decoded(path: &[u8], backslash: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, after @ ..] = rest {
        (rest, _) = match served(rest) {
            Some(b'\\') => (&rest[3..], out.push(backslash)),
            Some(byte) => (&rest[3..], out.push(byte)),
            None => (after, out.push(*first)),
        };
    }
    out
}

fn merged(path: &[u8]) -> Vec<u8> {
    let mut out = path.to_vec();
    out.dedup_by(|a, b| (*a, *b) == (b'/', b'/'));
    out
}

fn without_dots(path: &[u8]) -> Vec<u8> {
    path::without_dot_segments(path).unwrap_or_else(|| path.to_vec())
}

fn replace(text: &[u8], what: u8, with: &[u8]) -> Vec<u8> {
    text.split(|&byte| byte == what).collect::<Vec<_>>().join(with)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::robots::RobotsTxt;

    /// One a line; the tests against real servers send the same.
    const SPELLINGS: &str = include_str!("../../tests/support/path_spellings.txt");

    /// What some servers beside those take for `/private/x`.
    const MORE: &[&str] = &[
        // Node: `new URL(target, base)`.
        "//host/private/x",
        "///host/private/x",
        "/\\host/private/x",
        "/private\\x",
        "/public\\..\\private\\x",
        // Windows.
        "/public/..%5Cprivate%5cx",
        // Elsewhere a backslash is a letter like others.
        "/public;x%5cpublic%2F..%2Fprivate/x",
        "/.%2e/./public\\public/.%2e/private%2Fx",
        // Tomcat, Jetty.
        "/private;a=b/x",
        "/;/private/x",
        "/public/..;/private/x",
        "/public/..;a=b/private;c/x;d",
        // Caddy: no fragment is known there.
        "/public/#/../../private/x",
        "/private%2fx#y",
        // Slashes are merged before dot segments go, or after; segments above the root are none.
        "/public//../../private/x",
        "/public%2f..%2f%2f..%2fprivate/x",
        "/x/..//private/x",
        "/x//../..//private/x",
        "/%2f../private/x",
        "/private%2fz/../x",
        "/q%2fw%2fe/../..%2fprivate/x",
        // Bottle.
        "/%ffprivate/x",
        "/pri%80vate/x",
        "/%c0%afprivate/x",
        "/a/.%e4%bd./private/x",
        "//private%80%2Fx",
        // Node: `unescape`; IIS.
        "/private%u002fx",
        "/%u0070rivate/x",
        "/a/%u002e%U002E%u002Fprivate/x",
    ];

    fn refused(rules: &str, target: &str) -> Option<String> {
        let everyone: [&str; 0] = [];
        let rules = RobotsTxt::parse(format!("User-agent: *\n{rules}").as_bytes()).rules_for(&everyone);
        let refuses = |form: JudgedForm<'_>| {
            let verdict = rules.check_bytes(form.target);
            let pattern = verdict.rule().map_or("", |rule| rule.pattern());
            (!verdict.is_allowed() && form.is_meant_by(pattern)).then_some(())
        };
        match first_refused(target.as_bytes(), Paths::AsServed, refuses) {
            Served::Refused((), form) => Some(form.map_or(target.to_owned(), String::from)),
            Served::Silent => None,
            Served::TooMany => panic!("{target}"),
        }
    }

    #[test]
    fn no_spelling_of_a_disallowed_path_is_let_through() {
        let spellings: Vec<&str> =
            SPELLINGS.lines().filter(|line| line.starts_with('/')).chain(MORE.iter().copied()).collect();
        assert!(spellings.len() >= 60);
        for target in spellings {
            for rule in ["/private/x", "/private/", "/private"] {
                assert!(refused(&format!("Disallow: {rule}"), target).is_some(), "{target} by {rule}");
            }
        }
    }

    #[test]
    fn the_form_that_was_meant_is_named() {
        for (target, form) in [
            ("//private/x?q", "/private/x?q"),
            ("/a%2F..//private%2fx", "/private/x"),
            ("/a/..;b=c/private;d/x", "/private/x"),
            ("//host/private/x", "/private/x"),
            ("/private%2Fa%3Fb", "/private/a%3Fb"),
        ] {
            assert_eq!(refused("Disallow: /private/", target).as_deref(), Some(form), "{target}");
        }
        assert_eq!(refused("Disallow: /wiki/Special:", "/wiki/Special%3Aa").as_deref(), Some("/wiki/Special:a"));
    }

    #[test]
    fn what_no_server_takes_for_a_disallowed_path_is_let_through() {
        for target in [
            "/",
            "/privately/x",
            "/public/private/x",
            "/public//private/x",
            "/public%2fprivate/x",
            "/public;/private/x",
            "/public?/../private/x",
            "/public?a=//private/x",
            "/%2570rivate/x",
            "/public/..%252fprivate/x",
            "/private%3fx",
            "/PRIVATE/x",
            "/private%c3%bc/x",
            "/private%u00fc/x",
            "/private%u00/x",
        ] {
            assert_eq!(refused("Disallow: /private/", target), None, "{target}");
        }
    }

    #[test]
    fn paths_that_all_servers_take_as_they_are_have_one_form() {
        for target in [
            "/",
            "/a/b.html?c=//d;e",
            "/a/../b",
            "/%7Ejoe/%61",
            "/%E4%BD%A0%20%C3%BC",
            "/100%",
            "/a%zz%2",
            "/%3Fa%23%25",
            "/\u{e4}%C3%A4",
            "/%u00",
            "",
            "*",
            "?a;b",
        ] {
            assert!(is_plain(target.as_bytes()), "{target}");
        }
        for target in
            ["//a", "/a//b", "/a;b", "/a%2fb", "/a%5Cb", "/a\\b", "/a#b", "/a%3Bb", "/a%2e%2f", "/a%80", "/a%u0061"]
        {
            assert!(!is_plain(target.as_bytes()), "{target}");
        }
    }

    #[test]
    fn what_is_ordinary_has_one_form_and_is_written_in_one_way() {
        for target in ["/", "/a/b.html?c=d&e=f+g~h$i*j_k-l", "", "*", "?a"] {
            assert!(is_ordinary(target.as_bytes()), "{target}");
        }
        for byte in 0..=u8::MAX {
            for text in [&[b'/', byte][..], &[b'/', b'a', byte, b'b', b'/'], &[b'/', b'?', byte], &[b'a', byte]] {
                let is_one = served_forms(path_of(text)).is_some_and(|forms| forms.is_empty());
                assert!(!is_ordinary(text) || is_one && respelled::kinds(text) == 0, "{text:?}");
            }
        }
    }

    #[test]
    fn a_rule_meets_a_request_however_either_escapes_what_clients_write_in_two_ways() {
        for (rules, targets) in [
            ("/*?raw[", &["/l?raw[0]=1", "/l?raw%5B0%5D=1", "/l?raw%5b0]=1"][..]),
            ("/*?f%5B", &["/l?f[0]=1", "/l?f%5B0%5D=1", "/l?f%5b0]=1"]),
            ("/*?f%5Bx%5D=a:b", &["/l?f[x]=a:b", "/l?f%5Bx%5D=a%3Ab", "/l?f[x]=a%3ab"]),
            ("/*?p|", &["/l?p|", "/l?p%7C", "/l?p%7c"]),
            ("/*?u=http:", &["/l?u=http:", "/l?u=http%3A//x"]),
            ("/pipe%7Cd", &["/pipe|d", "/pipe%7cd", "//pipe|d", "/a/..%2Fpipe%7Cd", "/./pipe|d"]),
            ("/cur{ly}", &["/cur{ly}", "/cur%7Bly%7D", "/cur%7bly}"]),
            ("/wiki/Special%3ARandom", &["/wiki/Special:Random", "/wiki/Special%3aRandom", "/wiki//Special:Random"]),
            ("/wiki/Special:Random", &["/wiki/Special:Random", "/wiki/Special%3ARandom"]),
            ("/a%5Eb%2C%3B%40%21%27%28%29", &["/a^b,;@!'()", "/a^b%2C%3B%40!'()", "/a%5eb,;@!'()x"]),
            ("/x^y$", &["/x%5Ey"]),
        ] {
            for target in targets {
                assert!(refused(&format!("Disallow: {rules}"), target).is_some(), "{target} by {rules}");
            }
        }
    }

    #[test]
    fn another_way_to_write_a_target_is_not_refused_by_what_says_nothing_of_it() {
        for (rules, target) in [
            ("Disallow: /\nAllow: /@me", "/@me"),
            ("Disallow: /wiki/\nAllow: /wiki/Talk:", "/wiki/Talk:x?a,b"),
            ("Disallow: /*?\nAllow: /*?f[", "/l?f[0]=(1)"),
            ("Disallow: /*%", "/a:b"),
            ("Disallow: /*7C", "/a|b"),
            ("Disallow: /*?c=d+&", "/a?c=d%2B%26"),
            ("Disallow: /*?u=/", "/l?u=%2F"),
            ("Disallow: /*?f%5B\nAllow: /*?f%5B0%5D=brand:", "/l?f%5B0%5D=brand:x"),
            ("Disallow: /*?f%5B\nAllow: /*?f%5B0%5D=brand:", "/l?f[0]=brand:x"),
            ("Disallow: /search;\nAllow: /search;v={", "/search;v={1}"),
            ("Disallow: /@\nAllow: /@x[", "/@x[1]"),
            ("Disallow: /search/", "/%EA%E0%F2/search/1"),
            ("Disallow: /\nAllow: /%A5%D8/", "/%A5%D8/x"),
        ] {
            assert_eq!(refused(rules, target), None, "{target} by {rules}");
        }
    }

    #[test]
    fn as_sent_judges_no_other_form() {
        let refuses = |form: JudgedForm<'_>| (form.target != b"//private/x").then_some(());
        assert_eq!(first_refused(b"//private/x", Paths::AsSent, refuses), Served::Silent);
    }

    /// How many forms there are, and of how many bytes, where all of them are judged.
    fn judged(target: &str) -> Option<(usize, usize)> {
        let (mut forms, mut bytes) = (0, 0);
        let refuses = |form: JudgedForm<'_>| {
            if form.target != target.as_bytes() {
                (forms, bytes) = (forms + 1, bytes + form.target.len());
            }
            None::<()>
        };
        (first_refused(target.as_bytes(), Paths::AsServed, refuses) == Served::Silent).then_some((forms, bytes))
    }

    #[test]
    fn what_a_path_costs_is_bounded() {
        let hostile = |length| {
            let piece = r"//h\a%5Cb/..;c%2F//./%2e%2e/d#e";
            piece.chars().cycle().take(length).collect::<String>()
        };
        assert!(judged(&hostile(600)).is_some_and(|(forms, bytes)| forms > 30 && bytes <= MOST_BYTES));
        assert_eq!(judged(&hostile(8000)), None);
        // It is a query's own affair how long it is,
        let query = "q".repeat(60 << 10);
        assert!(judged(&format!("//a%2Fb;c?{query}")).is_some_and(|(forms, _)| (2..=16).contains(&forms)));
        // unless it comes with as many forms as can be.
        assert_eq!(judged(&format!("{}?{query}", hostile(60))), None);
        // However else it could be written.
        let written = "[%3a".repeat(15 << 10);
        assert!(
            judged(&format!("/a?{written}")).is_some_and(|(forms, bytes)| forms == 4 && bytes < MOST_RESPELLED_BYTES)
        );
        assert_eq!(judged(&format!("{}?{written}", hostile(60))), None);
        // What is long in earnest: a URL within a path, parameters, and merged slashes.
        let long = format!("/web/https:%2F%2Fa.example//{};s=1/x", "a%2Fb-".repeat(1300));
        assert!(judged(&long).is_some_and(|(forms, _)| (2..=8).contains(&forms)));
    }
}
