//! Link lines, prices, and License lines of robots.txt: what is read is a piece of what came, and a licence alone reads as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::policy::usage::offer;
use politely::policy::{Money, UsageLines, UsageModes, UsageReport, Use};
use politely::robots::{RobotsTxt, is_license_url};
use std::time::SystemTime;

fuzz_target!(|bytes: &[u8]| {
    let line = String::from_utf8_lossy(bytes);
    let licenses = offer::licenses(&line).unwrap_or_default();
    assert!(licenses.len() * "<x>;rel=license".len() <= bytes.len());
    for license in licenses {
        assert!(memchr::memmem::find(bytes, license.target.as_bytes()).is_some());
        let media_type = if license.is_rsl { "; type=\"application/rsl+xml\"" } else { "" };
        let alone = format!("<{}>; rel=license{media_type}", license.target);
        assert_eq!(offer::licenses(&alone), Some(vec![license]));
        // One more before it, of another relation, changes nothing.
        let second = format!("</x>; title=\"a, b\", {alone}");
        assert_eq!(offer::licenses(&second).unwrap_or(vec![license]), [license]);
    }
    if let Some(price) = offer::price(bytes) {
        assert!(price.is_ascii() && offer::price(price.as_bytes()) == Some(price));
        let money = Money::parse(price).expect("it is one");
        assert!(price.starts_with(money.currency.as_str()) && money.to_string().starts_with(money.currency.as_str()));
    }
    let mut lines = UsageLines::default();
    lines.take(b"link", bytes);
    lines.take(b"crawler-price", bytes);
    lines.take(b"crawler-charged", bytes);
    lines.take(b"crawler-error", bytes);
    let to = Use { purposes: &[], product_tokens: &[], modes: UsageModes::default(), now: SystemTime::UNIX_EPOCH };
    let noted = UsageReport::judged(&lines, 402, &to).0;
    assert!(noted.payment_required && lines.reservation(&to).is_none());
    let robots = RobotsTxt::parse(&[b"license: ", bytes].concat());
    robots.licenses().for_each(|license| _ = is_license_url(license));
});
