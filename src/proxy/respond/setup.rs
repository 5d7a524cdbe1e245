//! The pages at `intercept.setup_host`: the certificate of the proxy's authority, and how each platform comes to
//! trust it.

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
        // With this type browsers and phones offer to install it.
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
    let mut out = Vec::new();
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
    for (platform, commands) in PLATFORMS {
        let commands = commands.replace(HOST, host);
        let _ = writeln!(out, "<details><summary>{platform}</summary><pre>{}</pre></details>", Html(&commands));
    }
    out
}

fn plain(ca: &Ca, host: &str) -> Vec<u8> {
    let mut out = introduction(ca).join("\n").into_bytes();
    for (platform, commands) in PLATFORMS {
        let _ = write!(out, "\n\n{platform}:");
        for line in commands.replace(HOST, host).lines() {
            let _ = write!(out, "\n    {line}");
        }
    }
    out.push(b'\n');
    out
}

fn introduction(ca: &Ca) -> Vec<String> {
    let mut said = vec![
        String::from(
            "This is politely, a proxy that makes crawlers obey robots.txt. To read https requests it shows certificates of its \
             own certificate authority, which your programs have to trust.",
        ),
        String::from(
            "Compare the fingerprint with what the proxy's operator gives you: this page comes over plain HTTP, and whoever \
             holds the key of a trusted authority can be any site to you.",
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

/// The commands go through the proxy, by `http_proxy` or the system's settings.
const PLATFORMS: &[(&str, &str)] = &[
    (
        "One shell, without root; what reads these variables then trusts this proxy alone",
        "curl -fo ~/politely.pem http://HOST/ca.pem\n\
         export SSL_CERT_FILE=~/politely.pem CURL_CA_BUNDLE=~/politely.pem REQUESTS_CA_BUNDLE=~/politely.pem\n\
         export NODE_EXTRA_CA_CERTS=~/politely.pem GIT_SSL_CAINFO=~/politely.pem PIP_CERT=~/politely.pem",
    ),
    (
        "With politely installed, for one shell and all its programs",
        "eval \"$(politely ca env --from http://PROXY:3128)\"",
    ),
    (
        "Debian, Ubuntu",
        "sudo curl -fo /usr/local/share/ca-certificates/politely.crt http://HOST/ca.pem\nsudo update-ca-certificates",
    ),
    (
        "Fedora, RHEL",
        "sudo curl -fo /etc/pki/ca-trust/source/anchors/politely.pem http://HOST/ca.pem\nsudo update-ca-trust",
    ),
    (
        "Alpine",
        "apk add ca-certificates\nwget -O /usr/local/share/ca-certificates/politely.crt http://HOST/ca.pem\nupdate-ca-certificates",
    ),
    ("Arch", "curl -fo politely.crt http://HOST/ca.pem\nsudo trust anchor politely.crt"),
    (
        "macOS",
        "curl -fo politely.crt http://HOST/ca.pem\n\
         sudo security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain politely.crt",
    ),
    (
        "Windows, as administrator",
        "curl.exe -fo politely.crt http://HOST/ca.crt\ncertutil -addstore -f ROOT politely.crt",
    ),
    (
        "Firefox",
        "Settings > Privacy & Security > Certificates > View Certificates > Authorities > Import: http://HOST/ca.pem",
    ),
    (
        "Chromium on Linux",
        "curl -fo politely.pem http://HOST/ca.pem\n\
         mkdir -p ~/.pki/nssdb\n\
         certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n politely -i politely.pem",
    ),
    (
        "Java",
        "curl -fo politely.pem http://HOST/ca.pem\n\
         keytool -importcert -noprompt -cacerts -storepass changeit -alias politely -file politely.pem",
    ),
    (
        "A container image on Debian",
        "ADD http://HOST/ca.pem /usr/local/share/ca-certificates/politely.crt\nRUN update-ca-certificates",
    ),
    ("Android, iOS", "Open http://HOST/ca.crt in the browser, install it, and trust it in the system's settings."),
];
