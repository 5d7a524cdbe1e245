//! A disallowed URL, or a closed one, by another spelling of its authority.

use super::siege::{Siege, refused, shoot};
use crate::support::{Origin, Proxy};

const ROBOTS: &str = "User-agent: *\nDisallow: /secret\n";

/// Requests in which `{p}` is the origin's port and `{h}` its authority.
const SPELLINGS: &[(&str, &str, &str)] = &[
    ("upper case", "http://A.LOCALHOST:{p}/secret", "A.LOCALHOST:{p}"),
    ("mixed case, disagreeing", "http://A.localhost:{p}/secret", "a.LOCALHOST:{p}"),
    ("the scheme in upper case", "HTTP://a.localhost:{p}/secret", "{h}"),
    ("a trailing dot", "http://a.localhost.:{p}/secret", "a.localhost.:{p}"),
    ("a trailing dot in the target only", "http://a.localhost.:{p}/secret", "{h}"),
    ("two trailing dots", "http://a.localhost..:{p}/secret", "a.localhost..:{p}"),
    ("an empty label", "http://a..localhost:{p}/secret", "a..localhost:{p}"),
    ("a leading dot", "http://.a.localhost:{p}/secret", ".a.localhost:{p}"),
    ("a leading zero in the port", "http://a.localhost:0{p}/secret", "a.localhost:0{p}"),
    ("a sign before the port", "http://a.localhost:+{p}/secret", "a.localhost:+{p}"),
    ("a space before the port", "http://a.localhost: {p}/secret", "{h}"),
    ("a port beyond 16 bits", "http://a.localhost:6553600{p}/secret", "{h}"),
    ("two ports", "http://a.localhost:80:{p}/secret", "{h}"),
    ("a letter of the host encoded", "http://%61.localhost:{p}/secret", "{h}"),
    ("the dot of the host encoded", "http://a%2elocalhost:{p}/secret", "{h}"),
    ("a full-width letter", "http://\u{ff41}.localhost:{p}/secret", "{h}"),
    ("an ideographic full stop", "http://a\u{3002}localhost:{p}/secret", "{h}"),
    ("a soft hyphen", "http://a.local\u{ad}host:{p}/secret", "{h}"),
    ("a zero-width space", "http://a.local\u{200b}host:{p}/secret", "{h}"),
    ("userinfo", "http://user@a.localhost:{p}/secret", "{h}"),
    ("userinfo and password", "http://user:pass@a.localhost:{p}/secret", "{h}"),
    ("empty userinfo", "http://@a.localhost:{p}/secret", "{h}"),
    ("an authority as userinfo", "http://b.localhost:80@a.localhost:{p}/secret", "{h}"),
    ("two at signs", "http://b@c@a.localhost:{p}/secret", "{h}"),
    ("a backslash for userinfo", "http://b.localhost\\@a.localhost:{p}/secret", "{h}"),
    ("a backslash for a slash", "http://a.localhost:{p}\\secret", "{h}"),
    ("backslashes after the scheme", "http:\\\\a.localhost:{p}\\secret", "{h}"),
    ("one slash after the scheme", "http:/a.localhost:{p}/secret", "{h}"),
    ("no slash after the scheme", "http:a.localhost:{p}/secret", "{h}"),
    ("three slashes after the scheme", "http:///a.localhost:{p}/secret", "{h}"),
    ("no scheme", "//a.localhost:{p}/secret", "{h}"),
    ("no scheme and no slashes", "a.localhost:{p}/secret", "{h}"),
    ("another scheme", "ftp://a.localhost:{p}/secret", "{h}"),
    ("a scheme of files", "file:///etc/passwd", "{h}"),
    ("a scheme of gophers", "gopher://a.localhost:{p}/1secret", "{h}"),
    ("a scheme of its own", "politely://a.localhost:{p}/secret", "{h}"),
    ("a scheme with a tail", "http+unix://a.localhost:{p}/secret", "{h}"),
    ("no host", "http://:{p}/secret", ":{p}"),
    ("origin-form on the proxy's port", "/secret", "{h}"),
    ("origin-form that looks absolute", "/http://a.localhost:{p}/secret", "{h}"),
    ("the asterisk", "*", "{h}"),
    ("authority-form without CONNECT", "a.localhost:{p}", "{h}"),
    ("another Host", "http://a.localhost:{p}/secret", "b.localhost:{p}"),
    ("Host on another port", "http://a.localhost:{p}/secret", "a.localhost:1"),
    ("Host without the port", "http://a.localhost:{p}/secret", "a.localhost"),
    ("a Host with userinfo", "http://a.localhost:{p}/public", "x@a.localhost:{p}"),
    ("a Host with a path", "http://a.localhost:{p}/public", "a.localhost:{p}/secret"),
    ("a Host with a scheme", "http://a.localhost:{p}/public", "http://a.localhost:{p}"),
    ("an empty Host", "http://a.localhost:{p}/public", ""),
    ("a list of Hosts", "http://a.localhost:{p}/public", "a.localhost:{p}, b.localhost:{p}"),
    ("a Host with a NUL", "http://a.localhost:{p}/public", "a.localhost\0:{p}"),
    ("an address in a name's place", "http://127.0.0.1:{p}/secret", "127.0.0.1:{p}"),
    ("a short address", "http://127.1:{p}/secret", "127.1:{p}"),
    ("an address as a number", "http://2130706433:{p}/secret", "2130706433:{p}"),
    ("an address in hexadecimal", "http://0x7f000001:{p}/secret", "0x7f000001:{p}"),
    ("an address in octal", "http://0177.0.0.1:{p}/secret", "0177.0.0.1:{p}"),
    ("a bracketed IPv4 address", "http://[127.0.0.1]:{p}/secret", "[127.0.0.1]:{p}"),
    ("a bracketed name", "http://[a.localhost]:{p}/secret", "[a.localhost]:{p}"),
    ("an IPv6 address with a zone", "http://[::1%25lo]:{p}/secret", "[::1%25lo]:{p}"),
    ("a bracket too few", "http://[::1:{p}/secret", "[::1:{p}"),
    ("a bracket too many", "http://[[::1]]:{p}/secret", "[[::1]]:{p}"),
    ("an IPv6 address without brackets", "http://::1:{p}/secret", "::1:{p}"),
    ("a mapped address", "http://[::ffff:127.0.0.1]:{p}/secret", "[::ffff:127.0.0.1]:{p}"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_spelling_of_an_authority_gets_through() {
    let origin = Origin::site(ROBOTS).await;
    let proxy = Proxy::start("").await;
    let (port, host) = (origin.port().to_string(), origin.authority("a.localhost"));
    let mut siege = Siege::default();
    for (name, target, named) in SPELLINGS {
        let fill = |text: &str| text.replace("{p}", &port).replace("{h}", &host);
        let (target, named) = (fill(target), fill(named));
        let mut client = proxy.client().await;
        let answer = shoot(&mut client, format!("GET {target} HTTP/1.1\r\nHost: {named}\r\n\r\n")).await;
        siege.tried(*name, refused(answer.as_ref(), &[400, 403, 503]));
    }
    siege.withstood(63);
    assert_eq!(origin.log.pages(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_are_read_once_for_all_spellings_of_an_authority() {
    let origin = Origin::site(ROBOTS).await;
    let proxy = Proxy::start("").await;
    for host in ["a.localhost", "A.LOCALHOST", "a.localhost.", "A.localhost."] {
        let answer = proxy.get(&format!("http://{host}:{}/secret", origin.port())).await;
        assert_eq!(answer.status(), 403, "{host}");
    }
    assert_eq!(origin.log.count("/robots.txt"), 1, "one authority, however it is spelt");
}
