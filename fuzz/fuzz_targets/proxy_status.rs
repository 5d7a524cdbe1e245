//! Any text as the details in Proxy-Status: a field value of printable ASCII, in which a quoted string ends once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::proxy::fuzzing::proxy_status;

fuzz_target!(|details: &str| {
    let value = proxy_status(details);
    assert!(value.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{value:?}");
    let (mut quotes, mut escaped) = (0, false);
    for byte in value.bytes() {
        quotes += usize::from(byte == b'"' && !escaped);
        escaped = byte == b'\\' && !escaped;
    }
    assert_eq!(quotes, 2, "{value:?}");
});
