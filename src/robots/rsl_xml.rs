//! Reads the elements of an RSL file that are about uses, within limits. Does not expand entities of the document, and skips elements of
//! other namespaces. Pure.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};

use super::parse::encoding::{Encoding, detect};
use super::steps;

/// A `content` element, with the uses that its licences list, combined.
#[derive(Debug, Default)]
pub(super) struct RslContent {
    /// Number of the element in the file, from 1.
    pub number: u32,
    pub url: Box<str>,
    /// The permitted uses, separated by single spaces. `None`: there is no `permits` element.
    pub permits: Option<String>,
    pub prohibits: Option<String>,
}

/// The `content` elements of a file, and the fault of the first unusable element.
pub(super) type RslContents = (Vec<RslContent>, Option<Box<str>>);

/// Reads the `content` elements of a file. An error means that nothing of the file is understood.
pub(super) fn contents(bytes: &[u8]) -> Result<RslContents, Box<str>> {
    let mut walk = RslWalk::default();
    walk.read(&text(bytes)?)?;
    Ok((walk.done, walk.fault))
}

/// Decodes UTF-8, UTF-16 or UTF-32. In any other encoding, each byte becomes one character, which is right for names of elements and uses,
/// as these are ASCII.
fn text(bytes: &[u8]) -> Result<Cow<'_, str>, Box<str>> {
    Ok(match (detect(bytes, false), str::from_utf8(bytes)) {
        (Encoding::Bytes, Ok(text)) => text.into(),
        (Encoding::Bytes, Err(_)) => bytes.iter().map(|byte| char::from(*byte)).collect::<String>().into(),
        (Encoding::Wide(bytes), _) => String::from_utf8_lossy(&bytes).trim_start_matches('\u{feff}').to_owned().into(),
        (Encoding::Unknown, _) => return Err("its encoding is unknown".into()),
    })
}

#[derive(Default)]
struct RslWalk {
    /// The namespace prefix of the root element, with its colon.
    prefix: String,
    level: Level,
    number: u32,
    now: RslContent,
    list: String,
    done: Vec<RslContent>,
    fault: Option<Box<str>>,
}

/// The innermost open element.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Level {
    #[default]
    Document,
    Rsl,
    Content,
    License,
    Permits,
    Prohibits,
    /// After the end of the root element.
    End,
}

impl RslWalk {
    fn read(&mut self, text: &str) -> Result<(), Box<str>> {
        let mut reader = Reader::from_str(text);
        let invalid = |error: quick_xml::Error| Box::<str>::from(format!("it is not XML: {error}"));
        loop {
            match reader.read_event().map_err(invalid)? {
                Event::Start(element) => match self.level_in(&element)? {
                    Some(level) => self.begin(level, &element)?,
                    None => _ = reader.read_to_end(element.name()).map_err(invalid)?,
                },
                Event::Empty(element) => {
                    if let Some(level) = self.level_in(&element)? {
                        self.begin(level, &element)?;
                        self.end();
                    }
                }
                Event::End(_) => self.end(),
                Event::Text(text) => self.take(&text),
                Event::CData(text) => self.take(&text),
                Event::Eof if self.level == Level::End => return Ok(()),
                Event::Eof => return Err("its root element is missing or not closed".into()),
                Event::GeneralRef(reference) => self.take(&resolved(&reference)?),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
            }
        }
    }

    /// The level that this element opens. `None`: the element and its content are skipped.
    fn level_in(&mut self, element: &BytesStart<'_>) -> Result<Option<Level>, Box<str>> {
        let name = element.name().into_inner();
        if self.level == Level::Document {
            let prefix = name.strip_suffix("rsl").unwrap_or(name);
            let declared = match prefix.strip_suffix(':') {
                Some(prefix) => format!("xmlns:{prefix}"),
                None => "xmlns".to_owned(),
            };
            let is_root = name == "rsl" || prefix.ends_with(':');
            if !is_root || known_attribute(element, &declared)?.as_deref() != Some(NAMESPACE) {
                return Err(format!("its root is not `rsl` in the namespace {NAMESPACE}").into());
            }
            prefix.clone_into(&mut self.prefix);
            return Ok(Some(Level::Rsl));
        }
        let Some(name) = name.strip_prefix(&*self.prefix) else { return Ok(None) };
        let namespace = known_attribute(element, "xmlns")?.filter(|_| self.prefix.is_empty());
        let is_foreign = namespace.is_some_and(|other| other != NAMESPACE);
        let is_of_uses = known_attribute(element, "type")?.as_deref() == Some("usage");
        Ok(match (self.level, name) {
            _ if is_foreign => None,
            (Level::Rsl, "content") if self.done.len() == MOST_CONTENTS => {
                return Err(format!("it has more than {MOST_CONTENTS} `content` elements").into());
            }
            (Level::Rsl, "content") => Some(Level::Content),
            (Level::Content, "license") => Some(Level::License),
            (Level::License, "permits") if is_of_uses => Some(Level::Permits),
            (Level::License, "prohibits") if is_of_uses => Some(Level::Prohibits),
            _ => None,
        })
    }

    fn begin(&mut self, level: Level, element: &BytesStart<'_>) -> Result<(), Box<str>> {
        self.level = level;
        if level == Level::Content {
            self.number += 1;
            let url = known_attribute(element, "url")?.unwrap_or_default();
            self.now = RslContent { number: self.number, url: url.trim().into(), ..RslContent::default() };
        }
        self.list.clear();
        Ok(())
    }

    fn end(&mut self) {
        self.level = match self.level {
            Level::Permits => {
                add_names(&self.list, self.now.permits.get_or_insert_default());
                Level::License
            }
            Level::Prohibits => {
                add_names(&self.list, self.now.prohibits.get_or_insert_default());
                Level::License
            }
            Level::License => Level::Content,
            Level::Content => {
                let mut content = std::mem::take(&mut self.now);
                [&mut content.permits, &mut content.prohibits].into_iter().flatten().for_each(String::shrink_to_fit);
                match content.url.len() > LONGEST || content.url.contains(char::is_control) {
                    true => self.note_fault("its `url` is not a URL"),
                    false => self.done.push(content),
                }
                Level::Rsl
            }
            Level::Rsl | Level::Document | Level::End => Level::End,
        };
    }

    fn take(&mut self, text: &str) {
        if matches!(self.level, Level::Permits | Level::Prohibits) {
            self.list.push_str(text);
        }
    }

    fn note_fault(&mut self, what: &str) {
        self.fault.get_or_insert_with(|| format!("content {}: {what}", self.number).into());
    }
}

/// Appends the names of a list to `all`, separated by single spaces.
fn add_names(list: &str, all: &mut String) {
    steps::count(list.len());
    for name in list.split(|c: char| c == ',' || c.is_ascii_whitespace()).filter(|name| !name.is_empty()) {
        if !all.is_empty() {
            all.push(' ');
        }
        all.push_str(name);
    }
}

/// The text of a character reference or a predefined entity. Any other entity is an error.
fn resolved(reference: &BytesRef<'_>) -> Result<Cow<'static, str>, Box<str>> {
    let invalid = |error: quick_xml::Error| Box::<str>::from(format!("it is not XML: {error}"));
    match reference.resolve_char_ref().map_err(invalid)? {
        Some(char) => Ok(char.to_string().into()),
        None => resolve_predefined_entity(reference).map(Cow::from).ok_or_else(|| {
            format!("its entity `{}` is not supported", reference.chars().take(40).collect::<String>()).into()
        }),
    }
}

/// The value of an attribute with its references resolved. An entity that XML does not predefine is an error.
fn known_attribute<'a>(element: &'a BytesStart<'_>, name: &str) -> Result<Option<Cow<'a, str>>, Box<str>> {
    let value = raw_attribute(element, name);
    let unescape = |value: Cow<'a, str>| quick_xml::escape::unescape(&value).map(|value| value.into_owned().into());
    value.map(unescape).transpose().map_err(|error| format!("the attribute `{name}` of an element: {error}").into())
}

/// The value of an attribute with its references resolved, or as written if it has an entity that XML does not predefine.
pub fn attribute<'a>(element: &'a BytesStart<'_>, name: &str) -> Option<Cow<'a, str>> {
    known_attribute(element, name).unwrap_or_else(|_| raw_attribute(element, name))
}

fn raw_attribute<'a>(element: &'a BytesStart<'_>, name: &str) -> Option<Cow<'a, str>> {
    let mut attributes = element.attributes();
    let mut all = attributes.with_checks(false).flatten();
    Some(all.find(|attribute| attribute.key.into_inner() == name)?.value)
}

const NAMESPACE: &str = "https://rslstandard.org/rsl";
/// Maximum number of `content` elements in a file. A file with the terms of a whole site has some dozens.
const MOST_CONTENTS: usize = 1000;
/// Longest `url`, in bytes.
const LONGEST: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str) -> String {
        let (contents, fault) = contents(file.as_bytes()).unwrap_or_else(|why| (Vec::new(), Some(why)));
        let list = |list: &Option<String>| list.as_deref().unwrap_or("?").to_owned();
        let one = |it: &RslContent| format!("{} {} +{} -{}", it.number, it.url, list(&it.permits), list(&it.prohibits));
        let all: Vec<_> = contents.iter().map(one).chain(fault.map(|fault| format!("({fault})"))).collect();
        all.join("; ")
    }

    fn in_root(inside: &str) -> String {
        read(&format!(r#"<?xml version="1.0"?><rsl xmlns="{NAMESPACE}" max-age="7">{inside}</rsl>"#))
    }

    #[test]
    fn only_elements_about_uses_are_read() {
        let file = in_root(
            r#"<!-- a --><content url="/" server="https://l.example" lastmod="2026-10-01T00:00:00Z">
                <license><permits type="usage">search
                    ai-input</permits><permits type="user">personal</permits>
                  <prohibits type="usage"><![CDATA[ai-train]]></prohibits><payment type="attribution"/></license>
                <license><prohibits type="usage">x</prohibits><prohibits>y</prohibits></license>
                <copyright><license><permits type="usage">all</permits></license></copyright></content>
              <content url="/b"/><permits type="usage">all</permits>"#,
        );
        assert_eq!(file, "1 / +search ai-input -ai-train x; 2 /b +? -?");
    }

    #[test]
    fn only_elements_in_the_rsl_namespace_are_read() {
        let inside = |prefix: &str| {
            format!(
                "<{prefix}content url='/'><{prefix}license><{prefix}permits type='usage'>all</{prefix}permits></{prefix}license></{prefix}content>"
            )
        };
        let own = format!("<r:rsl xmlns:r='{NAMESPACE}'>{}{}</r:rsl>", inside("r:"), inside(""));
        assert_eq!(read(&own), "1 / +all -?");
        assert_eq!(in_root(&inside("x:")), "");
        assert_eq!(in_root("<content url='/a' xmlns='urn:x'><license/></content>"), "");
        let root = format!("(its root is not `rsl` in the namespace {NAMESPACE})");
        for file in ["<rsl/>", "<rsl xmlns='urn:x'></rsl>", "<html></html>", "<xrsl/>", "<r:rsl xmlns='urn:x'/>"] {
            assert_eq!(read(file), root, "{file}");
        }
    }

    #[test]
    fn malformed_file_has_no_content() {
        for (file, fault) in [
            ("", "its root element is missing or not closed"),
            ("no XML", "its root element is missing or not closed"),
            ("<rsl xmlns='https://rslstandard.org/rsl'><content url='/'>", "its root element is missing or not closed"),
        ] {
            assert_eq!(read(file), format!("({fault})"), "{file}");
        }
        assert!(in_root("<content url='/'></license>").starts_with("(it is not XML: "));
        let mixed = [&b"<rsl>"[..], b"<\0r\0s\0l\0>\0"].concat();
        assert!(super::contents(&mixed).is_err());
    }

    #[test]
    fn entities_of_a_document_type_are_not_expanded() {
        let bomb = format!(
            "<!DOCTYPE rsl [<!ENTITY a \"search\"><!ENTITY b \"&a;&a;&a;\">]><rsl xmlns='{NAMESPACE}'>\
             <content url='/&b;'><license><permits type='usage'>&b; ai-input</permits></license></content></rsl>"
        );
        let why = "the attribute `url` of an element: ";
        assert!(read(&bomb).contains(why), "{}", read(&bomb));
        let list = bomb.replace("url='/&b;'", "url='/'");
        assert_eq!(read(&list), "(its entity `b` is not supported)");
        assert_eq!(
            read(&list.replace("&b; ai", "&#x61;i&#45;train&amp;&lt;&apos; ai")),
            "1 / +ai-train&<' ai-input -?"
        );
        let elements = list.replace("<content", "&b;<content").replace("&b; ai", "ai");
        assert_eq!(read(&elements), "(its entity `b` is not supported)", "the entity may contain any element");
        assert_eq!(
            in_root("<other>&b;</other><content url='/'/>"),
            "1 / +? -?",
            "the element is skipped, with its entity"
        );
    }

    #[test]
    fn number_and_length_of_elements_are_bounded() {
        let many = "<content url='/'/>".repeat(MOST_CONTENTS + 5);
        let read = in_root(&many);
        assert_eq!(read, "(it has more than 1000 `content` elements)");
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(in_root(&format!("<content url='/{long}'/>")), "(content 1: its `url` is not a URL)");
        let list = format!("<content url='/'><license><permits type='usage'>{long}</permits></license></content>");
        assert_eq!(in_root(&list), format!("1 / +{long} -?"));
        let deep = format!("{}{}", "<a>".repeat(50_000), "</a>".repeat(50_000));
        assert_eq!(in_root(&deep), "");
        let attributes: String = (0..50_000).map(|number| format!(" a{number}='x'")).collect();
        assert_eq!(in_root(&format!("<content{attributes} url='/'/>")), "1 / +? -?");
    }
}
