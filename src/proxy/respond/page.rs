//! Answers of the proxy's own as a page, for browsers. Pure.

use super::text::put_html;
use http::StatusCode;
use std::io::Write;

/// Whether `text/html` is named and weighs more than any JSON (RFC 9110 §12.5.1).
pub(super) fn prefers_html(accept: &[u8]) -> bool {
    // Most crawlers take anything.
    accept != b"*/*"
        && weight(accept, ["text/html", "application/xhtml+xml"])
            > weight(accept, ["application/json", "application/problem+json"])
}

/// The most that one of these has.
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

/// The answer, for a person.
pub(super) fn page(out: &mut Vec<u8>, status: StatusCode, title: &str, detail: &str, url: Option<&str>) {
    let head = format_args!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{status} {title}</title>\n\
         <style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:4em auto;padding:0 1em}}</style>\n\
         <h1>{title}</h1>\n",
        status = status.as_u16(),
    );
    // Writing to memory does not fail.
    let _ = out.write_fmt(head);
    if let Some(url) = url {
        out.extend_from_slice(b"<p><code>");
        put_html(out, url);
        out.extend_from_slice(b"</code></p>\n");
    }
    out.extend_from_slice(b"<p>");
    put_html(out, detail);
    out.extend_from_slice(END.as_bytes());
}

const END: &str = "</p>\n<p>This answer comes from politely, a proxy that keeps robots.txt, not from the site.</p>\n\
    <p>To use it, point a client's proxy setting at this address: <code>curl -x</code>, <code>HTTP_PROXY</code> and \
    <code>HTTPS_PROXY</code>, or run a command behind a proxy of its own with <code>politely run -- COMMAND</code>.</p>\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_goes_to_those_who_prefer_it() {
        for accept in ["text/html", "text/html,application/xhtml+xml,*/*;q=0.8", "application/json;q=0.5, text/html"] {
            assert!(prefers_html(accept.as_bytes()), "{accept}");
        }
        for accept in ["*/*", "", "application/json, text/html;q=0.9", "text/html;q=0", "text/plain"] {
            assert!(!prefers_html(accept.as_bytes()), "{accept}");
        }
    }

    #[test]
    fn a_hostile_url_is_inert_in_the_page() {
        let mut out = Vec::new();
        page(&mut out, StatusCode::FORBIDDEN, "t", "d", Some("http://a/<script>\"&"));
        let page = String::from_utf8(out).unwrap();
        assert!(page.contains("http://a/&lt;script&gt;&quot;&amp;") && !page.contains("<script>"));
    }
}
