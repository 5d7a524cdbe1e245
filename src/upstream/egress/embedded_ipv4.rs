//! IPv4 addresses embedded in an IPv6 address.

use std::net::{Ipv4Addr, Ipv6Addr};

/// All IPv4 addresses that an IPv6 address may embed, by the forms that it matches.
pub(super) fn ipv4(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let octets = address.octets();
    let at = |places: [usize; 4]| Ipv4Addr::from(places.map(|place| octets[place]));
    let last = at([12, 13, 14, 15]);
    match address.segments() {
        // `::` and `::1` embed no IPv4 address.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => vec![],
        // IPv4-compatible, IPv4-mapped (RFC 4291 §2.5.5); IPv4-translated (RFC 2765 §2.1).
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => vec![last],
        // NAT64 (RFC 6052 §2.1).
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => vec![last],
        // Local-use NAT64 (RFC 8215): the address does not tell the length of the prefix.
        [0x64, 0xff9b, 1, ..] => own_nat64([at([6, 7, 9, 10]), at([7, 9, 10, 11]), at([9, 10, 11, 12]), last]),
        // Teredo (RFC 4380 §4): the server's address, and the client's with inverted bits.
        [0x2001, 0, ..] => vec![at([4, 5, 6, 7]), Ipv4Addr::from_bits(!last.to_bits())],
        // 6to4 (RFC 3056 §2).
        [0x2002, ..] => vec![at([2, 3, 4, 5])],
        // ISATAP (RFC 5214 §6.1), in any prefix.
        [_, _, _, _, 0 | 0x200, 0x5efe, _, _] => vec![last],
        _ => vec![],
    }
}

/// The place of the IPv4 address depends on the prefix length (RFC 6052 §2.2), so `readings` has one address for each length. Drops those
/// in 0.0.0.0/8, unless all are.
fn own_nat64(readings: [Ipv4Addr; 4]) -> Vec<Ipv4Addr> {
    let sound: Vec<_> = readings.into_iter().filter(|reading| reading.octets()[0] != 0).collect();
    if sound.is_empty() { vec![Ipv4Addr::UNSPECIFIED] } else { sound }
}
