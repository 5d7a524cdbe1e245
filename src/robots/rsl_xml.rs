//! The elements of an RSL file as far as they are about uses, within bounds: no entity is expanded, and no element of another
//! namespace is looked into. Pure.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// A `content` element with the uses that all its licences list.
#[derive(Debug, Default)]
pub(super) struct RslContent {
    /// Its place in the file, from 1.
    pub number: u32,
    pub url: Box<str>,
    /// Separated by single spaces. `None`: there is no such element.
    pub permits: Option<Box<str>>,
    pub prohibits: Option<Box<str>>,
}

/// Those of a file, and what is wrong with the first that cannot be used.
pub(super) fn contents(bytes: &[u8]) -> (Vec<RslContent>, Option<Box<str>>) {
    let Ok(text) = str::from_utf8(bytes) else { return (Vec::new(), Some("it is not UTF-8".into())) };
    let mut walk = RslWalk::default();
    let fault = walk.read(text).err();
    // Of what was broken off nobody knows what the rest would have said.
    let contents = if fault.is_some() { Vec::new() } else { walk.done };
    (contents, fault.or(walk.fault))
}

#[derive(Default)]
struct RslWalk {
    /// That of the root, with its colon.
    prefix: String,
    level: Level,
    number: u32,
    now: RslContent,
    list: String,
    done: Vec<RslContent>,
    fault: Option<Box<str>>,
}

/// Which element is open.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Level {
    #[default]
    Document,
    Rsl,
    Content,
    License,
    Permits,
    Prohibits,
    /// The root has ended.
    End,
}

impl RslWalk {
    fn read(&mut self, text: &str) -> Result<(), Box<str>> {
        let mut reader = Reader::from_str(text);
        let invalid = |error: quick_xml::Error| Box::<str>::from(format!("it is not XML: {error}"));
        loop {
            match reader.read_event().map_err(invalid)? {
                Event::Start(element) => match self.level_in(&element)? {
                    Some(level) => self.begin(level, &element),
                    None => _ = reader.read_to_end(element.name()).map_err(invalid)?,
                },
                Event::Empty(element) => {
                    if let Some(level) = self.level_in(&element)? {
                        self.begin(level, &element);
                        self.end();
                    }
                }
                Event::End(_) => self.end(),
                Event::Text(text) => self.take(&text),
                Event::CData(text) => self.take(&text),
                Event::Eof if self.level == Level::End => return Ok(()),
                Event::Eof => return Err("it ends before its root does".into()),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) | Event::GeneralRef(_) => {}
            }
        }
    }

    /// The level that this element opens. `None`: it is passed over, with all that is in it.
    fn level_in(&mut self, element: &BytesStart<'_>) -> Result<Option<Level>, Box<str>> {
        let name = element.name().into_inner();
        if self.level == Level::Document {
            let prefix = name.strip_suffix("rsl").unwrap_or(name);
            let declared = match prefix.strip_suffix(':') {
                Some(prefix) => format!("xmlns:{prefix}"),
                None => "xmlns".to_owned(),
            };
            let is_root = name == "rsl" || prefix.ends_with(':');
            if !is_root || attribute(element, &declared).as_deref() != Some(NAMESPACE) {
                return Err(format!("its root is not `rsl` in the namespace {NAMESPACE}").into());
            }
            prefix.clone_into(&mut self.prefix);
            return Ok(Some(Level::Rsl));
        }
        let Some(name) = name.strip_prefix(&*self.prefix) else { return Ok(None) };
        let is_foreign = self.prefix.is_empty() && attribute(element, "xmlns").is_some_and(|other| other != NAMESPACE);
        let is_of_uses = || attribute(element, "type").as_deref() == Some("usage");
        Ok(match (self.level, name) {
            _ if is_foreign => None,
            (Level::Rsl, "content") if self.done.len() == MOST_CONTENTS => {
                self.number += 1;
                self.wrong("it and those behind it are not read: there are too many");
                None
            }
            (Level::Rsl, "content") => Some(Level::Content),
            (Level::Content, "license") => Some(Level::License),
            (Level::License, "permits") if is_of_uses() => Some(Level::Permits),
            (Level::License, "prohibits") if is_of_uses() => Some(Level::Prohibits),
            _ => None,
        })
    }

    fn begin(&mut self, level: Level, element: &BytesStart<'_>) {
        self.level = level;
        if level == Level::Content {
            self.number += 1;
            let url = attribute(element, "url").unwrap_or_default();
            self.now = RslContent { number: self.number, url: url.trim().into(), ..RslContent::default() };
        }
        self.list.clear();
    }

    fn end(&mut self) {
        self.level = match self.level {
            Level::Permits => {
                let list = joined(self.now.permits.take(), &self.list);
                self.now.permits = self.bounded(list);
                Level::License
            }
            Level::Prohibits => {
                let list = joined(self.now.prohibits.take(), &self.list);
                self.now.prohibits = self.bounded(list);
                Level::License
            }
            Level::License => Level::Content,
            Level::Content => {
                let content = std::mem::take(&mut self.now);
                match content.url.len() > LONGEST || content.url.contains(char::is_control) {
                    true => self.wrong("its `url` is no URL"),
                    false => self.done.push(content),
                }
                Level::Rsl
            }
            Level::Rsl | Level::Document | Level::End => Level::End,
        };
    }

    /// As much of a list as there can be names in it.
    fn take(&mut self, text: &str) {
        if matches!(self.level, Level::Permits | Level::Prohibits) && self.list.len() <= LONGEST {
            self.list.push_str(text);
        }
    }

    fn bounded(&mut self, list: String) -> Option<Box<str>> {
        if list.len() > LONGEST {
            self.wrong("its list of uses is too long");
            return None;
        }
        Some(list.into())
    }

    fn wrong(&mut self, what: &str) {
        self.fault.get_or_insert_with(|| format!("content {}: {what}", self.number).into());
    }
}

/// The names in both lists.
fn joined(before: Option<Box<str>>, list: &str) -> String {
    let names = list.split(|c: char| c == ',' || c.is_ascii_whitespace()).filter(|name| !name.is_empty());
    let mut all = before.map(String::from).unwrap_or_default();
    for name in names {
        if !all.is_empty() {
            all.push(' ');
        }
        all.push_str(name);
    }
    all
}

/// Its value; one with an entity that XML does not have of itself, as it is written.
/// The value of the attribute with this name, without character references.
pub fn attribute<'a>(element: &'a BytesStart<'_>, name: &str) -> Option<Cow<'a, str>> {
    let mut attributes = element.attributes();
    let mut all = attributes.with_checks(false).flatten();
    let found = all.find(|attribute| attribute.key.into_inner() == name)?.value;
    match quick_xml::escape::unescape(&found) {
        Ok(value) => Some(Cow::Owned(value.into_owned())),
        Err(_) => Some(found),
    }
}

const NAMESPACE: &str = "https://rslstandard.org/rsl";
/// A whole site's terms in one file have some dozens.
const MOST_CONTENTS: usize = 1000;
/// Bytes of a `url`, and of a list of uses.
const LONGEST: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str) -> String {
        let (contents, fault) = contents(file.as_bytes());
        let list = |list: &Option<Box<str>>| list.as_deref().unwrap_or("?").to_owned();
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
    fn the_namespace_makes_the_file_and_others_are_passed_over() {
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
    fn what_is_broken_says_nothing() {
        for (file, fault) in [
            ("", "it ends before its root does"),
            ("no XML", "it ends before its root does"),
            ("<rsl xmlns='https://rslstandard.org/rsl'><content url='/'>", "it ends before its root does"),
        ] {
            assert_eq!(read(file), format!("({fault})"), "{file}");
        }
        assert!(in_root("<content url='/'></license>").starts_with("(it is not XML: "));
        assert_eq!(super::contents(b"<rsl>\xff").1.as_deref(), Some("it is not UTF-8"));
    }

    #[test]
    fn entities_of_a_document_type_are_not_expanded() {
        let bomb = format!(
            "<!DOCTYPE rsl [<!ENTITY a \"search\"><!ENTITY b \"&a;&a;&a;\">]><rsl xmlns='{NAMESPACE}'>\
             <content url='/&b;'><license><permits type='usage'>&b; ai-input</permits></license></content></rsl>"
        );
        assert_eq!(read(&bomb), "1 /&b; +ai-input -?");
    }

    #[test]
    fn it_is_bounded() {
        let many = "<content url='/'/>".repeat(MOST_CONTENTS + 5);
        let read = in_root(&many);
        assert!(read.ends_with("; (content 1001: it and those behind it are not read: there are too many)"), "{read}");
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(in_root(&format!("<content url='/{long}'/>")), "(content 1: its `url` is no URL)");
        let list = format!("<content url='/'><license><permits type='usage'>{long}</permits></license></content>");
        assert_eq!(in_root(&list), "1 / +? -?; (content 1: its list of uses is too long)");
        let deep = format!("{}{}", "<a>".repeat(50_000), "</a>".repeat(50_000));
        assert_eq!(in_root(&deep), "");
        let attributes: String = (0..50_000).map(|number| format!(" a{number}='x'")).collect();
        assert_eq!(in_root(&format!("<content{attributes} url='/'/>")), "1 / +? -?");
    }
}
