//! A licence file (RSL 1.0, Really Simple Licensing, recommendation of 10 December 2025): which uses of a site's pages its licences permit
//! and prohibit. Terms on payment, users, regions and reporting are not read: they are agreed elsewhere. Pure.

use std::cmp::Reverse;
use std::sync::{Arc, OnceLock};

use url::Url;

use super::Purpose;
use super::budget::{StepBudget, StepsSpent};
use super::path::ComparedPath;
use super::path_forms::{JudgedPath, Paths};
use super::patterns::{Patterns, PatternsBuilder};
use super::rsl_xml::{RslContent, contents};
use super::steps;

/// A parsed licence file.
#[derive(Debug)]
pub struct RslFile {
    source: Box<[u8]>,
    contents: Vec<RslContent>,
    sites: Vec<SiteTerms>,
    fault: Option<Box<str>>,
    is_unreadable: bool,
    digest: OnceLock<[u8; 32]>,
}

/// The terms for the paths of one site, by use.
#[derive(Debug)]
struct SiteTerms {
    /// The site, such as `https://example.com`. `None`: every site that uses the file.
    origin: Option<Box<str>>,
    by_use: [Patterns<Said>; USES.len()],
}

/// The term of one `content` about a use. The longest path decides; of equally long paths, one that refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    bytes: usize,
    is_refused: bool,
    place: Reverse<usize>,
    /// Whether `prohibits` lists the use.
    is_prohibited: bool,
}

/// The uses that a `content` permits or prohibits: a term of the file, or why a use is not licensed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RslTerm<'a> {
    /// Number of the `content` in the file, from 1.
    pub content: u32,
    /// The `url` of the `content`, as written.
    pub location: &'a str,
    /// `prohibits` or `permits`. A use is not licensed if `prohibits` lists it, or if `permits` does not.
    pub element: &'static str,
    /// The uses that the element lists.
    pub uses: &'a str,
}

impl RslFile {
    /// Parses a file. Never fails: [`fault`](Self::fault) returns the first fault, [`unreadable`](Self::unreadable) the fault if the whole
    /// file is unusable.
    pub fn parse(bytes: &[u8]) -> Self {
        let read = contents(bytes);
        let mut is_unreadable = read.is_err();
        let (contents, mut fault) = read.unwrap_or_else(|why| (Vec::new(), Some(why)));
        let mut sites: Vec<(Option<String>, [PatternsBuilder<Said>; USES.len()])> = Vec::new();
        for (place, content) in contents.iter().enumerate() {
            let mut wrong = |what: &str| {
                fault.get_or_insert_with(|| format!("content {}: {what}", content.number).into());
            };
            let Some((origin, path)) = place_of(&content.url) else {
                wrong("its `url` is neither a path nor the URL of a page");
                continue;
            };
            let known = sites.iter().position(|(known, _)| *known == origin);
            let site = match known {
                Some(site) => site,
                None if sites.len() == MOST_SITES => {
                    wrong("there are too many sites");
                    is_unreadable = true;
                    break;
                }
                None => {
                    let none = std::array::from_fn(|_| PatternsBuilder::new(Arc::from([]), 0));
                    sites.push((origin, none));
                    sites.len() - 1
                }
            };
            let [permits, prohibits] = [&content.permits, &content.prohibits].map(|uses| uses.as_deref().map(covered));
            for (used, patterns) in sites[site].1.iter_mut().enumerate() {
                let is_prohibited = prohibits.is_some_and(|uses| uses[used]);
                let is_refused = match permits {
                    _ if is_prohibited => true,
                    Some(uses) => !uses[used],
                    None => continue,
                };
                let place = Reverse(place);
                patterns.add(path.as_bytes(), |bytes| Said { bytes, is_refused, place, is_prohibited });
            }
        }
        let site = |(origin, by_use): (Option<String>, [PatternsBuilder<Said>; USES.len()])| SiteTerms {
            origin: origin.map(Box::from),
            by_use: by_use.map(PatternsBuilder::finish),
        };
        let sites = sites.into_iter().map(site).collect();
        Self { source: bytes.into(), contents, sites, fault, is_unreadable, digest: OnceLock::new() }
    }

    /// The term by which a page is not licensed for a purpose. `origin`: the site of the page, such as `https://example.com`. `target`:
    /// path and query.
    pub fn refusal(&self, purpose: &Purpose, origin: &str, target: &[u8]) -> Option<RslTerm<'_>> {
        let mut path = JudgedPath::new(target, Paths::AsSent);
        path.budget = StepBudget::unlimited();
        let found = path.first_refused(|path, budget| self.refusal_at(purpose, origin, path, budget));
        Some(found.ok()??.0)
    }

    /// The term by which this form of the path is not licensed, within the budget of a decision.
    pub(crate) fn refusal_at(
        &self,
        purpose: &Purpose,
        origin: &str,
        path: ComparedPath<'_>,
        budget: &mut StepBudget,
    ) -> Result<Option<RslTerm<'_>>, StepsSpent> {
        // A purpose that RSL does not name is automated processing too, so `all` applies.
        let used = USES.iter().position(|used| *used == purpose.as_str()).unwrap_or(USES.len() - 1);
        let mut best: Option<Said> = None;
        for site in &self.sites {
            if site.origin.as_deref().is_none_or(|of| of == origin) {
                best = best.max(site.by_use[used].best(path, budget)?);
            }
        }
        Ok(best.filter(|said| said.is_refused).map(|said| {
            let RslContent { number, url, permits, prohibits } = &self.contents[said.place.0];
            let (element, uses) = if said.is_prohibited { ("prohibits", prohibits) } else { ("permits", permits) };
            RslTerm { content: *number, location: url, element, uses: uses.as_deref().unwrap_or_default() }
        }))
    }

    /// The uses that the file permits and prohibits, as written.
    pub fn terms(&self) -> impl Iterator<Item = RslTerm<'_>> {
        self.contents.iter().flat_map(|RslContent { number, url, permits, prohibits }| {
            let lists = [("permits", permits), ("prohibits", prohibits)].into_iter();
            lists.filter_map(|(element, uses)| {
                Some(RslTerm { content: *number, location: url, element, uses: uses.as_deref()? })
            })
        })
    }

    /// Number of `content` elements that were read.
    pub fn len(&self) -> usize {
        self.contents.len()
    }

    pub fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }

    /// The first fault of the file, if any.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Why the whole file is unusable, if it is.
    pub fn unreadable(&self) -> Option<&str> {
        self.fault().filter(|_| self.is_unreadable)
    }

    /// The bytes that were read.
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// Content digest, computed by `digest` on first use.
    pub fn digest_by(&self, digest: impl FnOnce(&[u8]) -> [u8; 32]) -> &[u8; 32] {
        self.digest.get_or_init(|| digest(self.source()))
    }

    /// Bytes on the heap.
    pub fn heap_size(&self) -> usize {
        let Self { source, contents, sites, fault, .. } = self;
        let text = |content: &RslContent| {
            let lists = [&content.permits, &content.prohibits];
            content.url.len() + lists.iter().filter_map(|list| list.as_ref()).map(|list| list.len()).sum::<usize>()
        };
        let patterns = sites.iter().flat_map(|site| &site.by_use).map(Patterns::heap_size).sum::<usize>();
        size_of::<Self>()
            + source.len()
            + contents.capacity() * size_of::<RslContent>()
            + contents.iter().map(text).sum::<usize>()
            + sites.capacity() * size_of::<SiteTerms>()
            + patterns
            + fault.as_ref().map_or(0, |fault| fault.len())
    }
}

/// Whether each of [`USES`] is in a list, by its name or by a name that includes it.
fn covered(uses: &str) -> [bool; USES.len()] {
    steps::count(uses.len());
    let mut covered = [false; USES.len()];
    for listed in uses.split(' ') {
        let purpose = Purpose::parse(listed).ok();
        for (used, covered) in USES.iter().zip(&mut covered) {
            *covered |= match listed {
                "all" => true,
                "ai-all" => used.starts_with("ai-"),
                _ => purpose.as_ref().is_some_and(|listed| listed.as_str() == *used),
            };
        }
    }
    covered
}

/// The site that a `url` names, if any, and its path pattern.
fn place_of(url: &str) -> Option<(Option<String>, &str)> {
    if url.starts_with(['/', '*']) {
        return Some((None, url));
    }
    let site = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    let (_, rest) = url.split_once("://")?;
    let path = rest.find(['/', '?', '#']).map_or("/", |at| &rest[at..]);
    path.starts_with('/').then(|| (Some(site.origin().ascii_serialization()), path))
}

/// The uses that a licence distinguishes; the last one stands for all others.
const USES: [&str; 5] = ["search", "ai-train", "ai-input", "ai-index", "all"];
/// Maximum number of sites in one file.
const MOST_SITES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(contents: &str) -> RslFile {
        RslFile::parse(format!(r#"<rsl xmlns="https://rslstandard.org/rsl">{contents}</rsl>"#).as_bytes())
    }

    fn content(url: &str, terms: &str) -> String {
        format!(r#"<content url="{url}"><license>{terms}</license></content>"#)
    }

    fn permits(uses: &str) -> String {
        format!(r#"<permits type="usage">{uses}</permits>"#)
    }

    fn prohibits(uses: &str) -> String {
        format!(r#"<prohibits type="usage">{uses}</prohibits>"#)
    }

    /// The result: `-`, or the number of the content, its `url`, and the term.
    fn ask(file: &RslFile, purpose: &str, target: &str) -> String {
        let purpose = Purpose::parse(purpose).unwrap();
        let found = file.refusal(&purpose, "https://example.com", target.as_bytes());
        found.map_or("-".into(), |it| format!("{} {} {}: {}", it.content, it.location, it.element, it.uses))
    }

    /// The first example of the specification, which permits only search.
    #[test]
    fn example_of_the_rsl_specification_is_read() {
        let file = RslFile::parse(
            br#"<rsl xmlns="https://rslstandard.org/rsl">
  <content url="/">
    <license>
      <prohibits type="usage">ai-all</prohibits>
    </license>
  </content>
</rsl>"#,
        );
        assert_eq!(file.fault(), None);
        for (purpose, expected) in [
            ("ai-train", "1 / prohibits: ai-all"),
            ("ai-input", "1 / prohibits: ai-all"),
            ("ai-index", "1 / prohibits: ai-all"),
            ("search", "-"),
            ("tdm", "-"),
        ] {
            assert_eq!(ask(&file, purpose, "/a"), expected, "{purpose}");
        }
    }

    #[test]
    fn use_is_licensed_only_if_permitted_and_not_prohibited() {
        let cases: &[(&str, &[(&str, bool)])] = &[
            (&permits("search ai-input"), &[("search", true), ("ai-input", true), ("ai-train", false), ("tdm", false)]),
            (&permits("all"), &[("search", true), ("ai-train", true), ("tdm", true), ("other", true)]),
            (&permits("ai-all"), &[("search", false), ("ai-train", true), ("ai-index", true), ("tdm", false)]),
            (&prohibits("all"), &[("search", false), ("ai-train", false), ("tdm", false), ("other", false)]),
            (&prohibits("search"), &[("search", false), ("ai-train", true)]),
            (&(permits("all") + &prohibits("ai-train")), &[("ai-train", false), ("ai-input", true)]),
            (&(permits("ai-train") + &prohibits("ai-all")), &[("ai-train", false), ("search", false)]),
            (&permits(""), &[("search", false)]),
            (r#"<permits type="user">education</permits>"#, &[("search", true), ("ai-train", true)]),
            (r#"<prohibits type="geo">EU</prohibits>"#, &[("search", true)]),
            ("<payment type=\"crawl\"/>", &[("ai-train", true)]),
            (&prohibits("x:own ai-train"), &[("ai-train", false), ("search", true)]),
            // Names of uses as in drafts before RSL 1.0.
            (&prohibits("train-ai, search"), &[("ai-train", false), ("search", false), ("ai-input", true)]),
        ];
        for (terms, uses) in cases {
            let file = file(&content("/", terms));
            for (purpose, is_licensed) in *uses {
                assert_eq!(ask(&file, purpose, "/") == "-", *is_licensed, "{purpose} {terms}");
            }
        }
    }

    #[test]
    fn licences_of_one_content_are_combined_and_a_prohibition_counts() {
        let two = format!("<license>{}</license><license>{}</license>", permits("search"), permits("ai-train"));
        let file = file(&format!(r#"<content url="/">{two}</content>"#));
        assert_eq!(["search", "ai-train", "ai-input"].map(|it| ask(&file, it, "/") == "-"), [true, true, false]);
    }

    #[test]
    fn longest_path_with_terms_for_the_use_decides_in_any_order() {
        let all = [
            content("/", &permits("all")),
            content("/articles/", &prohibits("ai-train")),
            content("/articles/free/", &permits("ai-train")),
            content("/same", &permits("search")),
            content("/same", &prohibits("search")),
        ];
        let mut turned = all.clone();
        turned.reverse();
        for all in [all.concat(), turned.concat()] {
            let file = file(&all);
            for (purpose, target, is_licensed) in [
                ("ai-train", "/articles/x", false),
                ("ai-input", "/articles/x", true),
                ("ai-train", "/articles/free/x", true),
                ("ai-input", "/articles/free/x", false),
                ("ai-train", "/", true),
                ("search", "/same", false),
                ("ai-train", "/x/../articles/x", false),
            ] {
                assert_eq!(ask(&file, purpose, target) == "-", is_licensed, "{purpose} {target}");
            }
        }
    }

    #[test]
    fn content_url_is_a_path_pattern_or_a_url_of_its_site() {
        for (url, target, matches) in [
            ("/*.pdf$", "/a/b.pdf", true),
            ("/*.pdf$", "/a/b.pdf?x", false),
            ("*", "/x", true),
            ("https://example.com/art/", "/art/1", true),
            ("https://example.com", "/art/1", true),
            ("https://EXAMPLE.com:443/art/*.jpg", "/art/1.jpg", true),
            ("https://example.com/art/", "/other", false),
            ("https://other.example/", "/art/1", false),
            ("http://example.com/", "/art/1", false),
            ("https://example.com/a?b=1&amp;c", "/a?b=1&c=2", true),
        ] {
            let file = file(&content(url, &prohibits("search")));
            assert_eq!((ask(&file, "search", target) != "-", file.fault()), (matches, None), "{url} {target}");
        }
        // A longer path of another site does not override this path.
        let two = content("/", &prohibits("search")) + &content("https://other.example/art/", &permits("search"));
        assert_eq!(ask(&file(&two), "search", "/art/1"), "1 / prohibits: search");
        for url in ["", "art/", "ftp://example.com/", "https://", "javascript:x", "https://example.com?x"] {
            let fault = "content 1: its `url` is neither a path nor the URL of a page";
            assert_eq!(file(&content(url, &prohibits("all"))).fault(), Some(fault), "{url}");
        }
    }

    const PIECES: [&str; 20] = [
        "<rsl xmlns=\"https://rslstandard.org/rsl\">",
        "</rsl>",
        "<content url=\"/\">",
        "<content url=\"https://example.com/a*b$\">",
        "<content url='/a' xmlns='urn:x'>",
        "<content/>",
        "</content>",
        "<license>",
        "</license>",
        "<license/>",
        "<permits type=\"usage\">",
        "</permits>",
        "<prohibits type='usage'>",
        "</prohibits>",
        "ai-train ",
        "ai-all,search ",
        "<![CDATA[all]]>",
        "<!-- -- -->",
        "&lt;&x;",
        "\u{fffd}\0<",
    ];

    proptest::proptest! {
        /// Tests like the fuzz target `rsl`, for machines without a fuzzer.
        #[test]
        fn refusal_names_the_list_that_causes_it(
            pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..40),
            is_wrapped: bool,
        ) {
            let inside = pieces.concat();
            let file = if is_wrapped { file(&inside) } else { RslFile::parse(inside.as_bytes()) };
            for name in ["search", "ai-train", "ai-index", "tdm"] {
                let purpose = Purpose::parse(name).unwrap();
                let Some(found) = file.refusal(&purpose, "https://example.com", b"/ab") else { continue };
                proptest::prop_assert!(file.fault().is_none_or(|fault| fault.starts_with("content ")));
                let says_so = covered(found.uses)[USES.iter().position(|it| *it == name).unwrap_or(4)];
                proptest::prop_assert_eq!(found.element == "prohibits", says_so);
                proptest::prop_assert!(found.content as usize <= pieces.len());
            }
        }
    }

    /// Holds for long lists and for many elements.
    #[test]
    fn reading_takes_linear_and_matching_few_steps() {
        let long = permits(&"x ".repeat(20_000));
        for terms in [long.clone() + &permits("x").repeat(2_000), prohibits(&("x ".repeat(40_000) + "search"))] {
            let text = content("/", &terms);
            let mut read = None;
            let steps = steps::of(|| read = Some(file(&text)));
            assert!(steps <= 4 * text.len() as u64, "{steps} steps for {} bytes", text.len());
            let file = read.unwrap();
            let steps = steps::of(|| assert_ne!(ask(&file, "search", "/"), "-"));
            assert!(steps <= 1_000, "{steps} steps for one look-up");
        }
    }

    #[test]
    fn sites_are_bounded() {
        let all: String =
            (0..70).map(|number| content(&format!("https://a{number}.example/"), &prohibits("all"))).collect();
        let file = file(&all);
        assert_eq!(file.fault(), Some("content 65: there are too many sites"));
        assert_eq!(file.unreadable(), file.fault(), "the terms of the other sites are unknown");
        assert!(file.heap_size() < 100_000);
    }
}
