//! Address ranges without public web sites:
//!
//! - all ranges of IANA's special-purpose address registries, even those that are globally reachable
//! - multicast, and unallocated IPv6 space
//! - the addresses at which clouds serve credentials
//!
//! <https://www.iana.org/assignments/iana-ipv4-special-registry>,
//! <https://www.iana.org/assignments/iana-ipv6-special-registry>.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range, with its name and the document that defines it.
#[derive(Debug)]
pub(super) struct Range {
    pub network: IpNet,
    pub name: &'static str,
    pub source: &'static str,
}

/// The narrowest range that contains the address; `None` for a public address.
pub(super) fn find(address: IpAddr) -> Option<&'static Range> {
    let (table, reserved) = match address {
        IpAddr::V4(_) => (V4, None),
        IpAddr::V6(address) => (V6, (!is_given_out(address)).then_some(&RESERVED)),
    };
    let holding = table.iter().filter(|range| range.network.contains(&address));
    holding.max_by_key(|range| range.network.prefix_len()).or(reserved)
}

/// Whether the address is in allocated space: so far all global unicast addresses are in 2000::/3. The NAT64 prefixes are
/// outside, but allowed here, because the embedded addresses are checked.
fn is_given_out(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [0x2000..=0x3fff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0x64, 0xff9b, 1, ..])
}

static RESERVED: Range = v6([0; 8], 0, "unallocated", "IANA IPv6 address space");

pub(super) static V4: &[Range] = &[
    v4([0, 0, 0, 0], 8, "This network", "RFC 791"),
    v4([0, 0, 0, 0], 32, "This host on this network", "RFC 1122"),
    v4([10, 0, 0, 0], 8, "Private-Use", "RFC 1918"),
    v4([100, 64, 0, 0], 10, "Shared Address Space", "RFC 6598"),
    v4([100, 100, 100, 200], 32, "Cloud metadata", "Alibaba Cloud"),
    v4([127, 0, 0, 0], 8, "Loopback", "RFC 1122"),
    v4([168, 63, 129, 16], 32, "Cloud metadata", "Azure"),
    v4([169, 254, 0, 0], 16, "Link Local", "RFC 3927"),
    v4([169, 254, 169, 254], 32, "Cloud metadata", "AWS, Azure, Google Cloud and others"),
    v4([169, 254, 170, 2], 32, "Cloud metadata", "AWS ECS"),
    v4([172, 16, 0, 0], 12, "Private-Use", "RFC 1918"),
    v4([192, 0, 0, 0], 24, "IETF Protocol Assignments", "RFC 6890"),
    v4([192, 0, 0, 0], 29, "IPv4 Service Continuity Prefix", "RFC 7335"),
    v4([192, 0, 0, 8], 32, "IPv4 dummy address", "RFC 7600"),
    v4([192, 0, 0, 9], 32, "Port Control Protocol Anycast", "RFC 7723"),
    v4([192, 0, 0, 10], 32, "Traversal Using Relays around NAT Anycast", "RFC 8155"),
    v4([192, 0, 0, 170], 32, "NAT64/DNS64 Discovery", "RFC 7050"),
    v4([192, 0, 0, 171], 32, "NAT64/DNS64 Discovery", "RFC 7050"),
    v4([192, 0, 0, 192], 32, "Cloud metadata", "Oracle Cloud"),
    v4([192, 0, 2, 0], 24, "Documentation (TEST-NET-1)", "RFC 5737"),
    v4([192, 31, 196, 0], 24, "AS112-v4", "RFC 7535"),
    v4([192, 52, 193, 0], 24, "AMT", "RFC 7450"),
    v4([192, 88, 99, 0], 24, "6to4 Relay Anycast", "RFC 7526"),
    v4([192, 88, 99, 2], 32, "6a44-relay anycast address", "RFC 6751"),
    v4([192, 168, 0, 0], 16, "Private-Use", "RFC 1918"),
    v4([192, 175, 48, 0], 24, "Direct Delegation AS112 Service", "RFC 7534"),
    v4([198, 18, 0, 0], 15, "Benchmarking", "RFC 2544"),
    v4([198, 51, 100, 0], 24, "Documentation (TEST-NET-2)", "RFC 5737"),
    v4([203, 0, 113, 0], 24, "Documentation (TEST-NET-3)", "RFC 5737"),
    v4([224, 0, 0, 0], 4, "Multicast", "RFC 5771"),
    v4([240, 0, 0, 0], 4, "Reserved", "RFC 1112"),
    v4([255, 255, 255, 255], 32, "Limited Broadcast", "RFC 919"),
];

pub(super) static V6: &[Range] = &[
    v6([0, 0, 0, 0, 0, 0, 0, 0], 96, "IPv4-compatible Address", "RFC 4291"),
    v6([0, 0, 0, 0, 0, 0, 0, 0], 128, "Unspecified Address", "RFC 4291"),
    v6([0, 0, 0, 0, 0, 0, 0, 1], 128, "Loopback Address", "RFC 4291"),
    v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, "IPv4-mapped Address", "RFC 4291"),
    v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96, "IPv4-translated Address", "RFC 2765"),
    v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64, "Discard-Only Address Block", "RFC 6666"),
    v6([0x100, 0, 0, 1, 0, 0, 0, 0], 64, "Dummy IPv6 Prefix", "RFC 9780"),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "IETF Protocol Assignments", "RFC 2928"),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "TEREDO", "RFC 4380"),
    v6([0x2001, 1, 0, 0, 0, 0, 0, 1], 128, "Port Control Protocol Anycast", "RFC 7723"),
    v6([0x2001, 1, 0, 0, 0, 0, 0, 2], 128, "Traversal Using Relays around NAT Anycast", "RFC 8155"),
    v6([0x2001, 1, 0, 0, 0, 0, 0, 3], 128, "DNS-SD Service Registration Protocol Anycast", "RFC 9665"),
    v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, "Benchmarking", "RFC 5180"),
    v6([0x2001, 3, 0, 0, 0, 0, 0, 0], 32, "AMT", "RFC 7450"),
    v6([0x2001, 4, 0x112, 0, 0, 0, 0, 0], 48, "AS112-v6", "RFC 7535"),
    v6([0x2001, 0x10, 0, 0, 0, 0, 0, 0], 28, "Deprecated (previously ORCHID)", "RFC 4843"),
    v6([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28, "ORCHIDv2", "RFC 7343"),
    v6([0x2001, 0x30, 0, 0, 0, 0, 0, 0], 28, "Drone Remote ID Protocol Entity Tags", "RFC 9374"),
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "Documentation", "RFC 3849"),
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "6to4", "RFC 3056"),
    v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48, "Direct Delegation AS112 Service", "RFC 7534"),
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "Documentation", "RFC 9637"),
    v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, "Segment Routing (SRv6) SIDs", "RFC 9602"),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "Unique-Local", "RFC 4193"),
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, "Cloud metadata", "AWS"),
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128, "Cloud metadata", "Google Cloud"),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "Link-Local Unicast", "RFC 4291"),
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "Site-Local Unicast", "RFC 3879"),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "Multicast", "RFC 4291"),
];

const fn v4([a, b, c, d]: [u8; 4], prefix: u8, name: &'static str, source: &'static str) -> Range {
    Range { network: IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix), name, source }
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], prefix: u8, name: &'static str, source: &'static str) -> Range {
    Range { network: IpNet::new_assert(IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), prefix), name, source }
}
