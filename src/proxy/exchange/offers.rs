//! What sites ask for in return for their pages, as of their latest answers: by authority, for the API and `explain`.

use crate::policy::{Authority, UsageReport};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;

/// The first authorities that asked for something.
#[derive(Default)]
pub struct Offers(Mutex<BTreeMap<Authority, Offer>>);

/// What one asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Offer {
    /// Where the terms were that an answer named last.
    pub license: Option<Box<str>>,
    /// What a 402 named last.
    pub price: Option<Box<str>>,
    /// Answers with status 402.
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
