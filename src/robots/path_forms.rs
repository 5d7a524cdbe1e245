//! The forms of a path (`robots.paths`): the paths that servers make of it, and the spellings that clients give it.
//!
//! RFC 9309 compares the path as sent. But servers merge slashes, decode `%2F` and then remove dot segments, so that they serve a forbidden
//! file for a path that no rule matches: `/public/..%2Fprivate/`. Therefore the forms that servers make are judged too, and the request is
//! refused if one of them is disallowed. This can only add refusals. `docs/conformance.md` has the table of forms. At most seven different
//! forms are judged, including the path as sent; a path with more forms is refused. Forms that arise from several servers in a row are not
//! covered. Pure.

use std::borrow::Cow;

use super::budget::{StepBudget, StepsSpent};
use super::byte_set::ByteSet;
use super::fold::{fold, has_folded, is_folded, is_folded_in_path};
use super::path::{
    self, ComparedPath, escape, may_have_dot_segment, normalise, parts, path_and_query, rewritten, without_dot_segments,
};
use smallvec::SmallVec;

/// The forms of a path that are judged: `robots.paths`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "proxy", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Paths {
    /// The path as it is sent, and the forms that common servers make of it.
    #[default]
    AsServed,
    /// The path as it is sent, by RFC 9309 alone.
    AsSent,
}

/// The path of one decision, its forms, and the budget of steps shared by all rules that judge it.
pub(crate) struct JudgedPath<'a> {
    target: &'a [u8],
    paths: Paths,
    /// The path as sent, computed on first use, like `forms`.
    sent: Option<SentPaths<'a>>,
    forms: Option<Forms>,
    pub budget: StepBudget,
}

impl<'a> JudgedPath<'a> {
    /// Creates a path to judge, with a full budget. `target`: path and query as sent.
    pub fn new(target: &'a [u8], paths: Paths) -> Self {
        JudgedPath { target, paths, sent: None, forms: None, budget: StepBudget::new() }
    }

    /// Calls `refuses` with the path as sent, with the path without its dot segments, and with each form that servers make of it. Returns
    /// the first refusal and, if a form that servers make is refused, this form. Allocates nothing for a path that all servers leave
    /// unchanged and all clients spell the same way.
    #[inline]
    pub fn first_refused<R>(
        &mut self,
        mut refuses: impl FnMut(ComparedPath<'_>, &mut StepBudget) -> Result<Option<R>, StepsSpent>,
    ) -> Result<Option<FirstRefusal<R>>, StepsSpent> {
        let Self { target, paths, sent, forms, budget } = self;
        let sent = match sent {
            Some(sent) => sent,
            None => sent.insert(sent_paths(target, budget)?),
        };
        for (bytes, byte_set) in &*sent {
            budget.spend_on_bytes(bytes.len())?;
            let path = ComparedPath { bytes, byte_set: *byte_set, is_folded: false };
            if let Some(said) = refuses(path, budget)? {
                return Ok(Some((said, None)));
            }
        }
        if *paths == Paths::AsSent {
            return Ok(None);
        }
        let forms = match forms {
            Some(forms) => forms,
            None => forms.insert(served_forms(target, sent, budget)?),
        };
        for form in forms {
            budget.spend_on_bytes(form.len())?;
            let path = ComparedPath { bytes: form, byte_set: ByteSet::of(form), is_folded: true };
            if let Some(said) = refuses(path, budget)? {
                return Ok(Some((said, Some(String::from_utf8_lossy(form).into()))));
            }
        }
        Ok(None)
    }
}

/// The value that `refuses` returned and, if it refused a form that servers make, this form.
type FirstRefusal<R> = (R, Option<Box<str>>);

/// The path and query of a target as RFC 9309 compares them; then, if there are dot segments, the path without them.
type SentPaths<'a> = SmallVec<[(Cow<'a, [u8]>, ByteSet); 2]>;

#[inline]
fn sent_paths<'a>(target: &'a [u8], budget: &mut StepBudget) -> Result<SentPaths<'a>, StepsSpent> {
    let mut path = path_and_query(target);
    let mut byte_set = ByteSet::of(&path);
    if byte_set.has_odd() {
        budget.spend(NORMALISED * path.len())?;
        path = normalise(&path).into();
        byte_set = ByteSet::of(&path);
    }
    let mut resolved = None;
    if byte_set.has_dot() && may_have_dot_segment(&path) {
        budget.spend(RESOLVED * parts(&path).0.len())?;
        resolved = without_dot_segments(&path).map(|path| (ByteSet::of(&path), path));
    }
    let mut sent = SentPaths::new();
    sent.push((path, byte_set));
    sent.extend(resolved.map(|(byte_set, path)| (path.into(), byte_set)));
    Ok(sent)
}

/// The forms that servers make of a path with its query, without duplicates and without forms that compare like the path as sent.
type Forms = SmallVec<[Vec<u8>; MOST_FORMS]>;
/// Maximum number of forms of a path that are judged, including the path as sent and the path without dot segments.
const MOST_FORMS: usize = 7;
/// The change that one kind of server makes to a path before it decodes escapes. Takes the path as sent and the normalised path; returns a
/// normalised path.
type Prepare = fn(&[u8], &[u8]) -> Vec<u8>;

/// Costs in steps for each byte of a path: to normalise it, and (`RESOLVED`) to remove dot segments.
const NORMALISED: usize = 3;
const RESOLVED: usize = 4;
/// Costs in steps of making forms: for each byte of the path, counted for each form; and for each byte of the query, counted once for all
/// forms.
const FORMED: (usize, usize) = (5, 4);
/// Cost in steps, for each byte of a path, of making the variant of a form in which slashes stay escaped.
const SLASHES_KEPT: usize = 2;

/// Makes the forms of a target. Fails if the budget is spent, or if there are more than [`MOST_FORMS`] forms.
fn served_forms(target: &[u8], sent: &SentPaths<'_>, budget: &mut StepBudget) -> Result<Forms, StepsSpent> {
    budget.spend_on_bytes(target.len())?;
    if is_ordinary(target) {
        return Ok(Forms::new());
    }
    let (path, query) = parts(target);
    budget.spend(NORMALISED * path.len() + FORMED.1 * query.len())?;
    let query = normalise(&query[..memchr::memchr(b'#', query).unwrap_or(query.len())]);
    let normal = normalise(path);
    let query = fold(&query, 0);
    let mut forms = Forms::new();
    let has_dots = may_have_dot_segment(&normal);
    let has = |one: u8, other: u8| memchr::memchr2(one, other, &normal).is_some();
    let mut add = |form: Vec<u8>| {
        let form = [&form, &*query].concat();
        let is_judged = sent.iter().any(|(path, _)| **path == *form) && !has_folded(&form);
        if !is_judged && !forms.contains(&form) {
            forms.push(form);
        }
    };
    // The form of nginx, then of each kind of server that may make another form of this path.
    let kinds: [(bool, Prepare); 3] = [
        (true, |_, normal| normal.to_vec()),
        (has_dots || path.starts_with(b"//") || has(b'\\', b'#'), |path, _| node(path)),
        (has(b';', b';'), |_, normal| tomcat(normal)),
    ];
    for (_, prepare) in kinds.into_iter().filter(|(is_another, _)| *is_another) {
        budget.spend(FORMED.0 * path.len())?;
        let prepared = prepare(path, &normal);
        add(cleaned(&prepared));
        if memchr::memmem::find(&prepared, b"%2F").is_some() {
            budget.spend(SLASHES_KEPT * path.len())?;
            add(with_slashes_kept(&prepared));
        }
    }
    if has_dots || has(b'%', b'\\') {
        budget.spend(FORMED.0 * path.len())?;
        add(iis(path));
    }
    if sent.len() + forms.len() > MOST_FORMS { Err(StepsSpent) } else { Ok(forms) }
}

/// The form of nginx, Apache, lighttpd, Caddy, Go, PHP, Python: escapes decoded, slashes merged, dot segments removed. Takes a normalised
/// path.
fn cleaned(normal: &[u8]) -> Vec<u8> {
    without_dots(merged(decoded(normal, b"/", b'\\')))
}

/// The form of Apache with `AllowEncodedSlashes NoDecode`, Tomcat with `encodedSolidusHandling="passthrough"` and many Node programs, which
/// keep `%2F`, as patterns do.
fn with_slashes_kept(normal: &[u8]) -> Vec<u8> {
    without_dots(merged(decoded(normal, b"%2F", b'\\')))
}

/// The path that Node and Deno get from `new URL(target, base)`: `\` becomes `/`; a host after two leading slashes, the fragment, and dot
/// segments are removed. Programs then treat this path as nginx does.
fn node(path: &[u8]) -> Vec<u8> {
    let path = &path[..memchr::memchr(b'#', path).unwrap_or(path.len())];
    let mut path = rewritten(path, |rest, out| rest.starts_with(b"\\").then(|| out.push(b'/')).map(|()| 1));
    if path.starts_with(b"//") {
        let host = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
        path = memchr::memchr(b'/', &path[host..]).map_or(b"/".to_vec(), |end| path[host + end..].to_vec());
    }
    without_dots(normalise(&path))
}

/// Drops the part of each segment from a `;` on, as Tomcat and Jetty do before they continue as nginx does.
fn tomcat(normal: &[u8]) -> Vec<u8> {
    let mut is_parameter = false;
    let bare = normal.iter().copied().filter(|&byte| {
        is_parameter = byte != b'/' && (is_parameter || byte == b';');
        !is_parameter
    });
    bare.collect()
}

/// The form of IIS: `%uXXXX` decoded, `\` and `%5C` turned into `/`, slashes merged last. Bytes that are not UTF-8 are dropped, as Bottle
/// does.
fn iis(path: &[u8]) -> Vec<u8> {
    let whole = without_ill_formed(&without_utf16(path));
    merged(without_dots(decoded(&normalise(&whole), b"/", b'/')))
}

/// A normalised path with its escapes decoded. `slash`: the replacement for an escaped slash; `backslash`: the replacement for a backslash.
fn decoded(path: &[u8], slash: &[u8], backslash: u8) -> Vec<u8> {
    rewritten(path, |rest, out| {
        let (byte, read) = served(rest).map_or((rest[0], 1), |byte| (byte, 3));
        match byte {
            b'/' if read > 1 => out.extend_from_slice(slash),
            b'\\' => out.push(backslash),
            // A `#` is part of the path, as Go does not parse fragments in requests. It is escaped, as in normalised patterns.
            b'#' => out.extend_from_slice(b"%23"),
            byte => out.push(byte),
        }
        Some(read)
    })
}

/// The byte to which servers decode the escape at the start of a text. `None`: there is no escape, or servers keep it. `%25`, `%3F` and
/// `%23` are kept: decoded, they would begin an escape, a query or a fragment. Bytes that no path may contain are compared escaped.
fn served(text: &[u8]) -> Option<u8> {
    match escape(text)? {
        b'%' | b'?' | b'#' | b'"' | b'<' | b'>' | b'`' => None,
        byte => byte.is_ascii_graphic().then_some(byte),
    }
}

fn merged(mut path: Vec<u8>) -> Vec<u8> {
    path.dedup_by(|a, b| (*a, *b) == (b'/', b'/'));
    path
}

fn without_dots(path: Vec<u8>) -> Vec<u8> {
    without_dot_segments(&path).unwrap_or(path)
}

/// A path with `%uXXXX` (IIS, `unescape` of JavaScript) written as ordinary escapes. Escapes of surrogates are not changed.
fn without_utf16(path: &[u8]) -> Vec<u8> {
    rewritten(path, |rest, out| {
        let &[b'%', b'u' | b'U', a, b, c, d, ..] = rest else { return None };
        let (high, low) = (escape(&[b'%', a, b])?, escape(&[b'%', c, d])?);
        let char = char::from_u32(u32::from(high) << 8 | u32::from(low))?;
        char.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| path::push_escaped(byte, out));
        Some(6)
    })
}

/// A path without the bytes, escaped or not, that are not UTF-8 (Bottle). If a segment consists of such bytes only, the path is probably in
/// another encoding, and all its bytes are kept.
fn without_ill_formed(path: &[u8]) -> Vec<u8> {
    let bytes = rewritten(path, |rest, out| {
        out.push(escape(rest).filter(|byte| !byte.is_ascii())?);
        Some(3)
    });
    if str::from_utf8(&bytes).is_ok() {
        return bytes;
    }
    let whole: Vec<u8> = bytes.utf8_chunks().flat_map(|chunk| chunk.valid().bytes()).collect();
    let segments = |path| <[u8]>::split(path, |&byte| byte == b'/').map(<[u8]>::is_empty);
    if segments(&whole).eq(segments(&bytes)) { whole } else { bytes }
}

/// Whether servers and clients make no other form of a target than the path as sent, with or without dot segments. Reads each byte once.
fn is_ordinary(target: &[u8]) -> bool {
    let (path, query) = parts(target);
    let (mut before, mut found) = (0, 0);
    for &byte in path {
        let kind = LOOKS[usize::from(byte)];
        found |= kind & (SPECIAL | SPECIAL_IN_PATH | before);
        before = kind & SLASH;
    }
    found == 0 && query.iter().all(|&byte| LOOKS[usize::from(byte)] & SPECIAL == 0)
}

/// Classes of bytes for [`is_ordinary`]: bytes that servers or clients treat in several ways, and slashes, as servers merge runs of
/// slashes.
const LOOKS: [u8; 256] = {
    let mut looks = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let is_special = byte >= 0x80 || matches!(byte as u8, b'%' | b';' | b'\\' | b'#') || is_folded(byte as u8);
        let in_path = if is_folded_in_path(byte as u8) { SPECIAL_IN_PATH } else { 0 };
        looks[byte] = if is_special { SPECIAL } else { in_path };
        byte += 1;
    }
    looks[b'/' as usize] = SLASH;
    looks
};
const SPECIAL: u8 = 1;
const SLASH: u8 = 2;
const SPECIAL_IN_PATH: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::robots::RobotsTxt;

    /// Spellings of `/private/x`, one per line; the tests against real servers send them too.
    const SPELLINGS: &str = include_str!("../../tests/support/path_spellings.txt");

    /// Spellings that some other servers read as `/private/x`.
    const MORE: &[&str] = &[
        // Node: `new URL(target, base)`.
        "//host/private/x",
        "///host/private/x",
        "/\\host/private/x",
        "/private\\x",
        "/public\\..\\private\\x",
        // Windows.
        "/public/..%5Cprivate%5cx",
        // On other servers a backslash is an ordinary character.
        "/public;x%5cpublic%2F..%2Fprivate/x",
        "/.%2e/./public\\public/.%2e/private%2Fx",
        // Tomcat, Jetty.
        "/private;a=b/x",
        "/;/private/x",
        "/public/..;/private/x",
        "/public/..;a=b/private;c/x;d",
        // Caddy parses no fragments in requests.
        "/public/#/../../private/x",
        "/private%2fx#y",
        // Some servers merge slashes before they remove dot segments, others after; segments above the root are dropped.
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
        // Node: `unescape`; IIS.
        "/private%u002fx",
        "/%u0070rivate/x",
        "/a/%u002e%U002E%u002Fprivate/x",
    ];

    /// For each kind of server, an example from the table in docs/conformance.md.
    #[test]
    fn each_kind_of_server_has_its_path_form() {
        for (path, [for_nginx, for_node, for_tomcat, for_iis]) in [
            ("/a", ["/a", "/a", "/a", "/a"]),
            ("//a//b", ["/a/b", "/b", "/a/b", "/a/b"]),
            ("/a%2Fb", ["/a/b", "/a/b", "/a/b", "/a/b"]),
            ("/x/..%2Fa", ["/a", "/a", "/a", "/a"]),
            ("/x/..//a", ["/a", "/a", "/a", "/a"]),
            ("/x//../a", ["/a", "/x/a", "/a", "/x/a"]),
            ("/a\\b", ["/a\\b", "/a/b", "/a\\b", "/a/b"]),
            ("/a%5Cb", ["/a\\b", "/a\\b", "/a\\b", "/a/b"]),
            ("//host/a#b", ["/host/a%23b", "/a", "/host/a%23b", "/host/a%23b"]),
            ("/a;v=1/b;w", ["/a;v=1/b;w", "/a;v=1/b;w", "/a/b", "/a;v=1/b;w"]),
            ("/x/..;/a", ["/x/..;/a", "/x/..;/a", "/a", "/x/..;/a"]),
            ("/a%u002Fb", ["/a%u002Fb", "/a%u002Fb", "/a%u002Fb", "/a/b"]),
            ("/a%FFb", ["/a%FFb", "/a%FFb", "/a%FFb", "/ab"]),
        ] {
            let (sent, normal) = (path.as_bytes(), normalise(path.as_bytes()));
            let made = [cleaned(&normal), cleaned(&node(sent)), cleaned(&tomcat(&normal)), iis(sent)];
            let made = made.map(|form| String::from_utf8_lossy(&form).into_owned());
            assert_eq!(made, [for_nginx, for_node, for_tomcat, for_iis], "{path}");
        }
        assert_eq!(with_slashes_kept(b"/x/..//a%2Fb%3A%5C"), b"/a%2Fb:\\");
    }

    fn forms(target: &[u8], budget: &mut StepBudget) -> Result<Forms, StepsSpent> {
        served_forms(target, &sent_paths(target, &mut StepBudget::new())?, budget)
    }

    fn refused(rules: &str, target: &str) -> Option<String> {
        let everyone: [&str; 0] = [];
        let rules = RobotsTxt::parse(format!("User-agent: *\n{rules}").as_bytes()).rules_for(&everyone);
        let mut path = JudgedPath::new(target.as_bytes(), Paths::AsServed);
        let (verdict, form) = rules.check_within(&mut path, &[]);
        (!verdict.is_allowed()).then(|| form.map_or(target.to_owned(), String::from))
    }

    #[test]
    fn respelled_disallowed_paths_are_disallowed() {
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
    fn disallowed_path_form_is_named() {
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
    fn path_that_no_server_maps_to_a_disallowed_one_is_allowed() {
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
    fn ordinary_paths_are_judged_only_as_sent() {
        for target in ["/", "/a/b.html?c=d&e=f+g~h$i*j_k-l", "", "*", "?a", "/a/../b"] {
            assert!(is_ordinary(target.as_bytes()), "{target}");
        }
        for target in
            ["/a+b", "/a=b", "/a&b?c", "//a", "/a//b", "/a;b", "/a%2fb", "/a\\b", "/a#b", "/a?[", "/a:b", "/\u{e4}"]
        {
            assert!(!is_ordinary(target.as_bytes()), "{target}");
        }
        for byte in 0..=u8::MAX {
            for text in [&[b'/', byte][..], &[b'/', b'a', byte, b'b', b'/'], &[b'/', b'?', byte]] {
                let nine = nine_readings(text);
                let is_one = nine[2..].iter().all(|(form, _)| nine[..2].iter().any(|(sent, _)| sent == form));
                assert!(!is_ordinary(text) || is_one || text.contains(&b'#'), "{text:?}");
            }
        }
    }

    #[test]
    fn rule_matches_a_request_in_either_escaping() {
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
            ("/C%2B%2B", &["/C++", "/C%2b+x", "//C++", "/C%2B%2B", "/a/..%2FC++?q"]),
            ("/C++", &["/C++", "/C%2B%2b", "/C+%2B"]),
            ("/k%3Dv%26w/", &["/k=v&w/", "/k%3dv&w/"]),
            ("/a%2Bb/*.pdf$", &["/a+b/c.pdf", "/a%2Bb/c.pdf"]),
            ("/a%26b?c", &["/a&b?c"]),
            // After a star there may be a query, where `+` and `%2B` differ; in a path they do not.
            ("/q/*%2B", &["//q/x%2B", "/q/x+", "/q/x%2b", "//q/x+y", "/q/a%5B?x=%2B", "/x/..%2Fq/x%2B?+"]),
            ("/q%2B*%2B$", &["//q+x%2B", "/q%2bx+", "/q+?x[]=a%2B"]),
            ("/q/*%2B*/%26*%3D?", &["/q/x%2By/&=?", "//q/x%2B/%26=?", "/q/[%2B/%26%3D?a"]),
            ("/q/*%2B?a=%2B", &["//q/x%2B?a=%2B", "/q/x+?a=%2B"]),
            ("/q/*a+b%2Bc", &["/q/xa%2Bb+c", "/q/a+b+c", "/q/[]?a+b%2Bc", "//q/a%2Bb%2Bc/d"]),
            ("/q/*a+b%2Bc$", &["/q/xa%2Bb+c", "/q/[]?a+b%2Bc"]),
            ("/q/*%2B*+", &["/q/x+y%2B", "/q/+?[]+", "/q/%2B?[]+"]),
            ("/q/*+*%2B?a=%2B$", &["/q/%2B+?a=%2B", "/q/+a%2B?a=%2B"]),
            ("/a%2fb", &["/a%2Fb", "//a%2fb", "/x/..//a%2Fb", "//x/../a%2fb", "/./a%2Fb"]),
            ("/a%2Fb", &["//h/a%2Fb", "/x\\..\\a%2Fb", "/;x/a%2fb", "/x/..;/a%2Fb?c"]),
            ("/p/a%2Fb", &["/p\\a%2Fb", "/p;x/a%2Fb", "//h/x/../p\\a%2fb", "/x/..;/p/a%2Fb", "//p;x//a%2fb"]),
            ("/a:%2Fb", &["/a%3A%2Fb", "/a:%2fb", "//a%3a%2fb"]),
        ] {
            for target in targets {
                assert!(refused(&format!("Disallow: {rules}"), target).is_some(), "{target} by {rules}");
            }
        }
    }

    #[test]
    fn other_spelling_of_a_target_is_not_disallowed_by_an_unrelated_rule() {
        for (rules, target) in [
            ("Disallow: /\nAllow: /@me", "/@me"),
            ("Disallow: /wiki/\nAllow: /wiki/Talk:", "/wiki/Talk:x?a,b"),
            ("Disallow: /*?\nAllow: /*?f[", "/l?f[0]=(1)"),
            ("Disallow: /*%", "/a:b"),
            ("Disallow: /*7C", "/a|b"),
            ("Disallow: /*?c=d+&", "/a?c=d%2B%26"),
            ("Disallow: /*?u=/", "/l?u=%2F"),
            // `+` and `&` are separators in a query, so their escapes are not decoded there, nor after a `*`, which may match the `?`.
            ("Disallow: /a?b=c%2Bd", "/a?b=c+d[]"),
            ("Disallow: /*rt%3Dnc", "/x[]?rt=nc"),
            ("Disallow: *%26", "/x[]?a&b"),
            ("Disallow: /shop/*%2B*", "/shop/x?q=a+b[]"),
            ("Disallow: /shop/*%2B?", "/shop/x?q=+?[]"),
            ("Disallow: /shop/*x%2B$", "/shop/x+?x+[]"),
            ("Disallow: /shop/*?x%2B", "/shop/x+?x+[]"),
            ("Disallow: /shop/*a+b%2Bc", "/shop/x?a%2Bb+c[]"),
            ("Disallow: /shop/*a+b%2Bc$", "/shop/a+b+c?[]"),
            ("Disallow: /shop/*%2B*+", "/shop/[]?+%2B"),
            ("Disallow: /\nAllow: /C%2B%2B", "/C%2B%2B/x"),
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

    /// `/x?f[]=a` is longer than `/x?f[]`, even if the latter is escaped.
    #[test]
    fn rules_are_ranked_by_their_length_in_the_spelling_that_is_compared() {
        for (shorter, longer, targets) in [
            ("/x?f%5B%5D", "/x?f[]=a", &["/x?f[]=a", "/x?f%5B%5D=a"][..]),
            ("/C%2B%2B", "/C++/a", &["/C++/a", "/C%2B%2B/a"]),
            ("/*%3Ab%3A*", "/*:b:cd$", &["/x:b:cd", "/x%3Ab%3Acd"]),
        ] {
            for target in targets {
                let disallowed = refused(&format!("Allow: {shorter}\nDisallow: {longer}"), target);
                assert!(disallowed.is_some(), "{target} by {longer}");
            }
            let disallowed = refused(&format!("Disallow: {shorter}\nAllow: {longer}"), targets[0]);
            assert_eq!(disallowed, None, "{} by {shorter}", targets[0]);
        }
    }

    #[test]
    fn as_sent_judges_no_other_form() {
        let asks = |paths| {
            let mut path = JudgedPath::new(b"//private/x", paths);
            path.first_refused(|path, _| Ok(path.is_folded.then_some(())))
        };
        assert_eq!(asks(Paths::AsSent), Ok(None));
        assert!(asks(Paths::AsServed).is_ok_and(|asked| asked.is_some()));
    }

    /// All readings of a path, and whether each is compared with folded patterns: as sent, without dot segments, and as each kind of server
    /// reads it, both with `%2F` decoded and with `%2F` kept (IIS: only decoded). Made as the table in docs/conformance.md says, with
    /// duplicates.
    fn nine_readings(target: &[u8]) -> [(Vec<u8>, bool); 9] {
        let sent = normalise(&path_and_query(target));
        let resolved = without_dots(sent.clone());
        let (path, query) = parts(target);
        let query = &query[..memchr::memchr(b'#', query).unwrap_or(query.len())];
        let query = fold(&normalise(query), 0).into_owned();
        let node = {
            let path = &path[..memchr::memchr(b'#', path).unwrap_or(path.len())];
            let path: Vec<u8> = path.iter().map(|&byte| if byte == b'\\' { b'/' } else { byte }).collect();
            let rest =
                path.strip_prefix(b"//").map(|rest| &rest[rest.iter().take_while(|&&byte| byte == b'/').count()..]);
            let path = rest.map_or(path.clone(), |rest| {
                memchr::memchr(b'/', rest).map_or(b"/".to_vec(), |end| rest[end..].to_vec())
            });
            without_dots(normalise(&path))
        };
        let bare = |segment: &[u8]| segment.split(|&byte| byte == b';').next().unwrap_or_default().to_vec();
        let tomcat = normalise(path).split(|&byte| byte == b'/').map(bare).collect::<Vec<_>>().join(&b'/');
        let iis = decoded(&normalise(&without_ill_formed(&without_utf16(path))), b"/", b'/');
        let both = |path: &[u8]| [&b"/"[..], b"%2F"].map(|slash| without_dots(merged(decoded(path, slash, b'\\'))));
        let [nginx, kept] = both(&normalise(path));
        let [[node, node_kept], [tomcat, tomcat_kept]] = [both(&node), both(&tomcat)];
        let served = [nginx, kept, node, node_kept, tomcat, tomcat_kept, merged(without_dots(iis))];
        let [nginx, kept, node, node_kept, tomcat, tomcat_kept, iis] =
            served.map(|form| ([form, query.clone()].concat(), true));
        [(sent, false), (resolved, false), nginx, kept, node, node_kept, tomcat, tomcat_kept, iis]
    }

    /// The forms of a path that are compared, and whether each is compared with folded patterns. `None`: the path is refused because of its
    /// forms.
    fn judged(target: &[u8]) -> Option<Vec<(Vec<u8>, bool)>> {
        let (mut all, mut path) = (Vec::new(), JudgedPath::new(target, Paths::AsServed));
        let refused = path.first_refused(|path, _| {
            all.push((path.bytes.to_vec(), path.is_folded));
            Ok(None::<()>)
        });
        refused.is_ok().then_some(all)
    }

    /// Paths of up to ten pieces that servers treat in different ways.
    fn odd_paths(count: u64) -> impl Iterator<Item = Vec<u8>> {
        const PIECES: &[&str] = &[
            "/", "//", "a", "private", "/..", "/.", "%2e%2e", "%2F", "\\", "%5C", ";", "#", "?", "%u002f", "%ff",
            "%c3%bc", "[", "%5b", "+", "%2B", "%25", "%",
        ];
        (1..=count).map(move |seed| {
            let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let pieces = (0..=seed % 10).map(|_| {
                random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                PIECES[(random >> 33) as usize % PIECES.len()]
            });
            format!("/{}", pieces.collect::<String>()).into_bytes()
        })
    }

    /// A rule that disallows any reading of a path must refuse the path.
    #[test]
    fn each_of_nine_readings_is_judged_or_the_path_is_refused() {
        let mut refused = 0;
        for target in odd_paths(60_000) {
            let Some(judged) = judged(&target) else {
                refused += 1;
                continue;
            };
            assert!(judged.len() <= MOST_FORMS, "{}", target.escape_ascii());
            for (path, is_folded) in nine_readings(&target) {
                let is_judged = judged
                    .iter()
                    .any(|(other, other_folded)| *other == path && (is_folded == *other_folded || !has_folded(&path)));
                assert!(is_judged, "{} as {}", target.escape_ascii(), path.escape_ascii());
            }
        }
        // Some of these unusual paths are refused because of their forms, but fewer than half.
        assert!((1..30_000).contains(&refused), "{refused}");
    }

    #[test]
    fn a_path_that_servers_read_in_more_than_seven_ways_is_refused() {
        for (target, forms) in [
            ("/a", 1),
            ("/a%20b/\u{e4}?c=d%20e", 1),
            ("/x/../a", 2),
            ("/x/../a;b", 4),
            ("/a\\b;c", 4),
            ("//h/a;b", 4),
            ("//h/x/../a;b", 5),
            ("//h/a%ff;b", 5),
            ("//h/x/../a%ff;b", 6),
            ("/a%2Fb", 2),
            ("/p;x/a%2Fb", 5),
            ("/x/../p;x/a%2Fb", 6),
            ("//h/p;x/a%2Fb", 7),
            ("//h/p;x/a%2Fb%ff", 8),
            ("//h/x/../p;x/a%2Fb%ff", 9),
        ] {
            let different: std::collections::BTreeSet<_> =
                nine_readings(target.as_bytes()).map(|(path, is_folded)| (is_folded && has_folded(&path), path)).into();
            assert_eq!(different.len(), forms, "{target}");
            assert_eq!(judged(target.as_bytes()).map(|judged| judged.len()), (forms <= MOST_FORMS).then_some(forms));
        }
    }

    /// Forms take at most three times the memory of the target, for any target.
    #[test]
    fn no_form_is_much_longer_than_the_target() {
        let pieces = [r"/a%5Cb[%3a{//", r"/a%ff%u005A"];
        for (length, piece) in [275, 2_000, 3_500].into_iter().flat_map(|length| pieces.map(|piece| (length, piece))) {
            for query in [String::new(), format!("?{}", "[%3a".repeat(length / 8))] {
                let target: String = piece.chars().cycle().take(length).chain(query.chars()).collect();
                let forms = forms(target.as_bytes(), &mut StepBudget::new()).unwrap();
                assert!((1..MOST_FORMS).contains(&forms.len()), "{}", forms.len());
                assert!(forms.iter().all(|form| form.len() <= 3 * target.len()));
            }
        }
    }

    /// Servers accept request lines of up to 8 KiB: the forms of most such targets must fit into the budget.
    #[test]
    fn forms_are_made_within_the_budget_or_not_at_all() {
        let path = |length: usize| r"/h%5Cb/..%2F;//c[%3a{%20".chars().cycle().take(length).collect::<String>();
        let query = |length: usize| format!("/?{}", "[%3a&b=%20c".chars().cycle().take(length).collect::<String>());
        for (target, is_made) in [
            (path(2_500), true),
            (format!("/img/pako:{}", "eNpVkE1".repeat(1_140)), true),
            (format!("/{}", "%E4%BD%A0".repeat(600)), true),
            (query(8_000), true),
            (format!("{}{}", path(1_000), query(7_000)), true),
            (query(60_000), false),
            (path(60_000), false),
            (path(1 << 20), false),
        ] {
            assert_eq!(judged(target.as_bytes()).is_some(), is_made, "{}", target.len());
        }
    }

    #[test]
    fn utf16_escapes_become_utf8_escapes() {
        for (path, expected) in [
            ("/a%u002fb%u0041", "/a%2Fb%41"),
            ("/%U00e9%u20AC", "/%C3%A9%E2%82%AC"),
            ("/%u002%u002e", "/%u002%2E"),
            ("/%ud83d%ude00%u0061", "/%ud83d%ude00%61"),
            ("/%u", "/%u"),
        ] {
            assert_eq!(String::from_utf8_lossy(&without_utf16(path.as_bytes())), expected, "{path}");
        }
    }

    #[test]
    fn invalid_utf8_bytes_are_left_out() {
        for (path, expected) in [
            ("/%ffprivate", "/private"),
            ("/pri%80vate%C0%af/", "/private/"),
            ("/%e4%bdx%E4%BD%A0", "/x%E4%BD%A0"),
            ("/a%f0%9f%98", "/a"),
            ("/%EA%E0%F2/search/", "/%EA%E0%F2/search/"),
            ("/%ed%a0%80a", "/a"),
            ("/\u{e4}%e4", "/\u{e4}"),
            ("/%E4%BD%A0%20%C3%BC\u{e4}%", "/%E4%BD%A0%20%C3%BC\u{e4}%"),
            ("/%2f%25%", "/%2f%25%"),
        ] {
            assert_eq!(normalise(&without_ill_formed(path.as_bytes())), normalise(expected.as_bytes()), "{path}");
        }
        assert_eq!(without_ill_formed(b"/a\xffb\xc3\xbc"), b"/ab\xc3\xbc");
    }
}
