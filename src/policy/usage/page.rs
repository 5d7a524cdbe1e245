//! What the head of a page says about its use: `<meta name="robots">` and those with a crawler's own name (draft-illyes-repext-03,
//! Google), `<meta name="tdm-reservation">` and `<meta name="tdm-policy">` (W3C TDMRep), `<link rel="license">` (RSL 1.0). Pure.

use super::answer::UsageLines;
use super::field::UsageField;
use super::offer::RSL;
use crate::robots::{ProductToken, xml_attribute};
use html5gum::{HtmlString, Token, Tokenizer, naive_next_state};
use quick_xml::Reader;
use quick_xml::events::Event;
use std::borrow::Cow;

/// Bytes of a page that are read, without its content coding.
pub const LONGEST_HEAD: usize = 64 * 1024;

/// The beginning of a page, as far as it has come.
#[derive(Debug, Default)]
pub struct PageHead {
    pub lines: UsageLines,
    /// The head has ended: what follows adds nothing.
    pub is_whole: bool,
}

impl PageHead {
    /// Whether a media type is of pages that are read. Parts of one (RFC 9110 §14.6) are read as one page.
    pub fn is_of(media_type: &[u8]) -> bool {
        [HTML, XHTML, PARTS].iter().any(|kind| kind.eq_ignore_ascii_case(media_type))
    }

    /// Reads a page up to `</head>` or `<body`, in each way in which some client may read it. `content_type`: as its answer has it.
    /// `product_tokens`: whose rules are wanted besides those for everybody.
    pub fn read(page: &[u8], content_type: &[u8], product_tokens: &[ProductToken]) -> Self {
        let page = &page[..page.len().min(LONGEST_HEAD)];
        let content_type = content_type.to_ascii_lowercase();
        let is_named = |kind: &[u8]| memchr::memmem::find(&content_type, kind).is_some();
        let (is_xml, is_parts) = (is_named(XHTML), is_named(PARTS));
        let readings = texts(page).into_iter().flat_map(|text| {
            let xml = is_xml.then(|| HeadReading::of_xml(&text, product_tokens));
            [Some(HeadReading::of_html(&text, is_parts, product_tokens)), xml]
        });
        let mut head = readings.flatten().map(HeadReading::end).reduce(Self::join).unwrap_or_default();
        head.is_whole |= page.len() == LONGEST_HEAD;
        head
    }

    /// What either says, until both are whole.
    pub fn join(mut self, other: Self) -> Self {
        self.lines.join(other.lines);
        self.is_whole &= other.is_whole;
        self
    }
}

/// One way to read a page.
struct HeadReading<'a> {
    head: PageHead,
    policy: Option<Vec<u8>>,
    product_tokens: &'a [ProductToken],
}

impl<'a> HeadReading<'a> {
    fn new(product_tokens: &'a [ProductToken]) -> Self {
        HeadReading { head: PageHead::default(), policy: None, product_tokens }
    }

    /// `is_parts`: the order of parts is the site's to choose, so that none ends the head.
    fn of_html(text: &[u8], is_parts: bool, product_tokens: &'a [ProductToken]) -> Self {
        let mut reading = Self::new(product_tokens);
        // In a template or `noscript`, tags neither end the head nor begin the body.
        let (mut templates, mut is_in_noscript) = (0_usize, false);
        let mut tokens = Tokenizer::new(text);
        while let Some(Ok(token)) = tokens.next().filter(|_| !reading.head.is_whole) {
            let is_apart = is_parts || templates > 0 || is_in_noscript;
            match token {
                Token::StartTag(tag) => {
                    match &tag.name[..] {
                        b"template" => templates += 1,
                        b"noscript" => is_in_noscript = true,
                        b"body" | b"frameset" => reading.head.is_whole = !is_apart,
                        name => reading.tag(name, |name| {
                            let value = tag.attributes.get(&HtmlString(name.as_bytes().to_vec()))?;
                            Some(value.value.trim_ascii().to_vec())
                        }),
                    }
                    // Crawlers run no scripts, so that they see what is in `noscript`.
                    let is_text = *tag.name != b"noscript"[..];
                    if let Some(state) = naive_next_state(&tag.name).filter(|_| is_text) {
                        tokens.set_state(state);
                    }
                }
                Token::EndTag(tag) => match &tag.name[..] {
                    b"template" => templates = templates.saturating_sub(1),
                    b"noscript" => is_in_noscript = false,
                    b"head" => reading.head.is_whole = !is_apart,
                    _ => {}
                },
                _ => {}
            }
        }
        reading
    }

    /// In XML the content of `script` and `title` is markup like others, `<script/>` is all of it, and names may have a prefix. Up to
    /// where it is ill-formed.
    fn of_xml(text: &[u8], product_tokens: &'a [ProductToken]) -> Self {
        let mut reading = Self::new(product_tokens);
        let text = String::from_utf8_lossy(text);
        let mut reader = Reader::from_str(&text);
        reader.config_mut().check_end_names = false;
        // Only children of the root are its head and its body.
        let mut depth = 0_u32;
        while !reading.head.is_whole {
            let event = reader.read_event();
            match &event {
                Ok(Event::Start(element) | Event::Empty(element)) => {
                    let local = element.local_name().into_inner();
                    reading.head.is_whole = depth == 1 && local == "body";
                    depth += u32::from(matches!(event, Ok(Event::Start(_))));
                    reading.tag(local.as_bytes(), |name| {
                        let value = xml_attribute(element, name)?;
                        Some(value.trim().as_bytes().to_vec())
                    });
                }
                Ok(Event::End(element)) => {
                    depth = depth.saturating_sub(1);
                    reading.head.is_whole = depth == 1 && element.local_name().into_inner() == "head";
                }
                Ok(Event::Eof) | Err(_) => break,
                Ok(_) => {}
            }
        }
        reading
    }

    fn end(self) -> PageHead {
        let mut head = self.head;
        if let Some(policy) = self.policy {
            head.lines.add_policy(&policy);
        }
        head
    }

    /// `attribute`: the value of the one with this name, without the space around it.
    fn tag(&mut self, tag: &[u8], attribute: impl Fn(&str) -> Option<Vec<u8>>) {
        match tag {
            b"meta" => {
                if let (Some(name), Some(content)) = (attribute("name"), attribute("content")) {
                    self.meta(&name, content);
                }
            }
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
        let lines = &mut self.head.lines;
        match name.to_ascii_lowercase().as_slice() {
            b"robots" => lines.add(UsageField::MetaRobots, &content),
            b"tdm-reservation" => lines.add(UsageField::MetaTdm, &content),
            b"tdm-policy" => self.policy = Some(content),
            _ if self.product_tokens.iter().any(is_own) => {
                lines.add(UsageField::MetaRobots, &[name, b": ", &content].concat());
            }
            _ => {}
        }
    }

    fn link(&mut self, relation: &[u8], target: &[u8], kind: Option<&[u8]>) {
        let mut words = relation.split(u8::is_ascii_whitespace);
        if words.any(|word| word.eq_ignore_ascii_case(b"license")) {
            let is_rsl = kind.is_some_and(|kind| kind.eq_ignore_ascii_case(RSL.as_bytes()));
            let media_type = if is_rsl { &b"; type=\"application/rsl+xml\""[..] } else { b"" };
            self.head.lines.take(b"link", &[b"<", target, b">; rel=license", media_type].concat());
        }
    }
}

/// The page in each encoding in which a client may read it. Marks and labels say different things to different clients, but markup in
/// UTF-16 and UTF-32 has zeros; all other encodings that are in use write names and rules as ASCII does.
fn texts(page: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let mut texts = vec![Cow::from(page)];
    if memchr::memchr(0, page).is_some() {
        texts.push(wide(page, |unit| u16::from_le_bytes(unit).into()).into());
        texts.push(wide(page, |unit| u16::from_be_bytes(unit).into()).into());
        texts.push(wide(page, u32::from_le_bytes).into());
        texts.push(wide(page, u32::from_be_bytes).into());
    }
    texts
}

/// Units of so many bytes as UTF-8, but for pairs of them.
fn wide<const N: usize>(page: &[u8], read: fn([u8; N]) -> u32) -> Vec<u8> {
    let char = |unit: &[u8; N]| char::from_u32(read(*unit)).unwrap_or(char::REPLACEMENT_CHARACTER);
    page.as_chunks().0.iter().map(char).collect::<String>().into_bytes()
}

const HTML: &[u8] = b"text/html";
const XHTML: &[u8] = b"application/xhtml+xml";
const PARTS: &[u8] = b"multipart/byteranges";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{UsageModes, UsageReport, Use};
    use crate::robots::Purpose;
    use std::time::{Duration, SystemTime};

    /// What a page says no to, for ExampleBot; `…`: its head may go on.
    fn said_as(content_type: &str, page: &[u8]) -> String {
        let product_tokens = [ProductToken::parse("ExampleBot").unwrap()];
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_323_200);
        let head = PageHead::read(page, content_type.as_bytes(), &product_tokens);
        let mut said: Vec<_> =
            ["search", "ai-train", "ai-input", "tdm"].map(|name| Purpose::parse(name).unwrap()).into();
        said.retain(|purpose| {
            let purposes = std::slice::from_ref(purpose);
            let to = Use { purposes, product_tokens: &product_tokens, modes: UsageModes::default(), now };
            head.lines.reservation(&to).is_some()
        });
        let more = (!head.is_whole).then_some("…");
        said.iter().map(Purpose::as_str).chain(more).collect::<Vec<_>>().join(" ")
    }

    fn said(page: &str) -> String {
        said_as("text/html", page.as_bytes())
    }

    /// draft-illyes-repext-03, "HTML Meta Element", and pages as they are.
    #[test]
    fn the_rules_for_everybody_and_ones_own_are_united() {
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

    #[test]
    fn what_is_behind_the_head_says_nothing() {
        let tag = "<meta name=robots content=noindex>";
        assert_eq!(said(&format!("<head></head>{tag}")), "");
        assert_eq!(said(&format!("<body>{tag}")), "");
        let far = format!("<head>{}{tag}", " ".repeat(LONGEST_HEAD));
        assert_eq!(said(&far), "", "no more of a page is read");
        assert_eq!(said(&far[far.len() - 50_000..]), "search …");
    }

    #[test]
    fn what_has_come_in_part_may_go_on() {
        let page = "<!doctype html><head><meta name=robots content=noindex></head>";
        let end = page.len() - "></head>".len();
        for at in 0..page.len() {
            let expected = if at > end { "search …" } else { "…" };
            assert_eq!(said(&page[..at]), expected, "{}", &page[..at]);
        }
        assert_eq!(said(page), "search");
    }

    #[test]
    fn any_charset_is_read_that_writes_ascii_as_ascii_does_and_utf_16_and_32() {
        let page = "<head><title>\u{4e2d}\u{fc}</title><meta name=robots content=noindex></head>";
        let (mut big, mut little) = (vec![], vec![]);
        for unit in page.encode_utf16() {
            big.extend(unit.to_be_bytes());
            little.extend(unit.to_le_bytes());
        }
        // Which it is, clients know in different ways; what is not read to its end in one of them may go on.
        assert_eq!(said_as("text/html; charset=UTF-16", &little), "search …");
        assert_eq!(said_as("text/html; charset=\"utf-16LE\"", &little), "search …");
        assert_eq!(said_as("text/html;charset=utf-16be", &big), "search …");
        assert_eq!(said_as("text/html", &[b"\xff\xfe", &little[..]].concat()), "search …");
        assert_eq!(said_as("text/html; charset=utf-8", &[b"\xfe\xff", &big[..]].concat()), "search …");
        let big: Vec<u8> = page.chars().flat_map(|char| u32::from(char).to_be_bytes()).collect();
        let little: Vec<u8> = page.chars().flat_map(|char| u32::from(char).to_le_bytes()).collect();
        assert_eq!(said_as("text/html; charset=UTF-32", &little), "search …");
        assert_eq!(said_as("text/html; charset=\"utf-32BE\"", &big), "search …");
        assert_eq!(said_as("text/html", &[b"\xff\xfe\0\0", &little[..]].concat()), "search …");
        assert_eq!(said_as("text/html", &[b"\0\0\xfe\xff", &big[..]].concat()), "search …");
        let latin = [&b"<title>caf\xe9 \x83\x5c</title>"[..], b"<meta name=robots content=noindex></head>"].concat();
        for charset in ["iso-8859-1", "Shift_JIS", "windows-1252", "unknown"] {
            assert_eq!(said_as(&format!("text/html; charset={charset}"), &latin), "search");
        }
    }

    #[test]
    fn xhtml_is_read_as_xml() {
        let page = b"<html><head><script src='x'/><meta name='robots' content='noindex'/></head>";
        assert_eq!(said_as("application/xhtml+xml; charset=utf-8", page), "search …", "it is read as HTML, too");
        assert_eq!(said_as("text/html", page), "…", "in HTML nothing ends that script");
    }

    #[test]
    fn a_licence_and_terms_are_reported() {
        let page = b"<head><link rel='License next' href='https://a.example/l.xml'><link rel=stylesheet href=/s.css>\
            <meta name=tdm-reservation content=1><meta name=TDM-Policy content=https://a.example/p></head>";
        let head = PageHead::read(page, HTML, &[]);
        let to = Use { purposes: &[], product_tokens: &[], modes: UsageModes::default(), now: SystemTime::UNIX_EPOCH };
        let noted = UsageReport::of(&head.lines, 200, &to);
        assert_eq!(noted.licenses, [Box::from("https://a.example/l.xml")]);
        assert_eq!(noted.reserved_text().as_deref(), Some("meta tdm-reservation: 1, tdm-policy: https://a.example/p"));
        assert!(noted.malformed.is_empty());
    }

    #[test]
    fn so_many_tags_of_a_kind_are_read_and_no_more() {
        let page =
            format!("<head>{}<meta name=robots content=noindex></head>", "<meta name=robots content=all>".repeat(16));
        let head = PageHead::read(page.as_bytes(), HTML, &[]);
        let to = Use { purposes: &[], product_tokens: &[], modes: UsageModes::default(), now: SystemTime::UNIX_EPOCH };
        let noted = UsageReport::of(&head.lines, 200, &to);
        assert_eq!((noted.reserved.len(), noted.malformed.len()), (0, 1));
    }
}
