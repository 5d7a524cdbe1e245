//! Answers of the proxy's own as a page, for browsers. Pure.

use http::StatusCode;

/// Whether `text/html` is named and weighs more than any JSON (RFC 9110 §12.5.1).
pub(super) fn prefers_html(accept: &[u8]) -> bool {
    let accept = String::from_utf8_lossy(accept).to_ascii_lowercase();
    let weight = |wanted: &[&str]| {
        let ranges = accept.split(',').filter_map(|range| {
            let (kind, parameters) = range.split_once(';').unwrap_or((range, ""));
            let q = parameters.split(';').find_map(|p| p.trim().strip_prefix("q=")?.trim().parse::<f32>().ok());
            wanted.contains(&kind.trim()).then_some(q.unwrap_or(1.0))
        });
        ranges.fold(0.0, f32::max)
    };
    weight(&["text/html", "application/xhtml+xml"]) > weight(&["application/json", "application/problem+json"])
}

/// The answer, for a person.
pub(super) fn page(status: StatusCode, title: &str, detail: &str, url: Option<&str>) -> String {
    let url = url.map(|url| format!("<p><code>{}</code></p>\n", escape(url))).unwrap_or_default();
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{status} {title}</title>\n\
         <style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:4em auto;padding:0 1em}}</style>\n\
         <h1>{title}</h1>\n{url}<p>{detail}</p>\n\
         <p>This answer comes from politely, a proxy that keeps robots.txt, not from the site.</p>\n{USE}",
        status = status.as_u16(),
        detail = escape(detail),
    )
}

const USE: &str = "<p>To use it, point a client's proxy setting at this address: <code>curl -x</code>, \
    <code>HTTP_PROXY</code> and <code>HTTPS_PROXY</code>, or run a command behind a proxy of its own with \
    <code>politely run -- COMMAND</code>.</p>\n";

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

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
        let page = page(StatusCode::FORBIDDEN, "t", "d", Some("http://a/<script>\"&"));
        assert!(page.contains("http://a/&lt;script&gt;&quot;&amp;") && !page.contains("<script>"));
    }
}
