//! Reads what a page says about its use: `<meta name="robots">` and `<meta>` with a crawler's own name (draft-illyes-repext-03, Google),
//! `<meta name="tdm-reservation">` and `<meta name="tdm-policy">` (W3C TDMRep), `<link rel="license">` (RSL 1.0). Such tags belong in the
//! head of the page; a tag after the head counts if it was received together with the head. Pure.

use super::answer::UsageLines;
use super::field::UsageField;
use super::offer::RSL;
use super::page_encodings::in_encodings;
use super::page_head::{HeadSeen, NOSCRIPT};
use super::page_tags::{OpenTag, TagsOnly};
use crate::robots::budget::StepBudget;
use crate::robots::{ProductToken, xml_attribute};
use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span, Tokenizer, naive_next_state};
use quick_xml::Reader;
use quick_xml::events::Event;

/// Maximum number of bytes of a decoded page that are read.
pub const LONGEST_HEAD: usize = 64 * 1024;

/// Whether some client may treat an answer as a page. `content_type`: the lines of Content-Type, joined. Includes missing, unknown and
/// malformed types, as clients guess the type from the content then (WHATWG MIME Sniffing §7), and multipart answers with parts of a page
/// (RFC 9110 §14.6).
pub fn is_page(content_type: &[u8]) -> bool {
    let mut types = content_type.split(|byte| *byte == b',').map(media_type).filter(|kind| !kind.is_empty()).peekable();
    types.peek().is_none() || types.any(|kind| may_be_page(&kind.to_ascii_lowercase()))
}

/// The media type in a Content-Type, without parameters. Its case does not matter (RFC 9110 §8.3.1).
pub fn media_type(content_type: &[u8]) -> &[u8] {
    content_type.split(|byte| matches!(byte, b';' | b',')).next().unwrap_or_default().trim_ascii()
}

/// Whether an answer of this media type may be a page. `kind`: in lower case.
fn may_be_page(kind: &[u8]) -> bool {
    let is_token =
        |it: &[u8]| !it.is_empty() && it.iter().all(|byte| byte.is_ascii_alphanumeric() || MARKS.contains(byte));
    match str::from_utf8(kind).ok().and_then(|kind| kind.split_once('/')) {
        Some(("text", "html" | "xml") | ("application", "xml") | ("multipart", _) | ("unknown" | "*", _)) => true,
        Some((_, "unknown" | "*")) => true,
        Some((main, sub)) => sub.ends_with("+xml") || !is_token(main.as_bytes()) || !is_token(sub.as_bytes()),
        None => true,
    }
}

/// How a page is read, and for whom.
#[derive(Debug)]
pub struct PageForm {
    /// The Content-Type of the answer.
    pub content_type: Vec<u8>,
    /// The list in Content-Encoding.
    pub codings: String,
    /// The crawler's names: rules for these names count, as do rules for all crawlers.
    pub product_tokens: Vec<ProductToken>,
}

/// The result of reading a page.
#[derive(Debug)]
pub struct PageRead {
    pub lines: UsageLines,
    /// Whether all of the head has been received; false unless [`PageForm::shows_head`].
    pub has_head: bool,
    /// Steps taken: the bytes read in all readings, and other work.
    pub steps: usize,
}

/// Maximum number of steps to read a page in all the ways in which some client may read it. This many take about 3 ms.
pub const MOST_STEPS: usize = 4 * LONGEST_HEAD;

impl PageForm {
    /// Whether the end of the head can be recognised. False for XML and multipart answers, which are read up to the limit.
    pub fn shows_head(&self) -> bool {
        media_type(&self.content_type).eq_ignore_ascii_case(b"text/html") && !self.content_type.contains(&b',')
    }

    /// Reads a page in each way in which some client may read it. `texts`: the page without its content codings, or without some of them.
    /// `None`: reading would take more than `most` steps.
    pub fn read(&self, texts: &[impl AsRef<[u8]>], most: usize) -> Option<PageRead> {
        let PageForm { content_type, product_tokens, .. } = self;
        let says_xml = memchr::memmem::find(&content_type.to_ascii_lowercase(), b"xml").is_some();
        let is_xml = |text: &[u8]| says_xml || !self.shows_head() && memchr::memmem::find(text, b"<?xml").is_some();
        let texts = texts.iter().map(|page| page.as_ref()).map(|page| &page[..page.len().min(LONGEST_HEAD)]);
        let texts: Vec<_> = texts.flat_map(in_encodings).map(|text| (is_xml(&text), text)).collect();
        let mut budget = StepBudget::of(most);
        for (is_xml, text) in &texts {
            budget.spend(cost(text) + text.len() * usize::from(*is_xml)).ok()?;
        }
        let (mut lines, mut has_head) = (UsageLines::default(), self.shows_head());
        for (is_xml, text) in &texts {
            let seen = PageReading::new(&mut lines, product_tokens).html(text, false);
            // A text with a zero byte may be in UTF-16, and its head may end later if it is read so.
            has_head &= seen.has_come && memchr::memchr(0, text).is_none();
            // Clients that run scripts treat `noscript` as text, which may end at another place, so that they may see other tags.
            if seen.differs_with_scripts(text) {
                budget.spend(cost(text)).ok()?;
                PageReading::new(&mut lines, product_tokens).html(text, true);
            }
            if *is_xml {
                PageReading::new(&mut lines, product_tokens).xml(text);
            }
        }
        Some(PageRead { lines, has_head, steps: most - budget.left() })
    }
}

/// The steps to read a text as HTML: one for each byte, and more for each named character reference, such as `&copy;`. Such a reference is
/// compared with up to 60 names, or if XML has it too, with up to 14.
fn cost(text: &[u8]) -> usize {
    let named = |at: usize| match &text[at + 1..] {
        [first, ..] if !first.is_ascii_alphabetic() => 0,
        rest if XML_NAMES.iter().any(|name| rest.starts_with(name)) => NAMED.1,
        _ => NAMED.0,
    };
    text.len() + memchr::memchr_iter(b'&', text).map(named).sum::<usize>()
}

/// One way to read a page.
struct PageReading<'a> {
    lines: &'a mut UsageLines,
    policy: Option<Vec<u8>>,
    product_tokens: &'a [ProductToken],
}

impl<'a> PageReading<'a> {
    fn new(lines: &'a mut UsageLines, product_tokens: &'a [ProductToken]) -> Self {
        PageReading { lines, policy: None, product_tokens }
    }

    /// Reads a text as HTML. `scripts`: as a client that runs scripts. After the head, stops after the last tag that may be about use, so
    /// that the body of most pages is not read.
    fn html(mut self, text: &[u8], scripts: bool) -> HeadSeen {
        let (mut seen, mut tag, last) = (HeadSeen::default(), OpenTag::default(), last_tag(text));
        let emitter = CallbackEmitter::new(|event: CallbackEvent<'_>, span: Span| {
            match event {
                CallbackEvent::OpenStartTag { name } => tag.begin(name),
                CallbackEvent::AttributeName { name } => tag.attribute(name),
                CallbackEvent::AttributeValue { value } => tag.value(value),
                CallbackEvent::EndTag { name } => seen.end(name),
                CallbackEvent::Doctype { .. } => seen.doctype(),
                CallbackEvent::CloseStartTag { .. } => {
                    seen.start(&tag.name);
                    self.tag(&tag.name, |name| tag.get(name));
                    if seen.has_come && last.is_none_or(|last| last < span.end) {
                        seen.read = Some(span.end);
                        return Some(None);
                    }
                    let state = match &tag.name[..] {
                        b"noframes" => naive_next_state(b"style"),
                        // A crawler that runs no scripts sees the tags in `noscript`.
                        NOSCRIPT if !scripts => None,
                        name => naive_next_state(name),
                    };
                    return state.map(Some);
                }
                _ => {}
            }
            None
        });
        let mut tokens = Tokenizer::new_with_emitter(text, TagsOnly(emitter));
        while let Some(Ok(Some(state))) = tokens.next() {
            tokens.set_state(state);
        }
        drop(tokens);
        self.end();
        seen
    }

    /// Reads a text as XML, up to the point where it is ill-formed. In XML the content of `script` and `title` is markup, `<script/>` is a
    /// whole element, and names may have a prefix.
    fn xml(mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let mut reader = Reader::from_str(&text);
        reader.config_mut().check_end_names = false;
        loop {
            match reader.read_event() {
                Ok(Event::Start(element) | Event::Empty(element)) => {
                    self.tag(element.local_name().into_inner().as_bytes(), |name| {
                        let value = xml_attribute(&element, name)?;
                        Some(value.trim().as_bytes().to_vec())
                    });
                }
                Ok(Event::Eof) | Err(_) => break,
                Ok(_) => {}
            }
        }
        self.end();
    }

    fn end(self) {
        if let Some(policy) = self.policy {
            self.lines.add_policy(&policy);
        }
    }

    /// Reads a tag. `attribute`: returns the value of the attribute with this name, without white space around it.
    fn tag(&mut self, tag: &[u8], attribute: impl Fn(&str) -> Option<Vec<u8>>) {
        match tag {
            b"meta" => {
                if let (Some(name), Some(content)) = (attribute("name"), attribute("content")) {
                    self.meta(&name, content);
                }
            }
            b"base" => self.lines.base = self.lines.base.take().or_else(|| attribute("href")),
            b"link" => {
                if let (Some(relation), Some(target)) = (attribute("rel"), attribute("href")) {
                    self.link(&relation, &target, attribute("type").as_deref());
                }
            }
            _ => {}
        }
    }

    fn meta(&mut self, name: &[u8], content: Vec<u8>) {
        let is_own = |token: &ProductToken| token.as_str().as_bytes().eq_ignore_ascii_case(name);
        match name.to_ascii_lowercase().as_slice() {
            b"robots" => self.lines.add(UsageField::MetaRobots, &content),
            b"tdm-reservation" => self.lines.add(UsageField::MetaTdm, &content),
            b"tdm-policy" => self.policy = Some(content),
            _ if self.product_tokens.iter().any(is_own) => {
                self.lines.add(UsageField::MetaRobots, &[name, b": ", &content].concat());
            }
            _ => {}
        }
    }

    fn link(&mut self, relation: &[u8], target: &[u8], kind: Option<&[u8]>) {
        let mut words = relation.split(u8::is_ascii_whitespace);
        if words.any(|word| word.eq_ignore_ascii_case(b"license")) {
            let is_rsl = kind.is_some_and(|kind| kind.eq_ignore_ascii_case(RSL.as_bytes()));
            let media_type = if is_rsl { &b"; type=\"application/rsl+xml\""[..] } else { b"" };
            self.lines.take(b"link", &[b"<", target, b">; rel=license", media_type].concat());
        }
    }
}

/// Offset of the end of the name in the last tag that may be about use, if there is one.
fn last_tag(text: &[u8]) -> Option<usize> {
    let is_tag = |end: &usize| {
        let name = text.get(end - "meta".len()..*end);
        name.is_some_and(|name| name.eq_ignore_ascii_case(b"meta") || name.eq_ignore_ascii_case(b"link"))
    };
    memchr::memrchr_iter(b'<', text).map(|at| at + "<meta".len()).find(is_tag)
}

/// Additional steps for a named character reference: in general, and for a name that XML has too.
const NAMED: (usize, usize) = (15, 4);
const XML_NAMES: [&[u8]; 5] = [b"lt;", b"gt;", b"amp;", b"quot;", b"apos;"];
/// Characters of a token besides letters and digits (RFC 9110 §5.6.2).
const MARKS: &[u8] = b"!#$%&'*+-.^_`|~";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{UsageModes, UsageReport, Use};
    use crate::robots::Purpose;
    use std::time::{Duration, SystemTime};

    /// The purposes that a page says no to, for ExampleBot.
    fn said_as(content_type: &str, page: &[u8]) -> String {
        let product_tokens = [ProductToken::parse("ExampleBot").unwrap()];
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_323_200);
        let lines = read(&[page], content_type, &product_tokens).unwrap().lines;
        let mut said: Vec<_> =
            ["search", "ai-train", "ai-input", "tdm"].map(|name| Purpose::parse(name).unwrap()).into();
        said.retain(|purpose| {
            let purposes = std::slice::from_ref(purpose);
            let to = Use { purposes, product_tokens: &product_tokens, modes: UsageModes::default(), now };
            lines.reservation(&to).is_some()
        });
        said.iter().map(Purpose::as_str).collect::<Vec<_>>().join(" ")
    }

    fn read(texts: &[&[u8]], content_type: &str, product_tokens: &[ProductToken]) -> Option<PageRead> {
        let (content_type, product_tokens) = (content_type.into(), product_tokens.into());
        PageForm { content_type, codings: String::new(), product_tokens }.read(texts, MOST_STEPS)
    }

    fn said(page: &str) -> String {
        said_as("text/html", page.as_bytes())
    }

    /// Examples of draft-illyes-repext-03, "HTML Meta Element", and of real pages.
    #[test]
    fn rules_for_all_and_for_our_crawler_are_combined() {
        for (head, expected) in [
            (
                "<meta name=\"robots\" content=\"noindex\">\n<meta name=\"examplebot\" content=\"nosnippet\">",
                "search ai-input",
            ),
            ("<meta name=robots content=noai>", "ai-train ai-input"),
            ("<META CONTENT='NoAI, NoImageAI' NAME='ROBOTS'/>", "ai-train ai-input"),
            ("<meta name=otherbot content=noindex>", ""),
            ("<meta name=otherbot content=noindex><meta name=ExampleBot content='noindex, nofollow'>", "search"),
            ("<meta name=' robots ' content=' noindex '>", "search"),
            ("<meta name=robots content='max-snippet:0'>", "ai-input"),
            ("<meta name=robots content='index, follow, max-snippet:-1, max-image-preview:large'>", ""),
            ("<meta name=robots content='n&#111;index'>", "search"),
            (
                "<meta name=tdm-reservation content=1><meta name=tdm-policy content='https://a.example/p'>",
                "ai-train tdm",
            ),
            ("<meta name=tdm-reservation content=0>", ""),
            ("<meta name=robots><meta content=noindex><meta>", ""),
            ("<meta property=robots content=noindex>", ""),
            ("<title><meta name=robots content=noindex></title>", ""),
            ("<script>'<meta name=robots content=noindex>'</script>", ""),
            ("<style><meta name=robots content=noindex></style>", ""),
            ("<!-- <meta name=robots content=noindex> -->", ""),
            ("<!-- </head><body> --><script>'</head>'</script><meta name=robots content=noindex>", "search"),
            ("<template></head><body></template><meta name=robots content=noindex>", "search"),
            (
                "</template><template><template></template></head></template><meta name=robots content=noindex>",
                "search",
            ),
            ("<noscript><meta name=robots content=noindex></noscript>", "search"),
            ("<noscript></head><body></template></noscript><meta name=robots content=noindex>", "search"),
            ("<template></noscript></head></template><meta name=robots content=noindex>", "search"),
            ("<noframes><!-- </noframes><meta name=robots content=noindex><!-- -->", "search"),
            ("<noscript><!-- </noscript><meta name=robots content=noindex><!-- -->", "search"),
            ("<noscript><style></noscript><meta name=robots content=noindex></style>", "search"),
        ] {
            for page in [
                format!("<!DOCTYPE html>\n<html lang=en><head>{head}</head><body></body></html>"),
                format!("{head}<body>"),
                format!("\u{feff}<html>{head}</HEAD >"),
            ] {
                assert_eq!(said(&page), expected, "{page}");
            }
        }
    }

    /// A tag counts in the head, after the head and in the body, as its meaning does not depend on its place.
    #[test]
    fn meta_tags_are_read_up_to_the_size_limit() {
        let tag = "<meta name=robots content=noindex>";
        for before in ["", "<head></head>", "<body><p>", "<html><frameset>", "<template></head>", "<noscript><body>"] {
            assert_eq!(said(&format!("{before}{tag}")), "search", "{before}");
            let far = format!("{before}{}{tag}", " ".repeat(LONGEST_HEAD));
            assert_eq!(said(&far), "", "the rest of a page is not read");
        }
    }

    /// Asserts that a `meta` tag without attributes at the end of a page changes nothing: it is not about use, but makes the reader read
    /// the whole page.
    fn assert_reads_as_with_a_tag_at_its_end(page: &str) {
        let whole = format!("{page}<meta>");
        for kind in ["text/html", "application/xhtml+xml"] {
            assert_eq!(said_as(kind, page.as_bytes()), said_as(kind, whole.as_bytes()), "{page:?}");
        }
        let has = |page: &str| read(&[page.as_bytes()], "text/html", &[]).unwrap().has_head;
        assert_eq!(has(page), has(&whole), "{page:?}");
    }

    proptest::proptest! {
        #[test]
        fn unread_parts_do_not_change_the_result(
            pieces in proptest::collection::vec(
                proptest::sample::select(vec![
                    "<!doctype html>", "<html>", "<head>", "</head>", "<body>", "<p>", "<meta name=robots content=noai>",
                    "<META NAME=robots CONTENT=noindex>", "<meta name=robots content=\"no", "index\">", "<link rel=license href=a>",
                    "<noscript>", "</noscript>", "<template>", "</template>", "<!--", "-->", "<script>", "</script>", "<style>",
                    "</style>", "<title>", "</title>", "\r\n", "\u{fc}", "&amp;", "&notit;", "\"", "'", "<a title=\"", " ", "text", "<", ">",
                    "<noscript><style></noscript>", "<noframes>", "</noframes>", "<meta", "<lin",
                ]),
                0..24,
            )
        ) {
            assert_reads_as_with_a_tag_at_its_end(&(pieces.concat() + "<p>"));
        }
    }

    /// A page is not read beyond its head if no later tag may be about use.
    #[test]
    fn few_bytes_after_the_head_are_read() {
        let head = "<!doctype html><head><meta name=robots content=all></head><body>";
        let named = "&No".repeat(1_000);
        let (mut lines, text) = (UsageLines::default(), format!("{head}{named}<p>"));
        let seen = PageReading::new(&mut lines, &[]).html(text.as_bytes(), false);
        assert_eq!(seen.read, Some(head.len()));
        let tag = format!("{head}{named}<p><link>{named}<p>");
        let seen = PageReading::new(&mut lines, &[]).html(tag.as_bytes(), false);
        assert_eq!(seen.read, Some(tag.len() - named.len() - "<p>".len()));
    }

    #[test]
    fn head_is_complete_only_if_its_end_is_recognised_in_every_reading() {
        let has = |kind: &str, page: &str| read(&[page.as_bytes()], kind, &[]).unwrap().has_head;
        for head in [
            "<title></head><body></title>",
            "<script>'</head>'</script>",
            "<!-- </head><body> -->",
            "<template></head><body></template>",
            "<noscript><body></head></noscript>",
            "<meta name=robots content='</head>'>",
        ] {
            let behind = "</head> <meta name=robots content=noai><link><script></script><p>";
            for end in ["</head><p>", "</HEAD ><a>", behind, "<p><body class=a>", "<frameset>"] {
                let page = format!("<!doctype html><html><head>{head}{end}");
                for at in 0..page.len() {
                    assert!(!has("text/html", &page[..at]), "{}", &page[..at]);
                }
                assert!(has("Text/HTML; charset=utf-8", &page), "{page}");
                for other in ["", "text/html, text/xml", "application/xhtml+xml", "multipart/mixed"] {
                    assert!(!has(other, &page), "{other}");
                }
                assert!(!has("text/html", &format!("\0{page}")), "the page may be in UTF-16");
            }
        }
        for (page, is_whole) in [
            ("<!doctype html><title>a</title><meta charset=utf-8><link rel=icon href=a><p", false),
            ("<!doctype html><title>a</title><meta charset=utf-8><link rel=icon href=a><p>", true),
            ("<!doctype html><html lang=en><style>a</style><noscript><p></noscript><script>'<p>'</script>", false),
            ("<!doctype html><html lang=en><style>a</style><noscript><p></noscript><h1>", true),
            ("<br><b>Warning</b><!doctype html><html><head><title>a</title><p>", false),
            ("<title>a</title><p>", false),
        ] {
            assert_eq!(has("text/html", page), is_whole, "{page}");
        }
        assert!(
            !read(&[b"<head></head>", b"<head>"], "text/html", &[]).unwrap().has_head,
            "the head is incomplete in one of two codings"
        );
    }

    #[test]
    fn incomplete_tag_is_ignored() {
        let page = "<!doctype html><head><meta name=robots content=noindex></head>";
        let end = page.len() - "></head>".len();
        for at in 0..page.len() {
            assert_eq!(said(&page[..at]), if at > end { "search" } else { "" }, "{}", &page[..at]);
        }
    }

    /// WHATWG MIME Sniffing §5.1, §7: the types that browsers show as a document with elements, or guess.
    #[test]
    fn content_types_that_clients_may_show_as_a_page_are_pages() {
        for kind in [
            "",
            " , ",
            "text/html",
            "Text/HTML ;charset=x",
            "text/plain, text/html",
            "application/xhtml+xml",
            "text/xml",
            "application/xml",
            "application/atom+xml",
            "image/svg+xml",
            "multipart/byteranges; boundary=x",
            "multipart/x-mixed-replace",
            "unknown/unknown",
            "application/unknown",
            "*/*",
            "html",
            "text / html",
            "text/ html",
            "text/html charset=utf-8",
            "text/html(comment)",
            "text/",
            "/html",
            "\"text/html\"",
            "text/html\u{fc}",
        ] {
            assert!(is_page(kind.as_bytes()), "{kind}");
        }
        for kind in
            ["text/plain", "application/json; charset=utf-8,", "image/png, image/png", "application/pdf", "text/htmlx"]
        {
            assert!(!is_page(kind.as_bytes()), "{kind}");
        }
        assert!(is_page(b"text/html\xff"));
    }

    #[test]
    fn ascii_compatible_charsets_utf16_and_utf32_are_read() {
        let page = "<head><title>\u{4e2d}\u{fc}</title><meta name=robots content=noindex></head>";
        let (mut big, mut little) = (vec![], vec![]);
        for unit in page.encode_utf16() {
            big.extend(unit.to_be_bytes());
            little.extend(unit.to_le_bytes());
        }
        assert_eq!(said_as("text/html; charset=UTF-16", &little), "search");
        assert_eq!(said_as("text/html; charset=\"utf-16LE\"", &little), "search");
        assert_eq!(said_as("text/html;charset=utf-16be", &big), "search");
        assert_eq!(said_as("text/html", &[b"\xff\xfe", &little[..]].concat()), "search");
        assert_eq!(said_as("text/html; charset=utf-8", &[b"\xfe\xff", &big[..]].concat()), "search");
        let big: Vec<u8> = page.chars().flat_map(|char| u32::from(char).to_be_bytes()).collect();
        let little: Vec<u8> = page.chars().flat_map(|char| u32::from(char).to_le_bytes()).collect();
        assert_eq!(said_as("text/html; charset=UTF-32", &little), "search");
        assert_eq!(said_as("text/html; charset=\"utf-32BE\"", &big), "search");
        assert_eq!(said_as("text/html", &[b"\xff\xfe\0\0", &little[..]].concat()), "search");
        assert_eq!(said_as("text/html", &[b"\0\0\xfe\xff", &big[..]].concat()), "search");
        let japanese =
            b"<meta name=description content=\"\x1b$B$\"K~='\x1b(B\"><meta name=robots content=noindex></head>";
        assert_eq!(said_as("text/html; charset=iso-2022-jp", japanese), "search");
        let latin = [&b"<title>caf\xe9 \x83\x5c</title>"[..], b"<meta name=robots content=noindex></head>"].concat();
        for charset in ["iso-8859-1", "Shift_JIS", "windows-1252", "unknown"] {
            assert_eq!(said_as(&format!("text/html; charset={charset}"), &latin), "search");
        }
    }

    #[test]
    fn xhtml_is_read_as_xml() {
        let page = b"<html><head><script src='x'/><meta name='robots' content='noindex'/></head>";
        assert_eq!(said_as("application/xhtml+xml; charset=utf-8", page), "search");
        assert_eq!(said_as("text/html", page), "", "in HTML the script does not end");
        let declared = [b"<?xml version='1.0'?>", &page[..]].concat();
        assert_eq!(said_as("text/html", &declared), "");
        // Browsers recognise XML by its declaration.
        for kind in ["", "*/*", "unknown/unknown", "text", "multipart/related"] {
            assert_eq!(said_as(kind, &declared), "search", "{kind}");
            assert_eq!(said_as(kind, page), "", "{kind}");
        }
    }

    #[test]
    fn a_licence_and_terms_are_reported() {
        let page = b"<head><link rel='License next' href='https://a.example/l.xml'><link rel=stylesheet href=/s.css>\
            <meta name=tdm-reservation content=1><meta name=TDM-Policy content=https://a.example/p></head>";
        let lines = read(&[page], "text/html", &[]).unwrap().lines;
        let to = Use { purposes: &[], product_tokens: &[], modes: UsageModes::default(), now: SystemTime::UNIX_EPOCH };
        let (noted, _) = UsageReport::judged(&lines, 200, &to);
        assert_eq!(noted.licenses, [Box::from("https://a.example/l.xml")]);
        assert_eq!(noted.reserved_text().as_deref(), Some("meta tdm-reservation: 1, tdm-policy: https://a.example/p"));
        assert!(noted.malformed.is_empty());
    }

    /// Holds for pages that may be read in many ways. A page that would take more steps is not read.
    #[test]
    fn reading_a_page_takes_few_steps() {
        let tags = "<noscript></noscrip t><meta name=robots content=all a b c d e f>".repeat(1_024);
        let marks = format!("\0\x1b$B\x1b(B<\0m\0\0<\0m<\0\0\0m\0\0\0\0\0\0<\0\0\0m{tags}");
        for page in [tags.as_bytes(), marks.as_bytes()] {
            for texts in [&[page][..], &[page; 5]] {
                let steps = crate::robots::steps_of(|| _ = read(texts, "text/html; xml", &[]));
                assert!(steps <= MOST_STEPS as u64, "{} texts: {steps} steps", texts.len());
            }
        }
        let plain = "<noscript><p>text&amp;text</noscript><script>'text'</script>".repeat(2_000);
        let steps = crate::robots::steps_of(|| assert!(read(&[plain.as_bytes()], "text/html", &[]).is_some()));
        assert!(steps <= 3 * LONGEST_HEAD as u64 / 2, "an ordinary page is read once: {steps} steps");
        let names = "&No".repeat(20_000);
        assert!(read(&[names.as_bytes()], "text/html", &[]).is_none(), "each `&No` is compared with many names");
    }

    /// Atom and RSS feeds of blogs contain escaped HTML.
    #[test]
    fn long_feed_with_escaped_html_is_read() {
        let prose = "&lt;p&gt;Some words, and &lt;a href=&quot;https://a.example/&quot;&gt;a link&lt;/a&gt;.&lt;/p&gt;";
        let code = "&lt;i class=&quot;k&quot;&gt;let&lt;/i&gt; &lt;i class=&quot;o&quot;&gt;=&lt;/i&gt;";
        for post in [prose, code, "&lt;&gt;", "&amp;&apos;"] {
            let posts = post.repeat(LONGEST_HEAD / post.len() + 1);
            let feed =
                format!("<feed xmlns='http://www.w3.org/2005/Atom'><meta name='robots' content='noai'/>{posts}</feed>");
            assert_eq!(said_as("application/atom+xml", feed.as_bytes()), "ai-train ai-input", "{post}");
        }
    }

    #[test]
    fn all_tags_are_read_and_some_are_reported() {
        let many = "<meta name=robots content=all>".repeat(1000) + &"<meta name=robots content=noindex>".repeat(1000);
        assert_eq!(said(&many), "search");
        let lines = read(&[many.as_bytes()], "text/html", &[]).unwrap().lines;
        let to = Use { purposes: &[], product_tokens: &[], modes: UsageModes::default(), now: SystemTime::UNIX_EPOCH };
        assert_eq!(UsageReport::judged(&lines, 200, &to).0.reserved.len(), 1);
    }
}
