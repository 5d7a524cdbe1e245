//! Finds out from the tags of a page whether all of its head has been received, and whether clients that run scripts see other tags. Pure.

/// The state of a page's tags, read as by a client that runs no scripts.
#[derive(Default)]
pub(super) struct HeadSeen {
    /// Whether all of the head has been read.
    pub has_come: bool,
    /// Number of bytes that were read. `None`: all.
    pub read: Option<usize>,
    has_noscript: bool,
    /// Number of end tags of `noscript`.
    noscript_ends: usize,
    /// Number of open `template` elements, in which tags neither end the head nor begin the body.
    templates: usize,
    /// Number of open `noscript` elements, in which tags have no such effect either.
    noscripts: usize,
    /// Whether a doctype or `</head>` has been read, and no `<head>` since.
    is_outside: bool,
}

impl HeadSeen {
    /// Takes a doctype. A page may omit `<head>` and `</head>`: its head then ends before the first element that does not belong in a head
    /// (HTML, "the in head insertion mode"; Google does the same). Such an element does not end the head inside an explicit `<head>`, where
    /// it is misplaced, or before the doctype, where servers print warnings.
    pub fn doctype(&mut self) {
        self.is_outside = true;
    }

    /// Takes a start tag. After `</head>`, elements that belong in a head still go there, until the body begins (HTML, "the after head
    /// insertion mode").
    pub fn start(&mut self, tag: &[u8]) {
        match tag {
            b"template" => self.templates += 1,
            NOSCRIPT => {
                self.has_noscript = true;
                self.noscripts += 1;
            }
            _ if self.templates + self.noscripts > 0 => {}
            b"body" | b"frameset" => self.has_come = true,
            b"head" => self.is_outside = false,
            b"html" | b"base" | b"basefont" | b"bgsound" | b"link" | b"meta" | b"noframes" | b"script" | b"style"
            | b"title" => {}
            _ => self.has_come |= self.is_outside,
        }
    }

    pub fn end(&mut self, tag: &[u8]) {
        self.noscript_ends += usize::from(tag == NOSCRIPT);
        match tag {
            b"template" => self.templates = self.templates.saturating_sub(1),
            NOSCRIPT => self.noscripts = self.noscripts.saturating_sub(1),
            _ => self.is_outside |= tag == b"head" && self.templates + self.noscripts == 0,
        }
    }

    /// Whether clients that run scripts may see other tags, as they treat `noscript` as text that ends at `</noscript`. They see the same
    /// tags if each `</noscript` is an end tag for other clients too.
    pub fn differs_with_scripts(&self, text: &[u8]) -> bool {
        let text = self.read.and_then(|read| text.get(..read)).unwrap_or(text);
        let is_end = |at: &usize| text[*at..].get(..END.len()).is_some_and(|it| it.eq_ignore_ascii_case(END));
        self.has_noscript && memchr::memchr_iter(b'<', text).filter(is_end).count() != self.noscript_ends
    }
}

pub(super) const NOSCRIPT: &[u8] = b"noscript";
const END: &[u8] = b"</noscript";
