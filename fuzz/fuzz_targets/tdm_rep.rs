//! A path, a line end, a tdmrep.json. The first entry whose location matches by the naive reading of the tests decides.
#![no_main]

#[path = "../../tests/support/naive.rs"]
mod naive;

use libfuzzer_sys::fuzz_target;
use politely::robots::TdmRep;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let (path, file) = bytes.split_at(memchr::memchr(b'\n', bytes).unwrap_or(0));
    let path = [b"/", path].concat();
    let read = TdmRep::parse(file);
    let found = read.reservation(&path).map(|found| found.entry);
    assert!(read.len() <= 1000 && read.source() == file);
    let (Ok(path), Ok(Value::Array(entries))) = (str::from_utf8(&path), serde_json::from_slice(file)) else {
        return assert!(found.is_none() || str::from_utf8(&path).is_err() || file.starts_with(b"\xef\xbb\xbf"));
    };
    // What the naive reading leaves to others.
    let lower = path.to_ascii_lowercase();
    if entries.len() > 1000 || path.contains('#') || lower.contains("/.") || lower.contains("/%2e") {
        return;
    }
    let expected = (1..).zip(&entries).find_map(|(number, entry)| {
        let location = entry.get("location")?.as_str()?;
        let is_one = location.starts_with(['/', '*']) && location.len() <= 2048 && !location.contains(char::is_control);
        let matches = is_one && entry.is_object() && naive::decide(&[(false, location.to_owned())], path).is_some();
        matches.then(|| (entry["tdm-reservation"].as_u64() == Some(1)).then_some(number))
    });
    assert_eq!(found, expected.flatten(), "{path}\n{}", String::from_utf8_lossy(file));
});
