//! `politely lint`: what it prints, whole, and its exit codes.

use crate::support::binary::open;
use crate::support::binary::{Ended, politely, politely_reading, politely_with};
use crate::support::{Alpn, Origin, Reply};
use serde_json::{Value, json};
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

async fn lint(input: impl AsRef<[u8]>) -> Ended {
    politely_reading(&["lint", "-"], input.as_ref()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_are_shown_as_a_compiler_shows_them() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("robots.txt");
    std::fs::write(&file, "User-agent: *\nDissallow: /a%zz\nDisallow: /b*\n\n\n\n\n\n\nDisallow: /b\n").unwrap();
    let name = file.to_str().unwrap();
    let ended = politely(&["lint", name]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (1, ""));
    let expected = "\
error[misspelt-key]: misspelt key `Dissallow`
 --> FILE:2:1
  |
2 | Dissallow: /a%zz
  | ^^^^^^^^^
hint: write `Disallow`; few crawlers read it as meant

warning[bad-escape]: `%` is not followed by two hexadecimal digits
 --> FILE:2:14
  |
2 | Dissallow: /a%zz
  |              ^^^
hint: write `%25` for a percent sign

warning[never-decides]: the rule never decides: a longer rule matches all its paths
  --> FILE:10:11
   |
10 | Disallow: /b
   |           ^^
   |
  ::: FILE:3:11
   |
 3 | Disallow: /b*
   |           --- this one decides
hint: leave it out, or shorten the other: the longest rule that matches decides (RFC 9309 §2.2.2)

FILE: 1 error, 2 warnings
";
    assert_eq!(ended.stdout, expected.replace("FILE", name));

    let ended = politely(&["lint", name, "--format", "json"]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (1, ""));
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    let expected = json!([
        {
            "file": name, "line": 2, "column": 1, "code": "misspelt-key", "severity": "error",
            "message": "misspelt key `Dissallow`", "hint": "write `Disallow`; few crawlers read it as meant",
        },
        {
            "file": name, "line": 2, "column": 14, "code": "bad-escape", "severity": "warning",
            "message": "`%` is not followed by two hexadecimal digits", "hint": "write `%25` for a percent sign",
        },
        {
            "file": name, "line": 10, "column": 11, "code": "never-decides", "severity": "warning",
            "message": "the rule never decides: a longer rule matches all its paths",
            "hint": "leave it out, or shorten the other: the longest rule that matches decides (RFC 9309 §2.2.2)",
            "related": { "line": 3, "column": 11, "message": "this one decides" },
        },
    ]);
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lint_of_valid_and_empty_files_exits_0() {
    for good in ["", "User-agent: *\nDisallow: /private\n", "\u{feff}# nothing\r\n"] {
        let ended = lint(good).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (0, "standard input: no mistakes found\n"), "{good}");
        let ended = politely_reading(&["lint", "-", "--format", "json"], good.as_bytes()).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (0, "[]\n"), "{good}");
    }
}

/// The shown line of the first finding, and the carets below it.
fn under(ended: &Ended) -> (String, String) {
    let mut lines = ended.stdout.lines().skip_while(|line| line.trim() != "|").skip(1).map(str::to_owned);
    (lines.next().unwrap_or_default(), lines.next().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lint_carets_align_for_any_bytes() {
    for (input, line, carets) in [
        // CRLF and lone CR; a byte order mark; a tab, which is shown as four spaces.
        (&b"User-agent: *\r\nDisallow: /%zz\r\n"[..], "2 | Disallow: /%zz", "  |            ^^^"),
        (b"User-agent: *\rDisallow: /%zz\r", "2 | Disallow: /%zz", "  |            ^^^"),
        (b"\xEF\xBB\xBFDisallow: /", "1 | Disallow: /", "  | ^^^^^^^^"),
        (b"User-agent: *\nDisallow:\t/%zz\n", "2 | Disallow:    /%zz", "  |               ^^^"),
        // Each byte that is not UTF-8 takes one column, like its replacement character.
        (b"\xFF\xFD\xE9: x\n", "1 | \u{FFFD}\u{FFFD}\u{FFFD}: x", "  | ^^^"),
        (b"User-agent: *\nDisallow:/\xC3\xBC%4", "2 | Disallow:/\u{fc}%4", "  |            ^^"),
        // A wide character is as wide as two.
        ("User-agent: *\nDisallow:/\u{6587}%4".as_bytes(), "2 | Disallow:/\u{6587}%4", "  |             ^^"),
    ] {
        let ended = lint(input).await;
        assert_eq!(ended.code, 1);
        assert_eq!(under(&ended), (line.to_owned(), carets.to_owned()), "{}:\n{}", input.escape_ascii(), ended.stdout);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lint_reports_binary_files_and_long_lines_briefly() {
    let binary: Vec<u8> = (0..2_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let ended = lint(&binary).await;
    assert_eq!(ended.code, 1);
    assert!(ended.stdout.contains("error[too-large]") && ended.stdout.contains("there are more warnings"));
    assert!(!ended.stdout.contains(['\u{1b}', '\0', '\u{7}']), "nothing of it steers the terminal");
    let ended = lint(format!("User-agent: *\nDisallow: /{}%zz\n", "a".repeat(15_000))).await;
    assert_eq!(ended.code, 1);
    let (line, carets) = under(&ended);
    assert!(line.len() < 200 && line.contains("%zz"), "{line}");
    assert_eq!(line.find("%zz"), carets.find("^^^"), "{line}\n{carets}");
    let ended = lint("a".repeat(600_000)).await;
    assert!(ended.code == 1 && ended.stdout.len() < 10_000, "{}", ended.stdout.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_is_fetched_as_for_a_request() {
    let origin =
        Origin::tls_site(Alpn::Both, "User-agent: *\nDisallow: /maps\nSitemap: https://a.localhost/maps\n").await;
    for target in ["/robots.txt", "/any/page?x"] {
        let ended = politely_with(&["lint", &origin.url(target), "--format", "json"], &open()).await;
        assert_eq!(ended.code, 1, "{}{}", ended.stdout, ended.stderr);
        let found: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
        assert_eq!(
            (&found[0]["code"], &found[0]["file"]),
            (&json!("sitemap-blocked"), &json!(origin.url("/robots.txt")))
        );
    }
    assert_eq!(origin.log.targets(), ["/robots.txt", "/robots.txt"], "no page is fetched");
    let moved = Origin::http({
        let there = origin.url_at("b.localhost", "/robots.txt");
        move |_| Reply::redirect(there.clone())
    })
    .await;
    let ended = politely_with(&["lint", &moved.url_at("c.localhost", "/")], &open()).await;
    assert_eq!(ended.code, 0, "a sitemap of another host is none of its business: {}", ended.stdout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lint_of_an_unreadable_source_exits_2_with_a_hint() {
    let missing = Origin::http(|_| Reply::status(404)).await;
    let broken = Origin::http(|_| Reply::status(503)).await;
    let (missing, broken) = (missing.url("/"), broken.url("/"));
    for (source, words) in [
        ("/no/such/file", "cannot read /no/such/file: No such file"),
        ("/", "cannot read /: Is a directory"),
        ("ftp://example.com/robots.txt", "ftp://example.com/robots.txt"),
        (&missing, "status 404"),
        (&broken, "status 503"),
    ] {
        let ended = politely_with(&["lint", source], &open()).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{source}: {}", ended.stderr);
        assert!(ended.stderr.contains(words) && ended.stderr.contains("\nhint: "), "{source}: {}", ended.stderr);
    }
    let guarded = politely(&["lint", &missing]).await;
    assert!(guarded.code == 2 && guarded.stderr.contains("egress"), "{}", guarded.stderr);
    assert_eq!(politely(&["lint"]).await.code, 2);
}

#[test]
fn lint_uses_colour_on_terminals_unless_no_color_is_set() {
    for (no_color, colour) in [(None, true), (Some(""), true), (Some("1"), false)] {
        let (mut terminal, its_other_side) = terminal();
        let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
        command.args(["lint", "/dev/stdin"]).stdin(Stdio::piped()).stdout(its_other_side).env_remove("NO_COLOR");
        let mut child = command.envs(no_color.map(|value| ("NO_COLOR", value))).spawn().unwrap();
        // With it goes the last handle of ours on the terminal's other side, so that reading ends with the child.
        drop(command);
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"nonsense\n").unwrap();
        let mut shown = Vec::new();
        // EIO is how a terminal says that nobody is there any more.
        let _ = terminal.read_to_end(&mut shown);
        assert_eq!(child.wait().unwrap().code(), Some(1));
        let shown = String::from_utf8(shown).unwrap();
        assert!(shown.contains("not-a-record"), "{shown}");
        assert_eq!(shown.contains('\u{1b}'), colour, "{no_color:?}: {shown}");
    }
}

/// Both sides of a terminal.
fn terminal() -> (std::fs::File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let null = std::ptr::null_mut();
    // SAFETY: two places for descriptors, and nothing else that is read or written; the descriptors are new and ours.
    unsafe {
        assert_eq!(libc::openpty(&mut ours, &mut theirs, null, null.cast(), null.cast()), 0);
        (std::fs::File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    }
}
