//! Counts the bytes read and comparisons made while reading a file, so that tests can show that the work grows linearly with the length of
//! the file. Counts only in tests and fuzzing.

/// Counts bytes read or comparisons made.
#[inline(always)]
pub(crate) fn count(steps: usize) {
    #[cfg(any(test, feature = "_fuzzing"))]
    STEPS.with(|total| total.set(total.get() + steps as u64));
    let _ = steps;
}

/// The number of steps that `work` takes.
#[cfg(any(test, feature = "_fuzzing"))]
pub fn of(work: impl FnOnce()) -> u64 {
    let before = STEPS.with(std::cell::Cell::get);
    work();
    STEPS.with(std::cell::Cell::get) - before
}

#[cfg(any(test, feature = "_fuzzing"))]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::robots::budget::StepBudget;
    use crate::robots::{ParseOptions, Reason, RobotsTxt, lint::LintReport};

    /// Returns a repeated piece of a worst-case file, by the number of the repetition.
    type Piece = fn(usize) -> String;
    type Text = fn() -> String;

    /// Files that are expensive to read, each with a name, a beginning, and a piece that is repeated up to the wanted length.
    const WORST: &[(&str, &str, Piece)] = &[
        ("NULs only", "", |_| "\0".into()),
        ("text and NULs", "", |_| "x\0".into()),
        ("comments and NULs", "", |_| "#\0".into()),
        ("rules and NULs", STAR, |n| format!("Disallow: /{n}\0")),
        ("faulty rules and NULs", STAR, |_| " disalow: x\0".into()),
        ("a NUL, then comments", "\0\n", |_| "#\n".into()),
        ("CRs", "", |_| "\r".into()),
        ("CRs and LFs in turn", "", |_| "\n\r".into()),
        ("LFs", "", |_| "\n".into()),
        ("text and CRs", "", |_| "x\r".into()),
        ("one line", "", |_| "x".into()),
        ("one line of two words", "x ", |_| "x".into()),
        ("one line of gaps", "x", |_| " x".into()),
        ("one line of white space", "", |_| " ".into()),
        ("a key and white space", "allow:", |_| " ".into()),
        ("one line beyond ASCII", "", |_| "\u{fc}".into()),
        ("colons", "", |_| ":".into()),
        ("comments", "", |_| "#".into()),
        ("byte order marks", "", |_| "\u{feff}".into()),
        ("no colons", "", |_| "disallow\n".into()),
        ("cut escapes", STAR, |_| "allow:%\n".into()),
        ("agents of one group", "", |n| format!("user-agent:{}\n", letters(n))),
        ("agents of one token", "", |n| format!("user-agent:a{n}\n")),
        ("one agent", "", |_| "user-agent:a\n".into()),
        ("one agent and delays", "", |_| "user-agent:a\ncrawl-delay:1\n".into()),
        ("one agent and usages", "", |_| "user-agent:a\ncontent-usage:ai=n\n".into()),
        ("agents and delays", "", |n| format!("user-agent:{}\ncrawl-delay:1\n", letters(n))),
        ("groups of one agent", "", |_| "user-agent:a\nallow:/\n".into()),
        ("groups of one agent, misspelt", "", |_| "useragent:a\nalow:/\n".into()),
        ("groups of many agents", "", |n| format!("user-agent:{}\nallow:/{n}\n", letters(n))),
        ("groups for all", "", |_| "user-agent:*\nallow:/\n".into()),
        ("rules", STAR, |n| format!("allow:/{n}\n")),
        ("one rule", STAR, |_| "allow:/\n".into()),
        ("rules with a star", STAR, |n| format!("allow:*{n}\n")),
        ("rules with two stars", STAR, |n| format!("allow:*aaa*{n}\n")),
        ("longer and longer rules", STAR, |n| format!("allow:/{}\n", "a".repeat(n % 700))),
        ("longer and longer rules with a star", STAR, |n| format!("allow:/{}*b\n", "a".repeat(n % 700))),
        ("a hundred stars", STAR, |n| format!("allow:/{}{n}\n", "*a".repeat(100))),
        ("thousands of stars", STAR, |_| format!("allow:/{}\n", "*a".repeat(6_000))),
        ("anchored rules", STAR, |n| format!("allow:/*a{n}$\n")),
        ("rules beyond ASCII", STAR, |n| format!("allow:/\u{fc}{n}\n")),
        ("sitemaps", "user-agent:*\ndisallow:/\n", |_| "sitemap:http://a/\n".into()),
        ("rules and sitemaps that they block", STAR, |n| match n % 2 {
            0 => format!("disallow:/{n}\n"),
            _ => format!("sitemap:http://a/{}\n", n - 1),
        }),
        ("sitemaps, and rules with stars", STAR, |n| match n % 2 {
            0 => "disallow:*ab*cd*ef*z\n".into(),
            _ => "sitemap:http://a/efcdabz\n".into(),
        }),
        ("usages", STAR, |n| format!("content-usage:/{n} ai=n\n")),
        ("usages of different uses", STAR, |n| format!("content-usage:/{n} a{n}=n\n")),
        ("lines of many uses", STAR, |n| match n % 1_000 {
            0 => format!("z=n\ncontent-usage:/{n} "),
            _ => format!("a{n}=n,"),
        }),
        ("signals of many uses", STAR, |n| match n % 1_000 {
            0 => format!("z=no\ncontent-signal:/{n} "),
            _ => format!("a{n}=no,"),
        }),
        ("rules with a piece in common", STAR, |n| format!("disallow:*aaaaa*ZZZa{n}\n")),
        ("rules that are beginnings of one another", STAR, |n| format!("disallow:/{}\n", "a".repeat(n % 1_000))),
    ];

    const STAR: &str = "user-agent:*\n";

    fn letters(n: usize) -> String {
        n.to_string().bytes().map(|digit| char::from(digit + (b'a' - b'0'))).collect()
    }

    fn file(start: &str, piece: Piece, len: usize) -> Vec<u8> {
        let mut text = start.to_owned();
        for n in 0.. {
            if text.len() >= len {
                break;
            }
            text += &piece(n);
        }
        text.into_bytes()
    }

    /// Asserts that a file four times as long takes at most five times the work, and at most 200 steps for each byte. `beside`: a fixed
    /// number of steps that are allowed in addition.
    fn grows_with_length(what: &str, beside: u64, work: fn(&[u8])) {
        for &(name, start, piece) in WORST {
            let [small, large] = [LEN, 4 * LEN].map(|len| file(start, piece, len));
            let [once, fourfold] = [&small, &large].map(|text| of(|| work(text)));
            assert!(fourfold <= 5 * once + 4_096 + beside, "{what}, {name}: {once} steps, then {fourfold}");
            assert!(
                fourfold <= 200 * large.len() as u64 + beside,
                "{what}, {name}: {fourfold} steps for {}",
                large.len()
            );
        }
    }

    /// Length of the shorter file in bytes: more than the longest line that is read, even in UTF-16, so that both files have a line that is
    /// too long.
    const LEN: usize = 40_000;

    #[test]
    fn parsing_takes_linear_steps() {
        grows_with_length("parse", 0, |text| _ = RobotsTxt::parse(text));
        grows_with_length("parse", 0, |text| _ = RobotsTxt::parse_with(text, &ParseOptions::draft_2019()));
        grows_with_length("parse", 0, |text| _ = RobotsTxt::parse_with(text, &ParseOptions::original()));
    }

    #[test]
    fn group_selection_takes_linear_steps() {
        grows_with_length("compile", 0, |text| {
            let rules = RobotsTxt::parse(text).rules_for(&["a", "b", "a1"]);
            rules.check("/a");
            rules.preferences_for(b"/a");
        });
    }

    /// Patterns that are expensive to compare with a path, each with this path.
    const DEAR: &[(&str, Piece, Text)] = &[
        ("a piece in common, which the path has", |n| format!("*aaaaa*ZZZa{n:05}"), || "/aaaaaZZZa0".repeat(25)),
        ("a piece in common, and a long path", |n| format!("*aaaaa*ZZZa{n:05}"), || format!("/{}", "a".repeat(60_000))),
        ("many stars", |n| format!("/*a*a*a*a*a*a*a*a*b{n}"), || format!("/{}", "a".repeat(8_000))),
        ("pieces that match nearly", |n| format!("/*{}b{n}", "a".repeat(500)), || format!("/{}", "a".repeat(8_000))),
        ("pieces too short for an index", |n| format!("/*{}{n:x}*\u{1}", n % 7), || "/0123456789abcdef".repeat(60)),
        ("two bytes between stars", |n| format!("/*a{}*b{}", n % 10, n / 10 % 10), || "/a1a2b3".repeat(1_000)),
        ("beginnings of one another", |n| format!("/{}", "a".repeat(n % 4_000)), || format!("/{}", "a".repeat(3_999))),
        ("long literals", |n| format!("/{}{n}", "a".repeat(4_000)), || format!("/{}", "a".repeat(4_100))),
        (
            "one piece in all patterns, which the path has a few times",
            |n| format!("/*abc*{:02}*{:02}*{}", n % 100, n / 100 % 100, n / 10_000),
            || "/abcabcabcabc0123456789".into(),
        ),
        ("a piece that occurs at each byte", |n| format!("/*aaa*{n}"), || format!("/{}", "a".repeat(60_000))),
    ];

    fn compiled(count: usize, piece: Piece) -> crate::robots::RuleSet {
        let lines: String = (0..count).map(|n| format!("disallow:{}\n", piece(n))).collect();
        let options = ParseOptions { max_size: 1 << 30, ..ParseOptions::default() };
        let rules = RobotsTxt::parse_with(format!("{STAR}{lines}").as_bytes(), &options).rules_for(&["a"]);
        rules.check("/");
        rules
    }

    /// One budget covers both forms of a path that has dot segments.
    #[test]
    fn a_decision_takes_no_more_steps_than_its_budget() {
        for &(name, piece, path) in DEAR {
            for count in [100, if name == "long literals" { 5_000 } else { 24_000 }] {
                let rules = compiled(count, piece);
                for target in [path(), format!("{}%7E/../x", path())] {
                    let steps = of(|| _ = rules.check(&target));
                    assert!(steps <= StepBudget::STEPS as u64 + 5_000, "{name}, {count}: {steps}");
                }
            }
        }
    }

    /// A path that cannot be compared in time is disallowed, and no rule is named as the reason.
    #[test]
    fn spent_step_budget_disallows() {
        let rules = compiled(24_000, |n| format!("/*aaa*{n}"));
        let verdict = rules.check(format!("/{}", "a".repeat(60_000)));
        assert_eq!((verdict.is_allowed(), verdict.reason()), (false, Reason::TooComplex));
        assert!(verdict.rule().is_none());
        assert_eq!(rules.check("/aaa/24001").reason(), Reason::Disallowed, "the next path has its own budget");
    }

    /// Harmless sites stay far below the budget, even with a hundred thousand patterns or a URL of 8 KiB.
    #[test]
    fn realistic_patterns_take_few_steps() {
        let ordinary: &[Piece] = &[
            |n| format!("/section{}/page{n}", n % 97),
            |n| format!("/*{}{n}=", letters(n)),
            |n| format!("/{}{n}/*/edit", letters(n)),
            |n| format!("/*/{}/*.php$", letters(n)),
            |n| format!("*{}", letters(n)),
        ];
        let query: String = (0..300).map(|n| format!("&item{n}=some+value-{n}")).collect();
        let paths = ["/blog/2024/05/a-day-at-the-seaside".to_owned(), "/products?sort=price&page=3".to_owned()];
        for &piece in ordinary {
            let [few, many] = [100, 100_000].map(|count| compiled(count, piece));
            let steps = |rules: &crate::robots::RuleSet, path: &str| of(|| _ = rules.check(path));
            for path in &paths {
                let (few, many) = (steps(&few, path), steps(&many, path));
                assert!(many <= 4 * few + 1_000, "{} {path}: {few} steps, then {many}", piece(7));
            }
            let long = steps(&many, &format!("/search?{query}"));
            assert!(long <= StepBudget::STEPS as u64 / 4, "{}: {long}", piece(7));
        }
    }

    #[test]
    fn linting_takes_linear_steps() {
        grows_with_length("lint", 8 << 20, |text| _ = LintReport::new(&RobotsTxt::parse(text), None));
    }
}
