//! Offers: the licenses and prices that sites named in their latest answers, by authority, for the API and `explain`.

use crate::policy::{Authority, UsageReport};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;

/// The offers of the first 1000 authorities that made one.
#[derive(Default)]
pub struct Offers(Mutex<BTreeMap<Authority, Offer>>);

/// The license and price that one authority asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Offer {
    /// URL of the license that the latest answer named.
    pub license: Option<Box<str>>,
    /// The price that the latest 402 named.
    pub price: Option<Box<str>>,
    /// Number of answers with status 402.
    pub payment_required: u64,
}

impl Offers {
    pub(in crate::proxy) fn note(&self, authority: &Authority, noted: &UsageReport) {
        if noted.licenses.is_empty() && !noted.payment_required {
            return;
        }
        let mut offers = self.0.lock();
        if offers.len() == MOST && !offers.contains_key(authority) {
            return;
        }
        let offer = offers.entry(authority.clone()).or_default();
        noted.licenses.first().iter().for_each(|license| offer.license = Some((*license).clone()));
        noted.price.iter().for_each(|price| offer.price = Some(price.clone()));
        offer.payment_required += u64::from(noted.payment_required);
    }

    pub fn of(&self, authority: &Authority) -> Option<Offer> {
        self.0.lock().get(authority).cloned()
    }
}

const MOST: usize = 1000;
