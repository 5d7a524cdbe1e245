//! Claims of requests under way to store what they are answered. An invalidation of the URL ends those made before it (RFC 9111 §4.4),
//! and those of no other URL: nothing has to be remembered of it.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// All claims, by URL hash. Those of one URL are one until it is invalidated.
#[derive(Default, Clone)]
pub struct StoreClaims(Arc<Mutex<HashMap<u128, Weak<ClaimState>>>>);

/// The claim of one request.
pub struct StoreClaim(Arc<ClaimState>);

struct ClaimState {
    all: StoreClaims,
    key: u128,
    is_over: AtomicBool,
}

impl StoreClaims {
    /// A claim, until it is dropped.
    pub fn enter(&self, key: u128) -> StoreClaim {
        let mut all = self.0.lock();
        if let Some(state) = all.get(&key).and_then(Weak::upgrade) {
            return StoreClaim(state);
        }
        let state = Arc::new(ClaimState { all: self.clone(), key, is_over: AtomicBool::new(false) });
        all.insert(key, Arc::downgrade(&state));
        StoreClaim(state)
    }

    /// Ends the claims to this URL. Call before its stored answers are removed.
    pub fn end(&self, key: u128) {
        let state = self.0.lock().remove(&key);
        // Not under the lock, which the last owner takes.
        if let Some(state) = state.and_then(|state| state.upgrade()) {
            state.is_over.store(true, Relaxed);
        }
    }
}

impl StoreClaim {
    /// Call under the lock of the index, which orders this and the end of a claim.
    pub fn holds(&self) -> bool {
        !self.0.is_over.load(Relaxed)
    }
}

impl Drop for ClaimState {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if all.get(&self.key).is_some_and(|state| std::ptr::eq(state.as_ptr(), self)) {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalidation_ends_the_claims_before_it_to_that_url_alone() {
        for many in [100, 100_000] {
            let all = StoreClaims::default();
            let claims: Vec<_> = (0..many).map(|key| all.enter(key)).collect();
            let same: Vec<_> = (0..many).map(|_| all.enter(1)).collect();
            (many..3 * many).for_each(|key| all.end(key));
            assert!(claims.iter().chain(&same).all(StoreClaim::holds));
            all.end(1);
            let later = all.enter(1);
            assert!(later.holds() && !claims[1].holds() && !same.iter().any(StoreClaim::holds));
            assert!(claims.iter().enumerate().all(|(key, claim)| claim.holds() == (key != 1)));
            drop((claims, same));
            assert_eq!(all.0.lock().len(), 1, "that of the later request stays");
            drop(later);
            assert!(all.0.lock().is_empty(), "nothing is remembered of the rest");
        }
    }
}
