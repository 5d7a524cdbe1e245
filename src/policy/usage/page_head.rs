//! Whether all of a page's head has come, and whether clients that run scripts read the page otherwise, by its tags. Pure.

/// What the tags of a page tell, read as by a client that runs no scripts.
#[derive(Default)]
pub(super) struct HeadSeen {
    pub has_come: bool,
    /// Bytes that were read. `None`: all.
    pub read: Option<usize>,
    has_noscript: bool,
    /// End tags of `noscript`.
    noscript_ends: usize,
    // Open `template` and `noscript` elements, in which tags neither end the head nor begin the body.
    templates: usize,
    noscripts: usize,
    /// Behind a doctype or `</head>`, and in no `<head>`.
    is_outside: bool,
}

impl HeadSeen {
    /// In HTML both tags of a head may be left out: it ends where something begins that belongs into none ("the in head insertion mode"),
    /// as Google reads it too. In a `<head>` that is misplaced, and a head goes on; so it does where warnings stand before the doctype.
    pub fn doctype(&mut self) {
        self.is_outside = true;
    }

    /// Behind `</head>`, what belongs into a head still goes there, until the body begins (HTML, "the after head insertion mode").
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

    /// Whether a client that runs scripts, which reads no tags in `noscript`, sees tags that others do not: not where each end of one is
    /// the end for all.
    pub fn differs_with_scripts(&self, text: &[u8]) -> bool {
        let text = self.read.and_then(|read| text.get(..read)).unwrap_or(text);
        let is_end = |at: &usize| text[*at..].get(..END.len()).is_some_and(|it| it.eq_ignore_ascii_case(END));
        self.has_noscript && memchr::memchr_iter(b'<', text).filter(is_end).count() != self.noscript_ends
    }
}

pub(super) const NOSCRIPT: &[u8] = b"noscript";
const END: &[u8] = b"</noscript";
