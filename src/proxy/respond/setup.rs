//! The pages at `intercept.setup_host`: the certificate of the proxy's authority, and how to trust it on each platform.

use super::text::Html;
use super::{Answer, page};
use crate::tls::Ca;
use http::StatusCode;
use std::io::Write;

/// Serves the page or a certificate. `target`: path and query. `host`: the requested name.
pub fn setup(ca: &Ca, method: &str, target: &[u8], accept: Option<&[u8]>, host: &str) -> Answer {
    let path = target.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
    if !matches!(method, "GET" | "HEAD") {
        return answer(StatusCode::METHOD_NOT_ALLOWED, "allow: GET, HEAD\r\n", b"");
    }
    match path {
        b"" | b"/" if accept.is_some_and(page::prefers_html) => {
            answer(StatusCode::OK, "content-type: text/html; charset=utf-8\r\n", &html(ca, host))
        }
        b"" | b"/" => answer(StatusCode::OK, "content-type: text/plain; charset=utf-8\r\n", &plain(ca, host)),
        b"/ca.pem" => answer(StatusCode::OK, "content-type: application/x-pem-file\r\n", ca.trusted_pem().as_bytes()),
        // With this media type, browsers and phones offer to install the certificate.
        b"/ca.crt" => answer(StatusCode::OK, "content-type: application/x-x509-ca-cert\r\n", ca.cert_der()),
        _ => answer(
            StatusCode::NOT_FOUND,
            "content-type: text/plain; charset=utf-8\r\n",
            b"not found: there are only /, /ca.pem and /ca.crt\n",
        ),
    }
}

fn answer(status: StatusCode, fields: &str, body: &[u8]) -> Answer {
    let put_fields = |text: &mut Vec<u8>| {
        text.extend_from_slice(fields.as_bytes());
        text.extend_from_slice(
            b"cache-control: no-store\r\nproxy-status: politely; details=\"served by the proxy itself\"\r\n",
        );
    };
    Answer::new(status, put_fields, body)
}

fn html(ca: &Ca, host: &str) -> Vec<u8> {
    let (mut out, platforms) = (Vec::new(), PLATFORMS.replace(HOST, host));
    // Writing to memory does not fail.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Trust this proxy</title>\n<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:44em;margin:2em auto;\
         padding:0 1em;color-scheme:light dark}}pre{{background:#8882;padding:.6em;overflow-x:auto}}\
         p{{overflow-wrap:anywhere}}summary{{font-weight:600;cursor:pointer}}</style>\n<h1>Trust this proxy</h1>\n"
    );
    for paragraph in introduction(ca) {
        let _ = writeln!(out, "<p>{}</p>", Html(&paragraph));
    }
    out.extend_from_slice(
        b"<p><a href=\"/ca.pem\">Download the certificate</a> (PEM), <a href=\"/ca.crt\">the same as .crt</a> (DER)</p>\n",
    );
    for (platform, commands) in platforms.split("\n\n").filter_map(|block| block.split_once(":\n")) {
        let commands = commands.lines().map(str::trim_start).collect::<Vec<_>>().join("\n");
        let _ = writeln!(out, "<details><summary>{platform}</summary><pre>{}</pre></details>", Html(&commands));
    }
    out
}

fn plain(ca: &Ca, host: &str) -> Vec<u8> {
    (introduction(ca).join("\n") + "\n\n" + &PLATFORMS.replace(HOST, host)).into_bytes()
}

fn introduction(ca: &Ca) -> Vec<String> {
    let mut said = vec![
        String::from(
            "This is politely, a proxy that makes crawlers obey robots.txt. To read https requests it shows certificates of its \
             own certificate authority, which your programs have to trust.",
        ),
        String::from(
            "Compare the fingerprint with what the proxy's operator gives you: this page comes over plain HTTP, and whoever \
             holds the key of a trusted authority can impersonate any site.",
        ),
    ];
    said.extend(
        ca.trusted().iter().map(|certificate| {
            format!("SHA-256 {}, valid until {}", certificate.fingerprint, certificate.until.date())
        }),
    );
    said
}

/// Placeholder for the requested name.
const HOST: &str = "HOST";

/// A block for each platform: its name, and indented commands, which use the proxy by `http_proxy` or the system's settings.
const PLATFORMS: &str = include_str!("setup.txt");
