//! Tests of each finding: a file that has it, and files that nearly have it.

use super::*;
use crate::robots::ParseOptions;

/// The findings as `line:column+length code`, and ` -> line:column` for the related place.
fn find(file: &str) -> Vec<String> {
    find_for(file.as_bytes(), None)
}

fn find_for(file: &[u8], host: Option<&str>) -> Vec<String> {
    let report = LintReport::new(&RobotsTxt::parse(file), host);
    let shown = |found: &Finding| {
        let TextPlace { line, column, len } = found.place;
        let related = found.related.map(|related| format!(" -> {}:{}", related.place.line, related.place.column));
        format!("{line}:{column}+{len} {}{}", found.code, related.unwrap_or_default())
    };
    report.findings().iter().map(shown).collect()
}

#[test]
fn valid_file_has_no_findings() {
    for file in [
        "",
        "# only a comment",
        "User-agent: *\nDisallow:\n",
        "User-agent: *\nAllow: /a\nDisallow: /a/b\nDisallow: /*.pdf$\nCrawl-delay: 300\n\nUser-agent: FooBot\nUser-agent: \
         BarBot\nDisallow: /\n\nSitemap: https://example.com/a/sitemap.xml\n",
        "User-agent: FooBot\nCrawl-delay: 5\nContent-Signal: ai-train=no\n",
        "\u{feff}User-agent: *\r\nDisallow: /\u{fc}\r\n",
    ] {
        assert_eq!(find(file), [""; 0], "{file}");
    }
}

#[test]
fn the_parsers_warnings_are_findings() {
    for (file, expected) in [
        ("User-agent *\nDisallow: /", "1:11+1 missing-colon"),
        ("User-agent: *\n \tDisallow: /", "2:1+2 leading-space"),
        ("User-agent: *\nDisalow: /", "2:1+7 misspelt-key"),
        ("User-agent: *\nNoindex: /\nDisallow: /", "2:1+7 unknown-key"),
        ("Disallow: /", "1:1+8 rule-without-agent"),
        ("User-agent: *\nDisallow: /%4", "2:12+2 cut-escape"),
        ("User-agent: *\nDisallow: /%G1x", "2:12+3 bad-escape"),
        ("User-agent: *\nDisallow: x", "2:11+1 no-leading-slash"),
        ("User-agent: *\nCrawl-delay: NaN\nDisallow: /", "2:14+3 bad-delay"),
        ("User-agent: *\nRequest-rate: often\nDisallow: /", "2:15+5 bad-rate"),
        ("User-agent: *\nVisit-time: noon\nDisallow: /", "2:13+4 bad-visit-time"),
        ("User-agent: *\nContent-Usage: none\nDisallow: /", "2:16+4 usage-value"),
        ("User-agent: *\nContent-Usage: *.pdf train-ai=n\nDisallow: /", "2:16+16 bad-usage"),
        ("User-agent: *\nContent-Usage: ai-train=n\nDisallow: /", "2:16+10 usage-name"),
        ("User-agent: *\nContent-Signal: ai-train=n\nDisallow: /", "2:17+10 usage-value"),
        ("User-agent: Foo Bot\nDisallow: /", "1:13+7 agent-not-a-token"),
        ("User-agent:\nDisallow: /", "1:1+10 empty-agent"),
        ("# 1\nhello\nthere", "2:1+5 not-a-record"),
    ] {
        assert_eq!(find(file)[0], expected, "{file}");
    }
    assert_eq!(find("<!DOCTYPE html>\n")[0], "1:1+1 html");
}

#[test]
fn file_that_is_not_text_is_reported_as_such() {
    let rules = "User-agent: *\nDisallow: /";
    let utf16 = |bytes: fn(u16) -> [u8; 2], mark: &str| -> Vec<u8> {
        format!("{mark}{rules}").encode_utf16().flat_map(bytes).collect()
    };
    for file in [
        utf16(u16::to_le_bytes, "\u{feff}"),
        utf16(u16::to_be_bytes, "\u{feff}"),
        utf16(u16::to_le_bytes, ""),
        utf16(u16::to_be_bytes, ""),
    ] {
        assert_eq!(find_for(&file, None)[0], "1:1+1 utf-16", "{file:?}");
    }
    let utf32 = rules.chars().flat_map(|char| u32::from(char).to_le_bytes());
    assert_eq!(find_for(&utf32.collect::<Vec<_>>(), None)[0], "1:1+1 utf-16");
    let mixed = [rules.as_bytes(), &utf16(u16::to_le_bytes, "")].concat();
    assert_eq!(find_for(&mixed, None)[0], "1:1+1 unknown-encoding");
    assert_eq!(find_for(b"\x1f\x8b\x08\0\0\0\0\0\0\x03", None)[0], "1:1+1 compressed");
    for file in ["U\0", "\u{feff}User-agent: *", "\0\0\0\0", "a\0\0b"] {
        assert!(!find(file).iter().any(|found| found.ends_with("utf-16")), "{file:?}");
    }
}

#[test]
fn finding_describes_the_value_of_its_line() {
    for (line, message, hint) in [
        ("Crawl-delay: -2", "a negative delay", "write a decimal number"),
        ("Crawl-delay: nan", "not a finite number", "write a decimal number"),
        ("Crawl-delay: -Infinity", "not a finite number", "write a decimal number"),
        ("Crawl-delay:", "the delay has no value", "write a decimal number"),
        ("Crawl-delay: 10m", "a delay in a unit other than seconds", "write a decimal number"),
        ("Crawl-delay: 10 minutes", "read as 10 s: the unit is not understood", "write seconds"),
        ("Crawl-delay: 1:30", "read as 1 s: the unit is not understood", "write seconds"),
        ("Crawl-delay: soon", "not a number of seconds", "write a decimal number"),
        ("Dissallow: /", "misspelt key `Dissallow`", "write `Disallow`"),
        ("user agent: x", "misspelt key `user agent`", "write `User-agent`"),
    ] {
        let report = LintReport::new(&RobotsTxt::parse(format!("User-agent: *\n{line}\n").as_bytes()), None);
        let found = report.findings().iter().find(|found| found.place.line == 2).expect(line);
        assert_eq!(found.message, message);
        assert!(found.hint.starts_with(hint), "{line}: {}", found.hint);
    }
}

#[test]
fn delay_is_reported_exactly_if_the_parser_ignores_it() {
    for number in ["5", "0.5", "-1", "", "."] {
        for unit in ["", "s", " s", "m", " m", " minutes", "h", " hours", "d", " day", ":30", ", please", "x"] {
            let robots =
                RobotsTxt::parse(format!("User-agent: *\nCrawl-delay: {number}{unit}\nDisallow:\n").as_bytes());
            let has_bad = LintReport::new(&robots, None).findings().iter().any(|found| found.code == "bad-delay");
            assert_eq!(has_bad, robots.rules_for(&["Foo"]).crawl_delay().is_none(), "{number}{unit}");
        }
    }
}

#[test]
fn misleading_groups_are_reported() {
    for (file, expected) in [
        (
            "User-agent: a\nUser-agent: A/2\nDisallow: /",
            &["2:13+3 agent-not-a-token", "2:13+3 agent-twice -> 1:13"][..],
        ),
        ("User-agent: a\nDisallow: /\n\nUser-agent: a\nDisallow: /x", &["4:13+1 group-repeated -> 1:13"]),
        ("User-agent: *\nDisallow: /\n\nUser-agent: *\nDisallow: /x", &["4:13+1 group-repeated -> 1:13"]),
        ("User-agent: a\nDisallow: /\nUser-agent: b\nDisallow: /x", &["3:1+10 agent-after-rules -> 2:1"]),
        ("User-agent: a\nDisallow: /\n# b's\nUser-agent: b\nDisallow: /x", &[]),
        ("User-agent: a\nCrawl-delay: 5\nUser-agent: b\nDisallow: /x", &["3:13+1 agents-joined -> 1:13"]),
        ("User-agent: a\nSitemap: https://a.example/\nUser-agent: b\nDisallow: /x", &[]),
        ("User-agent: a\n\nUser-agent: b\n\n", &["1:13+1 no-rules"]),
        ("User-agent: a\nDisallow:\n", &[]),
        ("User-agent: google-extended\nCrawl-delay: 5\nDisallow: /x", &["2:1+11 pace-of-no-crawler -> 1:13"]),
        ("User-agent: Google-Extended\nUser-agent: a\nCrawl-delay: 5\nDisallow: /x", &[]),
    ] {
        assert_eq!(find(file), expected, "{file}");
    }
}

#[test]
fn rule_that_never_decides_names_the_deciding_one() {
    for (rules, expected) in [
        ("Disallow: /a\nDisallow: /a", &["3:11+2 same-rule-twice -> 2:11"][..]),
        ("Disallow: /%61\nDisallow: /a", &["3:11+2 same-when-decoded -> 2:11"]),
        ("Disallow: /\u{fc}\nDisallow: /%c3%bc", &["3:11+7 same-when-decoded -> 2:11"]),
        ("Disallow: /a\nAllow: /a", &["2:11+2 allowed-and-disallowed -> 3:8"]),
        ("Allow: /a\nDisallow: /a", &["3:11+2 allowed-and-disallowed -> 2:8"]),
        ("Disallow: /a\nAllow: /a*", &["2:11+2 never-decides -> 3:8"]),
        ("Disallow: /a*\nDisallow: /a*$", &["2:11+3 never-decides -> 3:11"]),
        ("Allow: /x.php\nDisallow: /*****.php", &["2:8+6 never-decides -> 3:11"]),
        ("Disallow: /foo\nAllow: */foo", &["2:11+4 never-decides -> 3:8"]),
        ("Disallow: *\nAllow: /*", &["2:11+1 never-decides -> 3:8"]),
        ("Disallow: *a\nAllow: /*a", &["2:11+2 never-decides -> 3:8"]),
        ("Disallow: /a*b$\nAllow: /*a***b", &["2:11+5 never-decides -> 3:8"]),
    ] {
        assert_eq!(find(&format!("User-agent: *\n{rules}\n")), expected, "{rules}");
    }
}

#[test]
fn rule_that_may_decide_is_not_reported() {
    for rules in [
        "Disallow: /\nAllow: /a",
        "Disallow: /a\nAllow: /a$",
        "Disallow: /a\nAllow: /a/*",
        "Disallow: /foo\nAllow: /*/foo",
        "Disallow: /*a\nAllow: /*a*b",
        // The star may match the slash itself.
        "Disallow: */a\nAllow: /*/a",
        "Disallow: /a\nDisallow: /%2561",
        "Disallow: /a\n\nUser-agent: b\nDisallow: /a*",
    ] {
        assert_eq!(find(&format!("User-agent: *\n{rules}\n")), [""; 0], "{rules}");
    }
}

#[test]
fn long_and_misread_delays_are_reported() {
    for (line, expected) in [
        ("Crawl-delay: 301", &["2:14+3 long-delay"][..]),
        ("Request-rate: 1/10m", &["2:15+5 long-delay"]),
        ("Crawl-delay: 1,5", &["2:14+3 decimal-comma"]),
        ("Crawl-delay: 1, 5", &[]),
        ("Crawl-delay: 1.5", &[]),
    ] {
        assert_eq!(find(&format!("User-agent: *\n{line}\n")), expected, "{line}");
    }
}

#[test]
fn unreachable_sitemaps_are_reported() {
    let blocked = "User-agent: *\nDisallow: /maps\nSitemap: https://Example.com/maps/1.xml\n";
    assert_eq!(find(blocked), ["3:10+30 sitemap-blocked -> 2:11"]);
    assert_eq!(find_for(blocked.as_bytes(), Some("example.com")), ["3:10+30 sitemap-blocked -> 2:11"]);
    assert_eq!(find_for(blocked.as_bytes(), Some("example.org")), [""; 0]);
    for (value, place) in [("/maps/1.xml", "1:10+11"), ("ftp://example.com/", "1:10+18"), ("", "1:1+7")] {
        assert_eq!(find(&format!("Sitemap: {value}\n")), [format!("{place} bad-sitemap")]);
    }
}

#[test]
fn columns_count_characters() {
    for (file, expected) in [
        (&b"\xEF\xBB\xBFDisallow: /"[..], "1:1+8 rule-without-agent"),
        (b"User-agent: *\r\nDisallow: /\xC3\xBC%zz\r\n", "2:13+3 bad-escape"),
        (b"User-agent: *\rDisallow:\t/%zz\r", "2:12+3 bad-escape"),
        (b"User-agent: *\nDisallow: /\xFF\xFE%zz", "2:14+3 bad-escape"),
        // A truncated character is one fault and one U+FFFD.
        (b"User-agent: *\nDisallow: /\xE2\x82%zz", "2:13+3 bad-escape"),
        (b"User-agent: *\nDisallow: /a\0Disallow: /%zz", "2:25+3 bad-escape"),
        (b"User-agent: *\nDisallow: /\xF0\x9F\x98\x80%", "2:13+1 cut-escape"),
    ] {
        let found = find_for(file, None);
        assert!(found.iter().any(|found| found == expected), "{}: {found:?}", file.escape_ascii());
    }
    let report = LintReport::new(&RobotsTxt::parse(b"\xEF\xBB\xBFa\r\nb\xFFc\rd"), None);
    assert_eq!([1, 2, 3, 4, 0].map(|line| report.line(line)), ["a", "b\u{FFFD}c", "d", "", ""]);
}

#[test]
fn overlong_file_and_line_are_reported_once() {
    let mut file = String::from("User-agent: *\n");
    while file.len() <= ParseOptions::MIN_SIZE {
        file += &format!("Disallow: /{}\n", file.len());
    }
    assert_eq!(find(&file), ["1:1+1 too-large"]);
    let long = format!("User-agent: *\nDisallow: /{}\n", "a".repeat(17_000));
    assert_eq!(find(&long), ["2:16385+1 long-line"]);
}

#[test]
fn number_of_findings_is_bounded() {
    let repeated = "Disallow: /a\n".repeat(3_000);
    for (faults, last) in [("", "1003:11+2 too-many"), (&*"nothing\n".repeat(3_000), "1002:1+7 too-many")] {
        let found = find(&format!("User-agent: *\n{faults}{repeated}"));
        assert_eq!((found.len(), found.last().map(String::as_str)), (1_001, Some(last)));
        assert_eq!(found.iter().filter(|found| found.contains("too-many")).count(), 1);
    }
}

/// The lint must not stall on half a megabyte of patterns that could all cover each other.
#[test]
fn comparison_of_patterns_is_bounded() {
    let file: String = (0..40_000).map(|n| format!("Disallow:*{n:x}*\n")).collect();
    assert!(find(&format!("User-agent:*\n{file}")).len() <= 1_001);
}

#[test]
fn licences_are_absolute_urls() {
    for (line, found) in [
        ("License: https://a.example/license.xml", None),
        ("License: relative.xml", Some("1:10+12 bad-license")),
        ("License: javascript:alert(1)", Some("1:10+19 bad-license")),
        ("License:", Some("1:1+7 bad-license")),
    ] {
        assert_eq!(find(&format!("{line}\n")), found.into_iter().collect::<Vec<_>>(), "{line}");
    }
}
