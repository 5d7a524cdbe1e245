//! Addresses that nobody opened, in every spelling, by every way in.

use super::siege::{Siege, refused, shoot};
use crate::support::{Client, Origin, Proxy};

/// The default rules, except for the ports.
const CLOSED: &str = "egress: { allow: [] }";

/// Hosts as they may stand in a URL.
const HOSTS: &[(&str, &str)] = &[
    ("loopback", "127.0.0.1"),
    ("another loopback", "127.8.8.8"),
    ("the last loopback", "127.255.255.254"),
    ("a name of loopback", "localhost"),
    ("a name below it", "x.localhost"),
    ("it in upper case", "LOCALHOST"),
    ("it with a dot", "localhost."),
    ("this host", "0.0.0.0"),
    ("this network", "0.1.2.3"),
    ("private 10", "10.1.2.3"),
    ("private 172", "172.31.255.255"),
    ("private 192", "192.168.0.1"),
    ("shared address space", "100.64.0.1"),
    ("link-local", "169.254.1.1"),
    ("cloud metadata", "169.254.169.254"),
    ("task metadata", "169.254.170.2"),
    ("Alibaba's metadata", "100.100.100.200"),
    ("Oracle's metadata", "192.0.0.192"),
    ("Azure's wire server", "168.63.129.16"),
    ("a documentation network", "192.0.2.1"),
    ("another", "198.51.100.1"),
    ("a third", "203.0.113.1"),
    ("benchmarking", "198.19.0.1"),
    ("6to4 relays", "192.88.99.1"),
    ("multicast", "224.0.0.1"),
    ("reserved", "240.0.0.1"),
    ("broadcast", "255.255.255.255"),
    ("one part", "2130706433"),
    ("one part, hexadecimal", "0x7f000001"),
    ("one part, octal", "017700000001"),
    ("one part, too large", "4294967297"),
    ("two parts", "127.1"),
    ("three parts", "127.0.1"),
    ("parts in hexadecimal", "0x7f.0x0.0x0.0x1"),
    ("a part in hexadecimal", "0x7f.1"),
    ("parts in octal", "0177.0.0.01"),
    ("leading zeros", "127.000.000.001"),
    ("zero", "0"),
    ("metadata as a number", "2852039166"),
    ("metadata in hexadecimal", "0xa9fea9fe"),
    ("metadata, two parts", "169.16689662"),
    ("full-width digits", "\u{ff11}\u{ff12}\u{ff17}.0.0.1"),
    ("circled digits", "\u{2460}\u{2461}\u{2466}.0.0.1"),
    ("ideographic full stops", "127\u{3002}0\u{3002}0\u{3002}1"),
    ("an encoded digit", "%3127.0.0.1"),
    ("encoded dots", "127%2e0%2e0%2e1"),
    ("a dot at the end", "127.0.0.1."),
    ("loopback, IPv6", "[::1]"),
    ("loopback, IPv6, written out", "[0:0:0:0:0:0:0:1]"),
    ("loopback, IPv6, with zeros", "[0000:0000:0000:0000:0000:0000:0000:0001]"),
    ("unspecified, IPv6", "[::]"),
    ("mapped", "[::ffff:127.0.0.1]"),
    ("mapped, hexadecimal", "[::ffff:7f00:1]"),
    ("mapped, written out", "[0:0:0:0:0:ffff:7f00:0001]"),
    ("mapped metadata", "[::ffff:169.254.169.254]"),
    ("compatible", "[::127.0.0.1]"),
    ("translated", "[::ffff:0:127.0.0.1]"),
    ("NAT64", "[64:ff9b::127.0.0.1]"),
    ("NAT64 of metadata", "[64:ff9b::a9fe:a9fe]"),
    ("local NAT64", "[64:ff9b:1::7f00:1]"),
    ("6to4", "[2002:7f00:1::]"),
    ("6to4 of a private address", "[2002:c0a8:1::1]"),
    ("Teredo", "[2001:0:7f00:1::1]"),
    ("Teredo of an inverted address", "[2001:0:0:0:0:0:80ff:fffe]"),
    ("ISATAP", "[fe80::5efe:127.0.0.1]"),
    ("link-local, IPv6", "[fe80::1]"),
    ("site-local", "[fec0::1]"),
    ("unique local", "[fd00::1]"),
    ("metadata, IPv6", "[fd00:ec2::254]"),
    ("multicast, IPv6", "[ff02::1]"),
    ("documentation, IPv6", "[2001:db8::1]"),
    ("discard", "[100::1]"),
    ("ORCHID", "[2001:20::1]"),
    ("segment routing", "[5f00::1]"),
    ("new documentation", "[3fff::1]"),
    ("a zone", "[fe80::1%25eth0]"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn special_addresses_are_not_dialled() {
    let origin = Origin::site("").await;
    let intercepting = Proxy::start(CLOSED).await;
    let tunnelling = Proxy::start("egress: { allow: [] }\nintercept: { default: tunnel }").await;
    let port = origin.port();
    let mut siege = Siege::default();
    for (name, host) in HOSTS {
        let authority = format!("{host}:{port}");
        let mut client = intercepting.client().await;
        let request = format!("GET http://{authority}/x HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        let answer = shoot(&mut client, request).await;
        siege.tried(format!("request, {name}"), refused(answer.as_ref(), &[400, 403]));
        let mut client = tunnelling.client().await;
        let answer = shoot(&mut client, format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await;
        siege.tried(format!("tunnel, {name}"), refused(answer.as_ref(), &[400, 403]));
        let mut client = intercepting.client().await;
        client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await;
        if client.head().await.status() == 200 {
            let answer = shoot(&mut client, format!("GET /x HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await;
            siege.tried(format!("inside CONNECT, {name}"), refused(answer.as_ref(), &[400, 403, 421]));
        }
    }
    siege.withstood(200);
    assert_eq!(origin.connections(), 0);
}

/// A client cannot reach an address by SNI that CONNECT refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn egress_rules_apply_to_the_sni_name() {
    let origin = Origin::tls_site(crate::support::Alpn::Both, "").await;
    let proxy = Proxy::start("egress: { allow: [192.0.2.1/32] }").await;
    let mut siege = Siege::default();
    for name in ["localhost", "a.localhost", "b.localhost"] {
        let opened = format!("192.0.2.1:{}", origin.port());
        let client = Client::connect(proxy.address(), &opened).await;
        let mut client = client.tls(name, &proxy.ca_pem_path(), &[b"http/1.1"]).await;
        let request = format!("GET /x HTTP/1.1\r\nHost: {}\r\n\r\n", origin.authority(name));
        siege.tried(name, refused(shoot(&mut client, request).await.as_ref(), &[403, 421]));
    }
    siege.withstood(3);
    assert_eq!(origin.connections(), 0);
}

/// Only checked addresses are dialled: the lookup that was checked is the one that is cached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allowed_address_does_not_allow_its_neighbour() {
    let Ok(neighbour) = Origin::try_http_on("127.0.0.2:0", crate::support::origin::pages("")).await else {
        return;
    };
    let proxy = Proxy::start("egress: { allow: [127.0.0.1/32] }").await;
    let mut siege = Siege::default();
    for host in ["127.0.0.2", "[::ffff:127.0.0.2]", "127.2", "2130706434"] {
        let answer = proxy.get(&format!("http://{host}:{}/x", neighbour.port())).await;
        siege.tried(host, refused(Some(&answer), &[400, 403]));
    }
    siege.withstood(4);
    assert_eq!(neighbour.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_that_are_not_allowed_are_not_dialled() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("egress: { ports: [80, 443] }").await;
    let tunnelling = Proxy::start("egress: { ports: [80, 443] }\nintercept: { default: tunnel }").await;
    let mut siege = Siege::default();
    for port in [origin.port(), 0, 22, 25, 110, 143, 465, 587, 3128, 6379, 8080, 11211] {
        let authority = format!("127.0.0.1:{port}");
        for scheme in ["http", "https"] {
            let answer = proxy.get(&format!("{scheme}://{authority}/x")).await;
            siege.tried(format!("{scheme}, {port}"), refused(Some(&answer), &[400, 403]));
        }
        let mut client = tunnelling.client().await;
        let answer = shoot(&mut client, format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await;
        siege.tried(format!("CONNECT, {port}"), refused(answer.as_ref(), &[400, 403]));
    }
    siege.withstood(36);
    assert_eq!(origin.connections(), 0);
}
