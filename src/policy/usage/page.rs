//! What the head of a page says about its use: `<meta name="robots">` and those with a crawler's own name (draft-illyes-repext-03,
//! Google), `<meta name="tdm-reservation">` and `<meta name="tdm-policy">` (W3C TDMRep), `<link rel="license">` (RSL 1.0). Pure.

use super::answer::UsageLines;
use super::field::UsageField;
use super::offer::RSL;
use crate::robots::ProductToken;
use html5gum::{HtmlString, StartTag, Token, Tokenizer, naive_next_state};
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
    /// Whether a media type is of pages that are read.
    pub fn is_of(media_type: &[u8]) -> bool {
        [HTML, XHTML].iter().any(|kind| kind.eq_ignore_ascii_case(media_type))
    }

    /// Reads a page up to `</head>` or `<body`. `content_type`: as its answer has it; its charset matters for UTF-16 alone, as all others
    /// that are in use write names and rules as ASCII does. `product_tokens`: whose rules are wanted besides those for everybody.
    pub fn read(page: &[u8], content_type: &[u8], product_tokens: &[ProductToken]) -> Self {
        let page = &page[..page.len().min(LONGEST_HEAD)];
        let text = ascii_compatible(page, content_type);
        // In XML the content of `script` and `title` is markup like others, and `<script/>` is all of it.
        let is_xml = content_type.get(..XHTML.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(XHTML));
        let (mut head, mut policy) = (Self::default(), None);
        // In a template, tags neither end the head nor begin the body.
        let mut templates = 0_usize;
        let mut tokens = Tokenizer::new(&text[..]);
        while let Some(Ok(token)) = tokens.next().filter(|_| !head.is_whole) {
            match token {
                Token::StartTag(tag) => {
                    match &tag.name[..] {
                        b"meta" => head.meta(&tag, product_tokens, &mut policy),
                        b"link" => head.link(&tag),
                        b"template" => templates += 1,
                        b"body" | b"frameset" => head.is_whole = templates == 0,
                        _ => {}
                    }
                    // Crawlers run no scripts, so that they see what is in `noscript`.
                    let is_text = !is_xml && *tag.name != b"noscript"[..];
                    if let Some(state) = naive_next_state(&tag.name).filter(|_| is_text) {
                        tokens.set_state(state);
                    }
                }
                Token::EndTag(tag) => match &tag.name[..] {
                    b"template" => templates = templates.saturating_sub(1),
                    b"head" => head.is_whole = templates == 0,
                    _ => {}
                },
                _ => {}
            }
        }
        if let Some(policy) = policy {
            head.lines.add_policy(&policy);
        }
        head.is_whole |= page.len() == LONGEST_HEAD;
        head
    }

    fn meta(&mut self, tag: &StartTag<()>, product_tokens: &[ProductToken], policy: &mut Option<Vec<u8>>) {
        let (Some(name), Some(content)) = (attribute(tag, b"name"), attribute(tag, b"content")) else { return };
        let is_own = |token: &ProductToken| token.as_str().as_bytes().eq_ignore_ascii_case(name);
        match name.to_ascii_lowercase().as_slice() {
            b"robots" => self.lines.add(UsageField::MetaRobots, content),
            b"tdm-reservation" => self.lines.add(UsageField::MetaTdm, content),
            b"tdm-policy" => *policy = Some(content.to_owned()),
            _ if product_tokens.iter().any(is_own) => {
                self.lines.add(UsageField::MetaRobots, &[name, b": ", content].concat());
            }
            _ => {}
        }
    }

    fn link(&mut self, tag: &StartTag<()>) {
        let (Some(relation), Some(target)) = (attribute(tag, b"rel"), attribute(tag, b"href")) else { return };
        let mut words = relation.split(u8::is_ascii_whitespace);
        if words.any(|word| word.eq_ignore_ascii_case(b"license")) {
            let is_rsl = attribute(tag, b"type").is_some_and(|kind| kind.eq_ignore_ascii_case(RSL.as_bytes()));
            let media_type = if is_rsl { &b"; type=\"application/rsl+xml\""[..] } else { b"" };
            self.lines.take(b"link", &[b"<", target, b">; rel=license", media_type].concat());
        }
    }
}

/// Without the space around it.
fn attribute<'a>(tag: &'a StartTag<()>, name: &[u8]) -> Option<&'a [u8]> {
    tag.attributes.get(&HtmlString(name.to_vec())).map(|value| value.value.trim_ascii())
}

/// UTF-16 and UTF-32 as UTF-8, by the page's mark or the charset of its Content-Type; anything else as it is.
fn ascii_compatible<'a>(page: &'a [u8], content_type: &[u8]) -> Cow<'a, [u8]> {
    let content_type = content_type.to_ascii_lowercase();
    let is_said = |charset: &[u8]| memchr::memmem::find(&content_type, charset).is_some();
    let (is_32, is_big) = match page {
        [0xFF, 0xFE, 0, 0, ..] => (true, false),
        [0, 0, 0xFE, 0xFF, ..] => (true, true),
        [0xFE, 0xFF, ..] => (false, true),
        [0xFF, 0xFE, ..] => (false, false),
        [0xEF, 0xBB, 0xBF, ..] => return page.into(),
        _ if is_said(b"charset=utf-32") || is_said(b"charset=\"utf-32") => (true, is_said(b"utf-32be")),
        _ if is_said(b"charset=utf-16") || is_said(b"charset=\"utf-16") => (false, is_said(b"utf-16be")),
        _ => return page.into(),
    };
    let text: String = if is_32 {
        let read = if is_big { u32::from_be_bytes } else { u32::from_le_bytes };
        page.as_chunks()
            .0
            .iter()
            .map(|unit| char::from_u32(read(*unit)).unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect()
    } else {
        let read = if is_big { u16::from_be_bytes } else { u16::from_le_bytes };
        let units = page.as_chunks().0.iter().map(|unit| read(*unit));
        char::decode_utf16(units).map(|it| it.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    text.into_bytes().into()
}

const HTML: &[u8] = b"text/html";
const XHTML: &[u8] = b"application/xhtml+xml";

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
        let latin = [&b"<title>caf\xe9 \x83\x5c</title>"[..], b"<meta name=robots content=noindex></head>"].concat();
        for charset in ["iso-8859-1", "Shift_JIS", "windows-1252", "unknown"] {
            assert_eq!(said_as(&format!("text/html; charset={charset}"), &latin), "search");
        }
    }

    #[test]
    fn xhtml_is_read_as_xml() {
        let page = b"<html><head><script src='x'/><meta name='robots' content='noindex'/></head>";
        assert_eq!(said_as("application/xhtml+xml; charset=utf-8", page), "search");
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
