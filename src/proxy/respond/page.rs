//! Answers of the proxy itself as an HTML page, for browsers. Pure.

use super::evidence::{Member, each_member};
use super::text::Html;
use super::{Problem, title};
use crate::policy::Refusal;
use std::fmt;
use std::io::Write;

/// Whether `text/html` has more weight than JSON (RFC 9110 §12.5.1).
pub(super) fn prefers_html(accept: &[u8]) -> bool {
    // A shortcut, because most crawlers accept anything.
    accept != b"*/*"
        && weight(accept, ["text/html", "application/xhtml+xml"])
            > weight(accept, ["application/json", "application/problem+json"])
}

/// The highest weight of these types.
fn weight(accept: &[u8], wanted: [&str; 2]) -> f32 {
    let ranges = accept.split(|&byte| byte == b',').filter_map(|range| {
        let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let kind = parts.next()?;
        wanted.iter().find(|wanted| wanted.as_bytes().eq_ignore_ascii_case(kind))?;
        let q = parts.find_map(|part| part.strip_prefix(b"q=").or(part.strip_prefix(b"Q=")));
        Some(q.and_then(|q| str::from_utf8(q).ok()?.trim().parse().ok()).unwrap_or(1.0))
    });
    ranges.fold(0.0, f32::max)
}

/// Writes the page: problem, evidence, hint. `refusal`: `None` for a failure.
pub(super) fn page(out: &mut Vec<u8>, problem: &Problem<'_>, url: Option<&str>, refusal: Option<&Refusal>) {
    let Problem { slug, detail, hint, .. } = *problem;
    let (status, title) = (problem.status.as_u16(), title(slug));
    // Writing to memory does not fail.
    let mut put = |text: fmt::Arguments<'_>| _ = out.write_fmt(text);
    put(format_args!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{status} {title}</title>\n\
         <style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:4em auto;padding:0 1em}}\
         dt{{font-weight:600}}code{{overflow-wrap:anywhere}}</style>\n<h1>{title}</h1>\n",
    ));
    if let Some(url) = url {
        put(format_args!("<p><code>{}</code></p>\n", Html(url)));
    }
    put(format_args!("<p>{}</p>\n", Html(detail)));
    if let Some(refusal) = refusal {
        let mut before = "<dl>\n";
        each_member(refusal, &mut |name, value| {
            put(format_args!("{before}<dt>{}</dt><dd><code>", label(name)));
            before = "";
            match value {
                Member::Text(pieces) => pieces.iter().for_each(|piece| put(format_args!("{}", Html(piece)))),
                Member::RobotsUrl(authority) => {
                    let url = authority.robots_url();
                    put(format_args!("<a href=\"{0}\">{0}</a>", Html(&url)));
                }
                Member::Number(number) => put(format_args!("{number}")),
            }
            put(format_args!("</code></dd>\n"));
        });
        put(format_args!("{}", if before.is_empty() { "</dl>\n" } else { "" }));
    }
    if let Some(hint) = hint {
        put(format_args!("<p>"));
        put_code(hint, &mut put);
        put(format_args!("</p>\n"));
    }
    // A test checks that docs/errors.md has this anchor.
    put(format_args!(
        "<p>Error <code>urn:politely:{slug}</code>: see <code>docs/errors.md#{slug}</code> of politely.</p>\n{END}"
    ));
}

/// The label of an evidence member.
fn label(name: &'static str) -> &'static str {
    match name {
        "robots_url" => "robots.txt",
        "tdmrep_url" => "tdmrep.json",
        "license_url" => "Licence",
        "product_token" => "Crawler",
        "rule" => "Rule",
        "line" => "Line",
        "purpose" => "Declared purpose",
        "budget" => "Budget",
        "budget_of" => "Budget of",
        "entry" => "Entry",
        "policy" => "Terms",
        "matched_path" => "Path as servers may read it",
        name => name,
    }
}

/// Writes text, with the names in backticks as code.
fn put_code(text: &str, put: &mut impl FnMut(fmt::Arguments<'_>)) {
    for (place, part) in text.split('`').enumerate() {
        match place % 2 {
            0 => put(format_args!("{}", Html(part))),
            _ => put(format_args!("<code>{}</code>", Html(part))),
        }
    }
}

const END: &str = "<p>This answer comes from politely, a proxy that enforces robots.txt, not from the site.</p>\n";

#[cfg(test)]
mod tests {
    use super::super::Answer;
    use super::*;
    use crate::config::Settings;
    use crate::policy::{Authority, LineEvidence};
    use std::time::Duration;

    #[test]
    fn html_goes_to_clients_that_prefer_it() {
        for accept in ["text/html", "text/html,application/xhtml+xml,*/*;q=0.8", "application/json;q=0.5, text/html"] {
            assert!(prefers_html(accept.as_bytes()), "{accept}");
        }
        for accept in ["*/*", "", "application/json, text/html;q=0.9", "text/html;q=0", "text/plain"] {
            assert!(!prefers_html(accept.as_bytes()), "{accept}");
        }
    }

    fn shown(refusal: &Refusal, url: &str) -> String {
        let answer =
            Answer::refusal(refusal, Some(url), Some(b"text/html"), &Settings::parse("test.yaml", "").unwrap());
        String::from_utf8(answer.body().to_vec()).unwrap()
    }

    fn disallowed(pattern: &str) -> Refusal {
        let rule = LineEvidence { line: 7, key: "Disallow", value: pattern.into(), matched_path: None };
        let authority = Authority::from_url("https://a.example").unwrap();
        Refusal::Disallowed { authority, product_tokens: "examplebot".into(), rule: Some(rule) }
    }

    #[test]
    fn a_refusal_is_explained() {
        let page = shown(&disallowed("/private/"), "https://a.example/private/x");
        for part in [
            "<h1>Disallowed by robots.txt</h1>",
            "<code>https://a.example/private/x</code>",
            "<dt>Rule</dt><dd><code>Disallow: /private/</code></dd>",
            "<dt>Line</dt><dd><code>7</code></dd>",
            "<a href=\"https://a.example/robots.txt\">https://a.example/robots.txt</a>",
            "<code>examplebot</code>",
            "politely explain",
            "<code>urn:politely:robots-disallowed</code>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("HTTP_PROXY"), "no setup hint for a client that already uses the proxy: {page}");
        let delay =
            shown(&Refusal::CrawlDelay { retry_after: Duration::from_secs(90), max_wait: None }, "http://a.example/");
        assert!(delay.contains("90 s") && delay.contains("max-wait") && !delay.contains("<dl>"), "{delay}");
    }

    #[test]
    fn a_direct_request_is_told_how_to_use_the_proxy() {
        assert!(shown(&Refusal::NotAProxyRequest, "").contains("HTTP_PROXY"));
    }

    #[test]
    fn foreign_text_is_escaped_in_the_page() {
        let page = shown(&disallowed("/<script>\"&"), "http://a/<script>\"&");
        assert!(
            page.contains("http://a/&lt;script&gt;&quot;&amp;") && page.contains("/&lt;script&gt;&quot;&amp;</code>")
        );
        assert!(!page.contains("<script>"), "{page}");
        let hidden = shown(&disallowed("/\u{202e}\u{9b}\u{e0041}"), "http://a/\u{202e}");
        assert!(!hidden.contains(['\u{202e}', '\u{9b}', '\u{e0041}']), "{hidden}");
    }
}
