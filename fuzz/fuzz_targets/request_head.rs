//! Any octets as a request's head: what is let through reads in one way, with one Host, and no second message in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::proxy::fuzzing::request_head;

fuzz_target!(|octets: &[u8]| {
    for tunnelled in [false, true] {
        let Some(head) = request_head(octets, tunnelled) else {
            continue;
        };
        let end = head.windows(4).position(|window| window == b"\r\n\r\n").expect("a head ends with an empty line");
        assert_eq!(end + 4, head.len(), "one head");
        let lines: Vec<&[u8]> = head[..end].split(|&octet| octet == b'\n').collect();
        assert!(lines.iter().rev().skip(1).all(|line| line.ends_with(b"\r")), "CRLF ends each line");
        let names = lines[1..].iter().filter_map(|line| line.split(|&octet| octet == b':').next());
        let count = |wanted: &[u8]| names.clone().filter(|name| name.eq_ignore_ascii_case(wanted)).count();
        assert_eq!(count(b"host"), 1);
        assert!(count(b"content-length") + count(b"transfer-encoding") <= 1);
        assert_eq!(count(b"proxy-authorization"), 0);
        assert!(!head.contains(&0));
    }
});
