//! The kinds of warnings about a robots.txt, with their texts. `lint` finds them. Pure.

/// The severity of a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Some or all crawlers do not read the text as written.
    Error,
    /// Crawlers read the text as written, but it probably means something else.
    Warning,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// A place in a file: a piece of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TextPlace {
    /// Line number, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Length in characters, at least 1.
    pub len: u32,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $severity:ident $code:literal, $message:literal, $hint:literal;)*) => {
        /// The kinds of warnings. `as_str` gives the stable name that reports use.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum WarningCode {
            $($(#[$doc])* $name,)*
        }

        impl WarningCode {
            pub const ALL: &[WarningCode] = &[$(WarningCode::$name,)*];

            /// The stable name, such as `unknown-key`.
            pub fn as_str(self) -> &'static str {
                match self { $(WarningCode::$name => $code,)* }
            }

            pub fn message(self) -> &'static str {
                match self { $(WarningCode::$name => $message,)* }
            }

            pub fn hint(self) -> &'static str {
                match self { $(WarningCode::$name => $hint,)* }
            }

            pub fn severity(self) -> Severity {
                match self { $(WarningCode::$name => Severity::$severity,)* }
            }
        }
    };
}

codes! {
    /// The file was longer than `max_size`.
    TooLarge = Error "too-large", "the file is longer than crawlers have to read", "keep it under 500 KiB; the rest is ignored";
    /// A line of more than 16 KiB.
    LongLine = Error "long-line", "the line is longer than 16 KiB", "the rest of the line is ignored; split it";
    /// The body is an HTML page.
    Html = Error "html", "this is HTML, not a robots.txt", "serve plain text, or status 404 if there is no robots.txt";
    /// The body is UTF-16 or UTF-32: NULs stand between letters, at the places where these encodings have them.
    Utf16 = Error "utf-16", "this is UTF-16 or UTF-32", "save it as UTF-8 (RFC 9309 §2.3); most crawlers read it as UTF-8 and find no rule";
    /// NULs stand between letters, but not as in one encoding: at other places, or only in a part of the file.
    UnknownEncoding = Error "unknown-encoding", "this is in more than one encoding, or in an unknown one", "save it as UTF-8 (RFC 9309 §2.3); crawlers cannot read its rules";
    /// The body is compressed, but the answer has no `Content-Encoding`.
    Compressed = Error "compressed", "this is compressed (gzip)", "send `Content-Encoding: gzip` with it, or serve it uncompressed; crawlers find no rule in it";
    /// A NUL byte within a line.
    Nul = Error "nul", "a NUL byte ends the line", "remove it; the file may be UTF-16, save it as UTF-8";
    /// Text that is not a record at all.
    NotARecord = Error "not-a-record", "the line has no colon", "write `key: value`, or begin a comment with `#`";
    /// White space in place of the colon.
    MissingColon = Error "missing-colon", "the colon is missing", "write `key: value`; few crawlers read it as meant";
    /// A key that neither RFC 9309 nor a known extension defines.
    UnknownKey = Warning "unknown-key", "unknown key", "the line is ignored";
    /// A misspelt key that was understood.
    MisspeltKey = Error "misspelt-key", "misspelt key", "few crawlers read it as meant";
    /// White space before the key.
    LeadingSpace = Warning "leading-space", "white space before the key", "begin the line with its key";
    /// A rule before the first `User-agent` line.
    RuleWithoutAgent = Error "rule-without-agent", "the rule belongs to no user agent", "put `User-agent: *` before it";
    /// `User-agent` without a value.
    EmptyAgent = Error "empty-agent", "the user agent has no name", "name a product token, or `*` for all";
    /// A name that is not a product token.
    AgentNotAToken = Warning "agent-not-a-token", "not a product token", "only letters, `_` and `-` count (RFC 9309 §2.2.1); the name ends at the first other character";
    /// A path that begins with neither `/` nor `*`.
    NoLeadingSlash = Error "no-leading-slash", "the path does not begin with `/`", "it never matches; begin it with `/` or `*`";
    /// `%` without two hexadecimal digits.
    BadEscape = Warning "bad-escape", "`%` is not followed by two hexadecimal digits", "write `%25` for a percent sign";
    /// `%` at the end of the path, or before one digit only.
    CutEscape = Warning "cut-escape", "the escape is cut short", "write `%` and two hexadecimal digits, or `%25` for a percent sign";
    /// Bytes that are not UTF-8.
    NotUtf8 = Warning "not-utf-8", "not UTF-8", "save the file as UTF-8; the bytes are kept as they are";
    /// A crawl delay that is not a number of seconds.
    BadDelay = Error "bad-delay", "not a number of seconds", "write a decimal number such as `Crawl-delay: 2.5`; the line is ignored";
    /// A request rate that is not `requests/time`.
    BadRate = Error "bad-rate", "not a request rate", "write requests per time such as `Request-rate: 1/10s`; the line is ignored";
    /// A visit time that is not `hhmm-hhmm`.
    BadVisitTime = Error "bad-visit-time", "not a range of times", "write UTC times such as `Visit-time: 0600-0845`; the line is ignored";
    /// A usage line without a preference.
    BadUsage = Error "bad-usage", "no preference can be read", "write `Content-Usage: / train-ai=n` (`y` or `n`) or `Content-Signal: ai-train=no` (`yes` or `no`), with commas between several; the preference stays unknown";
    /// A use with a value that its vocabulary does not have.
    UsageValue = Error "usage-value", "a preference with an unknown value", "Content-Usage has `y` and `n`, Content-Signal `yes` and `no`; the preference stays unknown";
    /// A use that is named as in the other vocabulary.
    UsageName = Error "usage-name", "the other vocabulary's name for a use", "Content-Usage says `train-ai` and `ai-use`, Content-Signal `ai-train` and `ai-input`; the preference is ignored";
    /// There are more warnings than are kept.
    TooMany = Warning "too-many", "there are more warnings", "they are not listed";
}
