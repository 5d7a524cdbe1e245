//! Each special range by name, each form that embeds an IPv4 address, and the operator's exceptions.

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn nets<const N: usize>(texts: [&str; N]) -> Vec<IpNet> {
    texts.map(|text| text.parse().unwrap()).into()
}

/// The range that denies an address.
#[track_caller]
fn range_of(guard: &Guard, address: &str) -> Option<String> {
    match guard.screen_address(ip(address)) {
        Ok(()) => None,
        Err(Denied::Excluded(EgressReason::Address { range, .. })) => {
            Some(range.split(" because of ").next().unwrap().to_owned())
        }
        Err(other) => panic!("{address}: {other}"),
    }
}

#[test]
fn special_ranges_are_denied_from_first_to_last_address() {
    // The rows of the registries: name, first and last address, and the neighbours if those are public.
    for (name, first, last, before, after) in [
        ("This host on this network", "0.0.0.0", "0.0.0.0", None, None),
        ("This network", "0.0.0.1", "0.255.255.255", None, Some("1.0.0.0")),
        ("Private-Use", "10.0.0.0", "10.255.255.255", Some("9.255.255.255"), Some("11.0.0.0")),
        ("Shared Address Space", "100.64.0.0", "100.127.255.255", Some("100.63.255.255"), Some("100.128.0.0")),
        ("Cloud metadata", "100.100.100.200", "100.100.100.200", None, None),
        ("Loopback", "127.0.0.0", "127.255.255.255", Some("126.255.255.255"), Some("128.0.0.0")),
        ("Cloud metadata", "168.63.129.16", "168.63.129.16", Some("168.63.129.15"), Some("168.63.129.17")),
        ("Link Local", "169.254.0.0", "169.254.255.255", Some("169.253.255.255"), Some("169.255.0.0")),
        ("Cloud metadata", "169.254.169.254", "169.254.169.254", None, None),
        ("Cloud metadata", "169.254.170.2", "169.254.170.2", None, None),
        ("Private-Use", "172.16.0.0", "172.31.255.255", Some("172.15.255.255"), Some("172.32.0.0")),
        ("IPv4 Service Continuity Prefix", "192.0.0.0", "192.0.0.7", Some("191.255.255.255"), None),
        ("IPv4 dummy address", "192.0.0.8", "192.0.0.8", None, None),
        ("Port Control Protocol Anycast", "192.0.0.9", "192.0.0.9", None, None),
        ("Traversal Using Relays around NAT Anycast", "192.0.0.10", "192.0.0.10", None, None),
        ("IETF Protocol Assignments", "192.0.0.11", "192.0.0.255", None, Some("192.0.1.0")),
        ("NAT64/DNS64 Discovery", "192.0.0.170", "192.0.0.171", None, None),
        ("Cloud metadata", "192.0.0.192", "192.0.0.192", None, None),
        ("Documentation (TEST-NET-1)", "192.0.2.0", "192.0.2.255", Some("192.0.1.255"), Some("192.0.3.0")),
        ("AS112-v4", "192.31.196.0", "192.31.196.255", Some("192.31.195.255"), Some("192.31.197.0")),
        ("AMT", "192.52.193.0", "192.52.193.255", Some("192.52.192.255"), Some("192.52.194.0")),
        ("6to4 Relay Anycast", "192.88.99.0", "192.88.99.255", Some("192.88.98.255"), Some("192.88.100.0")),
        ("6a44-relay anycast address", "192.88.99.2", "192.88.99.2", None, None),
        ("Private-Use", "192.168.0.0", "192.168.255.255", Some("192.167.255.255"), Some("192.169.0.0")),
        (
            "Direct Delegation AS112 Service",
            "192.175.48.0",
            "192.175.48.255",
            Some("192.175.47.255"),
            Some("192.175.49.0"),
        ),
        ("Benchmarking", "198.18.0.0", "198.19.255.255", Some("198.17.255.255"), Some("198.20.0.0")),
        ("Documentation (TEST-NET-2)", "198.51.100.0", "198.51.100.255", Some("198.51.99.255"), Some("198.51.101.0")),
        ("Documentation (TEST-NET-3)", "203.0.113.0", "203.0.113.255", Some("203.0.112.255"), Some("203.0.114.0")),
        ("Multicast", "224.0.0.0", "239.255.255.255", Some("223.255.255.255"), None),
        ("Reserved", "240.0.0.0", "255.255.255.254", None, None),
        ("Limited Broadcast", "255.255.255.255", "255.255.255.255", None, None),
        ("Unspecified Address", "::", "::", None, None),
        ("Loopback Address", "::1", "::1", None, None),
        ("IPv4-compatible Address", "::808:808", "::dfff:ffff", None, None),
        ("IPv4-mapped Address", "::ffff:8.8.8.8", "::ffff:223.255.255.255", None, None),
        ("IPv4-translated Address", "::ffff:0:8.8.8.8", "::ffff:0:223.255.255.255", None, None),
        ("Discard-Only Address Block", "100::", "100::ffff:ffff:ffff:ffff", None, None),
        ("Dummy IPv6 Prefix", "100:0:0:1::", "100:0:0:1:ffff:ffff:ffff:ffff", None, None),
        ("TEREDO", "2001:0:808:808::f7f7:f7f7", "2001:0:808:808:ffff:ffff:f7f7:f7f7", None, None),
        ("Port Control Protocol Anycast", "2001:1::1", "2001:1::1", None, None),
        ("Traversal Using Relays around NAT Anycast", "2001:1::2", "2001:1::2", None, None),
        ("DNS-SD Service Registration Protocol Anycast", "2001:1::3", "2001:1::3", None, None),
        ("Benchmarking", "2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", None, None),
        ("AMT", "2001:3::", "2001:3:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
        ("AS112-v6", "2001:4:112::", "2001:4:112:ffff:ffff:ffff:ffff:ffff", None, None),
        ("Deprecated (previously ORCHID)", "2001:10::", "2001:1f:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
        ("ORCHIDv2", "2001:20::", "2001:2f:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
        ("Drone Remote ID Protocol Entity Tags", "2001:30::", "2001:3f:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
        ("IETF Protocol Assignments", "2001:40::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", None, Some("2001:200::")),
        (
            "Documentation",
            "2001:db8::",
            "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
            Some("2001:db7:ffff:ffff:ffff:ffff:ffff:ffff"),
            Some("2001:db9::"),
        ),
        (
            "6to4",
            "2002:808:808::",
            "2002:dfff:ffff:ffff:ffff:ffff:ffff:ffff",
            Some("2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            Some("2003::"),
        ),
        (
            "Direct Delegation AS112 Service",
            "2620:4f:8000::",
            "2620:4f:8000:ffff:ffff:ffff:ffff:ffff",
            Some("2620:4f:7fff:ffff:ffff:ffff:ffff:ffff"),
            Some("2620:4f:8001::"),
        ),
        (
            "Documentation",
            "3fff::",
            "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
            Some("3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            Some("3fff:1000::"),
        ),
        ("Segment Routing (SRv6) SIDs", "5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
        ("Unique-Local", "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
        ("Cloud metadata", "fd00:ec2::254", "fd00:ec2::254", None, None),
        ("Cloud metadata", "fd20:ce::254", "fd20:ce::254", None, None),
        ("Link-Local Unicast", "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
        ("Site-Local Unicast", "fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
        ("Multicast", "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
        ("unallocated", "200::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, Some("2000::")),
        ("unallocated", "4000::", "5eff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
    ] {
        let guard = Guard::default();
        assert_eq!(range_of(&guard, first).as_deref(), Some(name), "{first}");
        assert_eq!(range_of(&guard, last).as_deref(), Some(name), "{last}");
        for public in [before, after].into_iter().flatten() {
            assert_eq!(range_of(&guard, public).as_deref(), None, "{public}");
        }
    }
}

#[test]
fn every_range_of_the_tables_is_tested() {
    let text = include_str!("tests.rs");
    let names = ranges::V4.iter().map(|range| range.name).chain(ranges::V6.iter().map(|range| range.name));
    for name in names {
        assert!(text.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn public_addresses_are_allowed() {
    for address in ["1.1.1.1", "8.8.8.8", "93.184.215.14", "223.255.255.255", "2606:4700::1111", "2a00:1450::1"] {
        assert_eq!(Guard::default().screen_address(ip(address)), Ok(()), "{address}");
    }
}

#[test]
fn embedded_ipv4_address_is_screened() {
    for (outer, inner, range) in [
        ("::127.0.0.1", "127.0.0.1", "Loopback"),
        ("::ffff:127.0.0.1", "127.0.0.1", "Loopback"),
        ("::ffff:169.254.169.254", "169.254.169.254", "Cloud metadata"),
        ("::ffff:0:10.0.0.1", "10.0.0.1", "Private-Use"),
        ("64:ff9b::10.0.0.1", "10.0.0.1", "Private-Use"),
        ("64:ff9b::169.254.169.254", "169.254.169.254", "Cloud metadata"),
        ("64:ff9b::0.0.0.0", "0.0.0.0", "This host on this network"),
        ("64:ff9b:1::", "0.0.0.0", "This host on this network"),
        ("64:ff9b:1::192.168.0.1", "192.168.0.1", "Private-Use"),
        ("64:ff9b:1:a00:0:100::", "10.0.0.1", "Private-Use"),
        ("64:ff9b:1:a:0:1:808:808", "10.0.0.1", "Private-Use"),
        ("64:ff9b:1:0:a:0:100:0", "10.0.0.1", "Private-Use"),
        ("2001:0:a00:1::f7f7:f7f7", "10.0.0.1", "Private-Use"),
        ("2001:0:808:808::f5ff:fffe", "10.0.0.1", "Private-Use"),
        ("2002:7f00:1::", "127.0.0.1", "Loopback"),
        ("2002:a00:1:ffff::1", "10.0.0.1", "Private-Use"),
        ("2606:4700::5efe:192.168.0.1", "192.168.0.1", "Private-Use"),
        ("2606:4700::200:5efe:10.0.0.1", "10.0.0.1", "Private-Use"),
        ("fe80::5efe:10.0.0.1", "10.0.0.1", "Private-Use"),
    ] {
        let denied = Guard::default().screen_address(ip(outer));
        let Err(Denied::Excluded(EgressReason::Address { address, range: found, .. })) = denied else {
            panic!("{outer}: {denied:?}")
        };
        assert_eq!((address, &*found), (ip(outer), &*format!("{range} because of the embedded {inner}")));
    }
}

#[test]
fn embedded_public_address_is_allowed() {
    for address in [
        "64:ff9b::8.8.8.8",
        "64:ff9b:1::8.8.8.8",
        "64:ff9b:1:808:8:800::",
        "64:ff9b:1:8:8:808::",
        "2606:4700::5efe:8.8.8.8",
    ] {
        assert_eq!(Guard::default().screen_address(ip(address)), Ok(()), "{address}");
    }
}

#[test]
fn egress_allow_permits_special_ranges() {
    let guard = Guard { allow: nets(["127.0.0.0/8", "10.1.0.0/16", "fd00::/8"]), ..Guard::default() };
    for open in ["127.0.0.1", "10.1.2.3", "fd00::1", "64:ff9b::10.1.2.3"] {
        assert_eq!(guard.screen_address(ip(open)), Ok(()), "{open}");
    }
    assert_eq!(range_of(&guard, "10.2.0.0").as_deref(), Some("Private-Use"));
    assert_eq!(range_of(&guard, "::1").as_deref(), Some("Loopback Address"));
    assert_eq!(
        range_of(&guard, "::ffff:127.0.0.1").as_deref(),
        Some("IPv4-mapped Address"),
        "the IPv6 range is not allowed"
    );
    let both = Guard { allow: nets(["127.0.0.0/8", "::ffff:0:0/96"]), ..Guard::default() };
    assert_eq!(both.screen_address(ip("::ffff:127.0.0.1")), Ok(()));
    assert_eq!(range_of(&both, "::ffff:10.0.0.1").as_deref(), Some("Private-Use"));
    let loopback = Guard { allow: nets(["::1/128"]), ..Guard::default() };
    assert_eq!(loopback.screen_address(ip("::1")), Ok(()));
}

#[test]
fn egress_deny_overrides_egress_allow() {
    let guard = Guard { allow: nets(["10.0.0.0/8"]), deny: nets(["10.0.0.0/16", "8.8.8.0/24"]), ..Guard::default() };
    for closed in ["10.0.0.1", "8.8.8.8", "64:ff9b::8.8.8.8"] {
        let denied = guard.screen_address(ip(closed)).unwrap_err().to_string();
        assert!(denied.ends_with("(egress.deny)"), "{closed}: {denied}");
    }
    assert_eq!(guard.screen_address(ip("10.1.0.0")), Ok(()));
    assert_eq!(
        guard.screen_address(ip("8.8.8.8")).unwrap_err().to_string(),
        "blocked by egress: 8.8.8.8 is in the range 8.8.8.0/24 (egress.deny)"
    );
}

#[test]
fn only_ports_80_and_443_are_allowed_by_default() {
    let guard = Guard::default();
    assert_eq!((guard.screen_port(80), guard.screen_port(443)), (Ok(()), Ok(())));
    for port in [0, 22, 25, 81, 8080, u16::MAX] {
        assert_eq!(guard.screen_port(port), Err(EgressReason::Port(port).into()));
    }
    let guard = Guard { ports: vec![8000..=9000], ..Guard::default() };
    assert_eq!((guard.screen_port(8000), guard.screen_port(9000)), (Ok(()), Ok(())));
    for port in [7999, 9001] {
        assert_eq!(guard.screen_port(port), Err(EgressReason::Port(port).into()));
    }
}

#[test]
fn hosts_are_denied_by_name_pattern() {
    let guard = Guard { deny_hosts: vec!["*.internal.example".parse().unwrap()], ..Guard::default() };
    let screen = |host: &str| guard.screen_host(&Host::parse(host).unwrap(), 443);
    assert_eq!(screen("www.example"), Ok(()));
    assert_eq!(
        Refusal::from(screen("db.internal.example").unwrap_err()).to_string(),
        "blocked by egress: the host db.internal.example is denied by `*.internal.example`"
    );
}

#[test]
fn address_literal_is_screened_without_resolving() {
    let screen = |host: &str| Guard::default().screen_host(&Host::parse(host).unwrap(), 80);
    for hidden in ["127.1", "0x7f.1", "2130706433", "0177.0.0.1", "[::ffff:7f00:1]", "[::1]", "0"] {
        assert!(matches!(screen(hidden), Err(Denied::Excluded(EgressReason::Address { .. }))), "{hidden}");
    }
    assert_eq!(screen("8.8.8.8"), Ok(()));
}

#[test]
fn own_listeners_are_refused_as_a_loop_even_if_loopback_is_allowed() {
    let guard = Guard {
        allow: nets(["0.0.0.0/0", "::/0"]),
        ports: vec![1..=65535],
        listeners: vec!["127.0.0.1:3128".parse().unwrap(), "[::]:8080".parse().unwrap()],
        ..Guard::default()
    };
    let screen = |socket: &str| guard.screen_socket(socket.parse().unwrap());
    for own in [
        "127.0.0.1:3128",
        "[::ffff:127.0.0.1]:3128",
        "0.0.0.0:3128",
        "[::]:3128",
        "127.0.0.1:8080",
        "127.9.9.9:8080",
        "[::1]:8080",
        "[::ffff:127.0.0.1]:8080",
    ] {
        assert_eq!(screen(own), Err(Denied::OwnListener(own.parse().unwrap())), "{own}");
        assert_eq!(Refusal::from(screen(own).unwrap_err()), Refusal::Loop);
    }
    for other in ["127.0.0.2:3128", "127.0.0.1:3129", "8.8.8.8:3128", "8.8.8.8:8080"] {
        assert_eq!(screen(other), Ok(()), "{other}");
    }
}

#[test]
fn name_with_our_port_is_screened_by_its_address() {
    let guard = Guard { listeners: vec!["127.0.0.1:3128".parse().unwrap()], ..Guard::default() };
    let name = Host::parse("rebound.example").unwrap();
    assert_eq!(guard.screen_host(&name, 3128), Ok(()));
    assert_eq!(guard.screen_host(&name, 3129), Err(EgressReason::Port(3129).into()));
    let ours = "127.0.0.1:3128".parse().unwrap();
    assert_eq!(guard.screen_socket(ours), Err(Denied::OwnListener(ours)));
    assert_eq!(guard.screen_socket("8.8.8.8:3128".parse().unwrap()), Err(EgressReason::Port(3128).into()));
    assert_eq!(guard.screen_host(&Host::parse("127.1").unwrap(), 3128), Err(Denied::OwnListener(ours)));
}

#[test]
fn denial_names_the_range_and_its_document() {
    let sentence = |address: &str| Guard::default().screen_address(ip(address)).unwrap_err().to_string();
    assert_eq!(sentence("10.0.0.1"), "blocked by egress: 10.0.0.1 is in the range Private-Use (RFC 1918)");
    assert_eq!(
        sentence("64:ff9b::10.0.0.1"),
        "blocked by egress: 64:ff9b::a00:1 is in the range Private-Use because of the embedded 10.0.0.1 (RFC 1918)"
    );
}
