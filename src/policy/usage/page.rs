//! What a page says about its use: `<meta name="robots">` and those with a crawler's own name (draft-illyes-repext-03, Google),
//! `<meta name="tdm-reservation">` and `<meta name="tdm-policy">` (W3C TDMRep), `<link rel="license">` (RSL 1.0). They belong into its
//! head, and count wherever they stand, as search engines have it. Pure.

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

/// Whether some client may take an answer for a page. `content_type`: its lines, joined. Types that are missing, unknown or malformed are
/// guessed from the content (WHATWG MIME Sniffing §7). Parts of a page (RFC 9110 §14.6) are read as one.
pub fn is_page(content_type: &[u8]) -> bool {
    let mut types = content_type.split(|byte| *byte == b',').map(media_type).filter(|kind| !kind.is_empty()).peekable();
    types.peek().is_none() || types.any(|kind| may_be_page(&kind.to_ascii_lowercase()))
}

/// What a Content-Type names, without its parameters; it has no case (RFC 9110 §8.3.1).
pub fn media_type(content_type: &[u8]) -> &[u8] {
    content_type.split(|byte| matches!(byte, b';' | b',')).next().unwrap_or_default().trim_ascii()
}

/// `kind`: in lower case.
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

/// What a page says in each of the ways in which some client may read it. `texts`: without its content codings, or some of them.
/// `content_type`: as its answer has it. `product_tokens`: whose rules are wanted besides those for everybody.
pub fn read_page(texts: &[&[u8]], content_type: &[u8], product_tokens: &[ProductToken]) -> UsageLines {
    let is_xml = memchr::memmem::find(&content_type.to_ascii_lowercase(), b"xml").is_some();
    let mut lines = UsageLines::default();
    for page in texts {
        for text in in_encodings(&page[..page.len().min(LONGEST_HEAD)]) {
            // Browsers, which run scripts, read no tags in `noscript`, and so may see one behind what looks like its end.
            if PageReading::new(&mut lines, product_tokens).html(&text, false) {
                PageReading::new(&mut lines, product_tokens).html(&text, true);
            }
            if is_xml {
                PageReading::new(&mut lines, product_tokens).xml(&text);
            }
        }
    }
    lines
}

/// Whether all of the page's head has come, however a client reads it. `texts`, `content_type`: as for [`read_page`]. XML and the parts
/// of a page are read up to their bound.
pub fn has_head(texts: &[&[u8]], content_type: &[u8]) -> bool {
    let is_html = media_type(content_type).eq_ignore_ascii_case(b"text/html") && !content_type.contains(&b',');
    is_html && texts.iter().all(|page| in_encodings(page).iter().all(|text| ends_head(text)))
}

/// Behind `</head>`, what belongs into a head still goes there, until the body begins (HTML, "the after head insertion mode").
fn ends_head(text: &[u8]) -> bool {
    // In these, tags neither end the head nor begin the body.
    let (mut templates, mut noscripts, mut is_behind) = (0_usize, 0_usize, false);
    !walk(text, false, |token| {
        match token {
            Token::StartTag(tag) if *tag.name == b"template"[..] => templates += 1,
            Token::StartTag(tag) if *tag.name == NOSCRIPT[..] => noscripts += 1,
            Token::EndTag(tag) if *tag.name == b"template"[..] => templates = templates.saturating_sub(1),
            Token::EndTag(tag) if *tag.name == NOSCRIPT[..] => noscripts = noscripts.saturating_sub(1),
            _ if templates + noscripts > 0 => {}
            Token::EndTag(tag) => is_behind |= *tag.name == b"head"[..],
            Token::StartTag(tag) => match &tag.name[..] {
                b"body" | b"frameset" => return false,
                b"html" | b"head" | b"base" | b"basefont" | b"bgsound" | b"link" | b"meta" | b"noframes"
                | b"script" | b"style" | b"title" => {}
                _ => return !is_behind,
            },
            _ => {}
        }
        true
    })
}

/// Shows `each` the tokens of a page, as long as it wants more. Whether it does at the end.
fn walk(text: &[u8], scripts: bool, mut each: impl FnMut(&Token) -> bool) -> bool {
    let mut tokens = Tokenizer::new(text);
    while let Some(Ok(token)) = tokens.next() {
        if !each(&token) {
            return false;
        }
        if let Token::StartTag(tag) = token {
            let state = match &tag.name[..] {
                b"noframes" => naive_next_state(b"style"),
                // Crawlers run no scripts, so that they see what is in it.
                NOSCRIPT if !scripts => None,
                name => naive_next_state(name),
            };
            state.into_iter().for_each(|state| tokens.set_state(state));
        }
    }
    true
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

    /// `scripts`: whether they run. Returns whether that makes a difference.
    fn html(mut self, text: &[u8], scripts: bool) -> bool {
        let mut has_noscript = false;
        walk(text, scripts, |token| {
            if let Token::StartTag(tag) = token {
                has_noscript |= *tag.name == NOSCRIPT[..];
                self.tag(&tag.name, |name| {
                    let value = tag.attributes.get(&HtmlString(name.as_bytes().to_vec()))?;
                    Some(value.value.trim_ascii().to_vec())
                });
            }
            true
        });
        self.end();
        has_noscript
    }

    /// In XML the content of `script` and `title` is markup like others, `<script/>` is all of it, and names may have a prefix. Up to
    /// where it is ill-formed.
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

/// The page in each encoding in which a client may read it. Marks and labels say different things to different clients, but markup in
/// UTF-16 and UTF-32 has zeros, and ISO-2022-JP has escapes before characters that look like markup; all other encodings that are in use
/// write names and rules as ASCII does.
fn in_encodings(page: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let mut texts = vec![Cow::from(page)];
    if memchr::memchr(0, page).is_some() {
        texts.push(wide(page, |unit| u16::from_le_bytes(unit).into()).into());
        texts.push(wide(page, |unit| u16::from_be_bytes(unit).into()).into());
        texts.push(wide(page, u32::from_le_bytes).into());
        texts.push(wide(page, u32::from_be_bytes).into());
    }
    if memchr::memchr(ESCAPE, page).is_some() {
        texts.push(without_jis(page).into());
    }
    texts
}

/// Without the characters of two bytes in ISO-2022-JP (RFC 1468).
fn without_jis(page: &[u8]) -> Vec<u8> {
    let (mut rest, mut is_wide, mut text) = (page, false, Vec::with_capacity(page.len()));
    while let Some((byte, more)) = rest.split_first() {
        match rest {
            [ESCAPE, b'$', b'@' | b'B', more @ ..] => (rest, is_wide) = (more, true),
            [ESCAPE, b'(', b'B' | b'J' | b'I', more @ ..] => (rest, is_wide) = (more, false),
            _ => {
                text.extend((!is_wide).then_some(byte));
                rest = more;
            }
        }
    }
    text
}

/// Units of so many bytes as UTF-8, but for pairs of them.
fn wide<const N: usize>(page: &[u8], read: fn([u8; N]) -> u32) -> Vec<u8> {
    let char = |unit: &[u8; N]| char::from_u32(read(*unit)).unwrap_or(char::REPLACEMENT_CHARACTER);
    page.as_chunks().0.iter().map(char).collect::<String>().into_bytes()
}

const ESCAPE: u8 = 0x1b;
const NOSCRIPT: &[u8] = b"noscript";
/// Besides letters and digits, in a token (RFC 9110 §5.6.2).
const MARKS: &[u8] = b"!#$%&'*+-.^_`|~";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{UsageModes, UsageReport, Use};
    use crate::robots::Purpose;
    use std::time::{Duration, SystemTime};

    /// What a page says no to, for ExampleBot.
    fn said_as(content_type: &str, page: &[u8]) -> String {
        let product_tokens = [ProductToken::parse("ExampleBot").unwrap()];
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_323_200);
        let lines = read_page(&[page], content_type.as_bytes(), &product_tokens);
        let mut said: Vec<_> =
            ["search", "ai-train", "ai-input", "tdm"].map(|name| Purpose::parse(name).unwrap()).into();
        said.retain(|purpose| {
            let purposes = std::slice::from_ref(purpose);
            let to = Use { purposes, product_tokens: &product_tokens, modes: UsageModes::default(), now };
            lines.reservation(&to).is_some()
        });
        said.iter().map(Purpose::as_str).collect::<Vec<_>>().join(" ")
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

    /// In its head, behind that, and in its body: Google takes a robots tag from wherever it stands.
    #[test]
    fn it_is_read_up_to_its_bound() {
        let tag = "<meta name=robots content=noindex>";
        for before in ["", "<head></head>", "<body><p>", "<html><frameset>", "<template></head>", "<noscript><body>"] {
            assert_eq!(said(&format!("{before}{tag}")), "search", "{before}");
            let far = format!("{before}{}{tag}", " ".repeat(LONGEST_HEAD));
            assert_eq!(said(&far), "", "no more of a page is read");
        }
    }

    /// All of it, however it is read.
    #[test]
    fn a_head_has_come_where_its_end_has() {
        let has = |kind: &str, page: &str| has_head(&[page.as_bytes()], kind.as_bytes());
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
                assert!(!has("text/html", &format!("\0{page}")), "it may be in UTF-16");
            }
        }
        assert!(!has_head(&[b"<head></head>", b"<head>"], b"text/html"), "in one of two codings");
    }

    #[test]
    fn what_has_not_come_says_nothing() {
        let page = "<!doctype html><head><meta name=robots content=noindex></head>";
        let end = page.len() - "></head>".len();
        for at in 0..page.len() {
            assert_eq!(said(&page[..at]), if at > end { "search" } else { "" }, "{}", &page[..at]);
        }
    }

    /// WHATWG MIME Sniffing §5.1, §7: what browsers show as a document with elements, or guess.
    #[test]
    fn what_some_client_may_take_for_a_page_is_one() {
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
        assert_eq!(said_as("text/html", page), "", "in HTML nothing ends that script");
    }

    #[test]
    fn a_licence_and_terms_are_reported() {
        let page = b"<head><link rel='License next' href='https://a.example/l.xml'><link rel=stylesheet href=/s.css>\
            <meta name=tdm-reservation content=1><meta name=TDM-Policy content=https://a.example/p></head>";
        let lines = read_page(&[page], b"text/html", &[]);
        let to = Use { purposes: &[], product_tokens: &[], modes: UsageModes::default(), now: SystemTime::UNIX_EPOCH };
        let noted = UsageReport::of(&lines, 200, &to);
        assert_eq!(noted.licenses, [Box::from("https://a.example/l.xml")]);
        assert_eq!(noted.reserved_text().as_deref(), Some("meta tdm-reservation: 1, tdm-policy: https://a.example/p"));
        assert!(noted.malformed.is_empty());
    }

    #[test]
    fn all_tags_are_read_and_some_are_reported() {
        let many = "<meta name=robots content=all>".repeat(1000) + &"<meta name=robots content=noindex>".repeat(1000);
        assert_eq!(said(&many), "search");
        let lines = read_page(&[many.as_bytes()], b"text/html", &[]);
        let to = Use { purposes: &[], product_tokens: &[], modes: UsageModes::default(), now: SystemTime::UNIX_EPOCH };
        assert_eq!(UsageReport::of(&lines, 200, &to).reserved.len(), 1);
    }
}
