//! A path, a line end, a licence file (RSL). What refuses a use is a piece of the file; what is not one of its own says nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::robots::{Purpose, RslFile};

fuzz_target!(|bytes: &[u8]| {
    let (path, file) = bytes.split_at(memchr::memchr(b'\n', bytes).unwrap_or(0));
    let path = [b"/", path].concat();
    let read = RslFile::parse(file);
    assert!(read.len() <= 1000 && read.source() == file);
    for name in ["search", "ai-train", "ai-input", "ai-index", "tdm"] {
        let purpose = Purpose::parse(name).expect("it is one");
        let Some(found) = read.refusal(&purpose, "https://example.com", &path) else { continue };
        assert!((1..=1000).contains(&found.content) && !found.location.is_empty());
        let lists = |names: &[&str]| found.uses.split(' ').any(|listed| names.contains(&listed));
        match found.element {
            "prohibits" => assert!(!found.uses.is_empty()),
            "permits" => assert!(!lists(&["all", name])),
            other => panic!("{other}"),
        }
    }
});
