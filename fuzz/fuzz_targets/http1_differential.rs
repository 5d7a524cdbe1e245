//! One message, two readers: the proxy's own, and httparse with the words of RFC 9112. They see the same, or both refuse. The
//! first byte says what the message is.
#![no_main]

#[path = "../../tests/support/second_reading.rs"]
mod second_reading;
#[path = "../../tests/support/two_readers.rs"]
mod two_readers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, message)) = bytes.split_first() else { return };
    match kind % 5 {
        0 => two_readers::request(message),
        1 => two_readers::response(message, "GET"),
        2 => two_readers::response(message, "HEAD"),
        3 => two_readers::response(message, "CONNECT"),
        _ => two_readers::chunked(message),
    }
});
