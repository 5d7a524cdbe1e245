//! `money` of a budget: `{ USD: 5, per: day }`.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::text::read_from_text;
use crate::config::read::error::Complaint;
use crate::policy::{Currency, Money, MoneyBudget, Period};

enum MoneyKey {
    Per,
    Currency(Currency),
}

struct Amount(u64);

fn parse_key(text: &str) -> Result<MoneyKey, Complaint> {
    match text {
        "per" => Ok(MoneyKey::Per),
        text => Currency::parse(text)
            .map(MoneyKey::Currency)
            .ok_or_else(|| Complaint::new(format!("`{text}` is not a currency"), FORMS)),
    }
}

fn parse_amount(text: &str) -> Result<Amount, Complaint> {
    Money::micros(text).map(Amount).ok_or_else(|| Complaint::new(format!("`{text}` is not an amount"), AMOUNT_FORMS))
}

read_from_text! {
    MoneyKey, "a currency", FORMS, parse_key;
    Amount, "an amount", AMOUNT_FORMS, parse_amount;
}

impl<'de> Deserialize<'de> for MoneyBudget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = MoneyBudget;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", Complaint::new("an amount and its currency", FORMS))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MoneyBudget, A::Error> {
                let (mut most, mut per) = (None, Period::default());
                while let Some(key) = map.next_key()? {
                    match key {
                        MoneyKey::Per => per = map.next_value()?,
                        MoneyKey::Currency(currency) => {
                            let Amount(micros) = map.next_value()?;
                            if most.replace(Money { currency, micros }).is_some() {
                                return Err(A::Error::custom(Complaint::new("this budget has two currencies", ONE)));
                            }
                        }
                    }
                }
                let most = most.ok_or_else(|| A::Error::missing_field("USD"))?;
                Ok(MoneyBudget { most, per })
            }
        }

        deserializer.deserialize_any(Pairs)
    }
}

const FORMS: &str = "write `{ USD: 5, per: day }`";
const AMOUNT_FORMS: &str = "an amount is a number such as `5` or `0.25`";
const ONE: &str = "keep one: a price in another currency is always refused";
