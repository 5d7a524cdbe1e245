//! Authorities as clients write them: an accepted one means the same when it is written out and read again, and its
//! host is one that the guard has judged in its canonical form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::policy::{Authority, Scheme};
use politely::upstream::egress::Guard;

fuzz_target!(|bytes: &[u8]| {
    for scheme in [Scheme::Http, Scheme::Https] {
        let Ok(authority) = Authority::parse(scheme, bytes) else {
            continue;
        };
        let again = Authority::parse(scheme, authority.host_header().as_bytes()).expect("what we write we can read");
        assert_eq!(again, authority);
        let url = Authority::from_url(&authority.robots_url()).expect("what we write we can read");
        assert_eq!(url, authority);
        let guard = Guard::default();
        let judged = guard.screen_host(authority.host(), authority.port()).is_ok();
        assert_eq!(judged, guard.screen_host(again.host(), again.port()).is_ok());
        // A name that a resolver could take for an address would be dialled unscreened.
        if let Some(name) = authority.host().name() {
            assert!(name.parse::<std::net::IpAddr>().is_err(), "{name}");
            assert!(
                !name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit())),
                "{name}"
            );
        }
    }
});
