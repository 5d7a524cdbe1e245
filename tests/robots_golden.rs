//! Each rule of RFC 9309 §2.2, each extension and each dialect by one small file and what it makes of a path. A golden line
//! is `agent path => verdict @line`; `@usage line` where a preference decided. No line: nothing decided.

use politely::robots::{ParseOptions, Precedence, Purpose, RobotsTxt, UserAgentMatch};
use std::time::Duration;

/// Checks golden lines against a file read in a dialect.
#[track_caller]
fn read(options: &ParseOptions, file: &str, golden: &[&str]) {
    let robots = RobotsTxt::parse_with(file.as_bytes(), options);
    for line in golden {
        let (question, _) = line.split_once(" => ").expect("a golden line");
        let (agent, path) = question.split_once(' ').expect("an agent and a path");
        let rules = robots.rules_for(&agent.split(',').collect::<Vec<_>>());
        let verdict = rules.check(path);
        let word = if verdict.is_allowed() { "allow" } else { "disallow" };
        let place = verdict.rule().map_or(String::new(), |rule| format!(" @{}", rule.line()));
        assert_eq!(format!("{question} => {word}{place}"), *line, "\n{file}");
    }
}

/// Checks with the default options: RFC 9309 and the customary extensions.
#[track_caller]
fn rfc(file: &str, golden: &[&str]) {
    read(&ParseOptions::default(), file, golden);
}

/// With one switch turned.
fn with(turn: impl FnOnce(&mut ParseOptions)) -> ParseOptions {
    let mut options = ParseOptions::default();
    turn(&mut options);
    options
}

// RFC 9309 §2.2: the grammar.

#[test]
fn rfc_lines_end_at_lf_cr_and_crlf() {
    for end in ["\n", "\r", "\r\n"] {
        rfc(
            &format!("User-agent: *{end}{end}Disallow: /a{end}Allow: /a/b"),
            &["Foo /a => disallow @3", "Foo /a/b => allow @4"],
        );
    }
}

#[test]
fn rfc_comments_and_white_space_are_stripped_from_values() {
    rfc(
        "# User-agent: *\nUser-agent :\t* # all\n  Disallow: /a \t# b\nDisallow:/c#d\n",
        &["Foo /a => disallow @3", "Foo /b => allow", "Foo /c => disallow @4"],
    );
}

#[test]
fn rfc_keys_ignore_case_but_paths_do_not() {
    rfc("USER-AGENT: fOO\ndisALLOW: /A\n", &["Foo /A => disallow @2", "FOO /a => allow"]);
}

#[test]
fn rfc_byte_order_mark_is_skipped() {
    rfc("\u{feff}User-agent: *\nDisallow: /\n", &["Foo / => disallow @2"]);
}

/// The keys decide the encoding.
#[test]
fn file_with_the_byte_order_mark_of_another_encoding_keeps_its_rules() {
    for mark in [&b"\xff\xfe"[..], b"\xfe\xff", b"\xff\xfe\0\0", b"\0\0\xfe\xff", b"\xef\xbb", b"\xef\xbb\xbf"] {
        for text in
            ["User-agent: *\nDisallow: /x", "# a\nUser-agent: *\nDisallow: /x", "# ab\nUser-agent: *\nDisallow: /x"]
        {
            for end in ["\n", "\0", "\0\n"] {
                let file = [mark, text.as_bytes(), end.as_bytes()].concat();
                let robots = RobotsTxt::parse(&file);
                let verdict = robots.rules_for(&["Foo"]).check("/x").is_allowed();
                assert!(!verdict && !robots.is_unreadable(), "{}", file.escape_ascii());
            }
        }
    }
}

#[test]
fn utf16_file_is_decoded_and_keeps_its_line_numbers() {
    let text = "\u{feff}User-agent: *\r\n\r\nDisallow: /caf\u{e9}\r\nSitemap: https://example.com/\u{1f5fa}\r\n";
    for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
        let file: Vec<u8> = text.encode_utf16().flat_map(bytes).collect();
        let robots = RobotsTxt::parse(&file);
        let rules = robots.rules_for(&["Foo"]);
        let verdict = rules.check("/caf%C3%A9/x");
        let rule = verdict.rule().expect("it was read");
        assert_eq!((verdict.is_allowed(), rule.line(), rule.pattern()), (false, 3, "/caf\u{e9}"));
        assert_eq!(robots.sitemaps().collect::<Vec<_>>(), ["https://example.com/\u{1f5fa}"]);
        assert_eq!(robots.source(), text.as_bytes());
        let warned: Vec<_> = robots.warnings().map(|found| (found.place.line, found.code)).collect();
        assert_eq!(warned, [(1, "utf-16")]);
        // The stored copy is parsed again after a restart.
        assert!(!RobotsTxt::parse(robots.source()).rules_for(&["Foo"]).check("/caf%C3%A9/x").is_allowed());
    }
}

/// The limit of 500 KiB counts bytes as sent; decoded, they may be half as many again.
#[test]
fn size_limit_of_utf16_files_counts_encoded_bytes() {
    let lines = |letter: char, count| {
        format!("User-agent: *\n#{}\nDisallow: /late\nDisallow: /later", letter.to_string().repeat(count))
    };
    for (letter, count, reads_it) in
        [('x', 255_900, true), ('x', 256_000, false), ('\u{4e2d}', 255_900, true), ('\u{4e2d}', 256_000, false)]
    {
        let file: Vec<u8> =
            format!("\u{feff}{}", lines(letter, count)).encode_utf16().flat_map(u16::to_le_bytes).collect();
        let robots = RobotsTxt::parse(&file);
        assert_eq!(!robots.rules_for(&["Foo"]).check("/late").is_allowed(), reads_it, "{count} of {letter}");
        assert!(robots.source().len() <= ParseOptions::MIN_SIZE / 2 * 3);
    }
}

#[test]
fn rfc_unknown_keys_do_not_end_a_group() {
    rfc("User-agent: a\nNoindex: /x\nUser-agent: b\nDisallow: /\n", &["a / => disallow @4", "b / => disallow @4"]);
}

#[test]
fn rfc_other_records_do_not_end_a_group() {
    for record in ["Sitemap: https://example.com/s", "Crawl-delay: 5", "Host: example.com", "Clean-param: s /"] {
        rfc(
            &format!("User-agent: a\n{record}\nUser-agent: b\n{record}\nDisallow: /\n"),
            &["a / => disallow @5", "b / => disallow @5"],
        );
    }
}

// §2.2.1: the user-agent line.

#[test]
fn rfc_consecutive_user_agents_share_their_rules() {
    rfc(
        "User-agent: a\nUser-agent: b\nDisallow: /x\n\nUser-agent: c\nDisallow: /y\n",
        &["a /x => disallow @3", "b /x => disallow @3", "c /x => allow", "c /y => disallow @6", "d /x => allow"],
    );
}

#[test]
fn rfc_groups_of_the_same_agent_are_merged() {
    rfc(
        "User-agent: a\nDisallow: /x\n\nUser-agent: *\nDisallow: /\n\nUser-agent: A\nDisallow: /y\n",
        &["a /x => disallow @2", "a /y => disallow @8", "a /z => allow", "b /z => disallow @5"],
    );
}

#[test]
fn rfc_all_star_groups_are_merged() {
    rfc(
        "User-agent: *\nDisallow: /x\n\nUser-agent: *\nDisallow: /y\n",
        &["a /x => disallow @2", "a /y => disallow @5"],
    );
}

#[test]
fn rfc_everything_is_allowed_without_a_matching_group() {
    rfc("User-agent: a\nDisallow: /\n", &["b / => allow"]);
    rfc("", &["b / => allow"]);
}

#[test]
fn rfc_group_naming_the_agent_replaces_the_star_group() {
    rfc("User-agent: *\nDisallow: /\n\nUser-agent: a\nCrawl-delay: 1\n", &["a / => allow", "b / => disallow @2"]);
}

#[test]
fn rfc_rules_before_any_user_agent_are_ignored() {
    rfc("Disallow: /\nUser-agent: *\nDisallow: /x\n", &["a / => allow", "a /x => disallow @3"]);
}

#[test]
fn rfc_product_tokens_match_whole_and_ignore_case() {
    rfc("User-agent: FooBot\nDisallow: /\n", &["foobot / => disallow @2", "Foo / => allow", "FooBotNews / => allow"]);
}

#[test]
fn product_token_ends_at_the_first_invalid_character() {
    rfc(
        "User-agent: Foo/1.2\nDisallow: /x\n\nUser-agent: Bar Baz\nDisallow: /y\n",
        &["Foo /x => disallow @2", "Bar /y => disallow @5", "Baz /y => allow"],
    );
}

#[test]
fn names_with_other_characters_are_compared_as_written() {
    rfc(
        "User-agent: 360Spider\nDisallow: /x\n\nUser-agent: Mail.Ru\nDisallow: /y\n",
        &["360spider /x => disallow @2", "mail.ru /y => disallow @5", "Mail /y => disallow @5", "Spider /x => allow"],
    );
}

#[test]
fn crawler_with_several_tokens_obeys_the_groups_of_each() {
    rfc(
        "User-agent: a\nDisallow: /x\n\nUser-agent: b\nDisallow: /y\n\nUser-agent: *\nDisallow: /\n",
        &["a,b /x => disallow @2", "a,b /y => disallow @5", "a,b /z => allow", "c,d /z => disallow @8"],
    );
}

// §2.2.2: allow and disallow.

#[test]
fn rfc_longest_match_wins_in_any_order() {
    for (file, line) in [("Allow: /a/b\nDisallow: /a", 2), ("Disallow: /a\nAllow: /a/b", 3)] {
        let golden = [format!("Foo /a/b => allow @{line}"), format!("Foo /a => disallow @{}", 5 - line)];
        rfc(&format!("User-agent: *\n{file}\n"), &[&golden[0], &golden[1]]);
    }
}

#[test]
fn rfc_allow_wins_among_rules_of_equal_length() {
    rfc("User-agent: *\nDisallow: /a\nAllow: /a\n", &["Foo /a => allow @3"]);
    rfc("User-agent: *\nAllow: /*b\nDisallow: /ab\n", &["Foo /ab => allow @2"]);
}

#[test]
fn first_of_equal_rules_is_reported() {
    rfc("User-agent: *\nDisallow: /a\nDisallow: /a\n", &["Foo /a => disallow @2"]);
}

#[test]
fn rfc_rules_match_prefixes_of_paths() {
    rfc(
        "User-agent: *\nDisallow: /fish\n",
        &[
            "Foo /fish => disallow @2",
            "Foo /fishheads/yummy.html => disallow @2",
            "Foo /fish.php?id=anything => disallow @2",
            "Foo /catfish => allow",
            "Foo /?id=fish => allow",
        ],
    );
}

#[test]
fn rfc_empty_path_is_not_a_rule() {
    rfc("User-agent: *\nDisallow:\nAllow:\nDisallow: /x\n", &["Foo / => allow", "Foo /x => disallow @4"]);
}

#[test]
fn rfc_robots_txt_itself_is_allowed() {
    rfc("User-agent: *\nDisallow: /\n", &["Foo /robots.txt => allow", "Foo /robots.txt?x => disallow @2"]);
}

#[test]
fn rfc_only_escaped_unreserved_characters_are_compared_decoded() {
    rfc(
        "User-agent: *\nDisallow: /%7Ejoe\nDisallow: /f%6f%6F\nDisallow: /\u{30c4}\nDisallow: /b%2fr\n",
        &[
            "Foo /~joe => disallow @2",
            "Foo /%7ejoe => disallow @2",
            "Foo /foo => disallow @3",
            "Foo /%E3%83%84 => disallow @4",
            "Foo /%e3%83%84 => disallow @4",
            "Foo /\u{30c4} => disallow @4",
            "Foo /b%2Fr => disallow @5",
            "Foo /b/r => allow",
        ],
    );
}

#[test]
fn characters_invalid_in_urls_are_compared_as_their_escapes() {
    rfc(
        "User-agent: *\nDisallow: /a<b\nDisallow: /c d\nDisallow: /e%22\n",
        &["Foo /a%3Cb => disallow @2", "Foo /c%20d => disallow @3", "Foo /e\" => disallow @4", "Foo /e => allow"],
    );
}

#[test]
fn percent_sign_without_two_hex_digits_is_literal() {
    rfc(
        "User-agent: *\nDisallow: /50%\nDisallow: /%zz\n",
        &["Foo /50%off => disallow @2", "Foo /%zz => disallow @3", "Foo /50 => allow"],
    );
}

#[test]
fn dot_segments_do_not_bypass_rules() {
    rfc(
        "User-agent: *\nDisallow: /private\nAllow: /private/open\n",
        &[
            "Foo /x/../private => disallow @2",
            "Foo /x/%2e%2E/private => disallow @2",
            "Foo /./private => disallow @2",
            "Foo /private/open/../shut => disallow @2",
            "Foo /private/open/./x => allow @3",
        ],
    );
}

#[test]
fn absolute_urls_are_judged_by_path_and_query() {
    rfc(
        "User-agent: *\nDisallow: /a?b\n",
        &[
            "Foo https://example.com/a?b#c => disallow @2",
            "Foo http://user@example.com:8080/a => allow",
            "Foo https://example.com => allow",
        ],
    );
}

// §2.2.3: special characters.

#[test]
fn rfc_star_matches_any_bytes() {
    rfc(
        "User-agent: *\nDisallow: /*.php\nDisallow: /a*b*c\n",
        &[
            "Foo /x/y.php?z => disallow @2",
            "Foo /.php => disallow @2",
            "Foo /abc => disallow @3",
            "Foo /a/b/c/d => disallow @3",
            "Foo /acb => allow",
            "Foo /x.PHP => allow",
        ],
    );
}

#[test]
fn rfc_dollar_is_an_anchor_only_at_the_end_of_a_pattern() {
    rfc(
        "User-agent: *\nDisallow: /*.php$\nDisallow: /a$b\n",
        &[
            "Foo /x.php => disallow @2",
            "Foo /x.php?z => allow",
            "Foo /x.php.php => disallow @2",
            "Foo /a$b => disallow @3",
            "Foo /a => allow",
        ],
    );
}

#[test]
fn rfc_escaped_star_and_dollar_are_literals() {
    rfc(
        "User-agent: *\nDisallow: /a%2Ab\nDisallow: /c%24\n",
        &[
            "Foo /a*b => disallow @2",
            "Foo /a%2ab => disallow @2",
            "Foo /axb => allow",
            "Foo /c$d => disallow @3",
            "Foo /c => allow",
        ],
    );
}

#[test]
fn star_and_dollar_count_towards_pattern_length() {
    rfc(
        "User-agent: *\nAllow: /a\nDisallow: /a*\nDisallow: /b\nAllow: /b$\n",
        &["Foo /a => disallow @3", "Foo /b => allow @5", "Foo /bc => disallow @4"],
    );
}

// §2.2.4 and the extensions.

#[test]
fn rfc_sitemap_lines_apply_to_the_file_and_not_to_a_group() {
    let robots =
        RobotsTxt::parse(b"Sitemap: https://a.example/1\nUser-agent: a\nSite-map: https://a.example/2\nDisallow: /\n");
    assert_eq!(robots.sitemaps().collect::<Vec<_>>(), ["https://a.example/1", "https://a.example/2"]);
}

#[test]
fn largest_crawl_delay_of_an_agents_groups_applies() {
    let file = "User-agent: a\nCrawl-delay: 2\nCrawl-delay: 0.5\n\nUser-agent: b\nRequest-rate: 1/10s\nCrawl-delay: 3s\n\n\
                User-agent: a\nCrawl-delay: 4\nCrawl-delay: -9\nCrawl-delay: NaN\n";
    let delay = |agent| RobotsTxt::parse(file.as_bytes()).rules_for(&[agent]).crawl_delay();
    assert_eq!(["a", "b", "c"].map(delay), [Some(Duration::from_secs(4)), Some(Duration::from_secs(10)), None]);
}

#[test]
fn crawl_delay_before_any_user_agent_applies_to_agents_without_their_own() {
    let file = "Crawl-delay: 7\nUser-agent: a\nCrawl-delay: 1\n\nUser-agent: b\nDisallow: /x\n";
    let delay = |options: &ParseOptions, agent| {
        let robots = RobotsTxt::parse_with(file.as_bytes(), options);
        robots.rules_for(&[agent]).crawl_delay().map(|delay| delay.as_secs())
    };
    let all = ["a", "b", "c"];
    assert_eq!(all.map(|agent| delay(&ParseOptions::default(), agent)), [Some(1), Some(7), Some(7)]);
    assert_eq!(all.map(|agent| delay(&ParseOptions::texting_robots(), agent)), [Some(1), Some(7), Some(7)]);
    assert_eq!(all.map(|agent| delay(&ParseOptions::crawler_commons(), agent)), [Some(1), None, None]);
}

#[test]
fn usage_preferences_refuse_only_declared_purposes() {
    let file = "User-agent: *\nContent-Signal: search=yes, ai-input=no\nContent-Usage: /art train-ai=n\nContent-Usage: \
                /art/free train-ai=y\nDisallow: /private\n\nUser-agent: b\nAllow: /\n";
    for (purposes, golden) in [
        ("", "a /art => allow"),
        ("search", "a /art => allow"),
        ("ai-train", "a /art => disallow @usage 3"),
        ("search ai-train", "a /x/../art => disallow @usage 3"),
        ("ai-train", "a /art/free => allow"),
        ("ai-input", "a /art/free => disallow @usage 2"),
        ("ai-train", "a /private => disallow @5"),
        ("ai-input", "a /robots.txt => allow"),
        ("ai-input", "b /art => allow @8"),
    ] {
        for_purposes(purposes, file, golden);
    }
}

/// `AGENT PATH => allow @LINE`, where some uses are declared.
fn for_purposes(purposes: &str, file: &str, golden: &str) {
    let purposes: Vec<_> = purposes.split_whitespace().map(|name| Purpose::parse(name).unwrap()).collect();
    let (question, _) = golden.split_once(" => ").unwrap();
    let (agent, path) = question.split_once(' ').unwrap();
    let rules = RobotsTxt::parse(file.as_bytes()).rules_for(&[agent]);
    let verdict = rules.check_for(path, &purposes);
    let word = if verdict.is_allowed() { "allow" } else { "disallow" };
    let place = match (verdict.preference(), verdict.rule()) {
        (Some(preference), _) => format!(" @usage {}", preference.line()),
        (None, rule) => rule.map_or(String::new(), |rule| format!(" @{}", rule.line())),
    };
    assert_eq!(format!("{question} => {word}{place}"), golden, "{purposes:?}");
}

/// draft-ietf-aipref-attach, "Content-Usage Rule Semantics" and "Processing Content-Usage Rules", line by line: for which
/// paths a crawler that trains models is refused.
#[test]
fn longest_path_decides_among_content_usage_rules() {
    for (lines, golden) in [
        // The draft's own example.
        ("Content-Usage: train-ai=n\nContent-Usage: /ai-ok/ train-ai=y", "/test @2, /ai-ok/, /ai-ok @2"),
        // The longest path decides for all uses: what it does not mention is unknown.
        ("Content-Usage: train-ai=n\nContent-Usage: /x search=n", "/ @2, /x"),
        ("Content-Usage: /x search=n\nContent-Usage: train-ai=n", "/ @3, /x"),
        // The longest path in bytes counts, and wildcards work as in rules.
        (
            "Content-Usage: /*.pdf$ train-ai=n\nContent-Usage: /docs/ train-ai=y",
            "/a.pdf @2, /docs/a.pdf @2, /docs/, /a.pdf?x",
        ),
        // All lines with the same path apply, in any spelling, and a refusal wins.
        ("Content-Usage: /x train-ai=y\nContent-Usage: /x train-ai=n\nContent-Usage: /x train-ai=y", "/x @3"),
        ("Content-Usage: /%c3%bc train-ai=n\nContent-Usage: /\u{fc} train-ai=y", "/%C3%BC @2, /\u{fc} @2"),
        ("Content-Usage: / search=n\nContent-Usage: train-ai=n", "/a @3"),
        // On one line the last of a key counts.
        ("Content-Usage: train-ai=n, train-ai=y", "/a"),
        // An invalid line is unknown, also with a longer path.
        ("Content-Usage: train-ai=n\nContent-Usage: /x nonsense!", "/a @2, /x"),
        // SP and HTAB around the key and the path, and a comment.
        (" \tcontent-usage\t : \t/x\t \ttrain-ai=n # why", "/x @2, /y"),
        // An empty path counts as no path.
        ("Content-Usage:    train-ai=n", "/ @2"),
        // A disallowed path has no preference: the rule decides.
        ("Disallow: /never/\nContent-Usage: train-ai=n", "/never/ @rule 2, /a @3"),
        // Both languages hold.
        ("Content-Signal: ai-train=yes\nContent-Usage: train-ai=n", "/a @3"),
        ("Content-Signal: search=yes,ai-train=no,use=reference\nContent-Usage: train-ai=y", "/a @2"),
        ("Content-Signal: use=reference", "/a @2"),
    ] {
        let file = format!("User-agent: *\n{lines}\n");
        let rules = RobotsTxt::parse(file.as_bytes()).rules_for(&["a"]);
        let purposes = [Purpose::parse("ai-train").unwrap()];
        let told = golden.split(", ").map(|path| {
            let path = path.split(" @").next().unwrap();
            let verdict = rules.check_for(path, &purposes);
            match (verdict.preference(), verdict.rule()) {
                (Some(preference), _) => format!("{path} @{}", preference.line()),
                (None, Some(rule)) => format!("{path} @rule {}", rule.line()),
                (None, None) => path.to_owned(),
            }
        });
        assert_eq!(told.collect::<Vec<_>>().join(", "), golden, "{file}");
    }
}

/// draft-ietf-aipref-attach-05, its example of "Processing Content-Usage Rules", whole.
#[test]
fn example_of_the_aipref_draft_is_reproduced() {
    let file = "User-Agent: *\nAllow: /\nDisallow: /never/\nContent-Usage: train-ai=n\nContent-Usage: /ai-ok/ train-ai=y\n\n\
        User-Agent: ExampleBot\nAllow: /\nContent-Usage: train-ai=y\n";
    for golden in ["Foo /test => disallow @usage 4", "Foo /ai-ok/ => allow @2", "Foo /never/ => disallow @3"] {
        for_purposes("ai-train", file, golden);
        for_purposes("search", file, &golden.replace("disallow @usage 4", "allow @2"));
    }
    for path in ["/test", "/ai-ok/", "/never/"] {
        for_purposes("ai-train", file, &format!("ExampleBot {path} => allow @8"));
    }
}

/// draft-ietf-aipref-attach-05, "Robots Exclusion Protocol Content-Usage Rule": `rule =/ content-usage`. A rule is for all agents of
/// its group, and the next user agent begins another. Content-Signal is another record, which ends no group (RFC 9309 §2.2.4).
#[test]
fn content_usage_line_is_a_rule_that_ends_the_user_agent_lines() {
    let usage =
        "User-agent: a\nCrawl-delay: 1\nUser-agent: b\nContent-Usage: train-ai=n\nUser-agent: c\nDisallow: /x\n";
    let signal = "User-agent: a\nContent-Signal: ai-train=no\nUser-agent: c\nDisallow: /x\n";
    let twice = "User-agent: a\nContent-Usage: /y train-ai=n\n\nUser-agent: a\nContent-Usage: train-ai=y\nContent-Usage: /x train-ai=n\n";
    for (file, golden) in [
        (usage, "a /x @usage 4, b /x @usage 4, c /x @rule 6, c /y"),
        (signal, "a /x @rule 4, a /y @usage 2, c /x @rule 4, c /y"),
        (twice, "a /y @usage 2, a /x @usage 6, a /z"),
    ] {
        for options in [ParseOptions::default(), with(|options| options.precedence = Precedence::FirstMatch)] {
            // In the order of 1996 the first group is the only one.
            if options.precedence == Precedence::FirstMatch && file == twice {
                continue;
            }
            let robots = RobotsTxt::parse_with(file.as_bytes(), &options);
            let purposes = [Purpose::parse("ai-train").unwrap()];
            let told = golden.split(", ").map(|question| {
                let question = question.split(" @").next().unwrap();
                let (agent, path) = question.split_once(' ').unwrap();
                let rules = robots.rules_for(&[agent]);
                let verdict = rules.check_for(path, &purposes);
                match (verdict.preference(), verdict.rule()) {
                    (Some(preference), _) => format!("{question} @usage {}", preference.line()),
                    (None, Some(rule)) => format!("{question} @rule {}", rule.line()),
                    (None, None) => question.to_owned(),
                }
            });
            assert_eq!(told.collect::<Vec<_>>().join(", "), golden, "{file}");
        }
    }
}

/// `precedence` applies to Allow and Disallow: for Content-Usage the longest path decides, as in the draft.
#[test]
fn first_match_precedence_does_not_apply_to_content_usage() {
    let file =
        b"User-agent: *\nContent-Usage: train-ai=n\nContent-Usage: /free train-ai=y\nDisallow: /a\nAllow: /a/b\n";
    for options in [ParseOptions::default(), with(|options| options.precedence = Precedence::FirstMatch)] {
        let rules = RobotsTxt::parse_with(file, &options).rules_for(&["a"]);
        let purposes = [Purpose::parse("ai-train").unwrap()];
        let is_allowed = |path| rules.check_for(path, &purposes).is_allowed();
        assert_eq!((is_allowed("/free/x"), is_allowed("/x")), (true, false));
        assert_eq!(rules.check("/a/b").is_allowed(), options.precedence == Precedence::MostSpecific);
    }
}

#[test]
fn lenient_usage_accepts_misspelt_preferences() {
    let file = b"User-agent: *\nContent-Usage: *.pdf AI-Train = No\nContent-Signal: /b ai-train=n\n";
    let lenient = with(|options| options.lenient_usage = true);
    for (options, disallowed) in [(ParseOptions::default(), &[][..]), (lenient, &["/a.pdf", "/b"])] {
        let rules = RobotsTxt::parse_with(file, &options).rules_for(&["a"]);
        let purposes = [Purpose::parse("ai-train").unwrap()];
        for path in ["/a", "/a.pdf", "/b"] {
            assert_eq!(rules.check_for(path, &purposes).is_allowed(), !disallowed.contains(&path), "{path}");
        }
    }
}

// Leniencies, and the other readings of the field.

#[test]
fn google_accepts_frequent_typos() {
    for (agent, rule) in [
        ("useragent", "disallow"),
        ("user agent", "disallow"),
        ("user-agent", "dissallow"),
        ("user-agent", "dissalow"),
        ("user-agent", "disalow"),
        ("user-agent", "diasllow"),
        ("user-agent", "disallaw"),
    ] {
        rfc(&format!("{agent}: *\n{rule}: /\n"), &["Foo / => disallow @2"]);
    }
}

#[test]
fn google_accepts_a_missing_colon() {
    rfc("User-agent *\nDisallow /x\nDisallow /y z\n", &["Foo /x => disallow @2", "Foo /y => allow"]);
}

#[test]
fn misspelt_keys_are_unknown_and_nul_ends_a_line() {
    rfc("User-agents: *\nDisallowed: /\n", &["Foo / => allow"]);
    rfc("User-agent: *\n\u{b}Disallow: /\u{c}\n", &["Foo /x => allow"]);
    rfc("User-agent: *\nDisallow: /a\0Disallow: /b\n", &["Foo /a => disallow @2", "Foo /b => disallow @2"]);
    rfc("User-agent: *\nDisallow: /\nAllow: /d/index.html\n", &["Foo /d/ => disallow @2"]);
}

#[test]
fn draft_2019_uses_only_the_first_star_group() {
    let file = "User-agent: *\nDisallow: /a\n\nUser-agent: b\nDisallow: /b\n\nUser-agent: *\nDisallow: /c\n\n\
                User-agent: B\nDisallow: /d\n";
    rfc(file, &["Foo /a => disallow @2", "Foo /c => disallow @8", "b /d => disallow @11"]);
    let draft = &["Foo /a => disallow @2", "Foo /c => allow", "b /b => disallow @5", "b /d => disallow @11"];
    read(&ParseOptions::draft_2019(), file, draft);
    read(&ParseOptions::draft_2019(), "Disallow: /\n", &["Foo / => allow"]);
}

#[test]
fn crawler_commons_before_362_matches_each_word_as_a_prefix() {
    let prefix = ParseOptions::crawler_commons_before_362();
    let file = "User-agent: Foo Bar\nDisallow: /\n";
    rfc(file, &["FooBot / => allow", "Bar / => allow"]);
    read(&prefix, file, &["FooBot / => disallow @2", "Bar / => disallow @2", "MyFoo / => allow"]);
    read(&ParseOptions::crawler_commons(), file, &["Foo / => disallow @2", "FooBot / => allow", "Bar / => allow"]);
}

#[test]
fn original_draft_matches_agents_by_substring() {
    let file = "User-agent: foo\nDisallow: /\n";
    rfc(file, &["MyFooBot / => allow"]);
    for options in [ParseOptions::original(), with(|options| options.user_agent_match = UserAgentMatch::Substring)] {
        read(&options, file, &["MyFooBot / => disallow @2", "Bar / => allow"]);
    }
}

#[test]
fn original_draft_applies_the_first_matching_rule() {
    let file = "User-agent: *\nDisallow: /a\nAllow: /a/b\n\nUser-agent: *\nAllow: /\n";
    rfc(file, &["Foo /a/b => allow @3", "Foo / => allow @6"]);
    for options in [ParseOptions::original(), with(|options| options.precedence = Precedence::FirstMatch)] {
        read(&options, file, &["Foo /a/b => disallow @2", "Foo / => allow"]);
    }
}

#[test]
fn original_options_anchor_at_the_end_of_the_path_before_the_query() {
    let file = "User-agent: *\nDisallow: /a$\n";
    rfc(file, &["Foo /a => disallow @2", "Foo /a?b => allow"]);
    read(&ParseOptions::original(), file, &["Foo /a?b => disallow @2", "Foo /ab?c => allow"]);
}

#[test]
fn texting_robots_and_the_original_apply_rules_before_any_user_agent() {
    let file = "Disallow: /private\n";
    rfc(file, &["Foo /private => allow"]);
    read(&ParseOptions::texting_robots(), file, &["Foo /private => disallow @1"]);
    read(&ParseOptions::original(), file, &["Foo /private => disallow @1"]);
}

#[test]
fn file_is_read_up_to_500_kib_without_an_incomplete_last_line() {
    let mut file = format!("User-agent: *\n{}\nDisallow: /in\n", "#".repeat(ParseOptions::MIN_SIZE - 30));
    assert_eq!(file.len(), ParseOptions::MIN_SIZE - 1);
    file.push_str("Disallow: /out\n");
    rfc(&file, &["Foo /in => disallow @3", "Foo /out => allow"]);
    read(&with(|options| options.max_size = 1 << 20), &file, &["Foo /out => disallow @4"]);
}

#[test]
fn lines_are_cut_at_16_kib() {
    let file = format!("User-agent: *\nDisallow: /{}\n", "a".repeat(20_000));
    rfc(
        &file,
        &[
            &format!("Foo /{} => disallow @2", "a".repeat(16_384 - 11)),
            &format!("Foo /{} => allow", "a".repeat(16_000)),
        ],
    );
}
