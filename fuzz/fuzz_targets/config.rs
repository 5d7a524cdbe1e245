//! Any text as the configuration: settings or faults, never a panic, and faults that can be shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::config::Settings;

fuzz_target!(|text: &str| {
    if let Err(faults) = Settings::parse("fuzz.yaml", text) {
        assert!(!faults.to_string().is_empty());
    }
});
