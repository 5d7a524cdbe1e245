//! The price that a request offers (Cloudflare's pay per crawl): `crawler-max-price` or `crawler-exact-price`.

use crate::policy::{Money, Refusal};

/// Reads an offered price. A repeated or malformed one is refused.
pub fn read_offered_price(promised: &mut Option<Money>, value: &[u8]) -> Result<(), Refusal> {
    let price = str::from_utf8(value).ok().and_then(|value| Money::parse(value.trim()));
    let price = price.ok_or_else(|| Refusal::bad_request(FORM))?;
    match promised.replace(price) {
        None => Ok(()),
        Some(_) => Err(Refusal::bad_request("more than one crawler-max-price or crawler-exact-price")),
    }
}

const FORM: &str = "malformed crawler-max-price or crawler-exact-price: write it like `USD 0.01`";
