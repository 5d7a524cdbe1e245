//! Amounts of money, in the form of `crawler-price` and the other fields of pay per crawl (Cloudflare): `USD 0.01`. Pure.

use std::fmt;

/// An amount of one currency.
#[derive(Debug, Clone, Copy, PartialEq, Hash, Eq)]
pub struct Money {
    pub currency: Currency,
    /// The amount in millionths of the currency.
    pub micros: u64,
}

/// A currency code of three letters (ISO 4217).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency([u8; 3]);

impl Money {
    /// Parses `USD 0.01`. Amounts finer than millionths are rounded up.
    pub fn parse(text: &str) -> Option<Self> {
        let (currency, amount) = text.split_once(' ')?;
        Some(Self { currency: Currency::parse(currency)?, micros: Self::micros(amount)? })
    }

    /// Parses an amount such as `3` or `0.01`, in millionths.
    pub fn micros(amount: &str) -> Option<u64> {
        let (whole, part) = amount.split_once('.').unwrap_or((amount, "0"));
        let is_number = |digits: &str| (1..=12).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit());
        if !is_number(whole) || !is_number(part) {
            return None;
        }
        let whole: u64 = whole.parse().ok()?;
        let part: u64 = format!("{part:0<12}").parse().ok()?;
        Some(whole * 1_000_000 + part.div_ceil(1_000_000))
    }
}

impl Currency {
    pub fn parse(text: &str) -> Option<Self> {
        let letters: [u8; 3] = text.as_bytes().try_into().ok()?;
        letters.iter().all(u8::is_ascii_uppercase).then_some(Self(letters))
    }

    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("a currency code is ASCII")
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { currency, micros } = self;
        let (whole, part) = (micros / 1_000_000, format!("{:06}", micros % 1_000_000));
        match part.trim_end_matches('0') {
            "" => write!(f, "{} {whole}", currency.as_str()),
            // A fraction is shown with two decimals at least.
            part => write!(f, "{} {whole}.{part:0<2}", currency.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_is_stored_in_millionths_and_shown_as_a_price() {
        for (written, micros, shown) in [
            ("USD 0.01", 10_000, "USD 0.01"),
            ("EUR 3", 3_000_000, "EUR 3"),
            ("USD 0.5", 500_000, "USD 0.50"),
            ("USD 12.345678", 12_345_678, "USD 12.345678"),
            ("USD 0.0000001", 1, "USD 0.000001"),
            ("USD 0", 0, "USD 0"),
            ("USD 999999999999.999999999999", 1_000_000_000_000_000_000, "USD 1000000000000"),
        ] {
            let money = Money::parse(written).unwrap();
            assert_eq!((money.micros, &*money.to_string()), (micros, shown), "{written}");
        }
    }

    proptest::proptest! {
        #[test]
        fn displayed_amount_round_trips(micros in 0..1_000_000_000_000_000_000_u64) {
            let money = Money { currency: Currency::parse("USD").unwrap(), micros };
            proptest::prop_assert_eq!(Money::parse(&money.to_string()), Some(money));
        }

        #[test]
        fn any_text_parses_to_an_amount_or_none(text in "[A-Z]{2,4} [0-9.e-]{0,16}") {
            let Some(money) = Money::parse(&text) else { return Ok(()) };
            proptest::prop_assert!(text.starts_with(money.currency.as_str()));
            proptest::prop_assert_eq!(Money::parse(&money.to_string()), Some(money));
        }
    }

    #[test]
    fn invalid_amounts_are_refused() {
        for text in [
            "",
            "USD",
            "0.01",
            "usd 1",
            "USDC 1",
            "USD -1",
            "USD .1",
            "USD 1.",
            "USD 1.2.3",
            "USD 1e3",
            "USD  1",
            "USD 1234567890123",
            "USD 1 ",
        ] {
            assert_eq!(Money::parse(text), None, "{text}");
        }
    }
}
