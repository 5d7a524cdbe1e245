//! Tests of authorities, by example.

use super::*;
use proptest::prelude::*;

fn http(authority: &str) -> Result<String, AuthorityError> {
    Authority::parse(Scheme::Http, authority.as_bytes()).map(|authority| authority.to_string())
}

#[test]
fn authorities_have_one_canonical_spelling() {
    for (sent, canonical) in [
        ("example.com", "http://example.com"),
        ("EXAMPLE.com.", "http://example.com"),
        ("example.com:80", "http://example.com"),
        ("example.com:", "http://example.com"),
        ("example.com:0080", "http://example.com"),
        ("example.com:8080", "http://example.com:8080"),
        ("example.com:443", "http://example.com:443"),
        ("www.example.com", "http://www.example.com"),
        ("a_b.example-.com", "http://a_b.example-.com"),
        ("localhost", "http://localhost"),
        ("BÜCHER.example", "http://xn--bcher-kva.example"),
        ("b%C3%BCcher.example", "http://xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "http://xn--bcher-kva.example"),
        ("ex%41mple%2ecom", "http://example.com"),
        ("example。com", "http://example.com"),
        ("exa\u{ad}mple.com", "http://example.com"),
        ("faß.example", "http://xn--fa-hia.example"),
        ("[::1]", "http://[::1]"),
        ("[0:0:0:0:0:0:0:1]:8080", "http://[::1]:8080"),
        ("[2001:DB8:0:0:1:0:0:1]", "http://[2001:db8::1:0:0:1]"),
    ] {
        assert_eq!(http(sent).as_deref(), Ok(canonical), "{sent}");
    }
}

#[test]
fn ipv4_spellings_are_normalised() {
    for spelling in [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "127.0.1",
        "0x7f.1",
        "0X7F.0.0.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "0177.0.0.01",
        "127.0.0.0x1",
        "１２７.０.０.１",
        "127。0。0。1",
        "①②⑦.⓪.⓪.①",
        "%31%32%37.0.0.1",
        "127%2e0%2e0%2e1",
        "127.0.0.%31",
        "127.0.0.1\u{ad}",
    ] {
        assert_eq!(http(spelling).as_deref(), Ok("http://127.0.0.1"), "{spelling}");
    }
    assert_eq!(http("0").as_deref(), Ok("http://0.0.0.0"));
    assert_eq!(http("0x").as_deref(), Ok("http://0.0.0.0"));
}

#[test]
fn a_mapped_address_stays_ipv6_for_the_guard_to_judge() {
    let authority = Authority::parse(Scheme::Http, b"[::ffff:127.0.0.1]:81").unwrap();
    assert_eq!(authority.host().ip(), Some("::ffff:7f00:1".parse().unwrap()));
    assert_eq!(authority.host_header(), "[::ffff:127.0.0.1]:81");
}

#[test]
fn invalid_authorities_are_refused_with_the_reason() {
    let long_label = format!("{}.com", "a".repeat(64));
    let long_name = format!("{}com", "a.".repeat(126));
    let longer_than_read = "%61".repeat(2000);
    for (sent, why) in [
        ("", AuthorityError::HostMissing),
        (".", AuthorityError::HostMissing),
        (":80", AuthorityError::HostMissing),
        ("%2e", AuthorityError::HostMissing),
        ("user@example.com", AuthorityError::Userinfo),
        ("u:p@example.com", AuthorityError::Userinfo),
        ("@example.com", AuthorityError::Userinfo),
        ("example.com@127.0.0.1", AuthorityError::Userinfo),
        ("example.com:0", AuthorityError::Port),
        ("example.com:65536", AuthorityError::Port),
        ("example.com:+80", AuthorityError::Port),
        ("example.com:-80", AuthorityError::Port),
        ("example.com: 80", AuthorityError::Port),
        ("example.com:http", AuthorityError::Port),
        ("example.com:80:80", AuthorityError::Port),
        ("::1", AuthorityError::Port),
        ("[::1", AuthorityError::Ipv6),
        ("[::1]x", AuthorityError::Ipv6),
        ("[::1]80", AuthorityError::Ipv6),
        ("[::g]", AuthorityError::Ipv6),
        ("[127.0.0.1]", AuthorityError::Ipv6),
        ("[example.com]", AuthorityError::Ipv6),
        ("[fe80::1%eth0]", AuthorityError::Zone),
        ("[fe80::1%25eth0]", AuthorityError::Zone),
        ("256.0.0.1", AuthorityError::Ipv4),
        ("1.2.3.4.5", AuthorityError::Ipv4),
        ("127.0.0.08", AuthorityError::Ipv4),
        ("example.0x1", AuthorityError::Ipv4),
        ("4294967296", AuthorityError::Ipv4),
        ("exam ple.com", AuthorityError::HostCharacters),
        ("example.com\t", AuthorityError::HostCharacters),
        ("example.com\0", AuthorityError::HostCharacters),
        ("example.com\r\nx", AuthorityError::HostCharacters),
        ("example.com%00", AuthorityError::HostCharacters),
        ("example.com%2f", AuthorityError::HostCharacters),
        ("example.com%3a80", AuthorityError::HostCharacters),
        ("user%40example.com", AuthorityError::HostCharacters),
        ("example.com\\x", AuthorityError::HostCharacters),
        ("example.com/x", AuthorityError::HostCharacters),
        ("a\"b.com", AuthorityError::HostCharacters),
        ("a'b.com", AuthorityError::HostCharacters),
        ("*.example.com", AuthorityError::HostCharacters),
        ("a,b", AuthorityError::HostCharacters),
        ("xn--a.example", AuthorityError::HostCharacters),
        ("%ff.example", AuthorityError::HostCharacters),
        ("example..com", AuthorityError::HostLength),
        ("example.com..", AuthorityError::HostLength),
        (".example.com", AuthorityError::HostLength),
        ("bücher..example", AuthorityError::HostLength),
        (long_label.as_str(), AuthorityError::HostLength),
        (long_name.as_str(), AuthorityError::HostLength),
        (longer_than_read.as_str(), AuthorityError::HostLength),
    ] {
        assert_eq!(http(sent), Err(why), "{sent}");
    }
    assert_eq!(Authority::parse(Scheme::Http, b"ex\xffample"), Err(AuthorityError::HostCharacters));
}

#[test]
fn the_longest_name_is_accepted() {
    let name = format!("{}com", "a.".repeat(125));
    assert_eq!(name.len(), 253);
    assert_eq!(http(&format!("{name}.")), Ok(format!("http://{name}")));
}

#[test]
fn connect_authority_requires_a_port() {
    let connect = |target: &[u8]| Authority::parse_connect(Scheme::Https, target).map(|authority| authority.port());
    assert_eq!(connect(b"example.com:443"), Ok(443));
    assert_eq!(connect(b"[::1]:8443"), Ok(8443));
    assert_eq!(connect(b"example.com"), Err(AuthorityError::PortMissing));
    assert_eq!(connect(b"example.com:"), Err(AuthorityError::PortMissing));
    assert_eq!(connect(b"[::1]"), Err(AuthorityError::PortMissing));
    assert_eq!(connect(b"u@example.com:443"), Err(AuthorityError::Userinfo));
    assert_eq!(connect(b"http://example.com:443"), Err(AuthorityError::Port));
}

#[test]
fn connect_authority_for_plain_http_keeps_its_port() {
    let connect = Authority::parse_connect(Scheme::Https, b"example.com:443").unwrap();
    assert_eq!(connect.with_scheme(Scheme::Http).to_string(), "http://example.com:443");
}

#[test]
fn authority_of_a_url_ignores_its_other_parts() {
    let from = |url: &str| Authority::from_url(url).map(|authority| authority.robots_url());
    assert_eq!(from("https://Example.com/a?b#c").as_deref(), Ok("https://example.com/robots.txt"));
    assert_eq!(from("HTTP://example.com").as_deref(), Ok("http://example.com/robots.txt"));
    assert_eq!(from("http://example.com?a@b").as_deref(), Ok("http://example.com/robots.txt"));
    assert_eq!(from("http://example.com#@evil").as_deref(), Ok("http://example.com/robots.txt"));
    assert_eq!(from("https://[::1]:8443/").as_deref(), Ok("https://[::1]:8443/robots.txt"));
    assert_eq!(from("https://u:p@example.com/"), Err(AuthorityError::Userinfo));
    assert_eq!(from("http://example.com\\@evil/"), Err(AuthorityError::Userinfo));
    assert_eq!(from("http://example.com\\evil/"), Err(AuthorityError::HostCharacters));
    assert_eq!(from("http:///a"), Err(AuthorityError::HostMissing));
    assert_eq!(from("ftp://example.com/"), Err(AuthorityError::Scheme));
    assert_eq!(from("//example.com/"), Err(AuthorityError::Scheme));
    assert_eq!(from("example.com"), Err(AuthorityError::Scheme));
}

#[test]
fn target_of_a_url_is_unchanged_and_begins_with_a_slash() {
    for (url, wanted) in [
        ("http://a.example", "/"),
        ("http://a.example/a/../b?c=%7e#d", "/a/../b?c=%7e"),
        ("https://a.example?q", "/?q"),
        ("http://a.example#x", "/"),
        ("http://a.example/#?x", "/"),
        ("http://a.example/ü", "/ü"),
    ] {
        assert_eq!(Authority::and_target(url).unwrap().1, wanted, "{url}");
    }
    for url in ["http://a.example/x y", "http://a.example/x#y z", "http://a.example?\t", "http://a.example/\n"] {
        assert_eq!(Authority::from_url(url), Err(AuthorityError::Target), "{url:?}");
    }
}

#[test]
fn authorities_differ_by_scheme_host_and_port() {
    let all: std::collections::HashSet<_> =
        ["http://example.com", "https://example.com", "http://www.example.com", "http://example.com:8080"]
            .map(|url| Authority::from_url(url).unwrap())
            .into();
    assert_eq!(all.len(), 4);
    assert!(all.contains(&Authority::new(Scheme::Https, "EXAMPLE.COM.", Some(443)).unwrap()));
}

#[test]
fn host_header_leaves_the_default_port_out() {
    let header = |url: &str| Authority::from_url(url).unwrap().host_header();
    assert_eq!(header("https://example.com:443/"), "example.com");
    assert_eq!(header("http://example.com:443/"), "example.com:443");
    assert_eq!(header("http://[::1]:8080/"), "[::1]:8080");
}

#[test]
fn a_bare_ipv6_address_is_a_host() {
    assert_eq!(Host::parse("::1").map(|host| host.to_string()).as_deref(), Ok("[::1]"));
    assert_eq!(Host::parse("a:b"), Err(AuthorityError::Ipv6));
}

proptest! {
    #[test]
    fn any_bytes_parse_without_panic(sent in proptest::collection::vec(any::<u8>(), 0..40)) {
        let _ = Authority::parse(Scheme::Http, &sent);
    }

    #[test]
    fn the_canonical_form_is_a_fixed_point(sent in "[a-zA-Z0-9.:%\\[\\]_xü０-３。-]{1,24}") {
        if let Ok(authority) = Authority::parse(Scheme::Https, sent.as_bytes()) {
            prop_assert_eq!(Authority::from_url(&authority.to_string()), Ok(authority.clone()));
            prop_assert_eq!(Authority::parse(Scheme::Https, authority.host_header().as_bytes()), Ok(authority));
        }
    }

    // The fast path must not accept a name that the standard's parser reads as an address or as another name.
    #[test]
    fn fast_path_matches_the_url_standard(sent in "[a-zA-Z0-9xXn._-]{1,16}") {
        if let Ok(host) = Host::parse(&sent) {
            let standard = url::Host::parse(&sent).unwrap().to_string();
            prop_assert_eq!(host.to_string(), standard.strip_suffix('.').unwrap_or(&standard));
        }
    }
}
